// Package callers_test has other programs than Terraform take the provider as they do: a mux, and Crossplane's upjet.
package callers_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crossplane/upjet/v2/pkg/config"
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

// upjet makes the managed resources of a Crossplane provider of the schema and of the provider in its process.
func TestUpjet(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	docgen := exec.CommandContext(t.Context(), "go", "run", "./tools/docgen", "-out", out)
	docgen.Dir = root
	if said, err := docgen.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	schema, err := os.ReadFile(filepath.Join(out, "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	p := config.NewProvider(schema, "gpu", "example.com/provider-gpu", []byte("name: gpufleet/gpu\nresources: {}\n"),
		config.WithIncludeList([]string{}), config.WithTerraformPluginFrameworkIncludeList([]string{"^gpu_"}),
		config.WithTerraformPluginFrameworkProvider(provider.New("1.2.3")()))
	p.ConfigureResources()
	var got []string
	for name, r := range p.Resources {
		got = append(got, name)
		if r.TerraformPluginFrameworkResource == nil || len(r.TerraformResource.Schema) == 0 || r.Kind == "" {
			t.Errorf("%s is no resource of Crossplane: %+v", name, r)
		}
	}
	if slices.Sort(got); !slices.Equal(got, resources) {
		t.Errorf("upjet has %q, want %q", got, resources)
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
