package partitionconfig

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/sharelayout"
)

var timeSlicingKind = layoutKind{
	kind:      gpu.KindTimeSlicing,
	attribute: timeSlicingAttribute,
	decode: func(ctx context.Context, block types.Object, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
		c.TimeSlicing = sharelayout.DecodeTimeSlicing(ctx, block, diags)
	},
	encode: func(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) types.Object {
		if c.Kind != gpu.KindTimeSlicing {
			c.TimeSlicing = nil // MIG has it inside
		}
		return sharelayout.EncodeTimeSlicing(ctx, c.TimeSlicing, diags)
	},
	describe: describeSharing,
}

func timeSlicingAttribute() schema.SingleNestedAttribute {
	attributes := timeSlicingAttributes(sharelayout.ReplicasText, schema.StringAttribute{
		MarkdownDescription: sharelayout.IntervalText, Optional: true, Validators: sharelayout.IntervalValidators(),
	})
	return schema.SingleNestedAttribute{
		MarkdownDescription: sharelayout.TimeSlicingText, Optional: true, PlanModifiers: []planmodifier.Object{otherKind()}, Attributes: attributes,
	}
}

// timeSlicingAttributes are those of time-slicing on GPUs and inside of GPU instances.
func timeSlicingAttributes(replicas string, interval schema.StringAttribute) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"interval": interval,
		"replicas": schema.Int64Attribute{MarkdownDescription: replicas, Required: true, Validators: sharelayout.ReplicasValidators()},
		"oversubscription": schema.Float64Attribute{
			MarkdownDescription: sharelayout.OversubscriptionText, Optional: true, Validators: sharelayout.OversubscriptionValidators(),
		},
	}
}
