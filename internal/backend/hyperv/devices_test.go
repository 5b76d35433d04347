package hyperv_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A device that the host uses can be disabled only with a reboot, which nobody asked
// for: it is enabled again and works on.
func TestADeviceInUseByTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.Busy(gpuA)
	before := r.host()
	refuses(t, r.backend.DismountDevice(t.Context(), gpuA, true), backend.RebootNeeded, "reboot of the host", "enabled and mounted as before")
	same(t, before, r.host())
	if n := len(r.wire.called("DismountAssignableDevice")); n != 0 {
		t.Errorf("the dismount was tried %d times", n)
	}

	// What cannot be undone is said.
	r.machine.Deny("Win32_PnPEntity.Enable")
	refuses(t, r.backend.DismountDevice(t.Context(), gpuA, true), backend.RebootNeeded, "could not be enabled again",
		"Enable of Win32_PnPEntity")
}

func TestTheBootDisplayStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.GPUs[0].HostDisplay = true }))
	for _, force := range []bool{false, true} {
		refuses(t, r.backend.DismountDevice(t.Context(), gpuA, force), backend.InUse, "drives the host's own display")
	}
	if n := len(r.wire.called("Disable")); n != 0 {
		t.Errorf("the display was disabled %d times", n)
	}
}

// A GPU that needs a reserved memory region cannot be assigned, which Windows tells with a
// boolean. It is said before the device is disabled.
func TestReservedMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.GPUs[0].Partitionable = nil }))
	r.machine.ReservedMemory(gpuA)
	if g := r.gpu(gpuA); g.Status != gpu.NotAssignable {
		t.Errorf("it is %s", g.Status)
	}
	before := r.host()
	refuses(t, r.backend.DismountDevice(t.Context(), gpuA, true), backend.NotSupported, "needs reserved memory")
	if n := len(r.wire.called("Disable")); n != 0 {
		t.Errorf("it was disabled %d times", n)
	}
	same(t, before, r.host())
}

// Force leaves out the platform's checks, and is what was asked for.
func TestForceIsOnlyWhatWasAsked(t *testing.T) {
	t.Parallel()
	for _, force := range []bool{false, true} {
		r := newRig(t)
		r.run(r.backend.DismountDevice(t.Context(), gpuA, force))
		calls := r.wire.called("DismountAssignableDevice")
		if len(calls) != 1 {
			t.Fatalf("%d calls", len(calls))
		}
		text, _ := calls[0].in["DismountSettingData"].(string)
		want := map[bool]string{false: "TRUE", true: "FALSE"}[force]
		for _, name := range []string{"RequireAcsSupport", "RequireDeviceMitigations"} {
			if !strings.Contains(text, `NAME="`+name+`" TYPE="boolean"><VALUE>`+want+`</VALUE>`) {
				t.Errorf("force %t: %s", force, text)
			}
		}
	}
	r := newRig(t)
	r.run(r.fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
		s.GPUs = map[string]simulated.Hidden{gpuA: {NeedsForce: true}}
	}))
	before := r.host()
	refuses(t, r.backend.DismountDevice(t.Context(), gpuA, false), backend.NotSupported, "DismountAssignableDevice",
		"enabled and mounted as before")
	same(t, before, r.host())
}

// A device that somebody disabled stays so when it cannot be dismounted, and is enabled
// when it is mounted.
func TestADisabledDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.GPUs[0].Problem = "CM_PROB_DISABLED (22)" }))
	r.machine.FailJob("DismountAssignableDevice", 32768, "no")
	refuses(t, r.backend.DismountDevice(t.Context(), gpuA, false), backend.Failed)
	if n := len(r.wire.called("Enable")); n != 0 {
		t.Errorf("it was enabled %d times", n)
	}
	r.run(r.backend.MountDevice(t.Context(), gpuA))
	if g := r.gpu(gpuA); g.Partitionable == nil || g.Dismounted {
		t.Errorf("the GPU is %+v", g)
	}
}

func TestWhatADeviceIsNotMountedUnder(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(withDevice), onHost(func(h *gpu.Host) {
		h.VMs[1].Devices = []gpu.DeviceAssignment{{ID: adapterID, GPU: gpuD}}
	}))
	before := r.host()
	refuses(t, r.backend.MountDevice(t.Context(), gpuC), backend.InUse, "a member of pool vdi")
	refuses(t, r.backend.MountDevice(t.Context(), gpuD), backend.InUse, "assigned to VM beta")
	r.run(r.backend.StartVM(t.Context(), beta), r.backend.StartVM(t.Context(), alpha))
	refuses(t, r.backend.MountDevice(t.Context(), gpuD), backend.InUse, "assigned to VM beta")
	r.run(r.backend.TurnOffVM(t.Context(), beta), r.backend.TurnOffVM(t.Context(), alpha))
	same(t, before, r.host())
	refuses(t, r.backend.MountDevice(t.Context(), "PCIROOT(99)"), backend.NotFound)
}

// A device that Windows enables only with a reboot is back on the host all the same.
func TestADeviceThatNeedsARebootToComeBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.wire.change(func(w *wire) {
		w.answer = func(method string, res hyperv.Result) hyperv.Result {
			if method == "Enable" {
				res.Out["rebootNeeded"] = true
			}
			return res
		}
	})
	refuses(t, r.backend.MountDevice(t.Context(), gpuD), backend.RebootNeeded, "back on the host", "only with a reboot")
}

// A dismount that goes through although its answer was lost is taken back, or kept when
// time only ran out.
func TestADismountThatWasCutOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.JobTime(50 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	r.wire.change(func(w *wire) {
		w.answer = func(method string, res hyperv.Result) hyperv.Result {
			if method == "DismountAssignableDevice" {
				cancel()
			}
			return res
		}
	})
	if err := r.backend.DismountDevice(ctx, gpuA, false); err != nil {
		refuses(t, err, backend.Timeout)
	}
	// It is dismounted, or as before: never disabled on the host.
	if g := r.gpu(gpuA); !g.Dismounted && g.Partitionable == nil {
		t.Errorf("the GPU is %+v", g)
	}

	r = newRig(t)
	jobs := 0
	r.wire.change(func(w *wire) {
		w.get = func(path string) error {
			if strings.Contains(path, "Msvm_ConcreteJob") {
				if jobs++; jobs == 1 {
					r.machine.Wait()
					return &hyperv.Fault{Code: hyperv.CallFailed, Op: "get " + path}
				}
			}
			return nil
		}
	})
	refuses(t, r.backend.DismountDevice(t.Context(), gpuA, false), backend.Unavailable, "may still end", "enabled and mounted as before")
	if g := r.gpu(gpuA); g.Dismounted || g.Partitionable == nil || g.Problem != "" {
		t.Errorf("the GPU is %+v", g)
	}
}

// What a dismount leaves behind on the host's bus is no second device.
func TestPhantomsAreNoDevices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := r.host()
	r.wire.change(func(w *wire) {
		w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
			if !strings.Contains(wql, "FROM Win32_PnPEntity") {
				return rows
			}
			for _, row := range rows {
				if rest, ok := strings.CutPrefix(row.String("DeviceID"), `PCIP\`); ok {
					rows = append([]hyperv.Row{{Path: row.Path, Values: map[string]any{
						"DeviceID": `PCI\` + rest, "Name": "3D Video Controller", "PNPClass": "Display", "Present": false,
						"ConfigManagerErrorCode": int32(45),
					}}}, rows...)
				}
			}
			return rows
		}
	})
	same(t, before, r.host())
}

// A setting of a device that has left the host keeps its VM from starting. It is shown
// and can be removed.
func TestADeviceThatHasLeftTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: deviceID, GPU: gpuD}} }))
	gone := `PCIP\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\4&99999999&0&0000`
	r.wire.change(func(w *wire) {
		w.rows = func(wql string, rows []hyperv.Row) []hyperv.Row {
			for _, row := range rows {
				if strings.HasPrefix(wql, "SELECT * FROM Msvm_PciExpressSettingData") && len(row.Strings("HostResource")) > 0 &&
					strings.HasSuffix(row.String("InstanceID"), deviceID) {
					row.Values["HostResource"] = []any{
						`\\HV01\root\virtualization\v2:Msvm_PciExpress.DeviceID="Microsoft:` + strings.ReplaceAll(gone, `\`, `\\`) + `"`,
					}
				}
			}
			return rows
		}
	})
	if vm := r.vm(alpha); len(vm.Devices) != 1 || vm.Devices[0].GPU != gone {
		t.Errorf("the devices are %+v", vm.Devices)
	}
	r.run(r.backend.RemoveDevice(t.Context(), alpha, deviceID))
	if vm := r.vm(alpha); len(vm.Devices) != 0 {
		t.Errorf("the devices are %+v", vm.Devices)
	}

	// The fleet's own way: the GPU is taken out.
	r = newRig(t, onHost(func(h *gpu.Host) { h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: deviceID, GPU: gpuD}} }))
	r.run(r.fleet.RemoveGPU(t.Context(), "hv01", gpuD), r.backend.RemoveDevice(t.Context(), alpha, deviceID))
	snapshot, err := r.fleet.Snapshot(t.Context())
	r.run(err)
	if vm := vmOf(snapshot.Hosts[0], alpha); len(vm.Devices) != 0 {
		t.Errorf("the setting is still there: %+v", vm.Devices)
	}
}
