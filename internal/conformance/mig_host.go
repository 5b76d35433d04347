package conformance

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The GPUs of the standard host. None is in MIG mode.
const (
	a100  = "GPU-1f0c7a52-6a0e-4d0b-9b4e-0a1b2c3d4e01" // changes its MIG mode with a reset
	h100A = "GPU-2e1d8b63-7b1f-4e1c-8c5f-1b2c3d4e5f02"
	h100B = "GPU-3d2e9c74-8c20-4f2d-9d60-2c3d4e5f6a03"
	l40s  = "GPU-4c3fad85-9d31-403e-8e71-3d4e5f6a7b04" // has no MIG

	noCard = "GPU-99999999-9999-4999-8999-999999999999"
)

// The MIG profiles of GPUs with 80 GB.
const (
	mig1g  = "1g.10gb"
	mig1gm = "1g.10gb+me"
	mig1gd = "1g.20gb"
	mig2g  = "2g.20gb"
	mig3g  = "3g.40gb"
	mig4g  = "4g.40gb"
	mig7g  = "7g.80gb"
)

// dcgm runs on the standard host, and noUnit is not there.
const (
	dcgm   = "nvidia-dcgm.service"
	noUnit = "nvidia-nowhere.service"
)

// standardMIGHost is what every scenario of MIG starts from.
func standardMIGHost() gpu.Host {
	h := gpu.Host{
		Name:     "node01",
		Platform: gpu.Linux,
		OS:       gpu.OS{Name: "Ubuntu 24.04.3 LTS", Version: "24.04"},
		GPUs: []gpu.GPU{
			card(a100, "NVIDIA A100-SXM4-80GB", "20B2", "146310DE", "0000:07:00.0", 80, &gpu.MIG{NeedsReset: true, Profiles: profiles80GB()}),
			card(h100A, "NVIDIA H100 80GB HBM3", "2330", "16C110DE", "0000:1b:00.0", 80, &gpu.MIG{Profiles: profiles80GB()}),
			card(h100B, "NVIDIA H100 80GB HBM3", "2330", "16C110DE", "0000:43:00.0", 80, &gpu.MIG{Profiles: profiles80GB()}),
			card(l40s, "NVIDIA L40S", "26B9", "185110DE", "0000:61:00.0", 48, nil),
		},
		VMs:   []gpu.VM{},
		Pools: []gpu.Pool{},
		Units: []string{dcgm},
	}
	for i := range h.GPUs {
		h.GPUs[i].Minor = &i
	}
	return h
}

func card(id, model, device, subsystem, address string, gigabytes gpu.Bytes, mig *gpu.MIG) gpu.GPU {
	return gpu.GPU{
		ID:          id,
		Model:       model,
		Vendor:      "NVIDIA",
		PCI:         gpu.PCIID{Vendor: "10DE", Device: device, Subsystem: subsystem},
		Address:     address,
		VRAM:        gigabytes * 1024 * gpu.MiB,
		Driver:      gpu.Driver{Version: "580.95.05"},
		ComputeMode: gpu.ComputeDefault,
		MIG:         mig,
	}
}

// profiles80GB is what nvidia-smi mig -lgip and -lgipp list for GPUs with 80 GB: eight
// memory slices, the last of which no single slice of compute has to itself.
func profiles80GB() []gpu.MIGProfile {
	anywhere, quarters := []int{0, 1, 2, 3, 4, 5, 6}, []int{0, 2, 4}
	return []gpu.MIGProfile{
		{ID: 19, Name: mig1g, Slices: 1, Memory: 9856 * gpu.MiB, Max: 7, Size: 1, Starts: anywhere},
		{ID: 20, Name: mig1gm, Slices: 1, Memory: 9856 * gpu.MiB, Max: 1, Size: 1, Starts: anywhere},
		{ID: 15, Name: mig1gd, Slices: 1, Memory: 19968 * gpu.MiB, Max: 4, Size: 2, Starts: []int{0, 2, 4, 6}},
		{ID: 14, Name: mig2g, Slices: 2, Memory: 19968 * gpu.MiB, Max: 3, Size: 2, Starts: quarters},
		{ID: 9, Name: mig3g, Slices: 3, Memory: 40192 * gpu.MiB, Max: 2, Size: 4, Starts: []int{0, 4}},
		{ID: 5, Name: mig4g, Slices: 4, Memory: 40192 * gpu.MiB, Max: 1, Size: 4, Starts: []int{0}},
		{ID: 0, Name: mig7g, Slices: 7, Memory: 80384 * gpu.MiB, Max: 1, Size: 8, Starts: []int{0}},
	}
}

// inMIG has GPUs in MIG mode.
func inMIG(gpuIDs ...string) given {
	return func(h *gpu.Host) {
		for _, id := range gpuIDs {
			onGPU(id, func(g *gpu.GPU) { g.MIG.Enabled, g.MIG.Pending = true, true })(h)
		}
	}
}

// waitsForReset has a GPU whose MIG mode somebody turned on or off, without the reset
// that it takes.
func waitsForReset(gpuID string) given {
	return onGPU(gpuID, func(g *gpu.GPU) { g.MIG.Pending = !g.MIG.Enabled })
}

// What an inventory does not show.

func holdsGPUs(unit string) migArrangement {
	return func(t *testing.T, b *migBench) {
		watchers, ok := b.MIGFixture.(MIGWatchers)
		if !ok {
			t.Skip("the fixture cannot say which units keep GPUs open: implement MIGWatchers on it to run this scenario")
		}
		watchers.HoldGPUs(t, unit)
	}
}
