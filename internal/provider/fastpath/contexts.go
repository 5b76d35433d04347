package fastpath

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// contexts gives the calls of one server their contexts, and ends them once Terraform stops the provider.
//
// The framework remembers the context of every call until the process ends, with the call's loggers and stream: thousands of
// resources cost hundreds of MiB. One context for all calls, each cancelled on its own, keeps that small, and without loggers
// nothing is made ready for them. Where logs are wanted, the loggers come with the context of the call, which stays.
type contexts struct {
	Served
	logs  bool
	close func() error

	mu   sync.Mutex
	base context.Context
	stop context.CancelFunc
}

// InContext serves with contexts that end where Terraform stops the provider. With logs they keep the loggers of the calls.
func InContext(served Served, logs bool, closes func() error) Served {
	s := &contexts{Served: served, logs: logs, close: closes}
	s.base, s.stop = context.WithCancel(context.Background())
	return s
}

// Close hangs up on all hosts. A process that serves the provider need not: it ends.
func (s *contexts) Close() error { return s.close() }

// context is the context of a call, which ends with the call and with the provider.
func (s *contexts) context(call context.Context) (ctx context.Context, end func()) {
	s.mu.Lock()
	base := s.base
	s.mu.Unlock()
	from, other := base, call
	if s.logs {
		from, other = call, base
	}
	ctx, cancel := context.WithCancel(from)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}

func (s *contexts) StopProvider(call context.Context, r *tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	s.mu.Lock()
	s.stop()
	s.base, s.stop = context.WithCancel(context.Background())
	s.mu.Unlock()
	return s.Served.StopProvider(call, r)
}

// toEnd is how long a call may go on after it was stopped.
const toEnd = time.Second

// stoppable makes a call that changes nothing, and gives it up where it does not look whether it was stopped: Terraform waits for an
// answer to each call before it ends the provider, even if somebody has asked it to end.
func stoppable[R, A any](call context.Context, s *contexts, do func(context.Context, *R) (*A, error), r *R) (*A, error) {
	type answer struct {
		of       *A
		err      error
		panicked *crash
	}
	ctx, end := s.context(call)
	defer end()
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if p := recover(); p != nil {
				a.panicked = &crash{p, debug.Stack()}
			}
			answers <- a
		}()
		a.of, a.err = do(ctx, r)
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		select {
		case a = <-answers:
		case <-time.After(toEnd):
			return nil, status.Error(codes.Canceled, "the provider was stopped before it had an answer")
		}
	}
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.of, a.err
}

// crash is a panic with the stack that it had.
type crash struct {
	of    any
	stack []byte
}

func (c *crash) Error() string { return fmt.Sprintf("%v\n\n%s", c.of, c.stack) }

func (s *contexts) ValidateResourceConfig(call context.Context, r *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return stoppable(call, s, s.Served.ValidateResourceConfig, r)
}

func (s *contexts) UpgradeResourceState(call context.Context, r *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	return stoppable(call, s, s.Served.UpgradeResourceState, r)
}

func (s *contexts) ReadResource(call context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return stoppable(call, s, s.Served.ReadResource, r)
}

func (s *contexts) PlanResourceChange(call context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	return stoppable(call, s, s.Served.PlanResourceChange, r)
}

func (s *contexts) ImportResourceState(call context.Context, r *tfprotov6.ImportResourceStateRequest) (*tfprotov6.ImportResourceStateResponse, error) {
	return stoppable(call, s, s.Served.ImportResourceState, r)
}

func (s *contexts) ReadDataSource(call context.Context, r *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	return stoppable(call, s, s.Served.ReadDataSource, r)
}

func (s *contexts) CallFunction(call context.Context, r *tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	return stoppable(call, s, s.Served.CallFunction, r)
}

// ApplyResourceChange is never given up: what it has begun it brings to an end, or puts back.
func (s *contexts) ApplyResourceChange(call context.Context, r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	ctx, end := s.context(call)
	defer end()
	return s.Served.ApplyResourceChange(ctx, r)
}
