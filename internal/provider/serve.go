package provider

import (
	"context"
	"os"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// Server makes the protocol server of the provider.
//
// The framework (v1.19.0) remembers the context of every call until the process
// ends, with the call's loggers and stream: thousands of resources cost hundreds of
// MiB. One context for all calls, each cancelled on its own, keeps that small. With
// TF_LOG set the contexts stay as they are, since the loggers in them are wanted.
func Server(version string, observe Observer, options ...Option) (func() tfprotov6.ProviderServer, error) {
	p := New(version, observe, options...)()
	inner, err := providerserver.NewProtocol6WithError(p)()
	if err != nil {
		return nil, err
	}
	if os.Getenv("TF_LOG") != "" || os.Getenv("TF_LOG_PROVIDER") != "" {
		return func() tfprotov6.ProviderServer { return inner }, nil
	}
	return func() tfprotov6.ProviderServer { return &sharedContext{ProviderServer: inner, provider: p} }, nil
}

// sharedContext gives all calls of one server contexts made from the first call's.
type sharedContext struct {
	tfprotov6.ProviderServer
	provider provider.Provider
	once     sync.Once
	base     context.Context
}

// Close hangs up on all hosts. A process that serves the provider need not: it ends.
func (s *sharedContext) Close() error {
	if p, ok := s.provider.(*gpuProvider); ok && p.fleet != nil {
		return p.fleet.Close()
	}
	return nil
}

func (s *sharedContext) from(call context.Context) (context.Context, func()) {
	s.once.Do(func() { s.base = context.WithoutCancel(call) })
	ctx, cancel := context.WithCancel(s.base)
	stop := context.AfterFunc(call, cancel)
	return ctx, func() { stop(); cancel() }
}

func (s *sharedContext) ValidateResourceConfig(call context.Context, r *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	ctx, done := s.from(call)
	defer done()
	return s.ProviderServer.ValidateResourceConfig(ctx, r)
}

func (s *sharedContext) UpgradeResourceState(call context.Context, r *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	ctx, done := s.from(call)
	defer done()
	return s.ProviderServer.UpgradeResourceState(ctx, r)
}

func (s *sharedContext) ReadResource(call context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	ctx, done := s.from(call)
	defer done()
	return s.ProviderServer.ReadResource(ctx, r)
}

func (s *sharedContext) PlanResourceChange(call context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	ctx, done := s.from(call)
	defer done()
	return s.ProviderServer.PlanResourceChange(ctx, r)
}

func (s *sharedContext) ApplyResourceChange(call context.Context, r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	ctx, done := s.from(call)
	defer done()
	return s.ProviderServer.ApplyResourceChange(ctx, r)
}
