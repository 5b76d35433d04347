package hyperv

import (
	"context"
	"errors"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// refreshed are the parts that are read again. The rest is as lasting as the host's boot
// (operating system, policies, where a GPU's memory is), or belongs to VMs.
const refreshed = ofVMs | ofMemory | ofGuests | ofNodes | ofGPUs | ofAssignables | ofPools | ofAdapters | ofDevices | ofPartitions

// manyVMs is how many VMs are read by their ids. More are found quicker by reading all.
const manyVMs = 8

// Refresh implements backend.Refresher. Whoever holds a partition or a device shows in rows
// of its own: a VM of which these say something else than before is read again too.
func (b *Backend) Refresh(ctx context.Context, before gpu.Host, of backend.Objects) (gpu.Host, bool, error) {
	if len(of.GPUs) > 0 {
		return gpu.Host{}, false, nil // any VM may hold partitions of them
	}
	vms := slices.Clone(of.VMs)
	for range 2 {
		if len(before.Unknown) > 0 || len(vms) > manyVMs {
			break
		}
		n := need{of: refreshed, vms: vms, before: &before}
		if len(vms) == 0 {
			n.of &^= ofVMs | ofMemory | ofGuests | ofAdapters | ofDevices
		}
		if !hasAssignables(&before) { // a GPU that is dismounted meanwhile is on another bus
			n.of &^= ofAssignables | ofPools | ofDevices
		}
		if before.Cluster == nil { // a host joins a cluster between two runs
			n.of &^= ofNodes
		}
		r := b.reader(n)
		if err := r.fill(ctx, n.of); err != nil {
			return gpu.Host{}, false, complete(ctx, err, "read the inventory", "the host")
		}
		if len(r.host.Unknown) > 0 || !r.keepGPUs() || !r.sameCluster() {
			break
		}
		others := r.moved()
		if len(others) == 0 {
			return r.host, true, nil
		}
		vms = append(vms, others...)
	}
	return gpu.Host{}, false, nil
}

// hasAssignables tells whether there is anything on a host that is given to VMs as whole devices.
func hasAssignables(h *gpu.Host) bool {
	return len(h.Pools) > 0 || slices.ContainsFunc(h.GPUs, func(g gpu.GPU) bool { return g.Dismounted }) ||
		slices.ContainsFunc(h.VMs, func(vm gpu.VM) bool { return len(vm.Devices) > 0 })
}

// keepGPUs takes over what of GPUs is not read again, unless these are not the same ones.
func (r *reader) keepGPUs() bool {
	if len(r.host.GPUs) != len(r.before.GPUs) {
		return false
	}
	for i := range r.host.GPUs {
		g := &r.host.GPUs[i]
		was, ok := r.before.GPU(g.ID)
		// Dismounted, or mounted again; or no partitions are offered any more.
		if !ok || !gpu.SameID(g.InstancePath, was.InstancePath) || (g.Partitionable == nil) != (was.Partitionable == nil) {
			return false
		}
		g.MMIO, g.HostDisplay = was.MMIO, was.HostDisplay
	}
	return true
}

// errNoNodes is a cluster that shows no nodes: the host is in it no more, or its service has ended.
var errNoNodes = errors.New("the cluster shows no nodes")

// clusterAgain reads the state of the cluster's nodes, and of its VMs those that are read. A
// cluster keeps its name.
func (r *reader) clusterAgain(ctx context.Context) error {
	if err := r.nodes(ctx, r.before.Cluster.Name); err != nil {
		return err
	}
	if len(r.host.Cluster.Nodes) == 0 {
		return errNoNodes
	}
	for _, id := range r.only {
		vm, here := r.host.VM(id)
		was, known := r.before.VM(id)
		if !here || !known || !was.Clustered {
			continue
		}
		resource, err := r.clustered(ctx, vm.ID, vm.Name)
		if err != nil {
			return err
		}
		if resource.Path != "" {
			vm.Clustered, vm.PossibleOwners = true, was.PossibleOwners
			vm.Settings.OfflineAction = offlineAction(resource)
		}
	}
	return nil
}

// sameCluster tells whether the host is in the cluster that it was in. A VM that is new on a
// node may be the cluster's.
func (r *reader) sameCluster() bool {
	now, was := r.host.Cluster, r.before.Cluster
	if now == nil || was == nil {
		return now == was
	}
	return now.Name == was.Name && !slices.ContainsFunc(r.host.VMs, func(vm gpu.VM) bool {
		_, known := r.before.VM(vm.ID)
		return !known
	})
}

// moved are the VMs, but for those that were read, whose partitions and devices are not
// those from before.
func (r *reader) moved() []string {
	var out []string
	differs := func(vm string) {
		if vm != "" && !contains(r.only, vm) && !contains(out, vm) {
			out = append(out, vm)
		}
	}
	for _, id := range r.holders {
		if vm, ok := r.host.VM(id); !ok || !holdsHardware(vm) {
			differs(id)
		}
	}
	now, was := partitionsHeld(&r.host), partitionsHeld(r.before)
	for _, held := range []map[string]int{was, now} {
		for id := range held {
			if now[id] != was[id] {
				differs(id)
			}
		}
	}
	for _, vm := range r.before.VMs {
		for _, d := range vm.Devices {
			if d.Pool != "" && !gpu.SameID(d.GPU, r.drawn[gpu.FoldID(d.ID)]) {
				differs(vm.ID)
			}
		}
	}
	return out
}

// partitionsHeld are how many partitions each VM holds.
func partitionsHeld(h *gpu.Host) map[string]int {
	out := map[string]int{}
	for i := range h.GPUs {
		if p := h.GPUs[i].Partitionable; p != nil {
			for _, part := range p.Partitions {
				out[part.VMID]++
			}
		}
	}
	return out
}

// namesDevices tells whether VMs that were read have settings that name devices of the host.
func (v *view) namesDevices() bool {
	for _, m := range v.machines {
		if len(m.devices) > 0 {
			return true
		}
	}
	return len(v.pins) > 0
}

// ReadVM implements backend.HyperV. What a VM holds is a GPU only if it is one of the host's, which are read where it may hold any.
func (b *Backend) ReadVM(ctx context.Context, vmID string) (gpu.VM, error) {
	var out gpu.VM
	n := need{of: ofVMs | ofMemory | ofAdapters | ofDevices, vms: []string{vmID}}
	v, err := b.readOnly(ctx, n)
	if err == nil && v.namesDevices() {
		n.of |= ofGPUs | ofAssignables | ofPools
		v, err = b.readOnly(ctx, n)
	}
	if err == nil {
		err = v.knows(vmID, nil, gpu.PartVMs)
	}
	if err == nil {
		vm, ok := v.host.VM(vmID)
		if !ok {
			err = refuse(backend.NotFound, "the host has no such VM")
		} else {
			out = *vm
		}
	}
	return out, complete(ctx, err, "read the VM", "VM "+vmID)
}
