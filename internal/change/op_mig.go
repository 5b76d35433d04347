package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// migRows are the operations on GPU instances, and on the units that have to do with them.
var migRows = map[Op]row{
	OpSetMIGMode: {
		by: ByMIG, needs: []string{"gpu"}, disrupts: forced(gpu.DisruptGPUReset), shows: ofGPU("the MIG mode", modeOf),
		text: func(s Step) string {
			text := fmt.Sprintf("turn MIG mode %s on GPU %s", onOff(s.Enable), s.GPU)
			if s.Force {
				text += ", with a reset of the GPU"
			}
			return text
		},
		inverse: onGPU(func(g *gpu.GPU, s, _ Step) []Step {
			if g.MIG == nil {
				return nil
			}
			return []Step{{Op: OpSetMIGMode, GPU: s.GPU, Enable: g.MIG.Enabled, Force: s.Force}}
		}),
		project: eachMIG(func(mig *gpu.MIG, s Step) { mig.Enabled, mig.Pending = s.Enable, s.Enable }),
		notes:   noteMIG(func(e *MIGEffect, mig *gpu.MIG, s Step) { e.Resets, e.CallsOff = s.Force, s.Enable == mig.Enabled }),
	},
	OpCreateInstance: {
		by: ByMIG, needs: []string{"gpu", "instance"}, disrupts: nobody, shows: ofGPU("the MIG layout", instancesOf),
		text: func(s Step) string {
			return fmt.Sprintf("create GPU instance %s on GPU %s", placementText(*s.Instance), s.GPU)
		},
		inverse: onGPU(func(g *gpu.GPU, s, _ Step) []Step {
			return unless(g.MIG == nil || hasInstance(g.MIG, *s.Instance), Step{Op: OpDestroyInstance, GPU: s.GPU, Instance: s.Instance})
		}),
		project: eachMIG(func(mig *gpu.MIG, s Step) {
			profile, _ := mig.Profile(s.Instance.Profile)
			mig.Instances = append(withoutInstance(mig, s), gpu.GPUInstance{
				Profile: s.Instance.Profile, Start: s.Instance.Start, Size: profile.Size, Memory: profile.Memory,
				Compute: []gpu.ComputeInstance{{Slices: profile.Slices}},
			})
		}),
		notes: noteMIG(func(e *MIGEffect, mig *gpu.MIG, s Step) {
			if hasInstance(mig, *s.Instance) {
				e.Completes = append(e.Completes, *s.Instance)
			} else {
				e.Creates = append(e.Creates, *s.Instance)
			}
		}),
	},
	OpDestroyInstance: {
		by: ByMIG, needs: []string{"gpu", "instance"}, disrupts: nobody, shows: ofGPU("the MIG layout", instancesOf),
		text: func(s Step) string {
			return fmt.Sprintf("remove GPU instance %s from GPU %s", placementText(*s.Instance), s.GPU)
		},
		inverse: onGPU(func(g *gpu.GPU, s, _ Step) []Step {
			if g.MIG == nil || !hasInstance(g.MIG, *s.Instance) {
				return nil
			}
			// A reboot in the middle of the change may have turned the mode off.
			back := []Step{{Op: OpSetMIGMode, GPU: s.GPU, Enable: true}}
			if g.VGPU != nil && g.VGPU.FunctionsOn {
				back = append(back, functionsAsIn(g.VGPU, s))
			}
			return append(back, Step{Op: OpCreateInstance, GPU: s.GPU, Instance: s.Instance})
		}),
		project: eachMIG(func(mig *gpu.MIG, s Step) { mig.Instances = withoutInstance(mig, s) }),
		notes:   noteMIG(func(e *MIGEffect, _ *gpu.MIG, s Step) { e.Removes = append(e.Removes, *s.Instance) }),
	},
	OpRefreshDevices: { // device nodes, which no inventory has, and which nothing is put back for
		by: ByMIG, disrupts: nobody,
		text: func(Step) string { return "refresh the device nodes and CDI specifications" },
	},
	OpStopUnit: {
		by: ByMIG, needs: []string{"unit"}, disrupts: nobody, shows: ofUnit,
		text: func(s Step) string { return "stop unit " + s.Unit },
		inverse: func(h *gpu.Host, s Step) []Step {
			return unless(!runsUnit(h, s.Unit), Step{Op: OpStartUnit, Unit: s.Unit})
		},
		project: func(h *draft, s Step) {
			h.Units = slices.DeleteFunc(slices.Clone(h.Units), func(u string) bool { return SameUnit(u, s.Unit) })
		},
	},
	OpStartUnit: {
		by: ByMIG, needs: []string{"unit"}, disrupts: nobody, shows: ofUnit,
		text: func(s Step) string { return "start unit " + s.Unit },
		inverse: func(h *gpu.Host, s Step) []Step {
			return unless(runsUnit(h, s.Unit), Step{Op: OpStopUnit, Unit: s.Unit})
		},
		project: func(h *draft, s Step) {
			if !runsUnit(&h.Host, s.Unit) {
				h.Units = append(slices.Clone(h.Units), unitName(s.Unit))
			}
		},
	},
}

// eachMIG makes of a GPU's MIG what a step should make of it.
func eachMIG(become func(*gpu.MIG, Step)) func(*draft, Step) {
	return eachGPU(func(g *gpu.GPU, s Step) {
		if g.MIG == nil {
			return
		}
		mig := *g.MIG
		mig.Profiles = placement.MIGProfiles(g) // those of the model where the GPU tells none
		become(&mig, s)
		g.MIG = &mig
		if mig.Enabled {
			g.TimeSlice = "" // which its instances do not have
		}
	})
}

// withoutInstance are the instances of a GPU but that of a step.
func withoutInstance(mig *gpu.MIG, s Step) []gpu.GPUInstance {
	return slices.DeleteFunc(slices.Clone(mig.Instances), func(i gpu.GPUInstance) bool { return i.Placement() == *s.Instance })
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func placementText(p gpu.MIGPlacement) string { return fmt.Sprintf("%s at %d", p.Profile, p.Start) }

func hasInstance(mig *gpu.MIG, p gpu.MIGPlacement) bool {
	return slices.ContainsFunc(mig.Instances, func(i gpu.GPUInstance) bool { return i.Placement() == p })
}

func modeOf(host *gpu.Host, id string) string {
	g, ok := host.GPU(id)
	if !ok || g.MIG == nil {
		return "missing"
	}
	mode := onOff(g.MIG.Enabled)
	if g.MIG.Pending != g.MIG.Enabled {
		mode += ", and " + onOff(g.MIG.Pending) + " after the next reset"
	}
	return mode
}

// instancesOf tells a GPU's instances by what they are known by, and not by the ids and
// UUIDs that change when one is made again.
func instancesOf(host *gpu.Host, id string) string {
	g, ok := host.GPU(id)
	if !ok || g.MIG == nil {
		return "missing"
	}
	return list(g.MIG.Instances, func(i gpu.GPUInstance) string {
		text := placementText(i.Placement())
		if !i.Filled() {
			text += ", which " + i.ComputeText()
		}
		return text
	})
}

func unitOf(host *gpu.Host, name string) string {
	if runsUnit(host, name) {
		return "running"
	}
	return "stopped"
}

func runsUnit(host *gpu.Host, name string) bool {
	return slices.ContainsFunc(host.Units, func(u string) bool { return SameUnit(u, name) })
}

// SameUnit compares names of systemd units, which may leave out that they are services.
func SameUnit(a, b string) bool { return unitName(a) == unitName(b) }

func unitName(name string) string { return strings.TrimSuffix(name, ".service") + ".service" }
