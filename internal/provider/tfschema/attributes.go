// Package tfschema is what the schemas of resources, data sources and the provider are made of: attributes, validators and timeouts.
package tfschema

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// Attributes are the attributes of an object, by name. The provider alone fills in those whose makers begin with Computed, and a
// configuration may set those whose makers begin with Optional.
type Attributes = map[string]schema.Attribute

// TypesOf are the types of attributes.
func TypesOf(attributes Attributes) map[string]attr.Type {
	out := map[string]attr.Type{}
	for name, attribute := range attributes {
		out[name] = attribute.GetType()
	}
	return out
}

// ComputedText is a string.
func ComputedText(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

// ComputedNumber is a whole number.
func ComputedNumber(description string) schema.Int64Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
}

// ComputedDecimal is any number.
func ComputedDecimal(description string) schema.Float64Attribute {
	return schema.Float64Attribute{MarkdownDescription: description, Computed: true}
}

// ComputedFlag is true or false.
func ComputedFlag(description string) schema.BoolAttribute {
	return schema.BoolAttribute{MarkdownDescription: description, Computed: true}
}

// ComputedListOf is a list of values of a type.
func ComputedListOf(of attr.Type, description string) schema.ListAttribute {
	return schema.ListAttribute{MarkdownDescription: description, ElementType: of, Computed: true}
}

// ComputedMapOf is a map to values of a type.
func ComputedMapOf(of attr.Type, description string) schema.MapAttribute {
	return schema.MapAttribute{MarkdownDescription: description, ElementType: of, Computed: true}
}

// ComputedList is a list of objects.
func ComputedList(description string, of Attributes) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: description, NestedObject: schema.NestedAttributeObject{Attributes: of},
		Computed: true,
	}
}

// ComputedMap is a map to objects.
func ComputedMap(description string, of Attributes) schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: description, NestedObject: schema.NestedAttributeObject{Attributes: of},
		Computed: true,
	}
}

// ComputedObject is one object.
func ComputedObject(description string, of Attributes) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{MarkdownDescription: description, Attributes: of, Computed: true}
}

// OptionalText is a string.
func OptionalText(description string, checks ...validator.String) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Optional: true, Validators: checks}
}

// OptionalNumber is a whole number.
func OptionalNumber(description string, checks ...validator.Int64) schema.Int64Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Optional: true, Validators: checks}
}

// OptionalDecimal is any number.
func OptionalDecimal(description string, checks ...validator.Float64) schema.Float64Attribute {
	return schema.Float64Attribute{MarkdownDescription: description, Optional: true, Validators: checks}
}

// OptionalFlag is true or false.
func OptionalFlag(description string, checks ...validator.Bool) schema.BoolAttribute {
	return schema.BoolAttribute{MarkdownDescription: description, Optional: true, Validators: checks}
}

// OptionalSetOf is a set of values of a type.
func OptionalSetOf(of attr.Type, description string, checks ...validator.Set) schema.SetAttribute {
	return schema.SetAttribute{MarkdownDescription: description, ElementType: of, Optional: true, Validators: checks}
}

// OptionalMapOf is a map to values of a type.
func OptionalMapOf(of attr.Type, description string, checks ...validator.Map) schema.MapAttribute {
	return schema.MapAttribute{MarkdownDescription: description, ElementType: of, Optional: true, Validators: checks}
}

// OptionalObject is one object.
func OptionalObject(description string, of Attributes) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{MarkdownDescription: description, Attributes: of, Optional: true}
}
