package conformance

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What the host looks like afterwards.

func onTheCard(id string, look func(*testing.T, *gpu.GPU)) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		g, ok := b.after.GPU(id)
		if !ok {
			t.Errorf("GPU %s is not in the inventory", id)
			return
		}
		look(t, g)
	}
}

func onTheMIG(id string, look func(*testing.T, *gpu.MIG)) migCheck {
	return onTheCard(id, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		if g.MIG == nil {
			t.Errorf("GPU %s has no MIG", id)
			return
		}
		look(t, g.MIG)
	})
}

// nothingChanged is a host on which nothing happened.
func nothingChanged(t *testing.T, b *migBench) {
	t.Helper()
	sameHost(t, "the host changed", b.before, b.after)
}

// isInMIG is a mode in force, with no other one pending.
func isInMIG(gpuID string, want bool) migCheck { return hasModes(gpuID, want, want) }

func hasModes(gpuID string, enabled, pending bool) migCheck {
	return onTheMIG(gpuID, func(t *testing.T, m *gpu.MIG) {
		t.Helper()
		if m.Enabled != enabled || m.Pending != pending {
			t.Errorf("GPU %s: MIG mode %t, pending %t; want %t, %t", gpuID, m.Enabled, m.Pending, enabled, pending)
		}
	})
}

// at is a place, for checks that list them.
func at(profile string, start int) gpu.MIGPlacement {
	return gpu.MIGPlacement{Profile: profile, Start: start}
}

// hasInstances lists all instances of a GPU.
func hasInstances(gpuID string, want ...gpu.MIGPlacement) migCheck {
	return onTheMIG(gpuID, func(t *testing.T, m *gpu.MIG) {
		t.Helper()
		want = slices.SortedFunc(slices.Values(want), func(a, b gpu.MIGPlacement) int { return cmp.Compare(a.Start, b.Start) })
		if diff := gocmp.Diff(want, m.State().Placements, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("GPU %s has other instances (-want +got):\n%s", gpuID, diff)
		}
	})
}

// isWhole is an instance with one compute instance that fills it.
func isWhole(gpuID, profile string, start int) migCheck {
	return onTheMIG(gpuID, func(t *testing.T, m *gpu.MIG) {
		t.Helper()
		p, _ := m.Profile(profile)
		for _, i := range m.Instances {
			if i.Placement() != at(profile, start) {
				continue
			}
			if len(i.Compute) != 1 || i.Compute[0].Slices != p.Slices {
				t.Errorf("GPU %s: the instance %s at %d is not filled by one compute instance: %+v", gpuID, profile, start, i.Compute)
			}
			return
		}
		t.Errorf("GPU %s has no instance %s at %d", gpuID, profile, start)
	})
}

// isHalf is an instance without a compute instance.
func isHalf(gpuID, profile string, start int) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		i, ok := instanceAt(&b.after, gpuID, at(profile, start))
		if !ok || len(i.Compute) > 0 {
			t.Errorf("GPU %s: instance %s at %d is there: %t, with compute instances %v", gpuID, profile, start, ok, i.Compute)
		}
	}
}

// keeps compares instances with what they were: the same ids and UUIDs.
func keeps(gpuID string, places ...gpu.MIGPlacement) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		for _, p := range places {
			before, ok := instanceAt(&b.before, gpuID, p)
			if !ok {
				t.Errorf("GPU %s had no instance %s at %d before", gpuID, p.Profile, p.Start)
			}
			after, _ := instanceAt(&b.after, gpuID, p)
			if diff := gocmp.Diff(before, after); diff != "" {
				t.Errorf("GPU %s: the instance %s at %d is another (-before +after):\n%s", gpuID, p.Profile, p.Start, diff)
			}
		}
	}
}

// isAnother is an instance that was destroyed and made again: another UUID.
func isAnother(gpuID, profile string, start int) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		before, err := uuidOf(&b.before, gpuID, at(profile, start))
		if err != nil {
			t.Error("before:", err)
		}
		after, err := uuidOf(&b.after, gpuID, at(profile, start))
		if err != nil {
			t.Error("after:", err)
		}
		if before == after {
			t.Errorf("the MIG device has the UUID %s again", after)
		}
	}
}

// onlyChanged compares all other GPUs with what they were.
func onlyChanged(gpuIDs ...string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		others := func(h gpu.Host) gpu.Host {
			h.GPUs = slices.DeleteFunc(slices.Clone(h.GPUs), func(g gpu.GPU) bool { return slices.Contains(gpuIDs, g.ID) })
			return h
		}
		sameHost(t, "something else changed", others(b.before), others(b.after))
	}
}

// runsOn is a process that uses a GPU as a whole.
func runsOn(process, gpuID string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		p, ok := b.process(gpuID, process)
		if !ok || p.Name != process || p.GPUInstance != nil || p.ComputeInstance != nil {
			t.Errorf("GPU %s: process %s is there: %t, as %+v", gpuID, process, ok, p)
		}
	}
}

// runsIn is a process that uses a GPU instance.
func runsIn(process, gpuID, profile string, start int) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		i, ok := instanceAt(&b.after, gpuID, at(profile, start))
		if !ok || len(i.Compute) == 0 {
			t.Errorf("GPU %s has no instance %s at %d in which a process could run", gpuID, profile, start)
			return
		}
		p, ok := b.process(gpuID, process)
		if !ok || p.Name != process || p.GPUInstance == nil || *p.GPUInstance != i.ID ||
			p.ComputeInstance == nil || *p.ComputeInstance != i.Compute[0].ID {
			t.Errorf("GPU %s: process %s is there: %t, as %+v; want it in %+v", gpuID, process, ok, p, i)
		}
	}
}

// runsNot is a process that has ended.
func runsNot(process string) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		for _, g := range b.after.GPUs {
			if p, ok := b.process(g.ID, process); ok {
				t.Errorf("process %s is still on GPU %s: %+v", process, g.ID, p)
			}
		}
	}
}

func (b *migBench) process(gpuID, name string) (gpu.Process, bool) {
	if g, ok := b.after.GPU(gpuID); ok {
		for _, p := range g.Processes {
			if p.PID == b.pids[name] {
				return p, true
			}
		}
	}
	return gpu.Process{}, false
}

func unitRuns(name string, want bool) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		if got := slices.Contains(b.after.Units, name); got != want {
			t.Errorf("unit %s runs: %t, want %t; there are %v", name, got, want, b.after.Units)
		}
	}
}

// onlyUnits compares everything but the units with what it was.
func onlyUnits(t *testing.T, b *migBench) {
	t.Helper()
	before, after := b.before, b.after
	before.Units, after.Units = nil, nil
	sameHost(t, "something else changed", before, after)
}
