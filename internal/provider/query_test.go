package provider_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/querycheck"
	"github.com/hashicorp/terraform-plugin-testing/tfversion"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// madeByOthers is a fleet of every kind whose objects nobody has a record of, but for avd-04,
// which another state has: two nodes with partitions, a pool and VMs of both, GPUs of three MIG
// layouts beside one without, and vGPUs.
func madeByOthers(t *testing.T) *rig.Rig {
	t.Helper()
	s := rig.TwoNodes()
	s.Hosts = slices.Concat(s.Hosts, rig.HGX(rig.H100, 5).Hosts, rig.KVM(rig.L40s(0), rig.L40s(1)).Hosts)
	r := rig.New(t, s)
	r.AddForeignAdapter("avd-01")
	for i, p := range []gpu.MIGPlacement{1: rig.At("3g.40gb", 0), 2: rig.At("3g.40gb", 4), 3: rig.At("1g.10gb", 4), 4: {}} {
		if i == 0 {
			continue
		}
		r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(i), true))
		if p.Profile != "" {
			r.CreateOutside(i, p)
		}
	}
	kvm := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.TwoDesks, rig.OnCards(1)))
	kvm.Apply()
	r.EditHost("kvm01", func(h *gpu.Host) { h.Claims = nil })
	r.SetPool("hv01", "render", rig.GPU1)
	r.SetPool("hv02", "render", rig.GPU1)
	r.Draw("avd-03", "render")
	rig.NewCLI(t, r.BlockOf("other")+rig.Assignment("avd-04", rig.AnyPartition, rig.MayStop)).Apply()
	return r
}

// listed are lists of everything that others made.
const listed = `
list "gpu_partition_config" "all" {
  provider = gpu
  config { unmanaged = true }
}
list "gpu_pool" "all" { provider = gpu }
list "gpu_vm_assignment" "all" { provider = gpu }
list "gpu_share" "all" { provider = gpu }
`

// needsQuery skips a test where the CLI has no `terraform query`.
func needsQuery(t *testing.T, c *rig.CLI) {
	t.Helper()
	if _, code := c.Run("query", "-help"); code != 0 {
		version, _, _ := strings.Cut(c.Ok("version"), "\n")
		t.Skipf("%s has no query: make test-query", version)
	}
}

// What a query generates imports everything once, touches nothing, and is the same again.
func TestQueryGeneratesWhatAdoptsTheFleet(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, "")
	needsQuery(t, c)
	r := madeByOthers(t)
	before := r.Snapshot()
	c.Write(r.Block())
	rig.Write(t, filepath.Join(c.Dir, "all.tfquery.hcl"), listed)
	rig.WantSaid(t, c.Ok("query", "-generate-config-out=adopted.tf"), "gpu_vm_assignment.all", "Some VM assignments are left out",
		`it is claimed by owner "other"`)
	rig.WantSaid(t, c.Ok("plan"), "Plan: 9 to import, 0 to add, 9 to change, 0 to destroy")
	c.Apply()
	c.WantNoChanges()

	gpus := map[string]int{}
	after := r.Snapshot()
	for _, h := range after.Hosts {
		for _, cl := range h.Claims {
			for _, id := range cl.GPUs {
				gpus[h.Name+" "+id]++
			}
		}
	}
	rig.SameHardware(t, before, after)
	want := map[string]int{"kvm01 " + rig.VGPUCard(1): 1}
	for _, h := range rig.Both {
		want[h+" "+rig.GPU0], want[h+" "+rig.GPU1] = 1, 1
	}
	for i := 1; i < 5; i++ {
		want["hgx01 "+rig.MIGGPU(i)] = 1
	}
	if !maps.Equal(gpus, want) {
		t.Errorf("claims cover %v, want %v", gpus, want)
	}

	// What this state has claimed is listed with its settings, for when the state is lost.
	again := rig.NewProcesses(t, r.Block())
	rig.Write(t, filepath.Join(again.Dir, "all.tfquery.hcl"), `
list "gpu_partition_config" "all" { provider = gpu }
list "gpu_pool" "all" { provider = gpu }
list "gpu_vm_assignment" "all" { provider = gpu }
`)
	again.Ok("query", "-generate-config-out=adopted.tf")
	rig.WantSaid(t, again.Ok("plan"), "Plan: 9 to import, 0 to add, 0 to change, 0 to destroy")
}

func TestListsAreNarrowed(t *testing.T) {
	t.Parallel()
	c := rig.NewProcesses(t, "")
	needsQuery(t, c)
	r := madeByOthers(t)
	of := func(typ, config string) string {
		return fmt.Sprintf("list %q \"x\" {\n  provider = gpu\n  config {\n    %s\n  }\n}\n", typ, config)
	}
	step := func(typ, config string, checks ...querycheck.QueryResultCheck) []resource.TestStep {
		return []resource.TestStep{{Config: r.Block(), PlanOnly: true}, {Query: true, Config: of(typ, config), QueryResultChecks: checks}}
	}
	const config, vm = "gpu_partition_config", "gpu_vm_assignment"
	length := func(typ string, n int) querycheck.QueryResultCheck { return querycheck.ExpectLength(typ+".x", n) }
	ids := func(n ...int) knownvalue.Check {
		var out []knownvalue.Check
		for _, i := range n {
			out = append(out, knownvalue.StringExact(rig.MIGGPU(i)))
		}
		return knownvalue.ListExact(out)
	}
	var steps []resource.TestStep
	for _, s := range [][]resource.TestStep{
		step(config, `host = "hgx01"`, length(config, 3), querycheck.ExpectIdentity(config+".x", map[string]knownvalue.Check{
			"id": knownvalue.NotNull(), "host": knownvalue.StringExact("hgx01"), "kind": knownvalue.StringExact("mig"), "gpu_ids": ids(1, 2),
		})),
		step(config, `cluster = "azl"`, length(config, 2)),
		step(config, "host = \"hv01\"\n    kind = \"mig\"",
			querycheck.ExpectNoIdentity(config+".x", map[string]knownvalue.Check{"host": knownvalue.StringExact("hv01")})),
		step(vm, "cluster = \"azl\"\n    kind = \"pool\"", length(vm, 1),
			querycheck.ExpectIdentity(vm+".x", map[string]knownvalue.Check{"vm_id": knownvalue.StringExact(rig.VMID(3))})),
		step("gpu_pool", `host = "hv02"`, length("gpu_pool", 1)),
	} {
		steps = append(steps, s...)
	}
	resource.UnitTest(t, resource.TestCase{
		TerraformVersionChecks:   []tfversion.TerraformVersionCheck{tfversion.SkipBelow(tfversion.Version1_14_0)},
		ProtoV6ProviderFactories: r.Factories(), Steps: steps,
	})
	r.Silent(true, "kvm01")
	c.Write(r.Block())
	for text, says := range map[string]string{
		of(config, `host = "kvm01"`):                         "Host does not answer",
		of(config, `host = "hv09"`):                          "Unknown host",
		of(config, `cluster = "nowhere"`):                    "Host does not answer", // it may be kvm01's
		of(config, "host = \"hv01\"\n    cluster = \"azl\""): "Invalid Attribute Combination",
		of(config, `kind = "cuda"`):                          "Invalid Attribute Value Match",
	} {
		rig.Write(t, filepath.Join(c.Dir, "x.tfquery.hcl"), text)
		rig.WantSaid(t, c.Fails("query"), says)
	}
}
