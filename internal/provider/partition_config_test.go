package provider_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const vdi = "gpu_partition_config.vdi"

// configOf is a partition config "vdi" of so many partitions on hosts, with more
// arguments.
func configOf(count int, hosts []string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_partition_config\" \"vdi\" {\n  name = \"vdi\"\n  hosts = [\"%s\"]\n  gpu_p = { partition_count = %d }\n  %s\n}\n",
		strings.Join(hosts, `", "`), count, strings.Join(more, "\n  "))
}

var both = []string{"hv01", "hv02"}

// assign gives a VM a partition of config "vdi".
func assign(vm, power string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_vm_assignment\" %q {\n  vm = %q\n  partition = {\n    config = gpu_partition_config.vdi.id\n    %s\n  }\n  power = { %s }\n}\n",
		vm, vm, strings.Join(more, "\n    "), power)
}

// said matches a text in an error, however Terraform breaks its lines.
func said(text string) *regexp.Regexp {
	words := strings.Fields(text)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	return regexp.MustCompile(strings.Join(words, `[\s│]+`))
}

// file is the fleet file as it lies on the disk.
func (r *rig) file() []byte {
	r.t.Helper()
	raw, err := os.ReadFile(r.fleet.Path())
	r.must(err)
	return raw
}

// wantUntouched asserts that the fleet file is as it was.
func (r *rig) wantUntouched(before []byte) {
	r.t.Helper()
	if !bytes.Equal(before, r.file()) {
		r.t.Error("the fleet file has changed")
	}
}

// wantSettled asserts that no host keeps a lease or an unfinished change.
func (r *rig) wantSettled() {
	r.t.Helper()
	for _, name := range r.fleet.Hosts() {
		h, err := r.fleet.Host(name)
		r.must(err)
		st, err := h.Load(context.Background())
		r.must(err)
		if st.Lease != nil || len(st.Journal) > 0 {
			r.t.Errorf("host %s keeps the lease %+v and %d changes in its journal", name, st.Lease, len(st.Journal))
		}
	}
}

// hasClaims asserts the claims of each host, as claims lists them.
func (r *rig) hasClaims(hosts []string, want ...string) {
	r.t.Helper()
	for _, h := range hosts {
		if got := r.claims(h); strings.Join(got, ", ") != strings.Join(want, ", ") {
			r.t.Errorf("host %s has the claims %q, want %q", h, got, want)
		}
	}
}

// fail lets an operation on a host fail, so many times after some that succeed.
func (r *rig) fail(host string, op simulated.Op, object string, after, times int) {
	r.t.Helper()
	r.must(r.fleet.InjectFault(context.Background(), host, simulated.Fault{Op: op, Object: object, After: after, Times: times, Detail: "injected by the test"}))
}

// forget takes all faults of a host away and returns those that were left.
func (r *rig) forget(host string) (left []simulated.Fault) {
	r.t.Helper()
	r.must(r.fleet.EditSimulation(context.Background(), host, func(s *simulated.Simulation) { left, s.Faults = s.Faults, nil }))
	return left
}

// nobodyStops makes every attempt to stop a VM fail.
func (r *rig) nobodyStops(hosts ...string) {
	r.t.Helper()
	for _, h := range hosts {
		r.fail(h, simulated.OpShutDownVM, "", 0, 0)
		r.fail(h, simulated.OpTurnOffVM, "", 0, 0)
	}
}

// onPlan is a plan check that calls a function between the plan and its apply.
type onPlan func()

func (f onPlan) CheckPlan(context.Context, plancheck.CheckPlanRequest, *plancheck.CheckPlanResponse) {
	f()
}

// checked makes a check of a function.
func checked(f func()) resource.TestCheckFunc {
	return func(*terraform.State) error {
		f()
		return nil
	}
}

func configAction(want plancheck.ResourceActionType) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(vdi, want)}}
}

func TestPartitionConfigLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{
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
				Check: checked(func() {
					r.wantCounts(4, both...)
					r.hasClaims(both, "partition_config vdi")
					r.wantSettled()
				}),
			},
			{
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
				Check: checked(func() {
					r.wantCounts(8, both...)
					r.wantVM("avd-01", gpu.VMRunning, 0) // an idle GPU's count is nobody's business
					r.wantSettled()
				}),
			},
		},
	})
	r.wantCounts(8, both...) // on_destroy = keep
	r.hasClaims(both)
	r.wantSettled()
}

func TestRenamedPartitionConfigIsReplacedAndKeepsItsGPUs(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: r.block() + config4},
			{
				Config:           r.block() + strings.Replace(config4, `name  = "vdi"`, `name = "desktops"`, 1),
				ConfigPlanChecks: configAction(plancheck.ResourceActionReplace),
				Check: checked(func() {
					r.wantCounts(4, both...)
					r.hasClaims(both, "partition_config desktops")
				}),
			},
		},
	})
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
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: r.block() + heldConfig(4)},
			{
				PreConfig: func() { // a second stop or start would fail
					for _, vm := range vms {
						r.fail("hv01", simulated.OpShutDownVM, vm, 1, 0)
						r.fail("hv01", simulated.OpStartVM, vm, 1, 0)
					}
				},
				Config:           r.block() + heldConfig(8, `max_disruption = "vm_restart"`),
				ConfigPlanChecks: configAction(plancheck.ResourceActionUpdate),
				Check: checked(func() {
					r.wantCounts(8, both...)
					for _, f := range r.forget("hv01") {
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
		},
	})
}

func TestCountChangeUnderHeldPartitionsNeedsMaxDisruption(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	var before []byte
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: r.block() + heldConfig(4), Check: checked(func() { before = r.file() })},
			{Config: r.block() + heldConfig(8), ExpectError: said("Its `max_disruption` allows \"none\" only")},
			{Config: r.block() + heldConfig(8), ExpectError: said(`hold partitions of GPUs whose count changes: "avd-01" and "avd-02"`)},
			{Config: r.block() + heldConfig(4), PlanOnly: true, Check: checked(func() { r.wantUntouched(before) })},
		},
	})
}

func TestCountChangeIsRefusedByTheAssignmentOfAVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := func(count int, more ...string) string {
		return r.block() + configOf(count, both, more...) + assign("avd-03", "allow_shutdown = false")
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: config(4)},
			{
				PreConfig:   func() { r.must(r.fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning)) },
				Config:      config(8, `max_disruption = "vm_restart"`),
				ExpectError: said("These may not be stopped: \"avd-03\" (its assignment does not have `power = { allow_shutdown = true }`)"),
			},
			{Config: config(4), Check: checked(func() {
				r.wantCounts(4, both...)
				r.wantVM("avd-03", gpu.VMRunning, 1)
				r.must(r.fleet.SetVMState(context.Background(), "avd-03", gpu.VMOff)) // else the destroy may not take it
			})},
		},
	})
}

func TestCountChangeIsRefusedForAVMThatNobodyManages(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	_, err := r.fleet.AddForeignAdapter(context.Background(), "avd-04")
	r.must(err)
	before := r.file()
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{{
			Config:      r.block() + configOf(4, both, `max_disruption = "vm_restart"`),
			ExpectError: said(`These may not be stopped: "avd-04" (no gpu_vm_assignment manages it)`),
		}},
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
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: config(4, 3000), Check: checked(func() { quota("avd-01", 1000); quota("avd-02", 3000) })},
			{Config: config(8, 3000), ExpectError: said("A memory quota above the partition's size")},
			// The config changes first. With its old quota avd-02 would not start again.
			{Config: config(8, 1500), Check: checked(func() {
				quota("avd-01", 1000)
				quota("avd-02", 1500)
				r.wantCounts(8, both...)
				r.wantVM("avd-01", gpu.VMRunning, 1)
				r.wantVM("avd-02", gpu.VMRunning, 1)
			})},
		},
	})
}

func TestRestoreGivesEachGPUBackItsFormerCount(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.must(r.fleet.SetCountOutside(context.Background(), "hv02", gpu1, 2))
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: r.block() + configOf(4, both), Check: checked(func() { r.wantCounts(4, both...) })},
			{Config: r.block() + configOf(8, both, `on_destroy = "restore"`), Check: checked(func() { r.wantCounts(8, both...) })},
		},
	})
	r.wantCounts(16, "hv01")
	if got := r.counts("hv02"); got[gpu0] != 16 || got[gpu1] != 2 {
		t.Errorf("hv02 has the counts %v, want those that it had before the config", got)
	}
	r.hasClaims(both)
}

func TestRestoreNeverStopsAVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.nobodyStops(both...)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: r.block() + configOf(4, both, `on_destroy = "restore"`)},
			{
				PreConfig: func() {
					_, err := r.fleet.AddForeignAdapter(context.Background(), "avd-05")
					r.must(err)
				},
				Config:      r.block() + configOf(4, both, `on_destroy = "restore"`),
				Destroy:     true,
				ExpectError: said("its partitions are held by avd-05"),
			},
			{
				// Nothing was put back on hv01 either.
				Config: r.block() + configOf(4, both, `on_destroy = "restore"`),
				Check: checked(func() {
					r.wantCounts(4, both...)
					r.wantVM("avd-05", gpu.VMRunning, 1)
				}),
			},
			{Config: r.block() + configOf(4, both, `on_destroy = "keep"`)}, // the way out that the error names
		},
	})
	r.wantCounts(4, both...)
	r.wantVM("avd-05", gpu.VMRunning, 1)
	r.hasClaims(both)
}

func TestReplacingAConfigInUseStopsNoVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+heldConfig(4))
	c.ok("apply", "-auto-approve")
	r.nobodyStops(both...)
	first := r.host("hv01").Claims
	out := c.ok("apply", "-auto-approve", "-replace="+vdi)
	wantSaid(t, out, "1 added, 0 changed, 1 destroyed")
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
	c.ok("apply", "-auto-approve")
	r.nobodyStops(both...)
	out, code := c.run("apply", "-auto-approve", "-replace="+vdi)
	if code == 0 {
		t.Errorf("a config in use was put back:\n%s", out)
	}
	wantSaid(t, out, "its partitions are held by avd-0", `on_destroy = "keep"`)
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
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: r.block() + config4, Check: checked(func() { before = r.file() })},
			{
				Config: r.block() + configOf(4, both, `max_disruption = "vm_restart"`, `on_destroy = "restore"`,
					`rollout = { max_unavailable = 2, on_failure = "stop" }`, `timeouts = { update = "1m" }`),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(vdi, plancheck.ResourceActionUpdate),
					plancheck.ExpectKnownValue(vdi, tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(3792)),
					onPlan(func() { r.calls.take() }),
				}},
				Check: checked(func() {
					if calls := r.calls.take(); len(calls) != 0 {
						t.Errorf("the apply made the calls %v, want none", calls)
					}
					r.wantUntouched(before)
				}),
			},
		},
	})
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
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{{
			Config:           r.block() + heldConfig(4),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{onlyLooked}},
		}},
	})
}

func TestOutputsOfEveryComputedAttributeAreSettledAfterApply(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+heldConfig(4))
	c.ok("apply", "-auto-approve")
	c.wantNoChanges()
	c.write(r.block() + heldConfig(8, `max_disruption = "vm_restart"`))
	c.ok("apply", "-auto-approve")
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
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: r.factories(),
				Steps:                    []resource.TestStep{{Config: r.block() + test.config, ExpectError: said(test.want)}},
			})
			r.wantUntouched(before)
		})
	}
}

// mixedNodes are twoNodes with an A16 in hv02.
func mixedNodes() gpu.Snapshot {
	s := twoNodes()
	s.Hosts[1].GPUs[1] = a16(gpu1)
	return s
}

func TestFirstPlanNamesBothSidesOfUnlikeGPUs(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixedNodes())
	before := r.file()
	c := newCLI(t, r.block()+config4)
	out, code := c.run("plan")
	if code != 1 {
		t.Errorf("the plan's exit code is %d, want 1", code)
	}
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
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: r.block(`rules = { "live-migration-support" = "error" }`) + config4, ExpectError: said("Rule: live-migration-support")},
			{Config: r.block(`rules = { "no-such-rule" = "off" }`) + config4, ExpectError: said("no-such-rule")},
		},
	})
	r.wantUntouched(before)
}

func TestWhatStoodBeforeIsAWarning(t *testing.T) {
	t.Parallel()
	r := newRig(t, mixedNodes())
	c := newCLI(t, r.block(`rules = { "homogeneous-gpus" = "off" }`)+config4)
	c.ok("apply", "-auto-approve")
	c.write(r.block() + config4)
	wantSaid(t, c.ok("plan"), "Warning: GPUs of different models", "This stood before", "No changes.")
	c.write(r.block() + configOf(8, both))
	wantSaid(t, c.ok("apply", "-auto-approve"), "Warning: GPUs of different models", "0 added, 1 changed")
	r.wantCounts(8, both...)
	c.ok("destroy", "-auto-approve")
	r.hasClaims(both)
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
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{
				Config:           config(5),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectUnknownValue(vdi, tfjsonpath.New("id"))}},
				ExpectError:      said("The GPU does not accept this partition count"),
			},
			{
				PreConfig: func() { r.wantUntouched(before) },
				Config:    config(4),
				Check:     checked(func() { r.wantCounts(4, both...) }),
			},
		},
	})
}

func TestPausedNodeIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.must(r.fleet.SetNodeState(context.Background(), "hv02", gpu.NodePaused))
	before := r.file()
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{Config: r.block() + config4, ExpectError: said(`Host "hv02" is paused in its cluster`)},
			{
				PreConfig: func() {
					r.wantUntouched(before)
					r.must(r.fleet.SetNodeState(context.Background(), "hv02", gpu.NodeUp))
				},
				Config: r.block() + config4,
			},
			{ // A node that goes into maintenance later does not disturb what stands.
				PreConfig: func() { r.must(r.fleet.SetNodeState(context.Background(), "hv02", gpu.NodePaused)) },
				Config:    r.block() + config4,
				PlanOnly:  true,
			},
		},
	})
}
