package simulated

import (
	"cmp"
	"context"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// SetVirtualFunctions turns the virtual functions of a GPU on or off.
func (h *Host) SetVirtualFunctions(ctx context.Context, gpuID string, on bool) error {
	return h.do(ctx, call{op: OpSetFunctions, gpu: gpuID}, func(r *record) error {
		return r.setFunctions(gpuID, on)
	})
}

// SetHeterogeneous turns the mode of mixed frame buffer sizes on or off.
func (h *Host) SetHeterogeneous(ctx context.Context, gpuID string, on bool) error {
	return h.do(ctx, call{op: OpSetHeterogeneous, gpu: gpuID}, func(r *record) error {
		return r.setHeterogeneous(gpuID, on)
	})
}

func (r *record) setFunctions(gpuID string, on bool) error {
	g, err := r.vgpuGPU(gpuID)
	if err != nil {
		return err
	}
	v := g.VGPU
	switch {
	case v.Functions == 0:
		return refuse(backend.NotSupported, "it has no SR-IOV: its vGPUs are made on the GPU itself")
	case v.FunctionsOn == on:
		return nil
	case len(v.Instances) > 0:
		return refuse(backend.InUse, "the GPU has vGPUs: %s", listVGPUs(v.Instances))
	case len(g.Processes) > 0:
		return refuse(backend.InUse, "the driver does not let go of the GPU, which is used by %s", listProcesses(g.Processes))
	}
	v.FunctionsOn, v.Taken = on, nil
	// The driver unbinds the GPU for it, in both directions.
	v.Heterogeneous = false
	if g.MIG != nil {
		g.MIG.Instances = nil
	}
	return nil
}

func (r *record) setHeterogeneous(gpuID string, on bool) error {
	g, err := r.vgpuGPU(gpuID)
	if err != nil {
		return err
	}
	v := g.VGPU
	switch {
	case v.Heterogeneous == on:
		return nil
	case !v.HeterogeneousSupported:
		return refuse(backend.NotSupported, "the GPU or its driver does not have the mode of mixed sizes")
	case isInMIG(g.GPU):
		return refuse(backend.NotSupported, "a GPU in MIG mode does not have the mode of mixed sizes")
	case len(v.Instances) > 0:
		return refuse(backend.InUse, "the mode changes only while the GPU has no vGPU, and it has %s", listVGPUs(v.Instances))
	}
	v.Heterogeneous = on
	return nil
}

// vgpuFace adds what a GPU does with vGPUs.
type vgpuFace struct {
	*gpu.GPU
	// mediated is true where vGPUs are mediated devices, which have a UUID.
	mediated bool
}

// vgpuGPU finds a GPU for which the host has a vGPU driver.
func (r *record) vgpuGPU(gpuID string) (vgpuFace, error) {
	g, ok := r.GPU(gpuID)
	switch {
	case !ok:
		return vgpuFace{}, refuse(backend.NotFound, "the host has no such GPU")
	case g.VGPU == nil:
		return vgpuFace{}, refuse(backend.NotSupported, "the host has no vGPU driver for its %s", cmp.Or(g.Model, "GPU of this model"))
	}
	return vgpuFace{g, g.VGPU.Functions == 0 || r.Simulation.hidden(g.ID).Mediated}, nil
}

func listVGPUs(instances []gpu.VGPUInstance) string {
	words := make([]string, len(instances))
	for i := range instances {
		words[i] = vgpuText(instances[i].VGPUPlace)
		if holder := instances[i].Holder; holder != "" {
			words[i] += " (held by " + holder + ")"
		}
	}
	return strings.Join(words, ", ")
}
