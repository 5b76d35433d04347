package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

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
			err := r.vgpuFault(host, h, g, c)
			if err == nil {
				continue
			}
			f := vgpuFinding(err)
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
func (r *run) vgpuFault(host string, h *gpu.Host, g *gpu.GPU, c *gpu.PartitionConfig) error {
	if _, err := placement.ResolveVGPU(g, c.VGPU); err != nil || !r.transition() {
		return err
	}
	for _, why := range r.forecast(host, h).Refused {
		if gpu.SameID(why.GPU, g.ID) && why.Restores == "" {
			return why.Unwrap()
		}
	}
	return nil
}

// checkVGPUInUse adds to checkVGPU the GPUs that leave a config and cannot be put back.
func checkVGPUInUse(r *run) {
	checkVGPU(r)
	if !r.transition() {
		return
	}
	for host, f := range r.forecasts() {
		r.reportNotRestored(host, f)
	}
}
