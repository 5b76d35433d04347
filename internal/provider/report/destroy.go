package report

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
)

// Destroy plans a destroy on the hosts of a view, for good or for a replacement, reports what
// is wrong with it and whom it disturbs, and keeps the latter for the apply. It returns the
// hosts as they are then, and whether they would do it.
func Destroy(ctx context.Context, f *fleet.Fleet, at path.Path, v fleet.View, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse, ch change.Change) (fleet.View, bool) {
	ch.Token = instance.Token(ctx, req.Private)
	ch.Adopt = ch.Token == ""
	d := f.PlanDestroy(ctx, v, ch, req.Plan.Raw.IsNull())
	Findings(&resp.Diagnostics, ch.Subject, d.Findings)
	resp.Diagnostics.Append(instance.SetApproved(ctx, resp.Private, d.Approved)...)
	Disturbs(&resp.Diagnostics, f, at, ch, d.Forecasts)
	return d.After()
}
