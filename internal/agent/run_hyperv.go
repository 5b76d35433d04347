package agent

import (
	"context"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
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
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if several, ok := hypervSteps[s.Op]; ok {
		return several(r, ctx, s)
	}
	return r.act(ctx, s, func(ctx context.Context) error { return hypervEffects.run(ctx, r.host, s) })
}

// hypervSteps are those of more than one effect.
var hypervSteps = map[change.Op]func(*hypervRunner, context.Context, change.Step) error{
	change.OpRemoveAdapters: (*hypervRunner).removeAdapters,
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
	change.OpVMSettings: func(ctx context.Context, host backend.HyperV, s change.Step) error {
		return host.ApplyVMSettings(ctx, s.VM, *s.Settings)
	},
}

// drainTimes is how many steps' time a drain may take: it moves the memory of all VMs of
// a node over the network.
const drainTimes = 6

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
