package simulated

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// CreateVGPU makes a vGPU at its place.
func (h *Host) CreateVGPU(ctx context.Context, gpuID string, p gpu.VGPUPlace) error {
	return h.do(ctx, call{op: OpCreateVGPU, gpu: gpuID, place: vgpuText(p)}, func(r *record) error {
		return r.createVGPU(gpuID, p)
	})
}

// RemoveVGPU takes a vGPU away that nobody holds.
func (h *Host) RemoveVGPU(ctx context.Context, gpuID string, p gpu.VGPUPlace) error {
	return h.do(ctx, call{op: OpRemoveVGPU, gpu: gpuID, place: vgpuText(p)}, func(r *record) error {
		return r.removeVGPU(gpuID, p)
	})
}

func (r *record) createVGPU(gpuID string, want gpu.VGPUPlace) error {
	g, err := r.vgpuGPU(gpuID)
	if err != nil {
		return err
	}
	t, ok := g.VGPU.Offers(want.Type)
	if !ok {
		return refuse(backend.InvalidParameter, "the GPU offers no vGPU type %s, only %s", want.Type, listVGPUTypes(g.VGPU.Types))
	}
	if want.Type = t.Name; !g.mediated {
		want.UUID = ""
	} else if want.UUID == "" {
		return refuse(backend.InvalidParameter, "a mediated device needs a UUID")
	}
	if err := g.hasFunction(want.Function); err != nil {
		return err
	}
	if f, taken := g.VGPU.TakenAt(want.Function); taken {
		return refuse(backend.InvalidState, "%s", f)
	}
	if done, err := r.takenVGPU(g, want); err != nil || done {
		return err
	}
	if err := g.vgpuRoom(t); err != nil {
		return err
	}
	in, err := g.freeInstance(t)
	if err != nil {
		return err
	}
	v := g.VGPU
	v.Instances = append(v.Instances, gpu.VGPUInstance{VGPUPlace: want, Address: functionAddress(g.Address, want.Function), GPUInstance: in})
	slices.SortFunc(v.Instances, func(a, b gpu.VGPUInstance) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.UUID, b.UUID))
	})
	return nil
}

func (r *record) removeVGPU(gpuID string, p gpu.VGPUPlace) error {
	g, err := r.vgpuGPU(gpuID)
	if err != nil {
		return err
	}
	in := g.vgpuAt(p)
	switch {
	case in == nil:
		return nil
	case !sameVGPUType(g.VGPU, in.Type, p.Type):
		return refuse(backend.InUse, "there is %s: somebody made another one there", listVGPUs([]gpu.VGPUInstance{*in}))
	case in.Holder != "":
		return refuse(backend.InUse, "it is held by %s; shut it down first", in.Holder)
	}
	gone := in.VGPUPlace
	g.VGPU.Instances = slices.DeleteFunc(g.VGPU.Instances, func(i gpu.VGPUInstance) bool { return i.VGPUPlace == gone })
	return nil
}

// vgpuAt finds the vGPU of a place: mediated devices by UUID, others by function.
func (g vgpuFace) vgpuAt(p gpu.VGPUPlace) *gpu.VGPUInstance {
	i := slices.IndexFunc(g.VGPU.Instances, func(i gpu.VGPUInstance) bool {
		if i.UUID != "" {
			return gpu.SameID(i.UUID, p.UUID)
		}
		return i.Function == p.Function
	})
	if i < 0 {
		return nil
	}
	return &g.VGPU.Instances[i]
}

// hasFunction refuses a function that the GPU does not have now.
func (g vgpuFace) hasFunction(index int) error {
	switch v := g.VGPU; {
	case v.Functions == 0 && index != gpu.Itself:
		return refuse(backend.NotFound, "there is no virtual function %d: its vGPUs are made on the GPU itself", index)
	case v.Functions > 0 && !v.FunctionsOn:
		return refuse(backend.InvalidState, "the virtual functions of the GPU are off")
	case v.Functions > 0 && (index < 0 || index >= v.Functions):
		return refuse(backend.NotFound, "there is no virtual function %d; the GPU has %d", index, v.Functions)
	}
	return nil
}

// takenVGPU tells whether the vGPU is there already, and refuses where another one is.
func (r *record) takenVGPU(g vgpuFace, want gpu.VGPUPlace) (bool, error) {
	for i := range r.GPUs {
		other := &r.GPUs[i]
		if other.VGPU == nil {
			continue
		}
		for j := range other.VGPU.Instances {
			in := &other.VGPU.Instances[j]
			here := other.ID == g.ID && in.Function == want.Function
			sameUUID := gpu.SameID(in.UUID, want.UUID)
			switch {
			case here && sameUUID && in.Type == want.Type:
				return true, nil
			case want.UUID != "" && sameUUID, here && want.Function != gpu.Itself:
				return false, refuse(backend.InUse, "GPU %s has %s already", other.ID, listVGPUs([]gpu.VGPUInstance{*in}))
			}
		}
	}
	return false, nil
}

// vgpuRoom refuses one more vGPU than the GPU takes beside the others.
func (g vgpuFace) vgpuRoom(t gpu.VGPUType) error {
	if isInMIG(g.GPU) != (t.MIGProfile != "") {
		return refuse(backend.InvalidState, "%s is %s, and MIG mode of the GPU is %s", t.Name, sharing(t), onOff(isInMIG(g.GPU)))
	}
	v := g.VGPU
	same, used := 0, t.FrameBuffer
	for i := range v.Instances {
		other, _ := v.Offers(v.Instances[i].Type)
		used += other.FrameBuffer
		if other.Name == t.Name {
			same++
		}
		if t.MIGProfile == "" && other.FrameBuffer != t.FrameBuffer && !v.Heterogeneous {
			return refuse(backend.Insufficient, "the GPU has %s, of another frame buffer size, and does not mix sizes", listVGPUs(v.Instances))
		}
	}
	switch {
	case t.Max > 0 && same >= t.Max:
		return refuse(backend.Insufficient, "the GPU takes %d of %s, and has %s", t.Max, t.Name, listVGPUs(v.Instances))
	case t.MIGProfile == "" && used > frameBuffers(v):
		return refuse(backend.Insufficient, "what %s leave of the frame buffer does not hold a %s", listVGPUs(v.Instances), t.Name)
	}
	return nil
}

// freeInstance is the GPU instance that a vGPU of a MIG-backed type gets, nil for another type:
// the first of its profile that has room beside vGPUs of the same size.
func (g vgpuFace) freeInstance(t gpu.VGPUType) (*int, error) {
	if t.MIGProfile == "" {
		return nil, nil
	}
	profile, _ := migFace{g.GPU}.profile(t.MIGProfile)
	each := max(1, t.Max/max(1, profile.Max))
	for _, i := range g.MIG.Instances {
		inside, alike := g.vgpusIn(i.ID), true
		for _, in := range inside {
			other, _ := g.VGPU.Offers(in.Type)
			alike = alike && other.FrameBuffer == t.FrameBuffer
		}
		if i.Profile == t.MIGProfile && alike && len(inside) < each {
			return &i.ID, nil
		}
	}
	return nil, refuse(backend.Insufficient, "no GPU instance %s is free", t.MIGProfile)
}

func (g vgpuFace) vgpusIn(instance int) []gpu.VGPUInstance {
	return slices.DeleteFunc(slices.Clone(g.VGPU.Instances), func(i gpu.VGPUInstance) bool {
		return i.GPUInstance == nil || *i.GPUInstance != instance
	})
}

// frameBuffers is what vGPUs can have together: the most that a GPU full of one type
// gives out.
func frameBuffers(v *gpu.VGPU) gpu.Bytes {
	var most gpu.Bytes
	for _, t := range v.Types {
		if t.MIGProfile == "" {
			most = max(most, gpu.Bytes(t.Max)*t.FrameBuffer)
		}
	}
	return most
}

func sameVGPUType(v *gpu.VGPU, a, b string) bool {
	t, ok := v.Offers(b)
	return gpu.SameID(a, b) || ok && gpu.SameID(a, t.Name)
}

func sharing(t gpu.VGPUType) string {
	if t.MIGProfile != "" {
		return "MIG-backed"
	}
	return "time-sliced"
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// functionAddress is the PCI address of a virtual function, of which each takes the next
// number after the GPU's: eight to a device, as on cards that start at function 4.
func functionAddress(address string, function int) string {
	var domain, bus, device, fn int
	if _, err := fmt.Sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &fn); err != nil || function == gpu.Itself {
		return address
	}
	const first, each = 4, 8
	n := device*each + fn + first + function
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus+n>>8, n>>3&0x1f, n%each)
}

func vgpuText(p gpu.VGPUPlace) string {
	if p.Function == gpu.Itself {
		return p.Type + "@" + p.UUID
	}
	return fmt.Sprintf("%s@%d", p.Type, p.Function)
}

func listVGPUTypes(types []gpu.VGPUType) string {
	words := make([]string, len(types))
	for i := range types {
		words[i] = types[i].Name
	}
	return strings.Join(words, ", ")
}
