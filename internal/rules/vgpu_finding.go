package rules

import (
	"errors"

	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// vgpuFinding words an error of LayOutVGPU or FollowVGPU as a finding of the rule that it
// violates. Who wants the layout, where and at which level is the caller's to add.
func vgpuFinding(err error) Finding {
	f := Finding{
		Rule: "vgpu-type-offered", Path: "vgpu", Title: "The GPU does not offer this type of vGPU",
		Found: sentence(err), Fix: "Write a type that the GPU offers, or leave it out of `selector`.",
	}
	var (
		unsupported *placement.VGPUUnsupportedError
		unknown     *placement.VGPUUnknownTypeError
		beside      *placement.VGPUBesideError
		profile     *placement.VGPUProfileError
		reset       *placement.VGPUResetError
		inUse       *placement.MIGInUseError
		mode        *placement.VGPUMIGModeError
		sizes       *placement.VGPUSizesError
		capacity    *placement.VGPUCapacityError
		count       *placement.VGPUCountError
		held        *placement.VGPUHeldError
		busy        *placement.VGPUBusyError
	)
	switch {
	case errors.As(err, &unsupported):
		f.Path, f.Title = "selector", "The GPU does not support vGPUs"
		f.Fix = "Install NVIDIA's vGPU driver on the host and enable SR-IOV in the server's firmware, or leave the GPU out of `selector`."
	case errors.As(err, &unknown): // as above
	case errors.As(err, &beside):
		f.Title, f.Fix = "These vGPUs cannot share a GPU", "Give each kind GPUs of its own, with a config for each."
	case errors.As(err, &profile):
		f.Title, f.Fix = "The GPU instance of this vGPU type is unknown", "Write a type that shares the GPU by time slices, or update the driver."
	case errors.As(err, &mode):
		f.Path, f.Title = "selector", "The GPU is in MIG mode"
		f.Fix = "Switch MIG mode off with a config of `mig = { enabled = false }`, or leave the GPU out of `selector`."
	case errors.As(err, &sizes):
		f.Rule, f.Title = "vgpu-same-framebuffer", "vGPUs of different sizes need heterogeneous mode"
		f.Fix = "Write types of one frame buffer size; their series (Q, A, B, C) may differ."
		if sizes.Supported {
			f.Fix = "Leave `heterogeneous` out or write true, or write types of one frame buffer size."
		} else if !sizes.Mixed {
			f.Title, f.Fix = "Heterogeneous mode is not supported", "Leave `heterogeneous` out."
		}
	case errors.As(err, &capacity), errors.As(err, &count):
		f.Rule, f.Title, f.Fix = "vgpu-capacity", "Too many vGPUs for the GPU", "Ask for fewer or smaller vGPUs."
		if capacity != nil && capacity.Untold {
			f.Title, f.Fix = "The number of vGPUs must be set", "Write `count`."
		}
	case errors.As(err, &held):
		f.Rule, f.Title = "vgpu-in-use", "vGPUs in use block the change"
		f.Fix = "Shut the VMs down and take the vGPUs from them, or keep these vGPUs in the layout. No setting removes a vGPU in use."
	case errors.As(err, &reset):
		f.Rule, f.Path, f.Title = "vgpu-in-use", "max_disruption", "The change of MIG mode resets GPUs"
		f.Fix = "Write `max_disruption = \"gpu_reset\"`, or leave the GPU out of `selector`."
	case errors.As(err, &inUse):
		f.Rule, f.Title = "vgpu-in-use", "GPU instances in use block the change"
		f.Fix = "Stop these first, or keep their instances. No setting removes an instance in use."
	case errors.As(err, &busy):
		f.Rule, f.Title = "vgpu-in-use", "Processes use GPUs whose virtual functions change"
		f.Fix = "Stop these processes first. A systemd unit that only watches GPUs can be named in `quiesce_units`: it is stopped for the change and started again."
	}
	return f
}
