// Package callers_test has other programs than Terraform take the provider as they do: a mux.
package callers_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	framework "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-mux/tf6muxserver"

	"github.com/gpufleet/terraform-provider-gpu/provider"
)

const root = "../.."

var resources = []string{"gpu_partition_config", "gpu_pool", "gpu_share", "gpu_vm_assignment"}

// other is the other provider of a mux.
type other struct{}

func (other) Metadata(_ context.Context, _ framework.MetadataRequest, r *framework.MetadataResponse) {
	r.TypeName = "gpu"
}
func (other) Schema(ctx context.Context, req framework.SchemaRequest, r *framework.SchemaResponse) {
	provider.New("test")().Schema(ctx, req, r) // a mux has one block for all of its providers
}
func (other) Configure(context.Context, framework.ConfigureRequest, *framework.ConfigureResponse) {}
func (other) DataSources(context.Context) []func() datasource.DataSource                          { return nil }
func (other) Resources(context.Context) []func() resource.Resource                                { return nil }

// A mux serves the provider beside another one, and a data source of it reads a fleet.
func TestMux(t *testing.T) {
	t.Parallel()
	fleet, err := filepath.Abs(filepath.Join(root, "examples/first-look/fleet.json"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	mux, err := tf6muxserver.NewMuxServer(ctx, providerserver.NewProtocol6(provider.New("1.2.3")()), providerserver.NewProtocol6(other{}))
	if err != nil {
		t.Fatal(err)
	}
	s := mux.ProviderServer()
	schemas, err := s.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil || len(schemas.Diagnostics) > 0 {
		t.Fatalf("%v, %+v", err, schemas)
	}
	for _, name := range resources {
		if schemas.ResourceSchemas[name] == nil {
			t.Errorf("the mux has no %s", name)
		}
	}
	block := values(t, schemas.Provider, map[string]string{"simulated_fleet": fleet, "owner": "test"})
	configured, err := s.ConfigureProvider(ctx, &tfprotov6.ConfigureProviderRequest{TerraformVersion: "1.14.0", Config: block})
	if err != nil || len(configured.Diagnostics) > 0 {
		t.Fatalf("%v, %+v", err, configured)
	}
	schema := schemas.DataSourceSchemas["gpu_inventory"]
	read, err := s.ReadDataSource(ctx, &tfprotov6.ReadDataSourceRequest{TypeName: "gpu_inventory", Config: values(t, schema, nil)})
	if err != nil || len(read.Diagnostics) > 0 {
		t.Fatalf("%v, %+v", err, read)
	}
	v, err := read.State.Unmarshal(schema.ValueType())
	if err != nil || !strings.Contains(v.String(), "desk-01") {
		t.Errorf("the inventory has no VM desk-01: %v, %s", err, v)
	}
}

// Each provider that is made has hosts of its own: one that is not configured has none.
func TestProvidersOfOneVersionAreApart(t *testing.T) {
	t.Parallel()
	made := provider.New("1.2.3")
	if made() == made() {
		t.Error("two calls give one provider")
	}
	var r framework.MetadataResponse
	made().Metadata(t.Context(), framework.MetadataRequest{}, &r)
	if r.TypeName != "gpu" || r.Version != "1.2.3" {
		t.Errorf("it says that it is %+v", r)
	}
}

// values is a block with some texts in it, and nothing else.
func values(t *testing.T, schema *tfprotov6.Schema, texts map[string]string) *tfprotov6.DynamicValue {
	t.Helper()
	of, ok := schema.ValueType().(tftypes.Object)
	if !ok {
		t.Fatalf("the schema is of %s", schema.ValueType())
	}
	attributes := map[string]tftypes.Value{}
	for name, is := range of.AttributeTypes {
		attributes[name] = tftypes.NewValue(is, nil)
		if text, given := texts[name]; given {
			attributes[name] = tftypes.NewValue(is, text)
		}
	}
	v, err := tfprotov6.NewDynamicValue(of, tftypes.NewValue(of, attributes))
	if err != nil {
		t.Fatal(err)
	}
	return &v
}
