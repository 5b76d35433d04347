package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const draining = `rollout = { drain = true }`

// migrating is a cluster of three nodes with two VMs on each, whose GPUs support live
// migration.
func migrating() gpu.Snapshot {
	s := cluster("azl",
		node("hv01", desktop("avd-01", 1), desktop("avd-02", 2)),
		node("hv02", desktop("avd-03", 3), desktop("avd-04", 4)),
		node("hv03", desktop("avd-05", 5), desktop("avd-06", 6)))
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
	r := newRig(t, migrating())
	c := newCLI(t, r.block()+configOf(16, three, draining)+everyVM())
	c.apply()
	for n := 1; n <= 6; n++ {
		r.neverStops(fmt.Sprintf("avd-%02d", n), three...)
	}
	c.write(r.block() + configOf(8, three, draining) + everyVM())
	c.apply()
	r.wantCounts(8, three...)
	r.wantDrainsOver()
	c.wantNoChanges()
}

// wantDrainsOver checks that every VM runs with its partition and every node is up.
func (r *rig) wantDrainsOver() {
	r.t.Helper()
	for n := 1; n <= 6; n++ {
		r.wantVM(fmt.Sprintf("avd-%02d", n), gpu.VMRunning, 1)
	}
	for _, h := range three {
		if state := r.host(h).NodeState(); state != gpu.NodeUp {
			r.t.Errorf("node %s is %s", h, state)
		}
	}
	r.wantSettled()
}

// TestRollingDrainOfTwoConfigs has one config for each of two nodes, which have only each
// other to move VMs to. They take turns.
func TestRollingDrainOfTwoConfigs(t *testing.T) {
	t.Parallel()
	s := migrating()
	s.Hosts[2].GPUs = nil // no room for anybody
	s.Hosts[2].VMs = nil
	r := newRig(t, s)
	configs := func(count int) string {
		return r.block() + configOf(count, three[:1], draining) + strings.ReplaceAll(configOf(count, three[1:2], draining), `"vdi"`, `"other"`)
	}
	for n := 1; n <= 4; n++ {
		r.addForeignAdapter(fmt.Sprintf("avd-%02d", n))
	}
	c := newCLI(t, configs(16))
	c.apply()
	for n := 1; n <= 4; n++ {
		r.must(r.fleet.SetVMState(t.Context(), fmt.Sprintf("avd-%02d", n), gpu.VMOff))
		r.must(r.fleet.SetVMState(t.Context(), fmt.Sprintf("avd-%02d", n), gpu.VMRunning))
		r.neverStops(fmt.Sprintf("avd-%02d", n), three...)
	}
	for _, h := range three {
		r.must(r.fleet.EditSimulation(t.Context(), h, func(s *simulated.Simulation) {
			s.Latency = map[simulated.Op]int{simulated.OpSetPartitionCount: 500}
		}))
	}
	c.write(configs(8))
	c.apply()
	r.wantCounts(8, three[:2]...)
	for n := 1; n <= 4; n++ {
		r.wantVM(fmt.Sprintf("avd-%02d", n), gpu.VMRunning, 1)
	}
	c.wantNoChanges()
}

// TestRollingDrainSaysWhatItDoes reads the plan, with one VM that cannot migrate.
func TestRollingDrainSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	s := migrating()
	for j := range s.Hosts[2].GPUs {
		s.Hosts[2].GPUs[j].Partitionable.SupportsIncomingLiveMigration = nil
	}
	r := newRig(t, s)
	c := newCLI(t, r.block()+configOf(16, three, draining)+everyVM())
	c.apply()
	c.write(r.block() + configOf(8, three, draining, `max_disruption = "vm_restart"`) + everyVM())
	wantSaid(t, c.ok("plan"),
		"hv01: the node is drained first, and these VMs move to other nodes of its cluster by live migration: avd-01, avd-02.",
		"hv03: it is not drained: the partition of VM avd-0",
		"hv03: these VMs run and will be shut down and started again: avd-05, avd-06.")
	c.write(r.block() + configOf(8, three, draining) + everyVM())
	wantSaid(t, c.fails("plan"), "The node is not drained: the partition of VM avd-0")
}

// TestRollingDrainThatFails rolls back what was changed; the node that failed is up.
func TestRollingDrainThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, migrating())
	c := newCLI(t, r.block()+configOf(16, three, draining)+everyVM())
	c.apply()
	r.fail("hv02", simulated.OpSetPartitionCount, gpu1, 0, 1)
	c.write(r.block() + configOf(8, three, draining) + everyVM())
	wantSaid(t, c.fails("apply", "-auto-approve"), "Rolled back: hv01, hv02", "Untouched: hv03")
	r.wantCounts(16, three...)
	r.wantDrainsOver()
	c.write(r.block() + configOf(16, three, draining) + everyVM())
	c.wantNoChanges()
}
