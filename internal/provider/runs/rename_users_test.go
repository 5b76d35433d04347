package runs_test

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A config or pool with another address is taken over with all that uses it: by the second
// apply at the latest, when Terraform destroys first.
func TestARenamedKeyTakesOverWhatIsInUse(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		fleet    gpu.Snapshot
		resource string // with a key
		user     string // with the key of its resource
		holds    func(*rig.Rig)
	}{
		"config under a share": {
			rig.Inference(1), "resource \"gpu_partition_config\" \"x\" {\n  for_each = toset([%q])\n  name = \"turns\"\n  hosts = [\"gpu01\"]\n  " +
				"time_slicing = { replicas = 4 }\n}\n",
			rig.ShareOf("a", rig.OnGPU01, "config = gpu_partition_config.x[%q].id"),
			func(r *rig.Rig) { r.WantShares("gpu01", "a") },
		},
		"config under a VM": {
			rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))),
			"resource \"gpu_partition_config\" \"x\" {\n  for_each = toset([%q])\n  name = \"vdi\"\n  hosts = [\"hv01\"]\n  gpu_p = { " +
				"partition_count = 4 }\n  on_destroy = \"restore\"\n}\n",
			rig.AssignmentOf("desktop", "avd-01", "partition = { config = gpu_partition_config.x[%q].id }", rig.MayStop),
			func(r *rig.Rig) { r.WantHeld(gpu.VMRunning, "avd-01"); r.WantCounts(4, "hv01") },
		},
		"pool under a VM": {
			rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))),
			"resource \"gpu_pool\" \"x\" {\n  for_each = toset([%q])\n  name = \"render\"\n  members = { hv01 = [\"" +
				rig.GPU1 + "\"] }\n  on_destroy = \"mount_back\"\n}\n",
			rig.AssignmentOf("desktop", "avd-01", "pool = { id = gpu_pool.x[%q].id }", rig.MayStop, "low_memory_mapped_io_space_mib = 256",
				"high_memory_mapped_io_space_mib = 36864", `automatic_stop_action = "turn_off"`),
			func(r *rig.Rig) {
				r.WantPool("render", []string{rig.GPU1}, "hv01")
				if v, _ := r.VM("avd-01"); !v.Runs() || len(v.Devices) != 1 {
					t.Errorf("avd-01 is %s with %d GPUs", v.State, len(v.Devices))
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, x.fleet)
			config := func(key string) string { return r.Block() + fmt.Sprintf(x.resource+x.user, key, key) }
			c := rig.NewCLI(t, config("old"))
			c.Apply()
			x.holds(r)
			c.Write(config("new"))
			c.Run("apply", "-auto-approve", "-parallelism=1") // it may be refused: see above
			x.holds(r)
			c.Apply()
			x.holds(r)
			r.WantSettled()
			c.WantNoChanges()
		})
	}
}
