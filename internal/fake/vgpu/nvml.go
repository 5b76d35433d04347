package fakevgpu

import (
	"context"
	"errors"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// nvml is the driver's library, open in this process.
type nvml struct{ k *Kernel }

func (n nvml) VGPU(_ context.Context, address string) (vgpu.Facts, error) {
	n.k.mu.Lock()
	defer n.k.mu.Unlock()
	if !n.k.nvmlOpen {
		return vgpu.Facts{}, errors.New("NVML is closed")
	}
	c := n.k.card(address)
	facts := vgpu.Facts{
		UUID: c.uuid, Types: c.Types, Processes: c.processes,
		Heterogeneous: vgpu.Heterogeneous{Supported: c.Heterogeneous && !c.mig, Enabled: c.heterogeneous},
	}
	if c.MIG {
		facts.MIG = &gpu.MIG{Enabled: c.mig, Pending: c.mig}
		for _, in := range c.instances {
			facts.MIG.Instances = append(facts.MIG.Instances, gpu.GPUInstance{ID: in.ID, Profile: in.Profile})
		}
	}
	return facts, nil
}

func (n nvml) SetHeterogeneous(_ context.Context, address string, on bool) error {
	n.k.mu.Lock()
	defer n.k.mu.Unlock()
	if faulty, err := n.k.fault("heterogeneous"); faulty {
		return err
	}
	c := n.k.card(address)
	for _, f := range c.functions {
		if len(f.vgpus) > 0 {
			return errors.New("in use by another client")
		}
	}
	if !c.Heterogeneous || c.mig {
		return errors.New("not supported")
	}
	c.heterogeneous = on
	n.k.log("heterogeneous %s %t", address, on)
	n.k.render()
	return nil
}

func (n nvml) Suspend(context.Context) (func(context.Context) error, error) {
	n.k.mu.Lock()
	defer n.k.mu.Unlock()
	n.k.nvmlOpen = false
	return func(context.Context) error {
		n.k.mu.Lock()
		defer n.k.mu.Unlock()
		n.k.nvmlOpen = true
		return nil
	}, nil
}
