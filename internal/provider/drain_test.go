package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const draining = `rollout = { drain = true }`

// migrating is a cluster of three nodes with two VMs on each, whose GPUs support live
// migration.
func migrating() gpu.Snapshot {
	s := rig.Cluster("azl",
		rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Desktop("avd-02", 2)),
		rig.Node("hv02", rig.Desktop("avd-03", 3), rig.Desktop("avd-04", 4)),
		rig.Node("hv03", rig.Desktop("avd-05", 5), rig.Desktop("avd-06", 6)))
	for i := range s.Hosts {
		for j := range s.Hosts[i].GPUs {
			s.Hosts[i].GPUs[j].Partitionable.SupportsIncomingLiveMigration = new(true)
		}
	}
	return s
}

var three = []string{"hv01", "hv02", "hv03"}

// everyVM gives each of the six VMs a partition. None of them may be stopped.
func everyVM() string {
	return `
resource "gpu_vm_assignment" "avd" {
  for_each  = toset(["avd-01", "avd-02", "avd-03", "avd-04", "avd-05", "avd-06"])
  vm        = each.key
  partition = { config = gpu_partition_config.vdi.id }
  power     = { allow_shutdown = true }
}
`
}

// TestRollingDrain changes the count of all GPUs of a cluster under VMs that hold them,
// node by node. No VM is ever off, and where they run is no difference.
func TestRollingDrain(t *testing.T) {
	t.Parallel()
	r := rig.New(t, migrating())
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(16, three, draining)+everyVM())
	c.Apply()
	for n := 1; n <= 6; n++ {
		r.NeverStops(fmt.Sprintf("avd-%02d", n), three...)
	}
	c.Write(r.Block() + rig.ConfigOf(8, three, draining) + everyVM())
	c.Apply()
	r.WantCounts(8, three...)
	wantDrainsOver(r)
	c.WantNoChanges()
}

// wantDrainsOver checks that every VM runs with its partition and every node is up.
func wantDrainsOver(r *rig.Rig) {
	r.T.Helper()
	for n := 1; n <= 6; n++ {
		r.WantVM(fmt.Sprintf("avd-%02d", n), gpu.VMRunning, 1)
	}
	for _, h := range three {
		if state := r.Host(h).NodeState(); state != gpu.NodeUp {
			r.T.Errorf("node %s is %s", h, state)
		}
	}
	r.WantSettled()
}

// TestRollingDrainOfTwoConfigs has one config for each of two nodes, which have only each
// other to move VMs to. They take turns.
func TestRollingDrainOfTwoConfigs(t *testing.T) {
	t.Parallel()
	s := migrating()
	s.Hosts[2].GPUs = nil // no room for anybody
	s.Hosts[2].VMs = nil
	r := rig.New(t, s)
	configs := func(count int) string {
		return r.Block() + rig.ConfigOf(count, three[:1], draining) + strings.ReplaceAll(rig.ConfigOf(count, three[1:2], draining),
			`"vdi"`, `"other"`)
	}
	for n := 1; n <= 4; n++ {
		r.AddForeignAdapter(fmt.Sprintf("avd-%02d", n))
	}
	c := rig.NewCLI(t, configs(16))
	c.Apply()
	for n := 1; n <= 4; n++ {
		r.Must(r.Fleet.SetVMState(t.Context(), fmt.Sprintf("avd-%02d", n), gpu.VMOff))
		r.Must(r.Fleet.SetVMState(t.Context(), fmt.Sprintf("avd-%02d", n), gpu.VMRunning))
		r.NeverStops(fmt.Sprintf("avd-%02d", n), three...)
	}
	for _, h := range three {
		r.Must(r.Fleet.EditSimulation(t.Context(), h, func(s *simulated.Simulation) {
			s.Latency = map[simulated.Op]int{simulated.OpSetPartitionCount: 500}
		}))
	}
	c.Write(configs(8))
	c.Apply()
	r.WantCounts(8, three[:2]...)
	for n := 1; n <= 4; n++ {
		r.WantVM(fmt.Sprintf("avd-%02d", n), gpu.VMRunning, 1)
	}
	c.WantNoChanges()
}

// TestRollingDrainSaysWhatItDoes reads the plan, with one VM that cannot migrate.
func TestRollingDrainSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	s := migrating()
	for j := range s.Hosts[2].GPUs {
		s.Hosts[2].GPUs[j].Partitionable.SupportsIncomingLiveMigration = nil
	}
	r := rig.New(t, s)
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(16, three, draining)+everyVM())
	c.Apply()
	c.Write(r.Block() + rig.ConfigOf(8, three, draining, `max_disruption = "vm_restart"`) + everyVM())
	rig.WantSaid(t, c.Ok("plan"),
		`hv01: gpu_partition_config "vdi" drains the node`, "Live migration moves VMs avd-01 and avd-02 to other nodes of the cluster first.",
		"The node is not drained: the partition of VM \"avd-0",
		"hv03: VMs avd-05 and avd-06 are shut down and started again")
	c.Write(r.Block() + rig.ConfigOf(8, three, draining) + everyVM())
	rig.WantSaid(t, c.Fails("plan"), "The node is not drained: the partition of VM \"avd-0")
}

// TestAVMThatMayNotMoveKeepsItsNodeFromADrain has one VM whose only possible owner is its node: the
// plan says so, and what becomes of the VMs there instead, or refuses.
func TestAVMThatMayNotMoveKeepsItsNodeFromADrain(t *testing.T) {
	t.Parallel()
	s := migrating()
	s.Hosts[1].VMs[0].PossibleOwners = []string{"hv02"}
	r := rig.New(t, s)
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(16, three, draining)+everyVM())
	c.Apply()
	before := r.Snapshot()
	c.Write(r.Block() + rig.ConfigOf(8, three, draining) + everyVM())
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "The node is not drained", `VM "avd-03"`)
	r.WantUnchanged(before)
	for _, vm := range []string{"avd-01", "avd-02", "avd-05", "avd-06"} {
		r.NeverStops(vm, three...)
	}
	c.Write(r.Block() + rig.ConfigOf(8, three, draining, `max_disruption = "vm_restart"`) + everyVM())
	rig.WantSaid(t, c.Ok("plan"), "hv02: VMs avd-03 and avd-04 are shut down and started again",
		`hv01: gpu_partition_config "vdi" drains the node`)
	c.Apply()
	r.WantCounts(8, three...)
	wantDrainsOver(r)
	c.WantNoChanges()
}

// TestRollingDrainThatFails rolls back what was changed; the node that failed is up.
func TestRollingDrainThatFails(t *testing.T) {
	t.Parallel()
	r := rig.New(t, migrating())
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(16, three, draining)+everyVM())
	c.Apply()
	r.Fail("hv02", simulated.OpSetPartitionCount, rig.GPU1, 0, 1)
	c.Write(r.Block() + rig.ConfigOf(8, three, draining) + everyVM())
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Rolled back: hv01, hv02", "Untouched: hv03")
	r.WantCounts(16, three...)
	wantDrainsOver(r)
	c.Write(r.Block() + rig.ConfigOf(16, three, draining) + everyVM())
	c.WantNoChanges()
}

// TestADrainThatFailsSaysWhereTheVMsAre has a node that cannot be resumed: its VMs run elsewhere, and
// the error names them and their nodes.
func TestADrainThatFailsSaysWhereTheVMsAre(t *testing.T) {
	t.Parallel()
	r := rig.New(t, migrating())
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(16, three, draining)+everyVM())
	c.Apply()
	r.Fail("hv02", simulated.OpSetPartitionCount, rig.GPU1, 0, 1)
	r.Fail("hv02", simulated.OpResumeNode, "", 0, 0)
	c.Write(r.Block() + rig.ConfigOf(8, three, draining) + everyVM())
	out := c.Fails("apply", "-auto-approve")
	for _, vm := range []string{"avd-03", "avd-04"} {
		if now, at := r.VM(vm); at == "hv02" || !now.Runs() {
			t.Errorf("VM %s is %s on %s", vm, now.State, at)
		} else {
			rig.WantSaid(t, out, fmt.Sprintf("VM %s has moved to %s", vm, at))
		}
	}
	rig.WantSaid(t, out, "resume the cluster node", "the next apply that changes something on this host resumes it")
	r.ClearFaults("hv02")
	c.Apply()
	r.WantCounts(8, three...)
	wantDrainsOver(r)
}

// TestADrainMakesRoom has more VMs on a node than it is to have partitions, and other nodes are free:
// those that find no room there any more stay where they have gone.
func TestADrainMakesRoom(t *testing.T) {
	t.Parallel()
	s := migrating()
	s.Hosts[0].VMs = append(s.Hosts[0].VMs, append(s.Hosts[1].VMs, s.Hosts[2].VMs...)...)
	s.Hosts[1].VMs, s.Hosts[2].VMs = nil, nil
	r := rig.New(t, s)
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(4, three, draining)+everyVM())
	c.Apply()
	r.NeverStops("", three...)
	c.Write(r.Block() + rig.ConfigOf(2, three, draining) + everyVM())
	c.Apply()
	r.WantCounts(2, three...)
	wantDrainsOver(r)
	if n := len(r.Host("hv01").VMs); n != 4 {
		t.Errorf("%d VMs are on hv01, which has 4 partitions", n)
	}
	c.WantNoChanges()
}

// TestOnlyNodesWhoseGPUsAreHeldAreDrained has no VM hold anything, and a drain that would fail.
func TestOnlyNodesWhoseGPUsAreHeldAreDrained(t *testing.T) {
	t.Parallel()
	r := rig.New(t, migrating())
	for _, h := range three {
		r.Fail(h, simulated.OpDrainNode, "", 0, 0)
	}
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(16, three, draining))
	c.Apply()
	c.Write(r.Block() + rig.ConfigOf(8, three, draining))
	if out := c.Ok("plan"); strings.Contains(out, "drains the node") {
		t.Errorf("the plan speaks of a drain:\n%s", out)
	}
	c.Apply()
	r.WantCounts(8, three...)
}
