package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// actionOn is an action "now" on a VM.
func actionOn(typ, vm string, more ...string) string {
	return actionOf(typ, append([]string{fmt.Sprintf("vm = %q", vm)}, more...)...)
}

func actionOf(typ string, args ...string) string {
	return fmt.Sprintf("action %q \"now\" {\n  config {\n    %s\n  }\n}\n", typ, strings.Join(args, "\n    "))
}

const waitsForOff = `power = { allow_shutdown = true, when = "next_off" }`

// What waits for a VM's next power-off is made by an action, whose plan names the VM; the
// assignment stays as declared.
func TestActionsApplyWhatIsPending(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, "")
	needsQuery(t, c) // which is of the same version
	r := rig.New(t, rig.TwoNodes())
	config := r.Block() + rig.Assignment("avd-01", rig.AnyPartition, waitsForOff)
	c.Write(config)
	c.Apply()
	r.WantVM("avd-01", gpu.VMRunning, 0)
	c.Write(config + actionOn("gpu_apply_pending", "avd-01"))
	c.WantNoChanges()
	before := r.Snapshot()
	const invoke = "-invoke=action.gpu_apply_pending.now"
	rig.WantSaid(t, c.Ok("plan", invoke), "Warning: hv01: VM avd-01 is shut down and started again")
	r.WantUnchanged(before)
	c.Apply(invoke)
	r.WantHeld(gpu.VMRunning, "avd-01")
	c.WantNoChanges()
	rig.WantSaid(t, c.Ok("plan", invoke), "hv01: VM avd-01 is shut down if a change of this run is followed by gpu_apply_pending")
	after := r.Snapshot()
	c.Apply(invoke) // nothing waits
	rig.SameHardware(t, after, r.Snapshot())
}

// An action that a resource triggers comes after its change, in the same apply.
func TestActionsFollowTheirResource(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, "")
	needsQuery(t, c)
	r := rig.New(t, rig.TwoNodes())
	c.Write(r.Block() + rig.Assignment("avd-01", rig.AnyPartition, waitsForOff, `lifecycle {
    action_trigger {
      events  = [after_create, after_update]
      actions = [action.gpu_apply_pending.now]
    }
  }`) + actionOn("gpu_apply_pending", "avd-01"))
	rig.WantSaid(t, c.Ok("plan"), "hv01: VM avd-01 is shut down if a change of this run is followed by gpu_apply_pending")
	c.Apply()
	r.WantHeld(gpu.VMRunning, "avd-01")
	c.WantNoChanges()
}

// A VM is shut down and started as its assignment allows, and no plan of a resource minds.
func TestActionsSetThePowerState(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, "")
	needsQuery(t, c)
	r := rig.New(t, rig.TwoNodes())
	const invoke = "-invoke=action.gpu_vm_power.now"
	config := r.Block() + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop)
	off, on := actionOn("gpu_vm_power", "avd-01", `state = "off"`), actionOn("gpu_vm_power", "avd-01", `state = "running"`)
	c.Write(config + off)
	c.Apply()
	rig.WantSaid(t, c.Ok("plan", invoke), "Warning: hv01: VM avd-01 is shut down and left off")
	c.Apply(invoke)
	r.WantHeld(gpu.VMOff, "avd-01")
	r.WantSettled()
	c.WantNoChanges()
	c.Apply(invoke)
	r.WantHeld(gpu.VMOff, "avd-01")
	c.Write(config + on)
	c.Apply(invoke)
	r.WantHeld(gpu.VMRunning, "avd-01")

	// The same permissions as for a change.
	for name, tt := range map[string]struct{ config, says string }{
		"policy": {r.Block() + rig.Assignment("avd-01", rig.AnyPartition) + off, "does not allow"},
		"no record": {
			r.Block() + rig.Assignment("avd-01", rig.AnyPartition) + actionOn("gpu_vm_power", "avd-02", `state = "off"`), "The VM has no assignment",
		},
		"owner":      {r.BlockOf("other") + off, `claimed by owner "test", and this provider's owner is "other"`},
		"read only":  {r.Block("read_only = true") + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop) + off, "read_only"},
		"unknown VM": {config + actionOn("gpu_vm_power", "avd-77", `state = "off"`), "VM was not found"},
		"state":      {config + actionOn("gpu_vm_power", "avd-01", `state = "paused"`), "Invalid Attribute Value Match"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Write(tt.config)
			if name == "policy" {
				c.Apply()
			}
			rig.WantSaid(t, c.Fails("apply", "-auto-approve", invoke), tt.says)
			r.WantHeld(gpu.VMRunning, "avd-01")
			c.Write(config)
			c.Apply()
		})
	}
}

// A node is drained and resumed by an action, whose plan names the VMs that move. No VM is ever
// off, and no plan of a resource minds.
func TestActionsDrainANode(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, "")
	needsQuery(t, c)
	r := rig.New(t, migrating())
	const invoke = "-invoke=action.gpu_host_drain.now"
	drain, resume := actionOf("gpu_host_drain", `host = "hv01"`, `state = "drained"`),
		actionOf("gpu_host_drain", `host = "hv01"`, `state = "up"`)
	config := r.Block() + rig.ConfigOf(16, three, draining) + everyVM()
	c.Write(config + drain)
	c.Apply()
	for n := 1; n <= 6; n++ {
		r.NeverStops(fmt.Sprintf("avd-%02d", n), three...)
	}
	before := r.Snapshot()
	rig.WantSaid(t, c.Ok("plan", invoke), `Warning: hv01: gpu_partition_config "vdi" drains the node`,
		"Live migration moves VMs avd-01 and avd-02 to other nodes of the cluster")
	r.WantUnchanged(before)
	c.Apply(invoke)
	if h := r.Snapshot().Hosts[0]; h.NodeState() != gpu.NodePaused || len(h.VMs) > 0 {
		t.Errorf("hv01 is %s, with VMs %+v", h.NodeState(), h.VMs)
	}
	c.WantNoChanges()
	c.Apply(invoke) // once more
	c.Write(config + resume)
	c.Apply(invoke)
	if h := r.Snapshot().Hosts[0]; h.NodeState() != gpu.NodeUp || len(h.VMs) != 2 {
		t.Errorf("hv01 is %s, with VMs %+v", h.NodeState(), h.VMs)
	}
	c.WantNoChanges()

	full := strings.Replace(drain, `"hv01"`, `"hv09"`, 1)
	for name, tt := range map[string]struct{ config, says string }{
		"policy":       {r.Block() + rig.ConfigOf(16, three) + everyVM() + drain, "allows it to be drained"},
		"owner":        {r.BlockOf("other") + drain, "The host has no such partition config"},
		"read only":    {r.Block("read_only = true") + rig.ConfigOf(16, three, draining) + everyVM() + drain, "read_only"},
		"unknown host": {config + full, "The host cannot be asked"},
		"state":        {config + actionOf("gpu_host_drain", `host = "hv01"`, `state = "down"`), "Invalid Attribute Value Match"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Write(tt.config)
			if name == "policy" {
				c.Apply()
			}
			rig.WantSaid(t, c.Fails("apply", "-auto-approve", invoke), tt.says)
			if state := r.Snapshot().Hosts[0].NodeState(); state != gpu.NodeUp {
				t.Errorf("hv01 is %s", state)
			}
			c.Write(config)
			c.Apply()
		})
	}
}

// MPS daemons are restarted by an action as far as their config allows, and its plan says how many
// clients end. Shares stay, and no plan of a resource minds.
func TestActionsRestartMPS(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, "")
	needsQuery(t, c)
	r := rig.New(t, rig.GPUHost(1))
	const invoke = "-invoke=action.gpu_mps_restart.now"
	act := actionOf("gpu_mps_restart", `host = "gpu01"`, `config = gpu_partition_config.inference.id`)
	allows := `max_disruption = "process_restart"`
	c.Write(r.Block() + rig.MPSOf(rig.HalfEach) + act)
	c.Apply()
	if _, err := r.Fleet.StartClient(t.Context(), "gpu01", "inference", gpu.Process{Name: "trainer"}); err != nil {
		t.Fatal(err)
	}
	rig.WantSaid(t, c.Fails("plan", invoke), "MPS clients would be terminated", "trainer")
	was := r.Snapshot().Hosts[0].MPS.Daemons[0]
	c.Write(r.Block() + rig.MPSOf(rig.HalfEach, allows) + act)
	c.Apply()
	rig.WantSaid(t, c.Ok("plan", invoke), `gpu01: gpu_partition_config "inference" terminates 1 MPS client`, "trainer")
	if d := r.Snapshot().Hosts[0].MPS.Daemons[0]; d.PID != was.PID || len(d.Clients) != 1 {
		t.Errorf("a plan left the daemon as %+v", d)
	}
	c.Apply(invoke)
	if d := r.Snapshot().Hosts[0].MPS.Daemons[0]; d.PID == was.PID || d.PID == 0 || len(d.Clients) > 0 {
		t.Errorf("the daemon is %+v, and was %+v", d, was)
	}
	c.WantNoChanges()
}
