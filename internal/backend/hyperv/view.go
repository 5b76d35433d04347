package hyperv

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// view is one reading of the host: what the inventory tells, and the paths of the WMI
// objects behind it. Every operation begins with one.
type view struct {
	host     gpu.Host
	devices  map[string]*device  // by folded GPU id
	machines map[string]*machine // by folded VM id
	pools    map[string]*pool    // by folded name
}

// device is the WMI side of a GPU.
type device struct {
	entity     string // Win32_PnPEntity
	face       string // Msvm_PartitionableGpu; "" if there is none
	assignable string // Msvm_PciExpress; "" unless it is dismounted
	disabled   bool
}

// machine is the WMI side of a VM.
type machine struct {
	path     string            // Msvm_ComputerSystem
	settings string            // Msvm_VirtualSystemSettingData, the realized one
	adapters map[string]string // Msvm_GpuPartitionSettingData, by folded id
	devices  map[string]string // Msvm_PciExpressSettingData, by folded id
	resource string            // MSCluster_Resource; "" unless clustered
}

// pool is the WMI side of a resource pool.
type pool struct{ path string }

// read reads the whole host. The order matters: devices name VMs, and partitions name
// both.
func (b *Backend) read(ctx context.Context) (*view, error) {
	v := &view{
		host:     gpu.Host{Platform: gpu.HyperV, GPUs: []gpu.GPU{}, VMs: []gpu.VM{}, Pools: []gpu.Pool{}},
		devices:  map[string]*device{},
		machines: map[string]*machine{},
		pools:    map[string]*pool{},
	}
	r := &reader{Backend: b, view: v, bySlot: map[string]int{}, others: map[string]bool{}}
	for _, step := range []func(context.Context) error{
		r.operatingSystem, r.policies, r.computers, r.settings, r.memory, r.clusterNodes,
		r.entities, r.displays, r.addresses, r.assignables, r.partitionables,
		r.poolMembers, r.adapters, r.assignments, r.partitions,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r.finish()
	return v, nil
}

// reader fills a view.
type reader struct {
	*Backend
	*view
	// bySlot finds a GPU, by its index in the host, from an instance path of either bus.
	bySlot map[string]int
	// others are the instance paths, without their bus, of partitionable adapters that
	// are none of our GPUs.
	others map[string]bool
	// drawn are the GPUs that running VMs have drawn from pools, by folded setting id.
	drawn map[string]string
}

func (r *reader) gpuAt(instance string) *gpu.GPU {
	if i, ok := r.bySlot[slot(instance)]; ok {
		return &r.host.GPUs[i]
	}
	return nil
}

// device is the WMI side of a GPU of this view.
func (v *view) device(g *gpu.GPU) *device { return v.devices[gpu.FoldID(g.ID)] }

// machine is the WMI side of a VM of this view.
func (v *view) machine(vm *gpu.VM) *machine { return v.machines[gpu.FoldID(vm.ID)] }
