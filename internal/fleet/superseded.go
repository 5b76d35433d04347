package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// claimsOfOthers are the claims of this owner for the object of a want, by host, that are of none of the resources which
// this run has read or planned.
func (f *Fleet) claimsOfOthers(v View, w gpu.Want) map[string]gpu.Claim {
	of := func(c *gpu.Claim) bool { return c.Owner == f.opt.Owner && c.Owner != "" && !f.Ledger.has(c.Token) }
	if a := w.Assignment; a != nil {
		if at, err := FindAssigned(v, a); err == nil {
			if c, ok := RecordOf(v, at); ok && of(c) {
				return map[string]gpu.Claim{at.Host: *c}
			}
		}
		return nil
	}
	out := map[string]gpu.Claim{}
	kind, id := w.Object()
	on := members(w)
	for host, c := range v.Claims(kind, id) {
		if on[host] && of(c) {
			out[host] = *c
		}
	}
	return out
}

// label names the object of a claim.
func label(c gpu.Claim) string {
	switch a := c.Want.Assignment; {
	case c.Kind == gpu.ClaimConfig:
		return fmt.Sprintf("partition config %q", c.ID)
	case a != nil:
		return fmt.Sprintf("VM %s (id %s)", words.Name(a.VMName), c.ID)
	}
	return fmt.Sprintf("%s %q", c.Kind, c.ID)
}

// labelAndHosts name the object of some claims, which is one, and the hosts that have them.
func labelAndHosts(claims map[string]gpu.Claim) (of, hosts string) {
	names := slices.Sorted(maps.Keys(claims))
	return label(claims[names[0]]), words.JoinAll(names)
}

// CrossRunFindings finds what a resource that was just planned takes over from one that is not in this run, and that one
// of those has taken over its own object. Terraform tells nobody when it has planned all: what is missing counts as
// not in the run when nothing more comes.
func (f *Fleet) CrossRunFindings(ctx context.Context, v View, p change.Change) []rules.Finding {
	switch planning := !f.Applies() && !f.replanning.Load(); { // only a plan knows what the run destroys
	case f.opt.Owner == "":
		return nil
	case planning && p.Prior.Empty() && !p.Want.Empty():
		return f.supersedes(ctx, v, p)
	}
	return f.superseded(v, p)
}

// superseded finds that another resource of this owner, from another provider block or state, has taken
// over what a resource goes on wanting: two that stay would do so by turns.
func (f *Fleet) superseded(v View, p change.Change) []rules.Finding {
	if p.Token == "" || object(p.Want) != object(p.Prior) {
		return nil
	}
	claims := f.claimsOfOthers(v, p.Prior)
	maps.DeleteFunc(claims, func(_ string, c gpu.Claim) bool { return c.Token == p.Token })
	if len(claims) == 0 {
		return nil
	}
	of, hosts := labelAndHosts(claims)
	x := rules.Finding{
		Level: rules.Error, Title: "Another resource manages " + of,
		Found: fmt.Sprintf("Since this resource was applied, another resource of owner %q has taken it over on %s, "+
			"from another provider block or another state.", f.opt.Owner, hosts),
		Fix: "Keep one of the two. Removing this one touches nothing on the hosts.",
	}
	if p.Unchanged {
		x.Level = rules.Warning
	}
	for _, c := range claims {
		f.Ledger.MarkSeen(c.Token) // said once
	}
	return []rules.Finding{x}
}

// supersedes waits for the end of the resource whose object a new one takes over, as where it got another address, and
// finds that none comes.
func (f *Fleet) supersedes(ctx context.Context, v View, p change.Change) []rules.Finding {
	if len(f.claimsOfOthers(v, p.Want)) == 0 {
		return nil
	}
	f.Ledger.handovers.await(ctx, f.Applies(), func() bool { return f.Applies() || len(f.claimsOfOthers(v, p.Want)) == 0 })
	claims := f.claimsOfOthers(v, p.Want)
	if len(claims) == 0 || f.Applies() {
		return nil
	}
	of, hosts := labelAndHosts(claims)
	return []rules.Finding{{
		Level: rules.Warning, Title: words.Capital(of) + " is taken over",
		Found: fmt.Sprintf("On %s a resource of owner %q manages it that this run does not have: "+
			"one of another workspace or state, or of a state that was lost.", hosts, f.opt.Owner),
		Fix: "If another state is in use, give each its own `owner`, with workspaces for example `owner = \"vdi-${terraform.workspace}\"`. " +
			"Otherwise apply: this resource takes the place of the other one.",
	}}
}
