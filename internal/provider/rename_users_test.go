package provider_test

import (
	"fmt"
	"testing"

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
		holds    func(*rig)
	}{
		"config under a share": {
			inference(1), "resource \"gpu_partition_config\" \"x\" {\n  for_each = toset([%q])\n  name = \"turns\"\n  hosts = [\"gpu01\"]\n  time_slicing = { replicas = 4 }\n}\n",
			shareOf("a", onGPU01, "config = gpu_partition_config.x[%q].id"),
			func(r *rig) { r.wantShares("gpu01", "a") },
		},
		"config under a VM": {
			standalone(node("hv01", desktop("avd-01", 1))), "resource \"gpu_partition_config\" \"x\" {\n  for_each = toset([%q])\n  name = \"vdi\"\n  hosts = [\"hv01\"]\n  gpu_p = { partition_count = 4 }\n  on_destroy = \"restore\"\n}\n",
			assignmentOf("desktop", "avd-01", "partition = { config = gpu_partition_config.x[%q].id }", mayStop),
			func(r *rig) { r.wantHeld(gpu.VMRunning, "avd-01"); r.wantCounts(4, "hv01") },
		},
		"pool under a VM": {
			standalone(node("hv01", desktop("avd-01", 1))), "resource \"gpu_pool\" \"x\" {\n  for_each = toset([%q])\n  name = \"render\"\n  members = { hv01 = [\"" + gpu1 + "\"] }\n  on_destroy = \"mount_back\"\n}\n",
			assignmentOf("desktop", "avd-01", "pool = { id = gpu_pool.x[%q].id }", mayStop, "low_memory_mapped_io_space_mib = 256", "high_memory_mapped_io_space_mib = 36864", `automatic_stop_action = "turn_off"`),
			func(r *rig) {
				r.wantPool("render", []string{gpu1}, "hv01")
				if v, _ := r.vm("avd-01"); !v.Runs() || len(v.Devices) != 1 {
					r.t.Errorf("avd-01 is %s with %d GPUs", v.State, len(v.Devices))
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, x.fleet)
			config := func(key string) string { return r.block() + fmt.Sprintf(x.resource+x.user, key, key) }
			c := newCLI(t, config("old"))
			c.apply()
			x.holds(r)
			c.write(config("new"))
			c.run("apply", "-auto-approve", "-parallelism=1") // it may be refused: see above
			x.holds(r)
			c.apply()
			x.holds(r)
			r.wantSettled()
			c.wantNoChanges()
		})
	}
}
