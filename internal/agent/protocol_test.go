package agent_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
)

func TestVersionMismatch(t *testing.T) {
	r := newRig(t, nil)
	conn, err := connect.InProcess(agent.NewServer(r.sim, r.sim))
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = agentpb.NewAgentClient(conn).Hello(t.Context(), &agentpb.HelloRequest{Protocol: 99, ClientVersion: "v9.9"})
	if st := status.Convert(err); st.Code() != codes.FailedPrecondition || !strings.Contains(st.Message(), "v9.9") || !strings.Contains(st.Message(), "99") {
		t.Errorf("error = %v", err)
	}
}

// TestConnectionGone calls a host whose connection is closed.
func TestConnectionGone(t *testing.T) {
	r := newRig(t, nil)
	check(t, r.Close())
	check(t, r.Close()) // twice is fine
	_, err := r.Inventory(t.Context())
	var e *agent.Error
	if !errors.As(err, &e) || e.Host != host {
		t.Fatalf("error = %v", err)
	}
	_, err = r.Client.Apply(t.Context(), r.fence, assign("a", "t", nil, partitionOf(off1, nil)), "", nil)
	if !errors.As(err, &e) || e.Outcome != nil {
		t.Errorf("error = %v", err)
	}
}

// TestNoServer calls a server that does not speak the contract.
func TestNoServer(t *testing.T) {
	conn, err := connect.InProcess()
	check(t, err)
	c := agent.NewClient(conn, host)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Hello(t.Context())
	wantKind(t, err, agent.VersionMismatch)
}
