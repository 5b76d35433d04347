package change

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Forecast is what a change does to one host, worked out by the code that does it.
type Forecast struct {
	Host string // the caller's name for it
	// On is the host as the change finds it.
	On *gpu.Host
	// Steps are also those of a change that the host refuses, as far as they are known.
	Steps   []Step
	Refused gpu.Refusals
	// Left is why GPUs of a config stay as they are while others are put right, and why GPUs are not mounted back.
	Left gpu.Refusals
	// Undrained is why the host is not to be drained, "" if nothing but itself is against it.
	Undrained string
	Effects
}

// Simulate asks the planner what a change does to a host, which carries the claims that other
// hosts hold for its VMs.
func Simulate(host gpu.Host, key string, ch Change) Forecast {
	p, err := planOn(host, key, ch)
	f := Forecast{Host: key, On: &host, Steps: p.steps, Left: p.left, Effects: EffectsOf(&host, p.steps)}
	errors.As(err, &f.Refused)
	for i := range f.GPUs {
		for _, r := range f.Refused {
			if gpu.SameID(r.GPU, f.GPUs[i].GPU) {
				f.GPUs[i].InTheWay = append(f.GPUs[i].InTheWay, r.By...)
			}
		}
	}
	return f
}

// Changes tells whether the host gets more than other claims.
func (f Forecast) Changes() bool {
	return slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Claim == nil })
}

// KeptOn is why a VM may not be stopped, nil where it may.
func (f Forecast) KeptOn(vm string) *gpu.Refusal {
	for _, r := range f.Refused {
		if r.VM != "" && gpu.SameID(r.VM, vm) {
			return r
		}
	}
	return nil
}

// Effects are what some steps do to a host and to what runs there.
type Effects struct {
	// Stops are the running VMs that are stopped, by name.
	Stops []Stop
	// GPUs are those that get another layout, in the order of the host.
	GPUs []GPUEffect
	// Ends are the clients of MPS that end, in words, and Ended the same with the GPU that each is on.
	Ends  []string
	Ended []EndedProcess
	// Drains is true when the node's running VMs move to other nodes meanwhile; Moves are the
	// names of those that do.
	Drains bool
	Moves  []string
	// Resets and Dismounts are the ids of the GPUs that are reset, and taken from the host.
	Resets, Dismounts []string
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

// EndedProcess is a client of MPS that ends, on a GPU.
type EndedProcess struct {
	gpu.Process
	GPU string
}

// StopNames are the names of the VMs that are shut down.
func (e Effects) StopNames() []string {
	return words.Each(e.Stops, func(s Stop) string { return s.Name })
}

// EffectsOf tells what steps do to a host, which is as it is before them.
func EffectsOf(host *gpu.Host, steps []Step) Effects {
	e := Effects{Class: gpu.DisruptNone, GPUs: gpuEffects(host, steps)}
	for _, s := range steps {
		if d := s.Disrupts(); d.Exceeds(e.Class) {
			e.Class = d
		}
		switch {
		case s.Op == OpDismount:
			e.Dismounts = append(e.Dismounts, s.GPU)
		case s.GPU != "" && s.Disrupts() == gpu.DisruptGPUReset:
			e.Resets = append(e.Resets, s.GPU)
		case s.Op == OpDrainNode:
			e.Drains, e.Moves = true, movable(host)
		case s.Op == OpStopVM:
			e.Stops = append(e.Stops, Stop{VM: s.VM, Name: s.VMName(), Why: whyOff(steps, s.VM)})
		case s.Op == OpStartVM:
			if i := slices.IndexFunc(e.Stops, func(o Stop) bool { return gpu.SameID(o.VM, s.VM) }); i >= 0 {
				e.Stops[i].Starts = true
			}
		case s.Disrupts() == gpu.DisruptProcessRestart:
			ends := s.ends(host)
			e.Ends = append(e.Ends, processTexts(ends)...)
			for _, p := range ends {
				e.Ended = append(e.Ended, EndedProcess{p, s.gpuOf(host, p)})
			}
		}
	}
	slices.SortFunc(e.Stops, func(a, b Stop) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.VM, b.VM)) })
	return e
}

// gpuOf is the GPU that a process is on which a step ends: that of its daemon or share, or, of several, the one that lists it.
func (s Step) gpuOf(host *gpu.Host, p gpu.Process) string {
	for i := range host.GPUs {
		if slices.ContainsFunc(host.GPUs[i].Processes, func(o gpu.Process) bool { return o.PID == p.PID }) {
			return host.GPUs[i].ID
		}
	}
	var devices []gpu.SharedDevice
	if s.Daemon != nil {
		if d, ok := host.Daemon(s.Daemon.Name); ok {
			devices = d.Devices
		}
	} else if c, ok := host.Claim(gpu.ClaimShare, s.Share.Name); ok && c.Want.Share != nil {
		devices = c.Want.Share.Devices
	}
	if len(devices) == 0 {
		return ""
	}
	return devices[0].GPU
}

// movable are the names of the VMs that a drain moves.
func movable(host *gpu.Host) []string {
	var out []string
	for i := range host.VMs {
		if vm := &host.VMs[i]; mayMove(vm) {
			out = append(out, cmp.Or(vm.Name, vm.ID))
		}
	}
	slices.Sort(out)
	return out
}

// NeedsOff tells whether the step's VM has to be off for it.
func (s Step) NeedsOff() bool {
	why := rows[s.Op].whyOff
	return why != nil && why(s, func(Op) bool { return false }) != ""
}

// whyOff says what steps do to a VM that needs it off.
func whyOff(steps []Step, vm string) []string {
	var why []string
	does := func(op Op) bool {
		return slices.ContainsFunc(steps, func(s Step) bool { return s.Op == op && gpu.SameID(s.VM, vm) })
	}
	for _, s := range steps {
		if of := rows[s.Op].whyOff; of != nil && gpu.SameID(s.VM, vm) {
			if text := of(s, does); text != "" && !slices.Contains(why, text) {
				why = append(why, text)
			}
		}
	}
	return why
}
