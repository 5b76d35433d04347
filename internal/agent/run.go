package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// runner runs steps on a host.
type runner struct {
	host backend.Backend
	// gate lets the effects of a step on the host through, each just before it happens.
	gate func(context.Context, change.Step) error
	// claims makes a step that only concerns claims, under the lease.
	claims  func(context.Context, change.Step) error
	timeout time.Duration
}

// act has one effect on the host, if the gate lets it through.
func (r *runner) act(ctx context.Context, s change.Step, effect func(context.Context) error) error {
	if err := r.gate(ctx, s); err != nil {
		return err
	}
	return effect(ctx)
}

// run makes one step. Each step may be repeated.
func (r *runner) run(ctx context.Context, s change.Step) (err error) {
	// A step in which the agent itself fails is put back like any other that fails.
	defer recovered(s.String(), &err)
	if s.Op.By() == change.ByHyperV {
		host, err := asHyperV(r.host)
		if err != nil {
			return err
		}
		return (&hypervRunner{host: host, timeout: r.timeout, act: r.act}).run(ctx, s)
	}
	if s.Op.By() == change.ByVMs {
		host, err := asVMs(r.host)
		if err != nil {
			return err
		}
		return (&vmRunner{host: host, timeout: r.timeout, act: r.act}).run(ctx, s)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if s.Op.By() == change.ByAgent {
		return r.claims(ctx, s)
	}
	effect, err := effectOf(r.host, s)
	if err != nil {
		return err
	}
	return r.act(ctx, s, effect)
}

// editClaims makes a step that only concerns claims.
func editClaims(claims []gpu.Claim, s change.Step) []gpu.Claim {
	if s.Op == change.OpDropClaim {
		return change.DropClaim(claims, s.Claim.Kind, s.Claim.ID)
	}
	return change.PutClaim(claims, *s.Claim)
}

// isLocal tells whether a step only concerns a claim that this host alone keeps: the write that
// says that it has begun can make it.
func isLocal(s change.Step) bool { return s.Op.By() == change.ByAgent && s.Claim.Cluster == "" }

// effects are what a host of a platform does for each operation. A map and not a switch, since a
// test goes through all operations, and the linter asks every switch for each of them.
type effects[H any] map[change.Op]func(context.Context, H, change.Step) error

func (e effects[H]) run(ctx context.Context, host H, s change.Step) error {
	if effect, ok := e[s.Op]; ok {
		return effect(ctx, host, s)
	}
	return noStep(s.Op)
}

// effectOf is what a step does to a Linux host, which has to be one that can.
func effectOf(host backend.Backend, s change.Step) (func(context.Context) error, error) {
	switch s.Op.By() {
	case change.ByMIG:
		h, err := asMIG(host)
		return func(ctx context.Context) error { return migEffects.run(ctx, h, s) }, err
	case change.ByVGPU:
		h, err := asVGPU(host)
		return func(ctx context.Context) error { return vgpuEffects.run(ctx, h, s) }, err
	case change.BySharing:
		h, err := asSharing(host)
		return func(ctx context.Context) error { return sharingEffects.run(ctx, h, s) }, err
	case change.ByAgent, change.ByHyperV, change.ByVMs:
	}
	return nil, noStep(s.Op)
}

// able tells whether a host can do all of some steps at all.
func able(host backend.Backend, steps []change.Step) error {
	for _, s := range steps {
		var err error
		switch s.Op.By() {
		case change.ByAgent:
		case change.ByHyperV:
			_, err = asHyperV(host)
		case change.ByVMs:
			_, err = asVMs(host)
		case change.ByMIG, change.ByVGPU, change.BySharing:
			_, err = effectOf(host, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// asHyperV is a host as one that runs Hyper-V.
func asHyperV(host backend.Backend) (backend.HyperV, error) {
	h, ok := host.(backend.HyperV)
	if !ok {
		return nil, &Error{Code: BadRequest, Message: "this host is not a Hyper-V host; it cannot be changed in this way"}
	}
	return h, nil
}

// asVMs is a host as one that runs VMs.
func asVMs(host backend.Backend) (backend.VMs, error) {
	h, ok := host.(backend.VMs)
	if !ok {
		return nil, &Error{Code: BadRequest, Message: "this host runs no VMs that an agent knows; it cannot be changed in this way"}
	}
	return h, nil
}

// asMIG is a host as one with Multi-Instance GPUs.
func asMIG(host backend.Backend) (backend.MIG, error) {
	h, ok := host.(backend.MIG)
	if !ok {
		return nil, &Error{Code: BadRequest, Message: "this host is not a Linux host with NVIDIA GPUs; it cannot be changed in this way"}
	}
	return h, nil
}

// asVGPU is a host as one that makes vGPUs.
func asVGPU(host backend.Backend) (backend.VGPU, error) {
	h, ok := host.(backend.VGPU)
	if !ok {
		return nil, &Error{
			Code: BadRequest, Message: "this host is not a Linux KVM host with NVIDIA's vGPU driver; it cannot be changed in this way",
		}
	}
	return h, nil
}

// asSharing is a host as one whose processes and containers share GPUs.
func asSharing(host backend.Backend) (backend.Sharing, error) {
	h, ok := host.(backend.Sharing)
	if !ok {
		return nil, &Error{
			Code: BadRequest, Message: "this host is not a Linux host with NVIDIA GPUs that containers share; it cannot be changed in this way",
		}
	}
	return h, nil
}

func noStep(op change.Op) error {
	return &Error{Code: BadRequest, Message: fmt.Sprintf("there is no step %q", op)}
}
