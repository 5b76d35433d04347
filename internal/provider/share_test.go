package provider_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const shareA = "gpu_share.a"

func TestShareLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	text, float := knownvalue.StringExact, knownvalue.Float64Exact
	var placed []string
	is := func(name string, want knownvalue.Check) statecheck.StateCheck {
		return statecheck.ExpectKnownValue(shareA, jsonpath(name), want)
	}
	r.steps(
		resource.TestStep{
			Config: r.block() + mpsOn01 + shareOf("a", onGPU01, ofMPS, half, `active_thread_percentage = 30`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(shareA, jsonpath("cdi_device"), text("gpufleet.com/share=a")),
				plancheck.ExpectKnownValue(shareA, jsonpath("host"), text("gpu01")),
				plancheck.ExpectUnknownValue(shareA, jsonpath("gpu_ids")), plancheck.ExpectUnknownValue(shareA, jsonpath("devices")),
				plancheck.ExpectUnknownValue(shareA, jsonpath("mode")), plancheck.ExpectUnknownValue(shareA, jsonpath("environment")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				is("mode", text("mps")), is("isolation", text("memory")), is("enforcement", text("per_process")), is("fraction", float(0.5)),
				is("gpu_ids", knownvalue.SetSizeExact(1)), is("drift", knownvalue.ListSizeExact(0)), is("environment", knownvalue.MapPartial(nil)),
				statecheck.ExpectKnownValue(shareA, jsonpath("devices", 0, "mig_profile"), knownvalue.Null()),
				statecheck.ExpectKnownValue(shareA, jsonpath("devices", 0, "uuid"), knownvalue.StringRegexp(regexp.MustCompile("^GPU-1"))),
			},
			Check: then(func() {
				r.wantShares("gpu01", "a")
				placed = r.placedOn("gpu01", "a")
				if s := r.share("gpu01", "a").Want.Share; s.MemoryRequest != 23034*gpu.MiB || s.MemoryLimit != 23034*gpu.MiB || s.ActiveThreadPercentage != 30 {
					t.Errorf("the host has %+v", s)
				}
				r.wantSettled()
			}),
		},
		resource.TestStep{ // limits change in place, and where it is stays
			Config: r.block() + mpsOn01 + shareOf("a", onGPU01, ofMPS, `memory = { request_mib = 4096, limit_mib = 8192 }`, `active_thread_percentage = 60`, `client_priority = "below_normal"`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(shareA, plancheck.ResourceActionUpdate),
				plancheck.ExpectKnownValue(shareA, jsonpath("devices"), knownvalue.ListSizeExact(1)), plancheck.ExpectKnownValue(shareA, jsonpath("mode"), text("mps")),
				plancheck.ExpectUnknownValue(shareA, jsonpath("environment")), plancheck.ExpectUnknownValue(shareA, jsonpath("fraction")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{is("fraction", float(0.6))},
			Check: then(func() {
				if now := r.placedOn("gpu01", "a"); !slices.Equal(now, placed) {
					t.Errorf("the share was on %v and is on %v", placed, now)
				}
				if s := r.share("gpu01", "a").Want.Share; s.ClientPriority == nil || *s.ClientPriority != 1 || s.MemoryRequest != 4096*gpu.MiB {
					t.Errorf("the host has %+v", s)
				}
			}),
		},
		resource.TestStep{ // what is policy touches nothing
			PreConfig: func() { r.fail("gpu01", simulated.OpWriteShare, "", 0, 0) },
			Config:    r.block() + mpsOn01 + shareOf("a", onGPU01, ofMPS, `memory = { request_mib = 4096, limit_mib = 8192 }`, `active_thread_percentage = 60`, `client_priority = "below_normal"`, `gpu_count = 1`, `timeouts = { delete = "5m" }`),
			Check:     then(func() { r.clearFaults("gpu01") }),
		},
		resource.TestStep{ // another name is another share
			Config:           r.block() + mpsOn01 + replaceName(shareOf("a", onGPU01, ofMPS, half), "b"),
			ConfigPlanChecks: planned(shareA, plancheck.ResourceActionReplace),
			Check:            then(func() { r.wantShares("gpu01", "b") }),
		},
	)
	r.wantShares("gpu01")
	r.wantClaims([]string{"gpu01"})
	r.wantSettled()
}

// replaceName gives a share another name than its label.
func replaceName(hcl, name string) string {
	return regexp.MustCompile(`name = "\w+"`).ReplaceAllString(hcl, fmt.Sprintf("name = %q", name))
}

func TestShareModesFollowTheLayout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fleet                        gpu.Snapshot
		config, share                string
		mode, isolation, enforcement string
		fraction                     float64
	}{
		"a whole GPU": {inference(1), "", shareOf("a", onGPU01), "whole_gpu", "hardware", "hardware", 1},
		"turns": {
			inference(1), sharedConfig("turns", byTurns, "gpu01"), shareOf("a", onGPU01, "config = gpu_partition_config.turns.id"),
			"time_slicing", "none", "none", 0.25,
		},
		"a part without limits": {inference(1), mpsOn01, shareOf("a", onGPU01, ofMPS), "mps", "memory", "none", 0},
		"a MIG instance": {
			hgx(h100, 1), migOf("ml", sevenSmall), shareOf("a", `host = "hgx01"`, "config = gpu_partition_config.ml.id", `mig_profile = "1g.10gb"`),
			"mig", "hardware", "hardware", 0.1219,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.fleet)
			r.steps(resource.TestStep{
				Config: r.block() + test.config + test.share,
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue(shareA, jsonpath("mode"), knownvalue.StringExact(test.mode)),
					statecheck.ExpectKnownValue(shareA, jsonpath("isolation"), knownvalue.StringExact(test.isolation)),
					statecheck.ExpectKnownValue(shareA, jsonpath("enforcement"), knownvalue.StringExact(test.enforcement)),
					statecheck.ExpectKnownValue(shareA, jsonpath("fraction"), knownvalue.Float64Exact(test.fraction)),
				},
				Check: then(func() { r.wantShares(test.fleet.Hosts[0].Name, "a") }),
			})
			r.wantShares(test.fleet.Hosts[0].Name)
		})
	}
}

func TestShareOfPinnedGPUs(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	pin := func(n ...int) string {
		ids := ""
		for _, i := range n {
			ids += fmt.Sprintf("%q, ", shareCard(1, i))
		}
		return "gpu_ids = [" + ids + "]"
	}
	r.steps(
		resource.TestStep{
			Config: r.block() + shareOf("a", onGPU01, pin(1)),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(shareA, jsonpath("gpu_ids"), knownvalue.SetExact([]knownvalue.Check{knownvalue.StringExact(shareCard(1, 1))})),
			}},
			Check: then(func() {
				if got := r.placedOn("gpu01", "a"); !slices.Equal(got, []string{shareCard(1, 1)}) {
					t.Errorf("the share is on %v", got)
				}
			}),
		},
		resource.TestStep{ // it is there anyway
			Config:           r.block() + shareOf("a", onGPU01),
			ConfigPlanChecks: planned(shareA, plancheck.ResourceActionNoop),
		},
		resource.TestStep{
			Config:           r.block() + shareOf("a", onGPU01, pin(0)),
			ConfigPlanChecks: planned(shareA, plancheck.ResourceActionReplace),
			Check: then(func() {
				if got := r.placedOn("gpu01", "a"); !slices.Equal(got, []string{shareCard(1, 0)}) {
					t.Errorf("the share is on %v", got)
				}
			}),
		},
		resource.TestStep{
			Config:           r.block() + shareOf("a", onGPU01, `gpu_count = 2`),
			ConfigPlanChecks: planned(shareA, plancheck.ResourceActionReplace),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(shareA, jsonpath("fraction"), knownvalue.Float64Exact(2)),
				statecheck.ExpectKnownValue(shareA, jsonpath("devices"), knownvalue.ListSizeExact(2)),
			},
		},
	)
	r.wantShares("gpu01")
}

// What a plan says no to, by its rule.
func TestBadSharesAreRefusedAtPlan(t *testing.T) {
	t.Parallel()
	on := inference(1)
	for name, test := range map[string]struct {
		fleet gpu.Snapshot
		hcl   string
		says  []string
	}{
		"percentage of 0":   {on, mpsOn01 + shareOf("a", onGPU01, ofMPS, `active_thread_percentage = 0`), []string{"active_thread_percentage", "must be more than 0, at most 100", "got: 0"}},
		"percentage of 101": {on, mpsOn01 + shareOf("a", onGPU01, ofMPS, `active_thread_percentage = 101`), []string{"active_thread_percentage", "must be more than 0, at most 100", "got: 101"}},
		"more memory than the GPU has": {
			on, mpsOn01 + shareOf("a", onGPU01, ofMPS, `memory = { limit_mib = 50000 }`),
			[]string{"The share wants more memory than the device has", shareCard(1, 0), "45.0 GiB", "Rule: fraction-not-in-mode"},
		},
		"a request above the limit": {
			on, mpsOn01 + shareOf("a", onGPU01, ofMPS, `memory = { request_mib = 2048, limit_mib = 1024 }`),
			[]string{"a request within the limit", "Rule: fraction-not-in-mode"},
		},
		"more shares than fit": {
			on, mpsOn01 + shareOf("a", onGPU01, ofMPS, half) + shareOf("b", onGPU01, ofMPS, half) + shareOf("c", onGPU01, ofMPS, half) + shareOf("d", onGPU01, ofMPS, half) + shareOf("e", onGPU01, ofMPS, quarter),
			[]string{"Rule: share-placement"},
		},
		"more turns than there are": {
			on, sharedConfig("mps", byTurns, "gpu01") + manyShares(9, onGPU01, ofMPS), []string{"replica", "Rule: share-placement"},
		},
		"one name twice": {
			on, mpsOn01 + shareOf("a", onGPU01, ofMPS) + replaceName(shareOf("b", onGPU01, ofMPS), "a"),
			[]string{`gpu_share "a" on gpu01`, "Rule: unique-name"},
		},
		"a name that CDI does not take": {on, replaceName(shareOf("a", onGPU01), "team a"), []string{"The name cannot be that of a CDI device", "Rule: share-name"}},
		"a fraction of a whole GPU":     {on, shareOf("a", onGPU01, `active_thread_percentage = 50`), []string{"mode whole_gpu", "Rule: fraction-not-in-mode"}},
		"a fraction of a MIG instance": {
			hgx(h100, 1), migOf("ml", sevenSmall) + shareOf("a", `host = "hgx01"`, "config = gpu_partition_config.ml.id", `active_thread_percentage = 50`),
			[]string{"mode mig", "Rule: fraction-not-in-mode"},
		},
		"a profile that is not there": {
			hgx(h100, 1), migOf("ml", sevenSmall) + shareOf("a", `host = "hgx01"`, "config = gpu_partition_config.ml.id", `mig_profile = "3g.40gb"`),
			[]string{"profile 3g.40gb", "Rule: share-placement"},
		},
		"a host that nobody knows":    {on, shareOf("a", `host = "gpu09"`), []string{"Unknown host", `"gpu09"`}},
		"a config that nobody knows":  {on, shareOf("a", onGPU01, `config = "nothing"`), []string{`"nothing"`, "Rule: known-config"}},
		"a pool that nobody knows":    {on, shareOf("a", `pool = "gpu01/nothing"`), []string{`"gpu01/nothing"`, "Rule: known-pool"}},
		"neither host nor pool":       {on, shareOf("a"), []string{"At least one of these attributes must be configured"}},
		"GPUs of a pool without host": {on, shareOf("a", `pool = "gpu01/ml"`, `gpu_ids = ["GPU-1"]`), []string{`"host" must be specified when "gpu_ids" is specified`}},
		"counts that disagree":        {on, shareOf("a", onGPU01, `gpu_ids = ["GPU-1"]`, `gpu_count = 2`), []string{"gpu_count is 2, and gpu_ids names 1"}},
		"a label without a pool":      {on, shareOf("a", onGPU01, teamA), []string{`"pool" must be specified when "owner_label" is specified`}},
		"an empty memory":             {on, shareOf("a", onGPU01, `memory = {}`), []string{"memory"}},
		"a priority that MPS has not": {on, shareOf("a", onGPU01, `client_priority = "high"`), []string{"client_priority", `"high"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.fleet)
			before := r.file()
			r.steps(r.rejects(r.block()+test.hcl, test.says...))
			r.wantUntouched(before)
		})
	}
}

// manyShares are so many shares of the same arguments.
func manyShares(n int, more ...string) string {
	out := ""
	for i := range n {
		out += shareOf(fmt.Sprintf("s%d", i), more...)
	}
	return out
}

// Limits may add up to as much as the config says, and the plan shows the ratio.
func TestOversubscriptionIsTheConfigsToAllow(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	generous := sharedConfig("mps", `mps = { uid = 1000, oversubscription = 1.5 }`, "gpu01")
	limits := `memory = { request_mib = 1024, limit_mib = 30000 }`
	a, b := shareOf("a", onGPU01, ofMPS, limits, `gpu_count = 2`), shareOf("b", onGPU01, ofMPS, limits)
	c := newCLI(t, r.block()+mpsOn01+a+b)
	wantSaid(t, c.fails("plan"), "allows memory limits of", "Rule: share-placement") // both are new
	c.write(r.block() + mpsOn01 + a)
	c.apply()
	c.write(r.block() + mpsOn01 + a + b)
	wantSaid(t, c.fails("plan"), "The memory limits of the shares are more than the config allows", "Rule: share-oversubscription")
	c.write(r.block() + generous + a + b)
	wantSaid(t, c.ok("plan"), "The device is oversubscribed", "(1.3 times)", "allows 1.5 times", "Rule: share-oversubscription")
	c.apply()
	r.wantShares("gpu01", "a", "b")
	c.wantNoChanges()
}

// One plan asks each host of a pool once, however many shares it is for.
func TestAPlanOfManySharesAsksEachHostOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	hosts := []string{"gpu01", "gpu02"}
	r.steps(resource.TestStep{
		Config: r.block() + sharedConfig("mps", byMPS, hosts...) + mlPool(hosts) + manyShares(12, fromPool),
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{onPlan(func() {
			if calls := fmt.Sprint(r.calls.take()); calls != "map[gpu01:map[Inventory:1] gpu02:map[Inventory:1]]" {
				t.Errorf("the plan made the calls %s, want one inventory of each host", calls)
			}
		})}},
	})
}

// A share that was pinned is where it is, whatever becomes of the pin, also while it is used.
func TestAPinThatIsTakenBackMovesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	pin := `gpu_ids = ["` + shareCard(1, 1) + `"]`
	r.steps(
		resource.TestStep{Config: r.block() + mpsOn01 + shareOf("a", onGPU01, ofMPS, half, pin)},
		resource.TestStep{
			PreConfig:        func() { r.computes("gpu01", shareCard(1, 1), nil, "a", "python") },
			Config:           r.block() + mpsOn01 + shareOf("a", onGPU01, ofMPS, quarter),
			ConfigPlanChecks: planned(shareA, plancheck.ResourceActionUpdate),
			Check: then(func() {
				if got := r.placedOn("gpu01", "a"); !slices.Equal(got, []string{shareCard(1, 1)}) {
					t.Errorf("the share is on %v", got)
				}
				r.must(r.fleet.StopProcess(t.Context(), "gpu01", r.host("gpu01").GPUs[1].Processes[0].PID))
			}),
		},
	)
}
