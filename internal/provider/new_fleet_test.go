package provider_test

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// On a fleet that gpu-agent fleet new writes, of any model, a first configuration applies, its
// second plan is empty, and it goes again.
func TestAFirstConfigurationOnANewFleetOfEveryModel(t *testing.T) {
	t.Parallel()
	for i, m := range catalog.All() {
		if testing.Short() && i%3 != 0 {
			continue
		}
		for _, p := range []gpu.Platform{gpu.HyperV, gpu.Linux} {
			spec := simulated.Spec{Platform: p, Hosts: []string{"lab01"}, Models: []string{m.Name}}
			layout, vm := "", ""
			switch {
			case p == gpu.HyperV && m.GPUP && len(m.PartitionCounts) > 1:
				spec.VMs = []string{"desk-01", "desk-02:off"}
				layout = fmt.Sprintf("gpu_p = { partition_count = %d }", m.PartitionCounts[1])
				vm = rig.AssignmentOf("desk-01", "desk-01", "partition = { config = gpu_partition_config.lab.id }", rig.MayStop)
			case p == gpu.Linux && m.MIG != nil:
				layout = fmt.Sprintf("mig = { profiles = { %q = 1 } }\n  max_disruption = \"gpu_reset\"", m.MIG.Profiles[0].Name)
			case p == gpu.Linux && m.Vendor == "NVIDIA":
				layout = "mps = { uid = 1000 }"
			default:
				continue
			}
			t.Run(m.Name+" on "+string(p), func(t *testing.T) {
				t.Parallel()
				fleet, err := spec.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				r := rig.New(t, fleet)
				c := rig.NewCLI(t, r.Block()+"resource \"gpu_partition_config\" \"lab\" {\n  hosts = [\"lab01\"]\n  "+layout+"\n}\n"+vm)
				c.Apply()
				c.WantNoChanges()
				if vm != "" {
					r.WantVM("desk-01", gpu.VMRunning, 1)
				}
				c.Destroy()
			})
		}
	}
}
