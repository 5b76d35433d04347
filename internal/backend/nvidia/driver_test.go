//go:build linux && cgo

package nvidia_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// uuid is a GPU of this process alone: the real MPS daemons of the machine are found by their
// processes, those of other tests too.
func uuid(n int) string {
	return fmt.Sprintf("GPU-5eed%04x-0000-4000-8000-%012x", os.Getpid()&0xffff, n)
}

// h100 is a GPU of the catalog, in MIG mode.
func h100(t *testing.T, n int) gpu.GPU {
	t.Helper()
	m, ok := catalog.ByName("NVIDIA H100 SXM5 80GB")
	if !ok {
		m, ok = catalog.ByPCI(gpu.PCIID{Vendor: "10DE", Device: "2330"})
	}
	if !ok || m.MIG == nil {
		t.Fatal("the catalog has no H100")
	}
	return gpu.GPU{
		ID: uuid(n), Model: m.Name, PCI: gpu.PCIID{Vendor: "10DE", Device: "2330"}, VRAM: 80 * 1024 * gpu.MiB,
		MIG: &gpu.MIG{Enabled: true, Pending: true, Profiles: m.MIG.Profiles},
	}
}

func wantCode(t *testing.T, err error, code backend.Code, texts ...string) {
	t.Helper()
	e, ok := errors.AsType[*backend.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("want %s, got %v", code, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it does not say %q: %v", text, err)
		}
	}
}

// TestHostWithoutADriver is an error and no abort, whatever is missing.
func TestHostWithoutADriver(t *testing.T) {
	t.Run("no library", func(t *testing.T) {
		b := nvidia.New(nvidia.Options{Library: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")})
		_, err := b.Inventory(t.Context())
		wantCode(t, err, backend.NotSupported, "no NVIDIA driver")
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, tt := range []struct {
		name string
		code int
		says string
	}{
		{"the kernel driver is not loaded", fakenvml.DriverNotLoaded, "modprobe nvidia"},
		{"the driver was upgraded and not loaded again", fakenvml.VersionMismatch, "reboot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
			f.machine.BreakDriver(tt.code)
			_, err := f.backend.Inventory(t.Context())
			wantCode(t, err, backend.Unavailable, tt.says)
			f.machine.RepairDriver()
			if _, err := f.backend.Inventory(t.Context()); err != nil {
				t.Errorf("repaired, it still does not answer: %v", err)
			}
		})
	}
	// NVML answers one of several codes then, and none of them says why.
	for _, code := range []int{999, 4, fakenvml.DriverNotLoaded} {
		t.Run(fmt.Sprintf("a container without device nodes, where NVML answers %d", code), func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
			f.machine.BreakDriver(code)
			loaded := filepath.Join(f.tree.Root(), "proc/driver/nvidia/version")
			if err := os.MkdirAll(filepath.Dir(loaded), 0o755); err != nil {
				t.Fatal(err)
			}
			f.write(loaded, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07\n", 0o600)
			_, err := f.backend.Inventory(t.Context())
			wantCode(t, err, backend.Unavailable, "/dev/nvidiactl", "nvidia-modprobe", "container")
		})
	}
	t.Run("an old driver", func(t *testing.T) {
		m := fakenvml.New(t, fakenvml.Options{
			GPUs: []fakenvml.GPU{{}}, Missing: []string{"nvmlDeviceGetMigMode", "nvmlComputeInstanceGetInfo_v2"},
		})
		b := nvidia.New(nvidia.Options{Library: m.Library()})
		_, err := b.Inventory(t.Context())
		wantCode(t, err, backend.NotSupported, "nvmlDeviceGetMigMode", "nvmlComputeInstanceGetInfo_v2", "R470")
	})
	t.Run("not root", func(t *testing.T) {
		f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
		f.machine.SetRoot(false)
		wantCode(t, f.backend.CreateInstance(t.Context(), uuid(1), gpu.MIGPlacement{Profile: "1g.10gb"}), backend.AccessDenied, "root")
	})
}

// TestProfileNames are the same from a driver that tells them and from one that does
// not, on every GPU of the catalog.
func TestProfileNames(t *testing.T) {
	for _, m := range catalog.All() {
		if m.MIG == nil || len(m.Devices) == 0 {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			for _, missing := range [][]string{nil, {"nvmlDeviceGetGpuInstanceProfileInfoV"}} {
				c := card(&gpu.GPU{
					ID: uuid(1), Model: m.Name, VRAM: m.VRAM, PCI: gpu.PCIID{Vendor: "10DE", Device: m.Devices[0]},
					MIG: &gpu.MIG{Enabled: true, Pending: true, Profiles: m.MIG.Profiles},
				})
				b := nvidia.New(nvidia.Options{Library: fakenvml.New(t, fakenvml.Options{GPUs: []fakenvml.GPU{c}, Missing: missing}).Library()})
				host, err := b.Inventory(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				if host.GPUs[0].MIG == nil {
					t.Fatal("it has no MIG")
				}
				var got, want []string
				for _, p := range host.GPUs[0].MIG.Profiles {
					got = append(got, fmt.Sprintf("%s: %d of size %d at %v", p.Name, p.Max, p.Size, p.Starts))
				}
				for _, p := range m.MIG.Profiles {
					want = append(want, fmt.Sprintf("%s: %d of size %d at %v", p.Name, p.Max, p.Size, p.Starts))
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("without %v:\n got %q\nwant %q", missing, got, want)
				}
			}
		})
	}
}

// TestOneInit counts what a day's work asks of the driver.
func TestOneInit(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1), h100(t, 2)}})
	for range 3 {
		if _, err := f.backend.Inventory(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for start := range 3 {
		if err := f.backend.CreateInstance(t.Context(), uuid(1), gpu.MIGPlacement{Profile: "1g.10gb", Start: start}); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.machine.Calls().Inits(); n != 1 {
		t.Errorf("NVML was initialised %d times", n)
	}
}

// TestGPUThatFallsOffTheBus does not hide the others.
func TestGPUThatFallsOffTheBus(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1), h100(t, 2)}})
	f.machine.LoseGPU(0)
	host, err := f.backend.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(host.GPUs) != 2 || host.GPUs[0].Problem == "" || host.GPUs[1].Problem != "" || host.GPUs[1].MIG == nil {
		t.Errorf("the GPUs are %+v", host.GPUs)
	}
}

// TestCancelledCallTouchesNothing ends before the driver is asked.
func TestCancelledCallTouchesNothing(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, f.backend.CreateInstance(ctx, uuid(1), gpu.MIGPlacement{Profile: "1g.10gb"}), backend.Timeout)
	if have := f.machine.GPU(0).Instances; len(have) > 0 {
		t.Errorf("it has %+v", have)
	}
}
