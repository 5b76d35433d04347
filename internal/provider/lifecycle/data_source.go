package lifecycle

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
)

// DataSource is embedded in a data source.
type DataSource struct {
	Type  string       // its name in configurations
	Fleet *fleet.Fleet // nil in the validate walk
}

// Metadata implements datasource.DataSource.
func (d *DataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = d.Type
}

// Configure implements datasource.DataSourceWithConfigure.
func (d *DataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.Fleet, _ = req.ProviderData.(*fleet.Fleet)
	report.NoHosts(&resp.Diagnostics, d.Fleet, false)
}
