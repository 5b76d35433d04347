package tfschema

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// Must describes a validator: what a value must be.
type Must string

// Description implements the validators of all types.
func (m Must) Description(context.Context) string { return string(m) }

// MarkdownDescription implements the validators of all types.
func (m Must) MarkdownDescription(context.Context) string { return string(m) }

// Filled runs a validator of a set only where that has elements: an empty one says as little as null, and
// is what a module passes on that was given none.
type Filled struct{ validator.Set }

// ValidateSet implements validator.Set.
func (v Filled) ValidateSet(ctx context.Context, req validator.SetRequest, resp *validator.SetResponse) {
	if req.ConfigValue.IsUnknown() || len(req.ConfigValue.Elements()) > 0 {
		v.Set.ValidateSet(ctx, req, resp)
	}
}

// StringValidator is a validator of texts that are known.
type StringValidator struct {
	Must
	Check func(s string, at path.Path, diags *diag.Diagnostics) // adds an error to say what is wrong
}

// ValidateString implements validator.String.
func (v StringValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if !req.ConfigValue.IsNull() && !req.ConfigValue.IsUnknown() {
		v.Check(req.ConfigValue.ValueString(), req.Path, &resp.Diagnostics)
	}
}
