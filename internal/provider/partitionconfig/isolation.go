package partitionconfig

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// isolation is what separates two workloads that a layout puts on one GPU. For MPS it
// takes the GPUs to tell, and is "" here. vGPUs have memory of their own and
// take turns on the rest of the GPU, or of the GPU instance that several of them live in.
func isolation(c gpu.PartitionConfig) placement.Isolation {
	switch {
	case c.MPS != nil:
		return ""
	case c.TimeSlicing != nil, c.MIG != nil && c.MIG.Off:
		return placement.IsolationNone
	case c.VGPU != nil:
		return placement.IsolationMemory
	}
	return placement.IsolationHardware
}

// observedIsolation is the least of all GPUs: those before Volta give clients of MPS one
// address space.
func observedIsolation(c gpu.PartitionConfig, hosts []string, v fleet.View) placement.Isolation {
	if known := isolation(c); known != "" {
		return known
	}
	for _, name := range hosts {
		h, answered := v.Hosts[name]
		if !answered {
			continue
		}
		for _, id := range fleet.SelectKind(c.Kind, name, h, c.Scope.Selector, own(c.ID, "")) {
			_, unknown := h.UnknownGPU(id)
			if g, ok := h.GPU(id); ok && !unknown && !catalog.IsolatesMPSClients(g.ComputeCapability) {
				return placement.IsolationNone
			}
		}
	}
	return placement.IsolationMemory
}

// plannedIsolation is known as soon as the kind and what is inside of MIG are, but for MPS.
func (m *model) plannedIsolation() types.String {
	mps, slicing, enabled := attr.Value(m.MPS), attr.Value(m.TimeSlicing), attr.Value(types.BoolNull())
	if inside := m.MIG.Attributes(); len(inside) > 0 {
		mps, slicing, enabled = inside["mps"], inside["time_slicing"], inside["enabled"]
	}
	var c gpu.PartitionConfig
	switch {
	case m.MIG.IsUnknown(), m.VGPU.IsUnknown(), mps.IsUnknown(), slicing.IsUnknown(), enabled.IsUnknown(), !mps.IsNull():
		return types.StringUnknown()
	case !slicing.IsNull():
		c.TimeSlicing = &gpu.TimeSlicing{}
	case !enabled.IsNull():
		c.MIG = &gpu.MIGLayout{Off: true}
	case !m.VGPU.IsNull():
		c.VGPU = &gpu.VGPULayout{}
	}
	return types.StringValue(string(isolation(c)))
}
