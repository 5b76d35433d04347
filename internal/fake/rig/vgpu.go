package rig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// VGPUCard is the id of a GPU of kvm01.
func VGPUCard(n int) string { return fmt.Sprintf("GPU-40000000-0000-4000-8000-%012d", n) }

// L40s is an L40S of kvm01 whose virtual functions are off.
func L40s(n int) gpu.GPU {
	offered := func(name string, gib gpu.Bytes, most int) gpu.VGPUType {
		return gpu.VGPUType{Name: name, FrameBuffer: gib * 1024 * gpu.MiB, Max: most, MaxPerVM: 16}
	}
	return gpu.GPU{
		ID: VGPUCard(n), Model: "NVIDIA L40S", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "26B9"}, VRAM: 48 * 1024 * gpu.MiB,
		Driver: gpu.Driver{Version: "580.95.02"}, Address: fmt.Sprintf("0000:%02x:00.0", 0x41+n), ComputeMode: gpu.ComputeDefault,
		VGPU: &gpu.VGPU{Functions: 32, HeterogeneousSupported: true, Types: []gpu.VGPUType{
			offered("L40S-2Q", 2, 24), offered("L40S-12Q", 12, 4), offered("L40S-12C", 12, 4), offered("L40S-24Q", 24, 2),
			offered("L40S-48Q", 48, 1),
		}},
	}
}

// P40 is a Tesla P40 of kvm01: its vGPUs are mediated devices on the GPU itself, of one size.
func P40(n int) gpu.GPU {
	g := L40s(n)
	g.Model, g.PCI.Device, g.VRAM = "Tesla P40", "1B38", 24*1024*gpu.MiB
	g.VGPU = &gpu.VGPU{Types: []gpu.VGPUType{
		{Name: "P40-4Q", FrameBuffer: 4 * 1024 * gpu.MiB, Max: 6}, {Name: "P40-8Q", FrameBuffer: 8 * 1024 * gpu.MiB, Max: 3},
	}}
	return g
}

// H100C is an H100 of kvm01 with types of both ways: MIG-backed, and by time slices.
func H100C(n int) gpu.GPU {
	const gib = 1024 * gpu.MiB
	g := MIGCard(n, H100)
	g.ID, g.Address = VGPUCard(n), fmt.Sprintf("0000:%02x:00.0", 0x41+n)
	g.VGPU = &gpu.VGPU{Functions: 32, Types: []gpu.VGPUType{
		{Name: "H100-40C", FrameBuffer: 40 * gib, Max: 2},
		{Name: "H100-1-10C", FrameBuffer: 10 * gib, Max: 7, MIGProfile: "1g.10gb"},
		{Name: "H100-3-40C", FrameBuffer: 40 * gib, Max: 2, MIGProfile: "3g.40gb"},
	}}
	return g
}

// KVM is the Linux host kvm01.
func KVM(gpus ...gpu.GPU) gpu.Snapshot {
	return Standalone(gpu.Host{
		Name: "kvm01", Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"}, GPUs: gpus, VMs: []gpu.VM{}, Pools: []gpu.Pool{},
		Units: []string{"nvidia-persistenced.service", "nvidia-vgpu-mgr.service"},
	})
}

// VGPUOf is a config of a name that is its label too, on kvm01, with more arguments.
func VGPUOf(name, layout string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_partition_config\" %q {\n  name  = %q\n  hosts = [\"kvm01\"]\n  vgpu  = { %s }\n  %s\n}\n",
		name, name, layout, strings.Join(more, "\n  "))
}

// Desks is the address of the config "desks".
const Desks = "gpu_partition_config.desks"

// Layouts of an L40S.
const (
	FourDesks = `type = "L40S-12Q"`
	TwoDesks  = `type = "L40S-12Q", count = 2`
	MixedDesk = `types = { "L40S-24Q" = 1, "L40S-12Q" = 2 }`
)

// OnCards selects GPUs of kvm01.
func OnCards(n ...int) string {
	ids := make([]string, len(n))
	for i, g := range n {
		ids[i] = fmt.Sprintf("%q", VGPUCard(g))
	}
	return "selector = { gpu_ids = { kvm01 = [" + strings.Join(ids, ", ") + "] } }"
}

// VGPU is the vGPU face of a GPU of kvm01 as the host has it now.
func (r *Rig) VGPU(n int) *gpu.VGPU {
	r.T.Helper()
	g, ok := r.Host("kvm01").GPU(VGPUCard(n))
	if !ok {
		r.T.Fatalf("kvm01 has no GPU %s", VGPUCard(n))
	}
	return g.VGPU
}

// Vgpus writes what a GPU of kvm01 has: "off", or "on L40S-12Q@0 mixed".
func (r *Rig) Vgpus(n int) string {
	r.T.Helper()
	s := r.VGPU(n).State()
	out := []string{map[bool]string{true: "on", false: "off"}[s.FunctionsOn]}
	for _, p := range s.Places {
		out = append(out, fmt.Sprintf("%s@%d", p.Type, p.Function))
	}
	if s.Heterogeneous {
		out = append(out, "mixed")
	}
	return strings.Join(out, " ")
}

// WantVGPUs asserts what GPUs of kvm01 have.
func (r *Rig) WantVGPUs(want string, n ...int) {
	r.T.Helper()
	for _, i := range n {
		if got := r.Vgpus(i); got != want {
			r.T.Errorf("%s has %q, want %q", VGPUCard(i), got, want)
		}
	}
}

// Mediated has GPUs of kvm01 make mediated devices on their functions.
func (r *Rig) Mediated(n ...int) {
	r.T.Helper()
	r.Must(r.Fleet.EditSimulation(r.T.Context(), "kvm01", func(s *simulated.Simulation) {
		s.GPUs = map[string]simulated.Hidden{}
		for _, i := range n {
			s.GPUs[VGPUCard(i)] = simulated.Hidden{Mediated: true}
		}
	}))
}

// Placed is the vGPU of a type on a function of a GPU of kvm01.
func (r *Rig) Placed(n int, name string, function int) gpu.VGPUPlace {
	r.T.Helper()
	list := r.VGPU(n).State().Places
	i := slices.IndexFunc(list, func(p gpu.VGPUPlace) bool { return p.Type == name && p.Function == function })
	if i < 0 {
		r.T.Fatalf("%s has no %s on function %d; it has %v", VGPUCard(n), name, function, list)
	}
	return list[i]
}

// Holds has a VM of kvm01 hold a vGPU, and lets go of it.
func (r *Rig) Holds(n int, p gpu.VGPUPlace, vm string) (release func()) {
	r.T.Helper()
	r.Must(r.Fleet.HoldVGPU(r.T.Context(), "kvm01", VGPUCard(n), p, vm))
	return func() { r.Must(r.Fleet.ReleaseVGPU(r.T.Context(), "kvm01", VGPUCard(n), p)) }
}
