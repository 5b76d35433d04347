package provider_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAShareOfAnotherOwnerIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	other := newCLI(t, r.blockOf("other")+shareOf("a", onGPU01, `gpu_ids = ["`+shareCard(1, 0)+`"]`))
	other.apply()
	before := r.snapshot()
	c := newCLI(t, r.block()+shareOf("a", onGPU01))
	wantSaid(t, c.fails("plan"), `the Terraform state "other"`, "Rule: not-our-claim")
	wantSaid(t, c.fails("import", shareA, "gpu01/a"), "Share belongs to another owner", `"other"`, `"test"`)
	r.wantUnchanged(before)
	// What it has is taken, whoever has it.
	c.write(r.block() + shareOf("b", onGPU01, `gpu_ids = ["`+shareCard(1, 0)+`"]`))
	wantSaid(t, c.fails("plan"), `is taken by share "a"`, "Rule: share-placement")
	c.write(r.block() + shareOf("b", onGPU01))
	c.apply()
	if got := r.placedOn("gpu01", "b"); !slices.Equal(got, []string{shareCard(1, 1)}) {
		t.Errorf("share b is on %v", got)
	}
}

// A share whose for_each key changes is taken over where it is, with all that runs in it.
func TestARenamedKeyTakesTheShareOver(t *testing.T) {
	t.Parallel()
	hosts := []string{"gpu01", "gpu02"}
	for name, test := range map[string]struct {
		config, place string
		args          []string
	}{
		"on a host, one at a time":    {mpsOn01, onGPU01 + "\n  " + ofMPS, []string{"-parallelism=1"}},
		"on a host, in parallel":      {mpsOn01, onGPU01 + "\n  " + ofMPS, nil},
		"from a pool, one at a time":  {sharedConfig("mps", byMPS, hosts...) + mlPool(hosts), fromPool, []string{"-parallelism=1"}},
		"from a pool, in parallel":    {sharedConfig("mps", byMPS, hosts...) + mlPool(hosts), fromPool, nil},
		"create before destroy":       {mpsOn01, onGPU01 + "\n  " + ofMPS + "\n  lifecycle { create_before_destroy = true }", nil},
		"create before destroy, pool": {sharedConfig("mps", byMPS, hosts...) + mlPool(hosts), fromPool + "\n  lifecycle { create_before_destroy = true }", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inference(2))
			config := func(key string) string {
				return r.block() + test.config + fmt.Sprintf("resource \"gpu_share\" \"team\" {\n  for_each = { %s = \"a\", other = \"b\" }\n  name = each.value\n  memory = { limit_mib = 4096 }\n  %s\n}\n", key, test.place)
			}
			c := newCLI(t, config("old"))
			c.apply()
			r.wantShares("gpu01", "a", "b")
			c.write(config("new"))
			wantSaid(t, c.apply(test.args...), "1 added, 0 changed, 1 destroyed")
			r.wantShares("gpu01", "a", "b")
			c.wantNoChanges()
			c.destroy()
			r.wantShares("gpu01")
			r.wantShares("gpu02")
		})
	}
}

// A config of another kind is another config, and its shares are other shares: they go
// before it and come after it.
func TestAnotherKindOfConfigReplacesItsShares(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	config := func(kind string) string {
		return r.block() + sharedConfig("mps", kind, "gpu01") + shareOf("a", onGPU01, ofMPS, `memory = { limit_mib = 4096 }`)
	}
	r.steps(
		resource.TestStep{Config: config(byMPS)},
		resource.TestStep{
			Config: config(byTurns),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("gpu_partition_config.mps", plancheck.ResourceActionDestroyBeforeCreate),
				plancheck.ExpectResourceAction(shareA, plancheck.ResourceActionDestroyBeforeCreate),
			}},
			ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownValue(shareA, jsonpath("mode"), knownvalue.StringExact("time_slicing"))},
			Check:             then(func() { r.wantShares("gpu01", "a") }),
		},
	)
}

func TestAMovedShareChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	r.steps(
		resource.TestStep{Config: r.block() + shareOf("a", onGPU01), Check: then(func() { r.fail("gpu01", simulated.OpWriteShare, "", 0, 0) })},
		resource.TestStep{
			Config:           r.block() + replaceName(shareOf("b", onGPU01), "a") + "moved {\n  from = gpu_share.a\n  to   = gpu_share.b\n}\n",
			ConfigPlanChecks: planned("gpu_share.b", plancheck.ResourceActionNoop), Check: then(func() { r.clearFaults("gpu01") }),
		},
	)
}

// Which shares can be imported, and how they are declared.
func shareImports() map[string]imported {
	return map[string]imported{
		"on a host": {address: shareA, ids: []string{"gpu01/a"}, hcl: mpsOn01 + shareOf("a", onGPU01, ofMPS, half, `active_thread_percentage = 25`, `client_priority = "normal"`)},
		"pinned": {
			address: shareA, ids: []string{"gpu01/a"},
			hcl: mpsOn01 + shareOf("a", onGPU01, ofMPS, `gpu_ids = ["`+shareCard(1, 0)+`", "`+shareCard(1, 1)+`"]`, `memory = { request_mib = 1024, limit_mib = 2048 }`),
		},
		"from a pool": {
			address: shareA, ids: []string{"gpu01/a"},
			hcl: mpsOn01 + mlPool([]string{"gpu01"}, `quotas = { team-a = { shares = 4 } }`) + shareOf("a", fromPool, teamA),
		},
	}
}

func TestImportOfAShareIsTheSameAgain(t *testing.T) {
	t.Parallel()
	for name, o := range shareImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inference(1))
			noop := resource.ImportPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(o.address, plancheck.ResourceActionNoop)}}
			r.steps(
				resource.TestStep{Config: r.block() + o.hcl},
				resource.TestStep{
					ResourceName: o.address, ImportState: true, ImportStateId: o.ids[0], ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
					ImportStateVerifyIgnore: []string{"timeouts"}, ImportStateVerifyIdentifierAttribute: "cdi_device",
				},
				resource.TestStep{
					Config: r.block() + o.hcl, ResourceName: o.address, ImportState: true, ImportStateId: o.ids[0], ImportStateKind: resource.ImportBlockWithID, ImportPlanChecks: noop,
				},
			)
			r.identities(
				resource.TestStep{Config: r.block() + o.hcl},
				resource.TestStep{Config: r.block() + o.hcl, ResourceName: o.address, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity, ImportPlanChecks: noop},
			)
		})
	}
}

func TestGeneratedConfigurationOfAShareRoundTrips(t *testing.T) {
	t.Parallel()
	for name, o := range shareImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inference(1))
			newCLI(t, r.block()+o.hcl).apply()
			before := r.snapshot()
			c := newProcesses(t, r.block()+fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", o.address, o.ids[0]))
			wantSaid(t, c.ok("plan", "-generate-config-out=generated.tf"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
			c.apply()
			c.wantNoChanges()
			r.wantUnchanged(before)
		})
	}
}

func TestMalformedImportIDsOfSharesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	r.editHost("gpu01", func(h *gpu.Host) {
		h.Shares = []gpu.HandedShare{{Name: "foreign", CDIDevice: gpu.CDIDevice("foreign")}}
	})
	c := newCLI(t, r.block()+shareOf("a", onGPU01))
	for id, says := range map[string][]string{
		"a": {"Invalid import id", "hgx01/team-a"}, "gpu01/": {"Invalid import id"}, "gpu09/a": {"Unknown host", "gpu09"},
		"gpu01/a": {"Share does not exist", `"a"`}, "gpu01/foreign": {"Share does not exist", "no record"},
	} {
		wantSaid(t, c.fails("import", shareA, id), says...)
	}
}
