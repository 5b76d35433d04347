package hyperv_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// unlisted are GPUs that Windows lists and no table of ours knows.
var unlisted = []struct{ model, vendor, device string }{
	{"NVIDIA Tesla V100-PCIE-16GB", "10DE", "1DB4"},
	{"NVIDIA Tesla P40", "10DE", "1B38"},
	{"NVIDIA Tesla M10", "10DE", "13BD"},
	{"NVIDIA Quadro RTX 6000", "10DE", "1E30"},
	{"NVIDIA Quadro RTX 8000", "10DE", "1E78"},
	{"NVIDIA RTX A6000", "10DE", "2230"},
	{"AMD Radeon Instinct MI25", "1002", "6860"},
	{"AMD Radeon PRO V710", "1002", "7461"},
	{"Intel Data Center GPU Flex 170", "8086", "56C0"},
	{"Intel Data Center GPU Flex 140", "8086", "56C1"},
}

// TestAnyGPUIsPooledAssignedAndReturned: whether a device is a GPU is told by its class, on
// either bus, and never by a table.
func TestAnyGPUIsPooledAssignedAndReturned(t *testing.T) {
	t.Parallel()
	for _, g := range unlisted {
		t.Run(g.model, func(t *testing.T) {
			t.Parallel()
			if m, known := catalog.ByPCI(gpu.PCIID{Vendor: g.vendor, Device: g.device}); known {
				t.Fatalf("the catalog knows it as %s: this test asks nothing", m.Name)
			}
			r := newRig(t, onHost(func(h *gpu.Host) {
				h.GPUs[0] = gpu.GPU{
					ID: gpuA, InstancePath: `PCI\VEN_` + g.vendor + `&DEV_` + g.device + `&SUBSYS_00011028&REV_A1\4&18416dc3&0&0000`, Model: g.model,
					PCI: gpu.PCIID{Vendor: g.vendor, Device: g.device, Subsystem: "00011028"}, MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 256 * gpu.MiB},
				}
			}))
			if is := r.gpu(gpuA); is.Status != gpu.ReadyForDDA || is.Model != g.model {
				t.Fatalf("it is %+v", is)
			}
			r.run(r.backend.DismountDevice(t.Context(), gpuA, true))
			if is := r.gpu(gpuA); !is.Dismounted || is.Status != gpu.ReadyForDDA || is.PCI.Device != g.device {
				t.Fatalf("dismounted, it is %+v", is)
			}
			r.run(r.backend.CreatePool(t.Context(), "any"), r.backend.SetPoolMembers(t.Context(), "any", []string{gpuA}))
			_, err := r.backend.AddDevice(t.Context(), alpha, gpu.DeviceAssignment{Pool: "any"})
			r.run(err, r.backend.StartVM(t.Context(), alpha))
			if vm := r.vm(alpha); len(vm.Devices) != 1 || vm.Devices[0].GPU != gpuA {
				t.Errorf("from the pool the VM has %+v", vm.Devices)
			}
			r.run(r.backend.TurnOffVM(t.Context(), alpha), r.backend.RemoveDevice(t.Context(), alpha, r.vm(alpha).Devices[0].ID),
				r.backend.SetPoolMembers(t.Context(), "any", nil), r.backend.DeletePool(t.Context(), "any"))
			_, err = r.backend.AddDevice(t.Context(), alpha, gpu.DeviceAssignment{GPU: gpuA})
			r.run(err)
			if vm := r.vm(alpha); len(vm.Devices) != 1 || vm.Devices[0].GPU != gpuA {
				t.Errorf("named, the VM has %+v", vm.Devices)
			}
			r.run(r.backend.RemoveDevice(t.Context(), alpha, r.vm(alpha).Devices[0].ID), r.backend.MountDevice(t.Context(), gpuA))
			if is := r.gpu(gpuA); is.Dismounted || is.Model != g.model || is.Problem != "" {
				t.Errorf("returned, it is %+v", is)
			}
		})
	}
}

// TestMountGoesByTheRecordedLocation, also of a device that Plug and Play does not tell as a
// GPU while it is dismounted.
func TestMountGoesByTheRecordedLocation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run(r.backend.DismountDevice(t.Context(), gpuA, true))
	r.wire.change(func(w *wire) {
		w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
			var out []hyperv.Row
			for _, row := range rows {
				if !strings.Contains(wql, "Win32_PnPEntity WHERE PNPClass") || !strings.Contains(row.String("DeviceID"), "18416dc3") {
					out = append(out, row)
				}
			}
			return out
		}
	})
	if h := r.host(); len(h.GPUs) != 3 {
		t.Fatalf("the host shows %d GPUs", len(h.GPUs))
	}
	r.run(r.backend.MountDevice(t.Context(), gpuA))
	r.wire.change(func(w *wire) { w.rows = nil })
	if is := r.gpu(gpuA); is.Dismounted || is.Partitionable == nil {
		t.Errorf("it is %+v", is)
	}
}

// TestOtherDevicesAreNoGPUs although their vendor makes GPUs, wherever they are.
func TestOtherDevicesAreNoGPUs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, bus := range []string{"PCI", "PCIP"} {
		r.wire.change(func(w *wire) {
			w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
				for _, row := range rows {
					if strings.Contains(wql, "Win32_PnPEntity WHERE PNPClass") && strings.Contains(row.String("DeviceID"), "41d4e5f6") {
						row.Values["PNPClass"], row.Values["HardwareID"] = "System", []any{}
						row.Values["CompatibleID"] = []any{bus + `\VEN_10DE&CC_0403`, bus + `\CC_0403`}
					}
				}
				return rows
			}
		})
		h := r.host()
		if _, is := h.GPU(gpuD); is {
			t.Errorf("an audio function on %s is a GPU", bus)
		}
	}
}

// TestOrphanedDeviceIsShownAndRemoved in both forms that hosts give its key: it keeps the VM
// from starting.
func TestOrphanedDeviceIsShownAndRemoved(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		`Microsoft:PCIP\VEN_10DE&DEV_1DB4&SUBSYS_0&REV_A1\9`, `Microsoft:ED28B-7BDD0\PCIP\VEN_10DE&DEV_1DB4&SUBSYS_0&REV_A1\9`,
	} {
		r := newRig(t)
		_, err := r.backend.AddDevice(t.Context(), alpha, gpu.DeviceAssignment{GPU: gpuD})
		r.run(err)
		r.wire.change(func(w *wire) {
			w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
				for _, row := range rows {
					if paths := row.Strings("HostResource"); strings.HasPrefix(wql, "SELECT * FROM Msvm_PciExpressSettingData") &&
						len(paths) == 1 && strings.Contains(row.String("InstanceID"), alpha) {
						row.Values["HostResource"] = []any{
							`\\HV01\root\virtualization\v2:Msvm_PciExpress.DeviceID="` + strings.ReplaceAll(key, `\`, `\\`) + `"`,
						}
					}
				}
				return rows
			}
		})
		vm := r.vm(alpha)
		if len(vm.Devices) != 1 || !strings.HasPrefix(vm.Devices[0].GPU, `PCIP\VEN_10DE&DEV_1DB4`) {
			t.Fatalf("%s: the VM has %+v", key, vm.Devices)
		}
		r.run(r.backend.RemoveDevice(t.Context(), alpha, vm.Devices[0].ID))
		if vm := r.vm(alpha); len(vm.Devices) > 0 {
			t.Errorf("%s: removed, the VM has %+v", key, vm.Devices)
		}
	}
}
