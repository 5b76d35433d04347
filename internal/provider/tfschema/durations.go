package tfschema

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
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
			s.Validators = []validator.String{PositiveDuration}
			nested.Attributes[name] = s
		}
	}
	return nested
}

// PositiveDuration accepts positive durations as Go writes them.
var PositiveDuration = StringValidator{Must: "must be a " +
	"duration such as 90s or 5m", Check: func(s string, at path.Path, diags *diag.Diagnostics) {
	if v, err := time.ParseDuration(s); err != nil || v <= 0 {
		diags.AddAttributeError(at, "Invalid duration", fmt.Sprintf(
			"Attribute %s is %q, but must be a positive duration such as \"90s\" or \"5m\".", at, s))
	}
}}
