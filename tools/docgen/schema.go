package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// The types below are the parts of `terraform providers schema -json` that
// tfplugindocs reads. An installed Terraform cannot be used for that: those before
// 1.12 leave out the identity schemas, and tfplugindocs then fails on an example
// that imports by identity.

type document struct {
	FormatVersion string                    `json:"format_version"`
	Providers     map[string]providerSchema `json:"provider_schemas"`
}

type providerSchema struct {
	Provider    schema                    `json:"provider"`
	Resources   map[string]schema         `json:"resource_schemas"`
	DataSources map[string]schema         `json:"data_source_schemas"`
	Identities  map[string]identitySchema `json:"resource_identity_schemas"`
	Lists       map[string]schema         `json:"list_resource_schemas"`
	Actions     map[string]schema         `json:"action_schemas"`
	Functions   map[string]functionSchema `json:"functions,omitempty"`
}

type functionSchema struct {
	Description string       `json:"description,omitempty"`
	Summary     string       `json:"summary,omitempty"`
	Deprecation string       `json:"deprecation_message,omitempty"`
	Return      tftypes.Type `json:"return_type"`
	Parameters  []parameter  `json:"parameters,omitempty"`
	Variadic    *parameter   `json:"variadic_parameter,omitempty"`
}

type parameter struct {
	Name        string       `json:"name"`
	Description string       `json:"description,omitempty"`
	Nullable    bool         `json:"is_nullable,omitempty"`
	Type        tftypes.Type `json:"type"`
}

type schema struct {
	Version int64 `json:"version"`
	Block   block `json:"block"`
}

type block struct {
	Attributes      map[string]attribute `json:"attributes"`
	Description     string               `json:"description"`
	DescriptionKind string               `json:"description_kind"`
	Deprecated      bool                 `json:"deprecated,omitempty"`
}

type attribute struct {
	Type            tftypes.Type `json:"type,omitempty"`
	Nested          *nested      `json:"nested_type,omitempty"`
	Description     string       `json:"description"`
	DescriptionKind string       `json:"description_kind"`
	Required        bool         `json:"required,omitempty"`
	Optional        bool         `json:"optional,omitempty"`
	Computed        bool         `json:"computed,omitempty"`
	Sensitive       bool         `json:"sensitive,omitempty"`
	WriteOnly       bool         `json:"write_only,omitempty"`
	Deprecated      bool         `json:"deprecated,omitempty"`
}

type nested struct {
	Attributes map[string]attribute `json:"attributes"`
	Mode       string               `json:"nesting_mode"`
}

type identitySchema struct {
	Version    int64                        `json:"version"`
	Attributes map[string]identityAttribute `json:"attributes"`
}

type identityAttribute struct {
	Type              tftypes.Type `json:"type"`
	Description       string       `json:"description,omitempty"`
	RequiredForImport bool         `json:"required_for_import,omitempty"`
	OptionalForImport bool         `json:"optional_for_import,omitempty"`
}

// schemaJSON asks the provider for its schemas, as Terraform does.
func schemaJSON(ctx context.Context) ([]byte, error) {
	serve, err := provider.Server("dev", nil)
	if err != nil {
		return nil, err
	}
	server := serve()
	schemas, err := server.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return nil, err
	}
	identities, err := server.GetResourceIdentitySchemas(ctx, &tfprotov6.GetResourceIdentitySchemasRequest{})
	if err != nil {
		return nil, err
	}
	for _, d := range append(schemas.Diagnostics, identities.Diagnostics...) {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			return nil, fmt.Errorf("%s: %s", d.Summary, d.Detail)
		}
	}
	gpu := providerSchema{
		Provider:    fromSchema(schemas.Provider),
		Resources:   map[string]schema{},
		DataSources: map[string]schema{},
		Identities:  map[string]identitySchema{},
		Lists:       map[string]schema{},
		Actions:     map[string]schema{},
		Functions:   map[string]functionSchema{},
	}
	for name, s := range schemas.ResourceSchemas {
		gpu.Resources[name] = fromSchema(s)
	}
	for name, s := range schemas.DataSourceSchemas {
		gpu.DataSources[name] = fromSchema(s)
	}
	for name, s := range schemas.ListResourceSchemas {
		gpu.Lists[name] = fromSchema(s)
	}
	for name, s := range schemas.ActionSchemas {
		gpu.Actions[name] = fromSchema(s.Schema)
	}
	for name, s := range identities.IdentitySchemas {
		gpu.Identities[name] = fromIdentity(s)
	}
	for name, f := range schemas.Functions {
		gpu.Functions[name] = fromFunction(f)
	}
	return json.MarshalIndent(document{
		FormatVersion: "1.0",
		Providers:     map[string]providerSchema{"gpu": gpu},
	}, "", "  ")
}

// fromSchema leaves blocks out: the provider has nested attributes only.
func fromSchema(s *tfprotov6.Schema) schema {
	return schema{Version: s.Version, Block: block{
		Attributes:      fromAttributes(s.Block.Attributes),
		Description:     s.Block.Description,
		DescriptionKind: kind(s.Block.DescriptionKind),
		Deprecated:      s.Block.Deprecated,
	}}
}

func fromAttributes(attributes []*tfprotov6.SchemaAttribute) map[string]attribute {
	out := map[string]attribute{}
	for _, a := range attributes {
		converted := attribute{
			Type:            a.Type,
			Description:     a.Description,
			DescriptionKind: kind(a.DescriptionKind),
			Required:        a.Required,
			Optional:        a.Optional,
			Computed:        a.Computed,
			Sensitive:       a.Sensitive,
			WriteOnly:       a.WriteOnly,
			Deprecated:      a.Deprecated,
		}
		if a.NestedType != nil {
			converted.Nested = &nested{
				Attributes: fromAttributes(a.NestedType.Attributes),
				Mode:       strings.ToLower(a.NestedType.Nesting.String()),
			}
		}
		out[a.Name] = converted
	}
	return out
}

func fromIdentity(s *tfprotov6.ResourceIdentitySchema) identitySchema {
	out := identitySchema{Version: s.Version, Attributes: map[string]identityAttribute{}}
	for _, a := range s.IdentityAttributes {
		out.Attributes[a.Name] = identityAttribute{
			Type:              a.Type,
			Description:       a.Description,
			RequiredForImport: a.RequiredForImport,
			OptionalForImport: a.OptionalForImport,
		}
	}
	return out
}

func fromFunction(f *tfprotov6.Function) functionSchema {
	out := functionSchema{
		Description: f.Description,
		Summary:     f.Summary,
		Deprecation: f.DeprecationMessage,
		Return:      f.Return.Type,
	}
	for _, p := range f.Parameters {
		out.Parameters = append(out.Parameters, fromParameter(p))
	}
	if f.VariadicParameter != nil {
		p := fromParameter(f.VariadicParameter)
		out.Variadic = &p
	}
	return out
}

func fromParameter(p *tfprotov6.FunctionParameter) parameter {
	return parameter{Name: p.Name, Description: p.Description, Nullable: p.AllowNullValue, Type: p.Type}
}

func kind(k tfprotov6.StringKind) string { return strings.ToLower(k.String()) }
