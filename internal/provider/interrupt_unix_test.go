//go:build unix

package provider_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestInterruptLeavesEveryHostAsItWas presses Ctrl-C while the first of two hosts is
// being changed.
func TestInterruptLeavesEveryHostAsItWas(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewProcesses(t, r.Block()+rig.HeldConfig(4))
	c.Apply()
	r.Must(r.Fleet.EditSimulation(context.Background(), "hv01", func(s *simulated.Simulation) {
		s.Latency = map[simulated.Op]int{simulated.OpSetPartitionCount: 3000}
	}))
	c.Write(r.Block() + rig.HeldConfig(8, `max_disruption = "vm_restart"`))

	cmd := c.Command("apply", "-auto-approve", "-no-color")
	// A process group of its own: a terminal sends Ctrl-C to the plugins as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	r.Must(cmd.Start())
	deadline := time.Now().Add(time.Minute)
	for {
		if v, _ := r.VM("avd-02"); v.State == gpu.VMOff && len(v.PartitionAdapters) == 0 {
			break // the VMs are down and the counts are next
		}
		if time.Now().After(deadline) {
			t.Fatalf("the change does not begin:\n%s", out.String())
		}
		time.Sleep(20 * time.Millisecond) // it is a process
	}
	r.Must(syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	if err := cmd.Wait(); err == nil {
		t.Errorf("the interrupted apply succeeded:\n%s", out.String())
	}
	rig.WantSaid(t, out.String(), "Rolled back: hv01", "Untouched: hv02")
	r.WantCounts(4, rig.Both...)
	r.WantVM("avd-01", gpu.VMRunning, 1)
	r.WantVM("avd-02", gpu.VMRunning, 1)
	r.WantClaims([]string{"hv01"}, "partition_config vdi", "vm_assignment "+rig.VMID(1), "vm_assignment "+rig.VMID(2))
	r.WantSettled()
	if _, err := os.Stat(filepath.Join(c.Dir, ".terraform.tfstate.lock.info")); err == nil {
		t.Error("the state is locked")
	}

	r.Must(r.Fleet.EditSimulation(context.Background(), "hv01", func(s *simulated.Simulation) { s.Latency = nil }))
	rig.WantSaid(t, c.Apply(), "0 added, 3 changed, 0 destroyed")
	r.WantCounts(8, rig.Both...)
	c.WantNoChanges()
}

func TestKilledRunIsToldOfByThePlanAndPutBackByTheNextApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
	r.Must(r.Fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
		s.Latency = map[simulated.Op]int{simulated.OpStartVM: 60_000}
	}))
	c := rig.NewProcesses(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop))
	cmd := c.Command("apply", "-auto-approve", "-no-color")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	r.Must(cmd.Start())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // it is a process
		if v, _ := r.VM("avd-01"); v.State == gpu.VMOff && len(v.PartitionAdapters) == 1 {
			break // it waits for its start
		}
		if time.Now().After(deadline) {
			t.Fatalf("the change does not begin:\n%s", out.String())
		}
	}
	r.Must(syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait() // killed, as it should be
	r.Must(r.Fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) { s.Latency = nil }))

	rig.WantSaid(t, c.Ok("plan"), "Another run holds a host", "another run changes the host: ", fmt.Sprintf(`(owner %q), run `, "test"),
		"its lease ends at ",
		`It has begun a change for gpu_vm_assignment for VM "avd-01".`, "An apply waits up to three minutes for it", "If it was killed, apply")
	h, err := r.Fleet.Host("hv01")
	r.Must(err)
	r.Must(h.Update(t.Context(), func(st *backend.State) error {
		st.Lease.Expires, st.Lease.Ends = time.Now(), 0 // a minute passes
		return nil
	}))
	rig.WantSaid(t, c.Ok("plan"), "Unfinished change on a host", `A change for gpu_vm_assignment for VM "avd-01" was begun`)
	c.Apply()
	r.WantVM("avd-01", gpu.VMRunning, 1)
	r.WantSettled()
	c.WantNoChanges()
}
