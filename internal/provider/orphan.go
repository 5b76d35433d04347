package provider

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
)

// Serve serves the provider until Terraform ends it, or is gone.
func Serve(version string) error {
	if err := keepQuiet(); err != nil {
		return err
	}
	defer runtime.KeepAlive(collectSeldom())
	var applying atomic.Int64
	var ended *gpuProvider
	server, err := Server(version, nil, func(p *gpuProvider) {
		ended, p.stuck = p, func() { endOnceApplied(&applying) }
	})
	if err != nil {
		return err
	}
	go endWithParent(&applying)
	err = tf6server.Serve(Address, func() tfprotov6.ProviderServer {
		return &countedServer{Served: server(), applying: &applying}
	})
	// Terraform has closed the provider, and kills its process two seconds later.
	return errors.Join(err, ended.reportPlan())
}

// Debug serves the provider until it is interrupted, and prints how to reach it.
func Debug(version string) error {
	var ended *gpuProvider
	server, err := Server(version, nil, func(p *gpuProvider) { ended = p })
	if err != nil {
		return err
	}
	err = tf6server.Serve(Address, func() tfprotov6.ProviderServer { return server() }, tf6server.WithManagedDebug())
	return errors.Join(err, ended.reportPlan())
}

// endWithParent ends the process when its parent is gone. go-plugin (v1.7.0) does not: a
// provider whose Terraform was killed would live on for ever, with its connections to
// hosts and what they hold there. What is being applied was cancelled with the connection
// to Terraform, and is put back first.
func endWithParent(applying *atomic.Int64) {
	waitForParent()
	endOnceApplied(applying)
}

// endOnceApplied ends the process when nothing is being applied.
func endOnceApplied(applying *atomic.Int64) {
	for applying.Load() > 0 {
		time.Sleep(parentPoll)
	}
	os.Exit(1)
}

// parentPoll is how often it is looked whether something is still as it was.
const parentPoll = 500 * time.Millisecond

// countedServer counts the changes that are being applied.
type countedServer struct {
	Served
	applying *atomic.Int64
}

func (s *countedServer) ApplyResourceChange(
	ctx context.Context, r *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	s.applying.Add(1)
	defer s.applying.Add(-1)
	return s.Served.ApplyResourceChange(ctx, r)
}

func (s *countedServer) InvokeAction(ctx context.Context, r *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	stream, err := s.Served.InvokeAction(ctx, r)
	if stream != nil { // the action runs while its events are read
		events := stream.Events
		stream.Events = func(push func(tfprotov6.InvokeActionEvent) bool) {
			s.applying.Add(1)
			defer s.applying.Add(-1)
			events(push)
		}
	}
	return stream, err
}
