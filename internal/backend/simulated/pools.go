package simulated

import (
	"context"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// CreatePool makes an empty pool.
func (h *Host) CreatePool(ctx context.Context, name string) error {
	return h.do(ctx, call{op: OpCreatePool, pool: name}, func(r *record) error {
		if name == "" || strings.EqualFold(name, "Primordial") {
			return refuse(backend.InvalidParameter, "the name %q is that of the pool of all devices", name)
		}
		if _, ok := r.Pool(name); !ok {
			r.Pools = append(r.Pools, gpu.Pool{Name: name, GPUs: []string{}})
		}
		return nil
	})
}

// SetPoolMembers replaces the members of a pool.
func (h *Host) SetPoolMembers(ctx context.Context, name string, gpuIDs []string) error {
	return h.do(ctx, call{op: OpSetPoolMembers, pool: name}, func(r *record) error {
		pool, ok := r.Pool(name)
		if !ok {
			return refuse(backend.NotFound, "the host has no such pool")
		}
		members := []string{}
		for _, id := range gpuIDs {
			member, err := r.memberFor(pool, id)
			if err != nil {
				return err
			}
			if !slices.Contains(members, member) {
				members = append(members, member)
			}
		}
		for _, id := range pool.GPUs {
			holder, held := r.wholeHolder(id)
			if held && !slices.ContainsFunc(members, func(m string) bool { return gpu.SameID(m, id) }) {
				return refuse(backend.InUse, "GPU %s is held by VM %s", id, holder)
			}
		}
		if !sameMembers(pool.GPUs, members) {
			pool.GPUs = members
		}
		return nil
	})
}

// memberFor returns the host's spelling of a GPU that may be in the pool.
func (r *record) memberFor(pool *gpu.Pool, gpuID string) (string, error) {
	g, ok := r.GPU(gpuID)
	if !ok {
		return "", refuse(backend.NotFound, "the host has no GPU %s", gpuID)
	}
	if !g.Dismounted {
		return "", refuse(backend.InvalidState, "GPU %s is not dismounted from the host", g.ID)
	}
	if other, ok := r.poolOf(g.ID); ok && !gpu.SameID(other, pool.Name) {
		return "", refuse(backend.InUse, "GPU %s is a member of pool %s", g.ID, other)
	}
	return g.ID, nil
}

func sameMembers(a, b []string) bool {
	fold := func(ids []string) []string {
		out := make([]string, len(ids))
		for i, id := range ids {
			out[i] = gpu.FoldID(id)
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(fold(a), fold(b))
}

// DeletePool removes a pool. Its members stay dismounted. Hyper-V refuses while an
// allocation is outstanding; that of a VM that is off counts (assumption
// hyperv-pool-of-off-vm).
func (h *Host) DeletePool(ctx context.Context, name string) error {
	return h.do(ctx, call{op: OpDeletePool, pool: name}, func(r *record) error {
		if _, there := r.Pool(name); !there {
			return nil
		}
		for i := range r.VMs {
			for _, d := range r.VMs[i].Devices {
				if d.Pool != "" && gpu.SameID(d.Pool, name) {
					return refuse(backend.InUse, "VM %s draws from it", r.VMs[i].Name)
				}
			}
		}
		r.Pools = slices.DeleteFunc(r.Pools, func(p gpu.Pool) bool { return gpu.SameID(p.Name, name) })
		return nil
	})
}

// poolOf names the pool that a GPU is a member of.
func (r *record) poolOf(gpuID string) (string, bool) {
	for i := range r.Pools {
		if r.Pools[i].Has(gpuID) {
			return r.Pools[i].Name, true
		}
	}
	return "", false
}
