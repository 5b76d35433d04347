package change

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// WithClaims returns the host with the claims that its own records have elsewhere, such as in the
// store of its cluster. Of two claims for one object the newer one counts.
func WithClaims(host gpu.Host, others []gpu.Claim) gpu.Host {
	host.Claims = slices.Clone(host.Claims)
	for _, o := range others {
		if c, ok := host.Claim(o.Kind, o.ID); !ok {
			host.Claims = append(host.Claims, o)
		} else if o.Revision > c.Revision {
			*c = o
		}
	}
	return host
}

// WithPeerClaims returns the host with what others have on record of its VMs. A host speaks for
// itself: this counts only for VMs of which neither the host nor the records of its cluster have a claim.
// It counts for clustered VMs, as far as all nodes agree that have one; and for the resource of a
// change itself, by its token, whose VM has come from another host.
func WithPeerClaims(host gpu.Host, others []gpu.Claim, owner, token string) gpu.Host {
	own := host
	for i := range others {
		o := &others[i]
		vm, here := own.VM(o.ID)
		if o.Kind != gpu.ClaimAssignment || !here {
			continue
		}
		if _, recorded := own.Claim(o.Kind, o.ID); recorded {
			continue
		}
		peers := vm.Clustered && own.Cluster != nil && !own.Cluster.Records
		if !peers && (token == "" || o.Token != token) {
			continue
		}
		if len(host.Claims) == len(own.Claims) {
			host.Claims = slices.Clone(own.Claims)
		}
		if c, ok := host.Claim(o.Kind, o.ID); ok {
			*c = agreed(*c, *o, owner)
		} else {
			host.Claims = append(host.Claims, *o)
		}
	}
	return host
}

// agreed is what two nodes say of one VM: one that another state has is that state's, and what
// either forbids is forbidden. Of the rest the later write counts.
func agreed(a, b gpu.Claim, owner string) gpu.Claim {
	foreign := func(c *gpu.Claim) bool { return c.Owner != owner }
	out := a
	if foreign(&b) != foreign(&a) && foreign(&b) || foreign(&b) == foreign(&a) && b.Revision > a.Revision {
		out = b
	}
	var allowed gpu.Power
	if a.Want.Assignment != nil && b.Want.Assignment != nil {
		allowed = a.Want.Assignment.Power.Stricter(b.Want.Assignment.Power)
	}
	if out.Want.Assignment != nil {
		want := *out.Want.Assignment
		want.Power = allowed
		out.Want.Assignment = &want
	}
	return out
}

// PutClaim writes a claim in the place of the one for the same object.
func PutClaim(claims []gpu.Claim, c gpu.Claim) []gpu.Claim {
	out := append(make([]gpu.Claim, 0, len(claims)+1), claims...)
	for i := range out {
		if out[i].Is(c.Kind, c.ID) {
			out[i] = c
			return out
		}
	}
	return append(out, c)
}

// sameClaim tells whether writing a claim over another would change nothing.
func sameClaim(a, b gpu.Claim) bool {
	a.Revision, a.Boot = b.Revision, b.Boot
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// DropClaim leaves the claim for an object out.
func DropClaim(claims []gpu.Claim, kind gpu.ClaimKind, id string) []gpu.Claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c gpu.Claim) bool { return c.Is(kind, id) })
}

// owns decides whether a change may act on its object. had and wanted tell whether
// the resource had the object on this host before and wants it now. On a delete,
// false without an error means: succeed and touch nothing.
func (p *planner) owns(kind gpu.ClaimKind, id string, claim *gpu.Claim, had, wanted bool) (bool, error) {
	ch := p.change
	switch {
	case !wanted && claim == nil:
		return ch.Adopt, nil
	case !wanted:
		return claim.Token == ch.Token, nil
	case claim == nil, claim.Token == ch.Token:
		return true, nil
	case claim.Owner != ch.Owner:
		return false, refuseFor(gpu.NotOwner, "%s on host %q belongs to %s, not to %s",
			DescribeObject(kind, id), p.host.Name, describeOwner(claim.Owner), describeOwner(ch.Owner))
	case had:
		return false, refuseFor(gpu.NotOwner,
			"another resource instance of %s took over %s on host %q; remove this instance from the state, or the other from the configuration",
			describeOwner(ch.Owner), DescribeObject(kind, id), p.host.Name)
	case ch.Owner == "":
		return false, refuseFor(gpu.NotOwner,
			"%s on host %q belongs to another resource instance, and without the provider's owner nothing is taken over; destroy the other "+
				"instance in an apply of its own first",
			DescribeObject(kind, id), p.host.Name)
	}
	return true, nil
}

// DescribeObject names the object of a claim, for people.
func DescribeObject(kind gpu.ClaimKind, id string) string {
	switch kind {
	case gpu.ClaimConfig:
		return fmt.Sprintf("partition config %q", id)
	case gpu.ClaimPool:
		return fmt.Sprintf("pool %q", id)
	case gpu.ClaimAssignment:
		return "the assignment of VM " + id
	case gpu.ClaimShare:
		return fmt.Sprintf("share %q", id)
	}
	return id
}

func describeOwner(owner string) string {
	if owner == "" {
		return "a state without an owner"
	}
	return fmt.Sprintf("owner %q", owner)
}

// newClaim is the claim that the change leaves for its object.
func (p *planner) newClaim(kind gpu.ClaimKind, id string, old *gpu.Claim) gpu.Claim {
	c := gpu.Claim{
		Kind: kind, ID: id, Token: p.change.Token, Owner: p.change.Owner, Incomplete: p.change.Incomplete, Boot: p.host.BootID(), Revision: 1,
	}
	if old != nil {
		c.Revision = old.Revision + 1
	}
	return c
}
