package rules

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

func checkVGPU(r *run) {
	c := r.plan.Want.Config
	if c == nil || c.VGPU == nil {
		return
	}
	never := func(h *gpu.Host, g *gpu.GPU) error {
		if h.Platform != gpu.Linux {
			return nil // kind-on-platform says it
		}
		_, err := placement.ResolveVGPU(g, c.VGPU)
		return err
	}
	refused := func(host string, h *gpu.Host) change.Refusals { return r.forecast(host, h).Refused }
	r.reportLayout(c, placement.VGPULayoutText(c.VGPU), never, refused, vgpuFinding)
}

// checkVGPUInUse adds to checkVGPU the GPUs that leave a config and cannot be put back.
func checkVGPUInUse(r *run) {
	checkVGPU(r)
	if !r.transition() {
		return
	}
	for host, f := range r.forecasts() {
		r.warnOfWatchers(host, f)
		r.reportNotRestored(host, f)
	}
}
