//go:build unix

package provider_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestInterruptLeavesEveryHostAsItWas presses Ctrl-C while the first of two hosts is
// being changed.
func TestInterruptLeavesEveryHostAsItWas(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newProcesses(t, r.block()+heldConfig(4))
	c.apply()
	r.must(r.fleet.EditSimulation(context.Background(), "hv01", func(s *simulated.Simulation) {
		s.Latency = map[simulated.Op]int{simulated.OpSetPartitionCount: 1500}
	}))
	c.write(r.block() + heldConfig(8, `max_disruption = "vm_restart"`))

	cmd := c.command("apply", "-auto-approve", "-no-color")
	// A process group of its own: a terminal sends Ctrl-C to the plugins as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	r.must(cmd.Start())
	deadline := time.Now().Add(20 * time.Second)
	for {
		if v, _ := r.vm("avd-02"); v.State == gpu.VMOff && len(v.PartitionAdapters) == 0 {
			break // the VMs are down and the counts are next
		}
		if time.Now().After(deadline) {
			t.Fatalf("the change does not begin:\n%s", out.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.must(syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	if err := cmd.Wait(); err == nil {
		t.Errorf("the interrupted apply succeeded:\n%s", out.String())
	}
	wantSaid(t, out.String(), "Rolled back: hv01", "Untouched: hv02")
	r.wantCounts(4, both...)
	r.wantVM("avd-01", gpu.VMRunning, 1)
	r.wantVM("avd-02", gpu.VMRunning, 1)
	r.wantClaims([]string{"hv01"}, "partition_config vdi", "vm_assignment "+vmID(1), "vm_assignment "+vmID(2))
	r.wantSettled()
	if _, err := os.Stat(filepath.Join(c.dir, ".terraform.tfstate.lock.info")); err == nil {
		t.Error("the state is locked")
	}

	r.must(r.fleet.EditSimulation(context.Background(), "hv01", func(s *simulated.Simulation) { s.Latency = nil }))
	wantSaid(t, c.apply(), "0 added, 3 changed, 0 destroyed")
	r.wantCounts(8, both...)
	c.wantNoChanges()
}

func TestKilledRunIsToldOfByThePlanAndPutBackByTheNextApply(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("hv01", desktop("avd-01", 1))))
	r.must(r.fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
		s.Latency = map[simulated.Op]int{simulated.OpStartVM: 60_000}
	}))
	c := newProcesses(t, r.block()+assignment("avd-01", anyPartition, mayStop))
	cmd := c.command("apply", "-auto-approve", "-no-color")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	r.must(cmd.Start())
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if v, _ := r.vm("avd-01"); v.State == gpu.VMOff && len(v.PartitionAdapters) == 1 {
			break // it waits for its start
		}
		if time.Now().After(deadline) {
			t.Fatalf("the change does not begin:\n%s", out.String())
		}
	}
	r.must(syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait() // killed, as it should be
	r.must(r.fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) { s.Latency = nil }))

	wantSaid(t, c.ok("plan"), "A change of this host has not ended", `a change for gpu_vm_assignment for VM "avd-01" was begun`)
	h, err := r.fleet.Host("hv01")
	r.must(err)
	r.must(h.Update(t.Context(), func(st *backend.State) error {
		st.Lease.Expires = time.Now() // a minute passes
		return nil
	}))
	c.apply()
	r.wantVM("avd-01", gpu.VMRunning, 1)
	r.wantSettled()
	c.wantNoChanges()
}
