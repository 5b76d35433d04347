package agent_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// platforms are those that a cluster of the tests can be on.
var platforms = []struct {
	name string
	// put has the nodes be on the platform, and away takes the volume with the records that
	// they share from a node, or gives it back; lag is how long the cluster takes a VM of the first
	// node for running that is off.
	put func(n nodes) (away func(node *rig, away bool), lag func(time.Duration))
}{
	{"simulated", func(n nodes) (func(*rig, bool), func(time.Duration)) {
		lag := func(d time.Duration) {
			check(n.t, n.fleet.EditSimulation(n.t.Context(), host, func(s *simulated.Simulation) { s.ClusterLagMS = int(d.Milliseconds()) }))
		}
		return func(node *rig, away bool) {
			check(n.t, n.fleet.Edit(n.t.Context(), func(s *gpu.Snapshot) error {
				for i := range s.Hosts {
					if h := &s.Hosts[i]; h.Name == node.sim.Name() {
						h.Unknown = nil
						if away {
							h.Unknown = []gpu.Unknown{{Part: gpu.PartCluster, Why: "the shared volume is away"}}
						}
					}
				}
				return nil
			}))
		}, lag
	}},
	{"WMI", func(n nodes) (func(*rig, bool), func(time.Duration)) {
		var first *fakewmi.Fixture
		volume := filepath.Join(scratch(n.t), "Volume1")
		gone := map[*rig]*atomic.Bool{}
		for _, node := range []*rig{n.rig, n.other} {
			lost := &atomic.Bool{}
			gone[node] = lost
			f := fakewmi.FixtureOn(n.t, n.fleet, node.sim.Name(), fakewmi.Directly)
			f.Machine.SharedVolumes(volume)
			if node == n.rig {
				first = f
			}
			node.on = f.Backend.WithClusterStore(func(dir string) (backend.Store, error) {
				store, err := statedir.Open(dir)
				return onVolume{store, lost}, err
			})
			node.start()
		}
		return func(node *rig, away bool) { gone[node].Store(away) }, func(d time.Duration) { first.ClusterLag(n.t, d) }
	}},
}

// onVolume is a store on a shared volume that can be lost.
type onVolume struct {
	backend.Store
	lost *atomic.Bool
}

var errVolume = &backend.Error{
	Code: backend.Unavailable, Op: "read", Object: "the shared volume", Detail: "it is on its way to another node",
}

func (v onVolume) Load(ctx context.Context) (backend.State, error) {
	if v.lost.Load() {
		return backend.State{}, errVolume
	}
	return v.Store.Load(ctx)
}

func (v onVolume) Update(ctx context.Context, f func(*backend.State) error) error {
	if v.lost.Load() {
		return errVolume
	}
	return v.Store.Update(ctx, f)
}

// windowsNodes are nodes whose GPUs are named as on Windows. run-1 is clustered and runs on the first.
func windowsNodes(t *testing.T) nodes {
	return newNodes(t, func(first, second *gpu.Host) {
		for _, h := range []*gpu.Host{first, second} {
			for i := range h.GPUs {
				if g := &h.GPUs[i]; g.Partitionable != nil {
					device := fmt.Sprintf(`VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\4&%d&0&0000`, i)
					g.InstancePath = `PCI\` + device
					g.Partitionable.Name = `\\?\PCI#` + strings.ReplaceAll(device, `\`, "#") + `#{064092b3-625e-43bf-9eb5-dc845897dd59}`
				}
			}
		}
		for i := range first.VMs {
			if vm := &first.VMs[i]; vm.ID == run1 {
				vm.Clustered = true
			}
		}
	})
}

// onEach runs a test on each platform.
func onEach(t *testing.T, test func(t *testing.T, n nodes, away func(node *rig, away bool))) {
	for _, p := range platforms {
		t.Run(p.name, func(t *testing.T) {
			n := windowsNodes(t)
			away, _ := p.put(n)
			test(t, n, away)
		})
	}
}

// assigns is a change that stops the clustered VM and starts it again.
func assigns(id string) agent.Change {
	return assign(id, "vm1", nil, partitionOf(run1, nil))
}

// TestANodeThatChangesBetweenPlanAndApply changes the state of a node after a change of its VM
// was prepared: what could not start the VM again does not stop it.
func TestANodeThatChangesBetweenPlanAndApply(t *testing.T) {
	onEach(t, func(t *testing.T, n nodes, _ func(*rig, bool)) {
		n.fence = n.enters("run-1")
		ch := assigns("a")
		p, err := n.Prepare(t.Context(), ch)
		check(t, err)
		for _, state := range []gpu.NodeState{gpu.NodePaused, gpu.NodeDraining, gpu.NodeJoining, gpu.NodeDown} {
			check(t, n.fleet.SetNodeState(t.Context(), host, state))
			before := n.look()
			if _, err := n.Client.Apply(t.Context(), n.fence, ch, p.Basis, nil); err == nil || !strings.Contains(err.Error(), string(state)) {
				t.Errorf("%s: the change is made, or its error does not say why not: %v", state, err)
			}
			wantSame(t, before, n.look())
			n.wantJournal(0)
		}
		check(t, n.fleet.SetNodeState(t.Context(), host, gpu.NodeUp))
		n.done(ch)
		if vm := n.vm("run-1"); !vm.Runs() || len(vm.PartitionAdapters) != 1 {
			t.Errorf("the VM is %+v", vm)
		}
	})
}

// TestAClusterThatLags has the cluster learn late that its VM is off. The VM is started with what it
// was given or gave up, and by the next run where the one that stopped it has died.
func TestAClusterThatLags(t *testing.T) {
	for _, p := range platforms {
		for _, lag := range []time.Duration{0, time.Second, 10 * time.Second, time.Minute} {
			t.Run(fmt.Sprintf("%s, %s", p.name, lag), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := windowsNodes(t)
					_, behind := p.put(n)
					n.stepTime = 2 * lag
					n.start()
					behind(lag)
					n.fence = n.enters("run-1")
					began := time.Now()
					n.done(assigns("a"))
					if took := time.Since(began); took < lag-time.Second {
						t.Errorf("the VM runs after %s", took)
					}
					want := func(adapters, claims int) {
						t.Helper()
						if vm := n.vm("run-1"); !vm.Runs() || len(vm.PartitionAdapters) != adapters {
							t.Errorf("the VM is %+v", vm)
						}
						h, err := n.Inventory(t.Context())
						check(t, err)
						if len(h.Claims) != claims || len(h.PendingStarts)+len(h.Unfinished) > 0 {
							t.Errorf("the claims are %+v, owed is %v, and unfinished %v", h.Claims, h.PendingStarts, h.Unfinished)
						}
						n.wantJournal(0)
					}
					want(1, 1)
					n.killedWith(assign("b", "vm1", partitionOf(run1, nil), nil), "start")
					n.start()
					n.acquire("run-2")
					want(1, 1)
					n.done(assign("c", "vm1", partitionOf(run1, nil), nil))
					want(0, 0)
					check(t, n.Close())
				})
			})
		}
	}
}

// TestAVMThatMovesBetweenPlanAndApply has the VM fail over after its change was prepared.
func TestAVMThatMovesBetweenPlanAndApply(t *testing.T) {
	onEach(t, func(t *testing.T, n nodes, _ func(*rig, bool)) {
		n.fence = n.enters("run-1")
		ch := assigns("a")
		p, err := n.Prepare(t.Context(), ch)
		check(t, err)
		check(t, n.fleet.MoveVM(t.Context(), run1, "hv02"))
		before := n.other.look()
		if _, err := n.Client.Apply(t.Context(), n.fence, ch, p.Basis, nil); err == nil {
			t.Error("a VM that is not there gets a partition")
		}
		wantSame(t, before, n.other.look())
		n.wantJournal(0)
	})
}

// TestClocksOfNodesOnEach has the clocks of two nodes be an hour apart.
func TestClocksOfNodesOnEach(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		onEach(t, func(t *testing.T, n nodes, _ func(*rig, bool)) {
			n.other.clock = &clock{now: n.clock.Now().Add(skew)}
			n.other.start()
			n.fence = n.enters("run-1")
			for range 6 {
				_, err := n.other.AcquireLease(t.Context(), inCluster("run-2"))
				heldBy(t, err)
				n.clock.advance(20 * time.Second)
				n.other.clock.advance(20 * time.Second)
				n.renews()
			}
			n.done(assigns("alive"))
			n.other.waitsFor("run-1", "run-2", n.clock, n.other.clock)
		})
	}
}

// TestTheVolumeOfALeaseMoves takes the volume with the cluster's lease from a node, before and
// in the middle of a change, and gives it back. Without it nothing is begun, what was begun is
// put back, and the lease is still that of the run.
func TestTheVolumeOfALeaseMoves(t *testing.T) {
	onEach(t, func(t *testing.T, n nodes, away func(*rig, bool)) {
		n.fence = n.enters("run-1")
		before := n.look()
		away(n.rig, true)
		if _, err := n.apply(assigns("without")); err == nil {
			t.Error("a change is made under a lease that cannot be read")
		}
		away(n.rig, false)
		wantSame(t, before, n.look())

		n.breaker.hook = func(write string) {
			if write == "add adapter" {
				away(n.rig, true)
			}
		}
		_, err := n.apply(assigns("cut"))
		n.breaker.hook = nil
		if err == nil {
			t.Error("a change is made whose lease went in the middle")
		}
		if vm := n.vm("run-1"); !vm.Runs() || len(vm.PartitionAdapters) != 0 {
			t.Errorf("the VM is %+v after %v", vm, err)
		}

		_, err = n.other.AcquireLease(t.Context(), inCluster("run-2"))
		heldBy(t, err)
		away(n.rig, false)
		n.done(assigns("again"))
		check(t, n.ReleaseLease(t.Context(), n.fence))
		n.fence = n.enters("run-3") // which settles what is left
		n.wantJournal(0)
		if vm := n.vm("run-1"); !vm.Runs() || len(vm.PartitionAdapters) != 1 {
			t.Errorf("the VM is %+v", vm)
		}
	})
}
