package provider_test

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
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestMIGLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	var small map[string]string
	r.steps(
		resource.TestStep{
			Config: r.block() + migOf("ml", balanced),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(ml, jsonpath("id"), text("ml")), plancheck.ExpectUnknownValue(ml, jsonpath("gpus")),
				plancheck.ExpectKnownValue(ml, jsonpath("partition_vram_mib"), knownvalue.Null()),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(ml, jsonpath("gpus", "hgx01", migGPU(0), "layout"), text("mig:2g.20gb@0+1g.10gb@2+1g.10gb@3+3g.40gb@4")),
				statecheck.ExpectKnownValue(ml, jsonpath("gpus", "hgx01", migGPU(1), "address"), text("0000:1b:00.0")),
				statecheck.ExpectKnownValue(ml, jsonpath("gpus", "hgx01", migGPU(1), "partition_count"), knownvalue.Null()),
				statecheck.ExpectKnownValue(ml, jsonpath("gpus", "hgx01", migGPU(1), "instances"), knownvalue.ListSizeExact(4)),
				statecheck.ExpectKnownValue(ml, jsonpath("gpus", "hgx01", migGPU(1), "instances", 3), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"profile": text("3g.40gb"), "start": number(4), "memory_mib": knownvalue.NotNull(), "uuid": knownvalue.NotNull(),
				})),
				statecheck.ExpectKnownValue(ml, jsonpath("partition_vram_mib"), knownvalue.Null()),
				statecheck.ExpectKnownValue(ml, jsonpath("isolation"), text("hardware")),
				statecheck.ExpectKnownValue(ml, jsonpath("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: then(func() {
				r.wantLayout("2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4", 0, 1)
				r.wantClaims([]string{"hgx01"}, "partition_config ml")
				r.wantSettled()
				small = r.devices(0, 1)
				maps.DeleteFunc(small, func(at, _ string) bool { return !strings.Contains(at, " 1g.10gb") })
			}),
		},
		resource.TestStep{ // what is still wanted stays where it is
			Config:           r.block() + migOf("ml", `profiles = { "1g.10gb" = 2 }`),
			ConfigPlanChecks: planned(ml, plancheck.ResourceActionUpdate),
			Check: then(func() {
				r.wantLayout("1g.10gb@2 1g.10gb@3", 0, 1)
				if diff := cmp.Diff(small, r.devices(0, 1)); diff != "" {
					t.Errorf("instances that stay were made again (-before +after):\n%s", diff)
				}
			}),
		},
		resource.TestStep{
			Config: r.block() + migOf("ml", written),
			Check:  then(func() { r.wantLayout("1g.10gb@0 3g.40gb@4", 0, 1) }),
		},
		resource.TestStep{ // MIG mode without instances
			Config: r.block() + migOf("ml", `profiles = {}`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(ml, jsonpath("gpus", "hgx01", migGPU(0), "layout"), text("mig:none")),
			},
			Check: then(func() { r.wantLayout("", 0, 1) }),
		},
	)
	r.wantLayout("", 0, 1) // on_destroy = keep
	r.wantClaims([]string{"hgx01"})
	r.wantSettled()
}

// One GPU of eight changes while a process runs on it and another config has the rest.
func TestMIGChangeTouchesNothingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 8))
	rest := migOf("rest", sevenSmall, onGPUs(1, 2, 3, 4, 5, 6, 7))
	c := newCLI(t, r.block()+migOf("ml", sevenSmall, onGPUs(0))+rest)
	c.apply()
	pid := r.runs(0, &gpu.MIGPlacement{Profile: "1g.10gb", Start: 3}, "python")
	others, kept := r.devices(1, 2, 3, 4, 5, 6, 7), r.devices(0)
	for i := 1; i < 8; i++ {
		r.fail("hgx01", simulated.OpCreateInstance, migGPU(i), 0, 0)
		r.fail("hgx01", simulated.OpDestroyInstance, migGPU(i), 0, 0)
		r.fail("hgx01", simulated.OpSetMIGMode, migGPU(i), 0, 0)
	}
	c.write(r.block() + migOf("ml", balanced, onGPUs(0)) + rest)
	wantSaid(t, c.ok("plan"), "hgx01, GPU "+migGPU(0)+" (NVIDIA H100 80GB HBM3): removes 1g.10gb@0+1g.10gb@1+1g.10gb@4+1g.10gb@5+1g.10gb@6; creates 2g.20gb@0+3g.40gb@4; keeps 1g.10gb@2+1g.10gb@3",
		"0 to add, 1 to change, 0 to destroy")
	c.apply()
	r.wantLayout("2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4", 0)
	if diff := cmp.Diff(others, r.devices(1, 2, 3, 4, 5, 6, 7)); diff != "" {
		t.Errorf("instances of other GPUs were made again (-before +after):\n%s", diff)
	}
	for _, place := range []string{"0 1g.10gb@2", "0 1g.10gb@3"} {
		if now := r.devices(0)[place]; now != kept[place] {
			t.Errorf("instance %s has the UUID %s, want %s as before", place, now, kept[place])
		}
	}
	if g, _ := r.host("hgx01").GPU(migGPU(0)); len(g.Processes) != 1 || g.Processes[0].PID != pid {
		t.Errorf("the process is gone: %+v", g.Processes)
	}
	c.wantNoChanges()
}

func TestMIGInstanceInUseIsInTheWayAtPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	c := newCLI(t, r.block()+migOf("ml", sevenSmall))
	c.apply()
	pid := r.runs(1, &gpu.MIGPlacement{Profile: "1g.10gb", Start: 5}, "python")
	before := r.file()
	c.write(r.block() + migOf("ml", halves, `max_disruption = "gpu_reset"`))
	wantSaid(t, c.fails("plan"), "MIG instances in use are in the way", migGPU(1), "1g.10gb at 5",
		fmt.Sprintf("process %d (python, container 3f2a)", pid), "Rule: mig-placement")
	r.wantUntouched(before)
	// The levels of rules do not lift what the host itself refuses.
	c.write(r.block(`rules = { mig-placement = "off" }`) + migOf("ml", halves, `max_disruption = "gpu_reset"`))
	wantSaid(t, c.fails("apply", "-auto-approve"), fmt.Sprintf("process %d (python, container 3f2a)", pid))
	r.wantLayout("1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 1g.10gb@4 1g.10gb@5 1g.10gb@6", 0, 1)
	r.wantSettled()
	r.must(r.fleet.StopProcess(t.Context(), "hgx01", pid))
	c.write(r.block() + migOf("ml", halves))
	c.apply()
	r.wantLayout("3g.40gb@0 3g.40gb@4", 0, 1)
}

func TestMIGModeNeedsAnIdleGPU(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	pid := r.runs(1, nil, "python")
	before := r.file()
	c := newCLI(t, r.block()+migOf("ml", halves))
	wantSaid(t, c.fails("plan"), "Processes use GPUs whose MIG mode changes", migGPU(1), fmt.Sprintf("process %d (python, container 3f2a)", pid),
		"`quiesce_units`", "Rule: mig-mode")
	r.wantUntouched(before)
	r.must(r.fleet.StopProcess(t.Context(), "hgx01", pid))
	c.apply()
	r.wantLayout("3g.40gb@0 3g.40gb@4", 0, 1)
}

func TestMIGModeOfAmpereTakesAResetOfThatGPUAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(a100, 2))
	r.watches("nvidia-dcgm.service")
	pid := r.runs(1, nil, "python") // a reset of the other GPU would end it
	before := r.file()
	c := newCLI(t, r.block()+migOf("ml", halves, onGPUs(0)))
	wantSaid(t, c.fails("plan"), "The change of MIG mode resets GPUs", migGPU(0), `max_disruption = "gpu_reset"`, "Rule: mig-mode")
	r.wantUntouched(before)

	c.write(r.block() + migOf("ml", halves, onGPUs(0), `max_disruption = "gpu_reset"`))
	wantSaid(t, c.ok("plan"), "MIG mode is switched on, which resets this GPU; creates 3g.40gb@0+3g.40gb@4")
	wantSaid(t, c.fails("apply", "-auto-approve"), "nvidia-dcgm.service") // it keeps the GPU open
	r.wantLayout("off", 0, 1)
	r.wantSettled()

	c.write(r.block() + migOf("ml", halves, onGPUs(0), `max_disruption = "gpu_reset"`, `quiesce_units = ["nvidia-dcgm", "not-there.service"]`))
	c.apply()
	r.wantLayout("3g.40gb@0 3g.40gb@4", 0)
	r.wantLayout("off", 1)
	r.wantRuns("nvidia-dcgm.service", "nvidia-persistenced.service")
	if g, _ := r.host("hgx01").GPU(migGPU(1)); len(g.Processes) != 1 || g.Processes[0].PID != pid {
		t.Errorf("the process on the other GPU is gone: %+v", g.Processes)
	}
	c.wantNoChanges()
}

func TestMIGIsRestoredOnDestroy(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	r.must(r.fleet.SetMIGModeOutside(t.Context(), "hgx01", migGPU(1), true))
	r.createOutside(1, at("2g.20gb", 2))
	r.steps(
		resource.TestStep{Config: r.block() + migOf("ml", halves, `on_destroy = "restore"`), Check: then(func() { r.wantLayout("3g.40gb@0 3g.40gb@4", 0, 1) })},
		resource.TestStep{ // a second change does not make the first layout what was before
			Config: r.block() + migOf("ml", sevenSmall, `on_destroy = "restore"`),
		},
	)
	r.wantLayout("off", 0)
	r.wantLayout("2g.20gb@2", 1)
	r.wantClaims([]string{"hgx01"})
	r.wantSettled()
}

func TestMIGIsNotRestoredUnderAProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	c := newCLI(t, r.block()+migOf("ml", halves, `on_destroy = "restore"`))
	c.apply()
	pid := r.runs(0, &gpu.MIGPlacement{Profile: "3g.40gb", Start: 4}, "python")
	wantSaid(t, c.fails("destroy", "-auto-approve"), fmt.Sprintf("process %d (python, container 3f2a)", pid), `on_destroy = "keep"`)
	r.wantLayout("3g.40gb@0 3g.40gb@4", 0, 1)
	// A GPU that leaves a config is warned of before.
	c.write(r.block() + migOf("ml", halves, `on_destroy = "restore"`, onGPUs(1)))
	wantSaid(t, c.ok("plan"), "Warning: The former layout cannot be put back", migGPU(0), fmt.Sprintf("process %d", pid))
	r.must(r.fleet.StopProcess(t.Context(), "hgx01", pid))
	c.destroy()
	r.wantLayout("off", 0, 1)
}

func TestMIGPolicyChangesWithoutAskingAHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 1))
	var before []byte
	r.steps(
		resource.TestStep{Config: r.block() + migOf("ml", halves), Check: then(func() { before = r.file() })},
		resource.TestStep{
			Config: r.block() + migOf("ml", halves, `max_disruption = "gpu_reset"`, `on_destroy = "restore"`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(ml, plancheck.ResourceActionUpdate), onPlan(func() { r.calls.take() }),
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

// What has to be stopped at the next boot is known to the host, also when it is declared
// later than the layout.
func TestMIGQuiesceUnitsReachTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 1))
	c := newCLI(t, r.block()+migOf("ml", halves))
	c.apply()
	made := r.devices(0)
	for _, units := range [][]string{{"nvidia-dcgm"}, nil} {
		more := ""
		if len(units) > 0 {
			more = `quiesce_units = ["` + units[0] + `"]`
		}
		c.write(r.block() + migOf("ml", halves, more))
		c.apply()
		if got := r.host("hgx01").Claims[0].Want.Config.QuiesceUnits; !slices.Equal(got, units) {
			t.Errorf("the claim has the units %v, want %v", got, units)
		}
		c.wantNoChanges()
	}
	if diff := cmp.Diff(made, r.devices(0)); diff != "" {
		t.Errorf("instances were made again (-before +after):\n%s", diff)
	}
}

func TestFailedMIGChangeIsPutBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	c := newCLI(t, r.block()+migOf("ml", sevenSmall))
	c.apply()
	r.fail("hgx01", simulated.OpCreateInstance, "3g.40gb@4", 1, 1) // on the second GPU
	c.write(r.block() + migOf("ml", halves))
	wantSaid(t, c.fails("apply", "-auto-approve"), "injected by the test", "Rolled back: hgx01")
	r.wantLayout("1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 1g.10gb@4 1g.10gb@5 1g.10gb@6", 0, 1)
	r.wantSettled()
	c.apply()
	r.wantLayout("3g.40gb@0 3g.40gb@4", 0, 1)
	c.wantNoChanges()
}

// A change of kind is a replacement: the two kinds are for hosts of different platforms.
func TestChangeOfKindReplacesTheConfig(t *testing.T) {
	t.Parallel()
	s := hgx(h100, 1)
	s.Hosts = append(s.Hosts, node("hv01"))
	r := newRig(t, s)
	r.steps(
		resource.TestStep{Config: r.block() + configOf(4, []string{"hv01"})},
		resource.TestStep{
			Config:           r.block() + strings.ReplaceAll(migOf("ml", halves), `"ml"`, `"vdi"`),
			ConfigPlanChecks: planned(vdi, plancheck.ResourceActionReplace),
			Check: then(func() {
				r.wantLayout("3g.40gb@0 3g.40gb@4", 0)
				r.wantClaims([]string{"hgx01"}, "partition_config vdi")
				r.wantClaims([]string{"hv01"})
				r.wantCounts(4, "hv01")
			}),
		},
		resource.TestStep{
			Config:           r.block() + strings.Replace(configOf(4, []string{"hv01"}), `name  = "vdi"`, "", 1),
			ConfigPlanChecks: planned(vdi, plancheck.ResourceActionReplace),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(vdi, jsonpath("mig"), knownvalue.Null()),
				statecheck.ExpectKnownValue(vdi, jsonpath("gpus", "hv01", gpu0, "instances"), knownvalue.Null()),
			},
		},
	)
}

func TestBadMIGConfigIsAnErrorAtPlan(t *testing.T) {
	t.Parallel()
	bare := func(body string) string {
		return "resource \"gpu_partition_config\" \"ml\" {\n hosts = [\"hgx01\"]\n " + body + "\n}\n"
	}
	for name, test := range map[string]struct{ config, want string }{
		"no such profile":          {migOf("ml", `profiles = { "3g.20gb" = 1 }`), "There is no profile 3g.20gb: the GPU offers 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb and 7g.80gb"},
		"too many":                 {migOf("ml", `profiles = { "3g.40gb" = 3 }`), "the GPU takes 2 at most"},
		"overlap":                  {migOf("ml", `placements = [{ profile = "3g.40gb", start = 0 }, { profile = "1g.10gb", start = 3 }]`), "3g.40gb at 0 (slices 0 to 3) and 1g.10gb at 3 overlap"},
		"start":                    {migOf("ml", `placements = [{ profile = "3g.40gb", start = 2 }]`), "3g.40gb cannot start at 2: it may start at 0 and 4"},
		"start, fix":               {migOf("ml", `placements = [{ profile = "3g.40gb", start = 2 }]`), "Fix: Write a start at which the profile may begin"},
		"overlap, fix":             {migOf("ml", `placements = [{ profile = "3g.40gb", start = 0 }, { profile = "1g.10gb", start = 3 }]`), "Fix: Write places that do not overlap"},
		"no number":                {migOf("ml", `profiles = { "3g.40gb" = null }`), "Null Map Value"},
		"no unit":                  {migOf("ml", halves, `quiesce_units = [null]`), "Null Set Value"},
		"no host":                  {bare("mig = { " + halves + " }\n selector = { gpu_ids = { hgx01 = [null] } }"), "Null Set Value"},
		"both ways":                {migOf("ml", halves+", "+written), "2 attributes specified when one (and only one)"},
		"neither way":              {migOf("ml", ""), "No attribute specified when one (and only one)"},
		"no placements":            {migOf("ml", "placements = []"), "must contain at least 1 elements"},
		"zero":                     {migOf("ml", `profiles = { "3g.40gb" = 0 }`), "must be between 1 and 64"},
		"both kinds":               {bare("gpu_p = { partition_count = 4 }\n mig = { " + halves + " }"), "Exactly one of these attributes must be configured: [gpu_p,mig,vgpu,mps,time_slicing]"},
		"units of gpu_p":           {bare("gpu_p = { partition_count = 4 }\n quiesce_units = [\"nvidia-dcgm\"]"), `"gpu_p" cannot be specified when "quiesce_units" is specified`},
		"a unit that is an option": {migOf("ml", halves, `quiesce_units = ["--force"]`), "must be the name of a systemd unit"},
		"gpu_p on Linux":           {bare("gpu_p = { partition_count = 4 }"), `Host "hgx01" is a Linux host`},
		"mig on Hyper-V":           {strings.Replace(migOf("ml", halves), "hgx01", "hv01", 1), `Host "hv01" is a Hyper-V host`},
		"no MIG":                   {strings.Replace(migOf("ml", halves), "hgx01", "l40s", 1), "(its driver offers no MIG)"},
		"no MIG, by id":            {strings.Replace(migOf("ml", halves, `selector = { gpu_ids = { l40s = ["`+migGPU(9)+`"] } }`), "hgx01", "l40s", 1), "The driver of GPU " + migGPU(9)},
		"two configs of one GPU":   {migOf("ml", halves) + migOf("more", halves, onGPUs(1)), "one-config-per-gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := hgx(h100, 2)
			other := hgx(h100, 0).Hosts[0]
			other.Name = "l40s"
			card := migCard(9, h100)
			card.Model, card.PCI.Device, card.MIG = "NVIDIA L40S", "26B9", nil
			other.GPUs = []gpu.GPU{card}
			s.Hosts = append(s.Hosts, node("hv01"), other)
			r := newRig(t, s)
			before := r.file()
			r.steps(resource.TestStep{Config: r.block() + test.config, PlanOnly: true, ExpectError: says(test.want)})
			r.wantUntouched(before)
		})
	}
}

func TestMIGOfHostsThatCannotBeAskedYetIsCheckedByTheModel(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 1))
	config := func(layout string) string {
		return `resource "terraform_data" "new" { input = "10.0.0.7" }
provider "gpu" {
  owner = "test"
  hosts = { hgx01 = { ssh = { address = terraform_data.new.output } } }
}
` + migOf("ml", layout, `selector = { models = ["H100 80GB HBM3"] }`)
	}
	c := newCLI(t, config(`profiles = { "3g.40gb" = 3 }`))
	wantSaid(t, c.fails("plan"), "The hosts cannot be asked. By what is documented for NVIDIA H100 80GB HBM3", "the GPU takes 2 at most", "Rule: mig-placement")
	c.write(config(`profiles = { "3g.39gb" = 2 }`))
	wantSaid(t, c.ok("plan"), "Warning: The GPU does not offer this MIG profile", "3g.40gb", "2 to add")
	c.write(config(halves))
	wantSaid(t, c.ok("plan"), "2 to add")
	r.wantClaims([]string{"hgx01"})
}
