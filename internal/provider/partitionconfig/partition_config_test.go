package partitionconfig_test

import (
	"context"
	"fmt"
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

func TestAccPartitionConfig_PartitionConfigLifecycle(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.Config4,
			ConfigPlanChecks: resource.ConfigPlanChecks{
				PreApply: []plancheck.PlanCheck{
					plancheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("id"), knownvalue.StringExact("vdi")),
					plancheck.ExpectUnknownValue(rig.VDI, tfjsonpath.New("gpus")),
				},
				PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
			},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(3792)),
				statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("isolation"), knownvalue.StringExact("hardware")),
				statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: rig.Then(func() {
				r.WantCounts(4, rig.Both...)
				r.WantClaims(rig.Both, "partition_config vdi")
				r.WantSettled()
			}),
		},
		resource.TestStep{
			Config: r.Block() + rig.ConfigOf(8, rig.Both),
			ConfigPlanChecks: resource.ConfigPlanChecks{
				PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(rig.VDI, plancheck.ResourceActionUpdate),
					plancheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("id"), knownvalue.StringExact("vdi")),
					plancheck.ExpectUnknownValue(rig.VDI, tfjsonpath.New("partition_vram_mib")),
				},
				PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
			},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(1896)),
				statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("gpus").AtMapKey("hv02").AtMapKey("gpus").AtMapKey(rig.GPU1).AtMapKey("layout"),
					knownvalue.StringExact("gpu_p:8")),
			},
			Check: rig.Then(func() {
				r.WantCounts(8, rig.Both...)
				r.WantVM("avd-01", gpu.VMRunning, 0) // an idle GPU's count is nobody's business
				r.WantSettled()
			}),
		},
	)
	r.WantCounts(8, rig.Both...) // on_destroy = keep
	r.WantClaims(rig.Both)
	r.WantSettled()
}

func TestAccPartitionConfig_RenamedPartitionConfigIsReplacedAndKeepsItsGPUs(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.Config4},
		resource.TestStep{
			Config:           r.Block() + strings.Replace(rig.Config4, `name  = "vdi"`, `name = "desktops"`, 1),
			ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionReplace),
			Check: rig.Then(func() {
				r.WantCounts(4, rig.Both...)
				r.WantClaims(rig.Both, "partition_config desktops")
			}),
		},
	)
}

func TestAccPartitionConfig_CountChangeUnderHeldPartitionsStopsAndStartsEachVMOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	vms := []string{"avd-01", "avd-02"}
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.HeldConfig(4)},
		resource.TestStep{
			PreConfig: func() { // a second stop or start would fail
				for _, vm := range vms {
					r.Fail("hv01", simulated.OpShutDownVM, vm, 1, 0)
					r.Fail("hv01", simulated.OpStartVM, vm, 1, 0)
				}
			},
			Config:           r.Block() + rig.HeldConfig(8, `max_disruption = "vm_restart"`),
			ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				r.WantCounts(8, rig.Both...)
				for _, f := range r.ClearFaults("hv01") {
					if f.After != 0 {
						t.Errorf("%s of %s was not asked for", f.Op, f.Object)
					}
				}
				for _, vm := range vms {
					r.WantVM(vm, gpu.VMRunning, 1)
				}
				for _, g := range r.Host("hv01").GPUs {
					for _, p := range g.Partitionable.Partitions {
						if p.VRAM.MiB() != 1896 {
							t.Errorf("VM %s has a partition of %d MiB, want 1896", p.VMID, p.VRAM.MiB())
						}
					}
				}
				r.WantSettled()
			}),
		},
	)
}

func TestAccPartitionConfig_CountChangeUnderHeldPartitionsNeedsMaxDisruption(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	var before []byte
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.HeldConfig(4), Check: rig.Then(func() { before = r.File() })},
		r.Rejects(r.Block()+rig.HeldConfig(8), `hold partitions of GPUs whose count changes: "avd-01" and "avd-02"`,
			"Its `max_disruption` allows \"none\" only"),
		resource.TestStep{PreConfig: func() { r.WantUntouched(before) }, Config: r.Block() + rig.HeldConfig(4), PlanOnly: true},
	)
}

func TestAccPartitionConfig_CountChangeIsRefusedByTheAssignmentOfAVM(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(count int, more ...string) string {
		return r.Block() + rig.ConfigOf(count, rig.Both, more...) + rig.Assign("avd-03", "allow_shutdown = false")
	}
	r.Steps(
		resource.TestStep{Config: config(4)},
		resource.TestStep{
			PreConfig: func() { r.Must(r.Fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning)) },
			Config:    config(8, `max_disruption = "vm_restart"`),
			ExpectError: rig.Says(
				"These may not be stopped: \"avd-03\" (its assignment does not allow a shutdown: `power.allow_shutdown` is `false`)"),
		},
		resource.TestStep{Config: config(4), Check: rig.Then(func() {
			r.WantCounts(4, rig.Both...)
			r.WantVM("avd-03", gpu.VMRunning, 1)
			r.Must(r.Fleet.SetVMState(context.Background(), "avd-03", gpu.VMOff)) // else the destroy may not take it
		})},
	)
}

func TestAccPartitionConfig_CountChangeIsRefusedForAVMThatNobodyManages(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.AddForeignAdapter("avd-04")
	before := r.File()
	r.Steps(resource.TestStep{
		Config:      r.Block() + rig.ConfigOf(4, rig.Both, `max_disruption = "vm_restart"`),
		ExpectError: rig.Says(`These may not be stopped: "avd-04" (no gpu_vm_assignment manages it)`),
	})
	r.WantUntouched(before)
}

func TestAccPartitionConfig_QuotasComeBackOnlyWhereTheyFit(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(count, large int) string {
		return r.Block() + rig.ConfigOf(count, rig.Both, `max_disruption = "vm_restart"`) +
			rig.Assign("avd-01", "allow_shutdown = true", "max_partition_vram_mib = 1000") +
			rig.Assign("avd-02", "allow_shutdown = true", fmt.Sprintf("max_partition_vram_mib = %d", large))
	}
	quota := func(vm string, mib uint64) {
		t.Helper()
		v, _ := r.VM(vm)
		if len(v.PartitionAdapters) != 1 {
			t.Fatalf("VM %s has %d adapters", vm, len(v.PartitionAdapters))
		}
		have := v.PartitionAdapters[0].Quotas.VRAM.Max
		if have == nil || gpu.Bytes(*have).MiB() != int64(mib) {
			t.Errorf("VM %s has the quota %v, want %d MiB", vm, have, mib)
		}
	}
	r.Steps(
		resource.TestStep{Config: config(4, 3000), Check: rig.Then(func() { quota("avd-01", 1000); quota("avd-02", 3000) })},
		resource.TestStep{Config: config(8, 3000), ExpectError: rig.Says("The memory quota exceeds the partition's size")},
		// The config changes first. With its old quota avd-02 would not start again.
		resource.TestStep{Config: config(8, 1500), Check: rig.Then(func() {
			quota("avd-01", 1000)
			quota("avd-02", 1500)
			r.WantCounts(8, rig.Both...)
			r.WantVM("avd-01", gpu.VMRunning, 1)
			r.WantVM("avd-02", gpu.VMRunning, 1)
		})},
	)
}

func TestAccPartitionConfig_RestoreGivesEachGPUBackItsFormerCount(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Must(r.Fleet.SetCountOutside(context.Background(), "hv02", rig.GPU1, 2))
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.ConfigOf(4, rig.Both), Check: rig.Then(func() { r.WantCounts(4, rig.Both...) })},
		resource.TestStep{
			Config: r.Block() + rig.ConfigOf(8, rig.Both, `on_destroy = "restore"`), Check: rig.Then(func() { r.WantCounts(8, rig.Both...) }),
		},
	)
	r.WantCounts(16, "hv01")
	if got := r.Counts("hv02"); got[rig.GPU0] != 16 || got[rig.GPU1] != 2 {
		t.Errorf("hv02 has the counts %v, want those that it had before the config", got)
	}
	r.WantClaims(rig.Both)
}

// A host that has lost the record of a config cannot put its GPUs back. The plan of the destroy says
// so of each of them, and so does one after an apply that has written the record again.
func TestAccPartitionConfig_ARestoreThatNobodyKnowsIsTold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(*rig.CLI)
		args   []string
	}{
		"refreshed":     {args: []string{"plan", "-destroy"}},
		"not refreshed": {args: []string{"plan", "-destroy", "-refresh=false"}},
		"written again": {func(c *rig.CLI) { c.Apply() }, []string{"plan", "-destroy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			c := rig.NewCLI(t, r.Block()+rig.ConfigOf(4, rig.Both, `on_destroy = "restore"`))
			c.Apply()
			const title = "The previous layout is not recorded"
			if out := c.Ok(test.args...); strings.Contains(out, title) {
				t.Fatalf("it is recorded still:\n%s", out)
			}
			r.EditHost("hv01", func(h *gpu.Host) { h.Claims = nil })
			if test.before != nil {
				test.before(c)
			}
			said := c.Ok(test.args...)
			rig.WantSaid(t, said, "Warning: "+title, `Host "hv01" has no record of the layout before`, rig.GPU0, rig.GPU1, "with 4 partitions")
			if strings.Contains(said, `Host "hv02" has no record`) {
				t.Errorf("hv02 has its record:\n%s", said)
			}
			c.Destroy(test.args[2:]...)
			r.WantCounts(4, "hv01")
			r.WantCounts(16, "hv02")
			r.WantClaims(rig.Both)
		})
	}
}

func TestAccPartitionConfig_RestoreNeverStopsAVM(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.NeverStops("", rig.Both...)
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.ConfigOf(4, rig.Both, `on_destroy = "restore"`)},
		resource.TestStep{
			PreConfig: func() {
				r.AddForeignAdapter("avd-05")
			},
			Config:      r.Block() + rig.ConfigOf(4, rig.Both, `on_destroy = "restore"`),
			Destroy:     true,
			ExpectError: rig.Says("its partitions are held by \"avd-05\""),
		},
		resource.TestStep{
			// Nothing was put back on hv01 either.
			Config: r.Block() + rig.ConfigOf(4, rig.Both, `on_destroy = "restore"`),
			Check: rig.Then(func() {
				r.WantCounts(4, rig.Both...)
				r.WantVM("avd-05", gpu.VMRunning, 1)
			}),
		},
		resource.TestStep{Config: r.Block() + rig.ConfigOf(4, rig.Both, `on_destroy = "keep"`)}, // the way out that the error names
	)
	r.WantCounts(4, rig.Both...)
	r.WantVM("avd-05", gpu.VMRunning, 1)
	r.WantClaims(rig.Both)
}

func TestAccPartitionConfig_ReplacingAConfigInUseStopsNoVM(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.HeldConfig(4))
	c.Apply()
	r.NeverStops("", rig.Both...)
	first := r.Host("hv01").Claims
	rig.WantSaid(t, c.Apply("-replace="+rig.VDI), "1 added, 0 changed, 1 destroyed")
	r.WantCounts(4, rig.Both...)
	r.WantVM("avd-01", gpu.VMRunning, 1)
	r.WantVM("avd-02", gpu.VMRunning, 1)
	for _, old := range first {
		for _, now := range r.Host("hv01").Claims {
			if old.Kind == gpu.ClaimConfig && now.Kind == gpu.ClaimConfig && old.Token == now.Token {
				t.Error("the config was not replaced: its claim has the token of the instance before")
			}
		}
	}
	c.WantNoChanges()
}

func TestAccPartitionConfig_ReplacingAConfigInUseIsRefusedWhereItWouldPutGPUsBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.HeldConfig(4, `on_destroy = "restore"`))
	c.Apply()
	r.NeverStops("", rig.Both...)
	rig.WantSaid(t, c.Ok("plan", "-replace="+rig.VDI), "Warning: What is in use is replaced", "its partitions are held by \"avd-0",
		"The apply will refuse to replace it unless what uses it is replaced in the same run")
	rig.WantSaid(t, c.Fails("apply", "-auto-approve", "-replace="+rig.VDI), "Its partitions are held by \"avd-0", `on_destroy = "keep"`)
	r.WantCounts(4, rig.Both...)
	r.WantVM("avd-01", gpu.VMRunning, 1)
	r.WantVM("avd-02", gpu.VMRunning, 1)
	r.WantSettled()
	c.WantNoChanges()
}

// Which of the two comes first no plan can know: Terraform asks the same. The apply's error names the setting.
func TestAccPartitionConfig_RenamedWithCreateBeforeDestroy(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := r.Block() + rig.ConfigOf(4, rig.Both, "lifecycle { create_before_destroy = true }")
	c := rig.NewCLI(t, config)
	c.Apply()
	c.Write(strings.Replace(config, `name  = "vdi"`, `name  = "other"`, 1))
	before := r.Host("hv01").Claims
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Error: No GPU is selected", `claimed by partition config "vdi"`,
		"If it replaces that config with `create_before_destroy`")
	if diff := cmp.Diff(before, r.Host("hv01").Claims); diff != "" {
		t.Errorf("hv01's claims have changed (-before +after):\n%s", diff)
	}
}

func TestAccPartitionConfig_PolicyOfAPartitionConfigChangesWithoutAskingAHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	var before []byte
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.Config4, Check: rig.Then(func() { before = r.File() })},
		resource.TestStep{
			Config: r.Block() + rig.ConfigOf(4, rig.Both, `max_disruption = "vm_restart"`, `on_destroy = "restore"`,
				`rollout = { max_unavailable = 2, on_failure = "stop" }`, `timeouts = { update = "1m" }`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(rig.VDI, plancheck.ResourceActionUpdate),
				plancheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(3792)),
				rig.OnPlan(func() { r.Calls.Take() }),
			}},
			Check: rig.Then(func() {
				if calls := r.Calls.Take(); len(calls) != 0 {
					t.Errorf("the apply made the calls %v, want none", calls)
				}
				r.WantUntouched(before)
			}),
		},
	)
}

// What actions and the agent's commands go by is on the hosts as soon as it is allowed, and no
// longer once it is not.
func TestAccPartitionConfig_PermissionsOfAPartitionConfigAreOnRecord(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	drains := func(want bool) resource.TestCheckFunc {
		return rig.Then(func() {
			for _, h := range r.Snapshot().Hosts {
				if c, ok := h.Claim(gpu.ClaimConfig, "vdi"); !ok || c.Want.Config.Drain != want {
					t.Errorf("%s: the claim is %+v, want drain %t", h.Name, c, want)
				}
			}
		})
	}
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.Config4, Check: drains(false)},
		resource.TestStep{Config: r.Block() + rig.ConfigOf(4, rig.Both, `rollout = { drain = true }`), Check: drains(true)},
		resource.TestStep{Config: r.Block() + rig.Config4, Check: drains(false)},
	)
}

func TestAccPartitionConfig_PlanWritesNothingAndAsksEachHostOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	before := r.File()
	onlyLooked := rig.OnPlan(func() {
		r.WantUntouched(before)
		if calls := fmt.Sprint(r.Calls.Take()); calls != "map[hv01:map[Inventory:1] hv02:map[Inventory:1]]" {
			t.Errorf("the plan made the calls %s, want one inventory of each host", calls)
		}
	})
	r.Steps(resource.TestStep{
		Config:           r.Block() + rig.HeldConfig(4),
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{onlyLooked}},
	})
}

func TestAccPartitionConfig_OutputsOfEveryComputedAttributeAreSettledAfterApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.HeldConfig(4))
	c.Apply()
	c.WantNoChanges()
	c.Write(r.Block() + rig.HeldConfig(8, `max_disruption = "vm_restart"`))
	c.Apply()
	c.WantNoChanges()
	r.WantCounts(8, rig.Both...)
}

func TestAccPartitionConfig_SavedPlanIsAppliedByAnotherProcess(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.HeldConfig(4))
	before := r.File()
	c.Ok("plan", "-out=plan.out")
	r.WantUntouched(before)
	c.Ok("apply", "plan.out")
	r.WantCounts(4, rig.Both...)
	r.WantVM("avd-01", gpu.VMRunning, 1)
	c.WantNoChanges()
}

func TestAccPartitionConfig_BadPartitionConfigIsAnErrorAtItsAttribute(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config string
		want   string
	}{
		"impossible count": {
			rig.ConfigOf(5, rig.Both),
			"1 (about 14.8 GiB each), 2 (about 7.4 GiB each), 4 (about 3.7 GiB each), 8 (about 1.9 GiB each), 16 (948 MiB each)",
		},
		"no hosts": {
			"resource \"gpu_partition_config\" \"vdi\" {\n hosts = []\n gpu_p = { partition_count = 4 }\n}",
			"hosts set must contain at least 1 elements",
		},
		"unknown host": {
			rig.ConfigOf(4, []string{"hv01", "hv09"}), `Found: "hv09" is not a host of the provider, which knows hv01 and hv02`,
		},
		"unknown cluster": {
			"resource \"gpu_partition_config\" \"vdi\" {\n cluster = \"nope\"\n gpu_p = { partition_count = 4 }\n}",
			`is a node of a cluster called "nope"`,
		},
		"hosts and cluster": {
			rig.ConfigOf(4, rig.Both, `cluster = "azl"`), "Exactly one of these attributes must be configured: [hosts,cluster]",
		},
		"unknown GPU": {rig.ConfigOf(4, rig.Both, `selector = { gpu_ids = { hv01 = ["PCIROOT(99)"] } }`), "names PCIROOT(99)"},
		"selector off hosts": {
			rig.ConfigOf(4, rig.Both, `selector = { gpu_ids = { hv03 = ["`+rig.GPU0+`"] } }`), `selector.gpu_ids names host "hv03"`,
		},
		"unknown model": {rig.ConfigOf(4, rig.Both, `selector = { models = ["A16"] }`), "No GPU is selected"},
		"no kind":       {"resource \"gpu_partition_config\" \"vdi\" {\n hosts = [\"hv01\"]\n}", "gpu_p"},
		"two of one name": {
			rig.ConfigOf(4, []string{"hv01"}) + strings.Replace(rig.ConfigOf(4, []string{"hv02"}), `"vdi" {`, `"other" {`, 1), "unique-name",
		},
		"two configs of GPUs": {rig.Config4 + strings.ReplaceAll(rig.Config4, `"vdi"`, `"other"`), "one-config-per-gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			before := r.File()
			r.Steps(resource.TestStep{Config: r.Block() + test.config, ExpectError: rig.Says(test.want)})
			r.WantUntouched(before)
		})
	}
}

func TestAccPartitionConfig_FirstPlanNamesBothSidesOfUnlikeGPUs(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.MixedNodes())
	before := r.File()
	c := rig.NewCLI(t, r.Block()+rig.Config4)
	out := c.Fails("plan")
	rig.WantSaid(t, out, "GPUs of different models", "are NVIDIA A2", `on host "hv02" (NVIDIA A16`,
		`selector = { models = ["NVIDIA A2"] }`, "Rule: homogeneous-gpus")
	r.WantUntouched(before)

	c.Write(r.Block(`rules = { "homogeneous-gpus" = "warning" }`) + rig.Config4)
	rig.WantSaid(t, c.Ok("plan"), "Warning: GPUs of different models", "1 to add")

	c.Write(r.Block(`rules = { "homogeneous-gpus" = "off" }`) + rig.Config4)
	if out := c.Ok("plan"); strings.Contains(out, "GPUs of different models") {
		t.Errorf("a rule that is off speaks:\n%s", out)
	}
	r.WantUntouched(before)
}

func TestAccPartitionConfig_RuleThatIsRaisedToAnErrorStopsThePlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	before := r.File()
	r.Steps(
		resource.TestStep{
			Config: r.Block(`rules = { "live-migration-support" = "error" }`) + rig.Config4, ExpectError: rig.Says("Rule: live-migration-support"),
		},
		resource.TestStep{Config: r.Block(`rules = { "no-such-rule" = "off" }`) + rig.Config4, ExpectError: rig.Says("no-such-rule")},
	)
	r.WantUntouched(before)
}

func TestAccPartitionConfig_WhatStoodBeforeIsAWarning(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.MixedNodes())
	c := rig.NewCLI(t, r.Block(`rules = { "homogeneous-gpus" = "off" }`)+rig.Config4)
	c.Apply()
	c.Write(r.Block() + rig.Config4)
	rig.WantSaid(t, c.Ok("plan"), "Warning: GPUs of different models", "This was so before", "No changes.")
	c.Write(r.Block() + rig.ConfigOf(8, rig.Both))
	rig.WantSaid(t, c.Apply(), "Warning: GPUs of different models", "0 added, 1 changed")
	r.WantCounts(8, rig.Both...)
	c.Destroy()
	r.WantClaims(rig.Both)
}

func TestAccPartitionConfig_HostsThatAreUnknownAtPlanAreCheckedAtApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := func(count int) string {
		return r.Block() + fmt.Sprintf(`
resource "terraform_data" "hosts" {
  input = ["hv01", "hv02"]
}
resource "gpu_partition_config" "vdi" {
  hosts = terraform_data.hosts.output
  gpu_p = { partition_count = %d }
}
`, count)
	}
	before := r.File()
	r.Steps(
		resource.TestStep{
			Config: config(5),
			ConfigPlanChecks: resource.ConfigPlanChecks{
				PreApply: []plancheck.PlanCheck{plancheck.ExpectUnknownValue(rig.VDI, tfjsonpath.New("id"))},
			},
			ExpectError: rig.Says("The GPU does not accept this partition count"),
		},
		resource.TestStep{
			PreConfig: func() { r.WantUntouched(before) },
			Config:    config(4),
			Check:     rig.Then(func() { r.WantCounts(4, rig.Both...) }),
		},
	)
}

// TestAccPartitionConfig_AKindThatIsKnownOnlyAfterApply: whether a config is replaced has to stand in the plan, so an
// existing one is refused there while its kind may change; one that is new, or whose kind cannot
// change, is not.
func TestAccPartitionConfig_AKindThatIsKnownOnlyAfterApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(1))
	config := func(kind, mps, turns string) string {
		return r.Block() + fmt.Sprintf(`
resource "terraform_data" "kind" {
  input = %q
}
resource "gpu_partition_config" "inference" {
  name         = "inference"
  hosts        = ["gpu01"]
  mps          = %s
  time_slicing = %s
}
`, kind, mps, turns)
	}
	open := func(kind string) string {
		return config(kind, `terraform_data.kind.output == "mps" ? { uid = 1000 } : null`,
			`terraform_data.kind.output == "turns" ? { replicas = 4 } : null`)
	}
	c := rig.NewCLI(t, open("mps"))
	c.Apply()
	r.WantDaemons("gpu01", "user 1000 on "+rig.SharedCard(0))
	c.WantNoChanges()
	before := r.File()
	c.Write(open("turns"))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "The kind of the config has to be known at plan", "It is of kind mps", "-target")
	r.WantUntouched(before)
	c.Apply("-target=terraform_data.kind")
	rig.WantSaid(t, c.Ok("plan"), ": replace")
	c.Apply()
	r.WantDaemons("gpu01")
	c.Write(config("other", "null", `{ replicas = terraform_data.kind.output == "other" ? 2 : 4 }`))
	c.Apply()
	c.WantNoChanges()
}

func TestAccPartitionConfig_PausedNodeIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Must(r.Fleet.SetNodeState(context.Background(), "hv02", gpu.NodePaused))
	before := r.File()
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.Config4, ExpectError: rig.Says(`Host "hv02" is paused in its cluster`)},
		resource.TestStep{
			PreConfig: func() {
				r.WantUntouched(before)
				r.Must(r.Fleet.SetNodeState(context.Background(), "hv02", gpu.NodeUp))
			},
			Config: r.Block() + rig.Config4,
		},
		resource.TestStep{ // A node that goes into maintenance later does not disturb what stands.
			PreConfig: func() { r.Must(r.Fleet.SetNodeState(context.Background(), "hv02", gpu.NodePaused)) },
			Config:    r.Block() + rig.Config4,
			PlanOnly:  true,
		},
	)
}
