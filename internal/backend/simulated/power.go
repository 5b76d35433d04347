package simulated

import (
	"context"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// shutdownPoll is how often a VM that shuts down is looked at.
const shutdownPoll = 20 * time.Millisecond

// ShutDownVM asks the guest to shut down and waits until the VM is off. The guest
// goes on when ctx ends: a request cannot be taken back.
func (h *Host) ShutDownVM(ctx context.Context, vmID string, force bool) error {
	c := call{op: OpShutDownVM, vm: vmID}
	goes := false // the guest has heard it
	if err := h.do(ctx, c, func(r *record) error {
		err := r.askToShutDown(vmID, force)
		if vm, ok := r.VM(vmID); ok {
			goes = vm.State != gpu.VMRunning
		}
		return err
	}); err != nil {
		return err
	}
	for {
		rec, err := h.peek(context.WithoutCancel(ctx), c) // how the VM is when time runs out
		if err != nil {
			return err
		}
		vm, ok := rec.VM(vmID)
		if !ok {
			return complete(refuse(backend.NotFound, "the VM is gone"), c, rec)
		}
		switch {
		case vm.State == gpu.VMOff:
			return nil
		case goes && vm.State == gpu.VMRunning:
			return complete(refuse(backend.InUse, "it runs again: somebody started it as soon as it was off"), c, rec)
		}
		if err := sleep(ctx, shutdownPoll); err != nil {
			return complete(refuse(backend.Timeout, "the guest had not shut down when time ran out; the VM is %s", vm.State), c, rec)
		}
	}
}

func (r *record) askToShutDown(vmID string, force bool) error {
	vm, err := r.vm(vmID)
	if err != nil {
		return err
	}
	switch vm.State {
	case gpu.VMOff, gpu.VMStopping: // off, or on the way (32782)
		return nil
	case gpu.VMRunning:
	default:
		return refuse(backend.InvalidState, "the VM is %s, so its guest cannot be asked (32775)", vm.State)
	}
	guest := r.Simulation.guest(vm.ID)
	if guest.NoIntegration {
		return nil // the request reaches nobody
	}
	if guest.Locked && !force {
		return refuse(backend.Locked, "the machine is locked and cannot be shut down without the force option (32781)")
	}
	off := time.Now().Add(time.Duration(guest.ShutdownMS) * time.Millisecond)
	guest.OffAt = &off
	r.Simulation.setGuest(vm.ID, guest)
	vm.State = gpu.VMStopping
	r.catchUp(time.Now())
	return nil
}

// TurnOffVM cuts the power.
func (h *Host) TurnOffVM(ctx context.Context, vmID string) error {
	return h.do(ctx, call{op: OpTurnOffVM, vm: vmID}, func(r *record) error {
		vm, err := r.vm(vmID)
		if err != nil {
			return err
		}
		if vm.State == gpu.VMSaved {
			return refuse(backend.InvalidState, "the VM is saved: there is no power to cut (32775)")
		}
		r.stop(vm, gpu.VMOff)
		return nil
	})
}

// StartVM starts, resumes or restores a VM. One of a cluster waits until the cluster has
// noticed that it is off.
func (h *Host) StartVM(ctx context.Context, vmID string) error {
	c := call{op: OpStartVM, vm: vmID}
	rec, err := h.peek(ctx, c)
	if err != nil {
		return err
	}
	if known := rec.Simulation.guest(vmID).KnownOffAt; known != nil {
		if err := sleep(ctx, time.Until(*known)); err != nil {
			return complete(refuse(backend.Timeout, "time ran out, and the cluster has not noticed that the VM is off"), c, rec)
		}
	}
	return h.do(ctx, c, func(r *record) error {
		vm, err := r.vm(vmID)
		if err != nil {
			return err
		}
		return r.start(vm)
	})
}

// start leaves the VM as it was when it fails.
func (r *record) start(vm *gpu.VM) error {
	switch vm.State {
	case gpu.VMRunning:
		return nil
	case gpu.VMPaused: // it has kept its partitions and devices
		vm.State = gpu.VMRunning
		return nil
	case gpu.VMStarting:
		vm.State = gpu.VMRunning
		return nil
	case gpu.VMOff, gpu.VMSaved:
	default:
		return refuse(backend.InvalidState, "the VM is %s and cannot be started (32775)", vm.State)
	}
	if state := r.NodeState(); vm.Clustered && state != "" && state != gpu.NodeUp {
		return refuse(backend.Unavailable, "the cluster places no VM on node %s, which is %s (0x80070046)", r.Name, state)
	}
	usesGPU := len(vm.PartitionAdapters)+len(vm.Devices) > 0 || len(r.devicesOf(vm)) > 0
	guest := r.Simulation.guest(vm.ID)
	if guest.StartFails == StartFailsAlways || (guest.StartFails == StartFailsWithGPU && usesGPU) {
		return refuse(backend.Failed, "the virtual machine failed to start")
	}
	if usesGPU {
		if err := r.policyGate(); err != nil {
			return err
		}
	}
	if r.Platform == gpu.Linux {
		if err := r.takeVGPUs(vm); err != nil {
			return err
		}
		vm.State = gpu.VMRunning
		return nil
	}
	before := vm.State
	if err := r.takePlaces(vm); err != nil {
		r.stop(vm, before)
		return err
	}
	vm.State = gpu.VMRunning
	return nil
}

// stop ends a VM's execution and takes back what it held.
func (r *record) stop(vm *gpu.VM, state gpu.VMState) {
	for i := range r.GPUs {
		if p := r.GPUs[i].Partitionable; p != nil {
			face := gpuFace{p}
			face.vacate(vm.ID)
		}
	}
	for i := range vm.Devices {
		if vm.Devices[i].Pool != "" {
			vm.Devices[i].GPU = ""
		}
	}
	r.leaveVGPUs(vm)
	guest := r.Simulation.guest(vm.ID)
	guest.OffAt, guest.KnownOffAt = nil, nil
	if lag := time.Duration(r.Simulation.ClusterLagMS) * time.Millisecond; vm.Clustered && lag > 0 &&
		vm.State != gpu.VMOff && vm.State != gpu.VMSaved {
		known := time.Now().Add(lag)
		guest.KnownOffAt = &known
	}
	r.Simulation.setGuest(vm.ID, guest)
	vm.State = state
}

// catchUp lets happen what time has brought: guests that finished shutting down. It
// also fills in the statuses that the author of a file left out, and has MPS daemons show
// the devices that the host has by now.
func (r *record) catchUp(now time.Time) {
	r.refreshDaemons()
	if slices.ContainsFunc(r.GPUs, func(g gpu.GPU) bool { return g.Status == "" }) {
		r.refreshStatuses()
	}
	for id, guest := range r.Simulation.Guests {
		if guest.OffAt == nil || guest.OffAt.After(now) {
			continue
		}
		if vm, ok := r.VM(id); ok && vm.State == gpu.VMStopping {
			r.stop(vm, gpu.VMOff)
			r.refreshStatuses()
		}
	}
}
