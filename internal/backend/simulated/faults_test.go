package simulated_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Each fault is met by starting vm-1, vm-2 and vm-1 again, turned off in between.
func TestFaultsOnStart(t *testing.T) {
	tests := []struct {
		name  string
		fault simulated.Fault
		want  [3]backend.Code // what the three starts are refused with; "" for success
	}{
		{"for ever", simulated.Fault{Op: simulated.OpStartVM}, [3]backend.Code{"failed", "failed", "failed"}},
		{"once", simulated.Fault{Op: simulated.OpStartVM, Times: 1, Code: backend.Insufficient}, [3]backend.Code{"insufficient"}},
		{"twice", simulated.Fault{Op: simulated.OpStartVM, Times: 2}, [3]backend.Code{"failed", "failed"}},
		{"after one", simulated.Fault{Op: simulated.OpStartVM, After: 1, Times: 1}, [3]backend.Code{"", "failed"}},
		{"for a VM by id", simulated.Fault{Op: simulated.OpStartVM, Object: vmID(1)}, [3]backend.Code{"failed", "", "failed"}},
		{"for a VM by name", simulated.Fault{Op: simulated.OpStartVM, Object: "VM-2"}, [3]backend.Code{"", "failed"}},
		{"the second time for a VM", simulated.Fault{Op: simulated.OpStartVM, Object: "vm-1", After: 1}, [3]backend.Code{"", "", "failed"}},
		{"of another operation", simulated.Fault{Op: simulated.OpDismountDevice}, [3]backend.Code{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fleet := newFleet(t, 2)
			run(t, fleet.InjectFault(t.Context(), "hv01", test.fault))
			for i, vm := range []string{vmID(1), vmID(2), vmID(1)} {
				// A new Fleet each time: what is left of a fault is in the file.
				again, err := others.Open(fleet.Path())
				run(t, err)
				err = hostOf(t, again, "hv01").StartVM(t.Context(), vm)
				if test.want[i] == "" {
					run(t, err)
				} else {
					wantCode(t, err, test.want[i])
				}
				want := gpu.VMRunning
				if err != nil {
					want = gpu.VMOff
				}
				if got := state(t, again, "hv01", vm); got != want {
					t.Errorf("start %d: the VM is %s, want %s", i+1, got, want)
				}
				run(t, fleet.SetVMState(t.Context(), vm, gpu.VMOff))
			}
		})
	}
}

func TestFaultAfterTheEffectLosesTheAnswerOnly(t *testing.T) {
	fleet := newFleet(t, 1)
	run(t, fleet.InjectFault(t.Context(), "hv01", simulated.Fault{
		Op: simulated.OpSetPartitionCount, Object: gpu1, Times: 1, Code: backend.Timeout, Detail: "the line went dead",
		Moment: simulated.AfterEffect,
	}))
	host := hostOf(t, fleet, "hv01")
	err := host.SetPartitionCount(t.Context(), gpu1, 8)
	wantCode(t, err, backend.Timeout)
	if err != nil && !strings.Contains(err.Error(), "the line went dead") {
		t.Errorf("the detail is missing: %v", err)
	}
	if got := inventory(t, fleet, "hv01").GPUs[0].Partitionable.Count; got != 8 {
		t.Errorf("the count is %d", got)
	}
	run(t, host.SetPartitionCount(t.Context(), gpu1, 8))
}

func TestRefusedCallUsesUpItsFaultsOnly(t *testing.T) {
	fleet := newFleet(t, 1)
	run(t, fleet.InjectFault(t.Context(), "hv01", simulated.Fault{Op: simulated.OpSetPartitionCount, After: 1, Times: 1}))
	host := hostOf(t, fleet, "hv01")
	wantCode(t, host.SetPartitionCount(t.Context(), gpu1, 3), backend.InvalidParameter) // passes the fault
	wantCode(t, host.SetPartitionCount(t.Context(), gpu1, 8), backend.Failed)
	run(t, host.SetPartitionCount(t.Context(), gpu1, 8))
	if strings.Contains(read(t, fleet.Path()), "faults") {
		t.Error("the fault is still in the file")
	}
}

func TestFaultOnInventory(t *testing.T) {
	fleet := newFleet(t, 1)
	run(t, fleet.InjectFault(t.Context(), "hv01", simulated.Fault{Op: simulated.OpInventory, Times: 1, Code: backend.AccessDenied}))
	host := hostOf(t, fleet, "hv01")
	_, err := host.Inventory(t.Context())
	wantCode(t, err, backend.AccessDenied)
	_, err = host.Inventory(t.Context())
	run(t, err)
}

func TestFaultOnAnyOperation(t *testing.T) {
	fleet := newFleet(t, 1)
	run(t, fleet.InjectFault(t.Context(), "hv01", simulated.Fault{Op: simulated.OpAny, Times: 2, Code: backend.RebootNeeded}))
	host := hostOf(t, fleet, "hv01")
	wantCode(t, host.CreatePool(t.Context(), "p"), backend.RebootNeeded)
	_, err := host.Load(t.Context())
	wantCode(t, err, backend.RebootNeeded)
	run(t, host.CreatePool(t.Context(), "p"))
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, 1)
		run(t, fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
			s.Latency = map[simulated.Op]int{simulated.OpAny: 0, simulated.OpStartVM: 80}
		}))
		host := hostOf(t, fleet, "hv01")

		began := time.Now()
		run(t, host.SetPartitionCount(t.Context(), gpu1, 8))
		if took := time.Since(began); took > 0 {
			t.Errorf("an operation without latency took %v", took)
		}
		began = time.Now()
		run(t, host.StartVM(t.Context(), vmID(1)))
		if took := time.Since(began); took != 80*time.Millisecond {
			t.Errorf("the start took %v", took)
		}
	})
}

func TestLatencyBeyondTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, 1)
		run(t, fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
			s.Latency = map[simulated.Op]int{simulated.OpAny: 60_000}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		wantCode(t, hostOf(t, fleet, "hv01").StartVM(ctx, vmID(1)), backend.Timeout)
		s, err := fleet.Snapshot(t.Context())
		if err != nil || s.Hosts[0].VMs[0].State != gpu.VMOff {
			t.Errorf("the VM is %s, error %v", s.Hosts[0].VMs[0].State, err)
		}
	})
}

// Slow operations of several hosts pass side by side: latency is not spent under
// the file's lock.
func TestLatencyDoesNotBlockOtherHosts(t *testing.T) {
	fleet := newFleet(t, 1)
	run(t, fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
		s.Latency = map[simulated.Op]int{simulated.OpStartVM: 60_000}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	slow := hostOf(t, fleet, "hv01")
	go func() { done <- slow.StartVM(ctx, vmID(1)) }()
	run(t, hostOf(t, fleet, "hv02").SetPartitionCount(t.Context(), gpu1, 8))
	cancel()
	wantCode(t, <-done, backend.Timeout)
}

func TestUnreachableHostFailsEveryCall(t *testing.T) {
	fleet := newFleet(t, 1)
	host := hostOf(t, fleet, "hv01")
	run(t, fleet.SetUnreachable(t.Context(), "hv01", true))
	before := read(t, fleet.Path())

	ctx := t.Context()
	calls := map[string]func() error{
		"Inventory":              func() error { _, err := host.Inventory(ctx); return err },
		"Load":                   func() error { _, err := host.Load(ctx); return err },
		"Update":                 func() error { return host.Update(ctx, func(s *backend.State) error { s.Fence++; return nil }) },
		"SetPartitionCount":      func() error { return host.SetPartitionCount(ctx, gpu1, 8) },
		"AddPartitionAdapter":    func() error { _, err := host.AddPartitionAdapter(ctx, vmID(1), gpu.PartitionAdapter{}); return err },
		"SetPartitionQuotas":     func() error { return host.SetPartitionQuotas(ctx, vmID(1), "x", gpu.Quotas{}) },
		"RemovePartitionAdapter": func() error { return host.RemovePartitionAdapter(ctx, vmID(1), "x") },
		"DismountDevice":         func() error { return host.DismountDevice(ctx, gpu1, true) },
		"MountDevice":            func() error { return host.MountDevice(ctx, gpu1) },
		"CreatePool":             func() error { return host.CreatePool(ctx, "p") },
		"SetPoolMembers":         func() error { return host.SetPoolMembers(ctx, "p", nil) },
		"DeletePool":             func() error { return host.DeletePool(ctx, "p") },
		"AddDevice":              func() error { _, err := host.AddDevice(ctx, vmID(1), gpu.DeviceAssignment{GPU: gpu1}); return err },
		"RemoveDevice":           func() error { return host.RemoveDevice(ctx, vmID(1), "x") },
		"ApplyVMSettings":        func() error { return host.ApplyVMSettings(ctx, vmID(1), gpu.VMSettings{}) },
		"ShutDownVM":             func() error { return host.ShutDownVM(ctx, vmID(1), false) },
		"TurnOffVM":              func() error { return host.TurnOffVM(ctx, vmID(1)) },
		"StartVM":                func() error { return host.StartVM(ctx, vmID(1)) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) { wantCode(t, call(), backend.Unavailable) })
	}
	if read(t, fleet.Path()) != before {
		t.Error("an unreachable host was changed")
	}
	run(t, fleet.SetUnreachable(t.Context(), "hv01", false), host.StartVM(t.Context(), vmID(1)))
}
