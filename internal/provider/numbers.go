package provider

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// wholeNumbers names the attribute of a number with a fraction, and of one that no integer holds.
// The framework (v1.19.0) refuses them too, but as a bug of the provider, and says so of the
// outermost attribute. Types of our own in all schemas could do the same, and each new number could forget its.
type wholeNumbers struct {
	Served
	schemas func() map[string]typed
}

// typed is what the schemas of all kinds of objects tell.
type typed interface {
	Type() attr.Type
	TypeAtTerraformPath(context.Context, *tftypes.AttributePath) (attr.Type, error)
}

func newWholeNumbers(p provider.Provider, inner Served) *wholeNumbers {
	return &wholeNumbers{Served: inner, schemas: sync.OnceValue(func() map[string]typed {
		ctx := context.Background()
		var meta provider.MetadataResponse
		p.Metadata(ctx, provider.MetadataRequest{}, &meta)
		var own provider.SchemaResponse
		p.Schema(ctx, provider.SchemaRequest{}, &own)
		out := map[string]typed{"": own.Schema}
		for _, construct := range p.Resources(ctx) {
			r := construct()
			var name resource.MetadataResponse
			r.Metadata(ctx, resource.MetadataRequest{ProviderTypeName: meta.TypeName}, &name)
			var s resource.SchemaResponse
			r.Schema(ctx, resource.SchemaRequest{}, &s)
			out["resource "+name.TypeName] = s.Schema
		}
		for _, construct := range p.DataSources(ctx) {
			d := construct()
			var name datasource.MetadataResponse
			d.Metadata(ctx, datasource.MetadataRequest{ProviderTypeName: meta.TypeName}, &name)
			var s datasource.SchemaResponse
			d.Schema(ctx, datasource.SchemaRequest{}, &s)
			out["data "+name.TypeName] = s.Schema
		}
		return out
	})}
}

func (w *wholeNumbers) ValidateProviderConfig(
	ctx context.Context, r *tfprotov6.ValidateProviderConfigRequest,
) (*tfprotov6.ValidateProviderConfigResponse, error) {
	resp, err := w.Served.ValidateProviderConfig(ctx, r)
	if err == nil {
		resp.Diagnostics = w.inWords(ctx, "", r.Config, resp.Diagnostics)
	}
	return resp, err
}

func (w *wholeNumbers) ValidateResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	resp, err := w.Served.ValidateResourceConfig(ctx, r)
	if err == nil {
		resp.Diagnostics = w.inWords(ctx, "resource "+r.TypeName, r.Config, resp.Diagnostics)
	}
	return resp, err
}

func (w *wholeNumbers) ValidateDataResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateDataResourceConfigRequest,
) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	resp, err := w.Served.ValidateDataResourceConfig(ctx, r)
	if err == nil {
		resp.Diagnostics = w.inWords(ctx, "data "+r.TypeName, r.Config, resp.Diagnostics)
	}
	return resp, err
}

// inWords says in place of the framework's errors which numbers are no integers, if that is why.
func (w *wholeNumbers) inWords(
	ctx context.Context, of string, config *tfprotov6.DynamicValue, said []*tfprotov6.Diagnostic,
) []*tfprotov6.Diagnostic {
	failed := func(d *tfprotov6.Diagnostic) bool { return d.Severity == tfprotov6.DiagnosticSeverityError }
	if !slices.ContainsFunc(said, failed) {
		return said
	}
	if found := w.fractions(ctx, of, config); len(found) > 0 {
		return found
	}
	return said
}

// fractions finds the numbers of a configuration that are to be integers and are none.
func (w *wholeNumbers) fractions(ctx context.Context, of string, config *tfprotov6.DynamicValue) []*tfprotov6.Diagnostic {
	s, ok := w.schemas()[of]
	if !ok || config == nil {
		return nil
	}
	value, err := config.Unmarshal(s.Type().TerraformType(ctx))
	if err != nil {
		return nil // the framework says so
	}
	var out []*tfprotov6.Diagnostic
	_ = tftypes.Walk(value, func(at *tftypes.AttributePath, v tftypes.Value) (bool, error) {
		var n big.Float
		if !v.Type().Is(tftypes.Number) || !v.IsKnown() || v.IsNull() {
			return true, nil
		}
		if err := v.As(&n); err != nil {
			return false, err
		}
		if t, err := s.TypeAtTerraformPath(ctx, at); err != nil || !t.Equal(basetypes.Int64Type{}) {
			return true, nil //nolint:nilerr // elements of a set have no path of their own
		}
		if _, exact := n.Int64(); exact != big.Exact {
			must := "a whole number"
			if n.IsInt() {
				must = "between -9223372036854775808 and 9223372036854775807"
			}
			out = append(out, &tfprotov6.Diagnostic{
				Severity: tfprotov6.DiagnosticSeverityError, Summary: "Invalid number", Attribute: at,
				Detail: fmt.Sprintf("Attribute %s must be %s, got: %s", written(at), must, n.Text('g', -1)),
			})
		}
		return true, nil
	})
	return out
}

// written is a path as configurations write it.
func written(at *tftypes.AttributePath) string {
	var b strings.Builder
	for _, step := range at.Steps() {
		switch s := step.(type) {
		case tftypes.AttributeName:
			b.WriteString("." + string(s))
		case tftypes.ElementKeyString:
			fmt.Fprintf(&b, "[%q]", string(s))
		case tftypes.ElementKeyInt:
			fmt.Fprintf(&b, "[%d]", int64(s))
		default:
			b.WriteString("[*]")
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}
