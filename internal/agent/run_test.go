package agent

import (
	"context"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestEveryOpRuns has every operation done by a host of its platform. Whether the host has
// what the step is about does not matter here: there is a runner that tells it what to do.
func TestEveryOpRuns(t *testing.T) {
	t.Parallel()
	fleet, err := others.InMemory(fuzzHosts())
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range change.Ops() {
		name := "n01"
		if op.By() == change.ByHyperV || op.By() == change.ByVMs {
			name = "hv01"
		}
		host, err := fleet.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		done := false
		r := &runner{
			host: host, timeout: defaultStepTimeout,
			gate: func(context.Context, change.Step) error { return nil },
			claims: func(_ context.Context, step change.Step) error {
				done = len(editClaims(nil, step)) == 1 == (op == change.OpPutClaim)
				return nil
			},
		}
		s := change.Step{
			Op: op, GPU: "p", VM: "v", Pool: "dda", Count: 2, Unit: "dcgm.service", Adapter: &gpu.PartitionAdapter{},
			Device:   &gpu.DeviceAssignment{GPU: "d"},
			Settings: &gpu.VMSettings{}, Power: &gpu.Power{}, Instance: &gpu.MIGPlacement{}, VGPU: &gpu.VGPUPlace{}, ComputeMode: gpu.ComputeDefault,
			TimeSlice: gpu.TimeSliceLong, Daemon: &gpu.MPSDaemonSpec{Name: "d"}, Share: &gpu.ShareSpec{Name: "s"},
			Claim: &gpu.Claim{Kind: gpu.ClaimPool, ID: "p"},
		}
		if err := able(host, []change.Step{s}); err != nil {
			t.Errorf("%s: %v", op, err)
		}
		switch err := r.run(t.Context(), s); {
		case err != nil && err.Error() == noStep(op).Error():
			t.Errorf("%s: nothing runs it", op)
		case op.By() == change.ByAgent && !done:
			t.Errorf("%s: it does not change the claims as it should", op)
		}
		if be := backend.Backend(host); op.By() != change.ByAgent && able(nothing{be}, []change.Step{s}) == nil {
			t.Errorf("%s: a host that can do nothing is said to be able to", op)
		}
	}
	if err := (&runner{}).run(t.Context(), change.Step{Op: "fold_gpu"}); err == nil || err.Error() != noStep("fold_gpu").Error() {
		t.Errorf("an operation that there is none of: %v", err)
	}
}

// nothing is a host that can only be looked at.
type nothing struct{ backend.Backend }
