package whatif

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestIndexWith has some hosts of an index change again and again: each index is as one made anew,
// and the one before it stays as it was.
func TestIndexWith(t *testing.T) {
	same := []cmp.Option{
		cmp.AllowUnexported(Fleet{}, placed[gpu.VM]{}, placed[gpu.Claim]{}), cmpopts.IgnoreFields(Fleet{}, "mu", "changes"),
		cmpopts.EquateEmpty(),
		cmpopts.IgnoreMapEntries(func(_ string, keys []string) bool { return len(keys) == 0 }), // of a cluster that is no more
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		random := func(key string) *gpu.Host {
			h := &gpu.Host{Name: key}
			if n := rng.IntN(3); n > 0 {
				h.Cluster = &gpu.Cluster{Name: fmt.Sprint("Clu", n)}
			}
			for range rng.IntN(4) {
				id := fmt.Sprint("vm", rng.IntN(6))
				h.VMs = append(h.VMs, gpu.VM{ID: id, Name: "Name of " + id})
			}
			for range rng.IntN(4) {
				kind := []gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimPool, gpu.ClaimShare, gpu.ClaimAssignment}[rng.IntN(4)]
				h.Claims = append(h.Claims, gpu.Claim{
					Kind: kind, ID: fmt.Sprint("X", rng.IntN(3)), Want: gpu.Want{Pool: &gpu.PoolConfig{ID: fmt.Sprint("x", rng.IntN(3))}},
				})
			}
			return h
		}
		hosts := map[string]*gpu.Host{}
		for i := range 5 {
			key := fmt.Sprint("h", i)
			hosts[key] = random(key)
		}
		index := NewFleet(hosts)
		for range 5 {
			was := maps.Clone(hosts)
			for key := range hosts {
				if rng.IntN(3) == 0 {
					hosts[key] = random(key)
				}
			}
			next := index.With(hosts)
			if diff := cmp.Diff(NewFleet(hosts), next, same...); diff != "" {
				t.Fatalf("seed %d: the index (-made anew +with):\n%s", seed, diff)
			}
			if diff := cmp.Diff(NewFleet(was), index, same...); diff != "" {
				t.Fatalf("seed %d: the one before (-as it was +is):\n%s", seed, diff)
			}
			index = next
		}
	}
}
