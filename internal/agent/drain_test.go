package agent_test

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// canMigrate makes run-1 and run-2 clustered, with GPUs that support live migration on
// both nodes, of which each has one with partitions.
func canMigrate(first, second *gpu.Host) {
	for _, h := range []*gpu.Host{first, second} {
		onlyOneGPUP(h)
		h.GPUs[0].Partitionable.SupportsIncomingLiveMigration = new(true)
		for i := range h.VMs {
			h.VMs[i].Clustered = true
			h.VMs[i].Settings.OfflineAction = new(gpu.OfflineSave)
		}
	}
	second.VMs = second.VMs[2:] // its running ones would be in the way
}

func drained(from, to int) agent.Change {
	before, after := config("vdi", from, gpuP1), config("vdi", to, gpuP1)
	before.MaxDisruption, after.MaxDisruption = gpu.DisruptNone, gpu.DisruptNone
	before.Drain, after.Drain = true, true
	return layout("x", "config", before, after)
}

// twoHold gives both running VMs a partition, and has none of them stopped for more.
func (n nodes) twoHold() {
	n.acquire("run-1")
	n.done(
		layout("c0", "config", nil, config("vdi", 4, gpuP1)),
		assign("a0", "vm1", nil, partitionOf(run1, nil)),
		assign("a1", "vm2", nil, partitionOf(run2, nil)),
	)
}

func (n nodes) nodeState() gpu.NodeState {
	n.t.Helper()
	h, err := n.sim.Inventory(n.t.Context())
	check(n.t, err)
	return h.NodeState()
}

// TestDrain changes the count under VMs that nobody may stop: they go on, elsewhere.
func TestDrain(t *testing.T) {
	n := newNodes(t, canMigrate)
	n.twoHold()
	p, err := n.Prepare(t.Context(), drained(4, 8))
	check(t, err)
	if !p.Drains || p.Disruption != gpu.DisruptNone || len(p.StopsVMs) > 0 {
		t.Errorf("prepared: %+v", p)
	}
	n.done(drained(4, 8))
	if n.count(gpuP1) != 8 || n.nodeState() != gpu.NodeUp {
		t.Errorf("%d partitions, and the node is %s", n.count(gpuP1), n.nodeState())
	}
	for _, name := range []string{"run-1", "run-2"} {
		if vm := n.vm(name); vm.State != gpu.VMRunning || len(vm.PartitionAdapters) != 1 { // back on its node
			t.Errorf("VM %s is %s with adapters %+v", name, vm.State, vm.PartitionAdapters)
		}
	}
	again, err := n.Prepare(t.Context(), drained(8, 8))
	check(t, err)
	if len(again.Steps) > 0 {
		t.Errorf("the second time: %v", again.Steps)
	}
}

// TestDrainOrStop has VMs that cannot migrate: they are stopped where that is allowed,
// and else nothing is touched.
func TestDrainOrStop(t *testing.T) {
	n := newNodes(t, canMigrate, func(first, _ *gpu.Host) { first.GPUs[0].Partitionable.SupportsIncomingLiveMigration = new(false) })
	n.twoHold()
	before := n.look()
	_, err := n.apply(drained(4, 8))
	wantCode(t, err, agent.RuleViolation)
	wantSame(t, before, n.look())
	ch := drained(4, 8)
	ch.Want.Config.MaxDisruption = gpu.DisruptVMRestart
	p, err := n.Prepare(t.Context(), ch)
	check(t, err)
	if p.Drains || len(p.StopsVMs) != 2 {
		t.Errorf("prepared: %+v", p)
	}
	n.done(ch)
	if vm := n.vm("run-1"); n.count(gpuP1) != 8 || vm.State != gpu.VMRunning {
		t.Errorf("%d partitions, VM run-1 is %s", n.count(gpuP1), vm.State)
	}
}

// TestNoDrainOfWhatCannotMigrate has a VM in the way that runs no more and still holds
// its partition. Nobody's VM is moved for nothing.
func TestNoDrainOfWhatCannotMigrate(t *testing.T) {
	for _, state := range []gpu.VMState{gpu.VMPaused, gpu.VMStopping, gpu.VMOther} {
		t.Run(string(state), func(t *testing.T) {
			n := newNodes(t, canMigrate)
			n.twoHold()
			check(t, n.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
				vm, _ := s.Hosts[0].VM(run1)
				vm.State = state
				return nil
			}))
			before := n.look()
			_, err := n.apply(drained(4, 8))
			wantCode(t, err, agent.RuleViolation)
			wantSame(t, before, n.look())
			if state := n.nodeState(); state != gpu.NodeUp || n.vm("run-2").State != gpu.VMRunning {
				t.Errorf("the node is %s", state)
			}
		})
	}
}

// TestDrainOfAPausedNode has an administrator who has paused the node: it stays paused.
func TestDrainOfAPausedNode(t *testing.T) {
	n := newNodes(t, canMigrate)
	n.twoHold()
	check(t, n.fleet.SetNodeState(t.Context(), host, gpu.NodePaused))
	ch := drained(4, 8)
	_, err := n.apply(ch)
	wantCode(t, err, agent.RuleViolation)
	ch.Levels = rules.Levels{"node-in-service": rules.Warning}
	n.done(ch)
	if n.count(gpuP1) != 8 || n.nodeState() != gpu.NodePaused {
		t.Errorf("%d partitions, and the node is %s", n.count(gpuP1), n.nodeState())
	}
}

// A node that goes out of service between prepare and apply is not changed, and nobody on it is
// disturbed.
func TestANodeThatGoesOutOfServiceMeanwhileIsNotChanged(t *testing.T) {
	for _, state := range []gpu.NodeState{gpu.NodePaused, gpu.NodeDraining, gpu.NodeJoining, gpu.NodeDown} {
		n := newNodes(t, canMigrate)
		n.twoHold()
		ch := drained(4, 8)
		p, err := n.Prepare(t.Context(), ch)
		check(t, err)
		check(t, n.fleet.SetNodeState(t.Context(), host, state))
		before := n.look()
		if _, err = n.Apply(t.Context(), n.fence, ch, p.Basis, nil); err == nil || !strings.Contains(err.Error(), string(state)) {
			t.Errorf("%s: %v", state, err)
		}
		wantSame(t, before, n.look())
		check(t, n.fleet.SetNodeState(t.Context(), host, gpu.NodeUp))
		n.done(ch)
		if n.count(gpuP1) != 8 {
			t.Errorf("%s: back in service, it has %d partitions", state, n.count(gpuP1))
		}
	}
}

// TestDrainThatFails has steps fail and the agent killed: the node is resumed.
func TestDrainThatFails(t *testing.T) {
	for _, tt := range []struct {
		name string
		op   simulated.Op
		edit func(first, second *gpu.Host)
		says string
	}{
		{name: "the count", op: simulated.OpSetPartitionCount, says: "set 8 partitions"},
		{name: "the drain", op: simulated.OpDrainNode, says: "drain the cluster node"},
		{name: "the resumption", op: simulated.OpResumeNode, says: "resume the cluster node"},
		{
			name: "no room on the other node", says: "run-1",
			edit: func(_, second *gpu.Host) { second.GPUs[0] = whole(gpuP1) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNodes(t, canMigrate)
			if tt.edit != nil {
				n = newNodes(t, canMigrate, tt.edit)
			}
			n.twoHold()
			if tt.op != "" {
				check(t, n.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: tt.op, Times: 1, Code: backend.Failed}))
			}
			_, err := n.apply(drained(4, 8))
			wantCode(t, err, agent.StepFailed)
			if !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "everything was put back") {
				t.Errorf("it says %v", err)
			}
			if n.count(gpuP1) != 4 || n.nodeState() != gpu.NodeUp {
				t.Errorf("%d partitions, and the node is %s", n.count(gpuP1), n.nodeState())
			}
			n.wantJournal(0)
		})
	}
	t.Run("the agent is killed", func(t *testing.T) {
		n := newNodes(t, canMigrate)
		n.twoHold()
		n.killedWith(drained(4, 8), "count")
		if state := n.nodeState(); state != gpu.NodePaused {
			t.Fatalf("the node is %s", state)
		}
		settled, err := n.anotherAgent().Reconcile(t.Context(), 0)
		check(t, err)
		if len(settled) != 1 || len(settled[0].Stands) > 0 || n.nodeState() != gpu.NodeUp || n.count(gpuP1) != 4 {
			t.Errorf("settled %+v; the node is %s, %d partitions", settled, n.nodeState(), n.count(gpuP1))
		}
	})
}

// A node that cannot be resumed when a change is put back is owed that, as a VM its start: it counts
// as up, and whoever has the lease next resumes it.
func TestANodeThatCannotBeResumedIsOwedThat(t *testing.T) {
	for name, settle := range map[string]func(nodes){
		"the next run": func(n nodes) { n.clock.advance(2 * time.Minute); n.restart("run-2") },
		"reconcile": func(n nodes) {
			check(t, n.ReleaseLease(t.Context(), n.fence))
			_, err := n.anotherAgent().Reconcile(t.Context(), 0)
			check(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodes(t, canMigrate)
			n.twoHold()
			for _, op := range []simulated.Op{simulated.OpSetPartitionCount, simulated.OpResumeNode} {
				check(t, n.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: op, Times: 1, Code: backend.Failed}))
			}
			_, err := n.apply(drained(4, 8))
			wantCode(t, err, agent.StepFailed)
			if !strings.Contains(err.Error(), "the next apply that changes something on this host resumes it") {
				t.Errorf("it says %v", err)
			}
			shown, err := n.Inventory(t.Context())
			check(t, err)
			if n.nodeState() != gpu.NodePaused || shown.NodeState() != gpu.NodeUp || len(shown.Unfinished) != 1 {
				t.Errorf("the node is %s; a plan sees it as %s, and unfinished %v", n.nodeState(), shown.NodeState(), shown.Unfinished)
			}
			settle(n)
			if n.nodeState() != gpu.NodeUp || n.count(gpuP1) != 4 {
				t.Errorf("the node is %s, and has %d partitions", n.nodeState(), n.count(gpuP1))
			}
			for _, name := range []string{"run-1", "run-2"} {
				if vm := n.vm(name); vm.State != gpu.VMRunning { // back on its node
					t.Errorf("VM %s is %s", name, vm.State)
				}
			}
			n.wantJournal(0)
		})
	}
}

// mayDrain is a config that lets its node be drained.
func mayDrain() *gpu.PartitionConfig {
	c := config("vdi", 4, gpuP1)
	c.Drain = true
	return c
}

// A node is taken out of service once, with its VMs going on elsewhere, and back into it. The
// claim stays as it is, and doing it again does nothing.
func TestANodeIsDrainedAndResumed(t *testing.T) {
	n := newNodes(t, canMigrate)
	n.twoHold()
	n.done(layout("c1", "config", config("vdi", 4, gpuP1), mayDrain()))
	before := n.look()
	p, err := n.Prepare(t.Context(), acts(change.ActDrain, "config", mayDrain()))
	check(t, err)
	if !p.Drains || p.Disruption != gpu.DisruptNone || len(p.StopsVMs) > 0 {
		t.Errorf("prepared: %+v", p)
	}
	n.done(acts(change.ActDrain, "config", mayDrain()))
	if h := n.look(); h.NodeState() != gpu.NodePaused || !reflect.DeepEqual(h.Claims, before.Claims) {
		t.Errorf("the node is %s, with claims %+v", h.NodeState(), h.Claims)
	}
	for _, name := range []string{"run-1", "run-2"} {
		h := n.look()
		if slices.ContainsFunc(h.VMs, func(vm gpu.VM) bool { return vm.Name == name }) {
			t.Errorf("VM %s is still on the node", name)
		}
		if vm := n.other.vm(name); vm.State != gpu.VMRunning || len(vm.PartitionAdapters) != 1 {
			t.Errorf("VM %s is %s with adapters %+v", name, vm.State, vm.PartitionAdapters)
		}
	}
	again, err := n.Prepare(t.Context(), acts(change.ActDrain, "config", mayDrain()))
	check(t, err)
	if len(again.Steps) > 0 {
		t.Errorf("the second time: %v", again.Steps)
	}
	n.wantJournal(0)
	n.done(acts(change.ActResume, "config", mayDrain()))
	for _, name := range []string{"run-1", "run-2"} {
		if vm := n.vm(name); n.nodeState() != gpu.NodeUp || vm.State != gpu.VMRunning {
			t.Errorf("the node is %s, VM %s %s", n.nodeState(), name, vm.State)
		}
	}
}

// What a config's own drain would be refused for, an act is refused for, and nothing is touched.
func TestANodeIsDrainedAsFarAsItsConfigAllows(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(first, second *gpu.Host)
		by   func(*gpu.PartitionConfig)
		act  change.Act
		node gpu.NodeState
		says string
	}{
		{name: "policy", by: func(c *gpu.PartitionConfig) { c.Drain = false }, says: "allows it to be drained"},
		{
			name: "live migration", edit: func(first, _ *gpu.Host) { first.GPUs[0].Partitionable.SupportsIncomingLiveMigration = new(false) },
			says: "cannot migrate live",
		},
		{name: "a node that joins", node: gpu.NodeJoining, says: "is joining"},
		{name: "resume of a node that is down", act: change.ActResume, node: gpu.NodeDown, says: "is down"},
		{name: "no cluster", edit: func(first, second *gpu.Host) {
			first.Cluster, second.Cluster = nil, nil
			for i := range first.VMs {
				first.VMs[i].Clustered = false
			}
		}, says: "in no cluster"},
		{name: "no daemons", act: change.ActRestart, says: "has no MPS daemon"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			edits := []func(first, second *gpu.Host){canMigrate}
			if tt.edit != nil {
				edits = append(edits, tt.edit)
			}
			n := newNodes(t, edits...)
			c := mayDrain()
			if tt.by != nil {
				tt.by(c)
			}
			n.acquire("run-1")
			n.done(layout("c0", "config", nil, c), assign("a0", "vm1", nil, partitionOf(run1, nil)))
			if tt.node != "" {
				check(t, n.fleet.SetNodeState(t.Context(), host, tt.node))
			}
			before := n.look()
			_, err := n.apply(acts(cmp.Or(tt.act, change.ActDrain), "config", c))
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("it says %v", err)
			}
			wantSame(t, before, n.look())
		})
	}
	t.Run("no record", func(t *testing.T) {
		n := newNodes(t, canMigrate)
		n.acquire("run-1")
		_, err := n.apply(acts(change.ActDrain, "config", mayDrain()))
		if err == nil || !strings.Contains(err.Error(), "no record") || n.nodeState() != gpu.NodeUp {
			t.Errorf("the node is %s: %v", n.nodeState(), err)
		}
	})
	t.Run("a drain that fails is put back", func(t *testing.T) {
		n := newNodes(t, canMigrate, func(_, second *gpu.Host) { second.GPUs[0] = whole(gpuP1) })
		n.twoHold()
		n.done(layout("c1", "config", config("vdi", 4, gpuP1), mayDrain()))
		_, err := n.apply(acts(change.ActDrain, "config", mayDrain()))
		wantCode(t, err, agent.StepFailed)
		if n.nodeState() != gpu.NodeUp || n.vm("run-1").State != gpu.VMRunning {
			t.Errorf("the node is %s", n.nodeState())
		}
		n.wantJournal(0)
	})
}
