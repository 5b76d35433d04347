package partitionconfig_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Modules write zero for what they do not want.
func TestAccPartitionConfig_NoneOfAProfile(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", `profiles = { "3g.40gb" = 0, "1g.10gb" = 2 }`))
	c.Apply()
	c.WantNoChanges()
	r.WantLayout("1g.10gb@4 1g.10gb@5", 0)
	c.Write(r.Block() + rig.MIGOf("ml", `profiles = { "3g.40gb" = 0, "1g.10gb" = 0 }`))
	c.Apply()
	c.WantNoChanges()
	if g, _ := r.Host("hgx01").GPU(rig.MIGGPU(0)); !g.MIG.Enabled || len(g.MIG.Instances) > 0 {
		t.Errorf("the GPU has %+v", g.MIG)
	}
}

// Modules pass on empty lists and maps that they were given.
func TestAccPartitionConfig_EmptyListsAreNone(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		fleet gpu.Snapshot
		hcl   string
	}{
		"quiesce_units of mig":          {rig.HGX(rig.H100, 1), rig.MIGOf("ml", rig.Halves, `quiesce_units = []`)},
		"quiesce_units of time_slicing": {rig.GPUHost(1), rig.TurnsOf(rig.FourTurns, `quiesce_units = []`)},
		"quiesce_units of mps":          {rig.GPUHost(1), rig.MPSOf(rig.HalfEach, `quiesce_units = []`)},
		"quotas of a pool": {
			rig.GPUHost(1), "resource \"gpu_pool\" \"p\" {\n name = \"p\"\n hosts = [\"gpu01\"]\n quotas = {}\n}\n",
		},
		"hosts of a VM": {
			rig.Standalone(rig.Node("hv01", rig.Off(rig.Desktop("a", 1)))),
			"resource \"gpu_vm_assignment\" \"a\" {\n vm = \"a\"\n hosts = []\n partition = {}\n}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, of.fleet)
			c := rig.NewCLI(t, r.Block()+of.hcl)
			c.Apply()
			c.WantNoChanges()
			c.Destroy()
		})
	}
}

func TestAccPartitionConfig_MIGLifecycle(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	var small map[string]string
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.MIGOf("ml", rig.Balanced),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(rig.ML, rig.Jsonpath("id"), text("ml")), plancheck.ExpectUnknownValue(rig.ML, rig.Jsonpath("gpus")),
				plancheck.ExpectKnownValue(rig.ML, rig.Jsonpath("partition_vram_mib"), knownvalue.Null()),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("gpus", "hgx01", "gpus", rig.MIGGPU(0), "layout"),
					text("mig:2g.20gb@0+1g.10gb@2+1g.10gb@3+3g.40gb@4")),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("gpus", "hgx01", "gpus", rig.MIGGPU(1), "address"), text("0000:1b:00.0")),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("gpus", "hgx01", "gpus", rig.MIGGPU(1), "partition_count"), knownvalue.Null()),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("gpus", "hgx01", "gpus", rig.MIGGPU(1), "instances"), knownvalue.ListSizeExact(4)),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("gpus", "hgx01", "gpus", rig.MIGGPU(1), "instances", 3),
					knownvalue.ObjectExact(map[string]knownvalue.Check{
						"profile": text("3g.40gb"), "start": number(4), "memory_mib": knownvalue.NotNull(), "uuid": knownvalue.NotNull(),
						"capabilities": knownvalue.ListExact([]knownvalue.Check{number(147), number(148)}),
					})),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("gpus", "hgx01", "gpus", rig.MIGGPU(1), "device_minor"), number(1)),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("gpus", "hgx01", "gpus", rig.MIGGPU(1), "cpu_cores"), text("16-31")),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("partition_vram_mib"), knownvalue.Null()),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("isolation"), text("hardware")),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: rig.Then(func() {
				r.WantLayout("2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4", 0, 1)
				r.WantClaims([]string{"hgx01"}, "partition_config ml")
				r.WantSettled()
				small = r.Devices(0, 1)
				maps.DeleteFunc(small, func(at, _ string) bool { return !strings.Contains(at, " 1g.10gb") })
			}),
		},
		resource.TestStep{ // what is still wanted stays where it is
			Config:           r.Block() + rig.MIGOf("ml", `profiles = { "1g.10gb" = 2 }`),
			ConfigPlanChecks: rig.Planned(rig.ML, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				r.WantLayout("1g.10gb@2 1g.10gb@3", 0, 1)
				if diff := cmp.Diff(small, r.Devices(0, 1)); diff != "" {
					t.Errorf("instances that stay were made again (-before +after):\n%s", diff)
				}
			}),
		},
		resource.TestStep{
			Config: r.Block() + rig.MIGOf("ml", rig.Written),
			Check:  rig.Then(func() { r.WantLayout("1g.10gb@0 3g.40gb@4", 0, 1) }),
		},
		resource.TestStep{ // MIG mode without instances
			Config: r.Block() + rig.MIGOf("ml", `profiles = {}`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("gpus", "hgx01", "gpus", rig.MIGGPU(0), "layout"), text("mig:none")),
			},
			Check: rig.Then(func() { r.WantLayout("", 0, 1) }),
		},
	)
	r.WantLayout("", 0, 1) // on_destroy = keep
	r.WantClaims([]string{"hgx01"})
	r.WantSettled()
}

// One GPU of eight changes while a process runs on it and another config has the rest.
func TestAccPartitionConfig_MIGChangeTouchesNothingElse(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 8))
	rest := rig.MIGOf("rest", rig.SevenSmall, rig.OnGPUs(1, 2, 3, 4, 5, 6, 7))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.SevenSmall, rig.OnGPUs(0))+rest)
	c.Apply()
	pid := r.Runs(0, &gpu.MIGPlacement{Profile: "1g.10gb", Start: 3}, "python")
	others, kept := r.Devices(1, 2, 3, 4, 5, 6, 7), r.Devices(0)
	for i := 1; i < 8; i++ {
		r.Fail("hgx01", simulated.OpCreateInstance, rig.MIGGPU(i), 0, 0)
		r.Fail("hgx01", simulated.OpDestroyInstance, rig.MIGGPU(i), 0, 0)
		r.Fail("hgx01", simulated.OpSetMIGMode, rig.MIGGPU(i), 0, 0)
	}
	c.Write(r.Block() + rig.MIGOf("ml", rig.Balanced, rig.OnGPUs(0)) + rest)
	rig.WantSaid(t, c.Ok("plan"), "0 to add, 1 to change, 0 to destroy")
	c.Apply()
	r.WantLayout("2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4", 0)
	if diff := cmp.Diff(others, r.Devices(1, 2, 3, 4, 5, 6, 7)); diff != "" {
		t.Errorf("instances of other GPUs were made again (-before +after):\n%s", diff)
	}
	for _, place := range []string{"0 1g.10gb@2", "0 1g.10gb@3"} {
		if now := r.Devices(0)[place]; now != kept[place] {
			t.Errorf("instance %s has the UUID %s, want %s as before", place, now, kept[place])
		}
	}
	if g, _ := r.Host("hgx01").GPU(rig.MIGGPU(0)); len(g.Processes) != 1 || g.Processes[0].PID != pid {
		t.Errorf("the process is gone: %+v", g.Processes)
	}
	c.WantNoChanges()
}

func TestAccPartitionConfig_MIGInstanceInUseIsInTheWayAtPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.SevenSmall))
	c.Apply()
	pid := r.Runs(1, &gpu.MIGPlacement{Profile: "1g.10gb", Start: 5}, "python")
	before := r.File()
	c.Write(r.Block() + rig.MIGOf("ml", rig.Halves, `max_disruption = "gpu_reset"`))
	rig.WantSaid(t, c.Fails("plan"), "MIG instances in use block the change", rig.MIGGPU(1), "1g.10gb at 5",
		fmt.Sprintf("process %d (python, container 3f2a)", pid), "Rule: mig-placement")
	r.WantUntouched(before)
	// The levels of rules do not lift what the host itself refuses.
	c.Write(r.Block(`rules = { mig-placement = "off" }`) + rig.MIGOf("ml", rig.Halves, `max_disruption = "gpu_reset"`))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), fmt.Sprintf("process %d (python, container 3f2a)", pid))
	r.WantLayout("1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 1g.10gb@4 1g.10gb@5 1g.10gb@6", 0, 1)
	r.WantSettled()
	r.Must(r.Fleet.StopProcess(t.Context(), "hgx01", pid))
	c.Write(r.Block() + rig.MIGOf("ml", rig.Halves))
	c.Apply()
	r.WantLayout("3g.40gb@0 3g.40gb@4", 0, 1)
}

func TestAccPartitionConfig_MIGModeNeedsAnIdleGPU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	pid := r.Runs(1, nil, "python")
	before := r.File()
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Halves))
	rig.WantSaid(t, c.Fails("plan"), "Processes use GPUs whose MIG mode changes", rig.MIGGPU(1),
		fmt.Sprintf("process %d (python, container 3f2a)", pid),
		"`quiesce_units`", "Rule: mig-mode")
	r.WantUntouched(before)
	r.Must(r.Fleet.StopProcess(t.Context(), "hgx01", pid))
	c.Apply()
	r.WantLayout("3g.40gb@0 3g.40gb@4", 0, 1)
}

func TestAccPartitionConfig_MIGModeOfAmpereTakesAResetOfThatGPUAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.A100, 2))
	r.Watches("nvidia-dcgm.service")
	pid := r.Runs(1, nil, "python") // a reset of the other GPU would end it
	before := r.File()
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Halves, rig.OnGPUs(0)))
	rig.WantSaid(t, c.Fails("plan"), "The change of MIG mode resets GPUs", rig.MIGGPU(0), `max_disruption = "gpu_reset"`, "Rule: mig-mode")
	r.WantUntouched(before)

	c.Write(r.Block() + rig.MIGOf("ml", rig.Halves, rig.OnGPUs(0), `max_disruption = "gpu_reset"`))
	rig.WantSaid(t, c.Ok("plan"), "MIG mode is switched on, which resets this GPU; creates 3g.40gb@0+3g.40gb@4")
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "nvidia-dcgm.service") // it keeps the GPU open
	r.WantLayout("off", 0, 1)
	r.WantSettled()

	c.Write(r.Block() + rig.MIGOf("ml", rig.Halves, rig.OnGPUs(0), `max_disruption = "gpu_reset"`,
		`quiesce_units = ["nvidia-dcgm", "not-there.service"]`))
	c.Apply()
	r.WantLayout("3g.40gb@0 3g.40gb@4", 0)
	r.WantLayout("off", 1)
	r.WantRuns("nvidia-dcgm.service", "nvidia-persistenced.service")
	if g, _ := r.Host("hgx01").GPU(rig.MIGGPU(1)); len(g.Processes) != 1 || g.Processes[0].PID != pid {
		t.Errorf("the process on the other GPU is gone: %+v", g.Processes)
	}
	c.WantNoChanges()
}

func TestAccPartitionConfig_MIGIsRestoredOnDestroy(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(1), true))
	r.CreateOutside(1, rig.At("2g.20gb", 2))
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.MIGOf("ml", rig.Halves, `on_destroy = "restore"`),
			Check:  rig.Then(func() { r.WantLayout("3g.40gb@0 3g.40gb@4", 0, 1) }),
		},
		resource.TestStep{ // a second change does not make the first layout what was before
			Config: r.Block() + rig.MIGOf("ml", rig.SevenSmall, `on_destroy = "restore"`),
		},
	)
	r.WantLayout("off", 0)
	r.WantLayout("2g.20gb@2", 1)
	r.WantClaims([]string{"hgx01"})
	r.WantSettled()
}

func TestAccPartitionConfig_MIGIsNotRestoredUnderAProcess(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Halves, `on_destroy = "restore"`))
	c.Apply()
	pid := r.Runs(0, &gpu.MIGPlacement{Profile: "3g.40gb", Start: 4}, "python")
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), fmt.Sprintf("process %d (python, container 3f2a)", pid), `on_destroy = "keep"`)
	r.WantLayout("3g.40gb@0 3g.40gb@4", 0, 1)
	// A GPU that leaves a config is refused when it is planned.
	c.Write(r.Block() + rig.MIGOf("ml", rig.Halves, `on_destroy = "restore"`, rig.OnGPUs(1)))
	rig.WantSaid(t, c.Fails("plan"), "Error: The previous layout cannot be restored", rig.MIGGPU(0), fmt.Sprintf("process %d", pid))
	r.Must(r.Fleet.StopProcess(t.Context(), "hgx01", pid))
	c.Destroy()
	r.WantLayout("off", 0, 1)
}

func TestAccPartitionConfig_MIGPolicyChangesWithoutAskingAHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	var before []byte
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.MIGOf("ml", rig.Halves), Check: rig.Then(func() { before = r.File() })},
		resource.TestStep{
			Config: r.Block() + rig.MIGOf("ml", rig.Halves, `max_disruption = "gpu_reset"`, `on_destroy = "restore"`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(rig.ML, plancheck.ResourceActionUpdate), rig.OnPlan(func() { r.Calls.Take() }),
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

// What has to be stopped at the next boot is known to the host, also when it is declared
// later than the layout.
func TestAccPartitionConfig_MIGQuiesceUnitsReachTheHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Halves))
	c.Apply()
	made := r.Devices(0)
	for _, units := range [][]string{{"nvidia-dcgm"}, nil} {
		more := ""
		if len(units) > 0 {
			more = `quiesce_units = ["` + units[0] + `"]`
		}
		c.Write(r.Block() + rig.MIGOf("ml", rig.Halves, more))
		c.Apply()
		if got := r.Host("hgx01").Claims[0].Want.Config.QuiesceUnits; !slices.Equal(got, units) {
			t.Errorf("the claim has the units %v, want %v", got, units)
		}
		c.WantNoChanges()
	}
	if diff := cmp.Diff(made, r.Devices(0)); diff != "" {
		t.Errorf("instances were made again (-before +after):\n%s", diff)
	}
}

func TestAccPartitionConfig_FailedMIGChangeIsPutBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.SevenSmall))
	c.Apply()
	r.Fail("hgx01", simulated.OpCreateInstance, "3g.40gb@4", 1, 1) // on the second GPU
	c.Write(r.Block() + rig.MIGOf("ml", rig.Halves))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Injected by the test", "Rolled back: hgx01")
	r.WantLayout("1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 1g.10gb@4 1g.10gb@5 1g.10gb@6", 0, 1)
	r.WantSettled()
	c.Apply()
	r.WantLayout("3g.40gb@0 3g.40gb@4", 0, 1)
	c.WantNoChanges()
}

// A change of kind is a replacement: the two kinds are for hosts of different platforms.
func TestAccPartitionConfig_ChangeOfKindReplacesTheConfig(t *testing.T) {
	t.Parallel()
	s := rig.HGX(rig.H100, 1)
	s.Hosts = append(s.Hosts, rig.Node("hv01"))
	r := rig.New(t, s)
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.ConfigOf(4, []string{"hv01"})},
		resource.TestStep{
			Config:           r.Block() + strings.ReplaceAll(rig.MIGOf("ml", rig.Halves), `"ml"`, `"vdi"`),
			ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionReplace),
			Check: rig.Then(func() {
				r.WantLayout("3g.40gb@0 3g.40gb@4", 0)
				r.WantClaims([]string{"hgx01"}, "partition_config vdi")
				r.WantClaims([]string{"hv01"})
				r.WantCounts(4, "hv01")
			}),
		},
		resource.TestStep{
			Config:           r.Block() + strings.Replace(rig.ConfigOf(4, []string{"hv01"}), `name  = "vdi"`, "", 1),
			ConfigPlanChecks: rig.Planned(rig.VDI, plancheck.ResourceActionReplace),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.VDI, rig.Jsonpath("mig"), knownvalue.Null()),
				statecheck.ExpectKnownValue(rig.VDI, rig.Jsonpath("gpus", "hv01", "gpus", rig.GPU0, "instances"), knownvalue.Null()),
			},
		},
	)
}

func TestAccPartitionConfig_BadMIGConfigIsAnErrorAtPlan(t *testing.T) {
	t.Parallel()
	bare := func(body string) string {
		return "resource \"gpu_partition_config\" \"ml\" {\n hosts = [\"hgx01\"]\n " + body + "\n}\n"
	}
	for name, test := range map[string]struct{ config, want string }{
		"no such profile": {
			rig.MIGOf("ml", `profiles = { "3g.20gb" = 1 }`),
			"There is no profile 3g.20gb: the GPU offers 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb and 7g.80gb",
		},
		"too many": {rig.MIGOf("ml", `profiles = { "3g.40gb" = 3 }`), "the GPU takes 2 at most"},
		"overlap": {
			rig.MIGOf("ml", `placements = [{ profile = "3g.40gb", start = 0 }, { profile = "1g.10gb", start = 3 }]`),
			"3g.40gb at 0 (slices 0 to 3) and 1g.10gb at 3 overlap",
		},
		"start": {
			rig.MIGOf("ml", `placements = [{ profile = "3g.40gb", start = 2 }]`), "3g.40gb cannot start at 2: it may start at 0 and 4",
		},
		"start, fix": {
			rig.MIGOf("ml", `placements = [{ profile = "3g.40gb", start = 2 }]`), "Fix: Write a start at which the profile may begin",
		},
		"overlap, fix": {
			rig.MIGOf("ml", `placements = [{ profile = "3g.40gb", start = 0 }, { profile = "1g.10gb", start = 3 }]`),
			"Fix: Write places that do not overlap",
		},
		"no number":          {rig.MIGOf("ml", `profiles = { "3g.40gb" = null }`), "Null Map Value"},
		"no unit":            {rig.MIGOf("ml", rig.Halves, `quiesce_units = [null]`), "Null Set Value"},
		"no host":            {bare("mig = { " + rig.Halves + " }\n selector = { gpu_ids = { hgx01 = [null] } }"), "Null Set Value"},
		"both ways":          {rig.MIGOf("ml", rig.Halves+", "+rig.Written), "2 attributes specified when one (and only one)"},
		"off and on":         {rig.MIGOf("ml", "enabled = true"), "Value must be \"false\""},
		"off with instances": {rig.MIGOf("ml", "enabled = false, "+rig.Halves), "2 attributes specified when one (and only one)"},
		"off with MPS":       {rig.MIGOf("ml", "enabled = false, mps = { multi_user = true }"), "cannot be specified when"},
		"neither way":        {rig.MIGOf("ml", ""), "`mig` has nothing set in it"},
		"no placements":      {rig.MIGOf("ml", "placements = []"), "must contain at least 1 elements"},
		"fewer than none":    {rig.MIGOf("ml", `profiles = { "3g.40gb" = -1 }`), "must be between 0 and 64"},
		"both kinds": {
			bare("gpu_p = { partition_count = 4 }\n mig = { " + rig.Halves + " }"),
			"Exactly one of these attributes must be configured: [gpu_p,mig,vgpu,mps,time_slicing]",
		},
		"units of gpu_p": {
			bare("gpu_p = { partition_count = 4 }\n quiesce_units = [\"nvidia-dcgm\"]"),
			`"gpu_p" cannot be specified when "quiesce_units" is specified`,
		},
		"a unit that is an option": {rig.MIGOf("ml", rig.Halves, `quiesce_units = ["--force"]`), "must be the name of a systemd unit"},
		"gpu_p on Linux":           {bare("gpu_p = { partition_count = 4 }"), `Host "hgx01" is a Linux host`},
		"mig on Hyper-V":           {strings.Replace(rig.MIGOf("ml", rig.Halves), "hgx01", "hv01", 1), `Host "hv01" is a Hyper-V host`},
		"no MIG":                   {strings.Replace(rig.MIGOf("ml", rig.Halves), "hgx01", "l40s", 1), "(its driver offers no MIG)"},
		"no MIG, by id": {
			strings.Replace(rig.MIGOf("ml", rig.Halves, `selector = { gpu_ids = { l40s = ["`+rig.MIGGPU(9)+`"] } }`), "hgx01", "l40s", 1),
			"The driver of GPU " + rig.MIGGPU(9),
		},
		"two configs of one GPU": {rig.MIGOf("ml", rig.Halves) + rig.MIGOf("more", rig.Halves, rig.OnGPUs(1)), "one-config-per-gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rig.HGX(rig.H100, 2)
			other := rig.HGX(rig.H100, 0).Hosts[0]
			other.Name = "l40s"
			card := rig.MIGCard(9, rig.H100)
			card.Model, card.PCI.Device, card.MIG = "NVIDIA L40S", "26B9", nil
			other.GPUs = []gpu.GPU{card}
			s.Hosts = append(s.Hosts, rig.Node("hv01"), other)
			r := rig.New(t, s)
			before := r.File()
			r.Steps(resource.TestStep{Config: r.Block() + test.config, PlanOnly: true, ExpectError: rig.Says(test.want)})
			r.WantUntouched(before)
		})
	}
}

func TestAccPartitionConfig_MIGOfHostsThatCannotBeAskedYetIsCheckedByTheModel(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	config := func(layout string) string {
		return `resource "terraform_data" "new" { input = "10.0.0.7" }
provider "gpu" {
  owner = "test"
  hosts = { hgx01 = { ssh = { address = terraform_data.new.output } } }
}
` + rig.MIGOf("ml", layout, `selector = { models = ["H100 80GB HBM3"] }`)
	}
	c := rig.NewCLI(t, config(`profiles = { "3g.40gb" = 3 }`))
	rig.WantSaid(t, c.Fails("plan"), "The hosts cannot be asked. By what is documented for NVIDIA H100 80GB HBM3",
		"the GPU takes 2 at most", "Rule: mig-placement")
	c.Write(config(`profiles = { "3g.39gb" = 2 }`))
	rig.WantSaid(t, c.Ok("plan"), "Warning: The GPU does not offer this MIG profile", "3g.40gb", "2 to add")
	c.Write(config(rig.Halves))
	rig.WantSaid(t, c.Ok("plan"), "2 to add")
	r.WantClaims([]string{"hgx01"})
}
