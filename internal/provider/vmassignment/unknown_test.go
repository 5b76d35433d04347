package vmassignment_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestAccVMAssignment_VMThatCannotBeReadIsNotGone: neither one whose settings nor one of a host that cannot
// list its VMs is proposed anything, and only a change of it is refused.
func TestAccVMAssignment_VMThatCannotBeReadIsNotGone(t *testing.T) {
	t.Parallel()
	const why = "Query of Msvm_VirtualSystemSettingData: generic failure (0x80041001)"
	for name, hide := range map[string]func(*gpu.Host){
		"its settings": func(h *gpu.Host) {
			for i := range h.VMs {
				h.VMs[i].PartitionAdapters = nil
			}
			h.Unknown = []gpu.Unknown{{Part: gpu.PartVMs, Why: why}}
		},
		"the list": func(h *gpu.Host) { h.VMs, h.Unknown = nil, []gpu.Unknown{{Part: gpu.PartVMs, Why: why}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-03", rig.AnyPartition))
			c.Apply()
			r.WantVM("avd-03", gpu.VMOff, 1)
			var before []gpu.VM
			r.EditHost("hv01", func(h *gpu.Host) {
				before = append(before, h.VMs...)
				h.VMs = append([]gpu.VM{}, h.VMs...)
				hide(h)
			})
			rig.WantSaid(t, c.Ok("plan"), "Parts of a host cannot be read", why, "No changes.")
			rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), why)
			if name == "its settings" {
				imports := rig.NewCLI(t, r.Block()+rig.Assignment("avd-03", rig.AnyPartition))
				rig.WantSaid(t, imports.Fails("import", "gpu_vm_assignment.a", "hv01/avd-03"), "VM cannot be read", why)
			}
			r.EditHost("hv01", func(h *gpu.Host) { h.VMs, h.Unknown = before, nil })
			r.WantVM("avd-03", gpu.VMOff, 1)
			c.WantNoChanges()
			c.Destroy()
			r.WantVM("avd-03", gpu.VMOff, 0)
		})
	}
}

// A run that goes on without a host plans for a VM that may be there, and makes nothing of it.
func TestAccVMAssignment_VMThatMayBeOnASilentHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Silent(true, "hv02")
	c := rig.NewCLI(t, r.Block(`on_unreachable = "keep"`)+rig.Assignment("avd-04", rig.AnyPartition, rig.MayStop))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "VM was not found", "The hosts that answer do not have it")
	r.Silent(false, "hv02")
	r.WantVM("avd-04", gpu.VMRunning, 0)
}

// Where the fleet is may be known only at apply: a VM is looked for then, and one that has its
// partition keeps it.
func TestAccVMAssignment_AVMOfAFleetThatIsKnownOnlyAtApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	hcl := func(generation int) string {
		return r.LateBlock(generation, "simulated_fleet = terraform_data.fleet.output") + rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop)
	}
	c := rig.NewCLI(t, hcl(1))
	rig.WantSaid(t, c.Ok("plan"), "Plan: 2 to add")
	c.Apply()
	r.WantVM("avd-01", gpu.VMRunning, 1)
	r.NeverStops("avd-01", "hv01")
	c.Write(hcl(2))
	rig.WantSaid(t, c.Ok("plan"), "1 to add, 0 to change, 1 to destroy")
	c.Apply()
	r.WantVM("avd-01", gpu.VMRunning, 1)
	c.WantNoChanges()
}
