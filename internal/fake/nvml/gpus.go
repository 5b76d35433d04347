//go:build linux

package fakenvml

import (
	"cmp"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Architecture is the generation of a GPU, by NVML's numbers.
type Architecture int

// The architectures that matter to sharing.
const (
	Ampere    Architecture = 7
	Ada       Architecture = 8
	Hopper    Architecture = 9
	Blackwell Architecture = 10
)

// GPU is a card as it comes. What is left out is made up from its place and its
// architecture.
type GPU struct {
	Model  string
	Arch   Architecture
	UUID   string // "GPU-..."
	Serial string
	Board  string // part number
	VBIOS  string
	// BusID is "00000000:1A:00.0". DeviceID and SubsystemID are packed as NVML packs
	// them: the device above the vendor, 0x233010DE.
	BusID                 string
	DeviceID, SubsystemID uint32
	// ComputeCapability is major and minor.
	ComputeCapability [2]int
	// NUMA is the node; -1 where there is none.
	NUMA             int
	Memory, Reserved gpu.Bytes

	// Profiles are the MIG profiles; a GPU with none has no MIG. MIG is its mode at the
	// start.
	Profiles []gpu.MIGProfile
	MIG      bool
	// ModeAtOnce lets an Ampere GPU that nobody holds change its mode without a reset
	// by others, as a driver does that may reset the GPU itself.
	ModeAtOnce bool
	// SliceSMs is the number of multiprocessors of a compute slice.
	SliceSMs int

	// NoECC is for cards without ECC, Persistence for a host with nvidia-persistenced.
	NoECC       bool
	ECC         bool
	Persistence bool
	// Links are NVLinks by their peers: the bus id of a GPU, or "switch".
	Links []string
	// VGPU is for hosts with the vGPU driver.
	VGPU *VGPU
}

// VGPU is what the vGPU host driver offers of a GPU. Mixable GPUs may run time-sliced
// vGPUs of different sizes, when told to, and of MIGSlices several may share a GPU instance.
type VGPU struct {
	Types     []VGPUType
	Mixable   bool
	MIGSlices bool
}

// VGPUType is a type of vGPU. InstanceProfile is the hardware's id of the GPU instance
// profile below a MIG-backed type, and -1 for time-sliced ones.
type VGPUType struct {
	ID              int
	Name, Class     string
	License         string
	Framebuffer     gpu.Bytes
	Max, MaxPerVM   int
	DisplayHeads    int
	InstanceProfile int
}

// state is the machine's first state.
func (o Options) state() (*state, error) {
	driver := cmp.Or(o.Driver, "580.95.05")
	s := &state{Machine: []machineRecord{{
		Driver:          driver,
		NVML:            cmp.Or(o.NVML, "13."+driver),
		CUDA:            cmp.Or(o.CUDA, 13000),
		Root:            true,
		ProfilesNeedMIG: o.ProfilesNeedMIG,
	}}}
	for i, g := range o.GPUs {
		s.GPUs = append(s.GPUs, g.record(i))
		profiles, err := g.profileRecords(i)
		if err != nil {
			return nil, fmt.Errorf("fakenvml: GPU %d: %w", i, err)
		}
		s.Profiles = append(s.Profiles, profiles...)
		for n, peer := range g.Links {
			s.Links = append(s.Links, linkRecord{GPU: i, Number: n, Peer: peer})
		}
		if g.VGPU == nil {
			continue
		}
		for _, t := range g.VGPU.Types {
			s.VGPUTypes = append(s.VGPUTypes, t.record(i))
		}
	}
	return s, nil
}

var capabilities = map[Architecture][2]int{Ampere: {8, 0}, Ada: {8, 9}, Hopper: {9, 0}, Blackwell: {10, 0}}

func (g GPU) record(index int) gpuRecord {
	arch := cmp.Or(g.Arch, Hopper)
	capability := g.ComputeCapability
	if capability == [2]int{} {
		capability = capabilities[arch]
	}
	r := gpuRecord{
		Index:        index,
		UUID:         cmp.Or(g.UUID, fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", 0x5eed0000+index, index+1)),
		Name:         cmp.Or(g.Model, "NVIDIA Test GPU"),
		Bus:          cmp.Or(g.BusID, fmt.Sprintf("00000000:%02X:00.0", 0x1a+index*0x10)),
		DeviceID:     int(cmp.Or(g.DeviceID, 0x233010de)),
		SubsystemID:  int(cmp.Or(g.SubsystemID, 0x16c110de)),
		Arch:         int(arch),
		Major:        capability[0],
		MinorVersion: capability[1],
		Minor:        index,
		Serial:       cmp.Or(g.Serial, fmt.Sprintf("16500230%05d", index)),
		Board:        g.Board,
		VBIOS:        g.VBIOS,
		NUMA:         g.NUMA,
		Memory:       int(cmp.Or(g.Memory, 80*1024*gpu.MiB)),
		Reserved:     int(g.Reserved),
		MIGCapable:   len(g.Profiles) > 0,
		ModePersists: arch == Ampere,
		MIG:          g.MIG,
		MIGPending:   g.MIG,
		Persistence:  g.Persistence,
		VGPUHost:     g.VGPU != nil,
		VGPUMixable:  g.VGPU != nil && g.VGPU.Mixable,
		GPM:          arch >= Hopper,

		VGPUMIGSlices: g.VGPU != nil && g.VGPU.MIGSlices,
	}
	switch {
	case arch == Ampere && g.ModeAtOnce:
		r.ModeNeedsReset = 2
	case arch == Ampere:
		r.ModeNeedsReset = 1
	}
	switch {
	case g.NoECC:
		r.ECC, r.ECCPending = -1, -1
	case g.ECC:
		r.ECC, r.ECCPending = 1, 1
	}
	return r
}

func (t VGPUType) record(index int) vgpuTypeRecord {
	return vgpuTypeRecord{
		GPU: index, ID: t.ID, Name: t.Name, Class: t.Class, License: t.License, Framebuffer: int(t.Framebuffer),
		Max: t.Max, MaxPerVM: cmp.Or(t.MaxPerVM, 1), Heads: t.DisplayHeads, InstanceProfile: t.InstanceProfile,
	}
}
