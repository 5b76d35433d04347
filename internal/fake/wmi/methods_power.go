package fakewmi

import (
	"context"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// States that RequestStateChange takes. Shutting down, 4, is of the first version of
// Hyper-V's WMI; rebooting and resetting are nothing that a fleet knows.
const (
	requestRunning = 2
	requestOff     = 3
	requestSaved   = 6
	requestPaused  = 9
)

func (c *invocation) requestStateChange() error {
	vm, ok := c.host.VM(c.target.text("Name"))
	if !ok {
		return refuse(rvNotSupported, "the host itself is no virtual machine")
	}
	requested, _ := c.in.number("RequestedState")
	engine, fleet, id := c.machine.host, c.machine.fleet, vm.ID
	switch requested {
	case requestRunning:
		if vm.State != gpu.VMOff && vm.State != gpu.VMSaved && vm.State != gpu.VMPaused {
			return refuse(rvInvalidState, "the VM is %s", vm.State)
		}
		return c.passing(vm, gpu.VMStarting, jobStart, func(ctx context.Context) error { return engine.StartVM(ctx, id) })
	case requestOff:
		if !holdsMemory(vm) {
			return refuse(rvInvalidState, "the VM is %s", vm.State)
		}
		return c.passing(vm, gpu.VMStopping, jobPowerOff, func(ctx context.Context) error { return engine.TurnOffVM(ctx, id) })
	case requestSaved, requestPaused:
		if vm.State != gpu.VMRunning {
			return refuse(rvInvalidState, "the VM is %s", vm.State)
		}
		if len(vm.PartitionAdapters)+len(vm.Devices) > 0 {
			return refuse(rvNotSupported, "the operation cannot be performed while the VM has GPUs assigned")
		}
		state, kind := gpu.VMSaved, uint64(jobSave)
		if requested == requestPaused {
			state, kind = gpu.VMPaused, jobPause
		}
		return c.passing(vm, gpu.VMOther, kind, func(ctx context.Context) error { return fleet.SetVMState(ctx, id, state) })
	default:
		return refuse(rvNotSupported, "state %d cannot be requested", requested)
	}
}

// passing runs a job during which the VM shows a state that passes.
func (c *invocation) passing(vm *gpu.VM, state gpu.VMState, kind uint64, effect func(context.Context) error) error {
	end, ok := c.machine.unrest.pass(vm.ID, state)
	if !ok {
		return refuse(rvInvalidState, "the VM is on its way to another state")
	}
	return c.jobThen(kind, func(ctx context.Context, _ *Object) error { return effect(ctx) }, end)
}

// shutdownPoll is how often a guest that was asked is looked at.
const shutdownPoll = 2 * time.Millisecond

// initiateShutdown asks a guest and returns when it has begun to shut down, long
// before the VM is off.
func (c *invocation) initiateShutdown() error {
	vm, ok := c.host.VM(c.target.text("SystemName"))
	if !ok {
		return refuse(rvInvalidState, "the VM is gone")
	}
	force, _ := c.in.flag("Force")
	if failure, ok := c.machine.faults.takeFailure(c.method.Name); ok {
		return &failure
	}
	if vm.State == gpu.VMStopping {
		return refuse(rvShuttingDown, "a shutdown is in progress")
	}
	// The simulated host waits until the VM is off; its guest goes on by itself.
	ctx, stopWaiting := context.WithCancel(context.WithoutCancel(c.ctx))
	defer stopWaiting()
	answered := make(chan error, 1)
	engine, id := c.machine.host, vm.ID
	c.machine.jobs.running.Go(func() { answered <- engine.ShutDownVM(ctx, id, force) })
	for {
		select {
		case err := <-answered:
			return err
		case <-c.ctx.Done():
			return c.ctx.Err()
		case <-time.After(shutdownPoll):
			host, err := c.machine.read(c.ctx)
			if err != nil {
				return err
			}
			if now, ok := host.VM(id); !ok || now.State != gpu.VMRunning {
				return nil
			}
		}
	}
}

// jobError is the error of a job as text, none while it runs or when it succeeded.
func (c *invocation) jobError() error {
	if text := c.errorOfJob(); text != "" {
		return c.out.Set("Error", text)
	}
	return nil
}

func (c *invocation) jobErrors() error {
	if text := c.errorOfJob(); text != "" {
		return c.out.Set("Errors", []string{text})
	}
	return nil
}

// errorOfJob is an Msvm_Error as text.
func (c *invocation) errorOfJob() string {
	if state, _ := c.target.number("JobState"); state != jobException {
		return ""
	}
	return c.embed("Msvm_Error", fields{
		"Message": c.target.text("ErrorDescription"), "MessageID": c.target.text("Name"), "ErrorSource": c.target.Path, "ErrorSourceFormat": 2,
		"OwningEntity": "Hyper-V",
	}).Text()
}
