package fleet

import (
	"context"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// OrphanedClaims are the claims, of any owner, that the hosts of a view have for VMs that no host has any more, and
// whether that can be told. It goes by what hosts say alone, never by what the run has read or planned so far: Terraform
// asks for all that in any order, and what it has not asked for yet is no orphan.
func (f *Fleet) OrphanedClaims(ctx context.Context, v View) (list []gpu.OrphanedClaim, known bool) {
	if !v.Recorded() {
		return nil, false
	}
	if list = gpu.OrphanedClaims(v.Hosts); len(list) == 0 {
		return list, true
	}
	// A VM that moved while the hosts were read may be missing on both: none is missing twice.
	again := f.Snapshot(ctx, f.names, readAgain)
	if !f.whole(v) || !f.whole(again) || gpu.HidesVMs(v.Hosts) != "" || gpu.HidesVMs(again.Hosts) != "" {
		return nil, false
	}
	still := gpu.OrphanedClaims(again.Hosts)
	return slices.DeleteFunc(list, func(o gpu.OrphanedClaim) bool {
		return !slices.ContainsFunc(still, func(s gpu.OrphanedClaim) bool { return s.Host == o.Host && s.Claim.Is(o.Claim.Kind, o.Claim.ID) })
	}), true
}

// whole reports whether a view has every host.
func (f *Fleet) whole(v View) bool { return v.Complete() && len(v.Hosts) == len(f.hosts) }

// dropOrphanedClaims drops this owner's claims of VMs that are gone, once per run, as soon as it has looked at every
// host anyway. What fails, or goes later, the next run finds.
func (f *Fleet) dropOrphanedClaims(ctx context.Context) {
	if f.opt.Owner == "" || f.dropped.Load() {
		return
	}
	seen := f.Snapshot(ctx, nil, Cached)
	if !f.whole(seen) || !f.dropped.CompareAndSwap(false, true) {
		return
	}
	orphaned, _ := f.OrphanedClaims(ctx, seen)
	for _, o := range orphaned {
		// Which VM it is for, its id says, by which no host has the VM. What else the record says may be
		// about another host's VM.
		if o.Claim.Owner != f.opt.Owner || o.Claim.Want.Assignment == nil {
			continue
		}
		gone := *o.Claim.Want.Assignment
		gone.VMID, gone.Host = o.Claim.ID, o.Host
		drop := change.Change{Subject: label(o.Claim), Token: o.Claim.Token, Prior: gpu.Want{Assignment: &gone}, ClaimOnly: true}
		_, _ = f.applyOnce(ctx, Request{Change: drop})
	}
}
