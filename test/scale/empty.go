//go:build unix

package main

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/vmassignment"
)

// emptyProvider is the file name of a provider that has the attributes of an assignment and does
// nothing: the framework's own share, with the logs that it formats by itself.
const emptyProvider = "terraform-provider-empty"

func serveEmpty() error {
	return providerserver.Serve(context.Background(), func() provider.Provider { return empty{} }, providerserver.ServeOpts{
		Address: "registry.terraform.io/gpufleet/empty",
	})
}

type empty struct{}

func (empty) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "empty"
}
func (empty) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse)          {}
func (empty) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}
func (empty) DataSources(context.Context) []func() datasource.DataSource                        { return nil }

func (empty) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return nothing{} }}
}

// nothing keeps what is planned.
type nothing struct{}

func (nothing) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "empty_assignment"
}

func (nothing) Schema(ctx context.Context, req resource.SchemaRequest, resp *resource.SchemaResponse) {
	vmassignment.New().Schema(ctx, req, resp)
}

// known is a plan of which what is unknown has come to nothing.
func known(plan tftypes.Value) (tftypes.Value, error) {
	return tftypes.Transform(plan, func(_ *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		return tftypes.NewValue(v.Type(), nil), nil
	})
}

func (nothing) Create(_ context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var err error
	if resp.State.Raw, err = known(req.Plan.Raw); err != nil {
		resp.Diagnostics.AddError("The plan cannot be read", err.Error())
	}
}

func (nothing) Update(_ context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var err error
	if resp.State.Raw, err = known(req.Plan.Raw); err != nil {
		resp.Diagnostics.AddError("The plan cannot be read", err.Error())
	}
}

func (nothing) Read(context.Context, resource.ReadRequest, *resource.ReadResponse)       {}
func (nothing) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}

// emptyConfig has as many of them as there are VMs.
func emptyConfig(vms int) string {
	return fmt.Sprintf(`terraform {
  required_providers {
    empty = { source = "gpufleet/empty" }
  }
}
resource "empty_assignment" "x" {
  count     = %d
  vm        = tostring(count.index)
  partition = {}
}
`, vms)
}
