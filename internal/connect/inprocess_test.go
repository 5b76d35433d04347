package connect_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// slow is a service whose calls end when it is told.
type slow struct {
	*health.Server
	begun, end chan struct{}
}

func (s *slow) Register(r grpc.ServiceRegistrar) { healthpb.RegisterHealthServer(r, s) }

func (s *slow) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	close(s.begun)
	<-s.end
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// TestCloseWaits checks that closing waits for a call in progress, so that a change
// is not abandoned half done.
func TestCloseWaits(t *testing.T) {
	s := &slow{Server: health.NewServer(), begun: make(chan struct{}), end: make(chan struct{})}
	conn, err := connect.InProcess(s)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
		answered <- err
	}()
	<-s.begun
	closed := make(chan error, 1)
	go func() { closed <- conn.Close() }()
	if err := <-answered; err == nil {
		t.Error("the call succeeded although the connection was closed")
	}
	select {
	case err := <-closed:
		t.Fatalf("closed with a call in progress: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(s.end)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}
