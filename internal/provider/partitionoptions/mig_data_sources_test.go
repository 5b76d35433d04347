package partitionoptions_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestAccPartitionOptions_PartitionOptionsListMIGProfiles(t *testing.T) {
	t.Parallel()
	s := rig.HGX(rig.H100, 1)
	s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, rig.MIGCard(1, "A30"))
	s.Hosts[0].GPUs[0].MIG.Profiles = nil // as some drivers list them while the mode is off
	r := rig.New(t, s)
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	const all, one = "data.gpu_partition_options.all", "data.gpu_partition_options.one"
	r.Steps(resource.TestStep{
		Config: r.Block() + `
data "gpu_partition_options" "all" {
  host = "hgx01"
}
data "gpu_partition_options" "one" {
  host   = "hgx01"
  gpu_id = "` + rig.MIGGPU(0) + `"
}
`,
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(all, rig.Jsonpath("gpus"), knownvalue.MapSizeExact(2)),
			statecheck.ExpectKnownValue(all, rig.Jsonpath("common_mig_profiles"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue(all, rig.Jsonpath("common_partition_counts"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue(one, rig.Jsonpath("common_mig_profiles"), knownvalue.ListExact([]knownvalue.Check{
				text("1g.10gb"), text("1g.10gb+me"), text("1g.20gb"), text("2g.20gb"), text("3g.40gb"), text("4g.40gb"), text("7g.80gb"),
			})),
			statecheck.ExpectKnownValue(one, rig.Jsonpath("gpus", rig.MIGGPU(0), "mig_enabled"), knownvalue.Bool(false)),
			statecheck.ExpectKnownValue(one, rig.Jsonpath("gpus", rig.MIGGPU(0), "partition_count"), knownvalue.Null()),
			statecheck.ExpectKnownValue(one, rig.Jsonpath("gpus", rig.MIGGPU(0), "mig_profiles", 4),
				knownvalue.ObjectExact(map[string]knownvalue.Check{
					"profile": text("3g.40gb"), "max": number(2), "memory_mib": number(rig.H100Memory(t, "3g.40gb")),
					"compute_slices": number(3), "memory_slices": number(4),
					"starts": knownvalue.ListExact([]knownvalue.Check{number(0), number(4)}),
				})),
		},
	})
}
