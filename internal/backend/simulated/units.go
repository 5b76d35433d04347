package simulated

import (
	"context"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Unit is a systemd unit of a Linux host. The host's "units" lists those that run.
type Unit struct {
	// HoldsGPUs units keep all GPUs open while they run, as DCGM and
	// nvidia-persistenced do, so that none can be reset.
	HoldsGPUs bool `json:"holds_gpus,omitempty"`
	// Disabled units are not started at boot.
	Disabled bool `json:"disabled,omitempty"`
}

// StopUnit stops a systemd unit.
func (h *Host) StopUnit(ctx context.Context, name string) error {
	return h.do(ctx, call{op: OpStopUnit, unit: unitName(name)}, func(r *record) error {
		return r.setUnit(unitName(name), false)
	})
}

// StartUnit starts a systemd unit.
func (h *Host) StartUnit(ctx context.Context, name string) error {
	return h.do(ctx, call{op: OpStartUnit, unit: unitName(name)}, func(r *record) error {
		return r.setUnit(unitName(name), true)
	})
}

// unitTypes are the suffixes of unit names.
var unitTypes = []string{
	".service", ".socket", ".timer", ".target", ".path", ".mount", ".automount", ".swap", ".slice", ".scope", ".device",
}

// unitName is the whole name of a unit. One without a suffix is a service's.
func unitName(name string) string {
	if slices.ContainsFunc(unitTypes, func(t string) bool { return strings.HasSuffix(name, t) }) {
		return name
	}
	return name + ".service"
}

// setUnit starts or stops a unit that the host has.
func (r *record) setUnit(name string, run bool) error {
	_, known := r.Simulation.Units[name]
	runs := slices.Contains(r.Units, name)
	switch {
	case !known && !runs:
		return refuse(backend.NotFound, "the host has no unit %s", name)
	case runs == run:
		return nil
	case run:
		r.Units = append(r.Units, name)
		slices.Sort(r.Units)
		return nil
	}
	r.Units = slices.DeleteFunc(r.Units, func(u string) bool { return u == name })
	if !known { // else it would be forgotten with the list of those that run
		r.keepUnit(name, Unit{})
	}
	r.EndProcesses(func(p gpu.Process) bool { return p.Holder == "unit "+name })
	return nil
}

func (r *record) keepUnit(name string, u Unit) {
	if r.Simulation.Units == nil {
		r.Simulation.Units = map[string]Unit{}
	}
	r.Simulation.Units[name] = u
}

// watchers are the units that keep the GPUs open now.
func (r *record) watchers() []string {
	return slices.DeleteFunc(slices.Clone(r.Units), func(name string) bool { return !r.Simulation.Units[name].HoldsGPUs })
}
