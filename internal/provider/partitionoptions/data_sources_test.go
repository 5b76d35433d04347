package partitionoptions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestAccPartitionOptions_PartitionOptionsListEachValidCountWithItsMemory(t *testing.T) {
	t.Parallel()
	s := rig.Standalone(rig.Node("hv01"))
	small := rig.A2("PCIROOT(C0)#PCI(0300)#PCI(0000)")
	small.Partitionable.ValidCounts = []int{8, 4, 2}
	s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, small, rig.Console())
	r := rig.New(t, s)
	r.Must(r.Fleet.SetCountOutside(t.Context(), "hv01", rig.GPU0, 4))
	option := func(count, mib int64, estimated bool) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{
			"partition_count": knownvalue.Int64Exact(count), "partition_vram_mib": knownvalue.Int64Exact(mib),
			"estimated": knownvalue.Bool(estimated),
		})
	}
	numbers := func(n ...int64) knownvalue.Check {
		var out []knownvalue.Check
		for _, v := range n {
			out = append(out, knownvalue.Int64Exact(v))
		}
		return knownvalue.ListExact(out)
	}
	const all, one = "data.gpu_partition_options.all", "data.gpu_partition_options.one"
	r.Steps(
		resource.TestStep{
			Config: r.Block() + fmt.Sprintf(`
data "gpu_partition_options" "all" {
  host = "hv01"
}
data "gpu_partition_options" "one" {
  host   = "hv01"
  gpu_id = %q
}
# The values are known in the plan.
resource "terraform_data" "largest" {
  count = max(data.gpu_partition_options.all.common_partition_counts...)
}
`, strings.ToLower(rig.GPU0)),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("terraform_data.largest[7]", plancheck.ResourceActionCreate),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(all, rig.Jsonpath("common_partition_counts"), numbers(2, 4, 8)),
				statecheck.ExpectKnownValue(all, rig.Jsonpath("gpus"), knownvalue.MapSizeExact(3)),
				statecheck.ExpectKnownValue(all, rig.Jsonpath("gpus", rig.GPU0, "partition_count"), knownvalue.Int64Exact(4)),
				statecheck.ExpectKnownValue(all, rig.Jsonpath("gpus", rig.GPU0, "options"), knownvalue.ListExact([]knownvalue.Check{
					option(1, 15168, true), option(2, 7584, true), option(4, 3792, false), option(8, 1896, true), option(16, 948, true),
				})),
				statecheck.ExpectKnownValue(one, rig.Jsonpath("common_partition_counts"), numbers(1, 2, 4, 8, 16)),
				statecheck.ExpectKnownValue(one, rig.Jsonpath("gpus"), knownvalue.MapSizeExact(1)),
			},
		},
		resource.TestStep{
			Config:      r.Block() + "data \"gpu_partition_options\" \"x\" {\n  host = \"hv09\"\n}\n",
			ExpectError: rig.SaysAt("host", "Unknown host", "hv09", "hv01"),
		},
		resource.TestStep{
			Config:      r.Block() + "data \"gpu_partition_options\" \"x\" {\n  host = \"hv01\"\n  gpu_id = \"" + rig.Console().ID + "\"\n}\n",
			ExpectError: rig.Says("GPU cannot be partitioned", "gpu_id", rig.Console().ID),
		},
		resource.TestStep{
			PreConfig:   func() { r.Silent(true, "hv01") },
			Config:      r.Block(`on_unreachable = "keep"`) + "data \"gpu_partition_options\" \"x\" {\n  host = \"hv01\"\n}\n",
			ExpectError: rig.Says("Host does not answer", "Host: hv01", "are not known without it"),
		},
	)
}
