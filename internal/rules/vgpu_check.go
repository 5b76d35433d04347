package rules

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

func checkVGPU(r *run) {
	c := r.Plan.Want.Config
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
	refused := func(host string, h *gpu.Host) gpu.Refusals { return r.Forecast(host, h).Refused }
	reportLayout(r, c, placement.VGPULayoutText(c.VGPU), never, refused)
}

// checkVGPUInUse adds to checkVGPU the GPUs that leave a config and cannot be put back.
func checkVGPUInUse(r *run) {
	checkVGPU(r)
	if !r.Transition() {
		return
	}
	for host, f := range r.Forecasts() {
		warnOfWatchers(r, host, f)
		reportNotRestored(r, host, f)
	}
}
