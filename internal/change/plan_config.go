package change

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// configChange is what a change does to a config on this host, whatever its kind.
type configChange struct {
	id     string
	want   gpu.PartitionConfig // empty when the config leaves the host
	wanted bool
	// shape is what is wanted, or what the config was when it leaves.
	shape gpu.PartitionConfig
	claim *gpu.Claim
	// before and given are those of the claim that the change leaves.
	before, given gpu.Layouts
	// shrunk are the claims of the configs of ours that GPUs leave for this one.
	shrunk []gpu.Claim
	// blind are GPUs that cannot be read and stay as they are.
	blind []string
}

// layouts is what a kind of config does to the GPUs of a host.
type layouts interface {
	// wants notes what a selected GPU shall have.
	wants(g *gpu.GPU)
	// restores notes what a GPU that leaves had when it joined. Nothing that runs makes way.
	restores(g *gpu.GPU)
	// steps plans what leads there, and the claims.
	steps()
}

// config plans a partition config of any kind.
func (p *planner) config() error {
	want, wanted := configOn(p.change.Want.Config, p.key)
	prior, had := configOn(p.change.Prior.Config, p.key)
	if !wanted && !had {
		return nil // it is on other hosts
	}
	c := &configChange{want: want, wanted: wanted, shape: want}
	if !wanted {
		c.shape = prior
	}
	c.id = c.shape.ID
	c.claim, _ = p.host.Claim(gpu.ClaimConfig, c.id)
	ours, err := p.owns(gpu.ClaimConfig, c.id, c.claim, had, wanted)
	if err != nil || !ours {
		return err
	}
	if !wanted && (c.claim == nil || p.dropOnly(c.claim)) {
		if c.claim != nil {
			p.drop(*c.claim)
		}
		return nil
	}
	if p.change.Act != "" && !p.change.ClaimOnly {
		return p.actOnConfig(c.id, c.claim)
	}
	if err := p.leaveBlind(c); err != nil {
		return err
	}
	if c.claim != nil {
		c.before, c.given = c.claim.OriginalLayouts, c.claim.AppliedLayouts
	}
	k := kinds[c.shape.Kind]
	l := k.plan(p, c)
	for _, id := range p.selected(c) {
		switch g, ok := p.host.GPU(id); {
		case !p.touches(c, id):
		case !ok:
			p.refuse(refuseGPU(gpu.NotFound, k.op, id, "the host has no such GPU"))
		case g.Dismounted:
			p.refuse(refuseGPU(gpu.InvalidState, k.op, g.ID, "it is dismounted from the host, for passthrough"))
		default:
			l.wants(g)
		}
		if !c.covers(id) {
			p.joins(c, id)
		}
	}
	for _, id := range p.leaving(c) {
		if g, ok := p.host.GPU(id); ok && !g.Dismounted && c.shape.Restore && !p.change.ClaimOnly && Unrestorable(&p.host, c.claim, id) == "" {
			l.restores(g)
		}
		c.before, c.given = c.before.Without(id), c.given.Without(id)
	}
	l.steps()
	if c.shape.Kind == gpu.KindGPUP || p.change.ClaimOnly {
		return nil
	}
	p.leaveSharing(c)
	if len(p.refused) == 0 {
		p.underShares(c)
	}
	return nil
}

// selected are the GPUs that the config shall have on this host.
func (p *planner) selected(c *configChange) []string { return c.want.GPUs[p.key] }

// covers tells whether a GPU is in the config already. One that it has in the state but
// not in a claim joins only now: it was imported, or an earlier change did not come this
// far.
func (c *configChange) covers(gpuID string) bool { return c.claim != nil && c.claim.Covers(gpuID) }

// leaving are the GPUs that are no longer selected.
func (p *planner) leaving(c *configChange) []string {
	if c.claim == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.claim.GPUs), func(g string) bool { return gpu.HasID(p.selected(c), g) })
}

// record plans the claims that the change leaves.
func (p *planner) record(c *configChange) {
	for _, s := range c.shrunk {
		p.put(s)
	}
	if !c.wanted {
		p.drop(*c.claim)
		return
	}
	claim := p.newClaim(gpu.ClaimConfig, c.id, c.claim)
	claim.Want.Config, claim.GPUs = &c.want, p.selected(c)
	claim.OriginalLayouts, claim.AppliedLayouts = c.before, c.given
	p.putOver(c.claim, claim)
}

// configOn is a config's part on one host. A claim keeps no more than that: the
// config of a large fleet would otherwise be repeated in full on each of its hosts.
func configOn(c *gpu.PartitionConfig, host string) (gpu.PartitionConfig, bool) {
	if c == nil {
		return gpu.PartitionConfig{}, false
	}
	part := *c
	gpus, ok := c.GPUs[host]
	part.GPUs = map[string][]string{host: gpus}
	return part, ok
}

// joins notes what a GPU had before it was in any config of ours, and what one has that joins
// without being touched.
func (p *planner) joins(c *configChange, id string) {
	var now gpu.Layout
	g, ok := p.host.GPU(id)
	if ok {
		now = g.Layout()
	}
	if given := now.Only(c.shape.Kind); p.change.ClaimOnly &&
		(given.MIG == nil || given.VGPU != nil || given.MIG.Enabled == c.shape.HasMIG()) {
		c.given = c.given.With(id, given)
	}
	before := now
	prior, had := configOn(p.change.Prior.Config, p.key)
	if other := p.leavesFor(c, id); other != nil {
		before = other.OriginalLayouts.Of(id) // what the other config made of it is not what it was
	} else if had && !p.change.Adopt && gpu.HasID(prior.GPUs[p.key], id) && ok && Offers(prior.Kind, g) && HasLayout(&prior, g) {
		return // the config made it so, and the record of what was before is lost
	}
	c.before = c.before.With(id, before)
}

// leavesFor tells which config of ours a GPU leaves for this one, nil for none, and takes it
// out of that one's claim.
func (p *planner) leavesFor(c *configChange, gpuID string) *gpu.Claim {
	for other := range p.host.ClaimsOf(gpu.ClaimConfig) {
		if gpu.SameID(other.ID, c.id) || !other.Covers(gpuID) {
			continue
		}
		if other.Owner != p.change.Owner || other.Owner == "" {
			r := refuseFor(gpu.NotOwner, "GPU %s on host %s is in %s of %s",
				gpuID, p.host.Name, DescribeObject(other.Kind, other.ID), describeOwner(other.Owner))
			r.GPU = gpuID
			p.refuse(r)
		}
		c.shrunk = appendShrunk(c.shrunk, *other, gpuID)
		return other
	}
	return nil
}

// appendShrunk takes a GPU out of a claim, which may have lost others already.
func appendShrunk(claims []gpu.Claim, c gpu.Claim, gpuID string) []gpu.Claim {
	i := slices.IndexFunc(claims, func(o gpu.Claim) bool { return o.Is(c.Kind, c.ID) })
	if i < 0 {
		c.Revision++
		claims, i = append(claims, c), len(claims)
	}
	s := &claims[i]
	s.GPUs = slices.DeleteFunc(slices.Clone(s.GPUs), func(g string) bool { return gpu.SameID(g, gpuID) })
	s.OriginalLayouts, s.AppliedLayouts = s.OriginalLayouts.Without(gpuID), s.AppliedLayouts.Without(gpuID)
	return claims
}
