//go:build linux || darwin

package crash_test

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	host  = "hv01"
	owner = "vdi-prod"
)

// The GPUs of the host: two with GPU-P, of which the second is idle in most scenarios,
// and three that are free to be given whole. The last two belong to bystanders.
const (
	gpuP1    = "PCIROOT(10)#PCI(0000)#PCI(0000)"
	gpuP2    = "PCIROOT(20)#PCI(0000)#PCI(0000)"
	gpuD1    = "PCIROOT(30)#PCI(0000)#PCI(0000)"
	gpuD2    = "PCIROOT(40)#PCI(0000)#PCI(0000)"
	gpuD3    = "PCIROOT(50)#PCI(0000)#PCI(0000)"
	foreignP = "PCIROOT(60)#PCI(0000)#PCI(0000)"
	foreignD = "PCIROOT(70)#PCI(0000)#PCI(0000)"
)

// Its VMs: two run and two are off, none of them has a GPU. The bystanders run, one
// with a partition and one with a whole GPU, and no change is about them.
const (
	byPart = "00000000-0000-0000-0000-000000000001"
	byDev  = "00000000-0000-0000-0000-000000000002"
	run1   = "AAAAAAAA-0000-0000-0000-000000000001"
	run2   = "AAAAAAAA-0000-0000-0000-000000000002"
	off1   = "BBBBBBBB-0000-0000-0000-000000000001"
	off2   = "BBBBBBBB-0000-0000-0000-000000000002"
)

const gib = 1024 * gpu.MiB

// fleet is the host and another one, which is a bystander as a whole.
func fleet(edit func(*gpu.Host)) gpu.Snapshot {
	h := gpu.Host{
		Name: host, Platform: gpu.HyperV,
		OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100},
		GPUs: []gpu.GPU{
			partitionable(gpuP1, 1, 2, 4, 8, 16), partitionable(gpuP2, 1, 2, 4, 8, 16),
			whole(gpuD1), whole(gpuD2), whole(gpuD3), partitionable(foreignP, 4), whole(foreignD),
		},
		VMs: []gpu.VM{
			vm(byPart, "bystander-1", gpu.VMOff), vm(byDev, "bystander-2", gpu.VMOff),
			vm(run1, "run-1", gpu.VMRunning), vm(run2, "run-2", gpu.VMRunning),
			vm(off1, "off-1", gpu.VMOff), vm(off2, "off-2", gpu.VMOff),
		},
	}
	// The bystander's GPU has room for nobody else, so that no VM of a change lands there.
	h.GPUs[5].Partitionable.ValidCounts, h.GPUs[5].Partitionable.Count = []int{1}, 1
	h.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: "C0FFEE00-0000-0000-0000-000000000001", PinnedGPU: foreignP}}
	h.GPUs[6].Dismounted = true
	h.VMs[1].Devices = []gpu.DeviceAssignment{{ID: "C0FFEE00-0000-0000-0000-000000000002", GPU: foreignD}}
	if edit != nil {
		edit(&h)
	}
	return gpu.Snapshot{Hosts: []gpu.Host{h, {
		Name: "hv02", Platform: gpu.HyperV, OS: h.OS, GPUs: []gpu.GPU{partitionable(gpuP1, 4)},
		VMs: []gpu.VM{vm("DDDDDDDD-0000-0000-0000-000000000001", "elsewhere", gpu.VMRunning)},
	}}}
}

func vm(id, name string, state gpu.VMState) gpu.VM {
	return gpu.VM{
		ID: id, Name: name, State: state, Generation: 2, Checkpoints: gpu.CheckpointsDisabled,
		Settings: gpu.VMSettings{
			LowMemoryMappedIOSpace: new(3 * gib), HighMemoryMappedIOSpace: new(64 * gib),
			GuestControlledCache: new(false), AutomaticStopAction: new(gpu.StopTurnOff),
		},
	}
}

func whole(id string) gpu.GPU {
	return gpu.GPU{
		ID: id, InstancePath: `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\` + id[8:10],
		Model: "NVIDIA A2", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"},
		VRAM: 16 * gib, Driver: gpu.Driver{Version: "573.39"},
		MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16 * gib},
	}
}

func partitionable(id string, counts ...int) gpu.GPU {
	g := whole(id)
	each := func(total uint64) gpu.Capacity {
		return gpu.Capacity{Total: total, Available: total, Min: total / 4, Max: total / 4, Optimal: total / 4}
	}
	g.Partitionable = &gpu.Partitionable{
		Name: `\\?\PCI#VEN_10DE&DEV_25B6#` + id[8:10], ValidCounts: counts, Count: 4,
		VRAM: each(uint64(16 * gib)), Encode: each(32), Decode: each(64), Compute: each(4096),
	}
	return g
}

// inCluster makes the hosts nodes of a cluster. Whoever runs and has a partition can move to the
// other node, and nobody is in the way.
func inCluster(s *gpu.Snapshot) {
	nodes := []gpu.Node{{Name: s.Hosts[0].Name, State: gpu.NodeUp}, {Name: s.Hosts[1].Name, State: gpu.NodeUp}}
	for i := range s.Hosts {
		s.Hosts[i].Cluster = &gpu.Cluster{Name: "azl", Nodes: nodes}
		s.Hosts[i].GPUs[0].Partitionable.SupportsIncomingLiveMigration = new(true)
	}
	h := &s.Hosts[0]
	onlyOneGPUP(h)
	h.GPUs[5], h.VMs[0].PartitionAdapters = whole(foreignP), nil
	for i := range h.VMs[2:4] {
		h.VMs[2+i].Clustered, h.VMs[2+i].Settings.OfflineAction = true, new(gpu.OfflineSave)
	}
}

// onlyOneGPUP leaves one GPU with partitions, so that it is known where an adapter
// that is not pinned gets its partition.
func onlyOneGPUP(h *gpu.Host) { h.GPUs[1] = whole(gpuP2) }

var mayStop = gpu.Power{AllowShutdown: true}

func partitionOf(vm string, edit func(*gpu.Assignment)) *gpu.Assignment {
	a := &gpu.Assignment{Kind: gpu.AssignPartition, VM: vm, VMID: vm, Host: host, Partition: &gpu.PartitionWant{}, Power: mayStop}
	if edit != nil {
		edit(a)
	}
	return a
}

// minVRAM asks for a partition of a size, on the first GPU.
func minVRAM(least gpu.Bytes) func(*gpu.Assignment) {
	return func(a *gpu.Assignment) {
		a.Partition.PinnedGPU, a.Partition.Quotas.VRAM.Min = gpuP1, new(uint64(least))
	}
}

func withSettings(a *gpu.Assignment) {
	a.Settings = gpu.VMSettings{GuestControlledCache: new(true), HighMemoryMappedIOSpace: new(32 * gib)}
}

func poolFor(vm, pool string, count int) *gpu.Assignment {
	return &gpu.Assignment{
		Kind: gpu.AssignPool, VM: vm, VMID: vm, Host: host, Pool: &gpu.PoolWant{ID: host + "/" + pool, Name: pool, Count: count}, Power: mayStop,
	}
}

func deviceFor(vm string, gpus ...string) *gpu.Assignment {
	return &gpu.Assignment{
		Kind: gpu.AssignDevice, VM: vm, VMID: vm, Host: host, Device: &gpu.DeviceWant{Host: host, GPUIDs: gpus}, Power: mayStop,
	}
}

func config(id string, count int, gpus ...string) *gpu.PartitionConfig {
	return &gpu.PartitionConfig{
		ID: id, Kind: gpu.KindGPUP, Name: id, Count: count, GPUs: map[string][]string{host: gpus},
		MaxDisruption: gpu.DisruptVMRestart, Restore: true,
	}
}

func pool(name string, gpus ...string) *gpu.PoolConfig {
	return &gpu.PoolConfig{ID: host + "/" + name, Name: name, Members: map[string][]string{host: gpus}, MountBack: true}
}
