package provider_test

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// actionOn is an action "now" on a VM.
func actionOn(typ, vm string, more ...string) string {
	text := fmt.Sprintf("action %q \"now\" {\n  config {\n    vm = %q\n", typ, vm)
	for _, m := range more {
		text += "    " + m + "\n"
	}
	return text + "  }\n}\n"
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
		"policy":     {r.Block() + rig.Assignment("avd-01", rig.AnyPartition) + off, "does not allow"},
		"no record":  {r.Block() + rig.Assignment("avd-01", rig.AnyPartition) + actionOn("gpu_vm_power", "avd-02", `state = "off"`), "The VM has no assignment"},
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
