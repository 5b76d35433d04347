package partitionconfig_test

import (
	"fmt"
	"os"
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
		"no MIG mode":  rig.MIGOf("ml", "enabled = false"),
		"some GPUs":    rig.MIGOf("ml", rig.SevenSmall, rig.OnGPUs(1)),
	}
}

func TestAccPartitionConfig_ImportOfAMIGConfigOfThisState(t *testing.T) {
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
				Config: r.Block() + hcl, ResourceName: rig.ML, ImportState: true, ImportStateId: "hgx01:mig",
				ImportStateKind: resource.ImportBlockWithID,
				ImportPlanChecks: resource.ImportPlanChecks{
					PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(rig.ML, plancheck.ResourceActionNoop)},
				},
			})...)
		})
	}
}

func TestAccPartitionConfig_ImportOfAMIGConfigByIdentity(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	config := r.Block() + rig.MIGOf("ml", rig.Written)
	r.Identities(
		resource.TestStep{Config: config},
		resource.TestStep{
			Config: config, ResourceName: rig.ML, ImportState: true, ImportStateKind: resource.ImportBlockWithResourceIdentity,
			ImportPlanChecks: resource.ImportPlanChecks{
				PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(rig.ML, plancheck.ResourceActionNoop)},
			},
		},
	)
}

func TestAccPartitionConfig_GeneratedMIGConfigurationRoundTrips(t *testing.T) {
	t.Parallel()
	for name, hcl := range migImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.HGX(rig.H100, 2))
			rig.NewCLI(t, r.Block()+hcl).Apply()
			before := r.Snapshot()
			c := rig.NewProcesses(t, r.Block()+"import {\n  to = "+rig.ML+"\n  id = \"hgx01:mig\"\n}\n")
			rig.WantSaid(t, c.Generate("generated.tf"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
			c.Apply()
			c.WantNoChanges()
			r.WantUnchanged(before)
		})
	}
}

// What others made is adopted: placements where all GPUs have the same, numbers where
// only these agree.
func TestAccPartitionConfig_MIGThatOthersMadeIsAdopted(t *testing.T) {
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
		rig.WantSaid(t, c.Generate("generated.tf"), "Plan: 1 to import, 0 to add, 1 to change, 0 to destroy")
		c.Apply()
		c.WantNoChanges()
		r.WantLayout("off", 0, 2)
		r.WantLayout("3g.40gb@4", 1)
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.HGX(rig.H100, 1))
		c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Halves))
		rig.WantSaid(t, c.Fails("import", rig.ML, "hgx01"), "Nothing to import", "has partitions, MIG mode or vGPUs")
		rig.WantSaid(t, c.Fails("import", rig.ML, "hgx01:gpu_p"), "Nothing to import", "can be partitioned")
	})
}

// A host whose GPUs differ is imported layout by layout: an import that means several is told
// their ids, and each of these has a config that touches nothing.
func TestAccPartitionConfig_EachLayoutOfAHostIsImported(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 4))
	for i, start := range []int{0, 4, 0} {
		r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(i), true))
		r.CreateOutside(i, rig.At([]string{"3g.40gb", "3g.40gb", "1g.10gb"}[i], start))
	}
	before := r.Snapshot()
	halves, small := "hgx01:mig@"+rig.MIGGPU(0)+","+rig.MIGGPU(1), "hgx01:mig@"+rig.MIGGPU(2)
	imports := func(address, id string) string {
		return fmt.Sprintf("import {\n  to = gpu_partition_config.%s\n  id = %q\n}\n", address, id)
	}
	a, b := rig.MIGOf("a", `profiles = { "3g.40gb" = 1 }`, rig.OnGPUs(0, 1)),
		rig.MIGOf("b", `placements = [{ profile = "1g.10gb", start = 0 }]`, rig.OnGPUs(2))
	c := rig.NewCLI(t, r.Block()+a+b)
	for _, id := range []string{"hgx01", "hgx01:mig", "ml@hgx01", "hgx01:mig@" + rig.MIGGPU(0) + "," + rig.MIGGPU(2)} {
		rig.WantSaid(t, c.Fails("import", "gpu_partition_config.a", id), "Several layouts to import",
			"1 × 3g.40gb (mig): "+halves, "1 × 1g.10gb (mig): "+small)
	}
	for id, says := range map[string][]string{
		"hgx01:mig@GPU-1":                                  {"Unknown GPU", `"GPU-1"`, rig.MIGGPU(0)},
		"hgx01:mig@":                                       {"Invalid import id"},
		"hgx01,hgx02:mig@" + rig.MIGGPU(0):                 {"Invalid import id"},
		"hgx01:mig@" + rig.MIGGPU(3):                       {"Nothing to import", "is in MIG mode"},
		"hgx01:mig@" + rig.MIGGPU(0) + "," + rig.MIGGPU(3): {"Nothing to import", rig.MIGGPU(3)},
		"hgx01:vgpu":                                       {"Nothing to import", "has vGPUs"},
	} {
		rig.WantSaid(t, c.Fails("import", "gpu_partition_config.a", id), says...)
	}
	r.WantUnchanged(before)

	c.Write(r.Block() + a + b + imports("a", "a@"+halves) + imports("b", "b@"+small))
	rig.WantSaid(t, c.Ok("plan"), "Plan: 2 to import, 0 to add, 2 to change, 0 to destroy")
	c.Apply()
	c.WantNoChanges()
	r.WantClaims([]string{"hgx01"}, "partition_config a", "partition_config b")
	after := r.Snapshot()
	after.Hosts[0].Claims = nil
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("adopting changed the host (-before +after):\n%s", diff)
	}

	// Of two configs each is named by its GPUs, and GPUs of both mean neither.
	again := rig.NewCLI(t, r.Block()+a+b)
	rig.WantSaid(t, again.Fails("import", "gpu_partition_config.a", "hgx01:mig"), "Several partition configs cover these hosts")
	rig.WantSaid(t, again.Fails("import", "gpu_partition_config.a", "hgx01:mig@"+rig.MIGGPU(0)+","+rig.MIGGPU(2)),
		"Several partition configs cover these hosts")
	rig.WantSaid(t, again.Fails("import", "gpu_partition_config.a", "hgx01:mig@"+rig.MIGGPU(0)+","+rig.MIGGPU(3)), "GPUs of two configs")
	again.Ok("import", "gpu_partition_config.b", small)
	again.Ok("import", "gpu_partition_config.a", halves)
	again.WantNoChanges()
}

// The identity of what nobody has a record of says where it is; it stays as it was when that is.
func TestAccPartitionConfig_WhatOthersMadeIsImportedByIdentity(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	for i := range 2 {
		r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(i), true))
	}
	r.CreateOutside(1, rig.At("3g.40gb", 4))
	config := r.Block() + rig.MIGOf("ml", `profiles = { "3g.40gb" = 1 }`, rig.OnGPUs(1))
	imports := func(identity string) string {
		return fmt.Sprintf("import {\n  to = %s\n  identity = { %s }\n}\n", rig.ML, identity)
	}
	c := rig.NewCLI(t, config)
	if os.Getenv("TF_ACC") != "" {
		t.Skip("the installed CLI may not import by identity; TestQueryGeneratesWhatAdoptsTheFleet does")
	}
	for identity, says := range map[string]string{
		`id = "ml"`:                           "No such partition config",
		`host = "hgx01"`:                      "Several layouts to import",
		`kind = "mig"`:                        "Invalid import id",
		`host = "hgx09", kind = "mig"`:        "Unknown host",
		`host = "hgx01", kind = "cuda"`:       "Invalid import id",
		`host = "hgx01", gpu_ids = ["GPU-1"]`: "Unknown GPU",
	} {
		c.Write(config + imports(identity))
		rig.WantSaid(t, c.Fails("plan"), says)
	}
	// As a query writes it: the id is what the import will have.
	c.Write(r.Block() +
		fmt.Sprintf("resource \"gpu_partition_config\" \"ml\" {\n  hosts = [\"hgx01\"]\n  %s\n  mig = { placements = [{ profile = \"3g.40gb\", "+
			"start = 4 }] }\n}\n", rig.OnGPUs(1)) +
		imports(fmt.Sprintf("id = \"mig-none\", host = \"hgx01\", kind = \"mig\", gpu_ids = [%q]", rig.MIGGPU(1))))
	rig.WantSaid(t, c.Ok("plan"), "Plan: 1 to import, 0 to add, 1 to change, 0 to destroy")
	c.Apply()
	c.WantNoChanges()
	r.WantLayout("3g.40gb@4", 1)
	c.Destroy()
}
