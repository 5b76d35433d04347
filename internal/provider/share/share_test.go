package share_test

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
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const shareA = "gpu_share.a"

func TestAccShare_ShareLifecycle(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	text, float := knownvalue.StringExact, knownvalue.Float64Exact
	var placed []string
	is := func(name string, want knownvalue.Check) statecheck.StateCheck {
		return statecheck.ExpectKnownValue(shareA, rig.Jsonpath(name), want)
	}
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half, `active_thread_percentage = 30`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(shareA, rig.Jsonpath("cdi_device"), text("gpufleet.com/share=a")),
				plancheck.ExpectKnownValue(shareA, rig.Jsonpath("host"), text("gpu01")),
				plancheck.ExpectUnknownValue(shareA, rig.Jsonpath("gpu_ids")), plancheck.ExpectUnknownValue(shareA, rig.Jsonpath("devices")),
				plancheck.ExpectUnknownValue(shareA, rig.Jsonpath("mode")), plancheck.ExpectUnknownValue(shareA, rig.Jsonpath("environment")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				is("mode", text("mps")), is("isolation", text("memory")), is("enforcement", text("advisory")), is("fraction", float(0.5)),
				is("gpu_ids", knownvalue.SetSizeExact(1)), is("drift", knownvalue.ListSizeExact(0)), is("environment", knownvalue.MapPartial(nil)),
				statecheck.ExpectKnownValue(shareA, rig.Jsonpath("devices", 0, "mig_profile"), knownvalue.Null()),
				statecheck.ExpectKnownValue(shareA, rig.Jsonpath("devices", 0, "uuid"), knownvalue.StringRegexp(regexp.MustCompile("^GPU-1"))),
			},
			Check: rig.Then(func() {
				r.WantShares("gpu01", "a")
				placed = r.PlacedOn("gpu01", "a")
				if s := r.Share("gpu01", "a").Want.Share; s.MemoryRequest != 23034*gpu.MiB || s.MemoryLimit != 23034*gpu.MiB ||
					s.ActiveThreadPercentage != 30 {
					t.Errorf("the host has %+v", s)
				}
				r.WantSettled()
			}),
		},
		resource.TestStep{ // limits change in place, and where it is stays
			Config: r.Block() + rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, `memory = { request_mib = 4096, limit_mib = 8192 }`,
				`active_thread_percentage = 60`, `client_priority = "below_normal"`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction(shareA, plancheck.ResourceActionUpdate),
				plancheck.ExpectKnownValue(shareA, rig.Jsonpath("devices"), knownvalue.ListSizeExact(1)),
				plancheck.ExpectKnownValue(shareA, rig.Jsonpath("mode"), text("mps")),
				plancheck.ExpectUnknownValue(shareA, rig.Jsonpath("environment")), plancheck.ExpectUnknownValue(shareA, rig.Jsonpath("fraction")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{is("fraction", float(0.6))},
			Check: rig.Then(func() {
				if now := r.PlacedOn("gpu01", "a"); !slices.Equal(now, placed) {
					t.Errorf("the share was on %v and is on %v", placed, now)
				}
				if s := r.Share("gpu01", "a").Want.Share; s.ClientPriority == nil || *s.ClientPriority != 1 || s.MemoryRequest != 4096*gpu.MiB {
					t.Errorf("the host has %+v", s)
				}
			}),
		},
		resource.TestStep{ // what is policy touches nothing
			PreConfig: func() { r.Fail("gpu01", simulated.OpWriteShare, "", 0, 0) },
			Config: r.Block() + rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, `memory = { request_mib = 4096, limit_mib = 8192 }`,
				`active_thread_percentage = 60`, `client_priority = "below_normal"`, `gpu_count = 1`, `timeouts = { delete = "5m" }`),
			Check: rig.Then(func() { r.ClearFaults("gpu01") }),
		},
		resource.TestStep{ // another name is another share
			Config:           r.Block() + rig.MPSOn01 + replaceName(rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half), "b"),
			ConfigPlanChecks: rig.Planned(shareA, plancheck.ResourceActionReplace),
			Check:            rig.Then(func() { r.WantShares("gpu01", "b") }),
		},
	)
	r.WantShares("gpu01")
	r.WantClaims([]string{"gpu01"})
	r.WantSettled()
}

// replaceName gives a share another name than its label.
func replaceName(hcl, name string) string {
	return regexp.MustCompile(`name = "\w+"`).ReplaceAllString(hcl, fmt.Sprintf("name = %q", name))
}

func TestAccShare_ShareModesFollowTheLayout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fleet                        gpu.Snapshot
		config, share                string
		mode, isolation, enforcement string
		fraction                     float64
	}{
		"a whole GPU": {rig.Inference(1), "", rig.ShareOf("a", rig.OnGPU01), "whole_gpu", "hardware", "hardware", 1},
		"turns": {
			rig.Inference(1), rig.SharedConfig("turns", rig.ByTurns, "gpu01"),
			rig.ShareOf("a", rig.OnGPU01, "config = gpu_partition_config.turns.id"),
			"time_slicing", "none", "none", 0.25,
		},
		"a part without limits": {rig.Inference(1), rig.MPSOn01, rig.ShareOf("a", rig.OnGPU01, rig.OfMPS), "mps", "memory", "none", 0},
		"a MIG instance": {
			rig.HGX(rig.H100, 1), rig.MIGOf("ml", rig.SevenSmall),
			rig.ShareOf("a", `host = "hgx01"`, "config = gpu_partition_config.ml.id", `mig_profile = "1g.10gb"`),
			"mig", "hardware", "hardware", 0.1219,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, test.fleet)
			r.Steps(resource.TestStep{
				Config: r.Block() + test.config + test.share,
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue(shareA, rig.Jsonpath("mode"), knownvalue.StringExact(test.mode)),
					statecheck.ExpectKnownValue(shareA, rig.Jsonpath("isolation"), knownvalue.StringExact(test.isolation)),
					statecheck.ExpectKnownValue(shareA, rig.Jsonpath("enforcement"), knownvalue.StringExact(test.enforcement)),
					statecheck.ExpectKnownValue(shareA, rig.Jsonpath("fraction"), knownvalue.Float64Exact(test.fraction)),
				},
				Check: rig.Then(func() { r.WantShares(test.fleet.Hosts[0].Name, "a") }),
			})
			r.WantShares(test.fleet.Hosts[0].Name)
		})
	}
}

func TestAccShare_ShareOfPinnedGPUs(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	pin := func(n ...int) string {
		ids := ""
		for _, i := range n {
			ids += fmt.Sprintf("%q, ", rig.ShareCard(1, i))
		}
		return "gpu_ids = [" + ids + "]"
	}
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.ShareOf("a", rig.OnGPU01, pin(1)),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(shareA, rig.Jsonpath("gpu_ids"),
					knownvalue.SetExact([]knownvalue.Check{knownvalue.StringExact(rig.ShareCard(1, 1))})),
			}},
			Check: rig.Then(func() {
				if got := r.PlacedOn("gpu01", "a"); !slices.Equal(got, []string{rig.ShareCard(1, 1)}) {
					t.Errorf("the share is on %v", got)
				}
			}),
		},
		resource.TestStep{ // it is there anyway
			Config:           r.Block() + rig.ShareOf("a", rig.OnGPU01),
			ConfigPlanChecks: rig.Planned(shareA, plancheck.ResourceActionNoop),
		},
		resource.TestStep{
			Config:           r.Block() + rig.ShareOf("a", rig.OnGPU01, pin(0)),
			ConfigPlanChecks: rig.Planned(shareA, plancheck.ResourceActionReplace),
			Check: rig.Then(func() {
				if got := r.PlacedOn("gpu01", "a"); !slices.Equal(got, []string{rig.ShareCard(1, 0)}) {
					t.Errorf("the share is on %v", got)
				}
			}),
		},
		resource.TestStep{
			Config:           r.Block() + rig.ShareOf("a", rig.OnGPU01, `gpu_count = 2`),
			ConfigPlanChecks: rig.Planned(shareA, plancheck.ResourceActionReplace),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(shareA, rig.Jsonpath("fraction"), knownvalue.Float64Exact(2)),
				statecheck.ExpectKnownValue(shareA, rig.Jsonpath("devices"), knownvalue.ListSizeExact(2)),
			},
		},
	)
	r.WantShares("gpu01")
}

// What a plan says no to, by its rule.
func TestAccShare_BadSharesAreRefusedAtPlan(t *testing.T) {
	t.Parallel()
	on := rig.Inference(1)
	for name, test := range map[string]struct {
		fleet gpu.Snapshot
		hcl   string
		says  []string
	}{
		"percentage of 0": {
			on, rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, `active_thread_percentage = 0`),
			[]string{"active_thread_percentage", "must be more than 0, at most 100", "got: 0"},
		},
		"percentage of 101": {
			on, rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, `active_thread_percentage = 101`),
			[]string{"active_thread_percentage", "must be more than 0, at most 100", "got: 101"},
		},
		"more memory than the GPU has": {
			on, rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, `memory = { limit_mib = 50000 }`),
			[]string{"The share requests more memory than the device has", rig.ShareCard(1, 0), "45.0 GiB", "Rule: fraction-not-in-mode"},
		},
		"a request above the limit": {
			on, rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, `memory = { request_mib = 2048, limit_mib = 1024 }`),
			[]string{"a request within the limit", "Rule: fraction-not-in-mode"},
		},
		"more shares than fit": {
			on, rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half) + rig.ShareOf("b", rig.OnGPU01, rig.OfMPS, rig.Half) +
				rig.ShareOf("c", rig.OnGPU01, rig.OfMPS, rig.Half) + rig.ShareOf("d", rig.OnGPU01, rig.OfMPS, rig.Half) +
				rig.ShareOf("e", rig.OnGPU01, rig.OfMPS, rig.Quarter),
			[]string{"Rule: share-placement"},
		},
		"more turns than there are": {
			on, rig.SharedConfig("mps", rig.ByTurns, "gpu01") + manyShares(9, rig.OnGPU01, rig.OfMPS), []string{"replica", "Rule: share-placement"},
		},
		"one name twice": {
			on, rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS) + replaceName(rig.ShareOf("b", rig.OnGPU01, rig.OfMPS), "a"),
			[]string{`gpu_share "a" on gpu01`, "Rule: unique-name"},
		},
		"a name that CDI does not take": {
			on, replaceName(rig.ShareOf("a", rig.OnGPU01), "team a"), []string{"The name is not a valid CDI device name", "Rule: share-name"},
		},
		"a fraction of a whole GPU": {
			on, rig.ShareOf("a", rig.OnGPU01, `active_thread_percentage = 50`), []string{"mode whole_gpu", "Rule: fraction-not-in-mode"},
		},
		"a fraction of a MIG instance": {
			rig.HGX(rig.H100, 1), rig.MIGOf("ml", rig.SevenSmall) + rig.ShareOf("a", `host = "hgx01"`, "config = gpu_partition_config.ml.id",
				`active_thread_percentage = 50`),
			[]string{"mode mig", "Rule: fraction-not-in-mode"},
		},
		"a profile that is not there": {
			rig.HGX(rig.H100, 1), rig.MIGOf("ml", rig.SevenSmall) + rig.ShareOf("a", `host = "hgx01"`, "config = gpu_partition_config.ml.id",
				`mig_profile = "3g.40gb"`),
			[]string{"profile 3g.40gb", "Rule: share-placement"},
		},
		"a host that nobody knows":   {on, rig.ShareOf("a", `host = "gpu09"`), []string{"Unknown host", `"gpu09"`}},
		"a config that nobody knows": {on, rig.ShareOf("a", rig.OnGPU01, `config = "nothing"`), []string{`"nothing"`, "Rule: known-config"}},
		"a pool that nobody knows":   {on, rig.ShareOf("a", `pool = "gpu01/nothing"`), []string{`"gpu01/nothing"`, "Rule: known-pool"}},
		"neither host nor pool":      {on, rig.ShareOf("a"), []string{"At least one of these attributes must be configured"}},
		"GPUs of a pool without host": {
			on, rig.ShareOf("a", `pool = "gpu01/ml"`, `gpu_ids = ["GPU-1"]`), []string{`"host" must be specified when "gpu_ids" is specified`},
		},
		"counts that disagree": {
			on, rig.ShareOf("a", rig.OnGPU01, `gpu_ids = ["GPU-1"]`, `gpu_count = 2`), []string{"gpu_count is 2, and gpu_ids names 1"},
		},
		"a label without a pool": {
			on, rig.ShareOf("a", rig.OnGPU01, rig.TeamA), []string{`"pool" must be specified when "owner_label" is specified`},
		},
		"an empty memory":             {on, rig.ShareOf("a", rig.OnGPU01, `memory = {}`), []string{"memory"}},
		"a priority that MPS has not": {on, rig.ShareOf("a", rig.OnGPU01, `client_priority = "high"`), []string{"client_priority", `"high"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, test.fleet)
			before := r.File()
			r.Steps(r.Rejects(r.Block()+test.hcl, test.says...))
			r.WantUntouched(before)
		})
	}
}

// manyShares are so many shares of the same arguments.
func manyShares(n int, more ...string) string {
	out := ""
	for i := range n {
		out += rig.ShareOf(fmt.Sprintf("s%d", i), more...)
	}
	return out
}

// Limits may add up to as much as the config says, and the plan shows the ratio.
func TestAccShare_OversubscriptionIsTheConfigsToAllow(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	generous := rig.SharedConfig("mps", `mps = { uid = 1000, oversubscription = 1.5 }`, "gpu01")
	limits := `memory = { request_mib = 1024, limit_mib = 30000 }`
	a, b := rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, limits, `gpu_count = 2`), rig.ShareOf("b", rig.OnGPU01, rig.OfMPS, limits)
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+a+b)
	rig.WantSaid(t, c.Fails("plan"), "allows memory limits of", "Rule: share-placement") // both are new
	c.Write(r.Block() + rig.MPSOn01 + a)
	c.Apply()
	c.Write(r.Block() + rig.MPSOn01 + a + b)
	rig.WantSaid(t, c.Fails("plan"), "The memory limits of the shares exceed what the config allows", "Rule: share-oversubscription")
	c.Write(r.Block() + generous + a + b)
	rig.WantSaid(t, c.Ok("plan"), "The device is oversubscribed", "(1.3 times)", "allows 1.5 times", "Rule: share-oversubscription")
	c.Apply()
	r.WantShares("gpu01", "a", "b")
	c.WantNoChanges()
}

// One plan asks each host of a pool once, however many shares it is for.
func TestAccShare_APlanOfManySharesAsksEachHostOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	hosts := []string{"gpu01", "gpu02"}
	r.Steps(resource.TestStep{
		Config: r.Block() + rig.SharedConfig("mps", rig.ByMPS, hosts...) + rig.MLPool(hosts) + manyShares(12, rig.FromPool),
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{rig.OnPlan(func() {
			if calls := fmt.Sprint(r.Calls.Take()); calls != "map[gpu01:map[Inventory:1] gpu02:map[Inventory:1]]" {
				t.Errorf("the plan made the calls %s, want one inventory of each host", calls)
			}
		})}},
	})
}

// A share that was pinned is where it is, whatever becomes of the pin, also while it is used.
func TestAccShare_APinThatIsTakenBackMovesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	pin := `gpu_ids = ["` + rig.ShareCard(1, 1) + `"]`
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half, pin)},
		resource.TestStep{
			PreConfig:        func() { r.Computes("gpu01", rig.ShareCard(1, 1), nil, "a", "python") },
			Config:           r.Block() + rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Quarter),
			ConfigPlanChecks: rig.Planned(shareA, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				if got := r.PlacedOn("gpu01", "a"); !slices.Equal(got, []string{rig.ShareCard(1, 1)}) {
					t.Errorf("the share is on %v", got)
				}
				r.Must(r.Fleet.StopProcess(t.Context(), "gpu01", r.Host("gpu01").GPUs[1].Processes[0].PID))
			}),
		},
	)
}

// What the driver holds processes to is read back: those that began before the limit, or in no
// container, go past it, and the share says so for as long as they run.
func TestAccShare_EnforcementIsWhatTheDriverTellsOfProcesses(t *testing.T) {
	t.Parallel()
	fleet := rig.Inference(1)
	for i := range fleet.Hosts[0].GPUs {
		fleet.Hosts[0].GPUs[i].Driver.Version = "615.43.02"
	}
	fleet.Hosts[0].ContainerToolkit = "1.20.1"
	r := rig.New(t, fleet)
	of := func(limit string) string {
		return r.Block() + rig.SharedConfig("turns", rig.ByTurns, "gpu01") + rig.ShareOf("a", rig.OnGPU01,
			"config = gpu_partition_config.turns.id", "memory = { limit_mib = "+limit+" }")
	}
	c := rig.NewCLI(t, of("8192"))
	c.Apply()
	enforced := func(by string) {
		t.Helper()
		c.WantNoChanges()
		if got := c.Attributes(shareA)["enforcement"]; got != by {
			t.Errorf("enforcement is %v, want %s", got, by)
		}
	}
	enforced("per_container")
	pid := r.Computes("gpu01", r.PlacedOn("gpu01", "a")[0], nil, "a", "python")
	held := func(limit gpu.Bytes) {
		r.EditHost("gpu01", func(h *gpu.Host) {
			for i := range h.GPUs {
				for j := range h.GPUs[i].Processes {
					h.GPUs[i].Processes[j].MemoryLimit = &limit
				}
			}
		})
		c.Ok("apply", "-refresh-only", "-auto-approve")
	}
	held(8192 * gpu.MiB)
	enforced("per_container")
	held(0)
	enforced("none")
	held(8192 * gpu.MiB)
	c.Write(of("4096"))
	rig.WantSaid(t, c.Ok("apply", "-auto-approve"), "Processes exceed the share's limit", "python", "Restart them in a container")
	enforced("none")
	r.Must(r.Fleet.StopProcess(t.Context(), "gpu01", pid))
	c.Ok("apply", "-refresh-only", "-auto-approve")
	enforced("per_container")
}

// TestAccShare_MemoryThatIsNotKnown asks for memory of a GPU that does not tell how much it has: a
// create and an update have one verdict, and a share that has its place stays where the figure goes.
func TestAccShare_MemoryThatIsNotKnown(t *testing.T) {
	t.Parallel()
	for name, layout := range map[string]string{"time-slicing": rig.TurnsOf(rig.FourTurns), "MPS": rig.MPSOf(rig.HalfEach)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := rig.GPUHost(1)
			known := snapshot.Hosts[0].GPUs[0].VRAM
			snapshot.Hosts[0].GPUs[0].VRAM = 0
			r := rig.New(t, snapshot)
			of := "config = gpu_partition_config.inference.id"
			asks := layout + rig.ShareOf("a", rig.OnGPU01, of, `memory = { request_mib = 1024 }`)
			c := rig.NewCLI(t, r.Block()+asks)
			rig.WantSaid(t, c.Fails("plan"), "The memory of the device is not known")
			c.Write(r.Block() + layout + rig.ShareOf("a", rig.OnGPU01, of))
			c.Apply()
			c.Write(r.Block() + asks)
			rig.WantSaid(t, c.Fails("plan"), "The memory of the device is not known")
			if share := r.Share("gpu01", "a").Want.Share; share.MemoryRequest != 0 {
				t.Errorf("the host has %+v", share)
			}
			r.EditCard(0, func(g *gpu.GPU) { g.VRAM = known })
			c.Apply()
			r.EditCard(0, func(g *gpu.GPU) { g.VRAM = 0 })
			c.WantNoChanges()
			c.Destroy()
		})
	}
}
