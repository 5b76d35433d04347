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
