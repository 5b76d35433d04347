package share_test

import (
	"fmt"
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

func TestAccShare_AShareOfAnotherOwnerIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	other := rig.NewCLI(t, r.BlockOf("other")+rig.ShareOf("a", rig.OnGPU01, `gpu_ids = ["`+rig.ShareCard(1, 0)+`"]`))
	other.Apply()
	before := r.Snapshot()
	c := rig.NewCLI(t, r.Block()+rig.ShareOf("a", rig.OnGPU01))
	rig.WantSaid(t, c.Fails("plan"), `the Terraform state "other"`, "Rule: not-our-claim")
	rig.WantSaid(t, c.Fails("import", shareA, "gpu01/a"), "Share belongs to another owner", `"other"`, `"test"`)
	r.WantUnchanged(before)
	// What it has is taken, whoever has it.
	c.Write(r.Block() + rig.ShareOf("b", rig.OnGPU01, `gpu_ids = ["`+rig.ShareCard(1, 0)+`"]`))
	rig.WantSaid(t, c.Fails("plan"), `is taken by share "a"`, "Rule: share-placement")
	c.Write(r.Block() + rig.ShareOf("b", rig.OnGPU01))
	c.Apply()
	if got := r.PlacedOn("gpu01", "b"); !slices.Equal(got, []string{rig.ShareCard(1, 1)}) {
		t.Errorf("share b is on %v", got)
	}
}

// A share whose for_each key changes is taken over where it is, with all that runs in it.
func TestAccShare_ARenamedKeyTakesTheShareOver(t *testing.T) {
	t.Parallel()
	hosts := []string{"gpu01", "gpu02"}
	for name, test := range map[string]struct {
		config, place string
		args          []string
	}{
		"on a host, one at a time": {rig.MPSOn01, rig.OnGPU01 + "\n  " + rig.OfMPS, []string{"-parallelism=1"}},
		"on a host, in parallel":   {rig.MPSOn01, rig.OnGPU01 + "\n  " + rig.OfMPS, nil},
		"from a pool, one at a time": {
			rig.SharedConfig("mps", rig.ByMPS, hosts...) + rig.MLPool(hosts), rig.FromPool, []string{"-parallelism=1"},
		},
		"from a pool, in parallel": {rig.SharedConfig("mps", rig.ByMPS, hosts...) + rig.MLPool(hosts), rig.FromPool, nil},
		"create before destroy":    {rig.MPSOn01, rig.OnGPU01 + "\n  " + rig.OfMPS + "\n  lifecycle { create_before_destroy = true }", nil},
		"create before destroy, pool": {
			rig.SharedConfig("mps", rig.ByMPS, hosts...) + rig.MLPool(hosts), rig.FromPool + "\n  lifecycle { create_before_destroy = true }", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Inference(2))
			config := func(key string) string {
				return r.Block() + test.config +
					fmt.Sprintf("resource \"gpu_share\" \"team\" {\n  for_each = { %s = \"a\", other = \"b\" }\n  name = each.value\n  memory = { "+
						"limit_mib = 4096 }\n  %s\n}\n", key, test.place)
			}
			c := rig.NewCLI(t, config("old"))
			c.Apply()
			r.WantShares("gpu01", "a", "b")
			c.Write(config("new"))
			rig.WantSaid(t, c.Apply(test.args...), "1 added, 0 changed, 1 destroyed")
			r.WantShares("gpu01", "a", "b")
			c.WantNoChanges()
			c.Destroy()
			r.WantShares("gpu01")
			r.WantShares("gpu02")
		})
	}
}

// A config of another kind is another config, and its shares are other shares: they go
// before it and come after it.
func TestAccShare_AnotherKindOfConfigReplacesItsShares(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	config := func(kind string) string {
		return r.Block() + rig.SharedConfig("mps", kind, "gpu01") + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, `memory = { limit_mib = 4096 }`)
	}
	r.Steps(
		resource.TestStep{Config: config(rig.ByMPS)},
		resource.TestStep{
			Config: config(rig.ByTurns),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("gpu_partition_config.mps", plancheck.ResourceActionDestroyBeforeCreate),
				plancheck.ExpectResourceAction(shareA, plancheck.ResourceActionDestroyBeforeCreate),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(shareA, rig.Jsonpath("mode"), knownvalue.StringExact("time_slicing")),
			},
			Check: rig.Then(func() { r.WantShares("gpu01", "a") }),
		},
	)
}

func TestAccShare_AMovedShareChangesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.ShareOf("a", rig.OnGPU01), Check: rig.Then(func() { r.Fail("gpu01", simulated.OpWriteShare, "", 0, 0) }),
		},
		resource.TestStep{
			Config: r.Block() + replaceName(rig.ShareOf("b", rig.OnGPU01), "a") +
				"moved {\n  from = gpu_share.a\n  to   = gpu_share.b\n}\n",
			ConfigPlanChecks: rig.Planned("gpu_share.b", plancheck.ResourceActionNoop), Check: rig.Then(func() { r.ClearFaults("gpu01") }),
		},
	)
}

// Which shares can be imported, and how they are declared.
func shareImports() map[string]rig.Imported {
	return map[string]rig.Imported{
		"on a host": {
			Address: shareA, Ids: []string{"gpu01/a"},
			HCL: rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half, `active_thread_percentage = 25`, `client_priority = "normal"`),
		},
		"pinned": {
			Address: shareA, Ids: []string{"gpu01/a"},
			HCL: rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, `gpu_ids = ["`+rig.ShareCard(1, 0)+`", "`+rig.ShareCard(1, 1)+`"]`,
				`memory = { request_mib = 1024, limit_mib = 2048 }`),
		},
		"from a pool": {
			Address: shareA, Ids: []string{"gpu01/a"},
			HCL: rig.MPSOn01 + rig.MLPool([]string{"gpu01"}, `quotas = { team-a = { shares = 4 } }`) + rig.ShareOf("a", rig.FromPool, rig.TeamA),
		},
	}
}

func TestAccShare_ImportOfAShareIsTheSameAgain(t *testing.T) {
	t.Parallel()
	for name, o := range shareImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Inference(1))
			noop := resource.ImportPlanChecks{
				PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(o.Address, plancheck.ResourceActionNoop)},
			}
			r.Steps(
				resource.TestStep{Config: r.Block() + o.HCL},
				resource.TestStep{
					ResourceName: o.Address, ImportState: true, ImportStateId: o.Ids[0], ImportStateVerify: true,
					ImportStateKind:         resource.ImportCommandWithID,
					ImportStateVerifyIgnore: []string{"timeouts"}, ImportStateVerifyIdentifierAttribute: "cdi_device",
				},
				resource.TestStep{
					Config: r.Block() + o.HCL, ResourceName: o.Address, ImportState: true, ImportStateId: o.Ids[0],
					ImportStateKind: resource.ImportBlockWithID, ImportPlanChecks: noop,
				},
			)
			r.Identities(
				resource.TestStep{Config: r.Block() + o.HCL},
				resource.TestStep{
					Config: r.Block() + o.HCL, ResourceName: o.Address, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity,
					ImportPlanChecks: noop,
				},
			)
		})
	}
}

func TestAccShare_GeneratedConfigurationOfAShareRoundTrips(t *testing.T) {
	t.Parallel()
	for name, o := range shareImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Inference(1))
			rig.NewCLI(t, r.Block()+o.HCL).Apply()
			before := r.Snapshot()
			c := rig.NewProcesses(t, r.Block()+fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", o.Address, o.Ids[0]))
			rig.WantSaid(t, c.Generate("generated.tf"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
			c.Apply()
			c.WantNoChanges()
			r.WantUnchanged(before)
		})
	}
}

func TestAccShare_MalformedImportIDsOfSharesAreRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	r.EditHost("gpu01", func(h *gpu.Host) {
		h.Shares = []gpu.HandedShare{{Name: "foreign", CDIDevice: gpu.CDIDevice("foreign")}}
	})
	c := rig.NewCLI(t, r.Block()+rig.ShareOf("a", rig.OnGPU01))
	for id, says := range map[string][]string{
		"a": {"Invalid import id", "hgx01/team-a"}, "gpu01/": {"Invalid import id"}, "gpu09/a": {"Unknown host", "gpu09"},
		"gpu01/a": {"Share does not exist", `"a"`}, "gpu01/foreign": {"Share does not exist", "no record"},
	} {
		rig.WantSaid(t, c.Fails("import", shareA, id), says...)
	}
}
