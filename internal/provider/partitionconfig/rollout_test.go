package partitionconfig_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccPartitionConfig_CreateThatFailsOnTheThirdHostIsRolledBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.FourNodes())
	r.Fail("hv03", simulated.OpSetPartitionCount, rig.GPU1, 0, 1)
	r.Steps(
		resource.TestStep{
			Config:      r.Block() + rig.ConfigOf(4, rig.Four, rig.Undo),
			ExpectError: rig.Says("Rolled back: hv01, hv02, hv03 Untouched: hv04 Remove the cause and apply again."),
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantCounts(16, rig.Four...)
				r.WantClaims(rig.Four)
				r.WantSettled()
			},
			Config:           r.Block() + rig.ConfigOf(4, rig.Four, rig.Undo),
			ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionCreate), // no state was left, so nothing is tainted
			Check: rig.Then(func() {
				r.WantCounts(4, rig.Four...)
				r.WantClaims(rig.Four, "partition_config vdi")
			}),
		},
	)
}

// All that holds the GPUs of a host is stopped together. Where that is more than the limit allows,
// the plan says so, and that the host has its turn alone.
func TestAccPartitionConfig_StopsOfOneHostBeyondTheLimitAreAnnounced(t *testing.T) {
	t.Parallel()
	vms := []string{"avd-01", "avd-02", "avd-03"}
	var desktops []gpu.VM
	assigned := ""
	for i, vm := range vms {
		desktops = append(desktops, rig.Desktop(vm, i+1))
		assigned += rig.Assign(vm, "allow_shutdown = true")
	}
	r := rig.New(t, rig.Standalone(rig.Node("hv01", desktops...)))
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(4, []string{"hv01"})+assigned)
	c.Apply()
	const says = "These 3 VMs are off together, beyond max_concurrent_vm_stops (1): the host has its turn alone."
	config := rig.ConfigOf(8, []string{"hv01"}, `max_disruption = "vm_restart"`) + assigned
	c.Write(r.Block("max_concurrent_vm_stops = 3") + config)
	if out := c.Ok("plan"); strings.Contains(rig.Sentence(out), "off together") {
		t.Errorf("the limit allows it:\n%s", out)
	}
	c.Write(r.Block() + config)
	rig.WantSaid(t, c.Ok("plan"), says)
	c.Apply()
	r.WantCounts(8, "hv01")
	for _, vm := range vms {
		r.WantVM(vm, gpu.VMRunning, 1)
	}
}

func TestAccPartitionConfig_CreateThatStopsOnTheThirdHostIsFinishedAfterUntaint(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.FourNodes())
	r.Fail("hv03", simulated.OpSetPartitionCount, rig.GPU1, 0, 1)
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(4, rig.Four, rig.GoNoOn))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Host: hv03", "Injected by the test", "Applied: hv01, hv02",
		"Rolled back: hv03", "Untouched: hv04", "terraform untaint")
	r.WantCounts(4, rig.Both...)
	r.WantCounts(16, "hv03", "hv04")
	for _, h := range rig.Both {
		if cl := r.Host(h).Claims; len(cl) != 1 || !cl[0].Incomplete {
			t.Errorf("host %s has the claims %+v, want one that is incomplete", h, cl)
		}
	}
	r.WantSettled()

	rig.WantSaid(t, c.Ok("plan"), rig.VDI+": replace, tainted")
	c.Ok("untaint", rig.VDI)
	rig.WantSaid(t, c.Ok("plan"), rig.VDI+": update", "0 to add, 1 to change, 0 to destroy", "did not succeed on every host")
	rig.WantSaid(t, c.PlannedValue(rig.VDI, "drift"), "host hv03, GPU "+rig.GPU0+" (NVIDIA A2)", "has 16 partitions")
	r.Fail("hv01", simulated.OpSetPartitionCount, "", 0, 0) // what stands is not done again
	r.Fail("hv02", simulated.OpSetPartitionCount, "", 0, 0)
	c.Apply()
	r.WantCounts(4, rig.Four...)
	for _, h := range rig.Four {
		if cl := r.Host(h).Claims; len(cl) != 1 || cl[0].Incomplete || len(cl[0].OriginalLayouts) != 2 || cl[0].OriginalLayouts.Of(rig.GPU0).
			Partitions != 16 {
			t.Errorf("host %s has the claims %+v, want one that is complete and knows the layout before", h, cl)
		}
	}
	c.WantNoChanges()
}

func TestAccPartitionConfig_DeletingAnIncompleteConfigOnlyDropsClaims(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.FourNodes())
	r.Fail("hv03", simulated.OpSetPartitionCount, rig.GPU1, 0, 1)
	r.Steps(resource.TestStep{ // its end destroys the tainted object
		Config:      r.Block() + rig.ConfigOf(4, rig.Four, rig.GoNoOn, `on_destroy = "restore"`),
		ExpectError: rig.Says("Applied: hv01, hv02"),
	})
	r.WantCounts(4, rig.Both...) // nobody knows what of a half-done object is whose
	r.WantCounts(16, "hv03", "hv04")
	r.WantClaims(rig.Four)
	r.WantSettled()
}

func TestAccPartitionConfig_UpdateThatFailsOnTheThirdHostIsRolledBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.FourNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.ConfigOf(4, rig.Four)},
		resource.TestStep{
			PreConfig:   func() { r.Fail("hv03", simulated.OpSetPartitionCount, rig.GPU1, 0, 1) },
			Config:      r.Block() + rig.ConfigOf(8, rig.Four),
			ExpectError: rig.Says("Rolled back: hv01, hv02, hv03 Untouched: hv04"),
		},
		resource.TestStep{ // The state is what it was, and so are the hosts.
			Config:   r.Block() + rig.ConfigOf(4, rig.Four),
			PlanOnly: true,
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantCounts(4, rig.Four...)
				r.WantClaims(rig.Four, "partition_config vdi")
				r.WantSettled()
			},
			Config:           r.Block() + rig.ConfigOf(8, rig.Four),
			ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionUpdate),
			Check:            rig.Then(func() { r.WantCounts(8, rig.Four...) }),
		},
	)
}

func TestAccPartitionConfig_UpdateThatStopsOnTheThirdHostIsFinishedByTheNextApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.FourNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.ConfigOf(4, rig.Four)},
		resource.TestStep{
			PreConfig:   func() { r.Fail("hv03", simulated.OpSetPartitionCount, rig.GPU1, 0, 1) },
			Config:      r.Block() + rig.ConfigOf(8, rig.Four, rig.GoNoOn),
			ExpectError: rig.Says("Applied: hv01, hv02 Rolled back: hv03 Untouched: hv04"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantCounts(8, rig.Both...)
				r.WantCounts(4, "hv03", "hv04")
				r.WantSettled()
				r.Fail("hv01", simulated.OpSetPartitionCount, "", 0, 0) // what stands is not done again
				r.Fail("hv02", simulated.OpSetPartitionCount, "", 0, 0)
			},
			Config:           r.Block() + rig.ConfigOf(8, rig.Four, rig.GoNoOn),
			ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionUpdate),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(1896)),
				statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: rig.Then(func() { r.WantCounts(8, rig.Four...) }),
		},
	)
}

func TestAccPartitionConfig_HostThatCouldNotLeaveStaysInTheState(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.FourNodes())
	fewer := []string{"hv01", "hv02"}
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.ConfigOf(4, rig.Four)},
		resource.TestStep{
			PreConfig:   func() { r.Fail("hv03", simulated.OpSetPartitionCount, rig.GPU1, 0, 1) },
			Config:      r.Block() + rig.ConfigOf(4, fewer, rig.GoNoOn, `on_destroy = "restore"`),
			ExpectError: rig.Says("Rolled back: hv03 Untouched: hv04"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantCounts(4, rig.Four...)
				r.WantClaims(rig.Four, "partition_config vdi")
			},
			Config: r.Block() + rig.ConfigOf(4, fewer, rig.GoNoOn, `on_destroy = "restore"`),
			Check: rig.Then(func() {
				r.WantCounts(4, fewer...)
				r.WantCounts(16, "hv03", "hv04")
				r.WantClaims([]string{"hv03", "hv04"})
			}),
		},
	)
}

func TestAccPartitionConfig_RolloutChangesAsManyHostsAtOnceAsItMay(t *testing.T) {
	t.Parallel()
	for atOnce, want := range map[int]string{
		1: "Rolled back: hv01 Untouched: hv02, hv03, hv04",
		2: "Rolled back: hv01, hv02 Untouched: hv03, hv04",
		9: "Rolled back: hv01, hv02, hv03, hv04 Remove",
	} {
		t.Run(fmt.Sprint(atOnce), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.FourNodes())
			// hv01 takes its time before it fails, so that whoever may work beside it has
			// begun, and the others take longer still.
			for i, h := range rig.Four {
				r.Must(r.Fleet.EditSimulation(context.Background(), h, func(s *simulated.Simulation) {
					s.Latency = map[simulated.Op]int{simulated.OpSetPartitionCount: min(200+600*i, 800)}
				}))
			}
			r.Fail("hv01", simulated.OpSetPartitionCount, rig.GPU0, 0, 1)
			r.Steps(resource.TestStep{
				Config:      r.Block() + rig.ConfigOf(4, rig.Four, fmt.Sprintf("rollout = { max_unavailable = %d }", atOnce)),
				ExpectError: rig.Says(want),
			})
			r.WantCounts(16, rig.Four...)
			r.WantClaims(rig.Four)
			r.WantSettled()
		})
	}
}

func TestAccPartitionConfig_RollbackThatFailsSaysWhatStands(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.FourNodes())
	r.Fail("hv01", simulated.OpSetPartitionCount, rig.GPU1, 1, 0) // succeeds once, and cannot be put back
	r.Fail("hv03", simulated.OpSetPartitionCount, rig.GPU0, 0, 1)
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(4, rig.Four))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Host: hv03", "Rolled back: hv02, hv03", "Left half done: hv01", "Untouched: hv04",
		"Still in place on hv01: set 4 partitions on GPU "+rig.GPU1+", since it was not possible to set 16 partitions", "terraform untaint")
	if got := r.Counts("hv01"); got[rig.GPU0] != 16 || got[rig.GPU1] != 4 {
		t.Errorf("hv01 has the counts %v", got)
	}
	if cl := r.Host("hv01").Claims; len(cl) != 1 || !cl[0].Incomplete {
		t.Errorf("hv01 has the claims %+v, want one that is incomplete", cl)
	}
	r.WantCounts(16, "hv02", "hv03", "hv04")
	r.WantClaims([]string{"hv02", "hv03", "hv04"})
	r.WantSettled()

	r.ClearFaults("hv01")
	c.Ok("untaint", rig.VDI)
	rig.WantSaid(t, c.Apply(), "0 added, 1 changed, 0 destroyed")
	r.WantCounts(4, rig.Four...)
	c.WantNoChanges()
}
