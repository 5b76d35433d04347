package changeforecast

import (
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

type sharingModel struct {
	ComputeFrom *string       `tfsdk:"from_compute_mode"`
	ComputeTo   *string       `tfsdk:"to_compute_mode"`
	SliceFrom   *string       `tfsdk:"from_time_slice"`
	SliceTo     *string       `tfsdk:"to_time_slice"`
	Daemons     []daemonModel `tfsdk:"mps_daemons"`
}

type daemonModel struct {
	Name    string   `tfsdk:"name"`
	Action  string   `tfsdk:"action"`
	Clients []string `tfsdk:"clients"`
}

func describeSharing(c *change.SharingEffect) *sharingModel {
	out := &sharingModel{
		ComputeFrom: object.NilIfEmpty(c.ComputeFrom), ComputeTo: object.NilIfEmpty(c.ComputeTo),
		SliceFrom: object.NilIfEmpty(c.SliceFrom), SliceTo: object.NilIfEmpty(c.SliceTo), Daemons: []daemonModel{},
	}
	for _, d := range c.Daemons {
		out.Daemons = append(out.Daemons, daemonModel{Name: d.Name, Action: string(d.Action), Clients: append([]string{}, d.Clients...)})
	}
	return out
}

func sharingAttribute() schema.Attribute {
	return tfschema.ComputedObject("The change of MPS or time-slicing, inside of MIG instances too; "+
		"null when there is none.", tfschema.Attributes{
		"from_compute_mode": tfschema.ComputedText("The compute mode now; null when it stays."),
		"to_compute_mode":   tfschema.ComputedText("The compute mode that the GPU would get; null when it stays."),
		"from_time_slice":   tfschema.ComputedText("The time slice now; null when it stays."),
		"to_time_slice":     tfschema.ComputedText("The time slice that the GPU would get; null when it stays."),
		"mps_daemons": tfschema.ComputedList("The MPS daemons of the GPU that change.", tfschema.Attributes{
			"name": tfschema.ComputedText("The daemon's name."), "action": tfschema.ComputedText("`start`, `restart` or `remove`."),
			"clients": tfschema.ComputedListOf(types.StringType, "The processes that end with it."),
		}),
	})
}
