package rules_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// A host whose GPUs or pools cannot be read is spoken of by rule readable: what a config has
// there is not known, and nothing is said of it.
func TestAConfigOnAHostThatCannotBeReadIsNotSaidToBeMissing(t *testing.T) {
	for name, unknown := range map[string]gpu.Unknown{
		"no GPU":  {Part: gpu.PartGPUs, Why: "Msvm_PartitionableGpu (0x80041001)"},
		"a GPU":   {Part: gpu.PartGPUs, GPU: gpu0, Why: "its query (0x80041003)"},
		"no pool": {Part: gpu.PartPools, Why: "Msvm_ResourcePool (0x80041001)"},
	} {
		for _, clustered := range []bool{false, true} {
			for _, pin := range []string{"", gpu0} {
				h := host("hv01", vm("a", gpu.VMOff))
				h.VMs[0].Clustered, h.GPUs, h.Unknown = clustered, nil, []gpu.Unknown{unknown}
				w := world(h)
				put(&w, "c", config("vdi", 4, "hv01"))
				a := partition("a", "hv01")
				a.Assignment.Partition.Config, a.Assignment.Partition.PinnedGPU = "vdi", pin
				if found := of("partition-of-config", rules.Check(w, create("t", a), nil)); len(found) != 0 {
					t.Errorf("%s, clustered %t, pin %q: got %+v", name, clustered, pin, found)
				}
			}
		}
	}
}
