package connect_test

import (
	"context"
	"runtime"
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

// A simulated fleet has a connection for each host. Bytes are counted, all that opening one and
// asking over it allocates: 62 KiB, and 246 KiB with the usual buffers.
func TestConnectionsInProcessAreSmall(t *testing.T) {
	const many, most = 20, 100 << 10
	open := func() {
		conn, err := connect.InProcess(healthService{health.NewServer()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	open() // what gRPC makes once
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range many {
		open()
	}
	runtime.ReadMemStats(&after)
	each := (after.TotalAlloc - before.TotalAlloc) / many
	t.Logf("%d KiB for each connection", each>>10)
	if each > most {
		t.Errorf("a connection takes %d KiB, over %d", each>>10, most>>10)
	}
}

type healthService struct{ *health.Server }

func (s healthService) Register(r grpc.ServiceRegistrar) { healthpb.RegisterHealthServer(r, s) }
