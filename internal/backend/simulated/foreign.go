package simulated

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The methods in this file are what others do to a fleet behind our back: an
// administrator in Windows Admin Center, the cluster, the hardware. They know no
// latency and no faults and reach a host that we cannot. VMs are named by id or, if
// that is unique, by name.

// Edit changes anything. Each host keeps its agent and simulation sections, by name.
func (f *Fleet) Edit(ctx context.Context, change func(*gpu.Snapshot) error) error {
	return f.file.update(ctx, func(d *document) error {
		s := d.shown(time.Now())
		sections := map[string]entry{}
		for _, e := range d.hosts {
			sections[gpu.FoldID(e.rec.Name)] = entry{raw: e.raw, rec: clone(e.rec)}
		}
		if err := change(&s); err != nil {
			return err
		}
		d.keepTogether(s.Hosts)
		d.format, d.hosts, d.index, d.touched, d.recorded = s.Format, nil, map[string]int{}, map[int]*record{}, map[int]bool{}
		for i, host := range s.Hosts {
			e := sections[gpu.FoldID(host.Name)]
			rec := &record{Host: host}
			if e.rec != nil {
				rec.Agent, rec.Simulation = e.rec.Agent, e.rec.Simulation
			}
			d.touched[i] = rec
			d.add(entry{raw: e.raw, rec: rec})
		}
		return nil
	})
}

// EditSimulation changes a host's simulation section.
func (f *Fleet) EditSimulation(ctx context.Context, host string, change func(*Simulation)) error {
	return f.onHost(ctx, host, func(r *record) error {
		change(&r.Simulation)
		return nil
	})
}

// SetUnreachable cuts a host off, or connects it again.
func (f *Fleet) SetUnreachable(ctx context.Context, host string, unreachable bool) error {
	return f.EditSimulation(ctx, host, func(s *Simulation) { s.Unreachable = unreachable })
}

// InjectFault adds a failure to come.
func (f *Fleet) InjectFault(ctx context.Context, host string, fault Fault) error {
	return f.EditSimulation(ctx, host, func(s *Simulation) { s.Faults = append(s.Faults, fault) })
}

// SetGuest says how the guest of a VM behaves. It moves with the VM.
func (f *Fleet) SetGuest(ctx context.Context, vm string, g Guest) error {
	return f.onVM(ctx, vm, func(r *record, vm *gpu.VM) error {
		r.Simulation.setGuest(vm.ID, g)
		return nil
	})
}

// SetVMState starts, stops, saves or pauses a VM as its owner would in Hyper-V
// Manager. A VM that finds no partition does not start, which is the error.
func (f *Fleet) SetVMState(ctx context.Context, vm string, state gpu.VMState) error {
	return f.onVM(ctx, vm, func(r *record, vm *gpu.VM) error {
		switch state {
		case gpu.VMOff, gpu.VMSaved:
			r.stop(vm, state)
			return nil
		case gpu.VMRunning:
			return complete(r.start(vm), call{op: OpStartVM, vm: vm.ID}, r)
		default:
			vm.State = state
			return nil
		}
	})
}

// RenameVM gives a VM another name.
func (f *Fleet) RenameVM(ctx context.Context, vm, name string) error {
	return f.onVM(ctx, vm, func(_ *record, vm *gpu.VM) error {
		vm.Name = name
		return nil
	})
}

// AddForeignAdapter gives a VM a partition as Windows Admin Center does: it turns a
// running VM off and starts it again. It returns the adapter's id.
func (f *Fleet) AddForeignAdapter(ctx context.Context, vm string) (string, error) {
	id := newGUID()
	err := f.onVM(ctx, vm, func(r *record, vm *gpu.VM) error {
		c := call{op: OpAddPartitionAdapter, vm: vm.ID}
		ran := vm.Runs()
		if ran {
			r.stop(vm, gpu.VMOff)
		}
		if err := r.addAdapter(vm, id, gpu.PartitionAdapter{}); err != nil {
			return complete(err, c, r)
		}
		if ran {
			return complete(r.start(vm), c, r)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// MoveVM moves a VM to another host, as a failover or a cold migration does: a VM
// that ran is started there and gets a new partition. The move stands even when the
// VM finds none and stays off, which is the error.
func (f *Fleet) MoveVM(ctx context.Context, vm, toHost string) error {
	var refusal error
	err := f.file.update(ctx, func(d *document) error {
		now := time.Now()
		from, moved, err := d.editVM(vm, now)
		if err != nil {
			return err
		}
		to, ok := d.edit(toHost, now)
		if !ok {
			return f.file.fail(fmt.Errorf("there is no host %q in it", toHost))
		}
		if from == to {
			return nil
		}
		id := moved.ID
		refusal = complete(move(from, to, moved), call{op: OpStartVM, vm: id}, to)
		return nil
	})
	if err != nil {
		return err
	}
	return refusal
}

// move takes a VM to another host. One that ran and finds no room there stays off.
func move(from, to *record, vm *gpu.VM) error {
	ran, id := vm.Runs(), vm.ID
	from.stop(vm, gpu.VMOff)
	guest := from.Simulation.guest(id)
	from.Simulation.setGuest(id, Guest{})
	to.Simulation.setGuest(id, guest)
	to.VMs = append(to.VMs, *vm)
	from.VMs = slices.DeleteFunc(from.VMs, func(v gpu.VM) bool { return gpu.SameID(v.ID, id) })
	var refusal error
	if ran {
		refusal = to.start(&to.VMs[len(to.VMs)-1])
	}
	from.refreshStatuses()
	to.refreshStatuses()
	return refusal
}

// Reboot stops all VMs of a host and, after the boot, starts those that ran. They get
// new partitions; one that finds none stays off. A GPU comes up with another count if
// its CountAfterReboot says so. Processes end, MIG is lost as far as the hardware forgets
// it, vGPUs and their modes, MPS daemons and shares are lost, and units that are not
// disabled run.
func (f *Fleet) Reboot(ctx context.Context, host string) error {
	return f.onHost(ctx, host, func(r *record) error {
		var ran []string
		for i := range r.VMs {
			vm := &r.VMs[i]
			if vm.State == gpu.VMOff || vm.State == gpu.VMSaved {
				continue
			}
			if vm.Runs() {
				ran = append(ran, vm.ID)
			}
			r.stop(vm, gpu.VMOff)
		}
		for i := range r.GPUs {
			g := &r.GPUs[i]
			count := r.Simulation.hidden(g.ID).CountAfterReboot
			if p := g.Partitionable; p != nil && count > 0 && count != p.Count {
				r.recount(g.ID, p, count)
			}
		}
		r.rebootGPUs()
		r.rebootSharing()
		r.startUnits()
		r.Boot = &gpu.Boot{ID: rand.Text(), At: time.Now().UTC().Truncate(time.Second)}
		for _, id := range ran {
			if vm, ok := r.VM(id); ok {
				// A VM that does not start is part of what a reboot may bring.
				_ = r.start(vm)
			}
		}
		return nil
	})
}

// SetCountOutside sets a GPU's partition count as an administrator does.
func (f *Fleet) SetCountOutside(ctx context.Context, host, gpuID string, count int) error {
	return f.onHost(ctx, host, func(r *record) error {
		return complete(r.setPartitionCount(gpuID, count), call{op: OpSetPartitionCount, gpu: gpuID}, r)
	})
}

// AddGPU plugs a GPU in.
func (f *Fleet) AddGPU(ctx context.Context, host string, g gpu.GPU) error {
	return f.onHost(ctx, host, func(r *record) error {
		r.GPUs = append(r.GPUs, clone(g))
		return nil
	})
}

// RemoveGPU takes a GPU out, or lets it die. VMs that hold it or a part of it go off;
// settings that name it stay.
func (f *Fleet) RemoveGPU(ctx context.Context, host, gpuID string) error {
	return f.onHost(ctx, host, func(r *record) error {
		g, ok := r.GPU(gpuID)
		if !ok {
			return f.file.fail(fmt.Errorf("host %q has no GPU %s", r.Name, gpuID))
		}
		id := g.ID
		for i := range r.VMs {
			vm := &r.VMs[i]
			if vm.State != gpu.VMOff && vm.State != gpu.VMSaved && (hasDevice(vm, id) || holdsPartition(g, vm.ID)) {
				r.stop(vm, gpu.VMOff)
			}
		}
		r.endProcessesOn(g)
		r.GPUs = slices.DeleteFunc(r.GPUs, func(g gpu.GPU) bool { return gpu.SameID(g.ID, id) })
		for i := range r.Pools {
			r.Pools[i].GPUs = slices.DeleteFunc(r.Pools[i].GPUs, func(m string) bool { return gpu.SameID(m, id) })
		}
		r.Simulation.setHidden(id, Hidden{})
		return nil
	})
}

func holdsPartition(g *gpu.GPU, vmID string) bool {
	return g.Partitionable != nil && slices.ContainsFunc(g.Partitionable.Partitions, func(p gpu.Partition) bool {
		return gpu.SameID(p.VMID, vmID)
	})
}

// SetNodeState pauses, drains, stops or resumes a cluster node, in the eyes of every
// node of its cluster.
func (f *Fleet) SetNodeState(ctx context.Context, node string, state gpu.NodeState) error {
	return f.file.update(ctx, func(d *document) error {
		rec, ok := d.host(node)
		if !ok || rec.Cluster == nil {
			return f.file.fail(fmt.Errorf("there is no cluster node %q in it", node))
		}
		d.setNodeState(rec, state)
		return nil
	})
}

func (d *document) setNodeState(node *record, state gpu.NodeState) {
	for _, e := range slices.Clone(d.hosts) {
		if !gpu.SameID(e.rec.ClusterName(), node.Cluster.Name) {
			continue
		}
		peer, _ := d.edit(e.rec.Name, time.Now())
		for i := range peer.Cluster.Nodes {
			if gpu.SameID(peer.Cluster.Nodes[i].Name, node.Name) {
				peer.Cluster.Nodes[i].State = state
			}
		}
	}
}

func (f *Fleet) onHost(ctx context.Context, host string, change func(*record) error) error {
	return f.file.update(ctx, func(d *document) error {
		rec, ok := d.edit(host, time.Now())
		if !ok {
			return f.file.fail(fmt.Errorf("there is no host %q in it", host))
		}
		if err := change(rec); err != nil {
			return err
		}
		rec.refreshStatuses()
		return nil
	})
}

func (f *Fleet) onVM(ctx context.Context, vm string, change func(*record, *gpu.VM) error) error {
	return f.file.update(ctx, func(d *document) error {
		rec, found, err := d.editVM(vm, time.Now())
		if err != nil {
			return f.file.fail(err)
		}
		if err := change(rec, found); err != nil {
			return err
		}
		rec.refreshStatuses()
		return nil
	})
}

// editVM finds a VM anywhere in the fleet, by id or by a name that is unique.
func (d *document) editVM(ref string, now time.Time) (*record, *gpu.VM, error) {
	host, id := "", ""
	byName := 0
	for _, e := range d.hosts {
		if vm, ok := e.rec.VM(ref); ok {
			host, id, byName = e.rec.Name, vm.ID, 1
			break
		}
		for i := range e.rec.VMs {
			if gpu.SameID(e.rec.VMs[i].Name, ref) {
				host, id = e.rec.Name, e.rec.VMs[i].ID
				byName++
			}
		}
	}
	if byName != 1 {
		return nil, nil, fmt.Errorf("%d VMs in it are called %q", byName, ref)
	}
	rec, _ := d.edit(host, now)
	vm, _ := rec.VM(id)
	return rec, vm, nil
}
