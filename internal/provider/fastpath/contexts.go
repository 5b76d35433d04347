package fastpath

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
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
	stuck func()

	mu  sync.Mutex
	now *run
}

// run is the time until Terraform stops the provider.
type run struct {
	context.Context
	stop  context.CancelFunc
	asked atomic.Int64 // calls under way that change nothing
}

func newRun() *run {
	r := &run{}
	r.Context, r.stop = context.WithCancel(context.Background())
	return r
}

// InContext serves with contexts that end where Terraform stops the provider. With logs they keep the loggers of the calls. Stuck is
// called where a call goes on that was stopped and changes nothing; nil for nothing.
func InContext(served Served, logs bool, closes func() error, stuck func()) Served {
	return &contexts{Served: served, logs: logs, close: closes, stuck: stuck, now: newRun()}
}

// Close hangs up on all hosts. A process that serves the provider need not: it ends.
func (s *contexts) Close() error { return s.close() }

// during is the run of a call, with a context that ends with both.
func (s *contexts) during(call context.Context) (r *run, ctx context.Context, end func()) {
	s.mu.Lock()
	r = s.now
	s.mu.Unlock()
	from, other := context.Context(r), call
	if s.logs {
		from, other = call, r
	}
	ctx, cancel := context.WithCancel(from)
	stop := context.AfterFunc(other, cancel)
	return r, ctx, func() { stop(); cancel() }
}

// toEnd is how long a call may go on after it was stopped.
const toEnd = time.Second

// StopProvider ends all calls. Terraform waits for an answer to each before it ends the provider, even if somebody has asked it to end:
// one that does not look whether it was stopped would keep both.
func (s *contexts) StopProvider(call context.Context, r *tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	s.mu.Lock()
	was := s.now
	s.now = newRun()
	s.mu.Unlock()
	was.stop()
	if s.stuck != nil {
		time.AfterFunc(toEnd, func() {
			if was.asked.Load() > 0 {
				s.stuck()
			}
		})
	}
	return s.Served.StopProvider(call, r)
}

// asks makes a call that changes nothing.
func asks[R, A any](call context.Context, s *contexts, do func(context.Context, *R) (*A, error), r *R) (*A, error) {
	run, ctx, end := s.during(call)
	defer end()
	run.asked.Add(1)
	defer run.asked.Add(-1)
	return do(ctx, r)
}

func (s *contexts) ValidateResourceConfig(
	call context.Context, r *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return asks(call, s, s.Served.ValidateResourceConfig, r)
}

func (s *contexts) UpgradeResourceState(
	call context.Context, r *tfprotov6.UpgradeResourceStateRequest,
) (*tfprotov6.UpgradeResourceStateResponse, error) {
	return asks(call, s, s.Served.UpgradeResourceState, r)
}

func (s *contexts) ReadResource(call context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return asks(call, s, s.Served.ReadResource, r)
}

func (s *contexts) PlanResourceChange(
	call context.Context, r *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	return asks(call, s, s.Served.PlanResourceChange, r)
}

func (s *contexts) ImportResourceState(
	call context.Context, r *tfprotov6.ImportResourceStateRequest,
) (*tfprotov6.ImportResourceStateResponse, error) {
	return asks(call, s, s.Served.ImportResourceState, r)
}

func (s *contexts) ReadDataSource(call context.Context, r *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	return asks(call, s, s.Served.ReadDataSource, r)
}

func (s *contexts) CallFunction(call context.Context, r *tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	return asks(call, s, s.Served.CallFunction, r)
}

// ApplyResourceChange changes something: what it has begun it brings to an end, or puts back, however long that takes.
func (s *contexts) ApplyResourceChange(
	call context.Context, r *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	_, ctx, end := s.during(call)
	defer end()
	return s.Served.ApplyResourceChange(ctx, r)
}
