package partitionconfig

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// daemonModel is one MPS control daemon in the attribute mps_daemons. Who its clients are is
// left out: that changes without a change of ours.
type daemonModel struct {
	Name          string   `tfsdk:"name"`
	PipeDirectory *string  `tfsdk:"pipe_directory"`
	GPUIDs        []string `tfsdk:"gpu_ids"`
	MIGInstance   *string  `tfsdk:"mig_instance"`
}

var (
	daemonType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"name": types.StringType, "pipe_directory": types.StringType, "gpu_ids": types.ListType{ElemType: types.StringType},
		"mig_instance": types.StringType,
	}}
	daemonsOfHostType = types.ListType{ElemType: daemonType}
)

// describeDaemons are the daemons of a config that a host has.
func describeDaemons(c gpu.PartitionConfig, h *gpu.Host, ids []string) []daemonModel {
	out := []daemonModel{}
	for _, want := range placement.Daemons(h, &c, ids) {
		d, there := h.Daemon(want.Name)
		if !there {
			continue
		}
		m := daemonModel{Name: d.Name, PipeDirectory: object.NilIfEmpty(d.PipeDir), GPUIDs: []string{}}
		for _, at := range d.Devices {
			m.GPUIDs = append(m.GPUIDs, at.GPU)
			if at.Instance != nil {
				m.MIGInstance = object.NilIfEmpty(at.Instance.String())
			}
		}
		out = append(out, m)
	}
	return out
}

// daemons reads the attribute mps_daemons.
func (m *model) daemons(ctx context.Context, diags *diag.Diagnostics) map[string][]daemonModel {
	out := map[string][]daemonModel{}
	if !m.Daemons.IsNull() && !m.Daemons.IsUnknown() {
		diags.Append(m.Daemons.ElementsAs(ctx, &out, false)...)
	}
	return out
}

// setDaemons writes it; without MPS it is null.
func (m *model) setDaemons(ctx context.Context, c gpu.PartitionConfig, all map[string][]daemonModel, diags *diag.Diagnostics) {
	m.Daemons = types.MapNull(daemonsOfHostType)
	if c.MPS != nil {
		m.Daemons = object.MapOf(ctx, daemonsOfHostType, all, diags)
	}
}
