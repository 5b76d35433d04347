package layout

import (
	"context"
	"math"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework-validators/boolvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/float64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// MPS is the attribute mps, on GPUs.
func MPS(text string) schema.SingleNestedAttribute {
	return mpsAt(path.MatchRoot("mps"), text,
		tfschema.OptionalText("The compute mode of the GPUs: `exclusive_process` (the default), in which no process goes past MPS, "+
			"or `default`. What it was is put back when a GPU leaves the config.",
			stringvalidator.OneOf(string(gpu.ComputeExclusiveProcess), string(gpu.ComputeDefault))),
		tfschema.OptionalText("`per_host` (the default): one control daemon on each host for all GPUs of the config, so that a process can use "+
			"several. `per_gpu`: one for each GPU, so that "+
			"what ends one ends no client on other GPUs; each `gpu_share` has one GPU. A change terminates the clients.",
			stringvalidator.OneOf(daemonPerHost, daemonPerGPU)),
		tfschema.OptionalFlag("`true` gives each `gpu_share` a static partition: multiprocessors of its own, in chunks, rounded down from its "+
			"`active_thread_percentage`. Takes driver R590 on GPUs from Ampere on, and "+
			"`daemons = \"per_gpu\"`. Processes outside of shares cannot use the GPUs then. A change terminates the clients.",
			boolvalidator.Equals(true)))
}

// Values of the attribute daemons.
const (
	daemonPerHost = "per_host"
	daemonPerGPU  = "per_gpu"
)

// mpsAt is MPS on GPUs or inside of GPU instances. at is where: an error would spell a relative
// path as it was written, steps up included.
func mpsAt(
	at path.Expression, text string, computeMode, daemons schema.StringAttribute, partitions schema.BoolAttribute,
) schema.SingleNestedAttribute {
	return tfschema.OptionalObject(text, tfschema.Attributes{
		"uid": tfschema.OptionalNumber("The id of the user whose processes may be clients of MPS. Exactly one of `uid` and `multi_user` is "+
			"required: with MPS, processes of a second user would wait until those of the first have ended.",
			int64validator.ExactlyOneOf(at.AtName("uid"), at.AtName("multi_user")), int64validator.Between(0, math.MaxUint32-1)),
		"multi_user": schema.BoolAttribute{ // without it a uid is stated
			MarkdownDescription: "`true` lets processes of all users be clients, who then share one MPS server.",
			Optional:            true, Validators: []validator.Bool{boolvalidator.Equals(true)},
		},
		"active_thread_percentage": tfschema.OptionalDecimal("The most of a device's multiprocessors that each client process may use, "+
			"in percent: above 0, at most 100, with one digit after the point at most. It is a limit and reserves "+
			"nothing. Default: no limit. A share may hold its own processes to less.", PercentageValidators()...),
		"pinned_memory_limit_mib": tfschema.OptionalNumber("The most memory, in MiB, that each client process may use on each device; "+
			"two processes may use it twice. MPS takes whole GiB only from 1024 on. "+
			"Default: no limit.", MemoryValidators()...),
		"compute_mode":      computeMode,
		"daemons":           daemons,
		"static_partitions": partitions,
		"oversubscription": tfschema.OptionalDecimal("How often the memory limits and the thread percentages of shares may add up to a device. "+
			"Default `1`: shares never hold more than there is.",
			oversubscription...),
	})
}

// TimeSlicing is the attribute time_slicing, on GPUs.
func TimeSlicing(text string) schema.SingleNestedAttribute {
	lengths := words.Each(gpu.TimeSlices(), func(t gpu.TimeSlice) string { return string(t) })
	return timeSlicing(text, "How many shares each GPU takes, at least 2.", tfschema.OptionalText("How long a time slice is: "+
		"`default` (as the driver chooses), `short`, `medium` or `long`. NVIDIA does not say how long each is. Default `default`.",
		stringvalidator.OneOf(lengths...)))
}

// timeSlicing is time-slicing of GPUs or of GPU instances.
func timeSlicing(text, replicas string, interval schema.StringAttribute) schema.SingleNestedAttribute {
	return tfschema.OptionalObject(text, tfschema.Attributes{
		"interval": interval,
		"replicas": schema.Int64Attribute{
			MarkdownDescription: replicas, Required: true,
			Validators: []validator.Int64{int64validator.Between(2, replicasAtMost)},
		},
		"oversubscription": tfschema.OptionalDecimal("How often the memory limits of shares may add up to a device. "+
			"Default `1`: shares never hold more than there is.", oversubscription...),
	})
}

const (
	// replicasAtMost is more shares than anybody makes of a GPU.
	replicasAtMost = 1024
	// fractionAtLeast is less of any GPU than a share could use.
	fractionAtLeast = 0.001
	// memoryAtMost is more MiB than any GPU has.
	memoryAtMost = 1 << 30
)

// oversubscription may not leave a part of the device to nobody.
var oversubscription = []validator.Float64{float64validator.AtLeast(1)}

type mpsModel struct {
	User             types.Int64   `tfsdk:"uid"`
	MultiUser        types.Bool    `tfsdk:"multi_user"`
	Threads          types.Float64 `tfsdk:"active_thread_percentage"`
	MemoryMiB        types.Int64   `tfsdk:"pinned_memory_limit_mib"`
	ComputeMode      types.String  `tfsdk:"compute_mode"`
	Daemons          types.String  `tfsdk:"daemons"`
	Partitions       types.Bool    `tfsdk:"static_partitions"`
	Oversubscription types.Float64 `tfsdk:"oversubscription"`
}

type timeSlicingModel struct {
	Interval         types.String  `tfsdk:"interval"`
	Replicas         types.Int64   `tfsdk:"replicas"`
	Oversubscription types.Float64 `tfsdk:"oversubscription"`
}

// DecodeMPS reads a known layout of MPS; null gives nil.
func DecodeMPS(o types.Object, diags *diag.Diagnostics) *gpu.MPSLayout {
	m := object.Decode[mpsModel](o, diags)
	if m == nil {
		return nil
	}
	return &gpu.MPSLayout{
		MultiUser: m.MultiUser.ValueBool(), ActiveThreadPercentage: m.Threads.ValueFloat64(),
		PinnedMemoryLimit: gpu.FromMiB(m.MemoryMiB.ValueInt64()),
		ComputeMode:       gpu.ComputeMode(m.ComputeMode.ValueString()), Oversubscription: m.Oversubscription.ValueFloat64(),
		PerGPU: m.Daemons.ValueString() == daemonPerGPU, StaticPartitions: m.Partitions.ValueBool(), User: object.IntFromInt64(m.User),
	}
}

// EncodeMPS is DecodeMPS's inverse, for import.
func EncodeMPS(ctx context.Context, l *gpu.MPSLayout, diags *diag.Diagnostics) types.Object {
	if l == nil {
		return types.ObjectNull(tfschema.TypesOf(MPS("").Attributes))
	}
	m := mpsModel{
		User: object.Int64FromInt(l.User), MultiUser: object.NullIfFalse(l.MultiUser), Threads: number(l.ActiveThreadPercentage),
		ComputeMode: object.NullIfEmpty(l.ComputeMode),
		Partitions:  object.NullIfFalse(l.StaticPartitions), Oversubscription: number(l.Oversubscription),
	}
	if l.PerGPU {
		m.Daemons = types.StringValue(daemonPerGPU)
	}
	if l.PinnedMemoryLimit > 0 {
		m.MemoryMiB = types.Int64Value(l.PinnedMemoryLimit.MiB())
	}
	return encode(ctx, MPS(""), m, diags)
}

// DecodeTimeSlicing reads a known layout of time-slicing; null gives nil.
func DecodeTimeSlicing(o types.Object, diags *diag.Diagnostics) *gpu.TimeSlicing {
	m := object.Decode[timeSlicingModel](o, diags)
	if m == nil {
		return nil
	}
	return &gpu.TimeSlicing{
		Interval: gpu.TimeSlice(m.Interval.ValueString()), Replicas: int(m.Replicas.ValueInt64()),
		Oversubscription: m.Oversubscription.ValueFloat64(),
	}
}

// EncodeTimeSlicing is DecodeTimeSlicing's inverse, for import.
func EncodeTimeSlicing(ctx context.Context, l *gpu.TimeSlicing, diags *diag.Diagnostics) types.Object {
	if l == nil {
		return types.ObjectNull(tfschema.TypesOf(TimeSlicing("").Attributes))
	}
	m := timeSlicingModel{
		Interval: object.NullIfEmpty(l.Interval), Replicas: types.Int64Value(int64(l.Replicas)),
		Oversubscription: number(l.Oversubscription),
	}
	return encode(ctx, TimeSlicing(""), m, diags)
}

// PercentageValidators are those of an active thread percentage.
func PercentageValidators() []validator.Float64 {
	return []validator.Float64{percentage{"value must be more than 0, at most 100, and have one digit after the point at most"}}
}

// FractionValidators are those of a part of a device's memory.
func FractionValidators() []validator.Float64 {
	return []validator.Float64{float64validator.Between(fractionAtLeast, 1)}
}

// MemoryValidators are those of a limit in MiB.
func MemoryValidators() []validator.Int64 {
	return []validator.Int64{int64validator.Between(1, memoryAtMost)}
}

// wholeGPUs refuses an attribute inside of mig that GPU instances have nothing like. Terraform
// drops attributes of a nested object that a schema does not know, without a word.
var wholeGPUs = ofWholeGPUs{"value must not be set inside of mig"}

type ofWholeGPUs struct{ tfschema.Must }

// ValidateString implements validator.String.
func (ofWholeGPUs) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	refuseInMIG(req.Path, req.ConfigValue, &resp.Diagnostics)
}

// ValidateBool implements validator.Bool.
func (ofWholeGPUs) ValidateBool(_ context.Context, req validator.BoolRequest, resp *validator.BoolResponse) {
	refuseInMIG(req.Path, req.ConfigValue, &resp.Diagnostics)
}

func refuseInMIG(at path.Path, v attr.Value, diags *diag.Diagnostics) {
	if v.IsNull() || v.IsUnknown() {
		return
	}
	diags.AddAttributeError(at, "Not supported inside mig",
		"Found: "+at.String()+" is "+v.String()+". It applies to whole GPUs only.\n"+
			"Fix: Leave it out, or share whole GPUs, without `mig`.")
}

// percentage holds a number to what MPS takes and shows again: more than 0, at most 100,
// in tenths.
type percentage struct{ tfschema.Must }

// ValidateFloat64 implements validator.Float64.
func (v percentage) ValidateFloat64(_ context.Context, req validator.Float64Request, resp *validator.Float64Response) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	p := req.ConfigValue.ValueFloat64()
	if p > 0 && p <= 100 && math.Round(p*10)/10 == p {
		return
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Invalid Attribute Value",
		"Attribute "+req.Path.String()+" "+string(v.Must)+", got: "+strconv.FormatFloat(p, 'f', -1, 64))
}
