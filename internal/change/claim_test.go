package change_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestWhoseAnObjectIs plans a pool under claims of others: who asks may act, is refused with
// words that say whose the object is, or touches nothing.
func TestWhoseAnObjectIs(t *testing.T) {
	t.Parallel()
	pool := &gpu.PoolConfig{ID: name + "/dda", Name: "dda", Members: map[string][]string{name: {whole1}}, MountBack: true}
	for _, c := range []struct {
		name         string
		claim        *gpu.Claim
		owner, token string
		had, gone    bool
		adopt        bool
		refused      string // words of the refusal, "" for none
		acts         bool
	}{
		{name: "nobody's", owner: "a", token: "1", acts: true},
		{name: "its own", claim: &gpu.Claim{Owner: "a", Token: "1"}, owner: "a", token: "1", had: true, acts: true},
		{name: "of another owner", claim: &gpu.Claim{Owner: "b", Token: "2"}, owner: "a", token: "1", refused: `owner "b"`},
		{name: "of a state without a name", claim: &gpu.Claim{Token: "2"}, owner: "a", token: "1", refused: "without an owner"},
		{name: "of another instance of this owner", claim: &gpu.Claim{Owner: "a", Token: "2"}, owner: "a", token: "1", acts: true},
		{
			name: "taken over by another instance", claim: &gpu.Claim{Owner: "a", Token: "2"}, owner: "a",
			token: "1", had: true, refused: "took over",
		},
		{name: "of another instance, and nobody has a name", claim: &gpu.Claim{Token: "2"}, token: "1", refused: "another resource instance"},
		{
			name: "a delete of what is its own", claim: &gpu.Claim{Owner: "a", Token: "1"}, owner: "a", token: "1",
			had: true, gone: true, acts: true,
		},
		{name: "a delete of what another took over", claim: &gpu.Claim{Owner: "a", Token: "2"}, owner: "a", token: "1", had: true, gone: true},
		{name: "a delete of what no claim covers", owner: "a", token: "1", had: true, gone: true},
		{name: "a delete of what was imported", owner: "a", token: "1", had: true, gone: true, adopt: true, acts: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host := hyperV()
			if c.had {
				equipped(&host)
				host.Pools[0].GPUs = []string{whole1}
				host.VMs[0].Devices = nil
			}
			if c.claim != nil {
				c.claim.Kind, c.claim.ID, c.claim.GPUs, c.claim.Dismounted = gpu.ClaimPool, "dda", []string{whole1}, []string{whole1}
				c.claim.Want.Pool = pool
				host.Claims = []gpu.Claim{*c.claim}
			}
			ch := change.Change{Owner: c.owner, Token: c.token, Adopt: c.adopt}
			if c.had {
				ch.Prior.Pool = pool
			}
			if !c.gone {
				ch.Want.Pool = pool
			}
			steps, err := change.Plan(host, name, ch)
			if refusal, ok := errors.AsType[*gpu.Refusal](err); c.refused != "" {
				if !ok || refusal.Code != gpu.NotOwner || !strings.Contains(refusal.Found(), c.refused) || len(steps) > 0 {
					t.Errorf("steps %v, error %v; want a refusal with %q", steps, err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			after := cutAnywhere(t, host, steps)
			_, has := after.Pool("dda")
			if want := c.gone != c.acts; has != want {
				t.Errorf("after %v the pool is there: %t", steps, has)
			}
			if !c.acts && len(steps) > 0 {
				t.Errorf("it is not to be touched, but is by %v", steps)
			}
			if claim, ok := after.Claim(gpu.ClaimPool, "dda"); c.acts && (ok == c.gone || ok && claim.Token != c.token) {
				t.Errorf("after %v the claim is %+v", steps, claim)
			}
		})
	}
}

// TestWithClaims joins the claims of two nodes: of two for one object the newer counts.
func TestWithClaims(t *testing.T) {
	t.Parallel()
	claim := func(id, token string, revision int64) gpu.Claim {
		return gpu.Claim{Kind: gpu.ClaimAssignment, ID: id, Token: token, Revision: revision}
	}
	host := gpu.Host{Claims: []gpu.Claim{claim("a", "here", 3), claim("b", "here", 1), claim("c", "here", 2)}}
	joined := change.WithClaims(host, []gpu.Claim{
		claim("A", "there", 2), claim("b", "there", 2), claim("c", "there", 2), claim("d", "there", 1),
	})
	for id, token := range map[string]string{"a": "here", "b": "there", "c": "here", "d": "there"} {
		if c, ok := joined.Claim(gpu.ClaimAssignment, id); !ok || c.Token != token {
			t.Errorf("the claim for %s is %+v, want that from %s", id, c, token)
		}
	}
	if len(joined.Claims) != 4 || host.Claims[1].Token != "here" {
		t.Errorf("claims %+v, those given are %+v now", joined.Claims, host.Claims)
	}
}
