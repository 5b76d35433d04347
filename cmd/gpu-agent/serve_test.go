package main_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// slow is a host whose VM takes its time to stop and to start.
func (r *rig) slow() {
	r.t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(r.file()), &doc); err != nil {
		r.t.Fatal(err)
	}
	hosts, _ := doc["hosts"].([]any)
	fields, ok := hosts[0].(map[string]any)
	if !ok {
		r.t.Fatal("the fleet has no host")
	}
	fields["simulation"] = map[string]any{"latency_ms": map[string]int{"shut_down_vm": 400, "start_vm": 400}}
	data, err := json.Marshal(doc)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.fleet.Path(), data, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// assignment gives the VM, which runs, a partition.
func assignment() agent.Change {
	return agent.Change{
		ID: "change-1", Host: "hv01",
		Change: change.Change{
			Subject: "gpu_vm_assignment for VM \"avd-01\"", Owner: "vdi-prod", Token: "token-1",
			Want: gpu.Want{
				Assignment: &gpu.Assignment{
					Kind: gpu.AssignPartition, VM: "avd-01", VMID: vm1, VMName: "avd-01", Host: "hv01", Partition: &gpu.PartitionWant{},
					Power: gpu.Power{AllowShutdown: true},
				},
			},
		},
	}
}

func lease(run string) agent.LeaseRequest {
	return agent.LeaseRequest{Run: run, Owner: "vdi-prod", Holder: "tester", TTL: 2 * time.Second, Wait: patience, Cluster: true}
}

// dial starts the agent as a child.
func (r *rig) dial(args ...string) *agent.Client {
	r.t.Helper()
	conn, err := connect.Process(r.t.Context(), "hv01",
		connect.Command{Path: binary, Args: append([]string{"serve", "--stdio"}, args...), Env: r.env}, connect.Options{Version: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	c := agent.NewClient(conn, "hv01")
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *rig) settled() bool {
	r.t.Helper()
	s, err := r.host().Load(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return len(s.Journal) == 0 && s.Lease == nil
}

// serving is an agent whose process the test has in its hands, with its change on the
// way: its VM is being shut down.
func (r *rig) serving(t *testing.T) (cmd *exec.Cmd, hangUp func()) {
	t.Helper()
	r.slow()
	cmd = r.command("serve", "--stdio")
	cmd.SysProcAttr = asJob()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	greeting := make([]byte, len(connect.Preamble))
	if _, err := stdout.Read(greeting); err != nil || string(greeting) != connect.Preamble {
		t.Fatalf("the agent greets with %q, %v", greeting, err)
	}
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return connect.Pipe(stdout, stdin), nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := agent.NewClient(conn, "hv01")
	fence, err := client.AcquireLease(t.Context(), lease("run-1"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = client.Apply(context.Background(), fence, assignment(), "", nil) }() // its end is seen on the host
	eventually(t, "the VM is being shut down", func() bool {
		s, err := r.host().Load(t.Context())
		return err == nil && len(s.Journal) > 0
	})
	return cmd, func() { _, _ = stdin.Close(), stdout.Close() }
}

// wantEnd waits for an agent that must end by itself.
func wantEnd(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the agent ended with: %v", err)
	}
}

// TestServeOutlivesItsSession ends the session in several ways while the VM is shut
// down for a change. The agent starts the VM again, and ends.
func TestServeOutlivesItsSession(t *testing.T) {
	t.Parallel()
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cmd, hangUp := r.serving(t)
			end(t, cmd, hangUp)
			eventually(t, "the change is settled, and nobody holds the lease", r.settled)
			if s := r.vmState(); s != gpu.VMRunning {
				t.Errorf("the VM is %s", s)
			}
			h, err := r.host().Inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if vm, _ := h.VM(vm1); len(vm.PartitionAdapters) > 0 {
				t.Errorf("the VM keeps %+v", vm.PartitionAdapters)
			}
		})
	}
}

// killed leaves a VM off: the agent is killed in the middle of its change.
func (r *rig) killed(t *testing.T) {
	t.Helper()
	r.env = append(r.env, inOneProcess)
	cmd, hangUp := r.serving(t)
	eventually(t, "the VM is off", func() bool { return r.vmState() == gpu.VMOff })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	hangUp()
}

// TestReconcile repairs what an agent left that was killed.
func TestReconcile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.killed(t)
	if s := r.vmState(); s != gpu.VMOff {
		t.Fatalf("the VM is %s", s)
	}
	eventually(t, "the lease of the agent that was killed has expired", func() bool {
		s, err := r.host().Load(t.Context())
		return err == nil && s.Lease != nil && s.Lease.Expires.Before(time.Now())
	})
	out, _ := r.run(1, "selftest")
	wantSaid(t, out, "failed  journal: a run that has ended left 1 changes unsettled", "gpu-agent reconcile")
	got, _ := r.run(0, "reconcile", "--timeout", "30s")
	wantSaid(t, got, "gpu_vm_assignment for VM \"avd-01\": put back")
	if s := r.vmState(); s != gpu.VMRunning || !r.settled() {
		t.Errorf("the VM is %s, settled %t", s, r.settled())
	}
	got, _ = r.run(0, "reconcile")
	wantSaid(t, got, "nothing to settle")
}

// TestAServiceSettlesWhatIsStillHeld starts after a failure that left a lease with time to live:
// the service listens at once, and settles when that is over.
func TestAServiceSettlesWhatIsStillHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.killed(t)
	s, err := r.host().Load(t.Context())
	if err != nil || s.Lease == nil {
		t.Fatalf("no lease is left: %+v, %v", s, err)
	}
	life := s.Lease.TTL - 4*time.Second
	s.Lease.TTL, s.Lease.Expires, s.Lease.Ends = 4*time.Second, s.Lease.Expires.Add(-life), s.Lease.Ends-life
	if err := r.host().Update(t.Context(), func(st *backend.State) error { st.Lease = s.Lease; return nil }); err != nil {
		t.Fatal(err)
	}
	r.listen(newCA(t))
	eventually(t, "the VM runs and nothing is left", func() bool { return r.vmState() == gpu.VMRunning && r.settled() })
}

// TestReconcileGivesUp waits for a run that is at work only as long as it is told.
func TestReconcileGivesUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.dial()
	req := lease("run-1")
	req.TTL = time.Hour
	if _, err := c.AcquireLease(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	_, said := r.run(1, "reconcile", "--timeout", "2s")
	wantSaid(t, said, "tester", "run-1")
}

// TestTwoAgentsOnOneHost take turns by the lease.
func TestTwoAgentsOnOneHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, two := r.dial(), r.dial()
	fence, err := one.AcquireLease(t.Context(), lease("run-1"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { _, err := two.AcquireLease(context.Background(), lease("run-2")); got <- err }()
	select {
	case err := <-got:
		t.Fatalf("two runs have the lease: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := one.ReleaseLease(t.Context(), fence); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := two.Close(); err != nil {
		t.Error(err)
	}
	// Its lease went back with it.
	if _, err := one.AcquireLease(t.Context(), lease("run-3")); err != nil {
		t.Error(err)
	}
}

func TestServeAsReader(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.dial("--role", "reader")
	h, err := c.Hello(t.Context())
	if err != nil || h.Role != agent.Reader || h.AgentVersion != "1.2.3" {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := c.Inventory(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.AcquireLease(t.Context(), lease("run-1")); err == nil || !strings.Contains(err.Error(), "role reader") {
		t.Errorf("a reader got the lease: %v", err)
	}
}
