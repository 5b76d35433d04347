package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// migText says what a step does to a Linux host with NVIDIA GPUs, for people.
func (s Step) migText() string {
	switch s.Op {
	case OpSetMIGMode:
		text := fmt.Sprintf("turn MIG mode %s on GPU %s", onOff(s.Enable), s.GPU)
		if s.Force {
			text += ", with a reset of the GPU"
		}
		return text
	case OpCreateInstance:
		return fmt.Sprintf("create GPU instance %s on GPU %s", placementText(*s.Instance), s.GPU)
	case OpDestroyInstance:
		return fmt.Sprintf("remove GPU instance %s from GPU %s", placementText(*s.Instance), s.GPU)
	case OpRefreshDevices:
		return "refresh the device nodes and CDI specifications"
	case OpStopUnit:
		return "stop unit " + s.Unit
	case OpStartUnit:
		return "start unit " + s.Unit
	}
	return string(s.Op)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func placementText(p gpu.MIGPlacement) string { return fmt.Sprintf("%s at %d", p.Profile, p.Start) }

// inverseMIG is inverse for the steps on GPU instances and units.
func inverseMIG(host *gpu.Host, s Step) []Step {
	switch s.Op {
	case OpStopUnit:
		if runsUnit(host, s.Unit) {
			return []Step{{Op: OpStartUnit, Unit: s.Unit}}
		}
		return nil
	case OpStartUnit:
		if !runsUnit(host, s.Unit) {
			return []Step{{Op: OpStopUnit, Unit: s.Unit}}
		}
		return nil
	}
	g, ok := host.GPU(s.GPU)
	if !ok || g.MIG == nil {
		return nil
	}
	if s.Op == OpSetMIGMode {
		return []Step{{Op: OpSetMIGMode, GPU: s.GPU, Enable: g.MIG.Enabled, Force: s.Force}}
	}
	there := hasInstance(g.MIG, *s.Instance)
	switch {
	case s.Op == OpCreateInstance && !there:
		return []Step{{Op: OpDestroyInstance, GPU: s.GPU, Instance: s.Instance}}
	case s.Op == OpDestroyInstance && there:
		// A reboot in the middle of the change may have turned the mode off.
		return []Step{{Op: OpSetMIGMode, GPU: s.GPU, Enable: true}, {Op: OpCreateInstance, GPU: s.GPU, Instance: s.Instance}}
	}
	return nil
}

// projectMIG is a GPU's MIG as it should be after a step.
func projectMIG(mig gpu.MIG, s Step) *gpu.MIG {
	switch s.Op {
	case OpSetMIGMode:
		mig.Enabled, mig.Pending = s.Enable, s.Enable
	case OpCreateInstance:
		profile, _ := mig.Profile(s.Instance.Profile)
		mig.Instances = slices.DeleteFunc(slices.Clone(mig.Instances), func(i gpu.GPUInstance) bool { return i.Placement() == *s.Instance })
		mig.Instances = append(mig.Instances, gpu.GPUInstance{
			Profile: s.Instance.Profile, Start: s.Instance.Start, Size: profile.Size, Memory: profile.Memory,
			Compute: []gpu.ComputeInstance{{Slices: profile.Slices}},
		})
	case OpDestroyInstance:
		mig.Instances = slices.DeleteFunc(slices.Clone(mig.Instances), func(i gpu.GPUInstance) bool { return i.Placement() == *s.Instance })
	}
	return &mig
}

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
		if len(i.Compute) == 0 {
			text += " without a compute instance"
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
	return slices.ContainsFunc(host.Units, func(u string) bool { return sameUnit(u, name) })
}

// sameUnit compares names of systemd units, which may leave out that they are services.
func sameUnit(a, b string) bool { return unitName(a) == unitName(b) }

func unitName(name string) string { return strings.TrimSuffix(name, ".service") + ".service" }
