package share

import (
	"cmp"
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

type model struct {
	Name     types.String   `tfsdk:"name"`
	Host     types.String   `tfsdk:"host"`
	Pool     types.String   `tfsdk:"pool"`
	Config   types.String   `tfsdk:"config"`
	GPUIDs   types.Set      `tfsdk:"gpu_ids"`
	Count    types.Int64    `tfsdk:"gpu_count"`
	Profile  types.String   `tfsdk:"mig_profile"`
	Label    types.String   `tfsdk:"owner_label"`
	Memory   types.Object   `tfsdk:"memory"`
	Threads  types.Float64  `tfsdk:"active_thread_percentage"`
	Priority types.String   `tfsdk:"client_priority"`
	Most     types.String   `tfsdk:"max_disruption"`
	Timeouts timeouts.Value `tfsdk:"timeouts"`

	Devices     types.List    `tfsdk:"devices"`
	Mode        types.String  `tfsdk:"mode"`
	CDIDevice   types.String  `tfsdk:"cdi_device"`
	Environment types.Map     `tfsdk:"environment"`
	Isolation   types.String  `tfsdk:"isolation"`
	Enforcement types.String  `tfsdk:"enforcement"`
	Fraction    types.Float64 `tfsdk:"fraction"`
	Drift       types.List    `tfsdk:"drift"`
}

type identityModel struct {
	Host types.String `tfsdk:"host"`
	Name types.String `tfsdk:"name"`
}

type memoryModel struct {
	RequestMiB    types.Int64   `tfsdk:"request_mib"`
	LimitMiB      types.Int64   `tfsdk:"limit_mib"`
	Fraction      types.Float64 `tfsdk:"fraction"`
	LimitFraction types.Float64 `tfsdk:"limit_fraction"`
}

type deviceModel struct {
	GPUID      types.String `tfsdk:"gpu_id"`
	MIGProfile types.String `tfsdk:"mig_profile"`
	MIGStart   types.Int64  `tfsdk:"mig_start"`
	UUID       types.String `tfsdk:"uuid"`
}

var (
	memoryType = map[string]attr.Type{
		"request_mib": types.Int64Type, "limit_mib": types.Int64Type, "fraction": types.Float64Type, "limit_fraction": types.Float64Type,
	}
	deviceType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"gpu_id": types.StringType, "mig_profile": types.StringType, "mig_start": types.Int64Type, "uuid": types.StringType,
	}}
	// priorities are the words for MPS's client priorities, by number.
	priorities = []string{"normal", "below_normal"}
)

// declared reads what a configuration asks for, once all of it is known.
func (m *model) declared(ctx context.Context, diags *diag.Diagnostics) gpu.Share {
	s := m.limits(diags)
	s.Host, s.GPUIDs = m.Host.ValueString(), object.Strings(ctx, m.GPUIDs, diags)
	slices.Sort(s.GPUIDs)
	s.Count = max(1, len(s.GPUIDs))
	if !m.Count.IsNull() {
		s.Count = int(m.Count.ValueInt64())
	}
	return s
}

// limits are what of a share does not tell where it is.
func (m *model) limits(diags *diag.Diagnostics) gpu.Share {
	s := gpu.Share{
		Name: m.Name.ValueString(), Pool: m.Pool.ValueString(), Config: m.Config.ValueString(),
		Profile: layout.ProfileName(m.Profile.ValueString()),
		Label:   m.Label.ValueString(), ActiveThreadPercentage: m.Threads.ValueFloat64(), MaxDisruption: gpu.Disruption(m.Most.ValueString()),
	}
	if mem := object.Decode[memoryModel](m.Memory, diags); mem != nil {
		request, limit := gpu.FromMiB(mem.RequestMiB.ValueInt64()), gpu.FromMiB(mem.LimitMiB.ValueInt64())
		s.MemoryRequest, s.MemoryLimit = cmp.Or(request, limit), cmp.Or(limit, request)
		part, most := mem.Fraction.ValueFloat64(), mem.LimitFraction.ValueFloat64()
		s.RequestFraction, s.LimitFraction = cmp.Or(part, most), cmp.Or(most, part)
	}
	if n := slices.Index(priorities, m.Priority.ValueString()); n >= 0 {
		s.ClientPriority = &n
	}
	return s
}

// prior is the share as the state has it, with where it was placed.
func prior(ctx context.Context, m *model, diags *diag.Diagnostics) gpu.Want {
	s := m.limits(diags)
	s.Host, s.Devices = m.Host.ValueString(), m.placed(ctx, diags)
	s.Count = max(1, len(s.Devices))
	return gpu.Want{Share: &s}
}

// placed are the devices that the state lists.
func (m *model) placed(ctx context.Context, diags *diag.Diagnostics) []gpu.SharedDevice {
	if m.Devices.IsNull() || m.Devices.IsUnknown() {
		return nil
	}
	var list []deviceModel
	diags.Append(m.Devices.ElementsAs(ctx, &list, false)...)
	var out []gpu.SharedDevice
	for _, d := range list {
		dev := gpu.SharedDevice{GPU: d.GPUID.ValueString()}
		if !d.MIGProfile.IsNull() {
			dev.Instance = &gpu.MIGPlacement{Profile: d.MIGProfile.ValueString(), Start: int(d.MIGStart.ValueInt64())}
		}
		out = append(out, dev)
	}
	return out
}
