// Package provider is how other programs than Terraform get this provider: muxes, Pulumi's bridge and Crossplane's upjet.
package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/provider"

	gpu "github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// New makes providers of a version, each with hosts and a plan of its own: one for each server, or each configuration, that is served.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return gpu.Framework(version) }
}
