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

type vmsFixture struct{ *vgpuFixture }

func (f vmsFixture) VMs() backend.VMs { return f.backend }

func (f vmsFixture) Deaf(t *testing.T, vmID string) {
	t.Helper()
	f.daemon.Deafen(strings.ToLower(vmID))
}
