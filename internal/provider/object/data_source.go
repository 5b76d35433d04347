package object

import (
	"fmt"

	datasource "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// DataSource is an attribute of a resource as a data source has it.
func DataSource(of schema.Attribute) datasource.Attribute {
	switch a := of.(type) {
	case schema.StringAttribute:
		return datasource.StringAttribute{MarkdownDescription: a.MarkdownDescription, Required: a.Required, Optional: a.Optional, Validators: a.Validators}
	case schema.Int64Attribute:
		return datasource.Int64Attribute{MarkdownDescription: a.MarkdownDescription, Required: a.Required, Optional: a.Optional, Validators: a.Validators}
	case schema.Float64Attribute:
		return datasource.Float64Attribute{MarkdownDescription: a.MarkdownDescription, Required: a.Required, Optional: a.Optional, Validators: a.Validators}
	case schema.BoolAttribute:
		return datasource.BoolAttribute{MarkdownDescription: a.MarkdownDescription, Required: a.Required, Optional: a.Optional, Validators: a.Validators}
	case schema.MapAttribute:
		return datasource.MapAttribute{MarkdownDescription: a.MarkdownDescription, ElementType: a.ElementType, Required: a.Required, Optional: a.Optional, Validators: a.Validators}
	case schema.SetAttribute:
		return datasource.SetAttribute{MarkdownDescription: a.MarkdownDescription, ElementType: a.ElementType, Required: a.Required, Optional: a.Optional, Validators: a.Validators}
	case schema.SetNestedAttribute:
		return datasource.SetNestedAttribute{
			MarkdownDescription: a.MarkdownDescription, Required: a.Required, Optional: a.Optional, Validators: a.Validators,
			NestedObject: datasource.NestedAttributeObject{Attributes: ofDataSource(a.NestedObject.Attributes)},
		}
	case schema.SingleNestedAttribute:
		return datasource.SingleNestedAttribute{
			MarkdownDescription: a.MarkdownDescription, Required: a.Required, Optional: a.Optional, Validators: a.Validators, Attributes: ofDataSource(a.Attributes),
		}
	}
	panic(fmt.Sprintf("no data source has a %T yet", of))
}

func ofDataSource(all map[string]schema.Attribute) map[string]datasource.Attribute {
	out := map[string]datasource.Attribute{}
	for name, a := range all {
		out[name] = DataSource(a)
	}
	return out
}
