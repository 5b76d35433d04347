package rules_test

import (
	"cmp"
	"fmt"
	"math"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// Small alphabets make ids and names collide, which is where the rules do something.
var (
	hostNames = rapid.SampledFrom([]string{"hv01", "hv02", "hv03", ""})
	gpuIDs    = rapid.SampledFrom([]string{gpu0, gpu1, "pciroot(16)#pci(0000)#pci(0000)", "PCIROOT(99)", ""})
	vmNames   = rapid.SampledFrom([]string{"a", "A", "b", "ID-a", "ID-b", ""})
	owners    = rapid.SampledFrom([]string{"", "vdi", "platform"})
	tokens    = rapid.SampledFrom([]string{"", "t0", "t1", "t2"})
	names     = rapid.SampledFrom([]string{"vdi", "VDI", "dda", ""})
	counts    = rapid.SampledFrom([]int{-1, 0, 1, 4, 8, 1 << 40})
	sizes     = rapid.SampledFrom([]gpu.Bytes{0, 1, 3800 * gpu.MiB, 1 << 63})
)

func list[T any](t *rapid.T, label string, of func(*rapid.T) T) []T {
	return rapid.SliceOfN(rapid.Custom(of), 0, 3).Draw(t, label)
}

func maybe[T any](t *rapid.T, label string, v T) *T {
	if rapid.Bool().Draw(t, label) {
		return &v
	}
	return nil
}

func drawGPU(t *rapid.T) gpu.GPU {
	g := a2(gpuIDs.Draw(t, "id"))
	g.Dismounted = rapid.Bool().Draw(t, "dismounted")
	g.Problem = rapid.SampledFrom([]string{"", "lost"}).Draw(t, "problem")
	g.VRAM = sizes.Draw(t, "vram")
	if rapid.Bool().Draw(t, "with MIG") {
		g.MIG = h100(g.ID, at("1g.10gb", rapid.IntRange(0, 6).Draw(t, "start"))).MIG
		g.MIG.Enabled = rapid.Bool().Draw(t, "in MIG mode")
	}
	if rapid.Bool().Draw(t, "other model") {
		a10(&g)
	}
	if rapid.IntRange(0, 4).Draw(t, "driver") == 0 {
		g.Partitionable = nil
		return g
	}
	g.Partitionable.Count = counts.Draw(t, "count")
	g.Partitionable.VRAM.Min = uint64(sizes.Draw(t, "min"))
	g.Partitionable.Paravirtual = rapid.IntRange(0, 4).Draw(t, "pv") == 0
	g.Partitionable.Partitions = list(t, "partitions", func(t *rapid.T) gpu.Partition {
		return gpu.Partition{VMID: vmNames.Draw(t, "holder")}
	})
	return g
}

func drawVM(t *rapid.T) gpu.VM {
	name := vmNames.Draw(t, "name")
	v := vm(name, rapid.SampledFrom([]gpu.VMState{gpu.VMRunning, gpu.VMOff, gpu.VMSaved, gpu.VMOther, ""}).Draw(t, "state"))
	v.Generation = rapid.IntRange(0, 2).Draw(t, "generation")
	v.Clustered = rapid.Bool().Draw(t, "clustered")
	v.DynamicMemory = rapid.Bool().Draw(t, "dynamic")
	v.PossibleOwners = list(t, "owners", func(t *rapid.T) string { return hostNames.Draw(t, "owner") })
	v.PartitionAdapters = list(t, "adapters", func(t *rapid.T) gpu.PartitionAdapter {
		return gpu.PartitionAdapter{PinnedGPU: gpuIDs.Draw(t, "pin")}
	})
	v.Devices = list(t, "devices", func(t *rapid.T) gpu.DeviceAssignment {
		return gpu.DeviceAssignment{Pool: names.Draw(t, "pool"), GPU: gpuIDs.Draw(t, "gpu")}
	})
	return v
}

func drawGPUsByHost(t *rapid.T) map[string][]string {
	return rapid.MapOfN(hostNames, rapid.SliceOfN(gpuIDs, 0, 3), 0, 3).Draw(t, "gpus")
}

func drawWant(t *rapid.T) gpu.Want {
	switch rapid.IntRange(0, 7).Draw(t, "kind") {
	case 0:
		return gpu.Want{}
	case 1:
		return gpu.Want{Config: drawConfig(t)}
	case 2:
		return gpu.Want{Pool: &gpu.PoolConfig{
			ID: names.Draw(t, "id"), Name: names.Draw(t, "name"), Members: drawGPUsByHost(t), MountBack: rapid.Bool().Draw(t, "back"),
			Quotas: map[string]gpu.PoolQuota{
				names.Draw(t, "label"): {Shares: maybe(t, "shares", counts.Draw(t, "quota")), Memory: maybe(t, "memory", sizes.Draw(t, "quota"))},
			},
		}}
	case 3, 4:
		return gpu.Want{Share: drawAnyShare(t)}
	}
	a := &gpu.Assignment{
		VM: vmNames.Draw(t, "vm"), VMID: rapid.SampledFrom([]string{"", "ID-a"}).Draw(t, "vm id"), Host: hostNames.Draw(t, "host"),
	}
	a.Power = gpu.Power{
		AllowShutdown: rapid.Bool().Draw(t, "allow"), NextOff: rapid.Bool().Draw(t, "next off"), StayOff: rapid.Bool().Draw(t, "stay off"),
	}
	// Any combination, also the invalid ones.
	a.Partition = maybe(t, "partition", gpu.PartitionWant{
		Config: names.Draw(t, "config"), PinnedGPU: gpuIDs.Draw(t, "pin"), VRAM: maybe(t, "vram", sizes.Draw(t, "size")),
	})
	a.Pool = maybe(t, "pool", gpu.PoolWant{
		ID: names.Draw(t, "pool id"), Name: names.Draw(t, "pool name"), Count: counts.Draw(t, "pool count"),
	})
	a.Device = maybe(t, "device", gpu.DeviceWant{Host: hostNames.Draw(t, "device host"), GPUIDs: []string{gpuIDs.Draw(t, "device")}})
	return gpu.Want{Assignment: a}
}

func drawConfig(t *rapid.T) *gpu.PartitionConfig {
	c := &gpu.PartitionConfig{
		ID: names.Draw(t, "id"), Kind: rapid.SampledFrom(gpu.Kinds()).Draw(t, "kind"), Count: counts.Draw(t, "count"),
		GPUs: drawGPUsByHost(t), Restore: rapid.Bool().Draw(t, "restore"),
		MaxDisruption: rapid.SampledFrom(gpu.Disruptions()).Draw(t, "max"),
	}
	over := rapid.SampledFrom([]float64{-1, 0, 2}).Draw(t, "over")
	// Any combination, also the invalid ones, but of its kind: the agent refuses others before.
	c.MPS = maybe(t, "mps", gpu.MPSLayout{
		MultiUser: rapid.Bool().Draw(t, "multi"), ActiveThreadPercentage: percentages.Draw(t, "threads"), Oversubscription: over,
	})
	c.TimeSlicing = maybe(t, "slices", gpu.TimeSlicing{Replicas: counts.Draw(t, "replicas"), Oversubscription: over})
	c.MIG = maybe(t, "mig", gpu.MIGLayout{Profiles: map[string]int{"1g.10gb": counts.Draw(t, "instances")}})
	c.VGPU = maybe(t, "vgpu", gpu.VGPULayout{Type: q12})
	switch c.Kind {
	case gpu.KindGPUP:
		c.MIG, c.VGPU, c.MPS, c.TimeSlicing = nil, nil, nil, nil
	case gpu.KindMIG:
		c.Count, c.MIG, c.VGPU = 0, cmp.Or(c.MIG, &gpu.MIGLayout{}), nil
	case gpu.KindVGPU:
		c.Count, c.VGPU, c.MIG, c.MPS, c.TimeSlicing = 0, cmp.Or(c.VGPU, &gpu.VGPULayout{}), nil, nil, nil
	case gpu.KindMPS:
		c.Count, c.MPS, c.MIG, c.VGPU, c.TimeSlicing = 0, cmp.Or(c.MPS, &gpu.MPSLayout{}), nil, nil, nil
	case gpu.KindTimeSlicing:
		c.Count, c.TimeSlicing, c.MIG, c.VGPU, c.MPS = 0, cmp.Or(c.TimeSlicing, &gpu.TimeSlicing{}), nil, nil, nil
	}
	return c
}

var percentages = rapid.SampledFrom([]float64{-1, 0, 50, 101, math.NaN()})

func drawAnyShare(t *rapid.T) *gpu.Share {
	s := &gpu.Share{
		Name: names.Draw(t, "share"), Host: hostNames.Draw(t, "host"), Count: counts.Draw(t, "count"),
		Pool: names.Draw(t, "pool"), Config: names.Draw(t, "config"),
		GPUIDs: rapid.SliceOfN(gpuIDs, 0, 2).Draw(t, "pins"), Profile: rapid.SampledFrom([]string{"", "1g.10gb"}).Draw(t, "profile"),
		Label:         names.Draw(t, "label"),
		MemoryRequest: sizes.Draw(t, "request"), MemoryLimit: sizes.Draw(t, "limit"), ActiveThreadPercentage: percentages.Draw(t, "threads"),
	}
	s.Devices = list(t, "devices", func(t *rapid.T) gpu.SharedDevice {
		return gpu.SharedDevice{GPU: gpuIDs.Draw(t, "gpu"), Instance: maybe(t, "instance", at("1g.10gb", rapid.IntRange(0, 7).Draw(t, "start")))}
	})
	return s
}

func drawPlan(t *rapid.T) change.Change {
	return change.Change{
		Subject: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "label"), Token: tokens.Draw(t, "token"),
		Want: drawWant(t), Prior: drawWant(t), Unchanged: rapid.IntRange(0, 4).Draw(t, "unchanged") == 0,
	}
}

func drawClaim(t *rapid.T) gpu.Claim {
	return gpu.Claim{
		Kind:  rapid.SampledFrom([]gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimPool, gpu.ClaimAssignment, gpu.ClaimShare}).Draw(t, "kind"),
		ID:    rapid.OneOf(names, vmNames).Draw(t, "id"),
		Token: tokens.Draw(t, "token"), Owner: owners.Draw(t, "owner"), Want: drawWant(t),
		GPUs:            rapid.SliceOfN(gpuIDs, 0, 2).Draw(t, "covers"),
		OriginalLayouts: gpu.Layouts{gpuIDs.Draw(t, "before"): {Partitions: counts.Draw(t, "count")}},
		Revision:        rapid.Int64Range(0, 3).Draw(t, "revision"),
	}
}

func drawHost(t *rapid.T, name string) *gpu.Host {
	h := &gpu.Host{
		Name: name, Platform: rapid.SampledFrom([]gpu.Platform{gpu.HyperV, gpu.Linux, ""}).Draw(t, "platform"),
		OS: gpu.OS{Build: rapid.SampledFrom([]int{0, 14393, 20348, 26100}).Draw(t, "build")},
	}
	h.GPUs = list(t, "gpus", drawGPU)
	h.VMs = list(t, "vms", drawVM)
	h.Claims = list(t, "claims", drawClaim)
	h.Pools = list(t, "pools", func(t *rapid.T) gpu.Pool {
		return gpu.Pool{Name: names.Draw(t, "pool"), GPUs: rapid.SliceOfN(gpuIDs, 0, 2).Draw(t, "members")}
	})
	if rapid.Bool().Draw(t, "in cluster") {
		h.Cluster = &gpu.Cluster{Name: "clu", Nodes: []gpu.Node{
			{Name: "hv01", State: rapid.SampledFrom([]gpu.NodeState{gpu.NodeUp, gpu.NodePaused}).Draw(t, "state")},
			{Name: "hv02", State: gpu.NodeUp},
		}}
	}
	return h
}

// Whatever the hosts look like and whatever is wanted, a check ends, says the same
// each time, and says it in whole findings.
func TestCheckOnAnyWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := map[string]*gpu.Host{}
		for _, name := range []string{"hv01", "hv02"} {
			if rapid.Bool().Draw(t, name) {
				hosts[name] = drawHost(t, name)
			}
		}
		others := whatif.NewBook()
		plans := list(t, "others", drawPlan)
		for i, p := range plans {
			others.Put(fmt.Sprintf("t%d", i), p)
		}
		w := rules.World{
			World: whatif.World{Hosts: hosts, Owner: owners.Draw(t, "owner"), Others: others}, Complete: rapid.Bool().Draw(t, "complete"),
			Now: afternoon,
		}
		if rapid.Bool().Draw(t, "closed") {
			w.Window = nightly()
		}
		p := drawPlan(t)

		found := rules.Check(w, p, nil)
		w.Fleet = whatif.NewFleet(hosts)
		if diff := gocmp.Diff(found, rules.Check(w, p, nil)); diff != "" {
			t.Fatalf("two checks differ:\n%s", diff)
		}
		errorsEnded := false
		for _, f := range found {
			switch {
			case f.Level == rules.Warning:
				errorsEnded = true
			case f.Level != rules.Error || errorsEnded:
				t.Fatalf("level %q out of order: %+v", f.Level, f)
			}
			if !known(f.Rule) || f.Title == "" || f.Found == "" || f.Fix == "" || f.Path == "" {
				t.Fatalf("incomplete: %+v", f)
			}
			if p.Unchanged && len(plans) == 0 && !f.Stood {
				t.Fatalf("an unchanged plan can violate nothing anew: %+v", f)
			}
		}
	})
}
