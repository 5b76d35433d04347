package fleetmap

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// pools are those of all hosts together, with what labels have of their quotas.
func pools(s gpu.Snapshot, drawn []Host) []Pool {
	type key struct{ where, name string }
	found := map[key]*Pool{}
	quotas := map[key]*gpu.PoolConfig{}
	for i := range drawn {
		h := &drawn[i]
		for j := range h.GPUs {
			g := &h.GPUs[j]
			if g.Pool == "" {
				continue
			}
			k := key{cmp.Or(h.Cluster, h.Name), gpu.FoldID(g.Pool)}
			if h.Platform == string(gpu.Linux) {
				k.where = "" // one pool is of many Linux hosts
			}
			p := found[k]
			if p == nil {
				p = &Pool{Name: g.Pool}
				found[k] = p
			}
			p.GPUs++
			if g.taken() {
				p.Taken++
			}
			for c := range s.Hosts[i].ClaimsOf(gpu.ClaimPool) {
				if c.Covers(g.ID) && c.Want.Pool != nil {
					p.Owner, quotas[k] = c.Owner, c.Want.Pool
				}
			}
		}
	}
	var out []Pool
	for _, k := range slices.SortedFunc(maps.Keys(found), func(a, b key) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.where, b.where))
	}) {
		if c := quotas[k]; c != nil {
			found[k].Quotas = quotasOf(s, c)
		}
		out = append(out, *found[k])
	}
	return out
}

// taken reports whether anybody has something of a GPU.
func (g *GPU) taken() bool {
	return len(g.Beside) > 0 || slices.ContainsFunc(g.Parts, func(p Part) bool {
		return len(p.Holders) > 0 || p.Inside != nil
	})
}

// quotasOf are the quotas of a pool and what its labels have by the claims of all hosts.
func quotasOf(s gpu.Snapshot, pool *gpu.PoolConfig) []Quota {
	var out []Quota
	for _, label := range slices.Sorted(maps.Keys(pool.Quotas)) {
		var has placement.Usage
		for i := range s.Hosts {
			h := &s.Hosts[i]
			for _, share := range placement.ClaimedShares(h) {
				if gpu.SameID(share.Pool, pool.ID) && share.Label == label {
					has.Add(share, words.Each(share.Devices, func(at gpu.SharedDevice) *placement.Device { return placement.PlacedDevice(h, at) }))
				}
			}
		}
		q := pool.Quotas[label]
		if q.GPUs != nil {
			noun := words.Verb(int(math.Ceil(*q.GPUs)), " GPU", " GPUs")
			text := placement.Decimal(has.GPUs) + " of " + placement.Decimal(*q.GPUs) + noun
			out = append(out, Quota{label, "GPUs", has.GPUs, *q.GPUs, text})
		}
		if q.Memory != nil {
			out = append(out, Quota{label, "memory", float64(has.Memory), float64(*q.Memory), has.Memory.String() + " of " + q.Memory.String()})
		}
		if q.Shares != nil {
			out = append(out, Quota{
				label, "shares", float64(has.Shares), float64(*q.Shares),
				placement.Decimal(float64(has.Shares)) + " of " + words.Plural(*q.Shares, "share"),
			})
		}
	}
	return out
}
