package simulated

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// SetMIGMode turns MIG mode on or off.
func (h *Host) SetMIGMode(ctx context.Context, gpuID string, on, reset bool) error {
	return h.do(ctx, call{op: OpSetMIGMode, gpu: gpuID}, func(r *record) error {
		return r.setMIGMode(gpuID, on, reset)
	})
}

// RefreshDevices has nothing to do: device nodes are not in an inventory.
func (h *Host) RefreshDevices(ctx context.Context) error {
	return h.do(ctx, call{op: OpRefreshDevices}, func(*record) error { return nil })
}

func (r *record) setMIGMode(gpuID string, on, reset bool) error {
	g, err := r.migGPU(gpuID)
	if err != nil {
		return err
	}
	m := g.MIG
	if m.Enabled == on {
		m.Pending = on // a mode that waits for a reset is taken back without one
		return nil
	}
	if err := g.idle(); err != nil {
		return err
	}
	if !m.NeedsReset {
		if !r.halfway {
			g.switchMode(on)
		}
		return nil
	}
	if !reset {
		return refuse(backend.InvalidState, "its MIG mode changes with a reset of the GPU, which is not allowed here")
	}
	if watchers := r.watchers(); len(watchers) > 0 {
		return refuse(backend.InUse, "it cannot be reset while it is kept open by unit %s", strings.Join(watchers, ", "))
	}
	if m.Pending = on; r.halfway {
		return nil
	}
	g.reset()
	return nil
}

// migFace adds what a GPU does with its MIG mode.
type migFace struct{ *gpu.GPU }

// profiles are those of the GPU, or of its model where the file does not tell them.
func (g migFace) profiles() []gpu.MIGProfile {
	if m, ok := catalog.Of(g.PCI, g.Model); len(g.MIG.Profiles) == 0 && ok && m.MIG != nil {
		return m.MIG.Profiles
	}
	return g.MIG.Profiles
}

// profile finds one of them, the zero value for none.
func (g migFace) profile(name string) (gpu.MIGProfile, bool) {
	return (&gpu.MIG{Profiles: g.profiles()}).Profile(name)
}

// migGPU finds a GPU that has Multi-Instance GPU.
func (r *record) migGPU(gpuID string) (migFace, error) {
	g, ok := r.GPU(gpuID)
	switch {
	case !ok:
		return migFace{}, refuse(backend.NotFound, "the host has no such GPU")
	case g.MIG == nil:
		return migFace{}, refuse(backend.NotSupported, "a %s has no Multi-Instance GPU", cmp.Or(g.Model, "GPU of this model"))
	}
	return migFace{g}, nil
}

// idle refuses when something keeps the mode of the GPU as it is.
func (g migFace) idle() error {
	var reasons []string
	if len(g.Processes) > 0 {
		reasons = append(reasons, "used by "+listProcesses(g.Processes))
	}
	if len(g.MIG.Instances) > 0 {
		reasons = append(reasons, "divided into "+listInstances(g.MIG.Instances))
	}
	if g.VGPU != nil && g.VGPU.FunctionsOn {
		reasons = append(reasons, "bound to its virtual functions")
	}
	if len(reasons) > 0 {
		return refuse(backend.InUse, "the GPU is %s", strings.Join(reasons, " and "))
	}
	return nil
}

func (g migFace) switchMode(on bool) {
	g.MIG.Enabled, g.MIG.Pending = on, on
	g.resetModes()
}

// reset ends what runs on the GPU, and brings a mode into force that waits for it.
func (g migFace) reset() {
	g.Processes = nil
	g.MIG.Instances = nil
	g.switchMode(g.MIG.Pending)
}

// resetModes puts the compute mode and the time slice back, if they are known at all.
func (g migFace) resetModes() {
	if g.ComputeMode != "" {
		g.ComputeMode = gpu.ComputeDefault
	}
	if g.TimeSlice != "" {
		g.TimeSlice = gpu.TimeSliceDefault
	}
}

func isInMIG(g *gpu.GPU) bool { return g.MIG != nil && g.MIG.Enabled }

func listProcesses(processes []gpu.Process) string {
	words := make([]string, len(processes))
	for i, p := range processes {
		words[i] = fmt.Sprintf("process %d", p.PID)
		if about := slices.DeleteFunc([]string{p.Name, p.Holder}, func(s string) bool { return s == "" }); len(about) > 0 {
			words[i] += " (" + strings.Join(about, ", ") + ")"
		}
	}
	return strings.Join(words, ", ")
}

func listInstances(instances []gpu.GPUInstance) string {
	words := make([]string, len(instances))
	for i := range instances {
		words[i] = placeText(instances[i].Placement())
	}
	return strings.Join(words, ", ")
}

func placeText(p gpu.MIGPlacement) string { return fmt.Sprintf("%s@%d", p.Profile, p.Start) }
