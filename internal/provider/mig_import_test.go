package provider_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
)

// migImports are layouts of which each comes back from an import as it was declared.
func migImports() map[string]string {
	return map[string]string{
		"profiles":     migOf("ml", balanced),
		"placements":   migOf("ml", written),
		"no instances": migOf("ml", "profiles = {}"),
		"some GPUs":    migOf("ml", sevenSmall, onGPUs(1)),
	}
}

func TestImportOfAMIGConfigOfThisState(t *testing.T) {
	t.Parallel()
	for name, hcl := range migImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, hgx(h100, 2))
			steps := []resource.TestStep{{Config: r.block() + hcl}}
			for _, id := range []string{"hgx01", "hgx01:mig", "ml@hgx01", "ml@hgx01:mig"} {
				steps = append(steps, resource.TestStep{
					ResourceName: ml, ImportState: true, ImportStateId: id, ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
				})
			}
			r.steps(append(steps, resource.TestStep{
				Config: r.block() + hcl, ResourceName: ml, ImportState: true, ImportStateId: "hgx01:mig", ImportStateKind: resource.ImportBlockWithID,
				ImportPlanChecks: resource.ImportPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(ml, plancheck.ResourceActionNoop)}},
			})...)
		})
	}
}

func TestImportOfAMIGConfigByIdentity(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	config := r.block() + migOf("ml", written)
	r.identities(
		resource.TestStep{Config: config},
		resource.TestStep{
			Config: config, ResourceName: ml, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity,
			ImportPlanChecks: resource.ImportPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(ml, plancheck.ResourceActionNoop)}},
		},
	)
}

func TestGeneratedMIGConfigurationRoundTrips(t *testing.T) {
	t.Parallel()
	for name, hcl := range migImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, hgx(h100, 2))
			newCLI(t, r.block()+hcl).apply()
			before := r.snapshot()
			c := newProcesses(t, r.block()+"import {\n  to = "+ml+"\n  id = \"hgx01:mig\"\n}\n")
			wantSaid(t, c.ok("plan", "-generate-config-out=generated.tf"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
			c.apply()
			c.wantNoChanges()
			r.wantUnchanged(before)
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
			r := newRig(t, hgx(h100, 2))
			for i, start := range test.starts {
				r.must(r.fleet.SetMIGModeOutside(t.Context(), "hgx01", migGPU(i), true))
				r.createOutside(i, at("3g.40gb", start))
			}
			before := r.devices(0, 1)
			c := newCLI(t, r.block()+fmt.Sprintf("import {\n  to = %s\n  id = \"ml@hgx01:mig\"\n}\n", ml)+migOf("ml", test.layout))
			wantSaid(t, c.ok("plan"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
			c.apply()
			c.wantNoChanges()
			c.destroy()
			if diff := cmp.Diff(before, r.devices(0, 1)); diff != "" {
				t.Errorf("adopting changed the instances (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("on some GPUs", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, hgx(h100, 3))
		r.must(r.fleet.SetMIGModeOutside(t.Context(), "hgx01", migGPU(1), true))
		r.createOutside(1, at("3g.40gb", 4))
		r.runs(0, nil, "python")
		c := newProcesses(t, r.block()+fmt.Sprintf("import {\n  to = %s\n  id = \"ml@hgx01\"\n}\n", ml))
		wantSaid(t, c.ok("plan", "-generate-config-out=generated.tf"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
		c.apply()
		c.wantNoChanges()
		r.wantLayout("off", 0, 2)
		r.wantLayout("3g.40gb@4", 1)
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, hgx(h100, 1))
		c := newCLI(t, r.block()+migOf("ml", halves))
		wantSaid(t, c.fails("import", ml, "hgx01"), "Nothing to import", "is in MIG mode")
		wantSaid(t, c.fails("import", ml, "hgx01:gpu_p"), "Nothing to import", "can be partitioned")
	})
}
