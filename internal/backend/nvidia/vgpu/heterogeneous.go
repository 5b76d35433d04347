package vgpu

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

const opHeterogeneous = "set heterogeneous mode"

// SetHeterogeneous turns the mode of mixed frame buffer sizes on or off. The driver takes
// that only while the GPU has no vGPU.
func (h *Host) SetHeterogeneous(ctx context.Context, g *GPU, on bool) error {
	if g.Heterogeneous.Enabled == on {
		return nil
	}
	if h.NVML == nil || !g.Heterogeneous.Supported {
		return refuse(g.Address, opHeterogeneous, backend.NotSupported, "the GPU or its driver does not have the mode")
	}
	for _, f := range g.Functions {
		for _, v := range f.VGPUs {
			return refuse(g.Address, opHeterogeneous, backend.InUse, "%s has a %s; the mode changes only while the GPU has no vGPU",
				f.Address, v.Type.ShortName())
		}
	}
	if err := h.NVML.SetHeterogeneous(ctx, g.Address, on); err != nil {
		return failed(g.Address, opHeterogeneous, err, "the driver refused to turn it %s", onOff(on))
	}
	now, err := h.Read(ctx, g.Address)
	if err == nil && now.Heterogeneous.Enabled != on {
		err = refuse(g.Address, opHeterogeneous, backend.Failed, "the driver took the call, but the mode reads %s, wanted %s",
			onOff(now.Heterogeneous.Enabled), onOff(on))
	}
	return err
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
