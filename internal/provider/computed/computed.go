// Package computed is the attributes that the provider alone fills in, of resources and of data sources.
package computed

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// Attributes are what an object has, by name.
type Attributes = map[string]schema.Attribute

// Text is a string.
func Text(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

// Number is a whole number.
func Number(description string) schema.Int64Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
}

// Decimal is any number.
func Decimal(description string) schema.Float64Attribute {
	return schema.Float64Attribute{MarkdownDescription: description, Computed: true}
}

// Flag is true or false.
func Flag(description string) schema.BoolAttribute {
	return schema.BoolAttribute{MarkdownDescription: description, Computed: true}
}

// ListOf is a list of values of a type.
func ListOf(of attr.Type, description string) schema.ListAttribute {
	return schema.ListAttribute{MarkdownDescription: description, ElementType: of, Computed: true}
}

// MapOf is a map to values of a type.
func MapOf(of attr.Type, description string) schema.MapAttribute {
	return schema.MapAttribute{MarkdownDescription: description, ElementType: of, Computed: true}
}

// List is a list of objects.
func List(description string, of Attributes) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{MarkdownDescription: description, NestedObject: schema.NestedAttributeObject{Attributes: of}, Computed: true}
}

// Map is a map to objects.
func Map(description string, of Attributes) schema.MapNestedAttribute {
	return schema.MapNestedAttribute{MarkdownDescription: description, NestedObject: schema.NestedAttributeObject{Attributes: of}, Computed: true}
}

// Object is one object.
func Object(description string, of Attributes) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{MarkdownDescription: description, Attributes: of, Computed: true}
}
