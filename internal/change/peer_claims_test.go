package change_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What others have on record of a VM never allows what its host's own record, or any of them, does not:
// of random records in any order.
func TestWhatOthersRecordOnlyNarrows(t *testing.T) {
	t.Parallel()
	const id, owner = "11111111-AAAA-4AAA-8AAA-000000000001", "vdi"
	rng := rand.New(rand.NewPCG(1, 36))
	may := func() bool { return rng.IntN(3) > 0 }
	record := func() gpu.Claim {
		c := gpu.Claim{
			Kind: gpu.ClaimAssignment, ID: id, Token: []string{"t", "u"}[rng.IntN(2)], Owner: []string{owner, owner, owner, "evil", ""}[rng.IntN(5)],
			Revision: rng.Int64N(1000),
		}
		if rng.IntN(10) > 0 {
			c.Want.Assignment = &gpu.Assignment{
				VMID: id, Power: gpu.Power{AllowShutdown: may(), ForceShutdown: may(), AllowTurnOff: may(), StayOff: may()},
			}
		}
		return c
	}
	power := func(c *gpu.Claim) gpu.Power {
		if c.Want.Assignment == nil {
			return gpu.Power{}
		}
		return c.Want.Assignment.Power
	}
	counted, allowed := 0, 0
	for range 20000 {
		host := gpu.Host{Name: "hv01", VMs: []gpu.VM{{ID: id, Clustered: may()}}}
		if may() {
			host.Cluster = &gpu.Cluster{Name: "clu", Records: !may()}
		}
		if rng.IntN(4) == 0 {
			host.Claims = []gpu.Claim{record()}
		}
		var others []gpu.Claim
		for range rng.IntN(4) {
			others = append(others, record())
		}
		before := host
		known := change.WithPeerClaims(host, others, owner, "")
		if diff := cmp.Diff(before, host); diff != "" {
			t.Fatalf("the host itself was changed: %s", diff)
		}
		c, ok := known.Claim(gpu.ClaimAssignment, id)
		speaks := host.VMs[0].Clustered && host.Cluster != nil && !host.Cluster.Records && len(host.Claims) == 0
		if !speaks {
			if diff := cmp.Diff(host.Claims, known.Claims); diff != "" {
				t.Fatalf("others say something of a VM that its host or cluster keeps itself: %s", diff)
			}
			continue
		}
		if ok != (len(others) > 0) {
			t.Fatalf("%d others have a record, and one counts: %t", len(others), ok)
		}
		if !ok {
			continue
		}
		counted++
		for i := range others {
			o := &others[i]
			if o.Owner != owner && c.Owner == owner {
				t.Fatalf("%q has it by one record, and what counts is %q's", o.Owner, c.Owner)
			}
			p, is := power(o), power(c)
			if is.AllowShutdown && !p.AllowShutdown || is.ForceShutdown && !p.ForceShutdown || is.AllowTurnOff && !p.AllowTurnOff ||
				is.StayOff && !p.StayOff {
				t.Fatalf("one forbids what counts allows: %+v, %+v", p, is)
			}
		}
		if power(c).AllowShutdown {
			allowed++
		}
	}
	if counted < 1000 || allowed < 200 {
		t.Errorf("%d records counted, and %d allowed something: too few", counted, allowed)
	}
}
