// Package miglayout is how resources and data sources write a MIG layout: numbers of
// instances by profile, or placements, and how processes share each instance.
package miglayout

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/sharelayout"
)

// What the parts of a layout are, for registry pages.
const (
	ProfilesText = "Number of instances per GPU by profile, such as `{ \"3g.40gb\" = 1, \"1g.10gb\" = 2 }`. The provider places them: it keeps existing instances " +
		"where it can, and leaves as much room as possible. `0` is none, `{}` MIG mode without instances. Data source `gpu_partition_options` lists a GPU's profiles. " +
		"One of `profiles` and `placements` is required."
	PlacementsText = "The instances of each GPU with their places, taken as written."
	ProfileText    = "The profile, such as `3g.40gb`."
	StartText      = "The first memory slice."
)

// ProfilesValidators are those of the attribute profiles, beside an attribute placements.
func ProfilesValidators() []validator.Map {
	return []validator.Map{
		mapvalidator.ExactlyOneOf(path.MatchRelative().AtParent().AtName("placements")),
		mapvalidator.NoNullValues(),
		mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1)),
		mapvalidator.ValueInt64sAre(int64validator.Between(0, slicesAtMost)),
	}
}

// PlacementsValidators refuse an empty set: no instances are written as empty profiles.
func PlacementsValidators() []validator.Set { return []validator.Set{setvalidator.SizeAtLeast(1)} }

// ProfileValidators refuse an empty name.
func ProfileValidators() []validator.String {
	return []validator.String{stringvalidator.LengthAtLeast(1)}
}

// StartValidators refuse what is no memory slice of any GPU.
func StartValidators() []validator.Int64 {
	return []validator.Int64{int64validator.Between(0, slicesAtMost-1)}
}

// slicesAtMost is more slices than any GPU has.
const slicesAtMost = 64

// PlacementType is the type of one placement.
func PlacementType() types.ObjectType {
	return types.ObjectType{AttrTypes: map[string]attr.Type{"profile": types.StringType, "start": types.Int64Type}}
}

// Type is the type of the attribute.
func Type() map[string]attr.Type {
	return map[string]attr.Type{
		"profiles": types.MapType{ElemType: types.Int64Type}, "placements": types.SetType{ElemType: PlacementType()},
		"mps": sharelayout.MPSType(), "time_slicing": sharelayout.TimeSlicingType(),
	}
}

type model struct {
	Profiles    types.Map    `tfsdk:"profiles"`
	Placements  types.Set    `tfsdk:"placements"`
	MPS         types.Object `tfsdk:"mps"`
	TimeSlicing types.Object `tfsdk:"time_slicing"`
}

// Placement is one placement, for lists of computed attributes too.
type Placement struct {
	Profile string `tfsdk:"profile"`
	Start   int64  `tfsdk:"start"`
}

// Placements converts placements.
func Placements(list []gpu.MIGPlacement) []Placement {
	out := make([]Placement, len(list))
	for i, p := range list {
		out[i] = Placement{Profile: p.Profile, Start: int64(p.Start)}
	}
	return out
}

// Decode reads a known layout into a config; null leaves it as it is.
func Decode(ctx context.Context, o types.Object, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
	m := object.Decode[model](ctx, o, diags)
	if m == nil {
		return
	}
	c.MIG = &gpu.MIGLayout{}
	if !m.Profiles.IsNull() {
		diags.Append(m.Profiles.ElementsAs(ctx, &c.MIG.Profiles, false)...)
		maps.DeleteFunc(c.MIG.Profiles, func(_ string, n int) bool { return n == 0 }) // as modules write it
	}
	if !m.Placements.IsNull() {
		var placements []Placement
		diags.Append(m.Placements.ElementsAs(ctx, &placements, false)...)
		for _, p := range placements {
			c.MIG.Placements = append(c.MIG.Placements, gpu.MIGPlacement{Profile: p.Profile, Start: int(p.Start)})
		}
		slices.SortFunc(c.MIG.Placements, func(a, b gpu.MIGPlacement) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Profile, b.Profile))
		})
	}
	c.MPS = sharelayout.DecodeMPS(ctx, m.MPS, diags)
	c.TimeSlicing = sharelayout.DecodeTimeSlicing(ctx, m.TimeSlicing, diags)
}

// Encode is Decode's inverse, for import.
func Encode(ctx context.Context, c *gpu.PartitionConfig, diags *diag.Diagnostics) types.Object {
	if c.MIG == nil {
		return types.ObjectNull(Type())
	}
	m := model{
		Profiles: types.MapNull(types.Int64Type), Placements: types.SetNull(PlacementType()),
		MPS: sharelayout.EncodeMPS(ctx, c.MPS, diags), TimeSlicing: sharelayout.EncodeTimeSlicing(ctx, c.TimeSlicing, diags),
	}
	var d diag.Diagnostics
	if len(c.MIG.Placements) > 0 {
		m.Placements, d = types.SetValueFrom(ctx, PlacementType(), Placements(c.MIG.Placements))
	} else {
		counts := map[string]int64{}
		for name, n := range c.MIG.Profiles {
			counts[name] = int64(n)
		}
		m.Profiles, d = types.MapValueFrom(ctx, types.Int64Type, counts)
	}
	diags.Append(d...)
	out, d := types.ObjectValueFrom(ctx, Type(), m)
	diags.Append(d...)
	return out
}
