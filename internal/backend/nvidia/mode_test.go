//go:build linux && cgo

package nvidia_test

import (
	"testing"

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
	f.machine.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 4711, Name: "python", GPUInstance: &in.ID, ComputeInstance: &in.Compute[0].ID})
	f.machine.SetPendingMIG(0, false)
	if err := f.backend.SetMIGMode(t.Context(), uuid(1), true, false); err != nil {
		t.Fatal(err)
	}
	if g := f.machine.GPU(0); !g.MIG || !g.Pending || len(g.Instances) != 1 {
		t.Errorf("MIG %v, pending %v, instances %+v", g.MIG, g.Pending, g.Instances)
	}
}
