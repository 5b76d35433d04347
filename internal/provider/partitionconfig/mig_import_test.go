package partitionconfig_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// migImports are layouts of which each comes back from an import as it was declared.
func migImports() map[string]string {
	return map[string]string{
		"profiles":     rig.MIGOf("ml", rig.Balanced),
		"placements":   rig.MIGOf("ml", rig.Written),
		"no instances": rig.MIGOf("ml", "profiles = {}"),
		"some GPUs":    rig.MIGOf("ml", rig.SevenSmall, rig.OnGPUs(1)),
	}
}

func TestImportOfAMIGConfigOfThisState(t *testing.T) {
	t.Parallel()
	for name, hcl := range migImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.HGX(rig.H100, 2))
			steps := []resource.TestStep{{Config: r.Block() + hcl}}
			for _, id := range []string{"hgx01", "hgx01:mig", "ml@hgx01", "ml@hgx01:mig"} {
				steps = append(steps, resource.TestStep{
					ResourceName: rig.ML, ImportState: true, ImportStateId: id, ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
				})
			}
			r.Steps(append(steps, resource.TestStep{
				Config: r.Block() + hcl, ResourceName: rig.ML, ImportState: true, ImportStateId: "hgx01:mig", ImportStateKind: resource.ImportBlockWithID,
				ImportPlanChecks: resource.ImportPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(rig.ML, plancheck.ResourceActionNoop)}},
			})...)
		})
	}
}

func TestImportOfAMIGConfigByIdentity(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	config := r.Block() + rig.MIGOf("ml", rig.Written)
	r.Identities(
		resource.TestStep{Config: config},
		resource.TestStep{
			Config: config, ResourceName: rig.ML, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity,
			ImportPlanChecks: resource.ImportPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(rig.ML, plancheck.ResourceActionNoop)}},
		},
	)
}

func TestGeneratedMIGConfigurationRoundTrips(t *testing.T) {
	t.Parallel()
	for name, hcl := range migImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.HGX(rig.H100, 2))
			rig.NewCLI(t, r.Block()+hcl).Apply()
			before := r.Snapshot()
			c := rig.NewProcesses(t, r.Block()+"import {\n  to = "+rig.ML+"\n  id = \"hgx01:mig\"\n}\n")
			rig.WantSaid(t, c.Ok("plan", "-generate-config-out=generated.tf"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
			c.Apply()
			c.WantNoChanges()
			r.WantUnchanged(before)
		})
	}
}

// What others made is adopted: placements where all GPUs have the same, numbers where
// only these agree.
func TestMIGThatOthersMadeIsAdopted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		starts [2]int
		layout string
	}{
		"the same places": {[2]int{4, 4}, `placements = [{ profile = "3g.40gb", start = 4 }]`},
		"other places":    {[2]int{0, 4}, `profiles = { "3g.40gb" = 1 }`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.HGX(rig.H100, 2))
			for i, start := range test.starts {
				r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(i), true))
				r.CreateOutside(i, rig.At("3g.40gb", start))
			}
			before := r.Devices(0, 1)
			c := rig.NewCLI(t, r.Block()+fmt.Sprintf("import {\n  to = %s\n  id = \"ml@hgx01:mig\"\n}\n", rig.ML)+rig.MIGOf("ml", test.layout))
			rig.WantSaid(t, c.Ok("plan"), "Plan: 1 to import, 0 to add, 1 to change, 0 to destroy")
			c.Apply()
			r.WantClaims([]string{"hgx01"}, "partition_config ml")
			c.WantNoChanges()
			c.Destroy()
			if diff := cmp.Diff(before, r.Devices(0, 1)); diff != "" {
				t.Errorf("adopting changed the instances (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("on some GPUs", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.HGX(rig.H100, 3))
		r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(1), true))
		r.CreateOutside(1, rig.At("3g.40gb", 4))
		r.Runs(0, nil, "python")
		c := rig.NewProcesses(t, r.Block()+fmt.Sprintf("import {\n  to = %s\n  id = \"ml@hgx01\"\n}\n", rig.ML))
		rig.WantSaid(t, c.Ok("plan", "-generate-config-out=generated.tf"), "Plan: 1 to import, 0 to add, 1 to change, 0 to destroy")
		c.Apply()
		c.WantNoChanges()
		r.WantLayout("off", 0, 2)
		r.WantLayout("3g.40gb@4", 1)
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.HGX(rig.H100, 1))
		c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Halves))
		rig.WantSaid(t, c.Fails("import", rig.ML, "hgx01"), "Nothing to import", "is in MIG mode")
		rig.WantSaid(t, c.Fails("import", rig.ML, "hgx01:gpu_p"), "Nothing to import", "can be partitioned")
	})
}
