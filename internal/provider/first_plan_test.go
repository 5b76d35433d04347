package provider_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// readme is the README's example on the rig's fleet.
func readme(r *rig) string {
	return r.block() + config4 + `
resource "gpu_vm_assignment" "avd" {
  for_each  = toset(["avd-01", "avd-02", "avd-03"])
  vm        = each.key
  partition = { config = gpu_partition_config.vdi.id }
  power     = { allow_shutdown = true }
}
`
}

func TestFirstPlanTellsWhatWillHappen(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	out := newCLI(t, readme(r)).ok("plan")
	wantSaid(t, out,
		"16 → 4 partitions, about 3.7 GiB each",
		"A running VM will be shut down",
		"will be shut down and started again: a partition is added")
}

func TestFirstPlanShowsTheConflictsAndTouchesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.addForeignAdapter("avd-03")
	before := r.file()
	wantSaid(t, newCLI(t, readme(r)).fails("plan"), `gpu_vm_assignment for VM "avd-03"`, "Rule: single-partition-per-vm", "Fix:", `host "hv01"`)
	r.wantUntouched(before)
}

func TestFirstPlanShowsMixedGPUs(t *testing.T) {
	t.Parallel()
	fleet := twoNodes()
	fleet.Hosts[1].GPUs = []gpu.GPU{a2(gpu0), a16(gpu1)}
	r := newRig(t, fleet)
	wantSaid(t, newCLI(t, readme(r)).fails("plan"), "Rule: homogeneous-gpus", gpu1, "NVIDIA A16", "NVIDIA A2", "hv02")
}
