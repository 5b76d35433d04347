package agent_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// ending is an agent that tells when it has heard that a change shall end: it was
// asked to cancel it, or the connection is gone. A test that only slept would
// sometimes be too fast for it.
type ending struct {
	server *agent.Server
	once   sync.Once
	heard  chan struct{}
}

func (e *ending) Register(r grpc.ServiceRegistrar) {
	e.server.Register(&tap{ServiceRegistrar: r, ending: e})
}

func (e *ending) hear() { e.once.Do(func() { close(e.heard) }) }

func (e *ending) wait(t *testing.T) {
	t.Helper()
	select {
	case <-e.heard:
	case <-time.After(patience):
		t.Error("the agent did not hear that the change shall end")
	}
}

// tap listens to the calls of a service.
type tap struct {
	grpc.ServiceRegistrar
	ending *ending
}

func (t *tap) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d := *desc
	d.Methods, d.Streams = slices.Clone(desc.Methods), slices.Clone(desc.Streams)
	for i, m := range d.Methods {
		if m.MethodName == "Cancel" {
			d.Methods[i].Handler = func(srv any, ctx context.Context, dec func(any) error, in grpc.UnaryServerInterceptor) (any, error) {
				defer t.ending.hear()
				return m.Handler(srv, ctx, dec, in)
			}
		}
	}
	for i, s := range d.Streams {
		d.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
			ctx, end := context.WithCancel(context.WithoutCancel(stream.Context()))
			defer end()
			defer context.AfterFunc(stream.Context(), func() {
				end() // what the agent made of it has ended too when this returns
				t.ending.hear()
			})()
			return s.Handler(srv, tapped{stream, ctx})
		}
	}
	t.ServiceRegistrar.RegisterService(&d, impl)
}

// tapped is a stream with a context of its own.
type tapped struct {
	grpc.ServerStream
	ctx context.Context
}

func (t tapped) Context() context.Context { return t.ctx }
