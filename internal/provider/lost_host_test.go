package provider_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAssignmentOnAHostThatTheProviderLostIsKeptInTheState(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("hv01"), node("hv02", off(desktop("avd-01", 1)))))
	vm := assignment("avd-01", "partition = {}")
	c := newCLI(t, r.blockFor([]string{"hv01", "hv02"})+vm)
	c.apply()
	c.write(r.blockFor([]string{"hv01"}) + vm)
	wantSaid(t, c.ok("plan", "-detailed-exitcode"), "Host is not in the provider's configuration", "Host: hv02", "No changes.")
	r.wantVM("avd-01", gpu.VMOff, 1)
	wantSaid(t, c.destroy(), "1 destroyed")
	r.wantVM("avd-01", gpu.VMOff, 1) // nobody could ask the host
}

func TestPermissionToWaitForThePowerOffIsRecordedOnTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("hv01", desktop("avd-01", 1))))
	c := newCLI(t, r.block()+assignment("avd-01", "partition = {}", "power = { allow_shutdown = true }"))
	c.apply()
	c.write(r.block() + assignment("avd-01", "partition = {}", `power = { allow_shutdown = true, when = "next_off" }`))
	c.apply()
	for _, claim := range r.host("hv01").Claims {
		if a := claim.Want.Assignment; a == nil || !a.Power.NextOff || claim.Pending {
			t.Errorf("the claim does not say that the VM waits for its power-off: %+v", claim)
		}
	}
	r.wantVM("avd-01", gpu.VMRunning, 1)
	c.wantNoChanges()
}
