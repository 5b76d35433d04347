//go:build linux

package chaos_test

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The hosts of the fleet: one of Hyper-V by itself, a failover cluster of two nodes, one
// with MIG, one whose GPUs are shared by processes, one with vGPUs.
const (
	lone    = "hv01"
	nodeA   = "az1"
	nodeB   = "az2"
	migHost = "hgx01"
	mpsHost = "gpu01"
	kvmHost = "kvm01"

	clusterName = "azl"
)

var slots = []string{"PCIROOT(16)#PCI(0000)#PCI(0000)", "PCIROOT(B0)#PCI(0200)#PCI(0000)", "PCIROOT(C0)#PCI(0100)#PCI(0000)"}

// a2 is an NVIDIA A2 with 16 partitions.
func a2(id string) gpu.GPU {
	const usable = 15168 * gpu.MiB
	part := uint64(usable / 16)
	capacity := func(total uint64) gpu.Capacity {
		return gpu.Capacity{Total: total, Available: total, Min: total / 16, Max: total / 16, Optimal: total / 16}
	}
	path := fmt.Sprintf("4&18416dc3&0&%04d", slices.Index(slots, id))
	return gpu.GPU{
		ID: id, InstancePath: `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\` + path,
		Model: "NVIDIA A2", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"},
		VRAM: 16 * 1024 * gpu.MiB, Driver: gpu.Driver{Version: "573.39"}, Status: gpu.Partitioned,
		MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16*1024*gpu.MiB + 32*gpu.MiB},
		Partitionable: &gpu.Partitionable{
			Name:        `\\?\PCI#VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1#` + path + `#{064092b3-625e-43bf-9eb5-dc845897dd59}`,
			ValidCounts: []int{1, 2, 4, 8, 16}, Count: 16,
			VRAM:   gpu.Capacity{Total: uint64(usable), Available: uint64(usable), Min: part, Max: part, Optimal: part},
			Encode: capacity(1600), Decode: capacity(1600), Compute: capacity(16000),
		},
	}
}

// machine is a VM; every fourth is off.
func machine(name string, n int) gpu.VM {
	low, high, cache, stop := 128*gpu.MiB, 512*gpu.MiB, false, gpu.StopSave
	vm := gpu.VM{
		ID: fmt.Sprintf("0F1E2D3C-0000-4000-8000-%012X", n), Name: name, State: gpu.VMRunning, Generation: 2,
		Checkpoints: gpu.CheckpointsDisabled,
		Settings: gpu.VMSettings{
			LowMemoryMappedIOSpace: &low, HighMemoryMappedIOSpace: &high, GuestControlledCache: &cache, AutomaticStopAction: &stop,
		},
	}
	if n%4 == 0 {
		vm.State = gpu.VMOff
	}
	return vm
}

func hyperv(name string, gpus, from, to int) gpu.Host {
	h := gpu.Host{Name: name, Platform: gpu.HyperV, OS: gpu.OS{Name: "Azure Local", Version: "24H2", Build: 26100}, Pools: []gpu.Pool{}}
	for _, id := range slots[:gpus] {
		h.GPUs = append(h.GPUs, a2(id))
	}
	for n := from; n <= to; n++ {
		h.VMs = append(h.VMs, machine(fmt.Sprintf("vm%02d", n), n))
	}
	return h
}

func linux(name string) gpu.Host {
	return gpu.Host{Name: name, Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, VMs: []gpu.VM{}, Pools: []gpu.Pool{}}
}

func card(host string, n int) string {
	return fmt.Sprintf("GPU-%d0000000-0000-4000-8000-%012d", 1+slices.Index([]string{migHost, mpsHost, kvmHost}, host), n)
}

// beginning is the fleet before anything was done to it.
func beginning() gpu.Snapshot {
	nodes := []gpu.Node{{Name: nodeA, State: gpu.NodeUp}, {Name: nodeB, State: gpu.NodeUp}}
	clustered := []gpu.Host{hyperv(nodeA, 2, 11, 14), hyperv(nodeB, 2, 15, 17)}
	for i := range clustered {
		for j := range clustered[i].GPUs {
			clustered[i].GPUs[j].Partitionable.SupportsIncomingLiveMigration = new(true)
		}
		clustered[i].Cluster = &gpu.Cluster{Name: clusterName, Nodes: slices.Clone(nodes)}
		for j := range clustered[i].VMs {
			action := gpu.OfflineForcedShutdown
			clustered[i].VMs[j].Clustered, clustered[i].VMs[j].Settings.OfflineAction = true, &action
		}
	}
	h100, ok := catalog.ByName("H100 80GB HBM3")
	if !ok {
		panic("the catalog has no H100")
	}
	mig, mps, kvm := linux(migHost), linux(mpsHost), linux(kvmHost)
	mig.Units = []string{"nvidia-dcgm.service", "nvidia-persistenced.service"}
	mps.MPS, mps.ContainerToolkit = &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}, "1.18.0"
	for n := range 2 {
		mig.GPUs = append(mig.GPUs, gpu.GPU{
			ID: card(migHost, n), Model: h100.Name, Vendor: h100.Vendor, PCI: gpu.PCIID{Vendor: "10DE", Device: h100.Devices[0]}, VRAM: h100.VRAM,
			Driver: gpu.Driver{Version: "580.82.07"}, Address: fmt.Sprintf("0000:%02x:00.0", 0x1a+n), ComputeMode: gpu.ComputeDefault,
			MIG: &gpu.MIG{NeedsReset: h100.MIG.ModeNeedsReset, Profiles: h100.MIG.Profiles},
		})
		mps.GPUs = append(mps.GPUs, gpu.GPU{
			ID: card(mpsHost, n), Model: "NVIDIA L40S", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "26B9"}, VRAM: 46068 * gpu.MiB,
			Driver: gpu.Driver{Version: "580.95.05"}, Address: fmt.Sprintf("0000:%02x:00.0", 0x41+n), ComputeMode: gpu.ComputeDefault,
			TimeSlice: gpu.TimeSliceDefault, ComputeCapability: "8.9",
		})
	}
	offered := func(name string, gib gpu.Bytes, most int) gpu.VGPUType {
		return gpu.VGPUType{Name: name, FrameBuffer: gib * 1024 * gpu.MiB, Max: most, MaxPerVM: 16}
	}
	kvm.Units = []string{"nvidia-persistenced.service", "nvidia-vgpu-mgr.service"}
	kvm.GPUs = []gpu.GPU{{
		ID: card(kvmHost, 0), Model: "NVIDIA L40S", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "26B9"}, VRAM: 48 * 1024 * gpu.MiB,
		Driver: gpu.Driver{Version: "580.95.02"}, Address: "0000:41:00.0", ComputeMode: gpu.ComputeDefault,
		VGPU: &gpu.VGPU{
			Functions: 32, HeterogeneousSupported: true, Types: []gpu.VGPUType{offered("L40S-12Q", 12, 4), offered("L40S-24Q", 24, 2)},
		},
	}}
	return gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: append([]gpu.Host{hyperv(lone, 3, 1, 7)}, append(clustered, mig, mps, kvm)...)}
}

// pace is how long hosts take, in milliseconds. Without it a change would be over before
// anything could strike.
var pace = map[simulated.Op]int{
	simulated.OpSetPartitionCount: 40, simulated.OpAddPartitionAdapter: 25, simulated.OpRemovePartitionAdapter: 25,
	simulated.OpApplyVMSettings: 25,
	simulated.OpShutDownVM:      120, simulated.OpStartVM: 120, simulated.OpDismountDevice: 40, simulated.OpMountDevice: 40,
	simulated.OpAddDevice:  25,
	simulated.OpSetMIGMode: 60, simulated.OpCreateInstance: 30, simulated.OpDestroyInstance: 30, simulated.OpEnsureDaemon: 60,
	simulated.OpRemoveDaemon: 40,
	simulated.OpWriteShare:   25, simulated.OpRemoveShare: 25, simulated.OpCreateVGPU: 30, simulated.OpRemoveVGPU: 30,
	simulated.OpSetFunctions:   40,
	simulated.OpSetPoolMembers: 30, simulated.OpCreatePool: 30, simulated.OpDeletePool: 30, simulated.OpSetComputeMode: 20,
	simulated.OpSetTimeSlice: 20,
}

// site is what one layout covers: some GPUs of a host, or all of a cluster.
type site struct {
	name  string
	hosts []string
	gpus  []string // of each host
	kinds []string // of gpu_partition_config, or "pool" and "device"
	// vms may use the site.
	vms []string
	// pinned sites share their host with others: VMs name their GPU.
	pinned bool
}

// sites of the fleet.
func sites(s gpu.Snapshot) []*site {
	vms := map[string][]string{}
	for _, h := range s.Hosts {
		for _, v := range h.VMs {
			vms[h.Name] = append(vms[h.Name], v.Name)
		}
	}
	out := []*site{
		{name: "azl", hosts: []string{nodeA, nodeB}, gpus: slots[:2], kinds: []string{"gpu_p"}, vms: append(vms[nodeA], vms[nodeB]...)},
	}
	for i, id := range slots {
		out = append(out, &site{
			name: fmt.Sprintf("hv%d", i), hosts: []string{lone}, gpus: []string{id}, kinds: []string{"gpu_p", "gpu_p", "pool", "device"},
			vms: vms[lone], pinned: true,
		})
	}
	for n := range 2 {
		out = append(out,
			&site{name: fmt.Sprintf("hgx%d", n), hosts: []string{migHost}, gpus: []string{card(migHost, n)}, kinds: []string{"mig"}},
			&site{name: fmt.Sprintf("mps%d", n), hosts: []string{mpsHost}, gpus: []string{card(mpsHost, n)}, kinds: []string{"mps", "time_slicing"}})
	}
	return append(out, &site{name: "kvm0", hosts: []string{kvmHost}, gpus: []string{card(kvmHost, 0)}, kinds: []string{"vgpu"}})
}
