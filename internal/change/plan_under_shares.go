package change

import (
	"reflect"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// underShares completes a change of a config for the shares on its GPUs: it takes nothing
// from under them, and what is handed to containers follows the daemons.
func (p *planner) underShares(c *configChange) {
	after := ProjectAll(p.host, p.steps)
	var writes []Step
	for claim := range p.host.ClaimsOf(gpu.ClaimShare) {
		s := claim.Want.Share
		if s == nil || !slices.ContainsFunc(s.Devices, func(d gpu.SharedDevice) bool { return p.concerns(c, d.GPU) }) {
			continue
		}
		if r := p.keepsShare(c, claim, &after); r != nil {
			p.refuse(r)
		}
		if spec := p.rewrites(s, &after); spec != nil {
			writes = append(writes, Step{Op: OpWriteShare, Share: spec})
		}
	}
	at := slices.IndexFunc(p.steps, func(s Step) bool { return s.Claim != nil })
	if at < 0 {
		at = len(p.steps)
	}
	p.steps = slices.Insert(p.steps, at, writes...)
}

// concerns tells whether a GPU is in the config, joins or leaves it.
func (p *planner) concerns(c *configChange, id string) bool {
	return c.covers(id) || gpu.HasID(p.selected(c), id)
}

// keepsShare refuses a change that takes from a share what it was placed on.
func (p *planner) keepsShare(c *configChange, claim *gpu.Claim, after *gpu.Host) *gpu.Refusal {
	const op = "change what shares are on"
	s := claim.Want.Share
	for _, d := range s.Devices {
		if _, there := p.host.GPU(d.GPU); !there {
			continue // The world has taken it from the share.
		}
		object := deviceText(d)
		if c.covers(d.GPU) && !gpu.HasID(p.selected(c), d.GPU) {
			return refuse(gpu.InUse, op, object, "share %q is on it, and is never moved", s.Name).Or("destroy the share first")
		}
		if was, is := placement.ShareModeOf(&p.host, d), placement.ShareModeOf(after, d); was != is {
			return refuse(gpu.InUse, op, object, "share %q was placed there for mode %s, and the mode would be %s", s.Name, was, is).
				Or("destroy the share first, or replace it with the config")
		}
	}
	_, fits := placement.PlaceShare(&p.host, p.key, s, claim.Token)
	// One that does not fit as it is is not of this change's making.
	if _, err := placement.PlaceShare(after, p.key, s, claim.Token); err != nil && fits == nil {
		return refuse(gpu.InUse, op, DevicesText(s.Devices), "%s", gpu.RefusalOf(err).Found()).
			Or("lower what the share asks for, or destroy it first")
	}
	return nil
}

// rewrites is what to hand to containers for a share after the change, nil for the same as
// before.
func (p *planner) rewrites(s *gpu.Share, after *gpu.Host) *gpu.ShareSpec {
	is, err := placement.ShareSpec(after, s)
	if err != nil || slices.ContainsFunc(s.Devices, func(d gpu.SharedDevice) bool { return !hasDevice(after, d) }) {
		return nil // it is not placed, or not there any more
	}
	changed := slices.ContainsFunc(p.steps, func(step Step) bool {
		return step.Op == OpEnsureDaemon && step.Daemon.Name == is.Daemon ||
			step.Op == OpCreateInstance && slices.ContainsFunc(s.Devices, gpu.SharedDevice{GPU: step.GPU, Instance: step.Instance}.Same)
	})
	was, err := placement.ShareSpec(&p.host, s)
	if changed || err != nil || !reflect.DeepEqual(was, is) {
		return &is
	}
	return nil
}
