package rules_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

func TestDescribeShare(t *testing.T) {
	newest := func(h *gpu.Host) *gpu.Host {
		h.ContainerToolkit = "v1.20.1"
		for i := range h.GPUs {
			h.GPUs[i].Driver.Version = "615.43.02"
		}
		return h
	}
	// handed has containers get share a with the hook that limits memory, or without it.
	handed := func(h *gpu.Host, hooked bool) *gpu.Host {
		h.Shares = []gpu.HandedShare{{Name: "a", CDIDevice: gpu.CDIDevice("a"), LimitsContainers: hooked}}
		return h
	}
	// runs has a process of share a, which the driver holds to a limit in its container.
	runs := func(h *gpu.Host, name string, limit *gpu.Bytes) *gpu.Host {
		h.GPUs[0].Processes = append(h.GPUs[0].Processes, gpu.Process{PID: 4711, Share: name, MemoryLimit: limit})
		return h
	}
	fenced := func() *gpu.Host { return handed(newest(laidOut(shareServer(), mpsConfig("ml", "gpu01"))), true) }
	turns := func() *gpu.Host { return handed(newest(laidOut(shareServer(), slicesConfig("ml", 4, "gpu01"))), true) }
	enforced := func(by placement.Enforcement) placement.ShareFacts {
		return placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: by, Fraction: 0.25}
	}
	served := func(h *gpu.Host) *gpu.Host {
		h.MPS = &gpu.MPSHost{}
		for _, c := range h.Claims {
			for _, d := range placement.Daemons(h, c.Want.Config, c.GPUs) {
				h.MPS.Daemons = append(h.MPS.Daemons, gpu.MPSDaemon{MPSDaemonSpec: d, PID: 4001})
			}
		}
		return h
	}
	by := func(driver string, h *gpu.Host) *gpu.Host {
		for i := range h.GPUs {
			h.GPUs[i].Driver.Version = driver
		}
		return h
	}
	instances := func() *gpu.Host { return shareServer(h100(migGPU0, at("3g.40gb", 0))) }
	mig := func(edit func(*gpu.PartitionConfig)) gpu.Want {
		w := covering(migConfig("ml", profiles("3g.40gb", 1), "gpu01"), migGPU0)
		edit(w.Config)
		return w
	}
	limited := mpsConfig("ml", "gpu01")
	limited.Config.MPS.ActiveThreadPercentage = 50
	held := mpsConfig("ml", "gpu01")
	held.Config.MPS.PinnedMemoryLimit = 20 * gib
	old := laidOut(shareServer(), mpsConfig("ml", "gpu01"))
	old.GPUs[0].ComputeCapability = "6.0"
	oldToolkit := newest(laidOut(shareServer(), mpsConfig("ml", "gpu01")))
	oldToolkit.ContainerToolkit = "1.20.0"
	oldDriver := newest(laidOut(shareServer(), mpsConfig("ml", "gpu01")))
	for i := range oldDriver.GPUs {
		oldDriver.GPUs[i].Driver.Version = "580.95.05"
	}
	heldBoth := mpsConfig("ml", "gpu01")
	heldBoth.Config.MPS.PinnedMemoryLimit, heldBoth.Config.MPS.ActiveThreadPercentage = 20*gib, 50
	threaded := onto(share("a", 20*gib), migGPU0)
	threaded.ActiveThreadPercentage = 50
	half := onto(share("a", 0), migGPU0)
	half.MemoryRequest, half.ActiveThreadPercentage = 20*gib, 50
	inInstance := into(share("a", 0), at("3g.40gb", 0))
	tests := map[string]struct {
		host  *gpu.Host
		share gpu.Share
		want  placement.ShareFacts
	}{
		"not placed": {
			host: shareServer(), share: share("a", gib), want: placement.ShareFacts{Isolation: "none", Enforcement: "none"},
		},
		"whole": {
			host: shareServer(), share: onto(share("a", gib), migGPU0), want: placement.ShareFacts{
				Mode: "whole_gpu", Isolation: "hardware", Enforcement: "hardware", Fraction: 1,
			},
		},
		"two whole ones": {
			host: shareServer(), share: onto(share("a", gib), migGPU0, migGPU1),
			want: placement.ShareFacts{Mode: "whole_gpu", Isolation: "hardware", Enforcement: "hardware", Fraction: 2},
		},
		"an instance": {
			host: instances(), share: inInstance, want: placement.ShareFacts{
				Mode: "mig", Isolation: "hardware", Enforcement: "hardware", Fraction: 0.49375,
			},
		},
		"an instance that is lost": {
			host: shareServer(h100(migGPU0)), share: inInstance, want: placement.ShareFacts{
				Mode: "mig", Isolation: "hardware", Enforcement: "hardware", Fraction: 0.49375,
			},
		},
		"MPS, nothing said": {
			host: laidOut(shareServer(), mpsConfig("ml", "gpu01")), share: onto(share("a", 0), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "none"},
		},
		"MPS, by memory": {
			host: laidOut(shareServer(), mpsConfig("ml", "gpu01")), share: onto(share("a", 20*gib), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "advisory", Fraction: 0.25},
		},
		"MPS, the larger part counts": {
			host: laidOut(shareServer(), mpsConfig("ml", "gpu01")), share: half,
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "advisory", Fraction: 0.5},
		},
		"MPS, the daemon holds as much": {
			host: served(laidOut(shareServer(), held)), share: onto(share("a", 20*gib), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "per_process", Fraction: 0.25},
		},
		"MPS, the daemon holds as much and clients may change that": {
			host: by("535.261.03", served(laidOut(shareServer(), held))), share: onto(share("a", 20*gib), migGPU0), want: enforced("advisory"),
		},
		"MPS, the daemon limits and the driver may be too old": {
			host: by("550.54.15", served(laidOut(shareServer(), limited))), share: onto(share("a", 20*gib), migGPU0), want: enforced("advisory"),
		},
		"MPS, the daemon holds as much and nobody tells the driver": {
			host: by("", served(laidOut(shareServer(), held))), share: onto(share("a", 20*gib), migGPU0), want: enforced("advisory"),
		},
		"MPS, the first driver that refuses its clients": {
			host: by("550.163.01", served(laidOut(shareServer(), held))), share: onto(share("a", 20*gib), migGPU0), want: enforced("per_process"),
		},
		"MPS, nothing is held by an old driver": {
			host: by("535.261.03", served(laidOut(shareServer(), mpsConfig("ml", "gpu01")))), share: onto(share("a", 0), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "none"},
		},
		"MPS, the daemon holds more": {
			host: served(laidOut(shareServer(), held)), share: onto(share("a", 10*gib), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "advisory", Fraction: 0.125},
		},
		"MPS, the daemon holds another": {
			host: served(laidOut(shareServer(), limited)), share: onto(share("a", 20*gib), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "advisory", Fraction: 0.25},
		},
		"MPS, the daemon holds memory alone": {
			host: served(laidOut(shareServer(), held)), share: threaded, want: placement.ShareFacts{
				Mode: "mps", Isolation: "memory", Enforcement: "advisory", Fraction: 0.5,
			},
		},
		"MPS, the daemon holds both": {
			host: served(laidOut(shareServer(), heldBoth)), share: threaded,
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "per_process", Fraction: 0.5},
		},
		"MPS, no daemon runs": {
			host: laidOut(shareServer(), limited), share: onto(share("a", 0), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "none"},
		},
		"MPS, the daemon limits": {
			host: served(laidOut(shareServer(), limited)), share: onto(share("a", 0), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "per_process"},
		},
		"MPS before Volta": {
			host: old, share: onto(share("a", 0), migGPU0), want: placement.ShareFacts{Mode: "mps", Isolation: "none", Enforcement: "none"},
		},
		"MPS, containers limited": {
			host: handed(newest(laidOut(shareServer(), mpsConfig("ml", "gpu01"))), true), share: onto(share("a", 20*gib), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "per_container", Fraction: 0.25},
		},
		"MPS, its process is limited": {
			host: runs(fenced(), "a", new(20*gib)), share: onto(share("a", 20*gib), migGPU0), want: enforced("per_container"),
		},
		"MPS, its process is limited to less": {
			host: runs(fenced(), "a", new(10*gib)), share: onto(share("a", 20*gib), migGPU0), want: enforced("per_container"),
		},
		"MPS, its process has an old limit": {
			host: runs(fenced(), "a", new(30*gib)), share: onto(share("a", 20*gib), migGPU0), want: enforced("advisory"),
		},
		"MPS, one process began before": {
			host: runs(runs(fenced(), "a", new(20*gib)), "a", new(gpu.Bytes(0))), share: onto(share("a", 20*gib), migGPU0),
			want: enforced("advisory"),
		},
		"MPS, nobody tells of its process": {
			host: runs(fenced(), "a", nil), share: onto(share("a", 20*gib), migGPU0), want: enforced("per_container"),
		},
		"MPS, a process of another share": {
			host: runs(fenced(), "b", new(gpu.Bytes(0))), share: onto(share("a", 20*gib), migGPU0), want: enforced("per_container"),
		},
		"turns, one process began before": {
			host: runs(turns(), "a", new(gpu.Bytes(0))), share: onto(share("a", 40*gib), migGPU0),
			want: placement.ShareFacts{Mode: "time_slicing", Isolation: "none", Enforcement: "none", Fraction: 0.5},
		},
		"MPS, handed without the hook": {
			host: handed(newest(laidOut(shareServer(), mpsConfig("ml", "gpu01"))), false), share: onto(share("a", 20*gib), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "advisory", Fraction: 0.25},
		},
		"MPS, the toolkit is too old": {
			host: handed(oldToolkit, true), share: onto(share("a", 20*gib), migGPU0),
			want: placement.ShareFacts{Mode: "mps", Isolation: "memory", Enforcement: "advisory", Fraction: 0.25},
		},
		"MPS, the driver is too old": {host: handed(oldDriver, true), share: onto(share("a", 20*gib), migGPU0), want: enforced("advisory")},
		"turns": {
			host: laidOut(shareServer(), slicesConfig("ml", 4, "gpu01")), share: onto(share("a", 8*gib), migGPU0),
			want: placement.ShareFacts{Mode: "time_slicing", Isolation: "none", Enforcement: "none", Fraction: 0.25},
		},
		"turns, containers limited": {
			host: handed(newest(laidOut(shareServer(), slicesConfig("ml", 4, "gpu01"))), true), share: onto(share("a", 40*gib), migGPU0),
			want: placement.ShareFacts{Mode: "time_slicing", Isolation: "none", Enforcement: "per_container", Fraction: 0.5},
		},
		"MPS in an instance, which has no limits of containers": {
			host:  handed(newest(laidOut(instances(), mig(func(c *gpu.PartitionConfig) { c.MPS = mps() }))), true),
			share: into(part("a", 50), at("3g.40gb", 0)), want: placement.ShareFacts{
				Mode: "mps", Isolation: "memory", Enforcement: "advisory", Fraction: 0.246875,
			},
		},
		"turns in an instance": {
			host:  laidOut(instances(), mig(func(c *gpu.PartitionConfig) { c.TimeSlicing = &gpu.TimeSlicing{Replicas: 2} })),
			share: inInstance, want: placement.ShareFacts{Mode: "time_slicing", Isolation: "none", Enforcement: "none", Fraction: 0.246875},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := placement.DescribeShare(tt.host, &tt.share)
			got.Fraction = math.Round(got.Fraction*10000) / 10000
			tt.want.Fraction = math.Round(tt.want.Fraction*10000) / 10000
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShareSpec(t *testing.T) {
	limited := mpsConfig("ml", "gpu01")
	limited.Config.MPS.PinnedMemoryLimit = 30 * gib
	instances := covering(migConfig("ml", profiles("3g.40gb", 1), "gpu01"), migGPU0)
	instances.Config.MPS = mps()
	inMIG := laidOut(shareServer(h100(migGPU0, at("3g.40gb", 0))), instances)
	a := onto(part("a", 25), migGPU0, migGPU1)
	a.MemoryRequest, a.MemoryLimit, a.ClientPriority = 10*gib, 40*gib, ptr(1)
	devices := a.Devices
	tests := map[string]struct {
		host  *gpu.Host
		share gpu.Share
		want  gpu.ShareSpec
	}{
		"whole GPUs": {host: shareServer(), share: onto(share("a", gib), migGPU0), want: gpu.ShareSpec{
			Name: "a", Devices: devices[:1], MemoryRequest: gib, MemoryLimit: gib,
		}},
		"MPS": {host: laidOut(shareServer(), mpsConfig("ml", "gpu01")), share: a, want: gpu.ShareSpec{
			Name: "a", Devices: devices, Daemon: "ml", ActiveThreadPercentage: 25, PinnedMemoryLimit: 40 * gib,
			ClientPriority: ptr(1), MemoryRequest: 10 * gib, MemoryLimit: 40 * gib,
		}},
		"MPS whose daemon gives less": {host: laidOut(shareServer(), limited), share: a, want: gpu.ShareSpec{
			Name: "a", Devices: devices, Daemon: "ml", ActiveThreadPercentage: 25, PinnedMemoryLimit: 30 * gib,
			ClientPriority: ptr(1), MemoryRequest: 10 * gib, MemoryLimit: 40 * gib,
		}},
		"MPS in an instance": {host: inMIG, share: into(share("a", gib), at("3g.40gb", 0)), want: gpu.ShareSpec{
			Name: "a", Devices: into(share("a", 0), at("3g.40gb", 0)).Devices,
			Daemon:            placement.Daemons(inMIG, instances.Config, []string{migGPU0})[0].Name,
			PinnedMemoryLimit: gib, MemoryRequest: gib, MemoryLimit: gib,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := placement.ShareSpec(tt.host, &tt.share)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
	unplaced := share("a", 0)
	if _, err := placement.ShareSpec(shareServer(), &unplaced); err == nil || !strings.Contains(err.Error(), "not placed") {
		t.Errorf("not placed: %v", err)
	}
}

func TestDaemons(t *testing.T) {
	divided, h := shareServer(freeGPU(migGPU1), h100(migGPU0, at("1g.10gb", 4), at("3g.40gb", 0))),
		shareServer(freeGPU(migGPU1), freeGPU(migGPU0))
	c := mpsConfig("ml", "gpu01").Config
	c.MPS = &gpu.MPSLayout{User: ptr(1000), ActiveThreadPercentage: 25, PinnedMemoryLimit: 8 * gib}
	ids := []string{migGPU1, strings.ToLower(migGPU0), migGPU2, migGPU1}
	one := gpu.MPSDaemonSpec{
		Name: "ml", User: ptr(1000), ActiveThreadPercentage: 25, PinnedMemoryLimit: 8 * gib,
		Devices: []gpu.SharedDevice{{GPU: migGPU0}, {GPU: migGPU1}},
	}
	if diff := cmp.Diff([]gpu.MPSDaemonSpec{one}, placement.Daemons(h, c, ids)); diff != "" {
		t.Errorf("of whole GPUs (-want +got):\n%s", diff)
	}
	if got := placement.Daemons(h, c, []string{migGPU2}); len(got) != 0 {
		t.Errorf("of GPUs that are not there: %+v", got)
	}
	names := map[string]bool{one.Name: true}
	c.MPS.PerGPU = true
	got := placement.Daemons(h, c, ids)
	for i, id := range []string{migGPU0, migGPU1} {
		if len(got) != 2 || !gpu.SameDevices(got[i].Devices, []gpu.SharedDevice{{GPU: id}}) {
			t.Fatalf("one for each GPU: %+v", got)
		}
		if alone := placement.Daemons(h, c, []string{id}); alone[0].Name != got[i].Name {
			t.Errorf("the daemon of %s is %q, and %q beside another", id, alone[0].Name, got[i].Name)
		}
		names[got[i].Name] = true
	}
	c.MPS.PerGPU = false
	if got := placement.Daemons(divided, c, ids); len(got) != 1 || !gpu.SameDevices(got[0].Devices, []gpu.SharedDevice{{GPU: migGPU1}}) {
		t.Errorf("beside a GPU in MIG mode: %+v", got)
	}
	c.Kind, c.MIG = gpu.KindMIG, ptr(profiles("3g.40gb", 1))
	got = placement.Daemons(divided, c, ids)
	for i, at := range []gpu.MIGPlacement{at("3g.40gb", 0), at("1g.10gb", 4)} {
		if len(got) != 2 || !gpu.SameDevices(got[i].Devices, []gpu.SharedDevice{{GPU: migGPU0, Instance: &at}}) {
			t.Fatalf("of instances: %+v", got)
		}
		names[got[i].Name] = true
	}
	if len(names) != 5 {
		t.Errorf("two daemons of one name: %v", names)
	}
}

// Names of daemons are names of units and directories.
func TestDaemonNames(t *testing.T) {
	h := shareServer()
	names := map[string]string{}
	for _, id := range []string{
		"ml", "Team A", "team-a", "team  a", "--", "", "_x", "mps-abc123", strings.Repeat("x", 70), strings.Repeat("x", 71), "ü",
	} {
		for _, mig := range []bool{false, true} {
			c := mpsConfig(id, "gpu01").Config
			h.GPUs = []gpu.GPU{freeGPU(migGPU0)}
			if mig {
				c.MIG, h.GPUs[0] = ptr(profiles("3g.40gb", 1)), h100(migGPU0, at("3g.40gb", 0))
			}
			name := placement.Daemons(h, c, []string{migGPU0})[0].Name
			if len(name) == 0 || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" ||
				strings.ContainsAny(name[:1], "-_") {
				t.Errorf("config %q: the daemon is called %q", id, name)
			}
			if other, twice := names[name]; twice {
				t.Errorf("configs %q and %q have a daemon %q each", id, other, name)
			}
			names[name] = id
		}
	}
	for _, name := range []string{"ml", "team-a", "mps-abc123"} {
		if names[name] != name {
			t.Errorf("a daemon of config %q should be called so", name)
		}
	}
	h.GPUs = []gpu.GPU{freeGPU(migGPU0)}
	if a, b := placement.Daemons(h, mpsConfig("ML", "gpu01").Config, []string{migGPU0}),
		placement.Daemons(h, mpsConfig("ml", "gpu01").Config, []string{migGPU0}); a[0].Name != b[0].Name {
		t.Errorf("ids are compared without case, but the daemons are %q and %q", a[0].Name, b[0].Name)
	}
}

// Instances that shares are on stay, and come back where they were.
func TestLayOutMIGKeepsInstancesOfShares(t *testing.T) {
	g := h100(migGPU0, at("1g.10gb", 0), at("1g.10gb", 1), at("1g.10gb", 2))
	of := func(start int) *gpu.Share { return ptr(into(share("a", 0), at("1g.10gb", start))) }
	l := profiles("1g.10gb", 1)
	for start := range 3 {
		plan, err := placement.LayOutMIG(&g, &l, of(start))
		if err != nil || !cmp.Equal(plan.Keep, []gpu.MIGPlacement{at("1g.10gb", start)}) {
			t.Errorf("the share is on %d: %+v, %v", start, plan, err)
		}
	}
	g = h100(migGPU0)
	plan, err := placement.LayOutMIG(&g, ptr(profiles("3g.40gb", 1)), ptr(into(share("a", 0), at("3g.40gb", 4))))
	if want := (placement.MIGPlan{Create: []gpu.MIGPlacement{at("3g.40gb", 4)}}); err != nil || !cmp.Equal(plan.Create, want.Create) ||
		len(plan.Keep) != 0 {
		t.Errorf("a lost instance: %+v, %v", plan, err)
	}
	if _, err = placement.LayOutMIG(&g, ptr(profiles("3g.40gb", 1)), of(0)); err == nil || !strings.Contains(err.Error(), `share "a"`) {
		t.Errorf("the layout has no place for the share's instance: %v", err)
	}
}
