package provider_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// readme is the README's example on the rig's fleet.
func readme(r *rig.Rig) string {
	return r.Block() + rig.Config4 + `
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
	r := rig.New(t, rig.TwoNodes())
	out := rig.NewCLI(t, readme(r)).Ok("plan")
	rig.WantSaid(t, out,
		"hv01: VM avd-01 is shut down and started again", "hv01: VM avd-02 is shut down and started again",
		"A partition is added.")
}

func TestFirstPlanShowsTheConflictsAndTouchesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.AddForeignAdapter("avd-03")
	before := r.File()
	rig.WantSaid(t, rig.NewCLI(t, readme(r)).Fails("plan"), `gpu_vm_assignment for VM "avd-03"`, "Rule: single-partition-per-vm",
		"Fix:", `host "hv01"`)
	r.WantUntouched(before)
}

func TestFirstPlanShowsMixedGPUs(t *testing.T) {
	t.Parallel()
	fleet := rig.TwoNodes()
	fleet.Hosts[1].GPUs = []gpu.GPU{rig.A2(rig.GPU0), rig.A16(rig.GPU1)}
	r := rig.New(t, fleet)
	rig.WantSaid(t, rig.NewCLI(t, readme(r)).Fails("plan"), "Rule: homogeneous-gpus", rig.GPU1, "NVIDIA A16", "NVIDIA A2", "hv02")
}
