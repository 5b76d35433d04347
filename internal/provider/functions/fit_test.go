package functions_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

const fitHosts = `
locals {
  hosts = [for n in ["hgx01", "hgx02"] : {
    name = n, gpus = [for i in [0, 1] : { id = "gpu${i}", model = "H100 80GB HBM3" }]
  }]
}
`

func TestFit(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	r.Steps(resource.TestStep{
		Config: fitHosts + `
output "mixed" {
  value = provider::gpu::fit(local.hosts, [
    { name = "large", count = 1, kind = "mig", profile = "3g.40gb" },
    { name = "small", count = 3, kind = "mig", profile = "1g.10gb" },
    { name = "notebooks", count = 2, kind = "share", memory_mib = 20000, threads = 12.5 },
  ], {})
}
output "again" {
  value = provider::gpu::fit(local.hosts, [{ name = "a", count = 1, kind = "mig", profile = "3g.40gb" }], {
    keep = provider::gpu::fit(local.hosts, [{ name = "b", count = 2, kind = "mig", profile = "3g.40gb" }], {}).layouts
  }).changes
}
output "fleet" {
  value = provider::gpu::fit(file("` + r.Fleet.Path() + `"), [{ name = "vdi", count = 9, kind = "gpu_p", vram_mib = 900 }], {
    spare_hosts = 1
  }).fits
}
output "desks" {
  value = provider::gpu::fit([
    { name = "hv01", cluster = "vdi", gpus = [{ id = "a", model = "A2" }] },
    { name = "hv02", cluster = "vdi", gpus = [{ id = "a", model = "A2" }] },
  ], [{ name = "vdi", count = 5, kind = "gpu_p", vram_mib = 3500 }], { spare_hosts = 1 })
}
`,
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownOutputValue("mixed", knownvalue.ObjectPartial(map[string]knownvalue.Check{
				"fits": knownvalue.Bool(true), "reason": text(""), "gpus": number(2), "gpus_at_least": number(2), "changes": number(2),
				"missing": knownvalue.MapExact(map[string]knownvalue.Check{}),
				"layouts": knownvalue.MapExact(map[string]knownvalue.Check{"hgx01": knownvalue.MapExact(map[string]knownvalue.Check{
					"gpu0": knownvalue.ObjectExact(map[string]knownvalue.Check{
						"kind": text("mig"), "gpu_p": knownvalue.Null(), "mps": knownvalue.Null(),
						"mig": knownvalue.ObjectExact(map[string]knownvalue.Check{"profiles": knownvalue.MapExact(map[string]knownvalue.Check{
							"3g.40gb": number(1), "1g.10gb": number(3),
						})}),
					}),
					"gpu1": knownvalue.ObjectPartial(map[string]knownvalue.Check{"kind": text("mps")}),
				})}),
				"configs": knownvalue.MapPartial(map[string]knownvalue.Check{
					"h100-80gb-hbm3-shared-by-mps": knownvalue.ObjectPartial(map[string]knownvalue.Check{
						"gpu_ids": knownvalue.MapExact(map[string]knownvalue.Check{"hgx01": textList("gpu1")}),
					}),
				}),
				"placements": knownvalue.MapPartial(map[string]knownvalue.Check{
					"large": knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
						"host": text("hgx01"), "gpu_id": text("gpu0"), "unit": text("3g.40gb@4"),
					})}),
					"notebooks": knownvalue.ListSizeExact(2),
				}),
				"unused":    knownvalue.ListSizeExact(2),
				"remaining": knownvalue.MapPartial(map[string]knownvalue.Check{"1g.10gb": number(1), "share": number(2), "gpu": number(2)}),
			})),
			statecheck.ExpectKnownOutputValue("again", number(0)),
			statecheck.ExpectKnownOutputValue("fleet", knownvalue.Bool(true)),
			statecheck.ExpectKnownOutputValue("desks", knownvalue.ObjectPartial(map[string]knownvalue.Check{
				"fits":    knownvalue.Bool(false),
				"missing": knownvalue.MapExact(map[string]knownvalue.Check{"vdi": number(1)}),
				"reason": text("Missing: 1 more partition of 3500 MiB, or one more NVIDIA A2. What binds: the number of partitions of 3500 MiB or " +
					"more that GPUs have at most, where all of a cluster have one count. " +
					"With 1 host lost, the layouts of the others must hold everything."),
			})),
		},
	})
}

// What is wrong is said by the names that its writer used.
func TestFitRefuses(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	var steps []resource.TestStep
	for call, says := range map[string]string{
		`fit([], [{ name = "a", count = 1, kind = "gpu" }], {})`:                `There are no hosts`,
		`fit("{}", [{ name = "a", count = 1, kind = "gpu" }], {})`:              `hosts: the format is "", but "gpu-fleet/v1" is wanted`,
		`fit(local.hosts, [], {})`:                                              `There are no demands`,
		`fit(local.hosts, [{ name = "a", count = 1, kind = "gpup" }], {})`:      `demand "a": kind is "gpup". Did you mean "gpu_p"`,
		`fit(local.hosts, [{ name = "a", count = 1.5, kind = "gpu" }], {})`:     `demands: entry 1: count: 1.5 is not a whole number`,
		`fit(local.hosts, [{ name = "a", count = -1, kind = "gpu" }], {})`:      `demand "a": count is -1; it must be from 1 to 100000`,
		`fit(local.hosts, [{ name = "a", count = 1000000, kind = "gpu" }], {})`: `demand "a": count is 1000000; it must be from 1 to 100000`,
		`fit(local.hosts, [{ name = "a", number = 1, kind = "gpu" }], {})`:      `there is no attribute "number", but count, gpus, kind`,
		`fit(local.hosts, [{ name = "a", count = 1, kind = "mig", profile = "3g.20gb" }], {})`: `no GPU of the hosts has the MIG ` +
			`profile "3g.20gb"`,
		`fit([{ name = "h", gpus = [{ id = "g", model = "H100" }] }], [{ name = "a", count = 1, kind = "gpu" }], {})`: `the catalog has no ` +
			`GPU model "H100". Did you mean`,
		`fit(local.hosts, [{ name = "a", count = 1, kind = "gpu" }], { spare = 1 })`: `options: there is no attribute "spare", but keep, ` +
			`spare_hosts`,
		`fit(local.hosts, [{ name = "a", count = 1, kind = "gpu" }], { keep = { hgx01 = { gpu0 = { kind = "mig" } } } })`: `"gpu0": kind is ` +
			`"mig"; it must be gpu_p, mig or mps with the block of that name`,
	} {
		steps = append(steps, resource.TestStep{
			Config: fitHosts + `output "x" { value = provider::gpu::` + call + ` }`, ExpectError: regexp.MustCompile(
				`(?i)` + strings.ReplaceAll(regexp.QuoteMeta(says), " ", `\s+`)),
		})
	}
	r.Steps(steps...)
}
