//go:build linux && cgo

package nvidia

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// fillSharing reads what the host has for processes and containers that share GPUs.
func (b *Backend) fillSharing(ctx context.Context, s *session, host *gpu.Host) {
	b.fillTimeSlices(ctx, host.GPUs)
	var err error
	host.MPS, err = b.readMPS(ctx, s, host.GPUs)
	lacks(host, gpu.PartDaemons, err)
	host.Shares, host.ForeignSpecs, err = b.shares.List()
	lacks(host, gpu.PartShares, err)
	host.ContainerToolkit = b.toolkitVersion(ctx)
}

// SetComputeMode says how many processes may use a GPU.
func (b *Backend) SetComputeMode(ctx context.Context, gpuID string, mode gpu.ComputeMode) error {
	return b.change(ctx, "set the compute mode", gpuID, func(s *session, d *device) error {
		want, err := computeMode(mode)
		if err != nil {
			return err
		}
		if err := d.isWhole(); err != nil {
			return err
		}
		have, ret := d.handle.GetComputeMode()
		switch {
		case ret != nvml.SUCCESS:
			return failed("nvmlDeviceGetComputeMode", ret)
		case have == want:
			return nil
		}
		if err := s.needs("nvmlDeviceSetComputeMode"); err != nil {
			return err
		}
		if ret := d.handle.SetComputeMode(want); ret != nvml.SUCCESS {
			return failed("nvmlDeviceSetComputeMode", ret)
		}
		if have, ret = d.handle.GetComputeMode(); ret != nvml.SUCCESS {
			return failed("nvmlDeviceGetComputeMode", ret)
		}
		if have != want {
			return refuse(backend.Failed, "the driver took the call, and the mode is %s", computeModes[have])
		}
		return nil
	})
}

func computeMode(mode gpu.ComputeMode) (nvml.ComputeMode, error) {
	for number, name := range computeModes {
		if name == mode {
			return number, nil
		}
	}
	return 0, refuse(backend.InvalidParameter, "%q is no compute mode: it is %s, %s or %s", mode, gpu.ComputeDefault,
		gpu.ComputeExclusiveProcess, gpu.ComputeProhibited)
}

// isWhole refuses a GPU in MIG mode, which is used by its instances.
func (d *device) isWhole() error {
	switch current, _, ret := d.handle.GetMigMode(); {
	case ret == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE:
		return refuse(backend.NotSupported, "the GPU is in MIG mode")
	case ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED:
		return failed("nvmlDeviceGetMigMode", ret)
	}
	return nil
}

// SetTimeSlice sets the length of a process's time slice.
func (b *Backend) SetTimeSlice(ctx context.Context, gpuID string, t gpu.TimeSlice) error {
	return b.change(ctx, "set the time slice", gpuID, func(_ *session, d *device) error {
		if err := d.isWhole(); err != nil {
			return err
		}
		_, err := b.intervals.Set(ctx, d.ID, t)
		return err
	})
}

// fillTimeSlices asks for the time slices of all GPUs at once. NVML has no function for it,
// and GPUs in MIG mode have none. Where they cannot be told they are not known.
func (b *Backend) fillTimeSlices(ctx context.Context, gpus []gpu.GPU) {
	whole := func(g *gpu.GPU) bool { return g.Problem == "" && (g.MIG == nil || !g.MIG.Enabled) }
	var all map[int]gpu.TimeSlice
	for i := range gpus {
		if !whole(&gpus[i]) {
			continue
		}
		if all == nil {
			var err error
			if all, err = b.intervals.ReadAll(ctx); err != nil {
				return
			}
		}
		gpus[i].TimeSlice = all[i]
	}
}
