package scope

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// DismountType is the type of Dismount.
var DismountType = map[string]attr.Type{"force": types.BoolType}

// Dismount is how GPUs are dismounted from their host.
func Dismount(where string) schema.SingleNestedAttribute {
	return tfschema.OptionalObject("How GPUs are dismounted from the host."+where, tfschema.Attributes{
		"force": tfschema.OptionalFlag("Dismounts without the platform's checks (ACS, device mitigations). " +
			"NVIDIA GPUs without their mitigation driver need it. Default `false`."),
	})
}

// Forced is the reverse of ByForce.
func Forced(force bool) types.Object {
	if !force {
		return types.ObjectNull(DismountType)
	}
	return types.ObjectValueMust(DismountType, map[string]attr.Value{"force": types.BoolValue(true)})
}

// ByForce tells whether dismounts skip the platform's checks.
func ByForce(dismount types.Object, diags *diag.Diagnostics) bool {
	d := object.Decode[struct {
		Force types.Bool `tfsdk:"force"`
	}](dismount, diags)
	return d != nil && d.Force.ValueBool()
}
