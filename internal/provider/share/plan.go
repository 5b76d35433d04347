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
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/drift"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// plan decides whether the host has to be touched, and proves that there is room for the share on
// the hosts and beside the rest of this run.
func (r *Resource) plan(ctx context.Context, p *lifecycle.Planning[model]) bool {
	plan, state, prior, resp := p.Plan, p.State, p.Prior.Share, p.Resp
	config := object.Get[model](ctx, p.Req.Config, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return false
	}
	want, known := gpu.Share{}, p.Known && object.Known(config.Host, config.GPUIDs, config.Count, config.Profile, config.Most)
	if known {
		want = config.declared(ctx, &resp.Diagnostics)
	}
	if state != nil {
		resp.RequiresReplace = config.replaces(ctx, state, &resp.Diagnostics)
		if r.configReplaced(want.Config) {
			resp.RequiresReplace.Append(path.Root("mode"))
		}
	}
	stays := state != nil && len(resp.RequiresReplace) == 0
	if stays {
		stay(&want, *prior)
	}
	unchanged := stays && known && len(p.Differs) == 0 && r.AsksTheSame(config.inFull(ctx, &resp.Diagnostics), state.inFull(ctx, &resp.Diagnostics), p.Req.Config)
	plan.foresee(config, state, stays, unchanged, len(p.Differs) > 0)
	p.Show(ctx)
	if resp.Diagnostics.HasError() {
		return false
	}
	if !known || r.Fleet.Unknown() {
		r.Fleet.Ledger.Forget(p.Inst) // its checks wait until apply
		return false
	}

	ch := change.Change{Subject: label(want), Token: instance.Token(ctx, p.Req.Private), Prior: p.Prior, Want: gpu.Want{Share: &want}, Unchanged: unchanged, Replaces: state != nil && !stays}
	view := r.Fleet.Snapshot(ctx, nil, fleet.Cached) // a plan that changes nothing asks nobody
	if !unchanged {
		v, ok := r.look(ctx, want, &resp.Diagnostics)
		held := ""
		if prior != nil {
			held = prior.Host
		}
		if !report.Unreachable(&resp.Diagnostics, r.Fleet, ch.Subject, v, held) || !ok {
			r.Fleet.Ledger.Forget(p.Inst)
			return false
		}
		on := r.placedOn(ctx, want)
		if !slices.ContainsFunc(on, func(host string) bool { return !r.Fleet.GoesWithout(v.Errors[host]) }) && len(on) > 0 {
			resp.Diagnostics.AddError("A share cannot change while its host does not answer", fmt.Sprintf(
				"%s\n\nHost: %s\nFound: %v.\nFix: Bring the host back, or leave the share as it is until then.", ch.Subject, strings.Join(on, ", "), words.Capital(v.Errors[on[0]].Error())))
			r.Fleet.Ledger.Forget(p.Inst)
			return false
		}
		view = v
		if host, ok := r.Fleet.ShareTakenOver(v, want); ok && want.Host == "" {
			want.Host = host
		}
	}
	if state != nil && !stays {
		r.PlanDestroy(ctx, p, p.Prior)
	}
	return r.Record(ctx, p, view, ch)
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
	changed("mig_profile", m.Profile.IsUnknown() || layout.ProfileName(m.Profile.ValueString()) != layout.ProfileName(state.Profile.ValueString()))
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
	m.Fraction, m.Drift = types.Float64Unknown(), object.None(drift.Type)
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
