package change

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Rules that refusals are about.
const (
	VMMustBeOff    = "vm-must-be-off"
	PartitionInUse = "partition-in-use"
	Readable       = "readable"
	Capacity       = "capacity"
	MIGMode        = "mig-mode"
	VGPUInUse      = "vgpu-in-use"
	MPSInUse       = "mps-in-use"
	VMSaved        = "vm-saved"
	VMTransient    = "vm-transient"
	VMManager      = "vm-manager"
	LibvirtVersion = "libvirt-version"
	HostdevManaged = "hostdev-managed"
)

// RefusedAnyway lists the rules of which the host keeps to a part, whatever their level.
func RefusedAnyway() []string {
	return []string{
		VMMustBeOff, PartitionInUse, Readable, Capacity, MIGMode, VGPUInUse, MPSInUse, VMSaved, VMTransient, VMManager, LibvirtVersion,
		HostdevManaged,
	}
}

// refuse is the refusal of a host whose state does not allow a change.
func refuse(code gpu.Code, op, object, format string, args ...any) *gpu.Refusal {
	r := refuseFor(code, format, args...)
	r.Op, r.Object = op, object
	return r
}

// refuseFor is the refusal whose reason says it all.
func refuseFor(code gpu.Code, format string, args ...any) *gpu.Refusal {
	return &gpu.Refusal{Code: code, Reasons: []string{fmt.Sprintf(format, args...)}}
}

// refuseGPU is refuse of what is asked of a GPU.
func refuseGPU(code gpu.Code, op, id, format string, args ...any) *gpu.Refusal {
	r := refuse(code, op, "GPU "+id, format, args...)
	r.GPU = id
	return r
}

// refuseLayout is the refusal of a layout that a GPU cannot have, or that those who use it are in the way of.
func refuseLayout(err error, op string, g *gpu.GPU) *gpu.Refusal {
	r := gpu.RefusalOf(err)
	r.Op, r.Object, r.GPU = op, "GPU "+g.ID, g.ID
	return r
}

// refuse notes what stands in the way. The steps are worked out as if nothing did.
func (p *planner) refuse(r *gpu.Refusal) { p.refused = append(p.refused, r) }
