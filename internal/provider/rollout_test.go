package provider_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
)

const (
	undo   = `rollout = { on_failure = "rollback" }`
	goNoOn = `rollout = { on_failure = "stop" }`
)

func TestCreateThatFailsOnTheThirdHostIsRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, fourNodes())
	r.fail("hv03", simulated.OpSetPartitionCount, gpu1, 0, 1)
	r.steps(
		resource.TestStep{
			Config:      r.block() + configOf(4, four, undo),
			ExpectError: says("Rolled back: hv01, hv02, hv03 Untouched: hv04 Nothing of this change remains on any host."),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantCounts(16, four...)
				r.wantClaims(four)
				r.wantSettled()
			},
			Config:           r.block() + configOf(4, four, undo),
			ConfigPlanChecks: planned(vdi, plancheck.ResourceActionCreate), // no state was left, so nothing is tainted
			Check: then(func() {
				r.wantCounts(4, four...)
				r.wantClaims(four, "partition_config vdi")
			}),
		},
	)
}

func TestCreateThatStopsOnTheThirdHostIsFinishedAfterUntaint(t *testing.T) {
	t.Parallel()
	r := newRig(t, fourNodes())
	r.fail("hv03", simulated.OpSetPartitionCount, gpu1, 0, 1)
	c := newCLI(t, r.block()+configOf(4, four, goNoOn))
	wantSaid(t, c.fails("apply", "-auto-approve"), "Host: hv03", "injected by the test", "Applied: hv01, hv02", "Rolled back: hv03", "Untouched: hv04", "terraform untaint")
	r.wantCounts(4, both...)
	r.wantCounts(16, "hv03", "hv04")
	for _, h := range both {
		if cl := r.host(h).Claims; len(cl) != 1 || !cl[0].Incomplete {
			t.Errorf("host %s has the claims %+v, want one that is incomplete", h, cl)
		}
	}
	r.wantSettled()

	wantSaid(t, c.ok("plan"), vdi+" is tainted, so")
	c.ok("untaint", vdi)
	wantSaid(t, c.ok("plan"), "updated in-place", "0 to add, 1 to change, 0 to destroy",
		"host hv03, GPU "+gpu0+" (NVIDIA A2): has 16 partitions, declared are 4", "did not succeed on every host")
	r.fail("hv01", simulated.OpSetPartitionCount, "", 0, 0) // what stands is not done again
	r.fail("hv02", simulated.OpSetPartitionCount, "", 0, 0)
	c.apply()
	r.wantCounts(4, four...)
	for _, h := range four {
		if cl := r.host(h).Claims; len(cl) != 1 || cl[0].Incomplete || len(cl[0].LayoutBefore) != 2 || cl[0].LayoutBefore[gpu0] != 16 {
			t.Errorf("host %s has the claims %+v, want one that is complete and knows the layout before", h, cl)
		}
	}
	c.wantNoChanges()
}

func TestDeletingAnIncompleteConfigOnlyDropsClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t, fourNodes())
	r.fail("hv03", simulated.OpSetPartitionCount, gpu1, 0, 1)
	r.steps(resource.TestStep{ // its end destroys the tainted object
		Config:      r.block() + configOf(4, four, goNoOn, `on_destroy = "restore"`),
		ExpectError: says("Applied: hv01, hv02"),
	})
	r.wantCounts(4, both...) // nobody knows what of a half-done object is whose
	r.wantCounts(16, "hv03", "hv04")
	r.wantClaims(four)
	r.wantSettled()
}

func TestUpdateThatFailsOnTheThirdHostIsRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, fourNodes())
	r.steps(
		resource.TestStep{Config: r.block() + configOf(4, four)},
		resource.TestStep{
			PreConfig:   func() { r.fail("hv03", simulated.OpSetPartitionCount, gpu1, 0, 1) },
			Config:      r.block() + configOf(8, four),
			ExpectError: says("Rolled back: hv01, hv02, hv03 Untouched: hv04"),
		},
		resource.TestStep{ // The state is what it was, and so are the hosts.
			Config:   r.block() + configOf(4, four),
			PlanOnly: true,
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantCounts(4, four...)
				r.wantClaims(four, "partition_config vdi")
				r.wantSettled()
			},
			Config:           r.block() + configOf(8, four),
			ConfigPlanChecks: planned(vdi, plancheck.ResourceActionUpdate),
			Check:            then(func() { r.wantCounts(8, four...) }),
		},
	)
}

func TestUpdateThatStopsOnTheThirdHostIsFinishedByTheNextApply(t *testing.T) {
	t.Parallel()
	r := newRig(t, fourNodes())
	r.steps(
		resource.TestStep{Config: r.block() + configOf(4, four)},
		resource.TestStep{
			PreConfig:   func() { r.fail("hv03", simulated.OpSetPartitionCount, gpu1, 0, 1) },
			Config:      r.block() + configOf(8, four, goNoOn),
			ExpectError: says("Applied: hv01, hv02 Rolled back: hv03 Untouched: hv04"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantCounts(8, both...)
				r.wantCounts(4, "hv03", "hv04")
				r.wantSettled()
				r.fail("hv01", simulated.OpSetPartitionCount, "", 0, 0) // what stands is not done again
				r.fail("hv02", simulated.OpSetPartitionCount, "", 0, 0)
			},
			Config:           r.block() + configOf(8, four, goNoOn),
			ConfigPlanChecks: planned(vdi, plancheck.ResourceActionUpdate),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(vdi, tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(1896)),
				statecheck.ExpectKnownValue(vdi, tfjsonpath.New("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: then(func() { r.wantCounts(8, four...) }),
		},
	)
}

func TestHostThatCouldNotLeaveStaysInTheState(t *testing.T) {
	t.Parallel()
	r := newRig(t, fourNodes())
	fewer := []string{"hv01", "hv02"}
	r.steps(
		resource.TestStep{Config: r.block() + configOf(4, four)},
		resource.TestStep{
			PreConfig:   func() { r.fail("hv03", simulated.OpSetPartitionCount, gpu1, 0, 1) },
			Config:      r.block() + configOf(4, fewer, goNoOn, `on_destroy = "restore"`),
			ExpectError: says("Rolled back: hv03 Untouched: hv04"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantCounts(4, four...)
				r.wantClaims(four, "partition_config vdi")
			},
			Config: r.block() + configOf(4, fewer, goNoOn, `on_destroy = "restore"`),
			Check: then(func() {
				r.wantCounts(4, fewer...)
				r.wantCounts(16, "hv03", "hv04")
				r.wantClaims([]string{"hv03", "hv04"})
			}),
		},
	)
}

func TestRolloutChangesAsManyHostsAtOnceAsItMay(t *testing.T) {
	t.Parallel()
	for atOnce, want := range map[int]string{
		1: "Rolled back: hv01 Untouched: hv02, hv03, hv04",
		2: "Rolled back: hv01, hv02 Untouched: hv03, hv04",
		9: "Rolled back: hv01, hv02, hv03, hv04 Nothing",
	} {
		t.Run(fmt.Sprint(atOnce), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fourNodes())
			// hv01 takes its time before it fails, so that whoever may work beside it has
			// begun, and the others take longer still.
			for i, h := range four {
				r.must(r.fleet.EditSimulation(context.Background(), h, func(s *simulated.Simulation) {
					s.Latency = map[simulated.Op]int{simulated.OpSetPartitionCount: min(200+600*i, 800)}
				}))
			}
			r.fail("hv01", simulated.OpSetPartitionCount, gpu0, 0, 1)
			r.steps(resource.TestStep{
				Config:      r.block() + configOf(4, four, fmt.Sprintf("rollout = { max_unavailable = %d }", atOnce)),
				ExpectError: says(want),
			})
			r.wantCounts(16, four...)
			r.wantClaims(four)
			r.wantSettled()
		})
	}
}

func TestRollbackThatFailsSaysWhatStands(t *testing.T) {
	t.Parallel()
	r := newRig(t, fourNodes())
	r.fail("hv01", simulated.OpSetPartitionCount, gpu1, 1, 0) // succeeds once, and cannot be put back
	r.fail("hv03", simulated.OpSetPartitionCount, gpu0, 0, 1)
	c := newCLI(t, r.block()+configOf(4, four))
	wantSaid(t, c.fails("apply", "-auto-approve"), "Host: hv03", "Rolled back: hv02, hv03", "Left half done: hv01", "Untouched: hv04",
		"On hv01 there still stands: set 4 partitions on GPU "+gpu1+", since it was not possible to set 16 partitions", "terraform untaint")
	if got := r.counts("hv01"); got[gpu0] != 16 || got[gpu1] != 4 {
		t.Errorf("hv01 has the counts %v", got)
	}
	if cl := r.host("hv01").Claims; len(cl) != 1 || !cl[0].Incomplete {
		t.Errorf("hv01 has the claims %+v, want one that is incomplete", cl)
	}
	r.wantCounts(16, "hv02", "hv03", "hv04")
	r.wantClaims([]string{"hv02", "hv03", "hv04"})
	r.wantSettled()

	r.clearFaults("hv01")
	c.ok("untaint", vdi)
	wantSaid(t, c.apply(), "0 added, 1 changed, 0 destroyed")
	r.wantCounts(4, four...)
	c.wantNoChanges()
}
