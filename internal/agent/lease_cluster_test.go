package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// nodes are the hosts of a cluster, each with an agent of its own.
type nodes struct {
	*rig  // hv01
	other *rig
}

func newNodes(t *testing.T, edit ...func(first, second *gpu.Host)) nodes {
	t.Helper()
	cluster := &gpu.Cluster{Name: "cl1", Nodes: []gpu.Node{{Name: host, State: gpu.NodeUp}, {Name: "hv02", State: gpu.NodeUp}}}
	first, second := testHost(), testHost()
	first.Cluster, second.Cluster, second.Name = cluster, cluster, "hv02"
	for i := range second.VMs {
		second.VMs[i].ID = "D" + second.VMs[i].ID[1:]
	}
	for _, e := range edit {
		e(&first, &second)
	}
	fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{first, second}})
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{now: time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)}
	var rigs []*rig
	for _, name := range []string{host, "hv02"} {
		sim, err := fleet.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, fleet: fleet, sim: sim, clock: c}
		r.start()
		rigs = append(rigs, r)
	}
	return nodes{rig: rigs[0], other: rigs[1]}
}

// clusterLease is what the nodes share.
func (n nodes) clusterLease() *backend.Lease {
	n.t.Helper()
	c, err := n.sim.Cluster(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	state, err := c.Store.Load(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	return state.Lease
}

func inCluster(run string) agent.LeaseRequest {
	req := lease(run)
	req.Cluster = true
	return req
}

func (r *rig) enters(run string) int64 {
	r.t.Helper()
	fence, err := r.AcquireLease(r.t.Context(), inCluster(run))
	if err != nil {
		r.t.Fatal(err)
	}
	return fence
}

// TestClusterLeaseIsOneRuns has two runs meet on different hosts of one cluster.
func TestClusterLeaseIsOneRuns(t *testing.T) {
	n := newNodes(t)
	ctx := t.Context()
	first := n.enters("run-1")
	_, err := n.other.AcquireLease(ctx, inCluster("run-2"))
	e := heldBy(t, err)
	if e.Run != "run-1" || e.Holder != "tester" || !e.Since.Equal(n.clock.Now()) {
		t.Errorf("the refusal names the lease %+v", e)
	}
	if l := n.other.state().Lease; l != nil {
		t.Errorf("the run that was refused left a lease on its host: %+v", l)
	}
	// A run that changes nothing of the cluster does not wait for it.
	alone, err := n.other.AcquireLease(ctx, lease("run-3"))
	if err != nil {
		t.Errorf("a lease of the host alone: %v", err)
	}
	if err := n.other.ReleaseLease(ctx, alone); err != nil {
		t.Fatal(err)
	}

	second := n.other.enters("run-1")
	if l := n.clusterLease(); l == nil || len(l.Hosts) != 2 || !strings.HasPrefix(l.Hosts[0], host+"/") ||
		!strings.HasPrefix(l.Hosts[1], "hv02/") {
		t.Fatalf("the cluster's lease is %+v", l)
	}
	if err := n.ReleaseLease(ctx, first); err != nil {
		t.Fatal(err)
	}
	_, err = n.AcquireLease(ctx, inCluster("run-2"))
	heldBy(t, err) // run-1 still has a host
	if err := n.other.ReleaseLease(ctx, second); err != nil {
		t.Fatal(err)
	}
	if l := n.clusterLease(); l != nil {
		t.Errorf("the last host did not give the cluster's lease back: %+v", l)
	}
	n.enters("run-2")
}

func TestClusterLeaseWaits(t *testing.T) {
	n := newNodes(t)
	fence := n.enters("run-1")
	req := inCluster("run-2")
	req.Wait = patience
	time.AfterFunc(50*time.Millisecond, func() { _ = n.ReleaseLease(context.Background(), fence) })
	if _, err := n.other.AcquireLease(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// TestClusterLeaseOfADeadRun lets a run die: its part in the cluster ends once another node
// has looked on for as long as it lives, and what it still sends to its host is refused.
func TestClusterLeaseOfADeadRun(t *testing.T) {
	n := newNodes(t)
	dead := n.enters("run-1")
	n.clock.advance(10 * time.Minute)
	n.other.waitsFor("run-1", "run-2", n.clock)
	before := n.look()
	ch := assign("late", "vm3", nil, partitionOf(off1, nil))
	// Nobody has taken the lease of the host, but that of the cluster.
	_, err := n.Client.Apply(t.Context(), dead, ch, "", nil)
	wantCode(t, err, agent.StaleFence)
	wantCode(t, n.ForgetClaim(t.Context(), dead, gpu.ClaimAssignment, off1), agent.StaleFence)
	wantSame(t, before, n.look())
	if err := n.ReleaseLease(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	if l := n.clusterLease(); l == nil || l.Run != "run-2" {
		t.Errorf("the dead run gave back the lease of the living: %+v", l)
	}
}

// waitsFor takes the lease of a cluster that a dead run has. It is refused for as long as a
// lease lives from now on, and not longer; the refusal says so by the clock of this node.
func (r *rig) waitsFor(dead, run string, clocks ...*clock) {
	r.t.Helper()
	free := r.clock.Now().Add(lease(dead).TTL)
	for left := lease(dead).TTL; left > 0; left -= 20 * time.Second {
		_, err := r.AcquireLease(r.t.Context(), inCluster(run))
		if l := heldBy(r.t, err); l.Run != dead || !l.Expires.Equal(free) || !strings.Contains(err.Error(), free.Format(time.RFC3339)) {
			r.t.Errorf("with %s left the refusal names %+v: %v", left, l, err)
		}
		for _, c := range clocks {
			c.advance(20 * time.Second)
		}
	}
	r.fence = r.enters(run)
}

// TestClusterLeaseOfThisNodeExpiresInTime has the time in a lease count on the node that has
// written it.
func TestClusterLeaseOfThisNodeExpiresInTime(t *testing.T) {
	n := newNodes(t)
	n.enters("run-1")
	n.clock.advance(61 * time.Second)
	n.restart("run-2")
}

// skews are how far the clock of a node is ahead of that of another one.
var skews = []time.Duration{
	-5 * time.Hour, -time.Hour, -90 * time.Second, -time.Second, 0, time.Second, 90 * time.Second, time.Hour, 5 * time.Hour,
}

// TestClocksOfNodes has two nodes whose clocks differ: neither takes the lease of a run that
// lives, and both that of one which is dead, once they have looked on for as long as it lives.
func TestClocksOfNodes(t *testing.T) {
	for _, skew := range skews {
		t.Run(skew.String(), func(t *testing.T) {
			n := newNodes(t)
			n.other.clock = &clock{now: n.clock.Now().Add(skew)}
			n.other.start()
			n.fence = n.enters("run-1")
			for range 90 { // half an hour, in which nothing but the lease is written
				_, err := n.other.AcquireLease(t.Context(), inCluster("run-2"))
				if l := heldBy(t, err); l.Run != "run-1" || l.Expires.Sub(n.other.clock.Now()) > time.Minute {
					t.Fatalf("the refusal names %+v", l)
				}
				n.clock.advance(20 * time.Second)
				n.other.clock.advance(20 * time.Second)
				n.renews()
			}
			n.done(assign("alive", "vm3", nil, partitionOf(off1, nil)))
			n.other.waitsFor("run-1", "run-2", n.clock, n.other.clock)
		})
	}
}

// renews does what the client of a run does all the time, under the lease alone.
func (r *rig) renews() {
	r.t.Helper()
	if _, err := r.Settle(r.t.Context(), r.fence, "none", true); err != nil {
		wantCode(r.t, err, agent.BadRequest)
	}
}

// TestClocksOfANodeThatLeaves has the node leave the run that wrote last until when the
// cluster's lease lives, by a clock that differs. The run lives on with the other node.
func TestClocksOfANodeThatLeaves(t *testing.T) {
	for _, skew := range skews {
		t.Run(skew.String(), func(t *testing.T) {
			n := newNodes(t)
			n.other.clock = &clock{now: n.clock.Now().Add(skew)}
			n.other.start()
			n.fence = n.enters("run-1")
			leaves := n.other.enters("run-1")
			check(t, n.other.ReleaseLease(t.Context(), leaves))

			for range 9 {
				for _, node := range []*rig{n.rig, n.other} { // another run on either node
					_, err := newClientOn(t, node).AcquireLease(t.Context(), inCluster("run-2"))
					heldBy(t, err)
				}
				n.clock.advance(20 * time.Second)
				n.other.clock.advance(20 * time.Second)
				n.renews()
			}
			n.other.waitsFor("run-1", "run-2", n.clock, n.other.clock)
		})
	}
}

// TestClusterLeaseLivesWithItsHosts has one host of a run at work for longer than the
// cluster's lease would live without it.
func TestClusterLeaseLivesWithItsHosts(t *testing.T) {
	n := newNodes(t)
	n.fence = n.enters("run-1")
	for i := range 4 {
		n.clock.advance(50 * time.Second)
		ch := assign(string(rune('a'+i)), "vm3", nil, partitionOf(off1, minVRAM(gpu.Bytes(i+1)*gpu.MiB*64)))
		if i > 0 {
			ch = assign(string(rune('a'+i)), "vm3", partitionOf(off1, minVRAM(gpu.Bytes(i)*gpu.MiB*64)),
				partitionOf(off1, minVRAM(gpu.Bytes(i+1)*gpu.MiB*64)))
		}
		n.done(ch)
	}
	_, err := n.other.AcquireLease(t.Context(), inCluster("run-2"))
	heldBy(t, err)
}

// TestHalfALeaseIsNone has the host's lease taken when the cluster's is free.
func TestHalfALeaseIsNone(t *testing.T) {
	n := newNodes(t)
	if _, err := n.AcquireLease(t.Context(), lease("run-1")); err != nil {
		t.Fatal(err)
	}
	_, err := n.AcquireLease(t.Context(), inCluster("run-2"))
	heldBy(t, err)
	if l := n.clusterLease(); l != nil {
		t.Errorf("the run that got no host keeps the cluster: %+v", l)
	}
	n.other.enters("run-3")
}

// TestACancelledCallLeavesTheRunItsLease has a second call of a run fail that holds
// host and cluster already.
func TestACancelledCallLeavesTheRunItsLease(t *testing.T) {
	for at, what := range []string{1: "the cluster's lease", 2: "the host's lease"} {
		if at == 0 {
			continue
		}
		t.Run(what, func(t *testing.T) {
			n := newNodes(t)
			n.fence = n.enters("run-1")
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			n.breaker.arm(0, failBefore)
			n.breaker.everyWrite = func(write int) {
				if write == at {
					cancel()
					<-ended // else the host may answer before it hears of it
				}
			}
			_, err := n.AcquireLease(ctx, inCluster("run-1"))
			close(ended)
			wantCode(t, err, agent.Cancelled)
			n.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
			if l := n.clusterLease(); l == nil || l.Run != "run-1" {
				t.Errorf("the cluster's lease is %+v", l)
			}
		})
	}
}

// TestNoClusterNoLease asks for a cluster's lease on a host that is in none.
func TestNoClusterNoLease(t *testing.T) {
	r := newRig(t, nil)
	if err := r.ReleaseLease(t.Context(), r.fence); err != nil {
		t.Fatal(err)
	}
	r.fence = r.enters("run-1")
	r.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
	if l := r.state().Lease; l.ClusterFence != 0 {
		t.Errorf("the lease is %+v", l)
	}
}

// heldBy is the lease that a refusal names.
func heldBy(t *testing.T, err error) *backend.Lease {
	t.Helper()
	e, ok := err.(*agent.Error) //nolint:errorlint // what a client returns
	if !ok || e.Code != agent.LeaseHeld || e.Lease == nil {
		t.Fatalf("error is %v, want one about a lease", err)
	}
	return e.Lease
}
