package rules

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// superseded tells whether a plan of this run speaks for the claim: then the plan
// counts, and what the claim says is history.
func (r *run) superseded(c *gpu.Claim) bool {
	return (c.Token != "" && c.Token == r.plan.Token) || r.book.has(c.Token)
}

// ours tells whether the claim belongs to this state: it has the name of this
// state, or the token of a resource of this run. Two states without a name cannot
// be told apart, so without a name only the token counts.
func (r *run) ours(c *gpu.Claim) bool {
	return r.superseded(c) || (r.owner != "" && c.Owner == r.owner)
}

// handedOver tells whether the plan gives up an object that another resource has taken over
// by now: the claims say so, and its end touches nothing.
func (r *run) handedOver() bool {
	if !r.plan.Want.Empty() || r.plan.Token == "" {
		return false
	}
	of := objectOf(r.plan.Prior)
	taken := false
	for host := range of.hosts {
		h, ok := r.fleet.hosts[host]
		if !ok {
			continue
		}
		claim, ok := h.Claim(of.kind, of.id)
		if ok && claim.Token == r.plan.Token {
			return false
		}
		taken = taken || ok
	}
	return taken
}

// claimOnVM is the newest claim for a VM on any host: a clustered VM's claim stays
// where it was written until the next write.
func (r *run) claimOnVM(vmID string) (*gpu.Claim, bool) {
	var newest *gpu.Claim
	for _, p := range r.fleet.vmClaims[gpu.FoldID(vmID)] {
		if newest == nil || p.item.Revision > newest.Revision {
			newest = p.item
		}
	}
	return newest, newest != nil
}

// whose names the state that a claim belongs to.
func whose(c *gpu.Claim) string { return words.State(c.Owner) }

// handOver says how an object changes hands.
func (r *run) handOver(object string) string {
	if r.owner == "" {
		return "Set `owner` on the provider, so that resources of this state recognise each other; without it a handover between two resources takes two applies: " +
			"first destroy the resource that manages " + object + " now, then create this one."
	}
	return "If both are the same state, give both providers the same `owner`. Otherwise destroy the resource that manages " + object +
		" in the other state first; the guide on ownership tells how an object moves between states without being destroyed."
}

// located is a VM on its owner host.
type located struct {
	key  string // the provider's name for the host
	host *gpu.Host
	vm   *gpu.VM
}

// locate finds an assignment's VM among the hosts at hand: by id where it is known,
// else by a name that only one VM has.
func (r *run) locate(a *gpu.Assignment) (located, bool) {
	if a == nil {
		return located{}, false
	}
	for _, id := range []string{a.VMID, a.VM} {
		if id == "" {
			continue
		}
		if at, ok := r.pick(r.fleet.vmsByID[gpu.FoldID(id)], a.Host, false); ok {
			return at, true
		}
	}
	if a.VMID != "" {
		return located{}, false
	}
	return r.pick(r.fleet.vmsByName[gpu.FoldID(a.VM)], a.Host, true)
}

// pick chooses the candidate on the wanted host. An id may be listed by two hosts
// while a VM moves, and then either will do; a name may belong to two VMs, and then
// only the host can decide.
func (r *run) pick(candidates []placed[gpu.VM], host string, unique bool) (located, bool) {
	var on []placed[gpu.VM]
	for _, c := range candidates {
		if c.host == host {
			on = append(on, c)
		}
	}
	if len(on) == 0 && (!unique || host == "") {
		on = candidates
	}
	if len(on) == 0 || (unique && len(on) > 1) {
		return located{}, false
	}
	return located{on[0].host, r.fleet.hosts[on[0].host], on[0].item}, true
}

// sameVM tells whether two assignments mean one VM. A name that several VMs have
// proves nothing.
func (r *run) sameVM(a, b *gpu.Assignment) bool {
	idA, idB := r.vmID(a), r.vmID(b)
	if idA != "" && idB != "" {
		return gpu.SameID(idA, idB)
	}
	if a.Host != "" && b.Host != "" && a.Host != b.Host {
		return false
	}
	nameA, nameB := writtenName(a), writtenName(b)
	return gpu.SameID(nameA, nameB) && len(r.fleet.vmsByName[gpu.FoldID(nameA)]) < 2
}

func (r *run) vmID(a *gpu.Assignment) string {
	if a.VMID != "" {
		return a.VMID
	}
	if at, ok := r.locate(a); ok {
		return at.vm.ID
	}
	return ""
}

func writtenName(a *gpu.Assignment) string {
	if a.VMName != "" {
		return a.VMName
	}
	return a.VM
}

// othersForVM are the other plans of the run that want something for the VM of an
// assignment.
func (r *run) othersForVM(a *gpu.Assignment) []*entry {
	subjects := vmSubjects(a)
	if at, ok := r.locate(a); ok {
		subjects = append(subjects, vmWithID(at.vm.ID), vmNamed(at.vm.Name))
	}
	var out []*entry
	for e := range r.others(subjects...) {
		if o := e.plan.Want.Assignment; o != nil && r.sameVM(a, o) {
			out = append(out, e)
		}
	}
	return out
}

// hadPartition tells whether this resource, or another of this state, gave the VM
// the partition that it has.
func (r *run) hadPartition(vm *gpu.VM) bool {
	if p := r.plan.Prior.Assignment; p != nil && p.Partition != nil && gpu.SameID(r.vmID(p), vm.ID) {
		return true
	}
	c, ok := r.claimOnVM(vm.ID)
	return ok && r.ours(c)
}

// object is what a config or a pool is known by in claims, and the hosts that it is on.
type object struct {
	kind  gpu.ClaimKind
	id    string
	hosts map[string][]string
}

// objectOf is the object of a config or a pool; that of others has no hosts.
func objectOf(w gpu.Want) object {
	switch {
	case w.Config != nil:
		return object{kind: gpu.ClaimConfig, id: w.Config.ID, hosts: w.Config.GPUs}
	case w.Pool != nil:
		return object{kind: gpu.ClaimPool, id: w.Pool.Name, hosts: w.Pool.Members}
	}
	return object{}
}
