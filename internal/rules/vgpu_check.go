package rules

import (
	"errors"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// VGPUChange is the change of one GPU's modes and vGPUs.
type VGPUChange struct {
	From gpu.VGPUState `json:"from"`
	To   gpu.VGPUState `json:"to"`
	// Keeps, Removes and Creates are vGPUs. For a change of mode all of them are removed,
	// and those that stay are made again.
	Keeps   []gpu.VGPUPlace `json:"keeps,omitempty"`
	Removes []gpu.VGPUPlace `json:"removes,omitempty"`
	Creates []gpu.VGPUPlace `json:"creates,omitempty"`
	// InTheWay are those that keep the change from being made: holders of vGPUs, and
	// processes.
	InTheWay []string `json:"in_the_way,omitempty"`
}

func newVGPUChange(g *gpu.GPU, p placement.VGPUPlan) *VGPUChange {
	return &VGPUChange{From: g.VGPU.State(), To: p.State(), Keeps: p.Keep, Removes: p.Remove, Creates: p.Create}
}

// wantVGPU works out what a config changes on a GPU; nil when it is as wanted. The error
// is that of a layout which the GPU cannot have, or not now.
func wantVGPU(g *gpu.GPU, c *gpu.PartitionConfig) (*VGPUChange, error) {
	if g.VGPU == nil || placement.HasVGPULayout(g, c.VGPU) {
		return nil, nil
	}
	p, err := placement.LayOutVGPU(g, c.VGPU, c.QuiesceUnits...)
	var busy *placement.VGPUBusyError
	if !errors.As(err, &busy) {
		if err != nil {
			return nil, err
		}
		return newVGPUChange(g, p), nil
	}
	idle := *g
	idle.Processes = nil
	if p, err = placement.LayOutVGPU(&idle, c.VGPU); err != nil {
		return nil, err
	}
	change := newVGPUChange(g, p)
	change.InTheWay = busy.By
	return change, nil
}

// restoreVGPU works out what puts a GPU back to what it was; nil when it still is so.
func restoreVGPU(g *gpu.GPU, before gpu.VGPUState, quiesced []string) *VGPUChange {
	if g.VGPU == nil {
		return nil
	}
	p, err := placement.FollowVGPU(g, before, quiesced...)
	if err == nil {
		if !p.Changes(g) {
			return nil
		}
		return newVGPUChange(g, p)
	}
	change := &VGPUChange{From: g.VGPU.State(), To: before}
	var (
		held *placement.VGPUHeldError
		busy *placement.VGPUBusyError
	)
	switch {
	case errors.As(err, &held):
		for i := range held.Held {
			change.InTheWay = append(change.InTheWay, held.Held[i].Holder)
		}
	case errors.As(err, &busy):
		change.InTheWay = busy.By
	default:
		change.InTheWay = []string{err.Error()}
	}
	return change
}

func checkVGPU(r *run) {
	c := r.plan.Want.Config
	if c == nil || c.VGPU == nil {
		return
	}
	byReason := map[string]*migFault{}
	for host, h := range r.hostsAtHand(c.GPUs) {
		if h.Platform != gpu.Linux {
			continue // kind-on-platform says it
		}
		for g := range selected(h, c.GPUs[host]) {
			err := r.vgpuFault(g, c)
			if err == nil {
				continue
			}
			f := VGPUFinding(err)
			if f.Rule != r.rule.ID {
				continue
			}
			reason := f.Title + "\x00" + f.Found
			if byReason[reason] == nil {
				byReason[reason] = &migFault{Finding: f}
			}
			byReason[reason].members = append(byReason[reason].members, member{host: host, gpu: g})
		}
	}
	for _, reason := range sortedKeys(byReason) {
		f := byReason[reason]
		f.Host, f.GPU = f.members[0].host, f.members[0].gpu.ID
		f.Found = fmt.Sprintf("%s Affected: %s.", f.Found, join(gpuTexts(f.members)))
		f.Wanted = fmt.Sprintf("%s wants on each GPU: %s.", r.label(), placement.VGPULayoutText(c.VGPU))
		r.report(f.Finding, keysOf("vgpu "+placement.VGPULayoutText(c.VGPU), f.members)...)
	}
}

// vgpuFault asks a GPU for the layout: what it can never have, and, of a plan that changes
// something, what those who use it now do not leave room for.
func (r *run) vgpuFault(g *gpu.GPU, c *gpu.PartitionConfig) error {
	if _, err := placement.ResolveVGPU(g, c.VGPU); err != nil || !r.transition() || placement.HasVGPULayout(g, c.VGPU) {
		return err
	}
	_, err := placement.LayOutVGPU(g, c.VGPU, c.QuiesceUnits...)
	return err
}

// checkVGPUInUse adds to checkVGPU the GPUs that leave a config and cannot be put back.
func checkVGPUInUse(r *run) {
	checkVGPU(r)
	if !r.transition() {
		return
	}
	for _, host := range r.configHosts() {
		h, ok := r.host(host)
		if !ok {
			continue
		}
		for _, change := range r.forecast(host, h, r.plan).GPUs {
			g, _ := h.GPU(change.GPU)
			if v := change.VGPU; v != nil && change.Restore && len(v.InTheWay) > 0 {
				r.report(Finding{
					Path:   "on_destroy",
					Title:  "The previous vGPUs cannot be restored",
					Host:   host,
					GPU:    g.ID,
					Found:  fmt.Sprintf("%s is in use: %s.", capital(gpuOn(host, g)), joinAll(v.InTheWay)),
					Wanted: fmt.Sprintf("%s leaves the GPU, which had %s before. Releasing a GPU never stops a VM or kills a process.", r.label(), placement.VGPUText(v.To)),
					Fix:    "Stop what uses it before the apply, or write `on_destroy = \"keep\"`.",
				}, key("vgpu restore", host, g.ID))
			}
		}
	}
}
