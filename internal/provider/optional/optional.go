// Package optional is the attributes that a configuration may set, of resources, of data sources and of the provider.
package optional

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// Attributes are what an object has, by name.
type Attributes = map[string]schema.Attribute

// Text is a string.
func Text(description string, checks ...validator.String) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Optional: true, Validators: checks}
}

// Number is a whole number.
func Number(description string, checks ...validator.Int64) schema.Int64Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Optional: true, Validators: checks}
}

// Decimal is any number.
func Decimal(description string, checks ...validator.Float64) schema.Float64Attribute {
	return schema.Float64Attribute{MarkdownDescription: description, Optional: true, Validators: checks}
}

// Flag is true or false.
func Flag(description string, checks ...validator.Bool) schema.BoolAttribute {
	return schema.BoolAttribute{MarkdownDescription: description, Optional: true, Validators: checks}
}

// SetOf is a set of values of a type.
func SetOf(of attr.Type, description string, checks ...validator.Set) schema.SetAttribute {
	return schema.SetAttribute{MarkdownDescription: description, ElementType: of, Optional: true, Validators: checks}
}

// MapOf is a map to values of a type.
func MapOf(of attr.Type, description string, checks ...validator.Map) schema.MapAttribute {
	return schema.MapAttribute{MarkdownDescription: description, ElementType: of, Optional: true, Validators: checks}
}

// Object is one object.
func Object(description string, of Attributes) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{MarkdownDescription: description, Attributes: of, Optional: true}
}
