package vmassignment_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A reservation whose VM has left its host is told, and replaced it is where the VM is.
func TestAccVMAssignment_AReservationWhoseVMHasMovedIsTold(t *testing.T) {
	t.Parallel()
	two := rig.KVM(rig.L40s(0))
	other := rig.KVM(rig.L40s(1)).Hosts[0]
	other.Name = "kvm02"
	two.Hosts = append(two.Hosts, other)
	web := gpu.VM{ID: rig.VMID(1), Name: "web-01", State: gpu.VMOff}
	two.Hosts[0].VMs = append(two.Hosts[0].VMs, web)
	r := rig.New(t, two)
	c := rig.NewCLI(t, r.Block()+strings.Replace(rig.VGPUOf("desks", rig.FourDesks), `["kvm01"]`, `["kvm01", "kvm02"]`, 1)+reserves("web-01"))
	c.Apply()
	r.WantClaims([]string{"kvm01"}, "partition_config desks", "vm_assignment "+web.ID)
	c.WantNoChanges()
	r.EditHost("kvm01", func(h *gpu.Host) { h.VMs = nil })
	r.EditHost("kvm02", func(h *gpu.Host) { h.VMs = []gpu.VM{web} })
	rig.WantSaid(t, c.Ok("plan"), "The vGPU is reserved on this host, and the VM is on kvm02")
	c.Ok("apply", "-auto-approve", "-replace=gpu_vm_assignment.web-01")
	r.WantClaims([]string{"kvm01"}, "partition_config desks")
	r.WantClaims([]string{"kvm02"}, "partition_config desks", "vm_assignment "+web.ID)
	if out := c.Ok("plan"); strings.Contains(out, "reserved on this host") {
		t.Errorf("it is told still:\n%s", out)
	}
	c.WantNoChanges()
	c.Destroy()
}
