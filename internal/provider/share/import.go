package share

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

// ImportState takes `host/name`, or the identity. Read fills in the rest.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	host, name, ok := strings.Cut(req.ID, "/")
	if identity := object.Identity[identityModel](ctx, req.Identity, &resp.Diagnostics); req.ID == "" && identity != nil {
		host, name, ok = identity.Host.ValueString(), identity.Name.ValueString(), true
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if !ok || host == "" || name == "" {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("Found: %q.\nAn import id is host/name, such as hgx01/team-a.", req.ID))
		return
	}
	if !r.Fleet.Unknown() && !r.Fleet.Has(host) {
		resp.Diagnostics.AddError("Unknown host", scope.UnknownHost(r.Fleet, host))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("host"), host)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
}

// readImported completes a state of which only the host and the name are known, from the
// share's claim: what a CDI specification hands over does not tell what was asked for.
func (r *Resource) readImported(ctx context.Context, m *model, claim *gpu.Claim, diags *diag.Diagnostics) bool {
	host, name := m.Host.ValueString(), m.Name.ValueString()
	switch {
	case claim == nil || claim.Want.Share == nil:
		diags.AddError("Share does not exist", fmt.Sprintf("Found: %s has no record of a share %q.\nFix: Declare it without importing it.", host,
			name))
		return false
	case claim.Owner != r.Fleet.Owner():
		diags.AddError("Share belongs to another owner", fmt.Sprintf(
			"Found: Share %q on %s is claimed by owner %q, and this provider's owner is %q.\n"+
				"Fix: Destroy it where it is declared, or use the same owner.",
			name, host, claim.Owner, r.Fleet.Owner()))
		return false
	}
	s := claim.Want.Share
	m.Name, m.Pool, m.Config, m.Profile, m.Label = types.StringValue(s.Name), object.NullIfEmpty(s.Pool), object.NullIfEmpty(s.Config),
		object.NullIfEmpty(s.Profile), object.NullIfEmpty(s.Label)
	if len(s.GPUIDs) > 0 {
		m.GPUIDs = object.SetOf(ctx, types.StringType, s.GPUIDs, diags)
	}
	if len(s.GPUIDs) == 0 && s.Count > 1 {
		m.Count = types.Int64Value(int64(s.Count))
	}
	if s.ActiveThreadPercentage > 0 {
		m.Threads = types.Float64Value(s.ActiveThreadPercentage)
	}
	if p := s.ClientPriority; p != nil && *p >= 0 && *p < len(priorities) {
		m.Priority = types.StringValue(priorities[*p])
	}
	m.Most = object.NullIfEmpty(s.MaxDisruption)
	m.importMemory(ctx, s, diags)
	return !diags.HasError()
}

// importMemory writes one amount where both are the same.
func (m *model) importMemory(ctx context.Context, s *gpu.Share, diags *diag.Diagnostics) {
	var mem memoryModel
	switch {
	case s.RequestFraction+s.LimitFraction > 0:
		mem.Fraction = types.Float64Value(s.RequestFraction)
		if s.LimitFraction != s.RequestFraction {
			mem.LimitFraction = types.Float64Value(s.LimitFraction)
		}
	case s.MemoryRequest+s.MemoryLimit > 0:
		mem.LimitMiB = types.Int64Value(s.MemoryLimit.MiB())
		if s.MemoryRequest != s.MemoryLimit {
			mem.RequestMiB = types.Int64Value(s.MemoryRequest.MiB())
		}
	default:
		return
	}
	m.Memory = object.NestedOf(ctx, memoryType, mem, diags)
}
