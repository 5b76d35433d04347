package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// RefuseEmptied is a server that refuses empty objects as the provider's own does.
func RefuseEmptied(framework tfprotov6.ProviderServer) tfprotov6.ProviderServer {
	return newEmptied(framework.(Served)) //nolint:forcetypeassert // of the framework, whose server is that
}

// New makes the provider. The observer may be nil.
func New(version string, observe Observer, options ...Option) func() provider.Provider {
	return func() provider.Provider { return newProvider(version, observe, options...) }
}
