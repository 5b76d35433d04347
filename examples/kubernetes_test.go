package examples_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	resourceschema "github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// kubernetes stands in for the provider hashicorp/kubernetes: two of its resources, with
// the types of the arguments that our example uses, and no cluster.
type kubernetes struct{}

// kubernetesProvider makes this test process that provider.
const kubernetesProvider = "GPU_TEST_KUBERNETES_PROVIDER"

func serveKubernetes() {
	err := providerserver.Serve(context.Background(), func() provider.Provider { return kubernetes{} },
		providerserver.ServeOpts{Address: "registry.terraform.io/hashicorp/kubernetes"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// withKubernetes lets the CLI find the provider.
func withKubernetes(c *rig.CLI) {
	c.T.Helper()
	self, err := os.Executable()
	if err != nil {
		c.T.Fatal(err)
	}
	dir := c.T.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "terraform-provider-kubernetes")); err != nil {
		c.T.Fatal(err)
	}
	rc := filepath.Join(dir, "cli.rc")
	own, err := rig.ProviderBinary()
	if err != nil {
		c.T.Fatal(err)
	}
	rig.Write(c.T, rc,
		fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n  \"hashicorp/kubernetes\" = %q\n }\n direct {}\n}\n",
			filepath.Dir(own), dir))
	c.Env = append(c.Env, "TF_CLI_CONFIG_FILE="+rc, kubernetesProvider+"=1")
}

func (kubernetes) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "kubernetes"
}

func (kubernetes) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{Attributes: map[string]schema.Attribute{"config_path": schema.StringAttribute{Optional: true}}}
}

func (kubernetes) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {
}

func (kubernetes) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (kubernetes) Resources(context.Context) []func() resource.Resource {
	required := resourceschema.StringAttribute{Required: true}
	texts := resourceschema.MapAttribute{ElementType: types.StringType, Required: true}
	return []func() resource.Resource{
		func() resource.Resource {
			return kubernetesObject{
				name: "kubernetes_config_map_v1", attributes: map[string]resourceschema.Attribute{"data": texts},
				metadata: map[string]resourceschema.Attribute{"name": required, "namespace": resourceschema.StringAttribute{Optional: true}},
			}
		},
		func() resource.Resource {
			return kubernetesObject{
				name: "kubernetes_labels", attributes: map[string]resourceschema.Attribute{"api_version": required, "kind": required, "labels": texts},
				metadata: map[string]resourceschema.Attribute{"name": required, "namespace": resourceschema.StringAttribute{Optional: true}},
			}
		},
	}
}

// kubernetesObject is a resource that is as it was planned.
type kubernetesObject struct {
	name                 string
	attributes, metadata map[string]resourceschema.Attribute
}

func (o kubernetesObject) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = o.name
}

func (o kubernetesObject) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = resourceschema.Schema{
		Attributes: o.attributes,
		Blocks: map[string]resourceschema.Block{
			"metadata": resourceschema.ListNestedBlock{NestedObject: resourceschema.NestedBlockObject{Attributes: o.metadata}},
		},
	}
}

func (kubernetesObject) Create(_ context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	resp.State.Raw = req.Plan.Raw
}

func (kubernetesObject) Read(context.Context, resource.ReadRequest, *resource.ReadResponse) {}

func (kubernetesObject) Update(_ context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.State.Raw = req.Plan.Raw
}

func (kubernetesObject) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}
