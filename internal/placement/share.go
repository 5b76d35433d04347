package placement

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Isolation is what separates a share from others on its devices.
type Isolation string

// Isolations.
const (
	IsolationNone     Isolation = "none"
	IsolationMemory   Isolation = "memory" // own address spaces; faults are shared
	IsolationHardware Isolation = "hardware"
)

// Enforcement is what holds a share to its part.
type Enforcement string

// Enforcements.
const (
	EnforcementNone         Enforcement = "none"
	EnforcementPerProcess   Enforcement = "per_process" // two processes take double
	EnforcementPerContainer Enforcement = "per_container"
	EnforcementHardware     Enforcement = "hardware"
)

// ShareFacts are what a share is on the devices that it was placed on.
type ShareFacts struct {
	Mode        gpu.ShareMode
	Isolation   Isolation
	Enforcement Enforcement
	// Fraction is how many GPUs it counts for, by its devices together.
	Fraction float64
}

// DescribeShare tells what a share is on its devices, by the layouts that the host's
// claims tell. A share that is not placed has no mode.
func DescribeShare(h *gpu.Host, s *gpu.Share) ShareFacts {
	f := ShareFacts{Isolation: IsolationNone, Enforcement: EnforcementNone}
	for i, at := range s.Devices {
		d := PlacedDevice(h, at)
		f.Fraction += d.fraction(s)
		if i == 0 {
			f.Mode = d.Mode
			f.Isolation = d.isolation()
			f.Enforcement = d.Enforcement(h, s)
		}
	}
	return f
}

// ShareModeOf is how a device is shared, by the layouts that the host's claims tell.
func ShareModeOf(h *gpu.Host, d gpu.SharedDevice) gpu.ShareMode {
	return modeIn(claimedConfig(h, d.GPU), d)
}

// PlacedDevice is a device that a share was placed on, also when the host has it no
// longer: a reboot loses GPU instances until they are put back.
func PlacedDevice(h *gpu.Host, at gpu.SharedDevice) *Device {
	g, ok := h.GPU(at.GPU)
	if !ok {
		g = &gpu.GPU{ID: at.GPU}
	}
	l := GPULayout{Config: claimedConfig(h, at.GPU)}
	if at.Instance == nil {
		return l.device(g, at, g.VRAM, 0)
	}
	in := newLayoutInstance(g, *at.Instance, 0, false)
	if g.MIG != nil {
		for i := range g.MIG.Instances {
			if have := &g.MIG.Instances[i]; have.Placement() == *at.Instance {
				in = newLayoutInstance(g, have.Placement(), have.Memory, false)
			}
		}
	}
	return l.device(g, at, in.Memory, in.slices)
}

// claimedConfig is the config whose claim covers a GPU, nil for none.
func claimedConfig(h *gpu.Host, gpuID string) *gpu.PartitionConfig {
	for i := range h.Claims {
		if c := &h.Claims[i]; c.Kind == gpu.ClaimConfig && c.Want.Config != nil && c.Covers(gpuID) {
			return c.Want.Config
		}
	}
	return nil
}

func (d *Device) isolation() Isolation {
	switch d.Mode {
	case gpu.ShareWholeGPU, gpu.ShareMIG:
		return IsolationHardware
	case gpu.ShareMPS:
		if catalog.IsolatesMPSClients(d.OnGPU.ComputeCapability) {
			return IsolationMemory
		}
	case gpu.ShareTimeSlicing:
	}
	return IsolationNone
}

// Enforcement is what holds a share on the device to its part.
func (d *Device) Enforcement(h *gpu.Host, s *gpu.Share) Enforcement {
	if d.Mode == gpu.ShareWholeGPU || d.Mode == gpu.ShareMIG {
		return EnforcementHardware
	}
	if s.MemoryLimit > 0 && limitsContainers(h, d) {
		return EnforcementPerContainer
	}
	if d.Mode == gpu.ShareMPS {
		if l := d.Config.MPS; s.ActiveThreadPercentage > 0 || s.MemoryLimit > 0 || l.ActiveThreadPercentage > 0 || l.PinnedMemoryLimit > 0 {
			return EnforcementPerProcess
		}
	}
	return EnforcementNone
}

// The first driver branch and container toolkit that hold a container to a memory limit.
var (
	limitingBranch  = []int{615}
	limitingToolkit = []int{1, 20, 1}
)

// limitsContainers tells whether driver and container toolkit hold a container as a whole
// to its memory limit. A GPU in MIG mode has no such limits.
func limitsContainers(h *gpu.Host, d *Device) bool {
	return d.Instance == nil && atLeast(d.OnGPU.Driver.Branch(), limitingBranch) && atLeast(h.ContainerToolkit, limitingToolkit)
}

// atLeast compares a version by its numbers, "1.20.1" or "v1.20.1-rc.1". One that is not
// known is too old.
func atLeast(version string, least []int) bool {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "-")
	parts := strings.Split(version, ".")
	have := make([]int, len(parts))
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return false
		}
		have[i] = n
	}
	return slices.Compare(have, least) >= 0
}

// ShareSpec is what the host hands to containers for a share that is placed.
func ShareSpec(h *gpu.Host, s *gpu.Share) (gpu.ShareSpec, error) {
	if len(s.Devices) == 0 {
		return gpu.ShareSpec{}, &ShareUnplacedError{Share: s.Name}
	}
	spec := gpu.ShareSpec{Name: s.Name, Devices: slices.Clone(s.Devices), MemoryRequest: s.MemoryRequest, MemoryLimit: s.MemoryLimit}
	first := PlacedDevice(h, s.Devices[0])
	for _, at := range s.Devices[1:] {
		if d := PlacedDevice(h, at); d.group != first.group {
			return gpu.ShareSpec{}, &ShareApartError{Share: s.Name, First: first.SharedDevice, Second: at, FirstMode: first.Mode, SecondMode: d.Mode}
		}
	}
	if first.Mode != gpu.ShareMPS {
		return spec, nil
	}
	spec.Daemon = daemonOf(first)
	spec.ActiveThreadPercentage, spec.ClientPriority = s.ActiveThreadPercentage, s.ClientPriority
	spec.PinnedMemoryLimit = s.MemoryLimit
	if most := first.Config.MPS.PinnedMemoryLimit; most > 0 {
		// A client may hold itself to less than its daemon does, never to more.
		spec.PinnedMemoryLimit = min(spec.PinnedMemoryLimit, most)
	}
	return spec, nil
}

// daemonOf is the name of the daemon that serves a device of mode MPS.
func daemonOf(d *Device) string {
	if d.Instance == nil {
		return daemonName(d.Config.ID, nil)
	}
	return daemonName(d.Config.ID, &d.SharedDevice)
}
