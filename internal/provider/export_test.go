package provider

import "github.com/hashicorp/terraform-plugin-framework/provider"

// New makes the provider. The observer may be nil.
func New(version string, observe Observer, options ...Option) func() provider.Provider {
	return func() provider.Provider { return newProvider(version, observe, options...) }
}
