//go:build linux && cgo

package nvidia_test

import (
	"slices"
	"strings"
	"testing"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// always has a function answer a code to every call.
func (f *fixture) always(function string, code int) {
	f.machine.Fail(fakenvml.Fault{Function: function, Times: 1 << 20, Code: code})
}

// TestLookAlikesTellTheirOwnProfiles: two boards of one model have another id for the same profile. What
// is there on the second is seen, and made and removed there.
func TestLookAlikesTellTheirOwnProfiles(t *testing.T) {
	first, second := h100(t, 1), h100(t, 2)
	for i, g := range []*gpu.GPU{&first, &second} {
		g.MIG.Enabled, g.MIG.Pending = true, true
		g.MIG.Profiles = slices.Clone(g.MIG.Profiles)
		for k := range g.MIG.Profiles {
			g.MIG.Profiles[k].ID += 40 * i
		}
		if i == 1 { // and fewer places
			g.MIG.Profiles = slices.DeleteFunc(g.MIG.Profiles, func(p gpu.MIGProfile) bool { return p.Name == "1g.20gb" })
		}
	}
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{first, second}})
	f.machine.CreateInstance(1, "1g.10gb", 0)
	at := gpu.MIGPlacement{Profile: "3g.40gb", Start: 4}
	for _, id := range []string{first.ID, second.ID} {
		if err := f.backend.CreateInstance(t.Context(), id, at); err != nil {
			t.Errorf("create on GPU %s: %v", id, err)
		}
	}
	h, err := f.backend.Inventory(t.Context())
	if err != nil || len(h.Unknown) > 0 {
		t.Fatal(err, h.Unknown)
	}
	for i, want := range []string{"3g.40gb@4", "1g.10gb@0+3g.40gb@4"} {
		if got := h.GPUs[i].MIG.State().String(); got != want {
			t.Errorf("GPU %d has %s, want %s", i, got, want)
		}
		if _, has := h.GPUs[i].MIG.Profile("1g.20gb"); has != (i == 0) {
			t.Errorf("GPU %d offers 1g.20gb: %t", i, has)
		}
	}
	if err := f.backend.DestroyInstance(t.Context(), second.ID, at); err != nil {
		t.Error(err)
	}
}

// TestInstancesThatCannotBeListedAreUnknown: NOT_SUPPORTED in MIG mode is no empty GPU.
func TestInstancesThatCannotBeListedAreUnknown(t *testing.T) {
	g := h100(t, 1)
	g.MIG.Enabled, g.MIG.Pending = true, true
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{g}})
	f.machine.CreateInstance(0, "1g.10gb", 0)
	f.always("nvmlDeviceGetGpuInstances", notSupported)
	h, err := f.backend.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if u, unknown := h.UnknownGPU(g.ID); !unknown || !strings.Contains(u.Why, "nvmlDeviceGetGpuInstances") {
		t.Errorf("it lacks %v, and shows %+v", h.Unknown, h.GPUs[0].MIG)
	}
}

// TestWhoKeepsAnInstanceOpen: the driver lists no process, and the services that run and watch are named.
func TestWhoKeepsAnInstanceOpen(t *testing.T) {
	g := h100(t, 1)
	g.MIG.Enabled, g.MIG.Pending = true, true
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{g}, Units: []string{"nvidia-dcgm.service", "sshd.service"}})
	f.machine.CreateInstance(0, "1g.10gb", 0)
	f.machine.Fail(fakenvml.Fault{Function: "nvmlGpuInstanceDestroy", Code: inUse})
	err := f.backend.DestroyInstance(t.Context(), g.ID, gpu.MIGPlacement{Profile: "1g.10gb", Start: 0})
	if err == nil || !strings.Contains(err.Error(), "nvidia-dcgm.service") || !strings.Contains(err.Error(), "quiesce_units") ||
		strings.Contains(err.Error(), "sshd") {
		t.Errorf("it says %v", err)
	}
}

// Codes of NVML.
const notSupported, inUse = 3, 19

// TestFiguresThatAPlatformDoesNotOffer: a GPU whose memory is the system's, or which is on no PCI bus, does
// not tell these figures. It works, is shared and divided, and they are not known.
func TestFiguresThatAPlatformDoesNotOffer(t *testing.T) {
	for _, functions := range [][]string{
		{"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"},
		{"nvmlDeviceGetEccMode"},
		{"nvmlDeviceGetPersistenceMode"},
		{"nvmlDeviceGetCudaComputeCapability"},
		{"nvmlDeviceGetPciInfo"},
		{"nvmlDeviceGetName"},
		{"nvmlDeviceGetGpuInstanceProfileInfoV"},
		{"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetEccMode", "nvmlDeviceGetPciInfo"},
	} {
		t.Run(strings.Join(functions, ","), func(t *testing.T) {
			fresh := h100(t, 1)
			fresh.MIG.Enabled, fresh.MIG.Pending = false, false
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{fresh}})
			whole, err := f.backend.Inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			f.reopen(t)
			for _, function := range functions {
				f.always(function, notSupported)
			}
			look := func() gpu.GPU {
				t.Helper()
				h, err := f.backend.Inventory(t.Context())
				if err != nil || len(h.Unknown) > 0 || h.GPUs[0].Problem != "" {
					t.Fatalf("%v, %v, %q", err, h.Unknown, h.GPUs[0].Problem)
				}
				return h.GPUs[0]
			}
			g := look()
			if memory := strings.HasPrefix(functions[0], "nvmlDeviceGetMemoryInfo"); memory && g.VRAM != 0 ||
				!memory && g.VRAM != whole.GPUs[0].VRAM {
				t.Errorf("its memory is %s", g.VRAM)
			}
			if err := f.backend.SetComputeMode(t.Context(), g.ID, gpu.ComputeExclusiveProcess); err != nil {
				t.Error(err)
			}
			if err := f.backend.SetComputeMode(t.Context(), g.ID, gpu.ComputeDefault); err != nil {
				t.Error(err)
			}
			if err := f.backend.SetMIGMode(t.Context(), g.ID, true, true); err != nil {
				t.Fatal(err)
			}
			profile := look().MIG.Profiles[0]
			at := gpu.MIGPlacement{Profile: profile.Name, Start: profile.Starts[0]}
			if err := f.backend.CreateInstance(t.Context(), g.ID, at); err != nil {
				t.Fatal(err)
			}
			if got := look().MIG.State().String(); got != at.String() {
				t.Errorf("it has %s, want %s", got, at)
			}
			if err := f.backend.DestroyInstance(t.Context(), g.ID, at); err != nil {
				t.Error(err)
			}
		})
	}
}
