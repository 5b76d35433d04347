package hyperv_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What a VM is shows: its generation, its state, its checkpoints and its memory.
func TestWhatVMsAre(t *testing.T) {
	t.Parallel()
	types := []gpu.CheckpointType{gpu.CheckpointsDisabled, gpu.CheckpointsProduction, gpu.CheckpointsProductionOnly, gpu.CheckpointsStandard}
	states := []gpu.VMState{gpu.VMOff, gpu.VMSaved, gpu.VMPaused, gpu.VMOther}
	for i := range types {
		r := newRig(t, onHost(func(h *gpu.Host) {
			h.VMs[0].Generation, h.VMs[0].Checkpoints, h.VMs[0].State, h.VMs[0].DynamicMemory = 1, types[i], states[i], true
			h.VMs[1].Checkpoints = types[i]
		}))
		vm, other := r.vm(alpha), r.vm(beta)
		if vm.Generation != 1 || vm.Checkpoints != types[i] || vm.State != states[i] || !vm.DynamicMemory {
			t.Errorf("the VM is %+v", vm)
		}
		if other.Generation != 2 || other.State != gpu.VMOff || other.DynamicMemory {
			t.Errorf("the other is %+v", other)
		}
	}
}

// The hardware of a VM is changed only while it is off. A saved or paused one still
// knows the old.
func TestHardwareNeedsTheVMOff(t *testing.T) {
	t.Parallel()
	for _, state := range []gpu.VMState{gpu.VMRunning, gpu.VMSaved, gpu.VMPaused, gpu.VMStarting, gpu.VMStopping, gpu.VMOther} {
		r := newRig(t, onHost(withAdapter), onHost(withDevice), onHost(func(h *gpu.Host) { h.VMs[0].State = state }))
		before := r.host()
		_, adding := r.backend.AddPartitionAdapter(t.Context(), alpha, gpu.PartitionAdapter{})
		_, assigning := r.backend.AddDevice(t.Context(), alpha, gpu.DeviceAssignment{GPU: gpuD})
		for _, err := range []error{
			adding, assigning,
			r.backend.RemovePartitionAdapter(t.Context(), alpha, adapterID), r.backend.RemoveDevice(t.Context(), alpha, deviceID),
			r.backend.SetPartitionQuotas(t.Context(), alpha, adapterID, someQuotas),
		} {
			refuses(t, err, backend.InvalidState, "VM alpha", string(state), "must be off")
		}
		same(t, before, r.host())
		if n := len(r.wire.called("AddResourceSettings")) + len(r.wire.called("RemoveResourceSettings")) +
			len(r.wire.called("ModifyResourceSettings")); n != 0 {
			t.Errorf("%s: %d calls", state, n)
		}
	}
}

// A checkpoint has settings, adapters and devices of its own, which are not the VM's.
func TestCheckpointsAreNotTheVM(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(withAdapter), onHost(withDevice), onHost(func(h *gpu.Host) { h.VMs[0].Checkpoints = gpu.CheckpointsProduction }))
	rows, err := r.wire.Query(t.Context(), hyperv.Virtualization,
		"SELECT * FROM Msvm_GpuPartitionSettingData WHERE InstanceID LIKE '%"+adapterID+"'")
	r.run(err)
	if len(rows) != 2 {
		t.Fatalf("the fixture has %d rows of the adapter, want the VM's and the checkpoint's", len(rows))
	}
	if vm := r.vm(alpha); len(vm.PartitionAdapters) != 1 || len(vm.Devices) != 1 {
		t.Errorf("the VM has %+v and %+v", vm.PartitionAdapters, vm.Devices)
	}
	id, err := r.backend.AddPartitionAdapter(t.Context(), alpha, gpu.PartitionAdapter{})
	r.run(err, r.backend.SetPartitionQuotas(t.Context(), alpha, id, someQuotas), r.backend.ApplyVMSettings(t.Context(), alpha, someSettings),
		r.backend.RemovePartitionAdapter(t.Context(), alpha, adapterID), r.backend.RemoveDevice(t.Context(), alpha, deviceID))
	vm := r.vm(alpha)
	if len(vm.PartitionAdapters) != 1 || vm.PartitionAdapters[0].ID != id || !vm.PartitionAdapters[0].Quotas.Equal(someQuotas) ||
		len(vm.Devices) != 0 {
		t.Errorf("then the VM has %+v and %+v", vm.PartitionAdapters, vm.Devices)
	}
}

// A copy that Hyper-V Replica keeps is told from a VM.
func TestReplicasAreTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.VMs[1].Replica = true }))
	if a, b := r.vm(alpha), r.vm(beta); a.Replica || !b.Replica || !b.IsCopy() {
		t.Errorf("the VM is %+v, its neighbour's copy %+v", a, b)
	}
	r.run(r.backend.StartVM(t.Context(), beta))
	if b := r.vm(beta); !b.Replica || b.IsCopy() {
		t.Errorf("after a failover it is %+v", b)
	}
}

// VMs of one name are told apart by their ids, in any case.
func TestVMsOfOneName(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.VMs[1].Name = "alpha" }))
	host := r.host()
	if len(host.VMs) != 2 || host.VMs[0].ID != alpha || host.VMs[1].ID != beta {
		t.Fatalf("the VMs are %+v", host.VMs)
	}
	_, err := r.backend.AddPartitionAdapter(t.Context(), "22222222-bbbb-4bbb-8bbb-000000000002", gpu.PartitionAdapter{})
	r.run(err, r.backend.StartVM(t.Context(), "22222222-bbbb-4bbb-8bbb-000000000002"))
	if a, b := r.vm(alpha), r.vm(beta); len(a.PartitionAdapters) != 0 || a.State != gpu.VMOff || len(b.PartitionAdapters) != 1 ||
		b.State != gpu.VMRunning {
		t.Errorf("the first is %+v, the second %+v", a, b)
	}
	refuses(t, r.backend.StartVM(t.Context(), "alpha"), backend.NotFound)
	refuses(t, r.backend.StartVM(t.Context(), "' OR Name LIKE '%"), backend.NotFound)
}

// A guest that says that it is locked is forced only when asked; one that is not ready
// yet is asked again; one that goes down by itself is fine.
func TestGuestsThatAreAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(running))
	r.run(r.fleet.SetGuest(t.Context(), alpha, simulated.Guest{Locked: true}))
	refuses(t, r.backend.ShutDownVM(t.Context(), alpha, false), backend.Locked, "locked", "(32781)")
	for _, c := range r.wire.called("InitiateShutdown") {
		if c.in["Force"] != false {
			t.Errorf("the guest was asked with %v", c.in)
		}
	}
	r.run(r.backend.ShutDownVM(t.Context(), alpha, true))

	r = newRig(t, onHost(running))
	r.machine.Answer("InitiateShutdown", 32780)
	r.run(r.backend.ShutDownVM(t.Context(), alpha, false))
	if n := len(r.wire.called("InitiateShutdown")); n != 2 {
		t.Errorf("the guest was asked %d times", n)
	}

	r = newRig(t, onHost(running))
	r.machine.Answer("InitiateShutdown", 32775)
	refuses(t, r.backend.ShutDownVM(t.Context(), alpha, false), backend.InvalidState, "(32775)")

	for _, value := range []uint32{32775, 32782} {
		r = newRig(t, onHost(running))
		r.machine.Answer("InitiateShutdown", value)
		r.wire.change(func(w *wire) {
			w.answer = func(method string, res hyperv.Result) hyperv.Result {
				if method == "InitiateShutdown" {
					r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMOff))
				}
				return res
			}
		})
		r.run(r.backend.ShutDownVM(t.Context(), alpha, false))
	}
}

// What does not come as far as was asked is found out, not waited for without end.
func TestVMsThatDoNotGetThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.backend.SettleIn(200 * time.Millisecond)
	r.machine.Answer("RequestStateChange", 0) // done, it says
	refuses(t, r.backend.StartVM(t.Context(), alpha), backend.Failed, "VM alpha", "still off")

	r = newRig(t, onHost(running))
	r.backend.SettleIn(200 * time.Millisecond)
	r.machine.Answer("RequestStateChange", 0)
	refuses(t, r.backend.TurnOffVM(t.Context(), alpha), backend.Failed, "VM alpha", "still running")

	r = newRig(t, onHost(func(h *gpu.Host) { h.VMs[0].State = gpu.VMSaved }))
	r.wire.change(func(w *wire) {
		w.answer = func(method string, res hyperv.Result) hyperv.Result {
			if method == "RequestStateChange" { // the VM comes up and crashes
				r.machine.Wait()
				r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMOff))
			}
			return res
		}
	})
	refuses(t, r.backend.StartVM(t.Context(), alpha), backend.Failed, "VM alpha", "went off while it started")
}

// A VM that starts already is waited for, and one that leaves the host meanwhile is not.
func TestVMsOnTheirWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.VMs[0].State, h.VMs[1].State = gpu.VMStarting, gpu.VMStopping }))
	time.AfterFunc(50*time.Millisecond, func() { _ = r.fleet.SetVMState(context.Background(), alpha, gpu.VMRunning) })
	r.run(r.backend.StartVM(t.Context(), alpha))
	time.AfterFunc(50*time.Millisecond, func() { _ = r.fleet.SetVMState(context.Background(), beta, gpu.VMOff) })
	r.run(r.backend.ShutDownVM(t.Context(), beta, false))
	if n := len(r.wire.called("RequestStateChange")) + len(r.wire.called("InitiateShutdown")); n != 0 {
		t.Errorf("%d calls for what was on its way", n)
	}

	r = newRig(t, inCluster, onHost(func(h *gpu.Host) { h.VMs[0].State = gpu.VMStarting }))
	time.AfterFunc(50*time.Millisecond, func() { _ = r.fleet.MoveVM(context.Background(), alpha, "hv02") })
	refuses(t, r.backend.StartVM(t.Context(), alpha), backend.NotFound, "VM alpha", "its cluster runs it on another node")
}

// The platform's text says why a VM does not start.
func TestVMsThatFindNoPartition(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) { h.GPUs[0].Partitionable, h.GPUs[1].Partitionable.Count = nil, 1 }))
	r.seated(alpha)
	_, err := r.backend.AddPartitionAdapter(t.Context(), beta, gpu.PartitionAdapter{})
	r.run(err)
	refuses(t, r.backend.StartVM(t.Context(), beta), backend.Insufficient, "RequestStateChange", "0x800705AA")
	if a, b := r.vm(alpha), r.vm(beta); a.State != gpu.VMRunning || b.State != gpu.VMOff {
		t.Errorf("the VMs are %s and %s", a.State, b.State)
	}
}

// A guest tells its name while it runs and has integration services.
func TestGuestsTellTheirNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, onHost(func(h *gpu.Host) {
		h.VMs[0].State, h.VMs[1].State = gpu.VMRunning, gpu.VMRunning
		h.VMs[0].Guest, h.VMs[1].Guest = "Windows Server 2022 Datacenter: Azure Edition", "A & B <Linux>"
	}))
	if a, b := r.vm(alpha).Guest, r.vm(beta).Guest; a != "Windows Server 2022 Datacenter: Azure Edition" || b != "A & B <Linux>" {
		t.Errorf("the guests are %q and %q", a, b)
	}
	r.run(r.backend.TurnOffVM(t.Context(), alpha))
	if a := r.vm(alpha).Guest; a != "" {
		t.Errorf("a VM that is off runs %q", a)
	}
	again, ok, err := r.backend.Refresh(t.Context(), r.host(), backend.Objects{VMs: []string{beta}})
	r.run(err)
	if vm, _ := again.VM(beta); !ok || vm.Guest != "A & B <Linux>" {
		t.Errorf("read again: %t, %+v", ok, vm)
	}
}
