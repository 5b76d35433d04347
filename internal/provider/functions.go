package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/provider"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/functions"
)

var _ provider.ProviderWithFunctions = (*gpuProvider)(nil)

func (p *gpuProvider) Functions(context.Context) []func() function.Function {
	return []func() function.Function{
		functions.NewDevicePluginConfig,
		functions.NewDRAResources,
		functions.NewFromMIGParted,
		functions.NewMIGPartedConfig,
		functions.NewSlurmGres,
	}
}
