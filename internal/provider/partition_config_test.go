package provider_test

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
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestPartitionConfigLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{
			Config: r.block() + config4,
			ConfigPlanChecks: resource.ConfigPlanChecks{
				PreApply: []plancheck.PlanCheck{
					plancheck.ExpectKnownValue(vdi, tfjsonpath.New("id"), knownvalue.StringExact("vdi")),
					plancheck.ExpectUnknownValue(vdi, tfjsonpath.New("gpus")),
				},
				PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
			},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(vdi, tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(3792)),
				statecheck.ExpectKnownValue(vdi, tfjsonpath.New("isolation"), knownvalue.StringExact("hardware")),
				statecheck.ExpectKnownValue(vdi, tfjsonpath.New("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: then(func() {
				r.wantCounts(4, both...)
				r.wantClaims(both, "partition_config vdi")
				r.wantSettled()
			}),
		},
		resource.TestStep{
			Config: r.block() + configOf(8, both),
			ConfigPlanChecks: resource.ConfigPlanChecks{
				PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(vdi, plancheck.ResourceActionUpdate),
					plancheck.ExpectKnownValue(vdi, tfjsonpath.New("id"), knownvalue.StringExact("vdi")),
					plancheck.ExpectUnknownValue(vdi, tfjsonpath.New("partition_vram_mib")),
				},
				PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
			},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(vdi, tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(1896)),
				statecheck.ExpectKnownValue(vdi, tfjsonpath.New("gpus").AtMapKey("hv02").AtMapKey(gpu1).AtMapKey("layout"), knownvalue.StringExact("gpu_p:8")),
			},
			Check: then(func() {
				r.wantCounts(8, both...)
				r.wantVM("avd-01", gpu.VMRunning, 0) // an idle GPU's count is nobody's business
				r.wantSettled()
			}),
		},
	)
	r.wantCounts(8, both...) // on_destroy = keep
	r.wantClaims(both)
	r.wantSettled()
}

func TestRenamedPartitionConfigIsReplacedAndKeepsItsGPUs(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + config4},
		resource.TestStep{
			Config:           r.block() + strings.Replace(config4, `name  = "vdi"`, `name = "desktops"`, 1),
			ConfigPlanChecks: planned(vdi, plancheck.ResourceActionReplace),
			Check: then(func() {
				r.wantCounts(4, both...)
				r.wantClaims(both, "partition_config desktops")
			}),
		},
	)
}

// heldConfig is a config and two VMs on hv01 that hold partitions of it.
func heldConfig(count int, more ...string) string {
	return configOf(count, both, more...) + assign("avd-01", "allow_shutdown = true") + assign("avd-02", "allow_shutdown = true") + `
output "all" {
  value = [gpu_partition_config.vdi, gpu_vm_assignment.avd-01, gpu_vm_assignment.avd-02]
}
`
}

func TestCountChangeUnderHeldPartitionsStopsAndStartsEachVMOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	vms := []string{"avd-01", "avd-02"}
	r.steps(
		resource.TestStep{Config: r.block() + heldConfig(4)},
		resource.TestStep{
			PreConfig: func() { // a second stop or start would fail
				for _, vm := range vms {
					r.fail("hv01", simulated.OpShutDownVM, vm, 1, 0)
					r.fail("hv01", simulated.OpStartVM, vm, 1, 0)
				}
			},
			Config:           r.block() + heldConfig(8, `max_disruption = "vm_restart"`),
			ConfigPlanChecks: planned(vdi, plancheck.ResourceActionUpdate),
			Check: then(func() {
				r.wantCounts(8, both...)
				for _, f := range r.clearFaults("hv01") {
					if f.After != 0 {
						t.Errorf("%s of %s was not asked for", f.Op, f.Object)
					}
				}
				for _, vm := range vms {
					r.wantVM(vm, gpu.VMRunning, 1)
				}
				for _, g := range r.host("hv01").GPUs {
					for _, p := range g.Partitionable.Partitions {
						if p.VRAM.MiB() != 1896 {
							t.Errorf("VM %s has a partition of %d MiB, want 1896", p.VMID, p.VRAM.MiB())
						}
					}
				}
				r.wantSettled()
			}),
		},
	)
}

func TestCountChangeUnderHeldPartitionsNeedsMaxDisruption(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	var before []byte
	r.steps(
		resource.TestStep{Config: r.block() + heldConfig(4), Check: then(func() { before = r.file() })},
		r.rejects(r.block()+heldConfig(8), `hold partitions of GPUs whose count changes: "avd-01" and "avd-02"`, "Its `max_disruption` allows \"none\" only"),
		resource.TestStep{PreConfig: func() { r.wantUntouched(before) }, Config: r.block() + heldConfig(4), PlanOnly: true},
	)
}

func TestCountChangeIsRefusedByTheAssignmentOfAVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(count int, more ...string) string {
		return r.block() + configOf(count, both, more...) + assign("avd-03", "allow_shutdown = false")
	}
	r.steps(
		resource.TestStep{Config: config(4)},
		resource.TestStep{
			PreConfig:   func() { r.must(r.fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning)) },
			Config:      config(8, `max_disruption = "vm_restart"`),
			ExpectError: says("These may not be stopped: \"avd-03\" (its assignment does not have `power = { allow_shutdown = true }`)"),
		},
		resource.TestStep{Config: config(4), Check: then(func() {
			r.wantCounts(4, both...)
			r.wantVM("avd-03", gpu.VMRunning, 1)
			r.must(r.fleet.SetVMState(context.Background(), "avd-03", gpu.VMOff)) // else the destroy may not take it
		})},
	)
}

func TestCountChangeIsRefusedForAVMThatNobodyManages(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.addForeignAdapter("avd-04")
	before := r.file()
	r.steps(resource.TestStep{
		Config:      r.block() + configOf(4, both, `max_disruption = "vm_restart"`),
		ExpectError: says(`These may not be stopped: "avd-04" (no gpu_vm_assignment manages it)`),
	})
	r.wantUntouched(before)
}

func TestQuotasComeBackOnlyWhereTheyFit(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(count, large int) string {
		return r.block() + configOf(count, both, `max_disruption = "vm_restart"`) +
			assign("avd-01", "allow_shutdown = true", "max_partition_vram_mib = 1000") +
			assign("avd-02", "allow_shutdown = true", fmt.Sprintf("max_partition_vram_mib = %d", large))
	}
	quota := func(vm string, mib uint64) {
		t.Helper()
		v, _ := r.vm(vm)
		if len(v.PartitionAdapters) != 1 {
			t.Fatalf("VM %s has %d adapters", vm, len(v.PartitionAdapters))
		}
		have := v.PartitionAdapters[0].Quotas.VRAM.Max
		if have == nil || gpu.Bytes(*have).MiB() != int64(mib) {
			t.Errorf("VM %s has the quota %v, want %d MiB", vm, have, mib)
		}
	}
	r.steps(
		resource.TestStep{Config: config(4, 3000), Check: then(func() { quota("avd-01", 1000); quota("avd-02", 3000) })},
		resource.TestStep{Config: config(8, 3000), ExpectError: says("A memory quota above the partition's size")},
		// The config changes first. With its old quota avd-02 would not start again.
		resource.TestStep{Config: config(8, 1500), Check: then(func() {
			quota("avd-01", 1000)
			quota("avd-02", 1500)
			r.wantCounts(8, both...)
			r.wantVM("avd-01", gpu.VMRunning, 1)
			r.wantVM("avd-02", gpu.VMRunning, 1)
		})},
	)
}

func TestRestoreGivesEachGPUBackItsFormerCount(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.must(r.fleet.SetCountOutside(context.Background(), "hv02", gpu1, 2))
	r.steps(
		resource.TestStep{Config: r.block() + configOf(4, both), Check: then(func() { r.wantCounts(4, both...) })},
		resource.TestStep{Config: r.block() + configOf(8, both, `on_destroy = "restore"`), Check: then(func() { r.wantCounts(8, both...) })},
	)
	r.wantCounts(16, "hv01")
	if got := r.counts("hv02"); got[gpu0] != 16 || got[gpu1] != 2 {
		t.Errorf("hv02 has the counts %v, want those that it had before the config", got)
	}
	r.wantClaims(both)
}

func TestRestoreNeverStopsAVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.neverStops("", both...)
	r.steps(
		resource.TestStep{Config: r.block() + configOf(4, both, `on_destroy = "restore"`)},
		resource.TestStep{
			PreConfig: func() {
				r.addForeignAdapter("avd-05")
			},
			Config:      r.block() + configOf(4, both, `on_destroy = "restore"`),
			Destroy:     true,
			ExpectError: says("its partitions are held by avd-05"),
		},
		resource.TestStep{
			// Nothing was put back on hv01 either.
			Config: r.block() + configOf(4, both, `on_destroy = "restore"`),
			Check: then(func() {
				r.wantCounts(4, both...)
				r.wantVM("avd-05", gpu.VMRunning, 1)
			}),
		},
		resource.TestStep{Config: r.block() + configOf(4, both, `on_destroy = "keep"`)}, // the way out that the error names
	)
	r.wantCounts(4, both...)
	r.wantVM("avd-05", gpu.VMRunning, 1)
	r.wantClaims(both)
}

func TestReplacingAConfigInUseStopsNoVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+heldConfig(4))
	c.apply()
	r.neverStops("", both...)
	first := r.host("hv01").Claims
	wantSaid(t, c.apply("-replace="+vdi), "1 added, 0 changed, 1 destroyed")
	r.wantCounts(4, both...)
	r.wantVM("avd-01", gpu.VMRunning, 1)
	r.wantVM("avd-02", gpu.VMRunning, 1)
	for _, old := range first {
		for _, now := range r.host("hv01").Claims {
			if old.Kind == gpu.ClaimConfig && now.Kind == gpu.ClaimConfig && old.Token == now.Token {
				t.Error("the config was not replaced: its claim has the token of the instance before")
			}
		}
	}
	c.wantNoChanges()
}

func TestReplacingAConfigInUseIsRefusedWhereItWouldPutGPUsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+heldConfig(4, `on_destroy = "restore"`))
	c.apply()
	r.neverStops("", both...)
	wantSaid(t, c.fails("apply", "-auto-approve", "-replace="+vdi), "its partitions are held by avd-0", `on_destroy = "keep"`)
	r.wantCounts(4, both...)
	r.wantVM("avd-01", gpu.VMRunning, 1)
	r.wantVM("avd-02", gpu.VMRunning, 1)
	r.wantSettled()
	c.wantNoChanges()
}

func TestPolicyOfAPartitionConfigChangesWithoutAskingAHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	var before []byte
	r.steps(
		resource.TestStep{Config: r.block() + config4, Check: then(func() { before = r.file() })},
		resource.TestStep{
			Config: r.block() + configOf(4, both, `max_disruption = "vm_restart"`, `on_destroy = "restore"`,
				`rollout = { max_unavailable = 2, on_failure = "stop" }`, `timeouts = { update = "1m" }`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(vdi, plancheck.ResourceActionUpdate),
				plancheck.ExpectKnownValue(vdi, tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(3792)),
				onPlan(func() { r.calls.take() }),
			}},
			Check: then(func() {
				if calls := r.calls.take(); len(calls) != 0 {
					t.Errorf("the apply made the calls %v, want none", calls)
				}
				r.wantUntouched(before)
			}),
		},
	)
}

func TestPlanWritesNothingAndAsksEachHostOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	before := r.file()
	onlyLooked := onPlan(func() {
		r.wantUntouched(before)
		if calls := fmt.Sprint(r.calls.take()); calls != "map[hv01:map[Inventory:1] hv02:map[Inventory:1]]" {
			t.Errorf("the plan made the calls %s, want one inventory of each host", calls)
		}
	})
	r.steps(resource.TestStep{
		Config:           r.block() + heldConfig(4),
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{onlyLooked}},
	})
}

func TestOutputsOfEveryComputedAttributeAreSettledAfterApply(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+heldConfig(4))
	c.apply()
	c.wantNoChanges()
	c.write(r.block() + heldConfig(8, `max_disruption = "vm_restart"`))
	c.apply()
	c.wantNoChanges()
	r.wantCounts(8, both...)
}

func TestSavedPlanIsAppliedByAnotherProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+heldConfig(4))
	before := r.file()
	c.ok("plan", "-out=plan.out")
	r.wantUntouched(before)
	c.ok("apply", "plan.out")
	r.wantCounts(4, both...)
	r.wantVM("avd-01", gpu.VMRunning, 1)
	c.wantNoChanges()
}

func TestBadPartitionConfigIsAnErrorAtItsAttribute(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config string
		want   string
	}{
		"impossible count":    {configOf(5, both), "1 (about 14.8 GiB each), 2 (about 7.4 GiB each), 4 (about 3.7 GiB each), 8 (about 1.9 GiB each), 16 (948 MiB each)"},
		"no hosts":            {"resource \"gpu_partition_config\" \"vdi\" {\n hosts = []\n gpu_p = { partition_count = 4 }\n}", "hosts set must contain at least 1 elements"},
		"unknown host":        {configOf(4, []string{"hv01", "hv09"}), `Found: "hv09" is not a host of the provider, which knows [hv01 hv02]`},
		"unknown cluster":     {"resource \"gpu_partition_config\" \"vdi\" {\n cluster = \"nope\"\n gpu_p = { partition_count = 4 }\n}", `is a node of a cluster called "nope"`},
		"hosts and cluster":   {configOf(4, both, `cluster = "azl"`), "Exactly one of these attributes must be configured: [hosts,cluster]"},
		"unknown GPU":         {configOf(4, both, `selector = { gpu_ids = { hv01 = ["PCIROOT(99)"] } }`), "names PCIROOT(99)"},
		"selector off hosts":  {configOf(4, both, `selector = { gpu_ids = { hv03 = ["`+gpu0+`"] } }`), `selector.gpu_ids names host "hv03"`},
		"unknown model":       {configOf(4, both, `selector = { models = ["A16"] }`), "No GPU to partition"},
		"no kind":             {"resource \"gpu_partition_config\" \"vdi\" {\n hosts = [\"hv01\"]\n}", "gpu_p"},
		"two of one name":     {configOf(4, []string{"hv01"}) + strings.Replace(configOf(4, []string{"hv02"}), `"vdi" {`, `"other" {`, 1), "unique-name"},
		"two configs of GPUs": {config4 + strings.ReplaceAll(config4, `"vdi"`, `"other"`), "one-config-per-gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			before := r.file()
			r.steps(resource.TestStep{Config: r.block() + test.config, ExpectError: says(test.want)})
			r.wantUntouched(before)
		})
	}
}

func TestFirstPlanNamesBothSidesOfUnlikeGPUs(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixedNodes())
	before := r.file()
	c := newCLI(t, r.block()+config4)
	out := c.fails("plan")
	wantSaid(t, out, "GPUs of different models", "are NVIDIA A2", `on host "hv02" (NVIDIA A16`, `selector = { models = ["NVIDIA A2"] }`, "Rule: homogeneous-gpus")
	r.wantUntouched(before)

	c.write(r.block(`rules = { "homogeneous-gpus" = "warning" }`) + config4)
	wantSaid(t, c.ok("plan"), "Warning: GPUs of different models", "1 to add")

	c.write(r.block(`rules = { "homogeneous-gpus" = "off" }`) + config4)
	if out := c.ok("plan"); strings.Contains(out, "GPUs of different models") {
		t.Errorf("a rule that is off speaks:\n%s", out)
	}
	r.wantUntouched(before)
}

func TestRuleThatIsRaisedToAnErrorStopsThePlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	before := r.file()
	r.steps(
		resource.TestStep{Config: r.block(`rules = { "live-migration-support" = "error" }`) + config4, ExpectError: says("Rule: live-migration-support")},
		resource.TestStep{Config: r.block(`rules = { "no-such-rule" = "off" }`) + config4, ExpectError: says("no-such-rule")},
	)
	r.wantUntouched(before)
}

func TestWhatStoodBeforeIsAWarning(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixedNodes())
	c := newCLI(t, r.block(`rules = { "homogeneous-gpus" = "off" }`)+config4)
	c.apply()
	c.write(r.block() + config4)
	wantSaid(t, c.ok("plan"), "Warning: GPUs of different models", "This stood before", "No changes.")
	c.write(r.block() + configOf(8, both))
	wantSaid(t, c.apply(), "Warning: GPUs of different models", "0 added, 1 changed")
	r.wantCounts(8, both...)
	c.destroy()
	r.wantClaims(both)
}

func TestHostsThatAreUnknownAtPlanAreCheckedAtApply(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(count int) string {
		return r.block() + fmt.Sprintf(`
resource "terraform_data" "hosts" {
  input = ["hv01", "hv02"]
}
resource "gpu_partition_config" "vdi" {
  hosts = terraform_data.hosts.output
  gpu_p = { partition_count = %d }
}
`, count)
	}
	before := r.file()
	r.steps(
		resource.TestStep{
			Config:           config(5),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectUnknownValue(vdi, tfjsonpath.New("id"))}},
			ExpectError:      says("The GPU does not accept this partition count"),
		},
		resource.TestStep{
			PreConfig: func() { r.wantUntouched(before) },
			Config:    config(4),
			Check:     then(func() { r.wantCounts(4, both...) }),
		},
	)
}

func TestPausedNodeIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.must(r.fleet.SetNodeState(context.Background(), "hv02", gpu.NodePaused))
	before := r.file()
	r.steps(
		resource.TestStep{Config: r.block() + config4, ExpectError: says(`Host "hv02" is paused in its cluster`)},
		resource.TestStep{
			PreConfig: func() {
				r.wantUntouched(before)
				r.must(r.fleet.SetNodeState(context.Background(), "hv02", gpu.NodeUp))
			},
			Config: r.block() + config4,
		},
		resource.TestStep{ // A node that goes into maintenance later does not disturb what stands.
			PreConfig: func() { r.must(r.fleet.SetNodeState(context.Background(), "hv02", gpu.NodePaused)) },
			Config:    r.block() + config4,
			PlanOnly:  true,
		},
	)
}
