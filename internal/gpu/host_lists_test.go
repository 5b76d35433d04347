package gpu_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Claims name the hosts that they named, and equal lists are one.
func TestHostListsAreSharedWhereTheyAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a\x00b", ""}), 1, 4), 1, 12).Draw(t, "lists")
		var lists gpu.HostLists
		claims := make([]gpu.Claim, len(names))
		for i, hosts := range names {
			claims[i].Want.Config = &gpu.PartitionConfig{Scope: gpu.Scope{Hosts: slices.Clone(hosts)}}
			claims[i].Want.Pool = &gpu.PoolConfig{Scope: gpu.Scope{Hosts: slices.Clone(hosts)}}
			copy(claims[i:], lists.Share(claims[i:i+1]))
		}
		odd := slices.ContainsFunc(names, func(hosts []string) bool { return slices.Contains(hosts, "a\x00b") }) // which no host is called
		for i, hosts := range names {
			config, pool := claims[i].Want.Config.Scope.Hosts, claims[i].Want.Pool.Scope.Hosts
			if !slices.Equal(config, hosts) || !slices.Equal(pool, hosts) {
				t.Fatalf("claims for %q name %q and %q", hosts, config, pool)
			}
			first := slices.IndexFunc(names, func(other []string) bool { return slices.Equal(other, hosts) })
			if of := claims[first].Want.Config.Scope.Hosts; !odd && (&of[0] != &config[0] || &of[0] != &pool[0]) {
				t.Fatalf("%q is there twice", hosts)
			}
		}
	})
}
