package vgpu

import (
	"cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

const opRestore = "restore the vGPUs"

// Saved is what a reboot or a reload of the driver loses of a GPU's vGPUs. Types are kept
// by name: ids belong to a model and a driver.
type Saved struct {
	GPU           string         `json:"gpu"` // PCI address
	UUID          string         `json:"uuid,omitempty"`
	VFs           bool           `json:"virtual_functions"`
	MIG           bool           `json:"mig"`
	Heterogeneous bool           `json:"heterogeneous"`
	Instances     map[string]int `json:"instances,omitempty"`
	VGPUs         []SavedVGPU    `json:"vgpus,omitempty"`
}

// SavedVGPU is one vGPU by what virtual machines know it by: the function, and the UUID
// of a mediated device.
type SavedVGPU struct {
	Function int    `json:"function"`
	UUID     string `json:"uuid,omitempty"`
	Type     string `json:"type"`
}

// Save records a GPU's vGPUs.
func Save(g GPU) Saved {
	s := Saved{
		GPU: g.Address, UUID: g.UUID,
		VFs: g.VFsOn(), MIG: g.migOn(), Heterogeneous: g.Heterogeneous.Enabled, Instances: g.instances(),
	}
	for _, v := range g.placed() {
		s.VGPUs = append(s.VGPUs, SavedVGPU{Function: v.spec.Function, UUID: v.spec.UUID, Type: cmp.Or(v.typ.Name, v.typ.ShortName())})
	}
	return s
}

// Restore leads a GPU to what was saved of it, each vGPU where it was, in the order of
// [Plan]. It gives no steps when nothing is lost. MIG instances come back by profile and
// count; their ids and UUIDs are new.
func Restore(g GPU, s Saved) ([]Step, error) {
	if s.UUID != "" && g.UUID != "" && s.UUID != g.UUID {
		return nil, refuse(g.Address, opRestore, backend.NotFound, "found GPU %s there, wanted %s: the GPU was replaced", g.UUID, s.UUID)
	}
	if s.VFs && g.SRIOV == nil || g.Shape == ShapeNone && len(s.VGPUs) > 0 {
		return nil, refuse(g.Address, opRestore, backend.NotSupported,
			"%d vGPUs were there, but the driver offers none now: is the vGPU Manager's driver loaded?", len(s.VGPUs))
	}
	if s.MIG && g.MIG == nil {
		return nil, refuse(g.Address, opRestore, backend.NotSupported, "it was in MIG mode, which it does not have or NVML does not show")
	}
	t := target{vfs: s.VFs, mig: s.MIG, heterogeneous: s.Heterogeneous, instances: s.Instances}
	for _, v := range s.VGPUs {
		typ, ok := g.Find(v.Type)
		if !ok {
			return nil, refuse(g.Address, opRestore, backend.NotSupported, "it had a %s, which this driver does not offer; it offers %s", v.Type, g.offers())
		}
		t.vgpus = append(t.vgpus, placed{typ: typ, spec: Spec{Function: v.Function, UUID: v.UUID, Type: typ.ID}})
	}
	return steps(&g, t)
}
