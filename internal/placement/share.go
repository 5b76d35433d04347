package placement

import (
	"slices"

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
	EnforcementAdvisory     Enforcement = "advisory"    // a process could unset it
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
			f.Enforcement = d.enforcement(h, s)
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
	in := newLayoutInstance(g, *at.Instance, 0, "")
	if g.MIG != nil {
		for i := range g.MIG.Instances {
			if have := &g.MIG.Instances[i]; have.Placement() == *at.Instance {
				in = newLayoutInstance(g, have.Placement(), have.Memory, "")
			}
		}
	}
	return l.device(g, at, in.Memory, in.slices)
}

// claimedConfig is the config whose claim covers a GPU, nil for none.
func claimedConfig(h *gpu.Host, gpuID string) *gpu.PartitionConfig {
	for c := range h.ClaimsOf(gpu.ClaimConfig) {
		if c.Want.Config != nil && c.Covers(gpuID) {
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

// enforcement is what holds a share on the device to its part: by what was handed to
// containers and by the daemon that runs, not by what they were meant to be.
func (d *Device) enforcement(h *gpu.Host, s *gpu.Share) Enforcement {
	if d.Mode == gpu.ShareWholeGPU || d.Mode == gpu.ShareMIG {
		return EnforcementHardware
	}
	limit := d.Limit(s)
	if d.limitsContainers(h, s) && len(d.unheld(s)) == 0 {
		return EnforcementPerContainer
	}
	if d.Mode != gpu.ShareMPS {
		return EnforcementNone
	}
	var holds gpu.MPSDaemonSpec
	if daemon, runs := h.Daemon(daemonOf(d)); runs {
		holds = daemon.MPSDaemonSpec
	}
	within := func(held, own float64) bool { return own == 0 || held > 0 && held <= own }
	switch {
	case limit == 0 && s.ActiveThreadPercentage == 0 && holds.PinnedMemoryLimit == 0 && holds.ActiveThreadPercentage == 0:
		return EnforcementNone
	case d.OnGPU.GuardsMPS() && within(float64(holds.PinnedMemoryLimit), float64(limit)) &&
		within(holds.ActiveThreadPercentage, s.ActiveThreadPercentage):
		return EnforcementPerProcess
	}
	return EnforcementAdvisory // its own limits are in the environment of its processes, or they may change the daemon's
}

// limitsContainers reports whether containers that start get the share's limit.
func (d *Device) limitsContainers(h *gpu.Host, s *gpu.Share) bool {
	handed, is := h.HandedShare(s.Name)
	return d.Limit(s) > 0 && is && handed.LimitsContainers && CanLimitContainers(h, d)
}

// unheld are the processes of a share that the driver holds to more than its limit, or to
// nothing: they began before it, or in no container.
func (d *Device) unheld(s *gpu.Share) []gpu.Process {
	return slices.DeleteFunc(slices.Clone(d.OnGPU.Processes), func(p gpu.Process) bool {
		return !gpu.SameID(p.Share, s.Name) || p.MemoryLimit == nil || *p.MemoryLimit > 0 && *p.MemoryLimit <= d.Limit(s)
	})
}

// PastLimit names the processes that go past the limit to which containers of a share are held.
func PastLimit(h *gpu.Host, s *gpu.Share) []string {
	var out []string
	for _, at := range s.Devices {
		if d := PlacedDevice(h, at); d.limitsContainers(h, s) {
			for _, p := range d.unheld(s) {
				if text := ProcessText(p); !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
	}
	return out
}

// CanLimitContainers reports whether driver and container toolkit can hold a container as a
// whole to a limit of memory on the device. A GPU in MIG mode has no such limits.
func CanLimitContainers(h *gpu.Host, d *Device) bool {
	return d.Instance == nil && h.LimitsContainers(d.OnGPU)
}

// ShareSpec is what the host hands to containers for a share that is placed.
func ShareSpec(h *gpu.Host, s *gpu.Share) (gpu.ShareSpec, error) {
	if len(s.Devices) == 0 {
		return gpu.ShareSpec{}, wrongShare(ShareUnplaced, "", "share %q was not placed on a device yet", s.Name)
	}
	spec := gpu.ShareSpec{Name: s.Name, Devices: slices.Clone(s.Devices)}
	if err := knownParts(h, s); err != nil {
		return gpu.ShareSpec{}, err
	}
	first := PlacedDevice(h, s.Devices[0])
	spec.MemoryRequest, spec.MemoryLimit = s.MemoryOn(first.Memory)
	for _, at := range s.Devices[1:] {
		d := PlacedDevice(h, at)
		// A container has one limit for all its devices: that of the smallest.
		spec.MemoryRequest, spec.MemoryLimit = min(spec.MemoryRequest, d.Request(s)), min(spec.MemoryLimit, d.Limit(s))
		if d.group != first.group {
			return gpu.ShareSpec{}, apart(s.Name, first, d)
		}
	}
	if first.Mode != gpu.ShareMPS {
		return spec, nil
	}
	spec.Daemon = daemonOf(first)
	spec.ActiveThreadPercentage, spec.ClientPriority = s.ActiveThreadPercentage, s.ClientPriority
	spec.PinnedMemoryLimit = spec.MemoryLimit
	if most := first.Config.MPS.PinnedMemoryLimit; most > 0 {
		// A client may hold itself to less than its daemon does, never to more.
		spec.PinnedMemoryLimit = min(spec.PinnedMemoryLimit, most)
	}
	return spec, nil
}

// knownParts refuses fractions of a memory that is not known.
func knownParts(h *gpu.Host, s *gpu.Share) error {
	for _, at := range s.Devices {
		if s.RequestFraction+s.LimitFraction > 0 && PlacedDevice(h, at).Memory == 0 {
			return wrongShare(ShareMemory, "", "share %q has a fraction of the memory of %s, and the host does not tell how much that is",
				s.Name, DeviceText(at))
		}
	}
	return nil
}

// daemonOf is the name of the daemon that serves a device of mode MPS.
func daemonOf(d *Device) string { return daemonName(d.Config, d.SharedDevice) }
