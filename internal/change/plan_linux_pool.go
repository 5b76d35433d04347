package change

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const makePool = "make the pool"

// linuxPool plans a pool of a Linux host: a set of GPUs that shares are drawn from. It is
// no more than its claim, and nothing is dismounted for it.
func (p *planner) linuxPool(want, shape gpu.PoolConfig, wanted bool, claim *gpu.Claim) error {
	if !p.change.ClaimOnly {
		if err := p.poolAllows(&shape, want.Members[p.key], claim); err != nil {
			return err
		}
	}
	if !wanted {
		if claim != nil {
			p.drop(*claim)
		}
		return nil
	}
	p.putOver(claim, p.poolClaim(want, claim, nil))
	return nil
}

// poolAllows refuses members that the pool cannot have, or that shares of it are on.
func (p *planner) poolAllows(pool *gpu.PoolConfig, members []string, claim *gpu.Claim) error {
	object := "pool " + words.Name(pool.Name)
	switch {
	case len(members) == 0: // it leaves the host
	case pool.Force:
		return refuse(gpu.NotSupported, makePool, object, "GPUs of a pool on a Linux host are not dismounted").Or("leave dismount out")
	case pool.MountBack:
		return refuse(gpu.NotSupported, makePool, object, "GPUs of a pool on a Linux host are not dismounted, so there is nothing to mount back").
			Or("leave on_destroy out, or write \"keep\"")
	}
	for _, id := range members {
		if _, ok := p.host.GPU(id); !ok {
			return refuse(gpu.NotFound, makePool, "GPU "+id, "the host has no such GPU")
		}
		for o := range p.host.ClaimsOf(gpu.ClaimPool) {
			if !gpu.SameID(o.ID, pool.Name) && o.Covers(id) {
				return refuse(gpu.InUse, makePool, "GPU "+id, "it is in pool %q already", o.ID)
			}
		}
	}
	if claim == nil {
		return nil
	}
	for _, id := range claim.GPUs {
		if _, there := p.host.GPU(id); gpu.HasID(members, id) || !there { // The world has taken that one from its shares.
			continue
		}
		if names := p.drawn(pool.ID, id); len(names) > 0 {
			return refuse(gpu.InUse, "take the GPU from the pool", "GPU "+id, "shares of the pool are on it: %s", strings.Join(names, ", ")).
				Or("destroy them first")
		}
	}
	return nil
}

// drawn are the shares of a pool that have part in a GPU.
func (p *planner) drawn(pool, id string) []string {
	var names []string
	for c := range p.host.ClaimsOf(gpu.ClaimShare) {
		if s := c.Want.Share; s != nil && gpu.SameID(s.Pool, pool) && c.Covers(id) {
			names = append(names, s.Name)
		}
	}
	return names
}
