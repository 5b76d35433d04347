package layout

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/boolvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// What a placement has, for registry pages.
const (
	ProfileText = "The profile, such as `3g.40gb`."
	StartText   = "The first memory slice."
)

// slicesAtMost is more memory slices than any GPU has.
const slicesAtMost = 64

// MIG is the attribute mig.
func MIG(text string) schema.SingleNestedAttribute {
	sharing := path.MatchRoot("mig")
	mps := mpsAt(sharing.AtName("mps"), "The Multi-Process Service inside of each GPU instance, with a control daemon for each. "+
		"One of `mps` and `time_slicing` at most. The daemons are stopped when the config is destroyed or "+
		"no longer has `mps`, whatever `on_destroy` is.",
		tfschema.OptionalText("Not supported inside `mig`.", wholeGPUs),
		tfschema.OptionalText("Not supported inside `mig`.", wholeGPUs),
		tfschema.OptionalFlag("Not supported inside `mig`.", wholeGPUs))
	mps.Validators = []validator.Object{objectvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName("time_slicing"))}
	return tfschema.OptionalObject(text, tfschema.Attributes{
		"enabled": tfschema.OptionalFlag("Only `false`: MIG mode off, and with it no instances. `mps` and `time_slicing` are for instances, "+
			"and not for such a layout. One of `enabled`, `profiles` and `placements` is required.",
			boolvalidator.Equals(false),
			boolvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName("mps"), path.MatchRelative().AtParent().AtName("time_slicing"))),
		"profiles": tfschema.OptionalMapOf(types.Int64Type, "Number of instances per GPU by profile, such as `{ \"3g.40gb\" = 1, \"1g.10gb\" = "+
			"2 }`. The provider places them: it keeps existing instances "+
			"where it can, and leaves as much room as possible. `0` is none, `{}` MIG mode without instances. "+
			"Data source `gpu_partition_options` lists a GPU's profiles. "+
			"One of `enabled`, `profiles` and `placements` is required.",
			mapvalidator.ExactlyOneOf(path.MatchRelative().AtParent().AtName("placements"), path.MatchRelative().AtParent().AtName("enabled")),
			mapvalidator.NoNullValues(),
			mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1)),
			mapvalidator.ValueInt64sAre(int64validator.Between(0, slicesAtMost))),
		"placements": schema.SetNestedAttribute{
			MarkdownDescription: "The instances of each GPU with their places, taken as written. `[]` is refused.", Optional: true,
			Validators: []validator.Set{tfschema.Nonempty{
				Fix: "Write `profiles = {}` for MIG mode without instances, or leave `placements` out, or null.",
			}},
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"profile": schema.StringAttribute{
					MarkdownDescription: ProfileText, Required: true,
					Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
				},
				"start": schema.Int64Attribute{
					MarkdownDescription: StartText, Required: true,
					Validators: []validator.Int64{int64validator.Between(0, slicesAtMost-1)},
				},
			}},
		},
		"mps": mps,
		"time_slicing": timeSlicing("Time-slicing inside of each GPU instance: several shares take turns on it. "+
			"One of `mps` and `time_slicing` at most.",
			"How many shares each GPU instance takes, at least 2.", tfschema.OptionalText("Not supported inside `mig`.", wholeGPUs)),
	})
}

type migModel struct {
	Enabled     types.Bool   `tfsdk:"enabled"`
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

// ProfileName is the driver's form of a profile's name, which is taken without case.
func ProfileName(written string) string { return strings.ToLower(written) }

// DecodeMIG reads a known layout into a config; null leaves it as it is.
func DecodeMIG(ctx context.Context, o types.Object, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
	m := object.Decode[migModel](o, diags)
	if m == nil {
		return
	}
	c.MIG = &gpu.MIGLayout{Off: !m.Enabled.IsNull()}
	if !m.Profiles.IsNull() {
		var written map[string]int
		diags.Append(m.Profiles.ElementsAs(ctx, &written, false)...)
		c.MIG.Profiles = map[string]int{}
		for name, n := range written {
			if n > 0 { // modules write zero for none
				c.MIG.Profiles[ProfileName(name)] += n
			}
		}
	}
	if !m.Placements.IsNull() {
		var placements []Placement
		diags.Append(m.Placements.ElementsAs(ctx, &placements, false)...)
		for _, p := range placements {
			c.MIG.Placements = append(c.MIG.Placements, gpu.MIGPlacement{Profile: ProfileName(p.Profile), Start: int(p.Start)})
		}
		slices.SortFunc(c.MIG.Placements, func(a, b gpu.MIGPlacement) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Profile, b.Profile))
		})
	}
	c.MPS = DecodeMPS(m.MPS, diags)
	c.TimeSlicing = DecodeTimeSlicing(m.TimeSlicing, diags)
}

// EncodeMIG is DecodeMIG's inverse, for import.
func EncodeMIG(ctx context.Context, c *gpu.PartitionConfig, diags *diag.Diagnostics) types.Object {
	as := MIG("")
	if c.MIG == nil {
		return types.ObjectNull(tfschema.TypesOf(as.Attributes))
	}
	placement := as.Attributes["placements"].GetType().(types.SetType).ElemType //nolint:forcetypeassert // it is as above
	m := migModel{
		Profiles: types.MapNull(types.Int64Type), Placements: types.SetNull(placement),
		MPS: EncodeMPS(ctx, c.MPS, diags), TimeSlicing: EncodeTimeSlicing(ctx, c.TimeSlicing, diags),
	}
	switch {
	case c.MIG.Off:
		m.Enabled = types.BoolValue(false)
	case len(c.MIG.Placements) > 0:
		m.Placements = object.SetOf(ctx, placement, Placements(c.MIG.Placements), diags)
	default:
		m.Profiles = counted(ctx, c.MIG.Profiles, diags)
	}
	return encode(ctx, as, m, diags)
}
