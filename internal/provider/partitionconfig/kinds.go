package partitionconfig

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/miglayout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/sharelayout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/vgpulayout"
)

func gpuPAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "GPU-P: partitions that Hyper-V gives to virtual machines. Exactly one of the kinds `gpu_p`, `mig`, `vgpu`, `mps` and `time_slicing` is required; changing from one " +
			"to another forces a new resource.",
		Optional:      true,
		PlanModifiers: []planmodifier.Object{otherKind()},
		Attributes: map[string]schema.Attribute{
			"partition_count": schema.Int64Attribute{
				MarkdownDescription: "Partitions per GPU. Only the counts that the GPU's driver offers are valid; data source `gpu_partition_options` lists " +
					"them with the memory that each partition gets.",
				Required: true, Validators: []validator.Int64{int64validator.Between(1, 1024)},
			},
		},
	}
}

func migAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "MIG: GPU instances on Linux hosts, each with one compute instance that fills it.",
		Optional:            true,
		PlanModifiers:       []planmodifier.Object{otherKind()},
		Attributes: map[string]schema.Attribute{
			"profiles": schema.MapAttribute{
				MarkdownDescription: miglayout.ProfilesText, ElementType: types.Int64Type, Optional: true, Validators: miglayout.ProfilesValidators(),
			},
			"placements": schema.SetNestedAttribute{
				MarkdownDescription: miglayout.PlacementsText, Optional: true, Validators: miglayout.PlacementsValidators(),
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"profile": schema.StringAttribute{MarkdownDescription: miglayout.ProfileText, Required: true, Validators: miglayout.ProfileValidators()},
					"start":   schema.Int64Attribute{MarkdownDescription: miglayout.StartText, Required: true, Validators: miglayout.StartValidators()},
				}},
			},
			"mps": schema.SingleNestedAttribute{
				MarkdownDescription: sharelayout.MPSInMIGText, Optional: true, Validators: sharelayout.InMIGValidators(), Attributes: mpsAttributes(path.MatchRoot("mig").AtName("mps"), schema.StringAttribute{
					MarkdownDescription: sharelayout.ComputeModeInMIGText, Optional: true, Validators: sharelayout.WholeGPUValidators(),
				}),
			},
			"time_slicing": schema.SingleNestedAttribute{
				MarkdownDescription: sharelayout.TimeSlicingInMIGText, Optional: true, Attributes: timeSlicingAttributes(sharelayout.ReplicasInMIGText, schema.StringAttribute{
					MarkdownDescription: sharelayout.IntervalInMIGText, Optional: true, Validators: sharelayout.WholeGPUValidators(),
				}),
			},
		},
	}
}

func vgpuAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Virtual GPUs (vGPUs) for virtual machines of KVM, on Linux hosts with NVIDIA's vGPU driver: of types that share the GPU by time slices.",
		Optional:            true,
		PlanModifiers:       []planmodifier.Object{otherKind()},
		Attributes: map[string]schema.Attribute{
			"type":          schema.StringAttribute{MarkdownDescription: vgpulayout.TypeText, Optional: true, Validators: vgpulayout.TypeValidators()},
			"count":         schema.Int64Attribute{MarkdownDescription: vgpulayout.CountText, Optional: true, Validators: vgpulayout.CountValidators()},
			"types":         schema.MapAttribute{MarkdownDescription: vgpulayout.TypesText, ElementType: types.Int64Type, Optional: true, Validators: vgpulayout.TypesValidators()},
			"heterogeneous": schema.BoolAttribute{MarkdownDescription: vgpulayout.HeterogeneousText, Optional: true},
		},
	}
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

// otherKind replaces the config when it becomes one of another kind.
func otherKind() planmodifier.Object {
	return objectplanmodifier.RequiresReplaceIf(func(_ context.Context, req planmodifier.ObjectRequest, resp *objectplanmodifier.RequiresReplaceIfFuncResponse) {
		resp.RequiresReplace = !req.PlanValue.IsUnknown() && req.PlanValue.IsNull() != req.StateValue.IsNull()
	}, "A change of kind forces a new resource.", "A change of kind forces a new resource.")
}
