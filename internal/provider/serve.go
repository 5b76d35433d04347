package provider

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// Server makes the protocol server of the provider.
//
// The framework (v1.19.0) remembers the context of every call until the process
// ends, with the call's loggers and stream: thousands of resources cost hundreds of
// MiB. One context for all calls, each cancelled on its own, keeps that small, and without loggers
// nothing is made ready for them. Where logs are wanted, contexts and calls go to the framework as they come.
func Server(version string, observe Observer, options ...Option) (func() Served, error) {
	p := newProvider(version, observe, options...)
	made, err := providerserver.NewProtocol6WithError(p)()
	if err != nil {
		return nil, err
	}
	served, ok := made.(Served)
	if !ok {
		return nil, errors.New("the framework's server has no lists or no actions")
	}
	if logsWanted() {
		all := &walks{wholeNumbers: newWholeNumbers(p, served), provider: p}
		return func() Served { return plainly{all} }, nil
	}
	all := &walks{wholeNumbers: newWholeNumbers(p, newDirect(p, served)), provider: p}
	return func() Served {
		s := &sharedContext{Served: all, provider: p}
		s.base, s.stop = context.WithCancel(context.Background())
		return plainly{s}
	}, nil
}

// Served is what is served. The framework keeps lists and actions apart from the rest of the
// protocol yet.
type Served interface {
	tfprotov6.ProviderServer
	tfprotov6.ListResourceServer
	tfprotov6.ActionServer
}

// logLevel is what Terraform was told to log of providers, in capitals; "" for nothing.
func logLevel() string {
	level := strings.ToUpper(cmp.Or(os.Getenv("TF_LOG_PROVIDER"), os.Getenv("TF_LOG")))
	if level == "OFF" {
		return ""
	}
	return level
}

// logsWanted is that somebody may read what the SDK and the framework log.
func logsWanted() bool {
	sdk := strings.ToUpper(os.Getenv("TF_LOG_SDK"))
	return logLevel() != "" || sdk != "" && sdk != "OFF"
}

// keepQuiet turns off what the SDK and the framework log of every call, unless somebody
// reads it. By themselves they format all of it, and Terraform parses it, before either
// looks whether TF_LOG is set: half the time of a plan without changes.
func keepQuiet() error {
	if _, chosen := os.LookupEnv("TF_LOG_SDK"); chosen || logLevel() != "" {
		return nil
	}
	return os.Setenv("TF_LOG_SDK", "OFF")
}

// collectSeldom paces the garbage collector, which runs where the heap has grown by a part of what is kept: often in a
// small plan, and late in a large one. With the ballast, for which no memory is taken since nobody touches it, and a smaller
// part than the usual, 20 MiB may grow by 46, and 170 by 136.
func collectSeldom() (ballast []byte) {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	debug.SetGCPercent(60)
	return make([]byte, 56<<20)
}

// sharedContext gives all calls of one server contexts made from one, until Terraform stops them.
type sharedContext struct {
	Served
	provider *gpuProvider
	mu       sync.Mutex
	base     context.Context
	stop     context.CancelFunc
}

// Close hangs up on all hosts. A process that serves the provider need not: it ends.
func (s *sharedContext) Close() error { return s.provider.Close() }

// within makes a call in a context of its own.
func within[R, A any](call context.Context, s *sharedContext, do func(context.Context, *R) (*A, error), r *R) (*A, error) {
	s.mu.Lock()
	ctx, cancel := context.WithCancel(s.base)
	s.mu.Unlock()
	defer cancel()
	defer context.AfterFunc(call, cancel)()
	return do(ctx, r)
}

func (s *sharedContext) StopProvider(call context.Context, r *tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	s.mu.Lock()
	s.stop()
	s.base, s.stop = context.WithCancel(context.Background())
	s.mu.Unlock()
	return s.Served.StopProvider(call, r)
}

func (s *sharedContext) ValidateResourceConfig(call context.Context, r *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return within(call, s, s.Served.ValidateResourceConfig, r)
}

func (s *sharedContext) UpgradeResourceState(call context.Context, r *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	return within(call, s, s.Served.UpgradeResourceState, r)
}

func (s *sharedContext) ReadResource(call context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return within(call, s, s.Served.ReadResource, r)
}

func (s *sharedContext) PlanResourceChange(call context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	return within(call, s, s.Served.PlanResourceChange, r)
}

func (s *sharedContext) ApplyResourceChange(call context.Context, r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	return within(call, s, s.Served.ApplyResourceChange, r)
}
