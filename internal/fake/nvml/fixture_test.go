//go:build linux && cgo

package fakenvml_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const mib = gpu.MiB

// Hardware ids of the profiles of 80 GB cards.
const (
	id1g, id1gME, id1gDouble, id2g, id3g, id4g, id7g = 19, 20, 15, 14, 9, 5, 0
)

// profiles80 are the MIG profiles of an A100 or H100 with 80 GB.
func profiles80() []gpu.MIGProfile {
	return []gpu.MIGProfile{
		{ID: id1g, Name: "1g.10gb", Slices: 1, Memory: 9856 * mib, Max: 7, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
		{ID: id1gME, Name: "1g.10gb+me", Slices: 1, Memory: 9856 * mib, Max: 1, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
		{ID: id1gDouble, Name: "1g.20gb", Slices: 1, Memory: 19968 * mib, Max: 4, Size: 2, Starts: []int{0, 2, 4, 6}},
		{ID: id2g, Name: "2g.20gb", Slices: 2, Memory: 19968 * mib, Max: 3, Size: 2, Starts: []int{0, 2, 4}},
		{ID: id3g, Name: "3g.40gb", Slices: 3, Memory: 40192 * mib, Max: 2, Size: 4, Starts: []int{0, 4}},
		{ID: id4g, Name: "4g.40gb", Slices: 4, Memory: 40192 * mib, Max: 1, Size: 4, Starts: []int{0}},
		{ID: id7g, Name: "7g.80gb", Slices: 7, Memory: 80384 * mib, Max: 1, Size: 8, Starts: []int{0}},
	}
}

func hopper() fakenvml.GPU {
	return fakenvml.GPU{Model: "NVIDIA H100 80GB HBM3", Arch: fakenvml.Hopper, Profiles: profiles80()}
}

func ampere() fakenvml.GPU {
	return fakenvml.GPU{
		Model: "NVIDIA A100-SXM4-80GB", Arch: fakenvml.Ampere, DeviceID: 0x20b210de, Profiles: profiles80(), SliceSMs: 14,
	}
}

// inMIG is a GPU in MIG mode.
func inMIG(g fakenvml.GPU) fakenvml.GPU {
	g.MIG = true
	return g
}

func machine(t *testing.T, gpus ...fakenvml.GPU) *fakenvml.Machine {
	t.Helper()
	return fakenvml.New(t, fakenvml.Options{GPUs: gpus})
}

// session is NVML, initialised until the test ends: unless the host rebooted since.
func session(t *testing.T, m *fakenvml.Machine) nvml.Interface {
	t.Helper()
	lib := nvml.New(nvml.WithLibraryPath(m.Library()))
	ok(t, lib.Init())
	t.Cleanup(func() {
		if r := lib.Shutdown(); r != nvml.SUCCESS && r != nvml.ERROR_UNINITIALIZED {
			t.Errorf("shutdown: %v", r)
		}
	})
	return lib
}

func device(t *testing.T, lib nvml.Interface, index int) nvml.Device {
	t.Helper()
	d, r := lib.DeviceGetHandleByIndex(index)
	ok(t, r)
	return d
}

func ok(t *testing.T, r nvml.Return) {
	t.Helper()
	is(t, r, nvml.SUCCESS)
}

func is(t *testing.T, got, want nvml.Return) {
	t.Helper()
	if got != want {
		t.Fatalf("NVML returned %d (%s), want %d (%s)", got, nvml.ErrorString(got), want, nvml.ErrorString(want))
	}
}

// create makes a GPU instance at a start, or where the driver likes with -1.
func create(d nvml.Device, profile, start int) (nvml.GpuInstance, nvml.Return) {
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, r := d.GetGpuInstanceProfileInfo(number)
		if r != nvml.SUCCESS || int(info.Id) != profile {
			continue
		}
		if start < 0 {
			return d.CreateGpuInstance(&info)
		}
		places, r := d.GetGpuInstancePossiblePlacements(&info)
		if r != nvml.SUCCESS {
			return nil, r
		}
		place := nvml.GpuInstancePlacement{Start: uint32(start), Size: places[0].Size}
		return d.CreateGpuInstanceWithPlacement(&info, &place)
	}
	return nil, nvml.ERROR_NOT_FOUND
}

func mustCreate(t *testing.T, d nvml.Device, profile, start int) nvml.GpuInstance {
	t.Helper()
	i, r := create(d, profile, start)
	ok(t, r)
	return i
}

// fill makes a compute instance of a number of NVML in a GPU instance.
func fill(t *testing.T, i nvml.GpuInstance, number int) nvml.ComputeInstance {
	t.Helper()
	info, r := i.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	ok(t, r)
	c, r := i.CreateComputeInstance(&info)
	ok(t, r)
	return c
}

// uuidOf is the UUID of the MIG device that a compute instance is.
func uuidOf(t *testing.T, c nvml.ComputeInstance) string {
	t.Helper()
	info, r := c.GetInfo()
	ok(t, r)
	uuid, r := info.Device.GetUUID()
	ok(t, r)
	return uuid
}
