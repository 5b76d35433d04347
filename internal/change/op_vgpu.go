package change

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// vgpuRows are the operations on vGPUs. A reboot in the middle of a change may turn the modes
// off, so that what puts a step back begins with them.
var vgpuRows = map[Op]row{
	OpSetFunctions: {
		by: ByVGPU, needs: []string{"gpu"}, disrupts: nobody, shows: ofGPU("the virtual functions", functionsOf),
		text: func(s Step) string {
			return fmt.Sprintf("turn the virtual functions of GPU %s %s", s.GPU, onOff(s.Enable))
		},
		inverse: onVGPUs(func(v *gpu.VGPU, s Step) []Step { return []Step{functionsAsIn(v, s)} }),
		project: eachVGPU(func(v *gpu.VGPU, s Step) {
			v.FunctionsOn, v.Heterogeneous = s.Enable, v.Heterogeneous && v.FunctionsOn == s.Enable
		}),
		notes: noteMode,
	},
	OpSetHeterogeneous: {
		by: ByVGPU, needs: []string{"gpu"}, disrupts: nobody, shows: ofGPU("the heterogeneous vGPU mode", heterogeneousOf),
		text: func(s Step) string {
			return fmt.Sprintf("turn heterogeneous vGPU mode %s on GPU %s", onOff(s.Enable), s.GPU)
		},
		inverse: onVGPUs(func(v *gpu.VGPU, s Step) []Step {
			if v.Functions > 0 && !v.FunctionsOn {
				return nil // the mode ends with the functions
			}
			return append(unless(!v.FunctionsOn, functionsAsIn(v, s)), mixingAsIn(v, s))
		}),
		project: eachVGPU(func(v *gpu.VGPU, s Step) { v.Heterogeneous = s.Enable }),
		notes:   noteMode,
	},
	OpCreateVGPU: {
		by: ByVGPU, needs: []string{"gpu", "vgpu"}, disrupts: nobody, shows: ofGPU("the vGPUs", vgpusOf),
		text: func(s Step) string { return fmt.Sprintf("create vGPU %s of GPU %s", placeText(*s.VGPU), s.GPU) },
		inverse: onVGPUs(func(v *gpu.VGPU, s Step) []Step {
			_, there := findVGPU(v, *s.VGPU)
			return unless(there, Step{Op: OpRemoveVGPU, GPU: s.GPU, VGPU: s.VGPU})
		}),
		project: eachVGPU(func(v *gpu.VGPU, s Step) {
			if _, there := findVGPU(v, *s.VGPU); !there {
				v.Instances = append(v.Instances, gpu.VGPUInstance{VGPUPlace: *s.VGPU})
			}
		}),
		notes: noteVGPU(func(e *VGPUEffect, s Step) { e.Creates = append(e.Creates, *s.VGPU) }),
	},
	OpRemoveVGPU: {
		by: ByVGPU, needs: []string{"gpu", "vgpu"}, disrupts: nobody, shows: ofGPU("the vGPUs", vgpusOf),
		text: func(s Step) string { return fmt.Sprintf("remove vGPU %s of GPU %s", placeText(*s.VGPU), s.GPU) },
		inverse: onVGPUs(func(v *gpu.VGPU, s Step) []Step {
			in, there := findVGPU(v, *s.VGPU)
			if !there {
				return nil
			}
			back := unless(!v.FunctionsOn, functionsAsIn(v, s))
			back = append(back, unless(!v.Heterogeneous, mixingAsIn(v, s))...)
			place := in.VGPUPlace
			return append(back, Step{Op: OpCreateVGPU, GPU: s.GPU, VGPU: &place})
		}),
		project: eachVGPU(func(v *gpu.VGPU, s Step) {
			v.Instances = slices.DeleteFunc(v.Instances, func(in gpu.VGPUInstance) bool { return in.VGPUPlace.Same(*s.VGPU) })
		}),
		notes: noteVGPU(func(e *VGPUEffect, s Step) { e.Removes = append(e.Removes, *s.VGPU) }),
	},
}

func functionsAsIn(v *gpu.VGPU, s Step) Step {
	return Step{Op: OpSetFunctions, GPU: s.GPU, Enable: v.FunctionsOn}
}

func mixingAsIn(v *gpu.VGPU, s Step) Step {
	return Step{Op: OpSetHeterogeneous, GPU: s.GPU, Enable: v.Heterogeneous}
}

// onVGPUs is the inverse of a step on a GPU's vGPUs.
func onVGPUs(inverse func(*gpu.VGPU, Step) []Step) func(*gpu.Host, Step) []Step {
	return onGPU(func(g *gpu.GPU, s, _ Step) []Step {
		if g.VGPU == nil {
			return nil
		}
		return inverse(g.VGPU, s)
	})
}

// eachVGPU makes of a GPU's vGPUs what a step should make of them.
func eachVGPU(become func(*gpu.VGPU, Step)) func(*draft, Step) {
	return eachGPU(func(g *gpu.GPU, s Step) {
		if g.VGPU != nil {
			v := *g.VGPU
			v.Instances = slices.Clone(v.Instances)
			become(&v, s)
			g.VGPU = &v
		}
	})
}

func placeText(p gpu.VGPUPlace) string {
	if p.Function == gpu.Itself {
		return p.Type
	}
	return fmt.Sprintf("%s on virtual function %d", p.Type, p.Function)
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
