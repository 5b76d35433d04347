// Package duration is how configurations say how long something may take.
package duration

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// Timeouts are a resource's timeouts: create, update and delete, each described by
// text.
func Timeouts(ctx context.Context, text string) schema.Attribute {
	a := timeouts.Attributes(ctx, timeouts.Opts{
		Create: true, Update: true, Delete: true, CreateDescription: text, UpdateDescription: text, DeleteDescription: text,
	})
	// The library neither describes the whole nor names the attribute in its errors.
	nested, ok := a.(schema.SingleNestedAttribute)
	if !ok {
		return a
	}
	nested.MarkdownDescription = "How long a create, an update and a delete may take."
	for name, operation := range nested.Attributes {
		if s, isString := operation.(schema.StringAttribute); isString {
			s.Validators = []validator.String{Positive{}}
			nested.Attributes[name] = s
		}
	}
	return nested
}

// Positive accepts positive durations as Go writes them.
type Positive struct{}

// Description implements validator.String.
func (Positive) Description(context.Context) string { return "must be a duration such as 90s or 5m" }

// MarkdownDescription implements validator.String.
func (p Positive) MarkdownDescription(ctx context.Context) string { return p.Description(ctx) }

// ValidateString implements validator.String.
func (Positive) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	found := req.ConfigValue.ValueString()
	if v, err := time.ParseDuration(found); err != nil || v <= 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid duration", fmt.Sprintf(
			"Attribute %s is %q, but must be a positive duration such as \"90s\" or \"5m\".", req.Path, found))
	}
}
