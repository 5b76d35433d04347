package conformance

import (
	"fmt"
	"math"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The GPUs of the standard host. A and B can be partitioned and have four partitions
// each; C and D are dismounted and in no pool.
const (
	gpuA = "PCIROOT(16)#PCI(0000)#PCI(0000)"
	gpuB = "PCIROOT(30)#PCI(0000)#PCI(0000)"
	gpuC = "PCIROOT(48)#PCI(0000)#PCI(0000)"
	gpuD = "PCIROOT(64)#PCI(0000)#PCI(0000)"

	noGPU = "PCIROOT(99)#PCI(0000)#PCI(0000)"
)

// The VMs of the standard host. All are off, of generation 2 and not clustered.
const (
	alpha = "11111111-AAAA-4AAA-8AAA-000000000001"
	beta  = "22222222-BBBB-4BBB-8BBB-000000000002"
	gamma = "33333333-CCCC-4CCC-8CCC-000000000003"

	noVM = "99999999-FFFF-4FFF-8FFF-000000000009"
)

const (
	pool = "vdi-gpus"

	noLimit = uint64(math.MaxUint64)

	// wholeVRAM is what the partitions of A have together: a number that every valid
	// count divides.
	wholeVRAM = uint64(15728640000)
)

// standardHost is what every scenario starts from.
func standardHost() gpu.Host {
	return gpu.Host{
		Name:     "hv01",
		Platform: gpu.HyperV,
		OS:       gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100},
		GPUs: []gpu.GPU{
			partitioned(gpuA, "4&18416dc3&0&0000"),
			partitioned(gpuB, "4&2b7d3f10&0&0000"),
			dismounted(gpuC, "4&30a1b2c3&0&0000"),
			dismounted(gpuD, "4&41d4e5f6&0&0000"),
		},
		VMs: []gpu.VM{
			virtualMachine(alpha, "alpha"),
			virtualMachine(beta, "beta"),
			virtualMachine(gamma, "gamma"),
		},
		Pools: []gpu.Pool{},
	}
}

func partitioned(id, instance string) gpu.GPU {
	supports := true
	pnp := `VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1`
	return gpu.GPU{
		ID:           id,
		InstancePath: `PCI\` + pnp + `\` + instance,
		Model:        "NVIDIA A2",
		Vendor:       "NVIDIA",
		PCI:          gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"},
		VRAM:         16 * 1024 * gpu.MiB,
		Driver:       gpu.Driver{Version: "573.39"},
		Status:       gpu.Partitioned,
		MMIO:         gpu.MMIO{Low: 16 * gpu.MiB, High: 16 * 1024 * gpu.MiB},
		Partitionable: &gpu.Partitionable{
			Name:        fmt.Sprintf(`\\?\PCI#%s#%s#{064092b3-625e-43bf-9eb5-dc845897dd59}`, pnp, instance),
			ValidCounts: []int{16, 8, 4, 2, 1},
			Count:       4,
			VRAM:        capacity(wholeVRAM, 4),
			Encode:      gpu.Capacity{Total: noLimit, Available: noLimit, Min: noLimit, Max: noLimit, Optimal: noLimit},
			Decode:      capacity(1600, 4),
			Compute:     capacity(100, 4), // a number that 8 and 16 do not divide

			SupportsIncomingLiveMigration: &supports,
		},
	}
}

func capacity(whole uint64, count uint64) gpu.Capacity {
	one := whole / count
	return gpu.Capacity{Total: whole, Available: whole, Min: one, Max: one, Optimal: one}
}

func dismounted(id, instance string) gpu.GPU {
	return gpu.GPU{
		ID:           id,
		InstancePath: `PCIP\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\` + instance,
		Model:        "NVIDIA T4",
		Vendor:       "NVIDIA",
		PCI:          gpu.PCIID{Vendor: "10DE", Device: "1EB8", Subsystem: "12A210DE"},
		VRAM:         16 * 1024 * gpu.MiB,
		Status:       gpu.ReadyForDDA,
		MMIO:         gpu.MMIO{Low: 64 * gpu.MiB, High: 16384 * gpu.MiB},
		Dismounted:   true,
	}
}

func virtualMachine(id, name string) gpu.VM {
	low, high := 3072*gpu.MiB, 40000*gpu.MiB
	cache, stop := true, gpu.StopTurnOff
	return gpu.VM{
		ID: id, Name: name, State: gpu.VMOff, Generation: 2,
		Checkpoints: gpu.CheckpointsDisabled,
		Settings: gpu.VMSettings{
			LowMemoryMappedIOSpace:  &low,
			HighMemoryMappedIOSpace: &high,
			GuestControlledCache:    &cache,
			AutomaticStopAction:     &stop,
		},
	}
}

func onGPU(id string, change func(*gpu.GPU)) given {
	return func(h *gpu.Host) {
		if g, ok := h.GPU(id); ok {
			change(g)
		}
	}
}

func onVM(id string, change func(*gpu.VM)) given {
	return func(h *gpu.Host) {
		if vm, ok := h.VM(id); ok {
			change(vm)
		}
	}
}

// The host as it stands before.

func hasOnly(ids ...string) given {
	return func(h *gpu.Host) {
		var kept []gpu.GPU
		for _, id := range ids {
			if g, ok := h.GPU(id); ok {
				kept = append(kept, *g)
			}
		}
		h.GPUs = kept
	}
}

func startsWithCount(gpuID string, count int) given {
	return onGPU(gpuID, func(g *gpu.GPU) {
		p := g.Partitionable
		p.Count = count
		p.VRAM = capacity(wholeVRAM, uint64(count))
		p.Decode = capacity(1600, uint64(count))
		p.Compute = capacity(100, uint64(count))
	})
}

func isParavirtual(gpuID string) given {
	return onGPU(gpuID, func(g *gpu.GPU) {
		g.Status = gpu.Paravirtualization
		g.Partitionable = &gpu.Partitionable{
			Name:        g.Partitionable.Name + `\GPUPARAV`,
			ValidCounts: []int{32},
			Count:       32,
			Paravirtual: true,
			VRAM:        gpu.Capacity{Total: 1e9, Available: 1e9, Max: 1e9, Optimal: 1e9},
			Encode:      gpu.Capacity{Total: noLimit, Available: noLimit, Max: noLimit, Optimal: noLimit},
			Decode:      gpu.Capacity{Total: 1e9, Available: 1e9, Max: 1e9, Optimal: 1e9},
			Compute:     gpu.Capacity{Total: 1e9, Available: 1e9, Max: 1e9, Optimal: 1e9},
		}
	})
}

func drivesTheConsole(gpuID string) given {
	return onGPU(gpuID, func(g *gpu.GPU) { g.HostDisplay = true })
}

func isNotAssignable(gpuID string) given {
	return onGPU(gpuID, func(g *gpu.GPU) { g.Status, g.Partitionable = gpu.NotAssignable, nil })
}

func isGeneration1(vmID string) given {
	return onVM(vmID, func(vm *gpu.VM) { vm.Generation = 1 })
}

func isInState(vmID string, state gpu.VMState) given {
	return onVM(vmID, func(vm *gpu.VM) { vm.State = state })
}

func hasMMIO(vmID string, low, high gpu.Bytes) given {
	return onVM(vmID, func(vm *gpu.VM) {
		vm.Settings.LowMemoryMappedIOSpace, vm.Settings.HighMemoryMappedIOSpace = &low, &high
	})
}

func isClustered(vmID string) given {
	return func(h *gpu.Host) {
		h.Cluster = &gpu.Cluster{Name: "cl1", Nodes: []gpu.Node{{Name: h.Name, State: gpu.NodeUp}, {Name: "hv02", State: gpu.NodeUp}}}
		save := gpu.OfflineSave
		onVM(vmID, func(vm *gpu.VM) {
			vm.Clustered = true
			vm.Settings.OfflineAction = &save
		})(h)
	}
}

func nodeIs(state gpu.NodeState) given {
	return func(h *gpu.Host) { h.Cluster.Nodes[0].State = state }
}

func policyRequires(secure, supported *bool) given {
	return func(h *gpu.Host) {
		h.Policies = gpu.Policies{RequireSecureDeviceAssignment: secure, RequireSupportedDeviceAssignment: supported}
	}
}

func oldBuild(h *gpu.Host) {
	h.OS = gpu.OS{Name: "Windows Server 2022 Datacenter", Build: 20348}
	for i := range h.GPUs {
		if p := h.GPUs[i].Partitionable; p != nil {
			p.SupportsIncomingLiveMigration = nil
		}
	}
}

func hasPool(name string, members ...string) given {
	return func(h *gpu.Host) { h.Pools = append(h.Pools, gpu.Pool{Name: name, GPUs: members}) }
}

func yes() *bool { v := true; return &v }

func no() *bool { v := false; return &v }

// What an inventory does not show.

func guestOf(vmID string, g Guest) arrangement {
	return func(t *testing.T, b *bench) {
		guests, ok := b.Fixture.(Guests)
		if !ok {
			t.Skip("the fixture cannot say how a guest behaves: implement Guests on it to run this scenario")
		}
		guests.SetGuest(t, vmID, g)
	}
}

func needsForce(gpuID string) arrangement {
	return func(t *testing.T, b *bench) {
		devices, ok := b.Fixture.(Devices)
		if !ok {
			t.Skip("the fixture cannot say which devices need force: implement Devices on it to run this scenario")
		}
		devices.NeedsForce(t, gpuID)
	}
}
