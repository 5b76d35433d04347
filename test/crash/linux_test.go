//go:build linux || darwin

package crash_test

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The GPUs of the Linux host: two with MIG, one without, and one of bystanders.
const (
	hopper1  = "GPU-90000000-0000-4000-8000-000000000001"
	hopper2  = "GPU-90000000-0000-4000-8000-000000000002"
	ada      = "GPU-ada00000-0000-4000-8000-000000000001"
	foreignA = "GPU-ada00000-0000-4000-8000-000000000002"
)

// The bystanders of a Linux host: a daemon, a share that it serves, and a process in it.
const (
	byDaemon  = "bystanders"
	byShare   = "bystander"
	byProcess = "notebook"
)

// linuxFleet is a Linux host whose processes can share GPUs.
func linuxFleet() gpu.Snapshot {
	h := gpu.Host{
		Name: host, Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS", Version: "24.04"},
		MPS: &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}, ContainerToolkit: "1.20.1",
		GPUs: []gpu.GPU{
			nvidiaGPU(hopper1, "NVIDIA H100 80GB HBM3", "2330"), nvidiaGPU(hopper2, "NVIDIA H100 80GB HBM3", "2330"),
			nvidiaGPU(ada, "NVIDIA L40S", "26B9"), nvidiaGPU(foreignA, "NVIDIA L40S", "26B9"),
		},
	}
	return gpu.Snapshot{Hosts: []gpu.Host{h}}
}

func nvidiaGPU(id, model, device string) gpu.GPU {
	g := gpu.GPU{
		ID: id, Model: model, Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: device}, VRAM: 80 * gib,
		Driver:      gpu.Driver{Version: "580.95.05"},
		ComputeMode: gpu.ComputeDefault, TimeSlice: gpu.TimeSliceDefault, ComputeCapability: "9.0",
	}
	if m, ok := catalog.ByPCI(g.PCI); ok && m.MIG != nil {
		g.MIG = &gpu.MIG{NeedsReset: m.MIG.ModeNeedsReset, Profiles: m.MIG.Profiles}
	}
	return g
}

func linuxConfig(id string, edit func(*gpu.PartitionConfig), gpus ...string) *gpu.PartitionConfig {
	c := &gpu.PartitionConfig{ID: id, Name: id, GPUs: map[string][]string{host: gpus}, Restore: true}
	edit(c)
	return c
}

// mps is a config of MPS whose clients have part of the threads, 0 for all.
func mps(id string, threads float64, gpus ...string) *gpu.PartitionConfig {
	return linuxConfig(id, func(c *gpu.PartitionConfig) {
		c.Kind, c.MPS = gpu.KindMPS, &gpu.MPSLayout{MultiUser: true, ActiveThreadPercentage: threads}
	}, gpus...)
}

func turns(id string, gpus ...string) *gpu.PartitionConfig {
	return linuxConfig(id, func(c *gpu.PartitionConfig) {
		c.Kind, c.TimeSlicing = gpu.KindTimeSlicing, &gpu.TimeSlicing{Interval: gpu.TimeSliceLong, Replicas: 4}
	}, gpus...)
}

// instances is a config of GPU instances with a daemon in each.
func instances(id string, profiles map[string]int, gpus ...string) *gpu.PartitionConfig {
	return linuxConfig(id, func(c *gpu.PartitionConfig) {
		c.Kind, c.MIG, c.MPS = gpu.KindMIG, &gpu.MIGLayout{Profiles: profiles}, &gpu.MPSLayout{MultiUser: true}
	}, gpus...)
}

func fraction(name, config string, memory gpu.Bytes) *gpu.Share {
	return &gpu.Share{Name: name, Host: host, Config: config, Count: 1, MemoryRequest: memory, MemoryLimit: memory}
}

func shares(id, token string, from, to *gpu.Share) agent.Change {
	return move(id, token, func(w *gpu.Want, s *gpu.Share) { w.Share = s }, from, to)
}

// linuxScenarios cover every step on compute modes, time slices, daemons and shares, beside
// bystanders.
func linuxScenarios() []scenario {
	bystanders := []agent.Change{
		layout("b0", "bystanders", nil, mps(byDaemon, 0, foreignA)), shares("b1", "bystander", nil, fraction(byShare, byDaemon, gib)),
	}
	with := func(more ...agent.Change) []agent.Change { return slices.Concat(bystanders, more) }
	placed := with(layout("c0", "mps", nil, mps("inference", 0, hopper1, ada)),
		shares("c1", "a", nil, fraction("team-a", "inference", 10*gib)))
	parts := map[string]int{"1g.10gb": 2, "3g.40gb": 1}
	served := with(layout("c0", "mig", nil, instances("train", parts, hopper1)), shares("c1", "a", nil, fraction("team-a", "train", gib)))
	whole := []string{"inference", "team-a"}
	return []scenario{
		{
			name: "share GPUs through MPS", linux: true, before: bystanders, concerned: whole,
			change: layout("x", "mps", nil, mps("inference", 0, hopper1, ada)),
		},
		{
			name: "limit the clients of MPS under a share", linux: true, before: placed, concerned: whole,
			change: layout("x", "mps", mps("inference", 0, hopper1, ada), mps("inference", 50, hopper1, ada)),
		},
		{
			name: "a GPU leaves a config of MPS and another joins, under a share", linux: true, before: placed, concerned: whole,
			change: layout("x", "mps", mps("inference", 0, hopper1, ada), mps("inference", 0, hopper1, hopper2)),
		},
		{
			name: "GPUs and a share move to another config of MPS", linux: true, before: placed, concerned: append(whole, "training"),
			change: layout("x", "other", nil, mps("training", 0, hopper1, ada)),
		},
		{
			name: "a GPU moves from MPS to time-slicing", linux: true, before: placed, concerned: whole,
			change: layout("x", "turns", nil, turns("notebooks", ada)),
		},
		{
			name: "make GPU instances with MPS in them", linux: true, before: bystanders, concerned: []string{hopper1},
			change: layout("x", "mig", nil, instances("train", parts, hopper1)),
		},
		{
			name: "change GPU instances with MPS in them, under a share", linux: true, before: served, concerned: []string{hopper1, "team-a"},
			change: layout("x", "mig", instances("train", parts, hopper1),
				instances("train", map[string]int{"1g.10gb": 1, "2g.20gb": 1, "3g.40gb": 1}, hopper1)),
		},
		{
			name: "delete a config of MPS", linux: true, before: with(layout("c0", "mps", nil, mps("inference", 0, hopper1, ada))), concerned: whole,
			change: layout("x", "mps", mps("inference", 0, hopper1, ada), nil),
		},
		{
			name: "restart the daemon of a config of MPS under a share", linux: true, before: placed, concerned: whole,
			change: act(change.ActRestart, layout("x", "mps", nil, mps("inference", 0, hopper1, ada))),
		},
		{name: "place a share", linux: true, before: placed, change: shares("x", "b", nil, fraction("team-b", "inference", 20*gib))},
		{
			name: "change a share", linux: true, before: placed,
			change: shares("x", "a", fraction("team-a", "inference", 10*gib), fraction("team-a", "inference", 5*gib)),
		},
		{name: "end a share", linux: true, before: placed, change: shares("x", "a", fraction("team-a", "inference", 10*gib), nil)},
	}
}

// forgetLinux leaves out of a host what differs from one start to the next: processes of
// daemons, and ids of GPU instances and what leads to them, for those concerned.
func forgetLinux(h *gpu.Host, concerns func(string) bool) {
	if h.MPS != nil {
		for i := range h.MPS.Daemons {
			d := &h.MPS.Daemons[i]
			inside := len(d.Devices) > 0 && concerns(d.Devices[0].GPU)
			if d.PID != 0 && (concerns(d.Name) || inside) {
				d.PID = 1
			}
		}
	}
	for i := range h.Shares {
		if s := &h.Shares[i]; concerns(s.Name) {
			maps.DeleteFunc(s.Environment, func(name, _ string) bool { return strings.HasSuffix(name, "_DEVICES") })
		}
	}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.MIG == nil || !concerns(g.ID) {
			continue
		}
		for j := range g.MIG.Instances {
			in := &g.MIG.Instances[j]
			in.ID = 0
			for k := range in.Compute {
				in.Compute[k] = gpu.ComputeInstance{Slices: in.Compute[k].Slices}
			}
		}
		slices.SortFunc(g.MIG.Instances, func(a, b gpu.GPUInstance) int { return a.Start - b.Start })
	}
}

// Platform tells which of the interfaces are meant.
func (b *breaker) Platform(ctx context.Context) gpu.Platform { return b.platform(ctx) }

// Inventory is the same on every kind of host.
func (b *breaker) Inventory(ctx context.Context) (gpu.Host, error) { return b.MIG.Inventory(ctx) }

func (b *breaker) SetMIGMode(ctx context.Context, gpuID string, on, reset bool) error {
	return b.do("set the MIG mode", toHost, func() error { return b.MIG.SetMIGMode(ctx, gpuID, on, reset) })
}

func (b *breaker) CreateInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error {
	return b.do("create an instance", toHost, func() error { return b.MIG.CreateInstance(ctx, gpuID, p) })
}

func (b *breaker) DestroyInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error {
	return b.do("destroy an instance", toHost, func() error { return b.MIG.DestroyInstance(ctx, gpuID, p) })
}

// RefreshDevices is no part of a change, whatever becomes of it.
func (b *breaker) RefreshDevices(ctx context.Context) error { return b.MIG.RefreshDevices(ctx) }

func (b *breaker) SetComputeMode(ctx context.Context, gpuID string, mode gpu.ComputeMode) error {
	return b.do("set the compute mode", toHost, func() error { return b.Sharing.SetComputeMode(ctx, gpuID, mode) })
}

func (b *breaker) SetTimeSlice(ctx context.Context, gpuID string, t gpu.TimeSlice) error {
	return b.do("set the time slice", toHost, func() error { return b.Sharing.SetTimeSlice(ctx, gpuID, t) })
}

func (b *breaker) EnsureDaemon(ctx context.Context, d gpu.MPSDaemonSpec, endClients bool) error {
	return b.do("ensure a daemon", toHost, func() error { return b.Sharing.EnsureDaemon(ctx, d, endClients) })
}

func (b *breaker) RemoveDaemon(ctx context.Context, name string, endClients bool) error {
	return b.do("remove a daemon", toHost, func() error { return b.Sharing.RemoveDaemon(ctx, name, endClients) })
}

func (b *breaker) WriteShare(ctx context.Context, s gpu.ShareSpec) error {
	return b.do("write a share", toHost, func() error { return b.Sharing.WriteShare(ctx, s) })
}

func (b *breaker) RemoveShare(ctx context.Context, name string, endClients bool) error {
	return b.do("remove a share", toHost, func() error { return b.Sharing.RemoveShare(ctx, name, endClients) })
}
