// Package share is the resource gpu_share: a named fraction of one or several GPUs of a
// Linux host, handed to containers by CDI.
package share

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
)

// ResourceType is the resource's name in configurations.
const ResourceType = "gpu_share"

// perHost bounds the work on one host: a few files are written.
const perHost = 10 * time.Minute

var (
	_ lifecycle.Managed                   = (*Resource)(nil)
	_ resource.ResourceWithValidateConfig = (*Resource)(nil)
)

// Resource is gpu_share.
type Resource struct{ lifecycle.Shell[model] }

// New makes the resource.
func New() resource.Resource { return of(nil) }

func of(f *fleet.Fleet) *Resource {
	r := &Resource{}
	r.Fleet, r.Of = f, lifecycle.Parts[model]{
		Type: ResourceType, Creating: "create the share", Changing: "change the share", Destroying: "destroy the share", Differs: "Share differs",
		Limit: perHost, DisturbsAt: path.Empty(), Policy: append([]string{"max_disruption", "timeouts"}, placed...),
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts },
		Drift:    func(m *model) *types.List { return &m.Drift },
		Label:    func(w gpu.Want) string { return label(*w.Share) },
		Prior:    prior, Identify: identify,
		Planner: lifecycle.Planner[model]{
			Declare: r.declare, Stays: r.stays, Compute: r.compute, Choose: r.choose,
			Around: func(ctx context.Context, _ *planning, prior gpu.Want) fleet.View {
				return r.Fleet.Snapshot(ctx, []string{prior.Share.Host})
			},
		},
		Touches: func(c *lifecycle.Call[model]) bool { return c.Plan.Environment.IsUnknown() },
		Apply:   r.apply, Read: r.read,
		Destroy: func(ctx context.Context, c *lifecycle.Call[model]) { r.Carry(ctx, c) },
	}
	return r
}

type planning = lifecycle.Planning[model]

func identify(ctx context.Context, known, next *tfsdk.ResourceIdentity, m *model) diag.Diagnostics {
	return lifecycle.Identify(ctx, known, next, identityModel{Host: m.Host, Name: m.Name})
}

// label names a share in messages by where it was declared to be.
func label(s gpu.Share) string {
	if s.Pool != "" {
		return fmt.Sprintf("%s %q from pool %q", ResourceType, s.Name, s.Pool)
	}
	return fmt.Sprintf("%s %q on %s", ResourceType, s.Name, s.Host)
}

// apply makes the plan real, at the place that the share has, and fills in its computed
// attributes. It returns false when nothing of the change is there.
func (r *Resource) apply(ctx context.Context, c *lifecycle.Call[model]) bool {
	planned := *c.Plan
	config := object.Get[model](ctx, c.Config, c.Diags)
	if config == nil {
		return false
	}
	want := config.declared(ctx, c.Diags)
	if c.Diags.HasError() {
		return false
	}
	prior := c.Prior.Share
	if prior != nil {
		stay(&want, *prior)
	}
	view, ok := r.look(ctx, want, c.Diags)
	if !ok || c.Diags.HasError() {
		return false
	}
	if h, answered := view.Hosts[want.Host]; answered && prior != nil {
		if c, claimed := h.Claim(gpu.ClaimShare, want.Name); claimed && c.Want.Share != nil {
			want.GPUIDs = c.Want.Share.GPUIDs // how it was pinned when it was placed: later pins move nothing
		}
	}
	c.Subject, c.Want.Share = label(want), &want
	host, h, err := r.Fleet.ApplyShare(ctx, c.Request)
	if _, done := c.End(&fleet.Result{}, err); !done {
		return false
	}
	if want.Host = host; h == nil { // which the failure says
		h = &gpu.Host{Name: host}
	}
	c.Plan.observe(ctx, host, h, want, c.Diags)
	warnOfLacks(c.Diags, host, h, want)
	if c.State != nil {
		c.Plan.keepPlanned(&planned)
	}
	return true
}

// warnOfLacks says what containers of the share have to do without.
func warnOfLacks(diags *diag.Diagnostics, host string, h *gpu.Host, s gpu.Share) {
	if handed, ok := h.HandedShare(s.Name); ok && handed.Note != "" {
		diags.AddWarning("The share is incomplete for containers", fmt.Sprintf("%s\n\nHost: %s\nFound: %s", label(s), host, handed.Note))
	}
	if who := placement.PastLimit(h, &s); len(who) > 0 {
		diags.AddWarning("Processes exceed the share's limit", fmt.Sprintf(
			"%s\n\nHost: %s\nFound: The memory limit of the share does not apply to %s: the driver gives them a higher limit, or none.\n"+
				"Fix: Restart them in a container.", label(s), host, strings.Join(who, ", ")))
	}
}

// read completes an import, and writes what the host has.
func (r *Resource) read(
	ctx context.Context, state *model, _ resource.ReadRequest, resp *resource.ReadResponse,
) (*gpu.Claim, map[string]*gpu.Claim, bool) {
	host, name := state.Host.ValueString(), state.Name.ValueString()
	view := r.Fleet.Snapshot(ctx, []string{host})
	if !report.Unreachable(&resp.Diagnostics, r.Fleet, label(*prior(ctx, state, &resp.Diagnostics).Share), view, host) || !view.Recorded() {
		return nil, nil, false
	}
	h := view.Hosts[host]
	claim, claimed := h.Claim(gpu.ClaimShare, name)
	if state.CDIDevice.IsNull() && !r.readImported(ctx, state, claim, &resp.Diagnostics) {
		return nil, nil, false
	}
	if _, handed := h.HandedShare(name); !claimed && !handed {
		resp.State.RemoveResource(ctx) // the host has answered that it has no such share
		return nil, nil, false
	}
	state.observe(ctx, host, h, *prior(ctx, state, &resp.Diagnostics).Share, &resp.Diagnostics)
	if !claimed {
		return nil, nil, true
	}
	return claim, map[string]*gpu.Claim{host: claim}, true
}
