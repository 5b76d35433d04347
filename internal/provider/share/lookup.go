package share

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

// look takes the hosts that the rules need for a share: its own or those of its pool, and
// all of them when only that tells that there is no such pool or config. ok is false when
// the host that it names is none of the provider's.
func (r *Resource) look(ctx context.Context, want gpu.Share, diags *diag.Diagnostics) (v fleet.View, ok bool) {
	if want.Host != "" && !r.Fleet.Has(want.Host) {
		diags.AddAttributeError(path.Root("host"), "Unknown host", label(want)+"\n\n"+scope.UnknownHost(r.Fleet, want.Host))
		return fleet.View{}, false
	}
	v = r.Fleet.Snapshot(ctx, r.Fleet.ShareHosts(ctx, want))
	if want.Config == "" {
		return v, true
	}
	if _, planned := r.Fleet.Ledger.Config(want.Config); !planned && !fleet.Claimed(v, gpu.ClaimConfig, want.Config) {
		v = v.With(r.Fleet.Snapshot(ctx, r.Fleet.HostNames()))
	}
	return v, true
}
