package agent_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// shared is what the nodes have on record in common.
func (n nodes) shared() backend.State {
	n.t.Helper()
	c, err := n.sim.Cluster(n.t.Context())
	check(n.t, err)
	state, err := c.Store.Load(n.t.Context())
	check(n.t, err)
	return state
}

func clustered(first, second *gpu.Host) {
	canMigrate(first, second)
	second.VMs = nil
}

// A VM that was stopped on a node that died is started on the node that it is on then, and
// the first node leaves it alone when it is back.
func TestAStartIsOwedByTheCluster(t *testing.T) {
	n := newNodes(t, clustered)
	n.acquire("run-1")
	n.done(layout("c0", "config", nil, config("vdi", 4, gpuP1)))
	n.killedWith(assign("a", "vm1", nil, partitionOf(run1, minVRAM(gib))), "shut down")
	n.clock.advance(10 * time.Minute)
	if vm := n.vm("run-1"); vm.Runs() {
		t.Fatal("the VM runs")
	}
	if owed := n.shared().PendingStarts; len(owed) != 1 || owed[0].Name != "run-1" {
		t.Fatalf("the cluster owes %+v", owed)
	}
	check(t, n.fleet.MoveVM(t.Context(), run1, "hv02"))
	if h, err := n.other.Inventory(t.Context()); err != nil || len(h.PendingStarts) != 1 {
		t.Errorf("hv02 owes %+v, %v", h.PendingStarts, err)
	}
	n.other.waitsFor("run-1", "run-2", n.clock)
	at, err := n.other.sim.Inventory(t.Context())
	check(t, err)
	if vm, ok := at.VM(run1); !ok || !vm.Runs() {
		t.Errorf("on hv02 there is %+v", vm)
	}
	check(t, n.other.ReleaseLease(t.Context(), n.other.fence))
	if owed := n.shared().PendingStarts; len(owed) > 0 {
		t.Errorf("the cluster still owes %+v", owed)
	}
	// Somebody turns it off, and the first node comes back.
	check(t, n.fleet.SetVMState(t.Context(), run1, gpu.VMOff))
	n.start()
	n.acquire("run-3")
	n.wantJournal(0)
	n.wantOwed()
	if at, err = n.other.sim.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	if vm, _ := at.VM(run1); vm.Runs() || len(vm.PartitionAdapters) > 0 {
		t.Errorf("on hv02 there is %+v", vm)
	}
}

// A VM that is no part of the cluster cannot be started on another node: its own node alone owes it
// the start, and no other one takes it for a VM that is gone.
func TestAStartOfAVMOutsideTheClusterIsOwedByItsNode(t *testing.T) {
	n := newNodes(t, clustered, func(first, _ *gpu.Host) {
		for i := range first.VMs {
			first.VMs[i].Clustered = false
		}
	})
	n.acquire("run-1")
	n.done(layout("c0", "config", nil, config("vdi", 4, gpuP1)))
	n.killedWith(assign("a", "vm1", nil, partitionOf(run1, minVRAM(gib))), "shut down")
	if owed := n.shared().PendingStarts; len(owed) > 0 {
		t.Errorf("the cluster owes %+v", owed)
	}
	n.clock.advance(10 * time.Minute)
	n.other.waitsFor("run-1", "run-2", n.clock)
	check(t, n.other.ReleaseLease(t.Context(), n.other.fence))
	n.start()
	n.wantOwed("run-1")
	n.acquire("run-3")
	n.wantOwed()
	if vm := n.vm("run-1"); !vm.Runs() {
		t.Errorf("the VM is %s", vm.State)
	}
}

// What another node has recorded since is not put back by the node that was dead.
func TestADeadNodeDoesNotPutBackWhatOthersRecord(t *testing.T) {
	for _, write := range []string{"update cluster", "start"} { // before and after the claim
		t.Run(write, func(t *testing.T) {
			n := newNodes(t, clustered)
			n.acquire("run-1")
			n.done(layout("c0", "config", nil, config("vdi", 4, gpuP1)), layout("c0", "config", nil, config("vdi", 4, gpuP1)))
			n.killedWith(assign("a", "vm1", nil, partitionOf(run1, minVRAM(gib))), write)
			n.clock.advance(10 * time.Minute)
			check(t, n.fleet.MoveVM(t.Context(), run1, "hv02"))
			n.other.waitsFor("run-1", "run-2", n.clock)
			want := partitionOf(run1, nil)
			n.other.done(layout("c1", "config2", nil, config("vdi2", 4, gpuP1)), assign("b", "other", nil, want))
			check(t, n.other.ReleaseLease(t.Context(), n.other.fence))
			before := n.shared().Claims
			n.start()
			n.acquire("run-3")
			n.wantJournal(0)
			if after := n.shared().Claims; len(after) != 1 || after[0].Token != "other" || len(before) != 1 ||
				after[0].Revision != before[0].Revision {
				t.Errorf("the cluster has the claims %+v, and had %+v", after, before)
			}
		})
	}
}

// What a dead node had made of a VM goes with it when it moves. Its record stays with it, too, and
// says that it is not complete, so that the next apply finds what it was before.
func TestAVMThatMovesTakesTheRecordOfWhatWasMadeOfItAlong(t *testing.T) {
	for at, made := 1, false; !made; at++ {
		t.Run(fmt.Sprintf("write %d", at), func(t *testing.T) {
			n := newNodes(t, clustered)
			n.acquire("run-1")
			n.done(layout("c0", "config", nil, config("vdi", 4, gpuP1)), layout("c0", "config", nil, config("vdi", 4, gpuP1)))
			n.breaker.arm(at, dieAfter)
			_, err := n.apply(assign("a", "vm1", nil, partitionOf(run1, minVRAM(gib))))
			made = err == nil || at > 50
			n.clock.advance(10 * time.Minute)
			check(t, n.fleet.MoveVM(t.Context(), run1, "hv02"))
			n.start()
			n.acquire("run-2")
			n.wantJournal(0)
			hv02, err := n.other.sim.Inventory(t.Context())
			check(t, err)
			vm, _ := hv02.VM(run1)
			switch c := n.shared().Claims; {
			case len(vm.PartitionAdapters) == 0: // the run died before
			case len(c) != 1 || c[0].Token != "vm1":
				t.Errorf("on hv02 there is %+v, and the cluster has the claims %+v", vm, c)
			}
		})
	}
}

// What a node had written into the records of its cluster when a run died there is put back, or
// says that it is not complete, once the node is in the cluster again; that it was evicted
// meanwhile, with its VM or without it, keeps nobody from it.
func TestANodeThatIsEvictedPutsBackItsClaimWhenItReturns(t *testing.T) {
	for name, want := range map[string]*gpu.Assignment{
		"now":          partitionOf(run1, minVRAM(gib)),
		"when it ends": partitionOf(run1, func(a *gpu.Assignment) { a.Power = gpu.Power{NextOff: true} }),
		"a device":     deviceFor(run1, gpuD1),
	} {
		for at, made := 2, false; !made && at <= 100; at++ {
			for _, meanwhile := range []bool{false, true} {
				moves := at%2 == 0
				t.Run(fmt.Sprintf("%s, write %d, the VM moves: %t, evicted meanwhile: %t", name, at/2, moves, meanwhile), func(t *testing.T) {
					n := newNodes(t, clustered, func(_, second *gpu.Host) { // where a VM with such a GPU starts
						g, _ := second.GPU(gpuD1)
						g.Dismounted = true
					})
					n.acquire("run-1")
					n.done(layout("c0", "config", nil, config("vdi", 4, gpuP1)))
					before := n.vm("run-1")
					var cluster *gpu.Cluster
					member := func(is bool) {
						check(t, n.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
							if s.Hosts[0].Cluster = nil; is {
								s.Hosts[0].Cluster = cluster
							} else {
								cluster = s.Hosts[1].Cluster
							}
							return nil
						}))
					}
					n.breaker.everyWrite = func(write int) {
						if meanwhile && write == at/2 {
							member(false)
						}
					}
					if n.breaker.arm(0, dieAfter); !meanwhile {
						n.breaker.arm(at/2, dieAfter)
					}
					_, err := n.apply(assign("a", "vm1", nil, want))
					if made = made || err == nil && !meanwhile; err == nil {
						return
					}
					n.clock.advance(10 * time.Minute)
					last := n.rig // where the VM is
					if moves {
						last = n.other
						check(t, n.fleet.MoveVM(t.Context(), run1, "hv02"))
					}
					if !meanwhile {
						member(false)
					}
					n.start()
					j, err := n.Journal(t.Context())
					check(t, err)
					kept := len(j.Changes) == 1 && j.Changes[0].Status == "applied"
					for i := range 5 {
						n.acquire(fmt.Sprintf("run-%d", 2+i))
						check(t, n.ReleaseLease(t.Context(), n.fence))
					}
					out, err := n.Inventory(t.Context())
					if d, _ := out.GPU(gpuD1); err != nil || len(out.Unfinished) > 0 || !kept && d.Status != gpu.ReadyForDDA {
						t.Errorf("unfinished %v, the GPU is %s, %v", out.Unfinished, d.Status, err)
					}
					if vm, here := out.VM(run1); here && !kept && !reflect.DeepEqual(before, *vm) {
						t.Errorf("the VM is %+v, and was %+v", vm, before)
					}
					member(true)
					n.acquire("run-9")
					n.wantJournal(0)
					host, err := last.sim.Inventory(t.Context())
					check(t, err)
					vm, _ := host.VM(run1)
					after := *vm
					after.State = before.State // the cluster owes it a start
					c := n.shared().Claims
					changed := !reflect.DeepEqual(before, after)
					mayStay := kept || want.Power != (gpu.Power{NextOff: true}) // what waits has not touched the VM
					if changed && len(c) == 0 || len(c) > 0 && (!mayStay || c[0].Incomplete == kept) {
						t.Errorf("there is %+v, and was %+v, and the cluster has the claims %+v", vm, before, c)
					}
				})
			}
		}
	}
}

// darkCluster is a node that cannot read what the nodes have in common.
type darkCluster struct{ *breaker }

var errDark = errors.New("the volume is away")

func (d darkCluster) Cluster(ctx context.Context) (*backend.Cluster, error) {
	c, err := d.breaker.Cluster(ctx)
	if c != nil {
		c.Store = darkStore{}
	}
	return c, err
}

type darkStore struct{}

func (darkStore) Load(context.Context) (backend.State, error)              { return backend.State{}, errDark }
func (darkStore) Update(context.Context, func(*backend.State) error) error { return errDark }

// A node that does not see the shared volume shows its VMs, says that their records are
// unknown, and changes nothing.
func TestANodeWithoutTheSharedVolumeChangesNothing(t *testing.T) {
	n := newNodes(t, clustered)
	n.acquire("run-1")
	n.done(layout("c0", "config", nil, config("vdi", 4, gpuP1)), assign("a", "vm1", nil, partitionOf(run1, nil)))
	check(t, n.ReleaseLease(t.Context(), n.fence))
	before := n.look()
	conn, err := connect.InProcess(agent.NewServer(darkCluster{n.breaker}, n.breaker, n.options()...))
	check(t, err)
	client := agent.NewClient(conn, host)
	t.Cleanup(func() { check(t, client.Close()) })
	h, err := client.Inventory(t.Context())
	check(t, err)
	if u, dark := h.UnknownPart(gpu.PartCluster); !dark || !strings.Contains(u.Why, "the volume is away") || len(h.VMs) == 0 {
		t.Errorf("the inventory has %d VMs, and unknown is %+v", len(h.VMs), h.Unknown)
	}
	if _, err := client.AcquireLease(t.Context(), inCluster("run-2")); err == nil || !strings.Contains(err.Error(), "the volume is away") {
		t.Errorf("the lease: %v", err)
	}
	wantSame(t, before, n.look())
}

// A run dies when it has divided a GPU, and VMs that fail over take the partitions: the count is not
// put back under them. What the plan shows is what the next run finds, and it says that the change
// is not complete.
func TestACountThatVMsHaveTakenSinceIsNotPutBack(t *testing.T) {
	n := newNodes(t, clustered)
	n.acquire("run-1")
	n.done(layout("c0", "config", nil, config("vdi", 1, gpuP1)))
	n.killedWith(layout("c1", "config", config("vdi", 1, gpuP1), config("vdi", 4, gpuP1)), "count")
	for _, vm := range []string{run1, run2} {
		check(t, n.fleet.SetVMState(t.Context(), vm, gpu.VMOff))
		_, err := n.fleet.AddForeignAdapter(t.Context(), vm)
		check(t, err)
		check(t, n.fleet.SetVMState(t.Context(), vm, gpu.VMRunning))
	}
	n.clock.advance(10 * time.Minute)
	n.start()
	planned, err := n.Inventory(t.Context())
	check(t, err)
	n.acquire("run-2")
	n.wantJournal(0)
	if got := n.count(gpuP1); got != 4 {
		t.Errorf("there are %d partitions", got)
	}
	for what, h := range map[string]gpu.Host{"the plan": planned, "the host": n.look()} {
		g, _ := h.GPU(gpuP1)
		c, ok := h.Claim(gpu.ClaimConfig, "vdi")
		if g.Partitionable.Count != 4 || !ok || !c.Incomplete || c.Want.Config.Count != 4 {
			t.Errorf("%s shows %d partitions, and the record %+v", what, g.Partitionable.Count, c)
		}
	}
}

// A pool that a dead run had begun and from which a VM draws by now stays, and no run is kept from
// the host for it.
func TestAPoolThatAVMDrawsFromSinceIsNotPutBack(t *testing.T) {
	for _, runs := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %t", runs), func(t *testing.T) {
			r := newRig(t, onlyOneGPUP)
			r.killedWith(pools("x", "pool", nil, pool("dda", gpuD1)), "members")
			_, err := r.sim.AddDevice(t.Context(), off1, gpu.DeviceAssignment{Pool: "dda"})
			check(t, err)
			if runs {
				check(t, r.sim.StartVM(t.Context(), off1))
			}
			r.start()
			planned, err := r.Inventory(t.Context())
			check(t, err)
			r.acquire("run-2")
			r.wantJournal(0)
			for what, h := range map[string]gpu.Host{"the plan": planned, "the host": r.look()} {
				_, there := h.Pool("dda")
				if c, ok := h.Claim(gpu.ClaimPool, "dda"); !there || !ok || !c.Incomplete {
					t.Errorf("%s shows the pools %+v, and the record %+v", what, h.Pools, c)
				}
			}
		})
	}
}

// What a VM took along when it moved is recorded whenever the attempt to put the change back is cut off.
func TestAPutBackThatIsCutOffRecordsWhatTheVMTookAlong(t *testing.T) {
	cuts, next := 0, 1
	if testing.Short() {
		next = 3
	}
	for write, cut := 1, 1; ; cut++ {
		n := newNodes(t, clustered, func(_, second *gpu.Host) { // where a VM with such a GPU starts
			g, _ := second.GPU(gpuD1)
			g.Dismounted = true
		})
		n.acquire("run-1")
		n.breaker.arm(write, dieAfter)
		_, err := n.apply(assign("a", "vm1", nil, deviceFor(run1, gpuD1)))
		if err == nil {
			break // there are no more writes
		}
		host, err := n.sim.Inventory(t.Context())
		check(t, err)
		took := 0
		if vm, ok := host.VM(run1); ok {
			took = len(vm.Devices)
		}
		n.clock.advance(10 * time.Minute)
		check(t, n.fleet.MoveVM(t.Context(), run1, "hv02"))
		n.start()
		j, err := n.Journal(t.Context())
		check(t, err)
		if took == 0 || len(j.Changes) == 0 || j.Changes[0].Status == "applied" { // what was made is kept
			write, cut = write+next, 0
			continue
		}
		n.breaker.arm(cut, dieAfter)
		_, _ = n.AcquireLease(t.Context(), inCluster("run-2")) // it may die of it
		died := n.breaker.alive() != nil
		n.clock.advance(10 * time.Minute)
		n.start()
		n.acquire("run-3")
		n.wantJournal(0)
		if c := n.shared().Claims; len(c) != 1 || !c[0].Incomplete {
			t.Errorf("write %d, and write %d of putting it back: the VM has a GPU, and the cluster the claims %+v", write, cut, c)
		}
		if cuts++; !died {
			write, cut = write+next, 0
		}
	}
	if cuts < 10 {
		t.Errorf("only %d attempts were cut off", cuts)
	}
}
