package agent_test

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The GPUs of the Linux host: one whose MIG mode needs a reset, seven whose mode does not
// and is lost with the driver, and one without MIG.
const (
	ampere  = "GPU-a1000000-0000-4000-8000-000000000000"
	hopper1 = "GPU-90000000-0000-4000-8000-000000000001"
	hopper2 = "GPU-90000000-0000-4000-8000-000000000002"
	noMIG   = "GPU-89000000-0000-4000-8000-000000000000"
)

// MIG profiles of GPUs with 80 GB.
const (
	g1 = "1g.10gb"
	g2 = "2g.20gb"
	g3 = "3g.40gb"
	g7 = "7g.80gb"
)

// Units of the Linux host: one that only watches the GPUs, and one that nobody may stop.
const (
	dcgm    = "nvidia-dcgm.service"
	trainer = "trainer.service"
)

// onLinux makes the test host one of Linux, with a GPU of each sort.
func onLinux(h *gpu.Host) { *h = linuxHost(2) }

// onLargeLinux is onLinux with eight GPUs that have MIG.
func onLargeLinux(h *gpu.Host) { *h = linuxHost(7) }

func hopper(n int) string { return fmt.Sprintf("GPU-90000000-0000-4000-8000-%012d", n) }

func linuxHost(hoppers int) gpu.Host {
	h := gpu.Host{
		Name: host, Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS", Version: "24.04"},
		GPUs:  []gpu.GPU{nvidiaGPU(ampere, "NVIDIA A100-SXM4-80GB", "20B2"), nvidiaGPU(noMIG, "NVIDIA L40S", "26B9")},
		Units: []string{dcgm, trainer},
	}
	for n := range hoppers {
		h.GPUs = append(h.GPUs, nvidiaGPU(hopper(n+1), "NVIDIA H100 80GB HBM3", "2330"))
	}
	return h
}

func nvidiaGPU(id, model, device string) gpu.GPU {
	g := gpu.GPU{
		ID: id, Model: model, Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: device},
		VRAM: 80 * gib, Driver: gpu.Driver{Version: "580.95.05"}, ComputeMode: gpu.ComputeDefault,
	}
	if m, ok := catalog.ByPCI(g.PCI); ok && m.MIG != nil {
		g.MIG = &gpu.MIG{NeedsReset: m.MIG.ModeNeedsReset, Profiles: m.MIG.Profiles}
	}
	return g
}

// mig is a config of numbers of instances that may reset GPUs and stop DCGM for it.
func mig(id string, profiles map[string]int, gpus ...string) *gpu.PartitionConfig {
	return &gpu.PartitionConfig{
		ID: id, Kind: gpu.KindMIG, Name: id, MIG: &gpu.MIGLayout{Profiles: profiles}, GPUs: map[string][]string{host: gpus, "elsewhere": {"X"}},
		MaxDisruption: gpu.DisruptGPUReset, QuiesceUnits: []string{"nvidia-dcgm"}, Restore: true,
	}
}

func at(profile string, start int) gpu.MIGPlacement {
	return gpu.MIGPlacement{Profile: profile, Start: start}
}

// ones are instances of one slice, the first of them at a start.
func ones(from, n int) []gpu.MIGPlacement {
	var out []gpu.MIGPlacement
	for i := range n {
		out = append(out, at(g1, from+i))
	}
	return out
}

// anonymous takes from instances what is another when they are made again.
func anonymous(instances []gpu.GPUInstance) {
	for i := range instances {
		instances[i].ID = 0
		for j := range instances[i].Compute {
			instances[i].Compute[j] = gpu.ComputeInstance{Slices: instances[i].Compute[j].Slices}
		}
	}
	slices.SortFunc(instances, func(a, b gpu.GPUInstance) int { return cmp.Compare(a.Start, b.Start) })
}
