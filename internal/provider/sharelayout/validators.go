package sharelayout

import (
	"context"
	"math"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework-validators/boolvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/float64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// UserValidators are those of the attribute uid, beside an attribute multi_user. mps is
// where both are: an error would spell a relative path as it was written, steps up included.
func UserValidators(mps path.Expression) []validator.Int64 {
	return []validator.Int64{
		int64validator.ExactlyOneOf(mps.AtName("uid"), mps.AtName("multi_user")),
		int64validator.Between(0, math.MaxUint32-1),
	}
}

// MultiUserValidators want true: without it a uid is stated.
func MultiUserValidators() []validator.Bool { return []validator.Bool{boolvalidator.Equals(true)} }

// PercentageValidators are those of an active thread percentage.
func PercentageValidators() []validator.Float64 { return []validator.Float64{percentage{}} }

// FractionValidators are those of a part of a device's memory.
func FractionValidators() []validator.Float64 {
	return []validator.Float64{float64validator.Between(fractionAtLeast, 1)}
}

// fractionAtLeast is less of any GPU than a share could use.
const fractionAtLeast = 0.001

// MemoryValidators are those of a limit in MiB.
func MemoryValidators() []validator.Int64 {
	return []validator.Int64{int64validator.Between(1, memoryAtMost)}
}

// memoryAtMost is more MiB than any GPU has.
const memoryAtMost = 1 << 30

// ComputeModeValidators are those of the attribute compute_mode.
func ComputeModeValidators() []validator.String {
	return []validator.String{stringvalidator.OneOf(string(gpu.ComputeExclusiveProcess), string(gpu.ComputeDefault))}
}

// OversubscriptionValidators refuse what would leave a part of the device to nobody.
func OversubscriptionValidators() []validator.Float64 {
	return []validator.Float64{float64validator.AtLeast(1)}
}

// IntervalValidators are those of the attribute interval.
func IntervalValidators() []validator.String {
	var names []string
	for _, t := range gpu.TimeSlices() {
		names = append(names, string(t))
	}
	return []validator.String{stringvalidator.OneOf(names...)}
}

// ReplicasValidators are those of the attribute replicas.
func ReplicasValidators() []validator.Int64 {
	return []validator.Int64{int64validator.Between(2, replicasAtMost)}
}

// replicasAtMost is more shares than anybody makes of a GPU.
const replicasAtMost = 1024

// InMIGValidators are those of the attribute mps inside of mig, beside time_slicing.
func InMIGValidators() []validator.Object {
	return []validator.Object{objectvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName("time_slicing"))}
}

// WholeGPUValidators refuse an attribute inside of mig that GPU instances have nothing like.
// Terraform drops attributes of a nested object that a schema does not know, without a word.
func WholeGPUValidators() []validator.String { return []validator.String{ofWholeGPUs{}} }

type ofWholeGPUs struct{}

// Description implements validator.String.
func (ofWholeGPUs) Description(context.Context) string { return "value must not be set inside of mig" }

// MarkdownDescription implements validator.String.
func (v ofWholeGPUs) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements validator.String.
func (ofWholeGPUs) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Not supported inside mig",
		"Found: "+req.Path.String()+" is "+req.ConfigValue.String()+". It applies to whole GPUs only.\n"+
			"Fix: leave it out, or share whole GPUs, without `mig`.")
}

// percentage holds a number to what MPS takes and shows again: more than 0, at most 100,
// in tenths.
type percentage struct{}

// Description implements validator.Float64.
func (percentage) Description(context.Context) string {
	return "value must be more than 0, at most 100, and have one digit after the point at most"
}

// MarkdownDescription implements validator.Float64.
func (v percentage) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateFloat64 implements validator.Float64.
func (v percentage) ValidateFloat64(ctx context.Context, req validator.Float64Request, resp *validator.Float64Response) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	p := req.ConfigValue.ValueFloat64()
	if p > 0 && p <= 100 && math.Round(p*10)/10 == p {
		return
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Invalid Attribute Value",
		"Attribute "+req.Path.String()+" "+v.Description(ctx)+", got: "+strconv.FormatFloat(p, 'f', -1, 64))
}
