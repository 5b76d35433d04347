//go:build linux && cgo

package nvidia_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	fakelibvirt "github.com/gpufleet/terraform-provider-gpu/internal/fake/libvirt"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestVMsConformance drives the kernel's files, NVML and a daemon of libvirt, none of which is real.
func TestVMsConformance(t *testing.T) {
	conformance.RunVMs(t, gpu.Linux, func(t *testing.T, initial gpu.Host) conformance.VMsFixture {
		t.Helper()
		f := vmsFixture{newVGPUFixture(t, initial, nil)}
		f.daemon = fakelibvirt.Listen(t, f.libvirt)
		for _, vm := range initial.VMs {
			d := fakelibvirt.Domain{Name: vm.Name, State: fakelibvirt.ShutOff, Saved: vm.State == gpu.VMSaved}
			if vm.State == gpu.VMRunning {
				d.State = fakelibvirt.Running
			}
			if _, err := hex.Decode(d.UUID[:], []byte(strings.ReplaceAll(vm.ID, "-", ""))); err != nil {
				t.Fatal(err)
			}
			d.XML = "<domain type='kvm'><devices></devices></domain>"
			f.domains = append(f.domains, d)
		}
		f.daemon.Define(f.domains...)
		return f
	})
}

// While libvirt is away, no VM is gone: which there are is not known, nor who names vGPUs.
func TestVMsWhileLibvirtIsAway(t *testing.T) {
	f := newVGPUFixture(t, gpu.Host{GPUs: []gpu.GPU{{
		ID: "GPU-5b4eae96-ae42-4f4f-9f82-4e5f6a7b8c05", Model: "NVIDIA L40S", Vendor: "NVIDIA", Address: "0000:41:00.0",
		PCI: gpu.PCIID{Vendor: "10DE", Device: "26B9"}, VRAM: 48 << 30,
		VGPU: &gpu.VGPU{Functions: 4, Types: []gpu.VGPUType{{Name: "L40S-12Q", FrameBuffer: 12 << 30, Max: 4}}},
	}}}, nil)
	f.daemon = fakelibvirt.Listen(t, f.libvirt)
	f.daemon.Stop()
	host, err := f.backend.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, vm := host.UnknownVM("5d0f6a1e-0c3b-4f57-9d7e-000000000001")
	if _, vgpus := host.UnknownPart(gpu.PartVGPUs); !vm || !vgpus {
		t.Errorf("unknown is %+v, want VMs and who names vGPUs", host.Unknown)
	}
	if _, err := f.backend.ReadVM(t.Context(), "5d0f6a1e-0c3b-4f57-9d7e-000000000001"); !backend.Is(err, backend.Unavailable) {
		t.Errorf("the error is %v, want that it is not known", err)
	}
}

type vmsFixture struct{ *vgpuFixture }

func (f vmsFixture) VMs() backend.VMs { return f.backend }

func (f vmsFixture) Deaf(t *testing.T, vmID string) {
	t.Helper()
	f.daemon.Deafen(strings.ToLower(vmID))
}
