package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What the host looks like afterwards.

func onTheGPU(id string, look func(*testing.T, *gpu.GPU)) check {
	return func(t *testing.T, b *bench) {
		t.Helper()
		g, ok := b.after.GPU(id)
		if !ok {
			t.Errorf("GPU %s is not in the inventory", id)
			return
		}
		look(t, g)
	}
}

func onTheVM(id string, look func(*testing.T, *gpu.VM)) check {
	return func(t *testing.T, b *bench) {
		t.Helper()
		vm, ok := b.after.VM(id)
		if !ok {
			t.Errorf("VM %s is not in the inventory", id)
			return
		}
		look(t, vm)
	}
}

// unchanged is a host on which nothing happened.
func unchanged(t *testing.T, b *bench) {
	t.Helper()
	sameHost(t, "the host changed", b.before, b.after)
}

func hasCount(gpuID string, want int) check {
	return onTheGPU(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		switch {
		case g.Partitionable == nil:
			t.Errorf("GPU %s has no GPU-P face", gpuID)
		case g.Partitionable.Count != want:
			t.Errorf("GPU %s has %d partitions, want %d", gpuID, g.Partitionable.Count, want)
		}
	})
}

func eachPartitionHas(gpuID string, want uint64) check {
	return onTheGPU(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		v := g.Partitionable.VRAM
		if v.Min != want || v.Max != want || v.Optimal != want {
			t.Errorf("a partition has VRAM min %d, max %d, optimal %d; want %d", v.Min, v.Max, v.Optimal, want)
		}
	})
}

func availableVRAM(gpuID string, want uint64) check {
	return onTheGPU(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		if got := g.Partitionable.VRAM.Available; got != want {
			t.Errorf("GPU %s has %d bytes of VRAM available, want %d", gpuID, got, want)
		}
	})
}

func notPartitionable(gpuID string) check {
	return onTheGPU(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		if g.Partitionable != nil {
			t.Errorf("GPU %s has a GPU-P face", gpuID)
		}
	})
}

func isDismounted(gpuID string, want bool) check {
	return onTheGPU(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		prefix := `PCI\`
		if want {
			prefix = `PCIP\`
		}
		if g.Dismounted != want || !strings.HasPrefix(g.InstancePath, prefix) {
			t.Errorf("GPU %s: dismounted %t, path %s; want %t, %s", gpuID, g.Dismounted, g.InstancePath, want, prefix)
		}
	})
}

func hasStatus(gpuID string, want gpu.Status) check {
	return onTheGPU(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		if g.Status != want {
			t.Errorf("GPU %s is %s, want %s", gpuID, g.Status, want)
		}
	})
}

// inUse counts the partitions of a GPU that VMs hold.
func inUse(gpuID string, want int) check {
	return onTheGPU(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		if got := len(g.Partitionable.Partitions); got != want {
			t.Errorf("GPU %s has %d partitions in use, want %d", gpuID, got, want)
		}
	})
}

// sitsOn tells how many partitions of a GPU a VM has.
func sitsOn(vmID, gpuID string, want int) check {
	return onTheGPU(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		if got := len(partitionsOf(g, vmID)); got != want {
			t.Errorf("VM %s has %d partitions of GPU %s, want %d", vmID, got, gpuID, want)
		}
	})
}

func partitionsOf(g *gpu.GPU, vmID string) []gpu.Partition {
	var out []gpu.Partition
	if g.Partitionable != nil {
		for _, p := range g.Partitionable.Partitions {
			if gpu.SameID(p.VMID, vmID) {
				out = append(out, p)
			}
		}
	}
	return out
}

// hasSeats counts a VM's partitions on all GPUs.
func hasSeats(vmID string, want int) check {
	return func(t *testing.T, b *bench) {
		t.Helper()
		got := 0
		for i := range b.after.GPUs {
			got += len(partitionsOf(&b.after.GPUs[i], vmID))
		}
		if got != want {
			t.Errorf("VM %s has %d partitions, want %d", vmID, got, want)
		}
	}
}

func hasAdapters(vmID string, want int) check {
	return onTheVM(vmID, func(t *testing.T, vm *gpu.VM) {
		t.Helper()
		if got := len(vm.PartitionAdapters); got != want {
			t.Errorf("VM %s has %d adapters, want %d", vm.Name, got, want)
		}
	})
}

func isPinned(vmID, gpuID string) check {
	return onTheVM(vmID, func(t *testing.T, vm *gpu.VM) {
		t.Helper()
		if len(vm.PartitionAdapters) != 1 || !gpu.SameID(vm.PartitionAdapters[0].PinnedGPU, gpuID) {
			t.Errorf("VM %s has the adapters %v, want one pinned to %q", vm.Name, vm.PartitionAdapters, gpuID)
		}
	})
}

func hasQuotas(vmID string, want gpu.Quotas) check {
	return onTheVM(vmID, func(t *testing.T, vm *gpu.VM) {
		t.Helper()
		if len(vm.PartitionAdapters) == 0 || !vm.PartitionAdapters[0].Quotas.Equal(want) {
			t.Errorf("VM %s has other quotas: %v", vm.Name, vm.PartitionAdapters)
		}
	})
}

func isNow(vmID string, want gpu.VMState) check {
	return onTheVM(vmID, func(t *testing.T, vm *gpu.VM) {
		t.Helper()
		if vm.State != want {
			t.Errorf("VM %s is %s, want %s", vm.Name, vm.State, want)
		}
	})
}

// hasDevices lists a VM's device settings as "pool", "=gpu" or "pool=gpu".
func hasDevices(vmID string, want ...string) check {
	return onTheVM(vmID, func(t *testing.T, vm *gpu.VM) {
		t.Helper()
		var got []string
		for _, d := range vm.Devices {
			word := d.Pool
			if d.GPU != "" {
				word += "=" + d.GPU
			}
			got = append(got, word)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("VM %s has the devices %v, want %v", vm.Name, got, want)
		}
	})
}

func poolHas(name string, want ...string) check {
	return func(t *testing.T, b *bench) {
		t.Helper()
		p, ok := b.after.Pool(name)
		if !ok {
			t.Errorf("there is no pool %s", name)
			return
		}
		got := slices.Sorted(slices.Values(p.GPUs))
		if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("pool %s has the members %v, want %v", name, got, want)
		}
	}
}

func poolsAre(want ...string) check {
	return func(t *testing.T, b *bench) {
		t.Helper()
		var got []string
		for _, p := range b.after.Pools {
			got = append(got, p.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the pools are %v, want %v", got, want)
		}
	}
}

func hasSettings(vmID string, want gpu.VMSettings) check {
	return onTheVM(vmID, func(t *testing.T, vm *gpu.VM) {
		t.Helper()
		if d := vm.Settings.Differs(want); !d.Empty() {
			t.Errorf("VM %s has other settings than wanted: %v", vm.Name, vm.Settings)
		}
	})
}

// keepsOtherSettings compares all settings but those that were changed.
func keepsOtherSettings(vmID string, changed gpu.VMSettings) check {
	return func(t *testing.T, b *bench) {
		t.Helper()
		old, _ := b.before.VM(vmID)
		now, ok := b.after.VM(vmID)
		if !ok {
			t.Errorf("VM %s is not in the inventory", vmID)
			return
		}
		if d := now.Settings.Differs(old.Settings.Overlay(changed)); !d.Empty() {
			t.Errorf("settings changed that nobody asked for: %v", d)
		}
	}
}

// sane is what holds for every host at every moment.
func sane(t *testing.T, h gpu.Host) {
	t.Helper()
	if err := (gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{h}}).Validate(); err != nil {
		t.Errorf("the inventory is not valid: %v", err)
	}
	if len(h.Claims) > 0 {
		t.Errorf("the inventory has claims, which are the store's")
	}
	for i := range h.GPUs {
		sanePartitions(t, h, &h.GPUs[i])
		saneMembership(t, h, &h.GPUs[i])
	}
	for i := range h.VMs {
		saneSeats(t, h, &h.VMs[i])
	}
}

func sanePartitions(t *testing.T, h gpu.Host, g *gpu.GPU) {
	t.Helper()
	p := g.Partitionable
	if p == nil {
		return
	}
	if g.Dismounted {
		t.Errorf("GPU %s is dismounted and partitionable", g.ID)
	}
	if !slices.Contains(p.ValidCounts, p.Count) {
		t.Errorf("GPU %s has %d partitions, which is no valid count", g.ID, p.Count)
	}
	if p.Free() < 0 {
		t.Errorf("GPU %s gives out more partitions than it has", g.ID)
	}
	seen := map[int]bool{}
	for _, part := range p.Partitions {
		if seen[part.ID] || part.ID < 0 || part.ID >= p.Count {
			t.Errorf("GPU %s: partition %d is used twice or does not exist", g.ID, part.ID)
		}
		seen[part.ID] = true
		if vm, ok := h.VM(part.VMID); !ok || vm.State == gpu.VMOff || vm.State == gpu.VMSaved {
			t.Errorf("GPU %s: partition %d is held by a VM that does not run: %s", g.ID, part.ID, part.VMID)
		}
	}
	for _, c := range []gpu.Capacity{p.VRAM, p.Encode, p.Decode, p.Compute} {
		if c.Available > c.Total || c.Min > c.Max || c.Optimal > c.Max {
			t.Errorf("GPU %s has impossible capacities: %+v", g.ID, c)
		}
	}
}

func saneMembership(t *testing.T, h gpu.Host, g *gpu.GPU) {
	t.Helper()
	pools, running := 0, 0
	for i := range h.Pools {
		if h.Pools[i].Has(g.ID) {
			pools++
		}
	}
	for _, vm := range h.VMs {
		for _, d := range vm.Devices {
			if vm.Runs() && gpu.SameID(d.GPU, g.ID) {
				running++
			}
		}
	}
	if pools > 1 || (pools > 0 && !g.Dismounted) {
		t.Errorf("GPU %s is in %d pools, dismounted %t", g.ID, pools, g.Dismounted)
	}
	if running > 1 {
		t.Errorf("GPU %s is held whole by %d VMs", g.ID, running)
	}
	if running > 0 && g.Status != gpu.Assigned {
		t.Errorf("GPU %s is held whole and %s", g.ID, g.Status)
	}
}

func saneSeats(t *testing.T, h gpu.Host, vm *gpu.VM) {
	t.Helper()
	seats := 0
	for i := range h.GPUs {
		seats += len(partitionsOf(&h.GPUs[i], vm.ID))
	}
	if vm.Runs() && seats != len(vm.PartitionAdapters) {
		t.Errorf("VM %s runs with %d adapters and %d partitions", vm.Name, len(vm.PartitionAdapters), seats)
	}
	for _, d := range vm.Devices {
		if vm.State == gpu.VMOff && d.Pool != "" && d.GPU != "" {
			t.Errorf("VM %s is off and holds GPU %s of pool %s", vm.Name, d.GPU, d.Pool)
		}
	}
}
