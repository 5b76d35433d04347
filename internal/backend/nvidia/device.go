//go:build linux && cgo

package nvidia

import (
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// device is a GPU and its handle, which lasts as long as the session and no reset.
type device struct {
	gpu.GPU
	handle nvml.Device
	bus    string // as NVML writes it
}

// devices are the GPUs that the driver lists. One that has fallen off the bus keeps its
// UUID, and has a problem instead of anything else.
func (s *session) devices() ([]*device, error) {
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, failed("nvmlDeviceGetCount", ret)
	}
	var out []*device
	for i := range count {
		h, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			out = append(out, &device{GPU: gpu.GPU{ID: fmt.Sprintf("unknown-%d", i), Vendor: vendor, Problem: fmt.Sprint(failed("nvmlDeviceGetHandleByIndex", ret))}})
			continue
		}
		d := &device{handle: h}
		if d.ID, ret = h.GetUUID(); ret != nvml.SUCCESS {
			d.ID, d.Problem, d.handle = fmt.Sprintf("unknown-%d", i), fmt.Sprint(failed("nvmlDeviceGetUUID", ret)), nil
		}
		out = append(out, d)
	}
	return out, nil
}

// byUUID finds a GPU.
func (s *session) byUUID(uuid string) (*device, error) {
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

// read fills in what the GPU is. What cannot be read becomes its problem: one GPU that
// does not work must not hide the others.
func (d *device) read(driver gpu.Driver) {
	d.Vendor, d.Driver = vendor, driver
	if d.handle == nil {
		return
	}
	note := func(call string, ret nvml.Return) bool {
		if ret != nvml.SUCCESS && d.Problem == "" {
			d.Problem = failed(call, ret).Error()
		}
		return ret == nvml.SUCCESS
	}
	name, ret := d.handle.GetName()
	if note("nvmlDeviceGetName", ret) {
		d.Model = name
	}
	if pci, ret := d.handle.GetPciInfo(); note("nvmlDeviceGetPciInfo", ret) {
		d.bus = text(pci.BusId[:])
		d.Address = address(d.bus)
		d.PCI = gpu.PCIID{
			Vendor: fmt.Sprintf("%04X", pci.PciDeviceId&0xffff), Device: fmt.Sprintf("%04X", pci.PciDeviceId>>16),
			Subsystem: fmt.Sprintf("%08X", pci.PciSubSystemId),
		}
		if m, ok := catalog.ByPCI(d.PCI); ok {
			d.Model = m.Name
		}
	}
	if memory, ret := d.handle.GetMemoryInfo(); note("nvmlDeviceGetMemoryInfo", ret) {
		d.VRAM = gpu.Bytes(memory.Total)
	}
	if mode, ret := d.handle.GetComputeMode(); ret == nvml.SUCCESS {
		d.ComputeMode = computeModes[mode]
	}
	if ecc, _, ret := d.handle.GetEccMode(); ret == nvml.SUCCESS {
		d.ECC = new(ecc == nvml.FEATURE_ENABLED)
	}
	if kept, ret := d.handle.GetPersistenceMode(); ret == nvml.SUCCESS {
		d.Persistence = new(kept == nvml.FEATURE_ENABLED)
	}
}

var computeModes = map[nvml.ComputeMode]gpu.ComputeMode{
	nvml.COMPUTEMODE_DEFAULT: gpu.ComputeDefault, nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: gpu.ComputeExclusiveProcess, nvml.COMPUTEMODE_PROHIBITED: gpu.ComputeProhibited,
}

// computeCapability is CUDA's of a GPU, "" where it cannot be told.
func (s *session) computeCapability(d *device) string {
	if known, asked := s.capabilities[d.ID]; asked || d.handle == nil || !s.offers("nvmlDeviceGetCudaComputeCapability") {
		return known
	}
	major, minor, ret := d.handle.GetCudaComputeCapability()
	if ret != nvml.SUCCESS {
		return ""
	}
	s.capabilities[d.ID] = fmt.Sprintf("%d.%d", major, minor)
	return s.capabilities[d.ID]
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

// address is a PCI address as the kernel writes it: NVML has eight digits for the
// domain, and capitals.
func address(bus string) string {
	a := strings.ToLower(bus)
	if domain, rest, ok := strings.Cut(a, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		return domain[4:] + ":" + rest
	}
	return a
}

// needsReset tells whether a change of MIG mode takes a reset. It does before Hopper.
func (d *device) needsReset() (bool, error) {
	arch, ret := d.handle.GetArchitecture()
	if ret != nvml.SUCCESS {
		return false, failed("nvmlDeviceGetArchitecture", ret)
	}
	return arch < nvml.DEVICE_ARCH_HOPPER, nil
}

// fill reads what uses the GPU and how it is divided.
func (b *Backend) fill(s *session, d *device) error {
	if d.handle == nil || d.Problem != "" {
		return nil
	}
	var err error
	d.Processes, err = b.processes(s, d)
	if isReturn(err, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_GPU_IS_LOST) {
		d.Problem = err.Error() // it stays so until somebody acts, and must not hide the others
		return nil
	}
	if err != nil {
		return err
	}
	current, pending, ret := d.handle.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil
	}
	if ret != nvml.SUCCESS {
		return failed("nvmlDeviceGetMigMode", ret)
	}
	mig := &gpu.MIG{Enabled: current == nvml.DEVICE_MIG_ENABLE, Pending: pending == nvml.DEVICE_MIG_ENABLE}
	if mig.NeedsReset, err = d.needsReset(); err != nil {
		return err
	}
	profiles, err := s.profilesOf(d)
	if err != nil {
		return err
	}
	for _, p := range profiles {
		p.Starts = slices.Clone(p.Starts) // the session keeps its own
		mig.Profiles = append(mig.Profiles, p.MIGProfile)
	}
	if len(mig.Profiles) == 0 {
		// Drivers before R550 tell them in MIG mode only.
		if table, ok := catalogTable(d.PCI); ok {
			mig.Profiles = table.Profiles
		}
	}
	if mig.Enabled {
		instances, err := s.instances(d, profiles)
		if err != nil {
			return err
		}
		for _, i := range instances {
			mig.Instances = append(mig.Instances, i.GPUInstance)
		}
	}
	d.MIG = mig
	return nil
}
