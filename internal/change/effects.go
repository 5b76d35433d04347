package change

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Effects are what some steps do to what runs on a host.
type Effects struct {
	// Stops are the running VMs that are stopped, in the order of the steps.
	Stops []Stop
	// Resets are the GPUs that are reset, by id.
	Resets []string
	// Ends are the clients of MPS daemons that end, in words.
	Ends []string
	// Drains is true when the node's running VMs move to other nodes meanwhile.
	Drains bool
	// Class is the worst of it.
	Class gpu.Disruption
}

// Stop is a running VM that is stopped.
type Stop struct {
	VM, Name string
	// Starts is true when it is started again in the same change.
	Starts bool
	// Why says what is done to the VM that needs it off.
	Why []string
}

// EffectsOf tells what steps do to what runs on a host, which is as it is before them.
func EffectsOf(host *gpu.Host, steps []Step) Effects {
	e := Effects{Class: gpu.DisruptNone}
	for _, s := range steps {
		if d := s.Disrupts(); d.Exceeds(e.Class) {
			e.Class = d
		}
		switch {
		case s.Op == OpDrainNode:
			e.Drains = true
		case s.Op == OpStopVM:
			e.Stops = append(e.Stops, Stop{VM: s.VM, Name: s.VMName(), Why: whyOff(steps, s.VM)})
		case s.Op == OpStartVM:
			if i := slices.IndexFunc(e.Stops, func(o Stop) bool { return gpu.SameID(o.VM, s.VM) }); i >= 0 {
				e.Stops[i].Starts = true
			}
		case s.Op == OpSetMIGMode && s.Force:
			e.Resets = append(e.Resets, s.GPU)
		case s.Disrupts() == gpu.DisruptProcessRestart:
			if d, ok := host.Daemon(s.Daemon.Name); ok {
				for _, c := range d.Clients {
					e.Ends = append(e.Ends, placement.ProcessText(c))
				}
			}
		}
	}
	return e
}

// whyOff says what steps do to a VM that needs it off.
func whyOff(steps []Step, vm string) []string {
	var why []string
	note := func(text string) {
		if !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	does := func(op Op) bool {
		return slices.ContainsFunc(steps, func(s Step) bool { return s.Op == op && gpu.SameID(s.VM, vm) })
	}
	gives := does(OpAddAdapter) || does(OpAddDevice)
	for _, s := range steps {
		if !gpu.SameID(s.VM, vm) {
			continue
		}
		switch s.Op { //nolint:exhaustive // the others do not need it off
		case OpAddAdapter:
			if does(OpRemoveAdapters) {
				note("the partition comes from another GPU")
			} else {
				note("a partition is added")
			}
		case OpRemoveAdapters:
			if !does(OpAddAdapter) {
				note("its partition is removed")
			}
		case OpSetQuotas:
			note("quotas change")
		case OpAddDevice:
			if s.Device.Pool != "" {
				note("GPUs of pool \"" + s.Device.Pool + "\" are added or removed")
			} else {
				note("GPUs are added or removed")
			}
		case OpRemoveDevices:
			if !does(OpAddDevice) {
				note("its whole GPUs are removed")
			}
		case OpVMSettings:
			if s.Settings.NeedOff() && (gives || !does(OpRemoveAdapters) && !does(OpRemoveDevices)) {
				note("memory-mapped IO space or cache types change")
			} else if s.Settings.NeedOff() {
				note("memory-mapped IO space or cache types are put back")
			}
		}
	}
	return why
}
