package vmassignment_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccVMAssignment_ARunningVMIsStoppedGivenAPartitionAndStarted(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(more ...string) string {
		return r.Block() + rig.Config4 + rig.Assignment("avd-01", append(more, "partition = { config = gpu_partition_config.vdi.id }")...)
	}
	r.Steps(
		r.Rejects(config(), `and its assignment does not allow to shut it down.`,
			"Write `power = { allow_shutdown = true }` to shut it down and start it again"),
		resource.TestStep{
			PreConfig: func() {
				r.WantVM("avd-01", gpu.VMRunning, 0)
				r.WantCounts(16, rig.Both...)
				r.StopsOnce("hv01", "avd-01")
			},
			Config: config(rig.MayStop),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_id")),
				plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("owner_host")),
				plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("vm_id")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("vm_id"), knownvalue.StringExact(rig.VMID(1))),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("owner_host"), knownvalue.StringExact("hv01")),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(3792)),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_id"), knownvalue.Int64Exact(0)),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"),
					knownvalue.SetExact([]knownvalue.Check{knownvalue.StringExact(rig.GPU0)})),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("pending"), knownvalue.Bool(false)),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: rig.Then(func() {
				r.WantVM("avd-01", gpu.VMRunning, 1)
				if id, p := r.PartitionOf("avd-01"); id != rig.GPU0 || p.VRAM.MiB() != 3792 {
					t.Errorf("avd-01 holds %+v on GPU %q", p, id)
				}
				r.WantClaims([]string{"hv01"}, "partition_config vdi", "vm_assignment "+rig.VMID(1))
				r.ClearFaults("hv01")
				r.StopsOnce("hv01", "avd-01")
			}),
		},
	)
	// The destroy took the partition back, with one stop, and started the VM again.
	r.WantVM("avd-01", gpu.VMRunning, 0)
	r.WantClaims([]string{"hv01"})
}

func TestAccVMAssignment_AVMThatIsOffStaysOffAndShowsItsPartitionOnceItRuns(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := r.Block() + rig.Assignment("avd-03", rig.AnyPartition)
	null := func(attribute string) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New(attribute), knownvalue.Null())
	}
	r.Steps(
		resource.TestStep{
			Config: config,
			ConfigStateChecks: []statecheck.StateCheck{
				null("partition_id"), null("partition_vram_mib"),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"), knownvalue.SetSizeExact(0)),
			},
			Check: rig.Then(func() { r.WantVM("avd-03", gpu.VMOff, 1) }),
		},
		resource.TestStep{
			PreConfig:        func() { r.Must(r.Fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning)) },
			Config:           config,
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionNoop),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_id"), knownvalue.Int64Exact(0)),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(948)),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"), knownvalue.SetSizeExact(1)),
			},
		},
		resource.TestStep{
			// Only so that the destroy may stop the VM: a change of policy.
			PreConfig:        func() { r.NeverStops("avd-03", "hv01") },
			Config:           r.Block() + rig.Assignment("avd-03", rig.AnyPartition, rig.MayStop),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check:            rig.Then(func() { r.ClearFaults("hv01") }),
		},
	)
	r.WantVM("avd-03", gpu.VMRunning, 0)
}

func TestAccVMAssignment_ADestroyThatMayNotStopTheVMIsRefusedAtPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := r.Block() + rig.Assignment("avd-03", rig.AnyPartition)
	r.Steps(
		resource.TestStep{Config: config},
		resource.TestStep{
			PreConfig:   func() { r.Must(r.Fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning)) },
			Config:      r.Block(),
			ExpectError: rig.Says("A destroy knows only what was applied: apply this attribute first, or set it in the provider's `power` block."),
		},
		// The provider's power is what a destroy falls back to.
		resource.TestStep{
			PreConfig: func() { r.WantVM("avd-03", gpu.VMRunning, 1) },
			Config:    r.Block("power = { allow_shutdown = true }"),
			Check:     rig.Then(func() { r.WantVM("avd-03", gpu.VMRunning, 0) }),
		},
	)
}

func TestAccVMAssignment_StartAfterNeverLeavesTheVMOff(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(resource.TestStep{
		Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, `power = { allow_shutdown = true, start_after = "never" }`),
		Check:  rig.Then(func() { r.WantVM("avd-01", gpu.VMOff, 1) }),
	})
	r.WantVM("avd-01", gpu.VMOff, 0)
}

func TestAccVMAssignment_NextOffWaitsForTheVMAndIsMadeOnceItIsOff(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := r.Block() + rig.Assignment("avd-01", rig.AnyPartition, `power = { when = "next_off" }`)
	pending := func(v bool) []statecheck.StateCheck {
		return []statecheck.StateCheck{statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("pending"), knownvalue.Bool(v))}
	}
	r.Steps(
		resource.TestStep{
			PreConfig:         func() { r.NeverStops("avd-01", "hv01") },
			Config:            config, // and its second plan is empty
			ConfigStateChecks: pending(true),
			Check:             rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 0) }),
		},
		resource.TestStep{
			PreConfig:         func() { r.Must(r.Fleet.SetVMState(context.Background(), "avd-01", gpu.VMOff)) },
			Config:            config,
			ConfigPlanChecks:  rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			ConfigStateChecks: pending(false),
			Check:             rig.Then(func() { r.WantVM("avd-01", gpu.VMOff, 1) }),
		},
		// While it runs, next_off cannot take the partition back either.
		resource.TestStep{
			PreConfig:   func() { r.Must(r.Fleet.SetVMState(context.Background(), "avd-01", gpu.VMRunning)) },
			Config:      r.Block(),
			ExpectError: rig.Says("its assignment waits for its next power-off."),
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantVM("avd-01", gpu.VMRunning, 1)
				r.Must(r.Fleet.SetVMState(context.Background(), "avd-01", gpu.VMOff))
			},
			Config: r.Block(),
			Check:  rig.Then(func() { r.WantVM("avd-01", gpu.VMOff, 0) }),
		},
	)
}

// What a setting was before is remembered from when it is written, not from when it was to wait.
func TestAccVMAssignment_APendingAssignmentGivesSettingsBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := r.Block() + rig.Assignment("avd-01", rig.AnyPartition, `automatic_stop_action = "turn_off"`, `power = { when = "next_off" }`)
	want := func(want gpu.StopAction) func() {
		return func() {
			if v, _ := r.VM("avd-01"); *v.Settings.AutomaticStopAction != want {
				t.Errorf("the automatic stop action is %s, want %s", *v.Settings.AutomaticStopAction, want)
			}
		}
	}
	r.Steps(
		resource.TestStep{Config: config, Check: rig.Then(want(gpu.StopSave))},
		resource.TestStep{
			PreConfig: func() { r.Must(r.Fleet.SetVMState(context.Background(), "avd-01", gpu.VMOff)) },
			Config:    config, Check: rig.Then(want(gpu.StopTurnOff)),
		},
	)
	want(gpu.StopSave)()
}

func TestAccVMAssignment_APendingAssignmentIsMadeWhenItNeedNotWaitAnyMore(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, `power = { when = "next_off" }`),
			Check:  rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 0) }),
		},
		r.Rejects(r.Block()+rig.Assignment("avd-01", rig.AnyPartition), "The VM must be off"),
		resource.TestStep{
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("pending"), knownvalue.Bool(false)),
			},
			Check: rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 1) }),
		},
	)
}

func TestAccVMAssignment_APendingChangeLeavesTheVMWhatItHas(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(quotas, when string) string {
		return r.Block() + rig.Assignment("avd-01", "partition = {"+quotas+"}", `power = { allow_shutdown = true, when = "`+when+`" }`)
	}
	decode := func() *uint64 {
		v, _ := r.VM("avd-01")
		return v.PartitionAdapters[0].Quotas.Decode.Max
	}
	pending := func(v bool) []statecheck.StateCheck {
		return []statecheck.StateCheck{statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("pending"), knownvalue.Bool(v))}
	}
	r.Steps(
		resource.TestStep{Config: config("", "now")},
		resource.TestStep{
			PreConfig:         func() { r.NeverStops("avd-01", "hv01") },
			Config:            config("max_partition_decode = 90", "next_off"),
			ConfigStateChecks: pending(true),
			Check: rig.Then(func() {
				if r.WantVM("avd-01", gpu.VMRunning, 1); decode() != nil {
					t.Errorf("the quota is %d already", *decode())
				}
			}),
		},
		// Taken back before it was made.
		resource.TestStep{Config: config("", "next_off"), ConfigStateChecks: pending(false)},
		resource.TestStep{Config: config("max_partition_decode = 80", "next_off"), ConfigStateChecks: pending(true)},
		resource.TestStep{
			PreConfig:         func() { r.ClearFaults("hv01"); r.StopsOnce("hv01", "avd-01") },
			Config:            config("max_partition_decode = 80", "now"),
			ConfigStateChecks: pending(false),
			Check: rig.Then(func() {
				if r.WantVM("avd-01", gpu.VMRunning, 1); decode() == nil || *decode() != 80 {
					t.Errorf("the quota is %v, want 80", decode())
				}
				r.ClearFaults("hv01")
			}),
		},
	)
	r.WantVM("avd-01", gpu.VMRunning, 0)
}

func TestAccVMAssignment_APendingAssignmentIsDestroyedWithoutTouchingTheVM(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(resource.TestStep{
		PreConfig: func() { r.NeverStops("avd-01", "hv01") },
		Config:    r.Block() + rig.Assignment("avd-01", rig.AnyPartition, `power = { when = "next_off" }`),
	})
	r.WantVM("avd-01", gpu.VMRunning, 0)
	r.WantClaims([]string{"hv01"})
}

func TestAccVMAssignment_ALockedGuestIsForcedOnlyWhenAllowed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Must(r.Fleet.SetGuest(context.Background(), "avd-01", simulated.Guest{Locked: true}))
	before := r.Machine("avd-01")
	r.Steps(
		resource.TestStep{
			// The power is not cut either: somebody is at work.
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, "power = { allow_shutdown = true, allow_turn_off = true }"),
			ExpectError: rig.Says("The machine is locked and cannot be shut down without the force option",
				"or set `force_shutdown = true` in the `power` of its assignment"),
		},
		resource.TestStep{
			PreConfig: func() {
				if diff := cmp.Diff(before, r.Machine("avd-01")); diff != "" {
					t.Errorf("avd-01 is not as it was (-was +is):\n%s", diff)
				}
			},
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, "power = { allow_shutdown = true, force_shutdown = true }"),
			Check:  rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 1) }),
		},
	)
}

func TestAccVMAssignment_AGuestThatDoesNotHearIsTurnedOffOnlyWhenAllowed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Must(r.Fleet.SetGuest(context.Background(), "avd-01", simulated.Guest{NoIntegration: true}))
	r.Steps(
		resource.TestStep{
			Config:      r.Block() + rig.Assignment("avd-01", rig.AnyPartition, `power = { allow_shutdown = true, shutdown_timeout = "300ms" }`),
			ExpectError: rig.Says("The guest had not shut down when time ran out"),
		},
		resource.TestStep{
			PreConfig: func() { r.WantVM("avd-01", gpu.VMRunning, 0) },
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition,
				`power = { allow_shutdown = true, allow_turn_off = true, shutdown_timeout = "300ms" }`),
			Check: rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 1) }),
		},
	)
}

func TestAccVMAssignment_AGuestThatIsTooSlowIsStartedAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Must(r.Fleet.SetGuest(context.Background(), "avd-01", simulated.Guest{ShutdownMS: 1500}))
	r.Steps(resource.TestStep{
		Config:      r.Block() + rig.Assignment("avd-01", rig.AnyPartition, `power = { allow_shutdown = true, shutdown_timeout = "300ms" }`),
		ExpectError: rig.Says("The guest had not shut down when time ran out"),
	})
	r.WantVM("avd-01", gpu.VMRunning, 0)
}

func TestAccVMAssignment_AVMThatDoesNotStartWithItsGPUIsPutBackAndRuns(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Must(r.Fleet.SetGuest(context.Background(), "avd-01", simulated.Guest{StartFails: simulated.StartFailsWithGPU}))
	before := r.Machine("avd-01")
	r.Steps(resource.TestStep{
		Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop, "high_memory_mapped_io_space_mib = 33280",
			`automatic_stop_action = "turn_off"`),
		ExpectError: rig.Says("The virtual machine failed to start"),
	})
	if diff := cmp.Diff(before, r.Machine("avd-01")); diff != "" {
		t.Errorf("avd-01 is not as it was (-was +is):\n%s", diff)
	}
	r.WantClaims([]string{"hv01"})
}

func TestAccVMAssignment_SettingsAreWrittenOnlyWhenSetAndPutBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	before := r.Machine("avd-01")
	settings := func() gpu.VMSettings { return r.Machine("avd-01").Settings }
	want := func(edit func(*gpu.VMSettings)) {
		t.Helper()
		s := before.Settings
		edit(&s)
		if diff := cmp.Diff(s, settings()); diff != "" {
			t.Errorf("settings of avd-01 (-want +is):\n%s", diff)
		}
	}
	low, high, cache, stop, offline := 3072*gpu.MiB, 33280*gpu.MiB, true, gpu.StopTurnOff, gpu.OfflineShutDown
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop, "low_memory_mapped_io_space_mib = 3072",
				"high_memory_mapped_io_space_mib = 33280"),
			Check: rig.Then(func() {
				want(func(s *gpu.VMSettings) { s.LowMemoryMappedIOSpace, s.HighMemoryMappedIOSpace = &low, &high })
			}),
		},
		// What is no longer set is put back, what is set now is written, in one stop.
		resource.TestStep{
			PreConfig: func() { r.StopsOnce("hv01", "avd-01") },
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop, "high_memory_mapped_io_space_mib = 33280",
				"guest_controlled_cache_types = true"),
			Check: rig.Then(func() {
				want(func(s *gpu.VMSettings) { s.HighMemoryMappedIOSpace, s.GuestControlledCache = &high, &cache })
			}),
		},
		// The stop action and the offline action change while the VM runs.
		resource.TestStep{
			PreConfig: func() { r.ClearFaults("hv01"); r.NeverStops("avd-01", "hv01") },
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop, "high_memory_mapped_io_space_mib = 33280",
				"guest_controlled_cache_types = true",
				`automatic_stop_action = "turn_off"`, `offline_action = "shut_down"`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_id"), knownvalue.Int64Exact(0)),
			}},
			Check: rig.Then(func() {
				want(func(s *gpu.VMSettings) {
					s.HighMemoryMappedIOSpace, s.GuestControlledCache, s.AutomaticStopAction, s.OfflineAction = &high, &cache, &stop, &offline
				})
			}),
		},
		// Changed behind our back: a warning and an update, without a stop.
		resource.TestStep{
			PreConfig: func() {
				save := gpu.StopSave
				r.EditVM("avd-01", func(v *gpu.VM) { v.Settings.AutomaticStopAction = &save })
			},
			Config: r.Block() + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop, "high_memory_mapped_io_space_mib = 33280",
				"guest_controlled_cache_types = true",
				`automatic_stop_action = "turn_off"`),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				want(func(s *gpu.VMSettings) {
					s.HighMemoryMappedIOSpace, s.GuestControlledCache, s.AutomaticStopAction = &high, &cache, &stop
				})
				r.ClearFaults("hv01")
			}),
		},
	)
	if diff := cmp.Diff(before, r.Machine("avd-01")); diff != "" {
		t.Errorf("avd-01 is not as it was (-was +is):\n%s", diff)
	}
}

func TestAccVMAssignment_QuotasAreWrittenChangedAndTakenBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(partition string) string {
		return r.Block() + rig.Assignment("avd-01", "partition = {"+partition+"}", rig.MayStop)
	}
	quotas := func() gpu.Quotas {
		v, _ := r.VM("avd-01")
		if len(v.PartitionAdapters) != 1 {
			t.Fatalf("avd-01 has %d adapters", len(v.PartitionAdapters))
		}
		return v.PartitionAdapters[0].Quotas
	}
	n := func(v uint64) *uint64 { return &v }
	all := gpu.Quotas{
		VRAM:    gpu.Quota{Min: n(uint64(500 * gpu.MiB)), Optimal: n(uint64(600 * gpu.MiB)), Max: n(uint64(948 * gpu.MiB))},
		Encode:  gpu.Quota{Min: n(0), Optimal: n(math.MaxUint64), Max: n(math.MaxUint64)},
		Decode:  gpu.Quota{Min: n(10), Optimal: n(50), Max: n(100)},
		Compute: gpu.Quota{Min: n(1), Optimal: n(2), Max: n(1000)},
	}
	r.Steps(
		r.Rejects(config(`min_partition_encode = 1.5`), "but must be a whole number from 0 to 18446744073709551615"),
		r.Rejects(config(`max_partition_encode = 18446744073709551616`), "but must be a whole number from 0 to 18446744073709551615"),
		r.Rejects(config(`min_partition_decode = 7, max_partition_decode = 6`), "Quotas out of order"),
		r.Rejects(config(`max_partition_vram_mib = 4000`), "The memory quota exceeds the partition's size"),
		resource.TestStep{
			Config: config(`min_partition_vram_mib = 500, optimal_partition_vram_mib = 600, max_partition_vram_mib = 948,
				min_partition_encode = 0, optimal_partition_encode = 18446744073709551615, max_partition_encode = 18446744073709551615,
				min_partition_decode = 10, optimal_partition_decode = 50, max_partition_decode = 100,
				min_partition_compute = 1, optimal_partition_compute = 2, max_partition_compute = 1000`),
			Check: rig.Then(func() {
				if diff := cmp.Diff(all, quotas()); diff != "" {
					t.Errorf("quotas (-want +is):\n%s", diff)
				}
			}),
		},
		resource.TestStep{
			Config: config(`max_partition_decode = 90`),
			Check: rig.Then(func() {
				if diff := cmp.Diff(gpu.Quotas{Decode: gpu.Quota{Max: n(90)}}, quotas()); diff != "" {
					t.Errorf("quotas (-want +is):\n%s", diff)
				}
				r.WantVM("avd-01", gpu.VMRunning, 1)
			}),
		},
	)
}

func TestAccVMAssignment_VRAMIsAnAssertion(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(mib string) string {
		return r.Block() + rig.Config4 + rig.Assignment("avd-01", "partition = { config = gpu_partition_config.vdi.id, vram_mib = "+mib+" }",
			rig.MayStop)
	}
	r.Steps(
		r.Rejects(config("8000"), "asserts partitions of 8000 MiB."),
		resource.TestStep{Config: config("3792"), Check: rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 1) })},
		r.Rejects(config("3791"), "Write `vram_mib = 3792`, leave it out"),
	)
}

func TestAccVMAssignment_APinIsForStandaloneHostsOnly(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1))))
	r.Steps(
		r.Rejects(r.Block()+rig.Assignment("vm-1", `partition = { gpu_id = "PCIROOT(99)#PCI(0000)" }`, rig.MayStop),
			"names PCIROOT(99)#PCI(0000)"),
		resource.TestStep{
			Config: r.Block() + rig.Assignment("vm-1", `partition = { gpu_id = "`+rig.GPU1+`" }`, rig.MayStop),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"),
					knownvalue.SetExact([]knownvalue.Check{knownvalue.StringExact(rig.GPU1)})),
			},
			Check: rig.Then(func() {
				if id, _ := r.PartitionOf("vm-1"); id != rig.GPU1 {
					t.Errorf("vm-1 has a partition of GPU %q, want %q", id, rig.GPU1)
				}
			}),
		},
		// Another GPU is an update in place, in one stop.
		resource.TestStep{
			PreConfig:        func() { r.StopsOnce("edge", "vm-1") },
			Config:           r.Block() + rig.Assignment("vm-1", `partition = { gpu_id = "`+rig.GPU0+`" }`, rig.MayStop),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				if id, _ := r.PartitionOf("vm-1"); id != rig.GPU0 {
					t.Errorf("vm-1 has a partition of GPU %q, want %q", id, rig.GPU0)
				}
				r.WantVM("vm-1", gpu.VMRunning, 1)
				r.ClearFaults("edge")
			}),
		},
	)
	c := rig.New(t, rig.TwoNodes())
	c.Steps(c.Rejects(c.Block()+rig.Assignment("avd-03", `partition = { gpu_id = "`+rig.GPU0+`" }`), "A clustered VM is pinned to a GPU"))
}

func TestAccVMAssignment_AVMMovesFromAPartitionToAPoolInOneStop(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	const pool = `
resource "gpu_pool" "p" {
  name    = "render"
  members = { hv01 = ["` + rig.GPU0 + `", "` + rig.GPU1 + `"], hv02 = ["` + rig.GPU0 + `", "` + rig.GPU1 + `"] }
}
`
	devices := func(n int) {
		t.Helper()
		v, _ := r.VM("avd-03")
		if len(v.Devices) != n || slices.ContainsFunc(v.Devices, func(d gpu.DeviceAssignment) bool { return d.Pool != "render" || d.GPU == "" }) {
			t.Errorf("avd-03 has the devices %+v, want %d of the pool", v.Devices, n)
		}
	}
	before := r.Machine("avd-03")
	r.Steps(
		resource.TestStep{Config: r.Block() + pool},
		resource.TestStep{
			PreConfig: func() {
				r.Must(r.Fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning))
				r.StopsOnce("hv01", "avd-03")
			},
			Config: r.Block() + pool + rig.Assignment("avd-03", "pool = { id = gpu_pool.p.id }", rig.MayStop, rig.WholeGPU(2)),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"), knownvalue.SetSizeExact(1)),
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_id"), knownvalue.Null()),
			},
			Check: rig.Then(func() { devices(1); r.WantVM("avd-03", gpu.VMRunning, 0) }),
		},
		resource.TestStep{
			PreConfig: func() { r.ClearFaults("hv01"); r.StopsOnce("hv01", "avd-03") },
			Config:    r.Block() + pool + rig.Assignment("avd-03", "pool = { id = gpu_pool.p.id, count = 2 }", rig.MayStop, rig.WholeGPU(2)),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"),
					knownvalue.SetExact([]knownvalue.Check{knownvalue.StringExact(rig.GPU0), knownvalue.StringExact(rig.GPU1)})),
			},
			Check: rig.Then(func() { devices(2); r.ClearFaults("hv01") }),
		},
		r.Rejects(r.Block()+pool+rig.Assignment("avd-03", "pool = { id = gpu_pool.p.id, count = 3 }", rig.MayStop, rig.WholeGPU(2)),
			"The pool has too few GPUs"),
		r.Rejects(r.Block()+pool+rig.Assignment("avd-03", `pool = { id = "hv01/nosuch" }`, rig.MayStop, rig.WholeGPU(2)), "Unknown pool"),
	)
	v := r.Machine("avd-03")
	v.State = gpu.VMOff
	if diff := cmp.Diff(before, v); diff != "" {
		t.Errorf("avd-03 is not as it was (-was +is):\n%s", diff)
	}

	// A host with one GPU partitioned and one in a pool: from the one to the other.
	s := rig.New(t, rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1))))
	const edgePool = `
resource "gpu_pool" "p" {
  name    = "render"
  members = { edge = ["` + rig.GPU1 + `"] }
}
`
	s.Steps(
		resource.TestStep{
			Config: s.Block() + edgePool + rig.Assignment("vm-1", rig.AnyPartition, rig.MayStop),
			Check:  rig.Then(func() { s.WantVM("vm-1", gpu.VMRunning, 1) }),
		},
		resource.TestStep{
			PreConfig:        func() { s.StopsOnce("edge", "vm-1") },
			Config:           s.Block() + edgePool + rig.Assignment("vm-1", "pool = { id = gpu_pool.p.id }", rig.MayStop, rig.WholeGPU(1)),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"),
					knownvalue.SetExact([]knownvalue.Check{knownvalue.StringExact(rig.GPU1)})),
			},
			Check: rig.Then(func() {
				s.WantVM("vm-1", gpu.VMRunning, 0)
				s.ClearFaults("edge")
				s.StopsOnce("edge", "vm-1")
			}),
		},
		resource.TestStep{
			Config: s.Block() + edgePool + rig.Assignment("vm-1", rig.AnyPartition, rig.MayStop),
			Check: rig.Then(func() {
				s.WantVM("vm-1", gpu.VMRunning, 1)
				if v, _ := s.VM("vm-1"); len(v.Devices) != 0 {
					t.Errorf("vm-1 still has the devices %+v", v.Devices)
				}
				s.ClearFaults("edge")
			}),
		},
	)
}

func TestAccVMAssignment_ADeviceIsDismountedForTheAssignmentAndMountedBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1))))
	dismounted := func(id string) bool {
		g, ok := r.Host("edge").GPU(id)
		return ok && g.Dismounted
	}
	device := func(ids ...string) string {
		return `device = { host = "edge", gpu_ids = ["` + strings.Join(ids, `", "`) + `"] }`
	}
	before := r.Machine("vm-1")
	r.Steps(
		r.Rejects(r.Block()+rig.Assignment("vm-1", `device = { host = "nosuch", gpu_ids = ["x"] }`, rig.MayStop), "Unknown host"),
		r.Rejects(r.Block()+rig.Assignment("vm-1", device("PCIROOT(99)"), rig.MayStop), "GPU not found on the host"),
		resource.TestStep{
			PreConfig: func() { r.StopsOnce("edge", "vm-1") },
			Config:    r.Block() + rig.Assignment("vm-1", device(rig.GPU0), rig.MayStop, rig.WholeGPU(2)),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"),
					knownvalue.SetExact([]knownvalue.Check{knownvalue.StringExact(rig.GPU0)})),
			},
			Check: rig.Then(func() {
				v, _ := r.VM("vm-1")
				if len(v.Devices) != 1 || v.Devices[0].GPU != rig.GPU0 || v.State != gpu.VMRunning || !dismounted(rig.GPU0) {
					t.Errorf("vm-1 is %s with the devices %+v, GPU dismounted: %t", v.State, v.Devices, dismounted(rig.GPU0))
				}
			}),
		},
		resource.TestStep{
			PreConfig: func() { r.ClearFaults("edge"); r.StopsOnce("edge", "vm-1") },
			Config:    r.Block() + rig.Assignment("vm-1", device(rig.GPU1), rig.MayStop, rig.WholeGPU(2)),
			Check: rig.Then(func() {
				v, _ := r.VM("vm-1")
				if len(v.Devices) != 1 || v.Devices[0].GPU != rig.GPU1 || dismounted(rig.GPU0) || !dismounted(rig.GPU1) {
					t.Errorf("vm-1 has the devices %+v; dismounted: %t and %t", v.Devices, dismounted(rig.GPU0), dismounted(rig.GPU1))
				}
				r.ClearFaults("edge")
			}),
		},
	)
	if diff := cmp.Diff(before, r.Machine("vm-1")); diff != "" {
		t.Errorf("vm-1 is not as it was (-was +is):\n%s", diff)
	}
	if dismounted(rig.GPU0) || dismounted(rig.GPU1) {
		t.Errorf("the GPUs were not mounted back: %t, %t", dismounted(rig.GPU0), dismounted(rig.GPU1))
	}
}

// A GPU whose driver brings no mitigations comes off its host by force alone, and is
// imported and mounted back as it was given.
func TestAccVMAssignment_ADeviceIsDismountedByForce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("edge", rig.Off(rig.Desktop("vm-1", 1)))))
	r.Must(r.Fleet.EditSimulation(t.Context(), "edge", func(s *simulated.Simulation) {
		s.GPUs = map[string]simulated.Hidden{rig.GPU0: {NeedsForce: true}}
	}))
	config := func(how string) string {
		return r.Block() + rig.Assignment("vm-1", `device = { host = "edge", gpu_ids = ["`+rig.GPU0+`"]`+how+` }`, rig.WholeGPU(1))
	}
	is := func(dismounted bool, devices int) {
		t.Helper()
		g, _ := r.Host("edge").GPU(rig.GPU0)
		if v, _ := r.VM("vm-1"); g.Dismounted != dismounted || len(v.Devices) != devices {
			t.Errorf("dismounted: %t, and the VM has %+v", g.Dismounted, v.Devices)
		}
	}
	rig.WantSaid(t, rig.NewCLI(t, config("")).Fails("apply", "-auto-approve"), "no mitigation driver", "set dismount = { force = true }")
	is(false, 0)
	r.Steps(
		resource.TestStep{Config: config(`, dismount = { force = true }`), Check: rig.Then(func() { is(true, 1) })},
		resource.TestStep{Config: config(`, dismount = { force = true }`), PlanOnly: true},
		resource.TestStep{
			ResourceName: "gpu_vm_assignment.a", ImportState: true, ImportStateId: "edge/vm-1", ImportStateKind: resource.ImportCommandWithID,
			ImportStateVerifyIgnore: []string{"timeouts"}, ImportStateVerify: true, ImportStateVerifyIdentifierAttribute: "vm_id",
		},
	)
	is(false, 0)
}

func TestAccVMAssignment_ADeviceThatOthersDismountedStaysDismounted(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("edge", rig.Off(rig.Desktop("vm-1", 1)))))
	r.Must(r.Fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
		g := &s.Hosts[0].GPUs[0]
		g.Dismounted, g.Partitionable, g.Status = true, nil, gpu.ReadyForDDA
		return nil
	}))
	r.Steps(resource.TestStep{
		Config: r.Block() + rig.Assignment("vm-1", `device = { host = "edge", gpu_ids = ["`+rig.GPU0+`"] }`, rig.WholeGPU(1)),
	})
	if g, _ := r.Host("edge").GPU(rig.GPU0); !g.Dismounted {
		t.Error("the assignment mounted a GPU that it had not dismounted")
	}
	r.WantVM("vm-1", gpu.VMOff, 0)
}

func TestAccVMAssignment_APartitionThatWasTakenAwayIsGivenAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(more ...string) string {
		return r.Block() + rig.Assignment("avd-01", append(more, rig.AnyPartition)...)
	}
	taken := func() { r.EditVM("avd-01", func(v *gpu.VM) { v.PartitionAdapters = nil }) }
	r.Steps(
		resource.TestStep{Config: config(rig.MayStop)},
		resource.TestStep{
			PreConfig: func() {
				r.Must(r.Fleet.SetVMState(context.Background(), "avd-01", gpu.VMOff))
				taken()
				r.Must(r.Fleet.SetVMState(context.Background(), "avd-01", gpu.VMRunning))
			},
			Config:             config(rig.MayStop),
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
		},
		resource.TestStep{Config: config(), ExpectError: rig.Says("The VM must be off")},
		resource.TestStep{
			PreConfig:        func() { r.WantVM("avd-01", gpu.VMRunning, 0); r.StopsOnce("hv01", "avd-01") },
			Config:           config(rig.MayStop),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionUpdate),
			Check:            rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 1); r.ClearFaults("hv01") }),
		},
	)
}

func TestAccVMAssignment_WhatCannotBePutBackIsToldAndRepaired(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop))
	r.Must(r.Fleet.SetGuest(context.Background(), "avd-01", simulated.Guest{StartFails: simulated.StartFailsAlways}))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Left half done: hv01", "Still in place on hv01:",
		"start VM avd-01", "VM avd-01 is off", "terraform untaint")
	r.WantVM("avd-01", gpu.VMOff, 0)
	r.Must(r.Fleet.SetGuest(context.Background(), "avd-01", simulated.Guest{}))
	c.Apply()
	r.WantVM("avd-01", gpu.VMRunning, 1)
	c.WantNoChanges()
	c.Destroy()
	r.WantVM("avd-01", gpu.VMRunning, 0)
	r.WantClaims([]string{"hv01"})
}

func TestAccVMAssignment_AnotherPartitionCountGivesTheVMAnotherPartitionInOneStop(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(count int) string {
		return r.Block() + rig.ConfigOf(count, rig.Both, `max_disruption = "vm_restart"`) +
			rig.Assignment("avd-01", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop) +
			"output \"vram\" {\n  value = gpu_vm_assignment.a.partition_vram_mib\n}\n"
	}
	vram := func(mib int64) []statecheck.StateCheck {
		return []statecheck.StateCheck{statecheck.ExpectKnownOutputValue("vram", knownvalue.Int64Exact(mib))}
	}
	r.Steps(
		resource.TestStep{Config: config(4), ConfigStateChecks: vram(3792)},
		resource.TestStep{
			PreConfig:         func() { r.StopsOnce("hv01", "avd-01") },
			Config:            config(8),
			ConfigStateChecks: vram(1896),
			Check:             rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 1); r.WantCounts(8, rig.Both...); r.ClearFaults("hv01") }),
		},
	)
}

// What a level relaxes and the host refuses all the same is said once.
func TestAccVMAssignment_AVMThatMustBeOffIsToldOnce(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"error", "warning", "off"} {
		r := rig.New(t, rig.TwoNodes())
		c := rig.NewCLI(t, r.Block(`rules = { vm-must-be-off = "`+level+`" }`)+rig.Assignment("avd-01", "partition = {}"))
		said := c.Fails("plan")
		if n := strings.Count(said, "Error: ") + strings.Count(said, "Warning: "); n != 1 {
			t.Errorf("with level %s it says %d times that the VM must be off:\n%s", level, n, said)
		}
		r.WantVM("avd-01", gpu.VMRunning, 0)
	}
}
