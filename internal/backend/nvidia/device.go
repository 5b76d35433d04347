//go:build linux && cgo

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// device is a GPU and its handle, which lasts as long as the session and no reset.
type device struct {
	gpu.GPU
	handle nvml.Device
	// unknown is what could not be read of it, and lost tells that it has fallen off the bus.
	unknown []gpu.Unknown
	lost    bool
}

// lacks notes what could not be read of the GPU, which is its problem and nobody else's.
func (d *device) lacks(err error) {
	if err == nil {
		return
	}
	d.lost = d.lost || isReturn(err, nvml.ERROR_GPU_IS_LOST)
	d.unknown = append(d.unknown, gpu.Unknown{Part: gpu.PartGPUs, GPU: d.ID, Why: err.Error()})
	if d.Problem == "" {
		d.Problem = err.Error()
	}
}

// inspectInTime is inspect for a GPU that may hang, which is its problem as well. What hangs
// keeps the device and the session that it was given.
func (b *Backend) inspectInTime(ctx context.Context, s *session, d *device, driver string) (*device, error) {
	dark := &device{GPU: gpu.GPU{ID: d.ID, Vendor: vendor, Driver: gpu.Driver{Version: driver}}}
	if why, hangs := b.silent.Load(d.ID); hangs {
		dark.lacks(fmt.Errorf("%v", why))
		return dark, nil
	}
	if d.handle == nil {
		return d, b.inspect(ctx, s, d, driver)
	}
	why := fmt.Sprintf(
		"the GPU has not answered within %s, and the driver may hang: see dmesg for its Xid errors, and reset it or reboot the host",
		b.opt.Patience)
	b.silent.Store(d.ID, why)
	done := make(chan error, 1)
	go func() {
		err := b.inspect(ctx, s, d, driver)
		b.silent.Delete(dark.ID)
		done <- err
	}()
	timer := time.NewTimer(b.opt.Patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return d, err
	case <-timer.C:
	case <-ctx.Done():
	}
	s.abandoned.Store(true)
	dark.lacks(errors.New(why))
	return dark, nil
}

// inspect reads all of a GPU. The error is the driver's own.
func (b *Backend) inspect(ctx context.Context, s *session, d *device, driver string) error {
	d.Driver = gpu.Driver{Version: driver}
	s.read(d)
	if d.handle == nil {
		return nil
	}
	var err error
	d.ComputeCapability, err = s.computeCapability(d)
	for _, read := range []func() error{
		func() error { return err },
		func() (err error) { d.MIG, err = s.readMIG(d); return },
		func() (err error) {
			d.Processes, err = b.processes(s, d, d.MIG == nil || !d.MIG.Enabled || s.drawsInMIGMode(d))
			return
		},
		func() (err error) { d.VGPU, err = b.readVGPU(ctx, s, d); return },
	} {
		if s.abandoned.Load() {
			return nil // it hung, and nobody waits for it any more
		}
		err := read()
		if isStale(err) {
			return err
		}
		d.lacks(err)
	}
	return nil
}

// devices are the GPUs that the driver lists. One that has fallen off the bus keeps its
// UUID, and has a problem instead of anything else.
func (s *session) devices() (out []*device, err error) {
	if s.known != nil {
		for _, d := range s.known {
			out = append(out, &d)
		}
		return out, nil
	}
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, failed("nvmlDeviceGetCount", ret)
	}
	var all []device
	for i := range count {
		h, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			if err := s.unidentified(&out, i, failed("nvmlDeviceGetHandleByIndex", ret)); err != nil {
				return nil, err
			}
			continue
		}
		d := &device{handle: h}
		if d.ID, ret = h.GetUUID(); ret != nvml.SUCCESS {
			if err := s.unidentified(&out, i, failed("nvmlDeviceGetUUID", ret)); err != nil {
				return nil, err
			}
			continue
		}
		out, all = append(out, d), append(all, *d)
	}
	if len(all) == count {
		s.known = all
	}
	return out, nil
}

// unidentified adds a GPU that does not tell its UUID. The error is the driver's own.
func (s *session) unidentified(to *[]*device, index int, err error) error {
	if isStale(err) {
		return err
	}
	d := &device{GPU: gpu.GPU{ID: gpu.Unidentified + strconv.Itoa(index), Vendor: vendor}}
	d.lacks(err)
	*to = append(*to, d)
	return nil
}

// byUUID finds a GPU.
func (s *session) byUUID(uuid string) (*device, error) {
	for _, d := range s.known {
		if gpu.SameID(d.ID, uuid) {
			return &d, nil
		}
	}
	h, ret := s.lib.DeviceGetHandleByUUID(uuid)
	switch ret {
	case nvml.SUCCESS:
		return &device{GPU: gpu.GPU{ID: uuid}, handle: h}, nil
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT:
	default:
		return nil, failed("nvmlDeviceGetHandleByUUID", ret)
	}
	all, err := s.devices() // NVML compares with case
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if gpu.SameID(d.ID, uuid) && d.handle != nil {
			return d, nil
		}
	}
	return nil, refuse(backend.NotFound, "the host has no such GPU")
}

const vendor = "NVIDIA"

// note tells whether a call has answered. What cannot be read becomes the problem of its GPU: one
// that does not work must not hide the others.
func (d *device) note(call string, ret nvml.Return) bool {
	if ret != nvml.SUCCESS {
		d.lacks(failed(call, ret))
	}
	return ret == nvml.SUCCESS
}

// has is note for what not every GPU has.
func (d *device) has(call string, ret nvml.Return) bool {
	return ret != nvml.ERROR_NOT_SUPPORTED && d.note(call, ret)
}

// read fills in what the GPU is, and its modes.
func (s *session) read(d *device) {
	s.identify(d)
	if d.handle == nil {
		return
	}
	if mode, ret := d.handle.GetComputeMode(); d.has("nvmlDeviceGetComputeMode", ret) {
		d.ComputeMode = computeModes[mode]
	}
	if kept, ret := d.handle.GetPersistenceMode(); d.has("nvmlDeviceGetPersistenceMode", ret) {
		d.Persistence = new(kept == nvml.FEATURE_ENABLED)
	}
}

// identify fills in what the GPU is. That lasts until it is reset, which the open session keeps
// others from; the mode of ECC, too, changes with a reset.
func (s *session) identify(d *device) {
	d.Vendor = vendor
	if d.handle == nil {
		return
	}
	if is, known := s.identities[d.ID]; known {
		d.Model, d.Address, d.PCI, d.VRAM, d.ECC = is.Model, is.Address, is.PCI, is.VRAM, is.ECC
		d.Minor, d.Cores, d.NUMANode, d.NVLinks = is.Minor, is.Cores, is.NUMANode, slices.Clone(is.NVLinks)
		return
	}
	name, ret := d.handle.GetName()
	if d.has("nvmlDeviceGetName", ret) {
		d.Model = name
	}
	if pci, ret := d.handle.GetPciInfo(); d.has("nvmlDeviceGetPciInfo", ret) {
		d.Address = addressOf(pci)
		d.PCI = gpu.PCIID{
			Vendor: fmt.Sprintf("%04X", pci.PciDeviceId&0xffff), Device: fmt.Sprintf("%04X", pci.PciDeviceId>>16),
			Subsystem: fmt.Sprintf("%08X", pci.PciSubSystemId),
		}
		if m, ok := catalog.ByPCI(d.PCI); ok && d.Model == "" {
			d.Model = m.Name
		}
	}
	if memory, ret := d.handle.GetMemoryInfo(); d.has("nvmlDeviceGetMemoryInfo", ret) { // not where it is the system's
		d.VRAM = gpu.Bytes(memory.Total)
	}
	if ecc, _, ret := d.handle.GetEccMode(); d.has("nvmlDeviceGetEccMode", ret) {
		d.ECC = new(ecc == nvml.FEATURE_ENABLED)
	}
	s.surround(d)
	if len(d.unknown) == 0 {
		s.identities[d.ID] = *d
	}
}

var computeModes = map[nvml.ComputeMode]gpu.ComputeMode{
	nvml.COMPUTEMODE_DEFAULT: gpu.ComputeDefault, nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: gpu.ComputeExclusiveProcess,
	nvml.COMPUTEMODE_PROHIBITED: gpu.ComputeProhibited,
}

// computeCapability is CUDA's of a GPU, "" where it cannot be told.
func (s *session) computeCapability(d *device) (string, error) {
	if known, asked := s.capabilities[d.ID]; asked || d.handle == nil || !s.offers("nvmlDeviceGetCudaComputeCapability") {
		return known, nil
	}
	major, minor, ret := d.handle.GetCudaComputeCapability()
	switch ret {
	case nvml.SUCCESS:
		s.capabilities[d.ID] = fmt.Sprintf("%d.%d", major, minor)
		return s.capabilities[d.ID], nil
	case nvml.ERROR_NOT_SUPPORTED:
		return "", nil
	}
	return "", failed("nvmlDeviceGetCudaComputeCapability", ret)
}

// text is a C string.
func text(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// addressOf is a PCI address as the kernel writes it.
func addressOf(pci nvml.PciInfo) string {
	bus := text(pci.BusId[:])
	if a, err := vgpu.Address(bus); err == nil {
		return a
	}
	return bus
}

// needsReset tells whether a change of MIG mode takes a reset. It does before Hopper.
func (s *session) needsReset(d *device) (bool, error) {
	if known, asked := s.older[d.ID]; asked {
		return known, nil
	}
	arch, ret := d.handle.GetArchitecture()
	if ret != nvml.SUCCESS {
		return false, failed("nvmlDeviceGetArchitecture", ret)
	}
	s.older[d.ID] = arch < nvml.DEVICE_ARCH_HOPPER
	return s.older[d.ID], nil
}

// readMIG reads how a GPU is divided, nil where it cannot be: all of it or nothing, since one
// that lacked instances would look free.
func (s *session) readMIG(d *device) (*gpu.MIG, error) {
	current, pending, ret := d.handle.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil, nil
	}
	if ret != nvml.SUCCESS {
		return nil, failed("nvmlDeviceGetMigMode", ret)
	}
	mig := &gpu.MIG{Enabled: current == nvml.DEVICE_MIG_ENABLE, Pending: pending == nvml.DEVICE_MIG_ENABLE}
	var err error
	if mig.NeedsReset, err = s.needsReset(d); err != nil {
		return nil, err
	}
	profiles, err := s.profilesOf(d)
	if err != nil {
		return nil, err
	}
	for _, p := range profiles {
		p.Starts = slices.Clone(p.Starts) // the session keeps its own
		mig.Profiles = append(mig.Profiles, p.MIGProfile)
	}
	if len(mig.Profiles) == 0 {
		// Drivers before R550 tell them in MIG mode only.
		if table, ok := catalogTable(d); ok {
			mig.Profiles = table.Profiles
		}
	}
	if !mig.Enabled {
		return mig, nil
	}
	instances, err := s.instances(d, profiles)
	if err != nil {
		return nil, err
	}
	for i := range instances {
		s.numberCapabilities(d, &instances[i].GPUInstance)
		mig.Instances = append(mig.Instances, instances[i].GPUInstance)
	}
	return mig, nil
}
