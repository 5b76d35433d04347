package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// TestUtilization measures a host whose GPUs are given out in parts.
func TestUtilization(t *testing.T) {
	r := newRig(t, onSharing)
	half := fraction("half", "inference", 40*gib)
	half.ActiveThreadPercentage = 25
	r.done(
		layout("1", "mps", nil, mps("inference", noMIG)), layout("2", "turns", nil, turns("notebooks", "", 4, hopper2)),
		layout("3", "mig", nil, mig("train", map[string]int{g1: 2}, hopper1)),
		shares("4", "a", nil, half), shares("5", "b", nil, fraction("b", "notebooks", 0)), shares("6", "c", nil, fraction("c", "train", 0)),
	)
	check(t, r.fleet.EditSimulation(t.Context(), host, func(s *simulated.Simulation) {
		s.Load = append(s.Load, simulated.Load{GPU: noMIG, Busy: 80})
	}))
	const window = 20 * time.Millisecond
	m, err := r.Utilization(t.Context(), window)
	check(t, err)
	if l := m.Window().Length(); l < window {
		t.Errorf("the window is %s", l)
	}
	allocated := map[string]float64{}
	for _, g := range m.GPUs {
		allocated[g.ID] = g.Allocated
		if g.ID == noMIG && (g.Second.Busy == nil || *g.Second.Busy != 80 || g.Second.MemoryTotal != 80*gib) {
			t.Errorf("GPU %s: %+v", g.ID, g.Second)
		}
		if g.ID == hopper1 {
			allocated[g.ID] = given(t, g.MIG)
		}
	}
	for id, want := range map[string]float64{noMIG: 0.5, hopper2: 0.25, hopper1: 1, ampere: 0} {
		if got, ok := allocated[id]; !ok || got != want {
			t.Errorf("of GPU %s %v is allocated, want %v", id, got, want)
		}
	}
}

// given is what of the two instances is allocated together: one of them is.
func given(t *testing.T, mig *utilization.MIG) float64 {
	t.Helper()
	if mig == nil || len(mig.Instances) != 2 {
		t.Fatalf("instances are %+v", mig)
	}
	return mig.Instances[0].Allocated + mig.Instances[1].Allocated
}

func TestUtilizationIsRefused(t *testing.T) {
	r := newRig(t, onSharing)
	for _, window := range []time.Duration{0, -time.Second, agent.MaxWindow + time.Second} {
		_, err := r.Utilization(t.Context(), window)
		if e := codeOf(t, err, agent.BadRequest); !strings.Contains(e.Message, "at most 1m0s") {
			t.Errorf("a window of %s: %v", window, e)
		}
	}
	_, err := newRig(t, nil).Utilization(t.Context(), time.Millisecond)
	if e := codeOf(t, err, agent.Refused); e.Cause == nil || e.Cause.Code != backend.NotSupported {
		t.Errorf("on Hyper-V: %v", e)
	}
	check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: simulated.OpMeasure, Times: 1, Code: backend.Failed}))
	if _, err := r.Utilization(t.Context(), time.Millisecond); err == nil || !strings.Contains(err.Error(), "measure") {
		t.Errorf("a driver that fails: %v", err)
	}
	if _, err := r.Utilization(t.Context(), time.Millisecond); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
