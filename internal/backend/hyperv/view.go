package hyperv

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// view is one reading of the host: what the inventory tells, and the paths of the WMI
// objects behind it. Every operation begins with one.
type view struct {
	host     gpu.Host
	devices  map[string]*device  // by folded GPU id
	machines map[string]*machine // by folded VM id
	pools    map[string]string   // paths of Msvm_ResourcePool, by folded name
	pins     map[string][]string // HostResource of adapters, by folded id
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
}

// need is what an operation reads of the host: some parts, and of the rows of VMs those of
// a few. A cluster's rows and those of hundreds of VMs take seconds that no change needs.
type need struct {
	of  part
	vms []string // ids; none for all
	// before is the host as it was read earlier, which has the other VMs; nil for none.
	before *gpu.Host
}

// part is a set of steps of a reading.
type part uint

const (
	ofHost part = 1 << iota
	ofPolicies
	ofVMs // with their settings
	ofMemory
	ofGuests
	ofCluster
	ofNodes // the cluster's, and of its VMs those that are read
	ofGPUs  // and what can be divided
	ofAssignables
	ofDisplays
	ofAddresses
	ofPools
	ofAdapters
	ofDevices
	ofPartitions

	ofAll = (ofPartitions<<1 - 1) &^ ofNodes
)

// read reads the whole host.
func (b *Backend) read(ctx context.Context) (*view, error) { return b.readOnly(ctx, need{of: ofAll}) }

// readOnly reads what is needed of the host.
func (b *Backend) readOnly(ctx context.Context, n need) (*view, error) {
	r := b.reader(n)
	if err := r.fill(ctx, n.of); err != nil {
		return nil, err
	}
	return r.view, nil
}

func (b *Backend) reader(n need) *reader {
	v := &view{
		host:     gpu.Host{Platform: gpu.HyperV, GPUs: []gpu.GPU{}, VMs: []gpu.VM{}, Pools: []gpu.Pool{}},
		devices:  map[string]*device{},
		machines: map[string]*machine{},
		pools:    map[string]string{},
		pins:     map[string][]string{},
	}
	if n.before != nil {
		v.host.Name, v.host.OS, v.host.Boot, v.host.Policies = n.before.Name, n.before.OS, n.before.Boot, n.before.Policies
		for _, vm := range n.before.VMs {
			if !contains(n.vms, vm.ID) {
				v.host.VMs = append(v.host.VMs, vm)
			}
		}
	}
	return &reader{
		Backend: b, view: v, before: n.before, only: n.vms, bySlot: map[string]int{}, others: map[string]bool{},
		noGPU: map[string]bool{}, dark: map[int]error{},
	}
}

// fill reads parts of the host. The order matters: devices name VMs, and partitions name
// both.
func (r *reader) fill(ctx context.Context, of part) error {
	for _, step := range []struct {
		of   part
		part gpu.Part // what is not known when the step fails
		read func(context.Context) error
	}{
		{ofHost, gpu.PartHost, r.operatingSystem},
		{ofHost, gpu.PartHost, r.osVersion},
		{ofHost, gpu.PartHost, r.controllers},
		{ofPolicies, gpu.PartPolicies, r.policies},
		{ofVMs, gpu.PartVMs, r.computers},
		{ofVMs, gpu.PartVMs, r.settings},
		{ofMemory, gpu.PartVMs, r.memory},
		{ofGuests, gpu.PartVMs, r.guests},
		{ofCluster, gpu.PartCluster, r.clusterNodes},
		{ofNodes, gpu.PartCluster, r.clusterAgain},
		{ofGPUs, gpu.PartGPUs, r.entities},
		{ofDisplays, gpu.PartDevices, r.displays},
		{ofAddresses, gpu.PartDevices, r.addresses},
		{ofAssignables, gpu.PartDevices, r.assignables},
		{ofGPUs, gpu.PartGPUs, r.partitionables},
		{ofPools, gpu.PartPools, r.poolMembers},
		{ofAdapters, gpu.PartVMs, r.adapters},
		{ofDevices, gpu.PartDevices, r.assignments},
		{ofPartitions, gpu.PartPartitions, r.partitions},
	} {
		if of&step.of == 0 {
			continue
		}
		err := step.read(ctx)
		if ctx.Err() != nil || errors.Is(err, errNoHyperV) {
			return cmp.Or(err, ctx.Err())
		}
		r.lacks(ctx, gpu.Unknown{Part: step.part}, err)
	}
	for _, i := range slices.Sorted(maps.Keys(r.dark)) { // their ids are known only now
		r.lacks(ctx, gpu.Unknown{Part: gpu.PartGPUs, GPU: r.host.GPUs[i].ID}, r.dark[i])
	}
	if len(r.host.Unknown) > 0 {
		// Who does not even see the service of Hyper-V has not read a part of the host but none.
		if _, err := r.service(ctx, managementService); err != nil {
			return err
		}
	}
	r.finish()
	return nil
}

// errNoHyperV is a host on which there is nothing of Hyper-V to read.
var errNoHyperV = errors.New("nothing of Hyper-V can be read")

// lacks notes what could not be read, which hides nothing else.
func (r *reader) lacks(ctx context.Context, u gpu.Unknown, err error) {
	if err == nil {
		return
	}
	u.Why = reason(asRefusal(ctx, err))
	r.host.Unknown = append(r.host.Unknown, u)
}

// sees tells whether what names a device is known by the GPU that was found for it, "" for
// none: that it is none of the GPUs is known only while all could be read.
func (r *reader) sees(id string) bool {
	if _, listed := r.host.GPU(id); listed && !strings.HasPrefix(id, gpu.Unidentified) {
		return true
	}
	_, gpus := r.host.UnknownPart(gpu.PartGPUs)
	_, devices := r.host.UnknownPart(gpu.PartDevices)
	return !gpus && !devices && len(r.dark) == 0
}

// errUnseen is why something is unknown that names a device.
var errUnseen = errors.New("it names a device, and not all devices of the host could be read")

// knows refuses what depends on parts of the host that could not be read.
func (v *view) knows(vm string, gpus []string, parts ...gpu.Part) error {
	if u, unknown := v.host.Concerning(vm, gpus, parts...); unknown {
		return refuse(backend.Unavailable, "%s", u)
	}
	return nil
}

// reader fills a view.
type reader struct {
	*Backend
	*view
	// only are the VMs whose rows alone are read, none for all, and before what is known of
	// the others.
	only   []string
	before *gpu.Host
	// bySlot finds a GPU, by its index in the host, from an instance path of either bus.
	bySlot map[string]int
	// others are the instance paths, without their bus, of partitionable adapters that
	// are none of our GPUs.
	others map[string]bool
	// noGPU are the devices of vendors of GPUs that are something else, by slot.
	noGPU map[string]bool
	// dark are the GPUs, by index, of which something could not be read.
	dark map[int]error
	// drawn are the GPUs that running VMs have drawn from pools, by folded setting id.
	drawn map[string]string
	// holders are the VMs that rows of partitions and devices say are theirs.
	holders []string
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

// ofVMs narrows a query to the VMs that are read alone.
func (r *reader) ofVMs(condition func(id string) string) string {
	if len(r.only) == 0 {
		return ""
	}
	var conditions []string
	for _, id := range r.only {
		conditions = append(conditions, condition(id))
	}
	return " WHERE " + strings.Join(conditions, " OR ")
}

// settingsOfVM is the condition for the settings of a VM, whose ids begin with the VM's.
func settingsOfVM(id string) string { return "InstanceID LIKE " + literal(instancePrefix+id+`\%`) }

// contains tells whether an id is in a list.
func contains(ids []string, id string) bool {
	return slices.ContainsFunc(ids, func(other string) bool { return gpu.SameID(other, id) })
}
