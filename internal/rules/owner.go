package rules

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
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
	if e := r.book.plans[c.Token]; r.owner == "" && r.plan.Prior.Empty() && c.Token != r.plan.Token && e != nil && e.plan.Want.Empty() {
		return false // what another resource gives up in this run: the two may come in either order
	}
	return r.superseded(c) || (r.owner != "" && c.Owner == r.owner)
}

// handedOver tells whether the plan gives up an object of which no claim says that it is
// this resource's: another has taken it over by now, or the claims are gone. Its end touches
// nothing.
func (r *run) handedOver() bool {
	if !r.plan.Want.Empty() || r.plan.Token == "" {
		return false
	}
	return !slices.ContainsFunc(r.priorClaims(), func(c *gpu.Claim) bool { return c.Token == r.plan.Token })
}

// priorClaims are the claims at hand for what the resource had.
func (r *run) priorClaims() []*gpu.Claim {
	var out []*gpu.Claim
	if a := r.plan.Prior.Assignment; a != nil {
		if at, ok := r.locate(a); ok {
			if c, claimed := r.claimOnVM(at.key, at.vm.ID); claimed {
				out = append(out, c)
			}
			return out
		}
		for _, c := range r.fleet.vmClaims[gpu.FoldID(r.vmID(a))] { // of a VM that is gone
			out = append(out, c.item)
		}
		return out
	}
	kind, id := r.plan.Prior.Object()
	for _, host := range r.hostsOf(change.Change{Prior: r.plan.Prior}) {
		if c, ok := r.fleet.hosts[host].Claim(kind, id); ok {
			out = append(out, c)
		}
	}
	return out
}

// TakenOver lists the hosts on which another plan of the run wants the object that a plan
// gives up, and so takes it over as it is. Without an owner nothing is taken over.
func TakenOver(w World, p change.Change) []string {
	r, done := begin(w, p)
	defer done()
	if w.Owner == "" {
		return nil
	}
	prior := r.plan.Prior
	hosts := map[string]bool{}
	switch {
	case prior.Config != nil:
		for e := range r.others(configNamed(prior.Config.ID)) {
			if c := e.plan.Want.Config; c != nil && gpu.SameID(c.ID, prior.Config.ID) {
				shared(hosts, c.GPUs, prior.Config.GPUs)
			}
		}
	case prior.Pool != nil:
		for e := range r.others(poolNamed(prior.Pool.ID)) {
			if c := e.plan.Want.Pool; c != nil && gpu.SameID(c.ID, prior.Pool.ID) {
				shared(hosts, c.Members, prior.Pool.Members)
			}
		}
	case prior.Share != nil:
		for e := range r.others(sharesOn(prior.Share.Host)) {
			if s := e.plan.Want.Share; s != nil && gpu.SameID(s.Name, prior.Share.Name) && s.Host == prior.Share.Host {
				hosts[s.Host] = true
			}
		}
	case prior.Assignment != nil:
		if len(r.othersForVM(prior.Assignment)) > 0 {
			hosts[prior.Assignment.Host] = true
		}
	}
	return sortedKeys(hosts)
}

// shared notes the hosts that two objects have both.
func shared(out map[string]bool, a, b map[string][]string) {
	for host := range a {
		if _, both := b[host]; both {
			out[host] = true
		}
	}
}

// claimOnVM is what its host, or its cluster, has on record of a VM.
func (r *run) claimOnVM(host, vmID string) (*gpu.Claim, bool) {
	h := r.fleet.hosts[host]
	if h == nil {
		return nil, false
	}
	if c, own := h.Claim(gpu.ClaimAssignment, vmID); own || h.Cluster == nil || h.Cluster.Records {
		return c, own
	}
	known := change.WithPeerClaims(*h, values(r.fleet.peerClaims(host, h, vmID)), r.owner, "")
	return known.Claim(gpu.ClaimAssignment, vmID)
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
		" in the other state first; the ownership guide describes how to move an object between states without destroying it."
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
	nameA, nameB := cmp.Or(a.VMName, a.VM), cmp.Or(b.VMName, b.VM)
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
func (r *run) hadPartition(at located) bool {
	if p := r.plan.Prior.Assignment; p != nil && p.Partition != nil && gpu.SameID(r.vmID(p), at.vm.ID) {
		return true
	}
	c, ok := r.claimOnVM(at.key, at.vm.ID)
	return ok && r.ours(c)
}
