//go:build linux && cgo

package nvidia

import (
	"context"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// library is the session to the package vgpu. Its methods run within a call of the
// backend, which has the lock.
type library struct{ b *Backend }

// VGPU is what NVML knows of the GPU at a PCI address. Of MIG it tells the modes only.
func (l library) VGPU(_ context.Context, address string) (vgpu.Facts, error) {
	s, d, err := l.at(address)
	if err != nil {
		return vgpu.Facts{}, err
	}
	facts := vgpu.Facts{UUID: d.ID}
	if facts.Types, err = s.vgpuTypes(d); err != nil {
		return facts, err
	}
	if facts.Processes, err = l.b.processes(s, d, true); err != nil {
		return facts, err
	}
	if current, pending, ret := d.handle.GetMigMode(); ret == nvml.SUCCESS {
		facts.MIG = &gpu.MIG{Enabled: current == nvml.DEVICE_MIG_ENABLE, Pending: pending == nvml.DEVICE_MIG_ENABLE}
	}
	if !s.offers("nvmlDeviceGetVgpuHeterogeneousMode", "nvmlDeviceSetVgpuHeterogeneousMode") {
		return facts, nil
	}
	switch mode, ret := d.handle.GetVgpuHeterogeneousMode(); ret {
	case nvml.SUCCESS:
		facts.Heterogeneous = vgpu.Heterogeneous{Supported: true, Enabled: mode.Mode == uint32(nvml.FEATURE_ENABLED)}
	case nvml.ERROR_NOT_SUPPORTED:
	default:
		return facts, failed("nvmlDeviceGetVgpuHeterogeneousMode", ret)
	}
	return facts, nil
}

// SetHeterogeneous turns the mode of mixed frame buffer sizes on or off.
func (l library) SetHeterogeneous(_ context.Context, address string, on bool) error {
	s, d, err := l.at(address)
	if err != nil {
		return err
	}
	if err := s.needs("nvmlDeviceSetVgpuHeterogeneousMode"); err != nil {
		return err
	}
	mode := nvml.VgpuHeterogeneousMode{Mode: uint32(nvml.FEATURE_DISABLED)}
	if on {
		mode.Mode = uint32(nvml.FEATURE_ENABLED)
	}
	if ret := d.handle.SetVgpuHeterogeneousMode(mode); ret != nvml.SUCCESS {
		return failed("nvmlDeviceSetVgpuHeterogeneousMode", ret)
	}
	return nil
}

// Suspend lets go of the driver, which unbinds no GPU that a process has open.
func (l library) Suspend(context.Context) (func(context.Context) error, error) {
	if err := l.b.hangUp(); err != nil {
		return nil, err
	}
	return func(context.Context) error {
		_, err := l.b.open()
		return err
	}, nil
}

// at finds the GPU at a PCI address as the kernel writes it.
func (l library) at(address string) (*session, *device, error) {
	s, err := l.b.open()
	if err != nil {
		return nil, nil, err
	}
	all, err := s.devices()
	if err != nil {
		return nil, nil, err
	}
	for _, d := range all {
		if d.handle == nil {
			continue
		}
		if pci, ret := d.handle.GetPciInfo(); ret == nvml.SUCCESS && addressOf(pci) == address {
			s.identify(d)
			return s, d, nil
		}
	}
	return nil, nil, refuse(backend.NotFound, "the driver lists no GPU at %s", address)
}

// vgpuTypes are the types that a GPU offers, whatever is in use. There are none with a
// driver that is not the vGPU Manager's.
func (s *session) vgpuTypes(d *device) ([]vgpu.Type, error) {
	if s.plain[d.ID] || !s.offers("nvmlDeviceGetSupportedVgpus", "nvmlVgpuTypeGetName", "nvmlVgpuTypeGetFramebufferSize",
		"nvmlVgpuTypeGetMaxInstances") {
		return nil, nil
	}
	ids, ret := d.handle.GetSupportedVgpus()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		s.plain[d.ID] = true
		return nil, nil
	}
	if ret != nvml.SUCCESS {
		return nil, failed("nvmlDeviceGetSupportedVgpus", ret)
	}
	out := make([]vgpu.Type, len(ids))
	for i, id := range ids {
		var err error
		if out[i], err = s.vgpuType(d, id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *session) vgpuType(d *device, id nvml.VgpuTypeId) (vgpu.Type, error) {
	t := vgpu.Type{ID: int(id.GetID())}
	name, ret := id.GetName()
	if ret != nvml.SUCCESS {
		return t, failed("nvmlVgpuTypeGetName", ret)
	}
	memory, ret := id.GetFramebufferSize()
	if ret != nvml.SUCCESS {
		return t, failed("nvmlVgpuTypeGetFramebufferSize", ret)
	}
	most, ret := id.GetMaxInstances(d.handle)
	if ret != nvml.SUCCESS {
		return t, failed("nvmlVgpuTypeGetMaxInstances", ret)
	}
	t.Name, t.FrameBuffer, t.Max = name, gpu.Bytes(memory), most
	if s.offers("nvmlVgpuTypeGetMaxInstancesPerVm") {
		if n, ret := id.GetMaxInstancesPerVm(); ret == nvml.SUCCESS {
			t.MaxPerVM = n
		}
	}
	var err error
	t.Instance, err = s.migProfileOf(d, id, t)
	return t, err
}

// migProfileOf names the GPU instance profile that a MIG-backed type lives in; "" is that
// of a time-sliced one.
func (s *session) migProfileOf(d *device, id nvml.VgpuTypeId, t vgpu.Type) (string, error) {
	number := uint32(noInstance)
	if s.offers("nvmlVgpuTypeGetGpuInstanceProfileId") {
		if p, ret := id.GetGpuInstanceProfileId(); ret == nvml.SUCCESS {
			number = p
		}
	}
	if number == noInstance {
		if t.MIGBacked() {
			return "a MIG instance", nil // by its name; the driver does not tell which
		}
		return "", nil
	}
	known, err := s.profilesOf(d)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(known, func(p profile) bool { return p.ID == int(number) }); i >= 0 {
		return known[i].Name, nil
	}
	// Drivers before R550 tell them in MIG mode only.
	if table, ok := catalogTable(d); ok {
		for _, p := range table.Profiles {
			if p.ID == int(number) {
				return p.Name, nil
			}
		}
	}
	return fmt.Sprintf("profile %d", number), nil
}

// shareInstances switches the driver's MIG time-sliced mode on for a type of which a GPU instance takes several.
// NVML says that the mode changes what is reported and not how vGPUs work: nothing puts it back, and a driver
// without it needs none (assumption linux-vgpu-mig-time-slicing).
func (b *Backend) shareInstances(address string, t vgpu.Type) error {
	s, d, err := library{b}.at(address)
	if err != nil {
		return err
	}
	shares, err := s.severalInInstance(d, t)
	if err != nil || !shares || !s.offers("nvmlDeviceGetVgpuCapabilities", "nvmlDeviceSetVgpuCapabilities") {
		return err
	}
	const mode = nvml.DEVICE_VGPU_CAP_MIG_TIMESLICING_ENABLED
	has := func(c nvml.DeviceVgpuCapability) bool {
		yes, ret := d.handle.GetVgpuCapabilities(c)
		return ret == nvml.SUCCESS && yes
	}
	if !has(nvml.DEVICE_VGPU_CAP_MIG_TIMESLICING_SUPPORTED) || has(mode) {
		return nil
	}
	if ret := d.handle.SetVgpuCapabilities(mode, nvml.FEATURE_ENABLED); ret != nvml.SUCCESS {
		return failed("nvmlDeviceSetVgpuCapabilities", ret)
	}
	return nil
}

// severalInInstance reports whether one GPU instance takes several vGPUs of a type.
func (s *session) severalInInstance(d *device, t vgpu.Type) (bool, error) {
	if !t.MIGBacked() {
		return false, nil
	}
	profiles, err := s.profilesOf(d)
	i := slices.IndexFunc(profiles, func(p profile) bool { return p.Name == t.Instance })
	return i >= 0 && profiles[i].Max > 0 && t.Max > profiles[i].Max, err
}
