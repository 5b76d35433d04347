package provider_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAssignmentOnAHostThatTheProviderLostIsKeptInTheState(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01"), rig.Node("hv02", rig.Off(rig.Desktop("avd-01", 1)))))
	vm := rig.Assignment("avd-01", "partition = {}")
	c := rig.NewCLI(t, r.BlockFor([]string{"hv01", "hv02"})+vm)
	c.Apply()
	c.Write(r.BlockFor([]string{"hv01"}) + vm)
	rig.WantSaid(t, c.Ok("plan", "-detailed-exitcode"), "Host is not in the provider's configuration", "Host: hv02", "No changes.")
	r.WantVM("avd-01", gpu.VMOff, 1)
	rig.WantSaid(t, c.Destroy(), "1 destroyed")
	r.WantVM("avd-01", gpu.VMOff, 1) // nobody could ask the host
}

func TestPermissionToWaitForThePowerOffIsRecordedOnTheHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", "partition = {}", "power = { allow_shutdown = true }"))
	c.Apply()
	c.Write(r.Block() + rig.Assignment("avd-01", "partition = {}", `power = { allow_shutdown = true, when = "next_off" }`))
	c.Apply()
	for _, claim := range r.Host("hv01").Claims {
		if a := claim.Want.Assignment; a == nil || !a.Power.NextOff || claim.Pending {
			t.Errorf("the claim does not say that the VM waits for its power-off: %+v", claim)
		}
	}
	r.WantVM("avd-01", gpu.VMRunning, 1)
	c.WantNoChanges()
}
