// Package empty is a provider that has the attributes of an assignment and does nothing: what the
// plugin framework takes by itself, to measure ours beside it.
package empty

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/vmassignment"
)

// Provider is the provider, whose resource is empty_assignment.
type Provider struct{}

var _ provider.Provider = Provider{}

// Metadata implements provider.Provider.
func (Provider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "empty"
}

// Schema implements provider.Provider.
func (Provider) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse) {}

// Configure implements provider.Provider.
func (Provider) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}

// DataSources implements provider.Provider.
func (Provider) DataSources(context.Context) []func() datasource.DataSource { return nil }

// Resources implements provider.Provider.
func (Provider) Resources(context.Context) []func() resource.Resource {
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
