package change

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// vgpuText says what a step does to the vGPUs of a GPU, for people.
func (s Step) vgpuText() string {
	switch s.Op {
	case OpSetFunctions:
		return fmt.Sprintf("turn the virtual functions of GPU %s %s", s.GPU, onOff(s.Enable))
	case OpSetHeterogeneous:
		return fmt.Sprintf("turn heterogeneous vGPU mode %s on GPU %s", onOff(s.Enable), s.GPU)
	case OpCreateVGPU:
		return fmt.Sprintf("create vGPU %s of GPU %s", placeText(*s.VGPU), s.GPU)
	case OpRemoveVGPU:
		return fmt.Sprintf("remove vGPU %s of GPU %s", placeText(*s.VGPU), s.GPU)
	}
	return string(s.Op)
}

func placeText(p gpu.VGPUPlace) string {
	if p.Function == gpu.Itself {
		return p.Type
	}
	return fmt.Sprintf("%s on virtual function %d", p.Type, p.Function)
}

// inverseVGPU is inverse for the steps on vGPUs. A reboot in the middle of the change may
// have turned the modes off.
func inverseVGPU(g *gpu.GPU, s Step) []Step {
	if g == nil || g.VGPU == nil {
		return nil
	}
	functions := Step{Op: OpSetFunctions, GPU: s.GPU, Enable: g.VGPU.FunctionsOn}
	mixing := Step{Op: OpSetHeterogeneous, GPU: s.GPU, Enable: g.VGPU.Heterogeneous}
	var back []Step
	if g.VGPU.FunctionsOn {
		back = append(back, functions)
	}
	switch s.Op {
	case OpSetFunctions:
		return []Step{functions}
	case OpSetHeterogeneous:
		if g.VGPU.Functions > 0 && !g.VGPU.FunctionsOn {
			return nil // the mode ends with the functions
		}
		return append(back, mixing)
	case OpCreateVGPU:
		if _, there := findVGPU(g.VGPU, *s.VGPU); !there {
			return []Step{{Op: OpRemoveVGPU, GPU: s.GPU, VGPU: s.VGPU}}
		}
	case OpRemoveVGPU:
		in, there := findVGPU(g.VGPU, *s.VGPU)
		if !there {
			return nil
		}
		if g.VGPU.Heterogeneous {
			back = append(back, mixing)
		}
		place := in.VGPUPlace
		return append(back, Step{Op: OpCreateVGPU, GPU: s.GPU, VGPU: &place})
	}
	return nil
}

// projectVGPU is a GPU's vGPUs as they should be after a step.
func projectVGPU(v gpu.VGPU, s Step) *gpu.VGPU {
	v.Instances = slices.Clone(v.Instances)
	switch s.Op {
	case OpSetFunctions:
		v.FunctionsOn, v.Heterogeneous = s.Enable, v.Heterogeneous && v.FunctionsOn == s.Enable
	case OpSetHeterogeneous:
		v.Heterogeneous = s.Enable
	case OpCreateVGPU:
		if _, there := findVGPU(&v, *s.VGPU); !there {
			v.Instances = append(v.Instances, gpu.VGPUInstance{VGPUPlace: *s.VGPU})
		}
	case OpRemoveVGPU:
		v.Instances = slices.DeleteFunc(v.Instances, func(in gpu.VGPUInstance) bool { return in.VGPUPlace.Same(*s.VGPU) })
	}
	return &v
}

func findVGPU(v *gpu.VGPU, p gpu.VGPUPlace) (*gpu.VGPUInstance, bool) {
	i := slices.IndexFunc(v.Instances, func(in gpu.VGPUInstance) bool { return in.VGPUPlace.Same(p) })
	if i < 0 {
		return nil, false
	}
	return &v.Instances[i], true
}

func functionsOf(host *gpu.Host, id string) string {
	g, ok := host.GPU(id)
	if !ok || g.VGPU == nil {
		return "missing"
	}
	return onOff(g.VGPU.FunctionsOn)
}

func heterogeneousOf(host *gpu.Host, id string) string {
	g, ok := host.GPU(id)
	if !ok || g.VGPU == nil {
		return "missing"
	}
	return onOff(g.VGPU.Heterogeneous)
}

// vgpusOf tells a GPU's vGPUs by where they are, and not by the UUIDs that only some hosts
// show.
func vgpusOf(host *gpu.Host, id string) string {
	g, ok := host.GPU(id)
	if !ok || g.VGPU == nil {
		return "missing"
	}
	return list(g.VGPU.State().Places, placeText)
}
