package conformance

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// window is between the two readings of a scenario.
const window = 20 * time.Millisecond

var errNoMeter = errors.New("the fixture has no meter")

func meterOf(b *migBench) (Metered, error) {
	m, ok := b.sharing.(Metered)
	if !ok {
		return nil, errNoMeter
	}
	return m, nil
}

// needsMeter skips a scenario where there is none.
func needsMeter(t *testing.T, b *migBench) {
	if _, err := meterOf(b); err != nil {
		t.Skip("the fixture cannot say how busy GPUs are: implement Metered on it to run this scenario")
	}
}

// load has kernels run, see Metered.
func load(gpuID string, place *gpu.MIGPlacement, percent float64, memory gpu.Bytes) migAction {
	return func(_ context.Context, b *migBench) error {
		m, err := meterOf(b)
		if err != nil {
			return err
		}
		m.SetLoad(b.t, gpuID, place, percent, memory)
		return nil
	}
}

// measures reads the GPUs twice and looks at what came of it.
func measures(look func(*testing.T, map[string]utilization.GPU, utilization.Window)) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		m, err := meterOf(b)
		if err != nil {
			t.Fatal(err)
		}
		gpus, w, err := m.Meter().Measure(t.Context(), window)
		if err != nil {
			t.Fatal(err)
		}
		byID := map[string]utilization.GPU{}
		for _, g := range gpus {
			byID[g.ID] = g
		}
		look(t, byID, w)
	}
}

// isBusy compares a percentage in both readings.
func isBusy(t *testing.T, what string, want float64, first, second *float64) {
	t.Helper()
	for _, got := range []*float64{first, second} {
		if got == nil || math.Abs(*got-want) > 0.5 {
			t.Errorf("%s is measured as %v, want %v", what, got, want)
		}
	}
}

func holdsProcess(processes []gpu.Process, name string) bool {
	return slices.ContainsFunc(processes, func(p gpu.Process) bool { return p.Name == name })
}

func meterScenarios() []migScenario {
	scenarios := []migScenario{
		{
			name: "every GPU is read twice, a window apart",
			do:   measure,
			then: []migCheck{nothingChanged, measures(func(t *testing.T, all map[string]utilization.GPU, w utilization.Window) {
				if w.Length() < window || time.Since(w.To) > limit {
					t.Errorf("the window is %+v, want %s until now", w, window)
				}
				h := standardSharingHost()
				for i := range h.GPUs {
					g, ok := all[h.GPUs[i].ID]
					if !ok || g.Allocated != 0 || (g.MIG != nil) != (g.ID == h100B) {
						t.Errorf("GPU %s is measured: %t, as %+v", h.GPUs[i].ID, ok, g)
					}
					if g.First.MemoryTotal != h.GPUs[i].VRAM || g.Second.MemoryTotal != h.GPUs[i].VRAM {
						t.Errorf("GPU %s has %s of memory, then %s", g.ID, g.First.MemoryTotal, g.Second.MemoryTotal)
					}
				}
				if len(all) != len(h.GPUs) {
					t.Errorf("%d GPUs are measured", len(all))
				}
			})},
		},
		{
			name:  "a GPU at work beside an idle one",
			first: []migAction{starts("trainer", h100A), load(h100A, nil, 75, 20*gib)},
			do:    measure,
			then: []migCheck{measures(func(t *testing.T, all map[string]utilization.GPU, _ utilization.Window) {
				busy, idle := all[h100A], all[l40s]
				isBusy(t, "the GPU at work", 75, busy.First.Busy, busy.Second.Busy)
				isBusy(t, "the idle GPU", 0, idle.First.Busy, idle.Second.Busy)
				if busy.First.MemoryUsed < 20*gib || idle.Second.MemoryUsed >= gib {
					t.Errorf("%s and %s are used", busy.First.MemoryUsed, idle.Second.MemoryUsed)
				}
				if p := busy.Second.Processes; !holdsProcess(p, "trainer") || len(idle.First.Processes) != 0 {
					t.Errorf("the processes are %+v and %+v", p, idle.First.Processes)
				}
			})},
		},
		{
			name: "each GPU instance for itself",
			first: []migAction{
				create(h100B, mig3g, 4), create(h100B, mig1g, 0), startsIn("trainer", h100B, mig3g, 4),
				load(h100B, &gpu.MIGPlacement{Profile: mig3g, Start: 4}, 40, 10*gib),
			},
			do: measure,
			then: []migCheck{measures(func(t *testing.T, all map[string]utilization.GPU, _ utilization.Window) {
				g := all[h100B]
				if g.First.Busy != nil || g.MIG == nil || len(g.MIG.Profiles) != len(profiles80GB()) || len(g.MIG.Instances) != 2 {
					t.Fatalf("GPU %s is measured as %+v", h100B, g)
				}
				find := func(profile string, start int) utilization.Instance {
					i := slices.IndexFunc(g.MIG.Instances, func(in utilization.Instance) bool { return in.Profile == profile && in.Start == start })
					if i < 0 {
						t.Fatalf("%s at %d is not measured: %+v", profile, start, g.MIG.Instances)
					}
					return g.MIG.Instances[i]
				}
				busy, idle := find(mig3g, 4), find(mig1g, 0)
				isBusy(t, "the instance at work", 40, busy.First.SMActivity, busy.Second.SMActivity)
				isBusy(t, "the idle instance", 0, idle.First.SMActivity, idle.Second.SMActivity)
				if busy.First.MemoryUsed < 10*gib || idle.First.MemoryUsed >= gib || busy.Size != 4 || busy.Allocated != 0 {
					t.Errorf("the instances are %+v and %+v", busy, idle)
				}
				if p := busy.First.Processes; !holdsProcess(p, "trainer") || len(idle.First.Processes) != 0 {
					t.Errorf("the processes are %+v and %+v", p, idle.First.Processes)
				}
			})},
		},
		{
			name:  "one who has gone measures nothing",
			do:    stopped(measure),
			fails: backend.Timeout,
		},
		{
			name: "one whose time runs out in between neither",
			do: func(ctx context.Context, b *migBench) error {
				m, err := meterOf(b)
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(ctx, window)
				defer cancel()
				_, _, err = m.Meter().Measure(ctx, limit)
				return err
			},
			fails: backend.Timeout,
		},
	}
	for i := range scenarios {
		scenarios[i].with = []migArrangement{needsMeter}
	}
	return scenarios
}
