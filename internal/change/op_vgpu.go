package change

import (
	"cmp"
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
		inverse: onGPU(func(g *gpu.GPU, s, _ Step) []Step {
			if g.VGPU == nil {
				return nil
			}
			// A reboot in the middle of the change may have turned MIG mode off, which changes under no functions.
			inMIG := g.VGPU.FunctionsOn && g.MIGEnabled()
			return append(unless(!inMIG, Step{Op: OpSetMIGMode, GPU: s.GPU, Enable: true}), functionsAsIn(g.VGPU, s))
		}),
		project: eachGPU(func(g *gpu.GPU, s Step) {
			if g.VGPU == nil || g.VGPU.FunctionsOn == s.Enable {
				return
			}
			v := *g.VGPU
			v.FunctionsOn, v.Heterogeneous, v.Taken = s.Enable, false, nil
			if g.VGPU = &v; g.MIG != nil {
				mig := *g.MIG
				mig.Instances, g.MIG = nil, &mig
			}
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
				slices.SortStableFunc(v.Instances, func(a, b gpu.VGPUInstance) int { return cmp.Compare(a.Function, b.Function) })
			}
		}),
		notes: noteVGPU(func(e *VGPUEffect, s Step) { e.Creates = append(e.Creates, *s.VGPU) }),
	},
	OpRemoveVGPU: {
		by: ByVGPU, needs: []string{"gpu", "vgpu"}, depends: []gpu.Part{gpu.PartVGPUs}, disrupts: nobody, shows: ofGPU("the vGPUs", vgpusOf),
		text: func(s Step) string { return fmt.Sprintf("remove vGPU %s of GPU %s", placeText(*s.VGPU), s.GPU) },
		inverse: onGPU(func(g *gpu.GPU, s, _ Step) []Step {
			if g.VGPU == nil {
				return nil
			}
			in, there := findVGPU(g.VGPU, *s.VGPU)
			if !there {
				return nil
			}
			place := in.VGPUPlace
			return append(standing(g, s), Step{Op: OpCreateVGPU, GPU: s.GPU, VGPU: &place})
		}),
		project: eachVGPU(func(v *gpu.VGPU, s Step) {
			v.Instances = slices.DeleteFunc(v.Instances, func(in gpu.VGPUInstance) bool { return in.VGPUPlace.Same(*s.VGPU) })
		}),
		notes: noteVGPU(func(e *VGPUEffect, s Step) { e.Removes = append(e.Removes, *s.VGPU) }),
	},
}

// standing are the steps that bring back what a vGPU stands on where a reboot has taken it: the
// modes, and in MIG mode the GPU instances, which are lost when the functions are turned on.
func standing(g *gpu.GPU, s Step) []Step {
	v, inMIG := g.VGPU, g.MIGEnabled()
	out := unless(!inMIG, Step{Op: OpSetMIGMode, GPU: s.GPU, Enable: true})
	out = append(out, unless(!v.FunctionsOn, functionsAsIn(v, s))...)
	out = append(out, unless(!v.Heterogeneous, mixingAsIn(v, s))...)
	if inMIG {
		for _, p := range g.MIG.State().Placements {
			out = append(out, Step{Op: OpCreateInstance, GPU: s.GPU, Instance: &p})
		}
	}
	return out
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
