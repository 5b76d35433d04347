package share

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// declare decides whether another share is wanted. One that stays is where it was.
func (r *Resource) declare(ctx context.Context, p *planning) bool {
	config, diags := p.Config(ctx), &p.Resp.Diagnostics
	if config == nil {
		return false
	}
	want := gpu.Share{}
	p.Known = p.Known && object.Known(config.Host, config.GPUIDs, config.Count, config.Profile, config.Most)
	if p.Known {
		want = config.declared(ctx, diags)
	}
	if p.State != nil {
		p.Resp.RequiresReplace = config.replaces(ctx, p.State, diags)
		if r.configReplaced(want.Config) {
			p.Resp.RequiresReplace.Append(path.Root("mode"))
		}
		r.displaced(ctx, p)
		if !replaced(p) {
			stay(&want, *p.Prior.Share)
		}
	}
	p.Want = gpu.Want{Share: &want}
	return !diags.HasError()
}

// replaced reports whether another share comes in the place of one.
func replaced(p *planning) bool { return p.State != nil && len(p.Resp.RequiresReplace) > 0 }

func (r *Resource) stays(ctx context.Context, p *planning) bool {
	diags := &p.Resp.Diagnostics
	return !replaced(p) && r.AsksTheSame(p.Config(ctx).inFull(ctx, diags), p.State.inFull(ctx, diags), p.Req.Config)
}

func (r *Resource) compute(ctx context.Context, p *planning) {
	p.Plan.foresee(p.Config(ctx), p.State, p.State != nil && !replaced(p), p.Unchanged, len(p.Differs) > 0)
}

// choose looks for the hosts that the share is on, or can go to.
func (r *Resource) choose(ctx context.Context, p *planning, planned *change.Change) (fleet.View, bool) {
	want, diags, held := p.Want.Share, &p.Resp.Diagnostics, ""
	if prior := p.Prior.Share; prior != nil {
		held = prior.Host
	}
	planned.Replaces = replaced(p)
	view, ok := r.look(ctx, *want, diags)
	if !report.Unreachable(diags, r.Fleet, planned.Subject, view, held) || !ok {
		return view, false
	}
	hosts := r.placedOn(ctx, *want)
	answers := func(host string) bool { return !r.Fleet.GoesWithout(view.Errors[host]) }
	if len(hosts) > 0 && !slices.ContainsFunc(hosts, answers) {
		diags.AddError("A share cannot change while its host does not answer", fmt.Sprintf(
			"%s\n\nHost: %s\nFound: %v.\nFix: Bring the host back, or leave the share as it is until then.",
			planned.Subject, strings.Join(hosts, ", "), words.Capital(view.Errors[hosts[0]].Error())))
		return view, false
	}
	ends := r.Fleet.Ledger.Prior(p.Instance).Share // of a replacement, whose second call does not tell it
	if host, ok := r.Fleet.ShareTakenOver(view, *want); ok && want.Host == "" && (ends == nil || !gpu.SameID(ends.Name, want.Name)) {
		want.Host = host
	}
	if replaced(p) {
		r.PlanDestroy(ctx, p, p.Prior)
	}
	return view, true
}

// placedOn are the hosts that a share is on, or can go to.
func (r *Resource) placedOn(ctx context.Context, s gpu.Share) []string {
	if s.Host != "" {
		return []string{s.Host}
	}
	return r.Fleet.PoolHosts(ctx, s.Pool)
}

// stay gives a share the place of what it was.
func stay(s *gpu.Share, prior gpu.Share) {
	s.Host, s.Devices, s.Count = prior.Host, prior.Devices, prior.Count
}

// configReplaced tells whether this run replaces the config that the share is on, because it
// becomes one of another kind: what the share has part in goes.
func (r *Resource) configReplaced(id string) bool {
	p, planned := r.Fleet.Ledger.Config(id)
	return planned && p.Prior.Config != nil && p.Prior.Config.Kind != p.Want.Config.Kind
}

// displaced replaces a share that would stay, and that this run takes the device from.
func (r *Resource) displaced(ctx context.Context, p *planning) {
	if replaced(p) {
		return
	}
	by := r.Fleet.Displaces(r.Fleet.Snapshot(ctx, nil, fleet.Cached), p.Prior.Share)
	if by == "" {
		return
	}
	p.Resp.RequiresReplace.Append(path.Root("gpu_ids"))
	p.Resp.Diagnostics.AddAttributeWarning(path.Root("name"), "The share is replaced", fmt.Sprintf(
		"%s\n\nFound: %s takes its device away, or lays it out otherwise. A share is never moved: it ends before that, and another one is "+
			"placed afterwards.\nFix: Nothing, if that is meant. Else leave the layout as it is.", label(*p.Prior.Share), words.Capital(by)))
}

// placed are the attributes that say where a share is. A share that has others is another share, as replaces says: one that stays is
// where it is, however they are written.
var placed = []string{"gpu_count", "gpu_ids", "host", "mig_profile"}

// inFull is the share with a request and a limit of memory, of which one that is not written is the same as the other.
func (m *model) inFull(ctx context.Context, diags *diag.Diagnostics) *model {
	out := *m
	if m.Memory.IsNull() || m.Memory.IsUnknown() {
		return &out
	}
	all := m.Memory.Attributes()
	for _, pair := range [][2]string{{"request_mib", "limit_mib"}, {"fraction", "limit_fraction"}} {
		for i, name := range pair {
			if all[name].IsNull() {
				all[name] = all[pair[1-i]]
			}
		}
	}
	var d diag.Diagnostics
	out.Memory, d = types.ObjectValue(m.Memory.AttributeTypes(ctx), all)
	diags.Append(d...)
	return &out
}

// replaces lists the attributes that make another share. Of those that the host chose only
// what the user wrote counts. A value that is not known yet may be another one.
func (m *model) replaces(ctx context.Context, state *model, diags *diag.Diagnostics) path.Paths {
	var out path.Paths
	changed := func(name string, yes bool) {
		if yes {
			out.Append(path.Root(name))
		}
	}
	changed("name", !m.Name.Equal(state.Name))
	changed("pool", !m.Pool.Equal(state.Pool))
	changed("config", !m.Config.Equal(state.Config))
	changed("mig_profile", m.Profile.IsUnknown() ||
		layout.ProfileName(m.Profile.ValueString()) != layout.ProfileName(state.Profile.ValueString()))
	changed("host", !m.Host.IsNull() && !m.Host.Equal(state.Host))
	switch {
	case !object.Known(m.GPUIDs):
		changed("gpu_ids", true)
	case !m.GPUIDs.IsNull():
		changed("gpu_ids", !sameGPUs(object.Strings(ctx, m.GPUIDs, diags), object.Strings(ctx, state.GPUIDs, diags)))
	case m.Count.IsUnknown():
		changed("gpu_count", true)
	default:
		changed("gpu_count", max(1, int(m.Count.ValueInt64())) != len(state.placed(ctx, diags)))
	}
	return out
}

// foresee fills in the computed attributes of a plan: what configuration and state tell,
// and unknown for what only an apply can.
func (m *model) foresee(config, state *model, stays, unchanged, drifted bool) {
	m.Host, m.GPUIDs = types.StringUnknown(), types.SetUnknown(types.StringType)
	m.Devices, m.Mode, m.Isolation = types.ListUnknown(deviceType), types.StringUnknown(), types.StringUnknown()
	m.Environment, m.Enforcement = types.MapUnknown(types.StringType), types.StringUnknown()
	m.Fraction, m.Drift = types.Float64Unknown(), report.NoDrift()
	if stays {
		m.Host, m.GPUIDs = state.Host, state.GPUIDs
		if !drifted {
			m.Devices, m.Mode, m.Isolation = state.Devices, state.Mode, state.Isolation
		}
	}
	if unchanged {
		m.Environment, m.Enforcement, m.Fraction, m.Drift = state.Environment, state.Enforcement, state.Fraction, state.Drift
	}
	if !config.Host.IsNull() {
		m.Host = config.Host
	}
	if !config.GPUIDs.IsNull() {
		m.GPUIDs = config.GPUIDs
	}
	m.CDIDevice = types.StringUnknown()
	if !m.Name.IsUnknown() {
		m.CDIDevice = types.StringValue(gpu.CDIDevice(m.Name.ValueString()))
	}
}

// keepPlanned keeps what was planned to stay: if the host shows something else by now, the
// next Read says so.
func (m *model) keepPlanned(planned *model) {
	m.Host, m.GPUIDs = planned.Host, planned.GPUIDs
	if !planned.Devices.IsUnknown() {
		m.Devices, m.Mode, m.Isolation = planned.Devices, planned.Mode, planned.Isolation
	}
}
