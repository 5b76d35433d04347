package connect

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Recorded is a host as an inventory recorded it: it can be looked at and nothing
// more.
type Recorded struct{ Host gpu.Host }

// Inventory gives the recording.
func (r Recorded) Inventory(context.Context) (gpu.Host, error) { return r.Host, nil }

// AcquireLease refuses, as does all that would change the host.
func (r Recorded) AcquireLease(context.Context, agent.LeaseRequest) (int64, error) {
	return 0, r.refuse()
}

// ReleaseLease does nothing: there is no lease.
func (r Recorded) ReleaseLease(context.Context, int64) error { return nil }

// Prepare refuses.
func (r Recorded) Prepare(context.Context, agent.Change) (agent.Prepared, error) {
	return agent.Prepared{}, r.refuse()
}

// Apply refuses.
func (r Recorded) Apply(context.Context, int64, agent.Change, string, func(agent.StepProgress)) (agent.Outcome, error) {
	return agent.Outcome{}, r.refuse()
}

// Settle refuses.
func (r Recorded) Settle(context.Context, int64, string, bool) (agent.Outcome, error) {
	return agent.Outcome{}, r.refuse()
}

// Close does nothing.
func (r Recorded) Close() error { return nil }

func (r Recorded) refuse() error {
	return &agent.Error{Code: agent.BadRequest, Host: r.Host.Name, Message: "this host is a recorded inventory, which cannot be changed"}
}
