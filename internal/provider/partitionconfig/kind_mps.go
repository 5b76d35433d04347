package partitionconfig

import (
	"cmp"
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/sharelayout"
)

var mpsKind = layoutKind{
	kind:      gpu.KindMPS,
	attribute: mpsAttribute,
	decode: func(ctx context.Context, block types.Object, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
		c.MPS = sharelayout.DecodeMPS(ctx, block, diags)
	},
	encode: func(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) types.Object {
		if c.Kind != gpu.KindMPS {
			c.MPS = nil // MIG has it inside
		}
		return sharelayout.EncodeMPS(ctx, c.MPS, diags)
	},
	describe: describeSharing,
}

func mpsAttribute() schema.SingleNestedAttribute {
	attributes := mpsAttributes(path.MatchRoot("mps"), schema.StringAttribute{
		MarkdownDescription: sharelayout.ComputeModeText, Optional: true, Validators: sharelayout.ComputeModeValidators(),
	})
	return schema.SingleNestedAttribute{
		MarkdownDescription: sharelayout.MPSText, Optional: true, PlanModifiers: []planmodifier.Object{otherKind()}, Attributes: attributes,
	}
}

// mpsAttributes are those of MPS at a path, on GPUs and inside of GPU instances.
func mpsAttributes(at path.Expression, computeMode schema.StringAttribute) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"uid":        schema.Int64Attribute{MarkdownDescription: sharelayout.UserText, Optional: true, Validators: sharelayout.UserValidators(at)},
		"multi_user": schema.BoolAttribute{MarkdownDescription: sharelayout.MultiUserText, Optional: true, Validators: sharelayout.MultiUserValidators()},
		"active_thread_percentage": schema.Float64Attribute{
			MarkdownDescription: sharelayout.ThreadsText, Optional: true, Validators: sharelayout.PercentageValidators(),
		},
		"pinned_memory_limit_mib": schema.Int64Attribute{
			MarkdownDescription: sharelayout.MemoryText, Optional: true, Validators: sharelayout.MemoryValidators(),
		},
		"compute_mode": computeMode,
		"oversubscription": schema.Float64Attribute{
			MarkdownDescription: sharelayout.MPSOversubscriptionText, Optional: true, Validators: sharelayout.OversubscriptionValidators(),
		},
	}
}

func describeSharing(_ context.Context, out *gpuModel, c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU, _ *diag.Diagnostics) {
	out.Layout = types.StringValue(sharingText(c, h, g))
}

func inMIGMode(g *gpu.GPU) bool { return g.MIG != nil && g.MIG.Enabled }

// sharingText is the layout of a GPU that has none of its own: "mps:exclusive_process" when
// a daemon of the config serves it, "time_slicing:long", or "mps:none".
func sharingText(c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU) string {
	kind, mode := string(c.Kind)+":", "none"
	switch {
	case inMIGMode(g):
	case c.MPS != nil && served(c, h, g):
		mode = string(cmp.Or(g.ComputeMode, gpu.ComputeDefault))
	case c.TimeSlicing != nil && (g.ComputeMode == "" || g.ComputeMode == gpu.ComputeDefault):
		mode = string(cmp.Or(g.TimeSlice, gpu.TimeSliceDefault))
	}
	return kind + mode
}

// served tells whether a daemon of the config that runs has a GPU among its devices.
func served(c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU) bool {
	return slices.ContainsFunc(placement.Daemons(h, &c, []string{g.ID}), func(want gpu.MPSDaemonSpec) bool {
		d, ok := h.Daemon(want.Name)
		return ok && d.PID != 0 && slices.ContainsFunc(d.Devices, func(at gpu.SharedDevice) bool { return gpu.SameID(at.GPU, g.ID) })
	})
}
