package fastpath

import (
	"context"
	"reflect"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// Hindrance says why the answers for a type of resources are the framework's alone, "" where they are not.
func Hindrance(ctx context.Context, construct func() resource.Resource) string {
	_, _, why := examine(ctx, "", construct)
	return why
}

// examine walks the schema of a type. Whatever has a meaning that this package does not know leaves the type to the framework: what
// the package knows is listed here, not what it does not know, so that nothing has to be added for a new feature of the framework.
func examine(ctx context.Context, provider string, construct func() resource.Resource) (name string, k kind, why string) {
	r := construct()
	var meta resource.MetadataResponse
	r.Metadata(ctx, resource.MetadataRequest{ProviderTypeName: provider}, &meta)
	var s resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &s)
	var id resource.IdentitySchemaResponse
	withIdentity, identified := r.(resource.ResourceWithIdentity)
	if identified {
		withIdentity.IdentitySchema(ctx, resource.IdentitySchemaRequest{}, &id)
	}
	k = kind{construct, s.Schema, id.IdentitySchema, nil, nil, new(sync.Map)}
	_, plans := r.(resource.ResourceWithModifyPlan)
	switch {
	case !identified || !plans:
		why = "it has no identity, or leaves plans as they are"
	case !reflect.ValueOf(meta.ResourceBehavior).IsZero():
		why = "it wants another behavior of the framework"
	case len(s.Schema.Blocks) > 0:
		why = "it has blocks"
	case s.Schema.DeprecationMessage != "":
		why = "it is deprecated"
	default:
		if why = strangeIn(s.Schema.Attributes, false); why == "" {
			why = strangeIdentity(id.IdentitySchema)
		}
	}
	if why == "" {
		k.is, k.known = s.Schema.Type().TerraformType(ctx), id.IdentitySchema.Type().TerraformType(ctx)
	}
	return meta.TypeName, k, why
}

// strangeIn finds what is not known of some attributes. Those of a collection's elements are not planned here.
func strangeIn(all map[string]schema.Attribute, ofElements bool) string {
	for name, a := range all {
		if why := strange(a, ofElements); why != "" {
			return "attribute " + name + " " + why
		}
	}
	return ""
}

// attributes are the kinds of attributes that are known.
var attributes = map[reflect.Type]bool{
	reflect.TypeFor[schema.StringAttribute](): true, reflect.TypeFor[schema.BoolAttribute](): true,
	reflect.TypeFor[schema.Int64Attribute](): true, reflect.TypeFor[schema.Float64Attribute](): true,
	reflect.TypeFor[schema.NumberAttribute](): true,
	reflect.TypeFor[schema.ListAttribute]():   true, reflect.TypeFor[schema.SetAttribute](): true,
	reflect.TypeFor[schema.MapAttribute]():          true,
	reflect.TypeFor[schema.SingleNestedAttribute](): true, reflect.TypeFor[schema.ListNestedAttribute](): true,
	reflect.TypeFor[schema.SetNestedAttribute](): true, reflect.TypeFor[schema.MapNestedAttribute](): true,
}

// modifiers are the plan modifiers that leave alone what is new and what stays as it is, of every type of attribute.
var modifiers = map[string]bool{"useStateForUnknownModifier": true, "requiresReplaceIfModifier": true}

// framework is where the framework's own types and plan modifiers are.
const framework = "github.com/hashicorp/terraform-plugin-framework/"

// strange says what of an attribute is not known.
func strange(a schema.Attribute, ofElements bool) string {
	if !attributes[reflect.TypeOf(a)] {
		return "is of a kind that is not known"
	}
	return strangeFields(reflect.ValueOf(a), ofElements || !a.IsOptional() && !a.IsRequired(), ofElements)
}

func strangeFields(v reflect.Value, settled, ofElements bool) string {
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		if field.IsZero() {
			continue
		}
		why := ""
		switch of := field.Interface().(type) {
		case map[string]schema.Attribute:
			why = strangeIn(of, ofElements)
		case schema.NestedAttributeObject:
			why = strangeFields(field, settled, !settled)
		case attr.Type:
			if !ofFramework(of) {
				why = "has a type of its own"
			}
		default:
			switch name {
			case "Required", "Optional", "Sensitive", "Description", "MarkdownDescription", "DeprecationMessage", "Validators":
			case "Computed":
				if ofElements {
					why = "is computed in each element of a collection"
				}
			case "PlanModifiers":
				for i := range field.Len() {
					if t := field.Index(i).Elem().Type(); !modifiers[t.Name()] || !strings.HasPrefix(t.PkgPath(), framework+"resource/schema/") {
						why = "has a plan modifier that is not known, " + t.String()
					}
				}
			default:
				why = "has a field that is not known, " + name
			}
		}
		if why != "" {
			return why
		}
	}
	return ""
}

// ofFramework reports whether a type and all within it is the framework's own, whose values are as good as equal only where they are equal.
func ofFramework(t attr.Type) bool {
	of := reflect.TypeOf(t)
	if of != reflect.TypeFor[timeouts.Type]() && of.PkgPath() != framework+"types/basetypes" {
		return false
	}
	if t, ok := t.(attr.TypeWithElementType); ok {
		return ofFramework(t.ElementType())
	}
	if t, ok := t.(attr.TypeWithAttributeTypes); ok {
		for _, t := range t.AttributeTypes() {
			if !ofFramework(t) {
				return false
			}
		}
	}
	return true
}

func strangeIdentity(s identityschema.Schema) string {
	for name, a := range s.Attributes {
		if !ofFramework(a.GetType()) {
			return "attribute " + name + " of its identity has a type of its own"
		}
	}
	return ""
}
