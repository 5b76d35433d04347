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

// hypervRunner runs the steps that a Hyper-V host can do.
type hypervRunner struct {
	host    backend.HyperV
	timeout time.Duration
	// act has one effect on the host, if the gate lets it through.
	act func(context.Context, change.Step, func(context.Context) error) error
}

func (r *hypervRunner) run(ctx context.Context, s change.Step) error {
	limit := r.timeout
	if s.Op == change.OpDrainNode {
		limit *= drainTimes
	}
	unlimited := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if s.Op == change.OpStopVM {
		return r.stop(unlimited, s) // which has the guest's time
	}
	if several, ok := hypervSteps[s.Op]; ok {
		return several(r, ctx, s)
	}
	return r.act(ctx, s, func(ctx context.Context) error { return hypervEffects.run(ctx, r.host, s) })
}

// hypervSteps are those of more than one effect.
var hypervSteps = map[change.Op]func(*hypervRunner, context.Context, change.Step) error{
	change.OpRemoveAdapters: (*hypervRunner).removeAdapters,
	change.OpRemoveDevices:  (*hypervRunner).removeDevices,
	change.OpStartVM:        (*hypervRunner).start,
}

// hypervEffects are the steps that are one effect.
var hypervEffects = effects[backend.HyperV]{
	change.OpDrainNode:  func(ctx context.Context, host backend.HyperV, _ change.Step) error { return host.DrainNode(ctx) },
	change.OpResumeNode: func(ctx context.Context, host backend.HyperV, _ change.Step) error { return host.ResumeNode(ctx) },
	change.OpSetPartitionCount: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		return host.SetPartitionCount(ctx, s.GPU, s.Count)
	},
	change.OpAddAdapter: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		_, err := host.AddPartitionAdapter(ctx, s.VM, *s.Adapter)
		return err
	},
	change.OpSetQuotas: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		return host.SetPartitionQuotas(ctx, s.VM, s.Adapter.ID, s.Adapter.Quotas)
	},
	change.OpDismount: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		return host.DismountDevice(ctx, s.GPU, s.Force)
	},
	change.OpMount: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		return host.MountDevice(ctx, s.GPU)
	},
	change.OpCreatePool: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		return host.CreatePool(ctx, s.Pool)
	},
	change.OpDeletePool: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		return host.DeletePool(ctx, s.Pool)
	},
	change.OpSetPoolMembers: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		return host.SetPoolMembers(ctx, s.Pool, s.GPUs)
	},
	change.OpAddDevice: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		_, err := host.AddDevice(ctx, s.VM, *s.Device)
		return err
	},
	change.OpVMSettings: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		return host.ApplyVMSettings(ctx, s.VM, *s.Settings)
	},
}

// drainTimes is how many steps' time a drain may take: it moves the memory of all VMs of
// a node over the network.
const drainTimes = 6

// stop asks the guest first. The power is cut only where that is allowed, and never
// for a guest that answers that somebody is working in it, or that somebody starts again.
func (r *hypervRunner) stop(ctx context.Context, s change.Step) error {
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
func (r *hypervRunner) start(ctx context.Context, s change.Step) error {
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

func (r *hypervRunner) removeAdapters(ctx context.Context, s change.Step) error {
	vm, err := r.host.ReadVM(ctx, s.VM)
	if err != nil {
		return err
	}
	for _, a := range vm.PartitionAdapters {
		if s.Keeps(a.ID) {
			continue
		}
		if err := r.act(ctx, s, func(ctx context.Context) error { return r.host.RemovePartitionAdapter(ctx, vm.ID, a.ID) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *hypervRunner) removeDevices(ctx context.Context, s change.Step) error {
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
