//go:build linux && cgo

package nvidia_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestPendingModeIsTakenBack under a process: the mode in force stays as it is, and
// nobody is disturbed.
func TestPendingModeIsTakenBack(t *testing.T) {
	m, ok := catalog.ByName("A100-SXM4-80GB")
	if !ok || m.MIG == nil {
		t.Fatal("the catalog has no A100")
	}
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{{
		ID: uuid(1), Model: m.Name, PCI: gpu.PCIID{Vendor: "10DE", Device: m.Devices[0]}, VRAM: m.VRAM,
		MIG: &gpu.MIG{Enabled: true, Pending: true, NeedsReset: true, Profiles: m.MIG.Profiles},
	}}})
	f.machine.CreateInstance(0, "3g.40gb", 0)
	in := f.machine.GPU(0).Instances[0]
	f.machine.StartProcess(0, fakenvml.Compute, gpu.Process{
		PID: 4711, Name: "python", GPUInstance: &in.ID, ComputeInstance: &in.Compute[0].ID,
	})
	f.machine.SetPendingMIG(0, false)
	if err := f.backend.SetMIGMode(t.Context(), uuid(1), true, false); err != nil {
		t.Fatal(err)
	}
	if g := f.machine.GPU(0); !g.MIG || !g.Pending || len(g.Instances) != 1 {
		t.Errorf("MIG %v, pending %v, instances %+v", g.MIG, g.Pending, g.Instances)
	}
}

// TestResetUnderAnUnseenHolder names what no list of processes shows: nvidia_drm, where it is loaded.
func TestResetUnderAnUnseenHolder(t *testing.T) {
	m, _ := catalog.ByName("A100-SXM4-80GB")
	for _, loaded := range []bool{false, true} {
		f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{{
			ID: uuid(1), Model: m.Name, PCI: gpu.PCIID{Vendor: "10DE", Device: m.Devices[0]}, VRAM: m.VRAM,
			MIG: &gpu.MIG{NeedsReset: true, Profiles: m.MIG.Profiles},
		}}})
		f.HoldGPUs(t, "drawing.service")
		if loaded {
			if err := os.MkdirAll(filepath.Join(f.tree.Root(), "sys/module/nvidia_drm"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		err := f.backend.SetMIGMode(t.Context(), uuid(1), true, true)
		wantCode(t, err, backend.InUse, "could not be reset", "In use by another client")
		if got := strings.Contains(err.Error(), "rmmod nvidia_drm"); got != loaded {
			t.Errorf("nvidia_drm is loaded: %v, and it says %v", loaded, err)
		}
		if g := f.machine.GPU(0); g.MIG || g.Pending {
			t.Errorf("MIG %v, pending %v", g.MIG, g.Pending)
		}
	}
}
