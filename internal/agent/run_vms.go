package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// vmRunner runs the steps on VMs that Hyper-V and Linux hosts have in common.
type vmRunner struct {
	host    backend.VMs
	timeout time.Duration
	// act has one effect on the host, if the gate lets it through.
	act func(context.Context, change.Step, func(context.Context) error) error
}

func (r *vmRunner) run(ctx context.Context, s change.Step) error {
	if s.Op == change.OpStopVM {
		return r.stop(ctx, s) // which has the guest's time
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if does, ok := vmSteps[s.Op]; ok {
		return does(r, ctx, s)
	}
	return noStep(s.Op)
}

// vmSteps are what a host does for each operation.
var vmSteps = map[change.Op]func(*vmRunner, context.Context, change.Step) error{
	change.OpAddDevice:     (*vmRunner).addDevice,
	change.OpRemoveDevices: (*vmRunner).removeDevices,
	change.OpStartVM:       (*vmRunner).start,
}

func (r *vmRunner) addDevice(ctx context.Context, s change.Step) error {
	return r.act(ctx, s, func(ctx context.Context) error {
		_, err := r.host.AddDevice(ctx, s.VM, *s.Device)
		return err
	})
}

// stop asks the guest first. The power is cut only where that is allowed, and never
// for a guest that answers that somebody is working in it, or that somebody starts again.
func (r *vmRunner) stop(ctx context.Context, s change.Step) error {
	power := gpu.Power{}
	if s.Power != nil {
		power = *s.Power
	}
	asked, cancel := context.WithTimeout(ctx, power.Timeout())
	defer cancel()
	err := r.act(asked, s, func(ctx context.Context) error { return r.host.ShutDownVM(ctx, s.VM, power.ForceShutdown) })
	var be *backend.Error
	switch {
	case err == nil || !power.AllowTurnOff || staleFence(err) != nil:
		return err
	case errors.As(err, &be) && slices.Contains([]backend.Code{backend.Locked, backend.InUse, backend.AccessDenied, backend.NotFound},
		be.Code):
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.act(ctx, s, func(ctx context.Context) error { return r.host.TurnOffVM(ctx, s.VM) })
}

// startPoll is how often a VM that is still shutting down is looked at.
const startPoll = 500 * time.Millisecond

// start starts a VM. One that is still shutting down, because its guest took longer
// than it was given, is waited for: it would go off later and stay off.
func (r *vmRunner) start(ctx context.Context, s change.Step) error {
	for {
		err := r.act(ctx, s, func(ctx context.Context) error { return r.host.StartVM(ctx, s.VM) })
		var be *backend.Error
		if !errors.As(err, &be) || be.Code != backend.InvalidState {
			return err
		}
		if vm, readErr := r.host.ReadVM(ctx, s.VM); readErr != nil || vm.State != gpu.VMStopping {
			return err
		}
		select {
		case <-time.After(startPoll):
		case <-ctx.Done():
			return err
		}
	}
}

func (r *vmRunner) removeDevices(ctx context.Context, s change.Step) error {
	vm, err := r.host.ReadVM(ctx, s.VM)
	if err != nil {
		return err
	}
	for _, d := range vm.Devices {
		if s.Keeps(d.ID) {
			continue
		}
		if err := r.act(ctx, s, func(ctx context.Context) error { return r.host.RemoveDevice(ctx, vm.ID, d.ID) }); err != nil {
			return err
		}
	}
	return nil
}
