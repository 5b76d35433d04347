package tfschema

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/datasourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/resourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// What an empty set or map says. A module that was given none passes it on, and then it says as little as null, as long as null takes
// nothing more than it. Where null stands for all hosts or GPUs it is refused: a list that came out empty may have meant none. The
// descriptions of attributes say which of the two holds; the page of reference tables is made of them, and a test looks for a gap.

// Nonempty refuses an empty set or map, unless an attribute beside it takes its place.
type Nonempty struct {
	Fix    string   // what to write instead, as a sentence
	Unless []string // the attributes that take its place
}

// Description implements the validators.
func (v Nonempty) Description(context.Context) string { return "must contain at least 1 elements" }

// MarkdownDescription implements the validators.
func (v Nonempty) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateSet implements validator.Set.
func (v Nonempty) ValidateSet(ctx context.Context, req validator.SetRequest, resp *validator.SetResponse) {
	if !req.ConfigValue.IsNull() && !req.ConfigValue.IsUnknown() && len(req.ConfigValue.Elements()) == 0 {
		v.refuse(ctx, "set", req.Config, req.Path, &resp.Diagnostics)
	}
}

// ValidateMap implements validator.Map.
func (v Nonempty) ValidateMap(ctx context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	if !req.ConfigValue.IsNull() && !req.ConfigValue.IsUnknown() && len(req.ConfigValue.Elements()) == 0 {
		v.refuse(ctx, "map", req.Config, req.Path, &resp.Diagnostics)
	}
}

func (v Nonempty) refuse(ctx context.Context, what string, config tfsdk.Config, at path.Path, diags *diag.Diagnostics) {
	for _, name := range v.Unless {
		if filled(ctx, config, at.ParentPath().AtName(name)) {
			return
		}
	}
	diags.AddAttributeError(at, "Invalid Attribute Value",
		fmt.Sprintf("Attribute %s %s must contain at least 1 elements, got: 0.\nFix: %s", at, what, v.Fix))
}

// filled reports whether an attribute is set, and is no empty set or map.
func filled(ctx context.Context, config tfsdk.Config, at path.Path) bool {
	var v attr.Value
	if config.GetAttribute(ctx, at, &v).HasError() || v == nil || v.IsNull() {
		return false
	}
	switch v := v.(type) {
	case types.Set:
		return v.IsUnknown() || len(v.Elements()) > 0
	case types.Map:
		return v.IsUnknown() || len(v.Elements()) > 0
	}
	return true
}

// ExactlyOne wants one of the attributes of a resource or data source. An empty set or map is none.
type ExactlyOne []string

// Description implements the validators.
func (v ExactlyOne) Description(context.Context) string {
	return fmt.Sprintf("exactly one of %v", []string(v))
}

// MarkdownDescription implements the validators.
func (v ExactlyOne) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateResource implements resource.ConfigValidator.
func (v ExactlyOne) ValidateResource(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	if !v.holds(ctx, req.Config) {
		resourcevalidator.ExactlyOneOf(v.roots()...).ValidateResource(ctx, req, resp)
	}
}

// ValidateDataSource implements datasource.ConfigValidator.
func (v ExactlyOne) ValidateDataSource(
	ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse,
) {
	if !v.holds(ctx, req.Config) {
		datasourcevalidator.ExactlyOneOf(v.roots()...).ValidateDataSource(ctx, req, resp)
	}
}

func (v ExactlyOne) holds(ctx context.Context, config tfsdk.Config) bool {
	n := 0
	for _, name := range v {
		if filled(ctx, config, path.Root(name)) {
			n++
		}
	}
	return n == 1
}

func (v ExactlyOne) roots() []path.Expression {
	var out []path.Expression
	for _, name := range v {
		out = append(out, path.MatchRoot(name))
	}
	return out
}

// WhileFilled runs a validator of an object only while an attribute beside it is set and not empty.
type WhileFilled struct {
	validator.Object
	Beside string
}

// ValidateObject implements validator.Object.
func (v WhileFilled) ValidateObject(ctx context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	if filled(ctx, req.Config, req.Path.ParentPath().AtName(v.Beside)) {
		v.Object.ValidateObject(ctx, req, resp)
	}
}
