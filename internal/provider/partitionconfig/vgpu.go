package partitionconfig

import (
	"cmp"
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/vgpulayout"
)

func (m *gpuModel) describeVGPUs(ctx context.Context, v *gpu.VGPU, diags *diag.Diagnostics) {
	m.Layout = types.StringValue(v.State().String())
	now := slices.SortedFunc(slices.Values(v.Instances), func(a, b gpu.VGPUInstance) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Type, b.Type), cmp.Compare(a.UUID, b.UUID))
	})
	list := []vgpuModel{}
	for i := range now {
		in := &now[i]
		list = append(list, vgpuModel{Type: in.Type, Function: vgpulayout.Function(in.VGPUPlace), Address: set(in.Address), UUID: set(in.UUID)})
	}
	var d diag.Diagnostics
	m.VGPUs, d = types.ListValueFrom(ctx, vgpuType, list)
	diags.Append(d...)
}

// set is nil for an empty text.
func set(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
