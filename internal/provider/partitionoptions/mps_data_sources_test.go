package partitionoptions_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestAccPartitionOptions_PartitionOptionsTellMPSClients(t *testing.T) {
	t.Parallel()
	s := rig.GPUHost(2)
	s.Hosts[0].GPUs[1].ComputeCapability = "6.1"
	bare := rig.GPUHost(1).Hosts[0]
	bare.Name, bare.MPS = "bare", nil
	s.Hosts = append(s.Hosts, bare)
	r := rig.New(t, s)
	const data = "data.gpu_partition_options."
	r.Steps(resource.TestStep{
		Config: r.Block() + "data \"gpu_partition_options\" \"all\" {\n  host = \"gpu01\"\n}\ndata \"gpu_partition_options\" \"bare\" {\n  " +
			"host = \"bare\"\n}\n",
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(data+"all", rig.Jsonpath("gpus", rig.SharedCard(0), "mps_max_clients"), knownvalue.Int64Exact(48)),
			statecheck.ExpectKnownValue(data+"all", rig.Jsonpath("gpus", rig.SharedCard(1), "mps_max_clients"), knownvalue.Int64Exact(16)),
			statecheck.ExpectKnownValue(data+"bare", rig.Jsonpath("gpus", rig.SharedCard(0), "mps_max_clients"), knownvalue.Null()),
		},
	})
}
