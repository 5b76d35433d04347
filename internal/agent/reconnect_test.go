package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestSameAgentNewConnection has a run come back to an agent that serves many
// connections, while that agent still puts back the change whose connection broke. The
// run must not go on before it has ended: it would take a host in between for the result.
func TestSameAgentNewConnection(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	before := r.look()
	conn, err := connect.InProcess(r.ending.server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	again := agent.NewClient(conn, host)

	back, broke := make(chan error, 1), make(chan struct{})
	var found gpu.Host
	r.breaker.hook = func(write string) {
		if write != "add adapter" {
			return
		}
		go func() {
			_ = r.Close() // waits for the calls
			close(broke)
		}()
		r.ending.wait(t)
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			_, err := again.AcquireLease(context.Background(), lease("run-1"))
			found = r.look()
			back <- err
		}()
		select {
		case <-returned: // too early
		case <-time.After(100 * time.Millisecond):
		}
	}
	_, err = r.apply(assign("a", "vm1", nil, partitionOf(run1, nil)))
	if err == nil {
		t.Fatal("the change succeeded")
	}
	<-broke
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	wantSame(t, before, found)
	r.wantJournal(0)
}

// TestClusterLeaseOutlivesTheOldProcess has a run come back through a new process on a
// clustered host. The old one ends its change and gives its leases back; the run must
// keep those that the new one has asked for meanwhile.
func TestClusterLeaseOutlivesTheOldProcess(t *testing.T) {
	n := newNodes(t)
	n.fence = n.enters("run-1")
	old := n.ending.server
	request := inCluster("run-1")
	request.Wait = patience

	fence, broke := make(chan int64, 1), make(chan struct{})
	again := newClientOn(t, n.rig)
	n.breaker.hook = func(write string) {
		if write != "add adapter" {
			return
		}
		go func() {
			_ = n.Close() // waits for the calls
			close(broke)
		}()
		n.ending.wait(t)
		go func() {
			got, err := again.AcquireLease(context.Background(), request)
			if err != nil {
				t.Errorf("the run could not come back: %v", err)
			}
			fence <- got
		}()
		until(t, "the new process has asked for the cluster's lease", func() bool {
			l := n.clusterLease()
			return l != nil && len(l.Hosts) == 2
		})
	}
	if _, err := n.apply(assign("a", "vm3", nil, partitionOf(off1, nil))); err == nil {
		t.Fatal("the change succeeded")
	}
	<-broke
	if err := old.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := <-fence
	if _, err := again.Apply(t.Context(), got, assign("b", "vm3", nil, partitionOf(off1, nil)), "", nil); err != nil {
		t.Errorf("the run that came back could not go on: %v", err)
	}
	if err := again.ReleaseLease(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if l := n.clusterLease(); l != nil {
		t.Errorf("the cluster's lease stands: %+v", l)
	}
}

// TestNewProcessThatGivesUpTakesNothing has the new process of a run wait in vain for
// the old one: what the old one still needs for its change stays.
func TestNewProcessThatGivesUpTakesNothing(t *testing.T) {
	n := newNodes(t)
	n.fence = n.enters("run-1")
	again := newClientOn(t, n.rig)
	var during error
	n.breaker.hook = func(write string) {
		if write == "add adapter" {
			_, during = again.AcquireLease(context.Background(), inCluster("run-1"))
		}
	}
	n.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
	heldBy(t, during)
	if err := n.ReleaseLease(t.Context(), n.fence); err != nil {
		t.Fatal(err)
	}
	if l := n.clusterLease(); l != nil {
		t.Errorf("the cluster's lease stands: %+v", l)
	}
}

// TestWaitingForTheHostKeepsTheCluster has a run that got the cluster wait for the host
// longer than the cluster's lease lives.
func TestWaitingForTheHostKeepsTheCluster(t *testing.T) {
	n := newNodes(t)
	long := lease("run-1")
	long.TTL = time.Hour
	held, err := n.AcquireLease(t.Context(), long)
	if err != nil {
		t.Fatal(err)
	}
	request := inCluster("run-2")
	request.Wait = patience
	fence := make(chan int64, 1)
	go func() {
		got, err := n.AcquireLease(context.Background(), request)
		if err != nil {
			t.Errorf("after the wait: %v", err)
		}
		fence <- got
	}()
	until(t, "run-2 has the cluster", func() bool { return n.clusterLease() != nil })
	for range 2 {
		n.clock.advance(40 * time.Second)
		until(t, "the cluster's lease is renewed", func() bool {
			l := n.clusterLease()
			return l != nil && l.Expires.Sub(n.clock.Now()) > 40*time.Second
		})
	}
	_, err = n.other.AcquireLease(t.Context(), inCluster("run-3"))
	if l := heldBy(t, err); l.Run != "run-2" {
		t.Errorf("the refusal names the lease %+v", l)
	}
	if err := n.ReleaseLease(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	n.fence = <-fence
	n.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
}

// until waits for something that has to happen by itself: what a goroutine of the agent, which
// gRPC keeps out of bubbles, writes to the records.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("it did not happen that %s", what)
			return
		}
	}
}
