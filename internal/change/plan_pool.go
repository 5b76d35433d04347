package change

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// pool plans a pool of whole GPUs. Members are dismounted before they join, and with
// MountBack every GPU that leaves goes back to its host, whoever dismounted it: a GPU
// that is in no pool and not mounted is of no use to anybody.
func (p *planner) pool() error {
	want, wanted := poolOn(p.change.Want.Pool, p.key)
	prior, had := poolOn(p.change.Prior.Pool, p.key)
	shape := want
	if !wanted {
		shape = prior
	}
	claim, _ := p.host.Claim(gpu.ClaimPool, shape.Name)
	ours, err := p.owns(gpu.ClaimPool, shape.Name, claim, had, wanted)
	if err != nil || !ours {
		return err
	}
	if p.host.Platform == gpu.Linux {
		return p.linuxPool(want, shape, wanted, claim)
	}
	if wanted || !p.dropOnly(claim) {
		if err := p.knows("change the pool", "", want.Members[p.key], gpu.PartPools); err != nil {
			return err
		}
	}
	pool, exists := p.host.Pool(shape.Name)
	if wanted && !had && claim == nil && exists && !p.change.ClaimOnly {
		return refuseFor(gpu.NotOwner, "host %q has a pool %q already, and no resource manages it; import it instead",
			p.host.Name, pool.Name)
	}

	switch {
	case !wanted && p.dropOnly(claim):
	case wanted && p.change.ClaimOnly:
		p.put(p.poolClaim(want, claim, dismountedBy(claim)))
		return nil
	case wanted:
		return p.poolMembers(want, claim, pool)
	default:
		if err := p.deletePool(shape, pool); err != nil {
			return err
		}
	}
	if claim != nil {
		p.drop(*claim)
	}
	return nil
}

// poolOn is a pool's part on one host.
func poolOn(c *gpu.PoolConfig, host string) (gpu.PoolConfig, bool) {
	if c == nil {
		return gpu.PoolConfig{}, false
	}
	part := *c
	members, ok := c.Members[host]
	part.Members = map[string][]string{host: members}
	return part, ok
}

func dismountedBy(claim *gpu.Claim) []string {
	if claim == nil {
		return nil
	}
	return claim.Dismounted
}

func (p *planner) poolClaim(want gpu.PoolConfig, old *gpu.Claim, dismounted []string) gpu.Claim {
	c := p.newClaim(gpu.ClaimPool, want.Name, old)
	c.Want.Pool, c.GPUs = &want, want.Members[p.key]
	for _, g := range dismounted {
		if c.Covers(g) {
			c.Dismounted = append(c.Dismounted, g)
		}
	}
	return c
}

// poolMembers makes the pool hold exactly the wanted GPUs.
func (p *planner) poolMembers(want gpu.PoolConfig, claim *gpu.Claim, pool *gpu.Pool) error {
	members := want.Members[p.key]
	dismounted := slices.Clone(dismountedBy(claim))
	for _, id := range members {
		g, ok := p.host.GPU(id)
		if !ok {
			return refuse(gpu.NotFound, "put the GPU into pool "+words.Name(want.Name), "GPU "+id, "the host has no such GPU")
		}
		if g.Dismounted {
			continue
		}
		p.add(Step{Op: OpDismount, GPU: g.ID, Force: want.Force})
		dismounted = append(dismounted, g.ID)
	}
	var current []string
	if pool == nil {
		p.add(Step{Op: OpCreatePool, Pool: want.Name})
	} else {
		current = pool.GPUs
	}
	leaving := slices.DeleteFunc(slices.Clone(current), func(g string) bool { return gpu.HasID(members, g) })
	if !sameIDs(current, members) {
		p.add(Step{Op: OpSetPoolMembers, Pool: want.Name, GPUs: members})
	}
	if want.MountBack {
		p.mountBack(leaving, want.Name, "", want.Force)
	}
	p.put(p.poolClaim(want, claim, dismounted))
	return nil
}

// MountBack is what becomes of a GPU that leaves a pool or a VM.
const MountBack = "mount the GPU back"

// mountBack gives GPUs back to their host that leave a pool or a VM. What others have put
// into another pool meanwhile, or given to another VM, is theirs.
func (p *planner) mountBack(gpus []string, pool, vm string, force bool) {
	for _, id := range gpus {
		elsewhere := slices.ContainsFunc(p.host.Pools, func(o gpu.Pool) bool { return !gpu.SameID(o.Name, pool) && o.Has(id) }) ||
			slices.ContainsFunc(p.host.VMs, func(o gpu.VM) bool {
				return !gpu.SameID(o.ID, vm) && slices.ContainsFunc(o.Devices, func(d gpu.DeviceAssignment) bool {
					return d.Pool == "" && gpu.SameID(d.GPU, id)
				})
			})
		if u, dead := p.host.UnknownGPU(id); dead && gpu.SameID(u.GPU, id) { // No end of a pool or an assignment waits for it.
			if !elsewhere {
				r := unreadable(MountBack, u)
				r.GPU = id
				p.left = append(p.left, r)
			}
			continue
		}
		if g, ok := p.host.GPU(id); ok && g.Dismounted && !elsewhere {
			p.add(Step{Op: OpMount, GPU: g.ID, Force: force})
		}
	}
}

// deletePool deletes a pool that no VM refers to, running or not: a VM that is off
// would not start any more.
func (p *planner) deletePool(shape gpu.PoolConfig, pool *gpu.Pool) error {
	if pool == nil {
		return nil
	}
	var users []string
	for _, vm := range p.host.VMs {
		if slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return gpu.SameID(d.Pool, pool.Name) }) {
			users = append(users, vm.ID)
		}
	}
	if len(users) > 0 {
		return refuse(gpu.InUse, "delete the pool", "pool "+words.Name(pool.Name), "these VMs use it: %s", p.vmNames(users)).
			Or("unassign them in an apply of its own first, while the pool stays: Terraform destroys a pool before it changes an assignment")
	}
	if len(pool.GPUs) > 0 {
		p.add(Step{Op: OpSetPoolMembers, Pool: pool.Name})
	}
	p.add(Step{Op: OpDeletePool, Pool: pool.Name})
	if shape.MountBack {
		p.mountBack(pool.GPUs, pool.Name, "", shape.Force)
	}
	return nil
}
