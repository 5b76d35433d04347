//go:build linux && cgo

package nvidia

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// session is an initialised NVML. What does not change while it lasts is read once.
type session struct {
	lib nvml.Interface
	has map[string]bool // by symbol
	// profiles are those of each GPU, and capabilities are CUDA's, by UUID.
	profiles     map[string][]profile
	capabilities map[string]string
	// known are the GPUs with their handles, nil until all were identified, and identities what
	// they are, by UUID. older are those before Hopper, and plain those without vGPUs.
	known      []device
	identities map[string]device
	older      map[string]bool
	plain      map[string]bool
	// seats are the numbers of GPU instances where they were seen last.
	places map[placeOnGPU]int
	driver string // "" until it was asked for
	// root is where the host's files are, opened are the minors of MIG's capability devices, and cores are the numbers of the
	// CPU cores by the kernel's numbers of their hardware threads; the last two are nil until they were asked for.
	root   string
	opened map[string]int
	cores  map[int]int
	// worn is true when a GPU was lost, which comes back in another session at best.
	worn bool
	// abandoned is true when a call of it hangs.
	abandoned atomic.Bool
}

// required are the functions without which there is no point in going on. All of them
// are in the oldest driver that is supported.
var required = []string{
	"nvmlErrorString", "nvmlShutdown", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
	"nvmlDeviceGetHandleByUUID",
	"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo",
	"nvmlDeviceGetArchitecture", "nvmlDeviceGetComputeMode", "nvmlDeviceGetEccMode", "nvmlDeviceGetPersistenceMode",
	"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v2",
	"nvmlDeviceGetMigMode", "nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
	"nvmlDeviceGetGpuInstances", "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceDestroy", "nvmlGpuInstanceGetInfo",
	"nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstances", "nvmlGpuInstanceCreateComputeInstance",
	"nvmlComputeInstanceDestroy", "nvmlComputeInstanceGetInfo_v2",
}

// oldest is the oldest driver branch that has all of them.
const oldest = "R470"

// open loads and initialises NVML, once.
func (b *Backend) open() (*session, error) {
	if b.session != nil {
		return b.session, nil
	}
	lib := nvml.New(nvml.WithLibraryPath(b.opt.Library))
	// Nothing may be called before this has succeeded: it would end the process.
	switch ret := lib.Init(); {
	case ret == nvml.SUCCESS:
	case ret != nvml.ERROR_LIBRARY_NOT_FOUND && b.lacksNodes():
		return nil, refuse(backend.Unavailable,
			"the NVIDIA kernel driver is loaded, and there is no /dev/nvidiactl: run nvidia-modprobe -c 0 -u, or, where gpu-agent runs in a "+
				"container, give it the device nodes of the GPUs")
	case ret == nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, refuse(backend.NotSupported,
			"the host has no NVIDIA driver: %s cannot be loaded; install the driver, or its libnvidia-ml package", b.opt.Library)
	case ret == nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, refuse(backend.Unavailable,
			"the NVIDIA kernel driver is not loaded, although its library is installed: modprobe nvidia, and look at dmesg")
	case ret == nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return nil, refuse(backend.Unavailable,
			"the library is of another version than the kernel driver that runs: the driver was upgraded; reload it, or reboot the host")
	default:
		return nil, failed("nvmlInit", ret)
	}
	s := &session{
		lib: lib, root: b.opt.Root, has: map[string]bool{}, profiles: map[string][]profile{}, capabilities: map[string]string{},
		identities: map[string]device{}, older: map[string]bool{}, plain: map[string]bool{}, places: map[placeOnGPU]int{},
	}
	if missing := slices.DeleteFunc(slices.Clone(required), func(symbol string) bool { return s.offers(symbol) }); len(missing) > 0 {
		_ = lib.Shutdown() // the first error counts
		return nil, refuse(backend.NotSupported, "the driver lacks %s; gpu-agent needs a driver of branch %s or newer",
			strings.Join(missing, ", "), oldest)
	}
	b.session = s
	return s, nil
}

// lacksNodes tells whether the kernel has the driver and /dev lacks what programs reach it by, for
// which NVML has several codes and no word.
func (b *Backend) lacksNodes() bool {
	_, unloaded := os.Stat(filepath.Join("/", b.opt.Root, "proc/driver/nvidia/version"))
	_, missing := os.Stat(filepath.Join("/", b.opt.Root, "dev/nvidiactl"))
	return unloaded == nil && errors.Is(missing, fs.ErrNotExist)
}

// hangUp lets go of the driver, as a reset of a GPU needs it.
func (b *Backend) hangUp() error {
	if b.session == nil {
		return nil
	}
	ret := b.session.lib.Shutdown()
	b.session = nil
	if ret != nvml.SUCCESS && ret != nvml.ERROR_UNINITIALIZED {
		return failed("nvmlShutdown", ret)
	}
	return nil
}

// attachedAnew forgets a GPU that the driver may have reset, and the handles of all.
func (s *session) attachedAnew(uuid string) {
	s.known = nil
	delete(s.identities, uuid)
}

// version is the driver's.
func (s *session) version() (string, error) {
	if s.driver == "" {
		version, ret := s.lib.SystemGetDriverVersion()
		if ret != nvml.SUCCESS {
			return "", failed("nvmlSystemGetDriverVersion", ret)
		}
		s.driver = version
	}
	return s.driver, nil
}

// needs refuses where the driver lacks a function.
func (s *session) needs(symbols ...string) error {
	if i := slices.IndexFunc(symbols, s.lacks); i >= 0 {
		return refuse(backend.NotSupported, "the driver lacks %s", symbols[i])
	}
	return nil
}

// offers tells whether the driver has functions.
func (s *session) offers(symbols ...string) bool { return !slices.ContainsFunc(symbols, s.lacks) }

func (s *session) lacks(symbol string) bool {
	known, asked := s.has[symbol]
	if !asked {
		known = s.lib.Extensions().LookupSymbol(symbol) == nil
		s.has[symbol] = known
	}
	return !known
}
