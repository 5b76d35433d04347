package whatif

import (
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Superseded tells whether a plan of this run speaks for the claim: then the plan
// counts, and what the claim says is history.
func (r *Run) Superseded(c *gpu.Claim) bool {
	return (c.Token != "" && c.Token == r.Plan.Token) || r.Book.has(c.Token)
}

// Ours tells whether the claim belongs to this state: it has the name of this
// state, or the token of a resource of this run. Two states without a name cannot
// be told apart, so without a name only the token counts.
func (r *Run) Ours(c *gpu.Claim) bool {
	if e := r.Book.plans[c.Token]; r.Owner == "" && r.Plan.Prior.Empty() && c.Token != r.Plan.Token && e != nil && e.Plan.Want.Empty() {
		return false // what another resource gives up in this run: the two may come in either order
	}
	return r.Superseded(c) || (r.Owner != "" && c.Owner == r.Owner)
}

// HandedOver tells whether the plan gives up an object of which no claim says that it is
// this resource's: another has taken it over by now, or the claims are gone. Its end touches
// nothing.
func (r *Run) HandedOver() bool {
	if !r.Plan.Want.Empty() || r.Plan.Token == "" {
		return false
	}
	return !slices.ContainsFunc(r.priorClaims(), func(c *gpu.Claim) bool { return c.Token == r.Plan.Token })
}

// priorClaims are the claims at hand for what the resource had.
func (r *Run) priorClaims() []*gpu.Claim {
	var out []*gpu.Claim
	if a := r.Plan.Prior.Assignment; a != nil {
		if at, ok := r.Locate(a); ok {
			if c, claimed := r.ClaimOnVM(at.Key, at.VM.ID); claimed {
				out = append(out, c)
			}
			return out
		}
		for _, c := range r.Fleet.vmClaims[gpu.FoldID(r.VMID(a))] { // of a VM that is gone
			out = append(out, c.item)
		}
		return out
	}
	kind, id := r.Plan.Prior.Object()
	for _, host := range r.HostsOf(change.Change{Prior: r.Plan.Prior}) {
		if c, ok := r.Fleet.byName[host].Claim(kind, id); ok {
			out = append(out, c)
		}
	}
	return out
}

// TakenOver lists the hosts on which another plan of the run wants the object that a plan
// gives up, and so takes it over as it is. Without an owner nothing is taken over.
func TakenOver(w World, p change.Change) []string {
	r, done := Begin(w, p)
	defer done()
	if w.Owner == "" {
		return nil
	}
	prior := r.Plan.Prior
	hosts := map[string]bool{}
	takers := func(subject string, same func(gpu.Want) bool) {
		for e := range r.Others(subject) {
			if w := e.Plan.Want; same(w) {
				shared(hosts, WantedGPUs(w), WantedGPUs(prior))
			}
		}
	}
	switch {
	case prior.Config != nil:
		takers(ConfigNamed(prior.Config.ID), func(w gpu.Want) bool { return w.Config != nil && gpu.SameID(w.Config.ID, prior.Config.ID) })
	case prior.Pool != nil:
		takers(PoolNamed(prior.Pool.ID), func(w gpu.Want) bool { return w.Pool != nil && gpu.SameID(w.Pool.ID, prior.Pool.ID) })
	case prior.Share != nil:
		for e := range r.Others(SharesOn(prior.Share.Host)) {
			if s := e.Plan.Want.Share; s != nil && gpu.SameID(s.Name, prior.Share.Name) && s.Host == prior.Share.Host {
				hosts[s.Host] = true
			}
		}
	case prior.Assignment != nil && len(r.OthersForVM(prior.Assignment)) > 0:
		hosts[prior.Assignment.Host] = true
	}
	return SortedKeys(hosts)
}

// shared notes the hosts that two objects have both.
func shared(out map[string]bool, a, b map[string][]string) {
	for host := range a {
		if _, both := b[host]; both {
			out[host] = true
		}
	}
}

// ClaimOnVM is what its host, or its cluster, has on record of a VM.
func (r *Run) ClaimOnVM(host, vmID string) (*gpu.Claim, bool) {
	h := r.Fleet.byName[host]
	if h == nil {
		return nil, false
	}
	if c, own := h.Claim(gpu.ClaimAssignment, vmID); own || h.Cluster == nil || h.Cluster.Records {
		return c, own
	}
	known := change.WithPeerClaims(*h, values(r.Fleet.peerClaims(host, h, vmID)), r.Owner, "")
	return known.Claim(gpu.ClaimAssignment, vmID)
}

// HadPartition tells whether this resource, or another of this state, gave the VM
// the partition that it has.
func (r *Run) HadPartition(at Located) bool {
	if p := r.Plan.Prior.Assignment; p != nil && p.Partition != nil && gpu.SameID(r.VMID(p), at.VM.ID) {
		return true
	}
	c, ok := r.ClaimOnVM(at.Key, at.VM.ID)
	return ok && r.Ours(c)
}

// ConfigsOfClaim are the configs of which a VM was assigned a partition.
func (r *Run) ConfigsOfClaim(host string, vm *gpu.VM) []string {
	if c, ok := r.ClaimOnVM(host, vm.ID); ok && c.Want.Assignment != nil && c.Want.Assignment.Partition != nil {
		return c.Want.Assignment.Partition.ConfigIDs()
	}
	return nil
}

// MayYieldVM tells whether a VM's assignment is one of this state that the run has not planned
// yet, while that matters.
func (r *Run) MayYieldVM(host string, vm *gpu.VM) bool {
	if !r.Mode.Yielding {
		return false
	}
	c, ok := r.ClaimOnVM(host, vm.ID)
	return ok && c.Owner == r.Owner && !r.Superseded(c)
}

// ConfigClaimed tells whether a host knows a partition config of which no plan of the run speaks.
func (r *Run) ConfigClaimed(id string) bool { return r.claimed(r.Fleet.configClaims[gpu.FoldID(id)]) }

// ClaimIDs are the ids that configurations have for the configs, or the pools, that hosts have claims of.
func (f *Fleet) ClaimIDs(kind gpu.ClaimKind) []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	ids := map[string]bool{}
	for _, h := range f.byName {
		for c := range h.ClaimsOf(kind) {
			if kind == gpu.ClaimPool && c.Want.Pool != nil {
				ids[c.Want.Pool.ID] = true
				continue
			}
			ids[c.ID] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// PoolClaimed tells the same of a pool.
func (r *Run) PoolClaimed(id string) bool { return r.claimed(r.Fleet.poolClaims[gpu.FoldID(id)]) }

func (r *Run) claimed(claims []placed[gpu.Claim]) bool {
	return slices.ContainsFunc(claims, func(c placed[gpu.Claim]) bool { return !r.Superseded(c.item) })
}

// ConfigClaimOver is a config's claim on a GPU that no plan of this run replaces.
func (r *Run) ConfigClaimOver(h *gpu.Host, id string) *gpu.Claim {
	for c := range h.ClaimsOf(gpu.ClaimConfig) {
		if c.Covers(id) && !r.Superseded(c) {
			return c
		}
	}
	return nil
}

// withClaims is a host with the claims that other nodes of its cluster hold for its VMs.
func (r *Run) withClaims(host string, h *gpu.Host) gpu.Host {
	others := r.Fleet.claimsElsewhere(host, h)
	if len(others) == 0 {
		return *h
	}
	return change.WithPeerClaims(*h, values(others), r.Owner, "")
}
