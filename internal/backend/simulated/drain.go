package simulated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// DrainNode pauses the node and moves its running clustered VMs to other nodes, live.
func (h *Host) DrainNode(ctx context.Context) error {
	c := call{op: OpDrainNode}
	if err := h.wait(ctx, c); err != nil {
		return err
	}
	var stayed []string
	err := h.transactAll(ctx, c, func(d *document, r *record) error {
		if r.Cluster == nil {
			return notClustered()
		}
		if r.NodeState() == gpu.NodeUp {
			r.Simulation.Drained = nil
		}
		d.setNodeState(r, gpu.NodePaused)
		stayed = d.moveAway(r)
		return nil
	})
	if err != nil || len(stayed) == 0 {
		return err
	}
	return &backend.Error{
		Code: backend.InUse, Op: phrases[c.op], Object: "host " + h.name,
		Detail: "the drain has failed: no node could take " + strings.Join(stayed, "; "),
	}
}

// ResumeNode lets the cluster place VMs on the node again, and has those come back that the
// drain has moved, as far as the node has room for them.
func (h *Host) ResumeNode(ctx context.Context) error {
	c := call{op: OpResumeNode}
	if err := h.wait(ctx, c); err != nil {
		return err
	}
	return h.transactAll(ctx, c, func(d *document, r *record) error {
		if r.Cluster == nil {
			return notClustered()
		}
		d.setNodeState(r, gpu.NodeUp)
		d.failBack(h.name)
		return nil
	})
}

// failBack moves the VMs back that a drain has moved away from a node. One that cannot come
// stays where it is.
func (d *document) failBack(node string) {
	rec, _ := d.edit(node, time.Now())
	moved := rec.Simulation.Drained
	rec.Simulation.Drained = nil
	for _, id := range moved {
		for _, e := range slices.Clone(d.hosts) {
			if vm, ok := e.rec.VM(id); ok && vm.Runs() && gpu.SameID(e.rec.ClusterName(), rec.ClusterName()) && !gpu.SameID(e.rec.Name, node) {
				_ = d.liveMigrate(e.rec.Name, id, node)
			}
		}
	}
}

func notClustered() error {
	return refuse(backend.NotSupported, "the host is in no cluster")
}

// moveAway moves the running clustered VMs of a node, and says which stay and why.
func (d *document) moveAway(r *record) (stayed []string) {
	// The record is not the host's any more once a migration has been taken back.
	from, nodes := r.Name, slices.Clone(r.Cluster.Nodes)
	var moved []string
	defer func() {
		now, _ := d.edit(from, time.Now())
		now.Simulation.Drained = append(now.Simulation.Drained, moved...)
	}()
	for _, vm := range slices.Clone(r.VMs) {
		if !vm.Clustered || !vm.Runs() {
			continue
		}
		why := "no other node is up"
		for _, n := range nodes {
			if n.State != gpu.NodeUp || gpu.SameID(n.Name, from) {
				continue
			}
			err := d.liveMigrate(from, vm.ID, n.Name)
			if err == nil {
				why, moved = "", append(moved, vm.ID)
				break
			}
			why = fmt.Sprintf("node %s: %v", n.Name, reason(err))
		}
		if why != "" {
			stayed = append(stayed, fmt.Sprintf("VM %s (%s)", vm.Name, why))
		}
	}
	return stayed
}

// reason is a refusal without what was tried on what, which its caller says.
func reason(err error) string {
	if refusal, ok := errors.AsType[*backend.Error](err); ok && refusal.Detail != "" {
		return refusal.Detail
	}
	return err.Error()
}

// liveMigrate needs a partition that can leave and, on the other node, one that can
// come. A whole GPU cannot migrate.
func (d *document) liveMigrate(fromHost, vmID, toHost string) error {
	if gpu.SameID(fromHost, toHost) {
		return refuse(backend.InvalidParameter, "the VM is on node %s already", toHost)
	}
	now := time.Now()
	from, ok := d.edit(fromHost, now)
	if !ok {
		return refuse(backend.NotFound, "there is no node %s", fromHost)
	}
	to, ok := d.edit(toHost, now)
	if !ok {
		return refuse(backend.NotFound, "there is no node %s", toHost)
	}
	vm, ok := from.VM(vmID)
	switch {
	case !ok:
		return refuse(backend.NotFound, "the VM is not on node %s", fromHost)
	case len(vm.Devices) > 0:
		return refuse(backend.NotSupported, "a VM with a whole GPU cannot migrate")
	case len(vm.PossibleOwners) > 0 && !slices.ContainsFunc(vm.PossibleOwners, func(o string) bool { return gpu.SameID(o, toHost) }):
		return refuse(backend.InvalidParameter, "node %s is no possible owner of the VM", toHost)
	case !from.canMigrate(vmID):
		return refuse(backend.NotSupported, "its partition does not support live migration")
	}
	before, beforeThere := clone(from), clone(to)
	err := move(from, to, vm)
	if err == nil && !to.canMigrate(vmID) {
		err = refuse(backend.NotSupported, "no GPU of node %s supports incoming live migration", toHost)
	}
	if err != nil {
		d.replace(before)
		d.replace(beforeThere)
	}
	return err
}

// canMigrate tells whether each partition of a VM supports live migration.
func (r *record) canMigrate(vmID string) bool {
	for i := range r.GPUs {
		if r.GPUs[i].Partitionable == nil {
			continue
		}
		for _, p := range r.GPUs[i].Partitionable.Partitions {
			if gpu.SameID(p.VMID, vmID) && (p.SupportsOutgoingLiveMigration == nil || !*p.SupportsOutgoingLiveMigration) {
				return false
			}
		}
	}
	return true
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

// setNodeState has every node of a cluster see a state of one of them.
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
