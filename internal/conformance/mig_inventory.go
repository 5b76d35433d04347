package conformance

import (
	"cmp"
	"context"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func migInventoryScenarios() []migScenario {
	return []migScenario{
		{
			name: "shows each GPU by its UUID, with what it is",
			do:   lookOnly,
			then: []migCheck{
				nothingChanged, isTheCard(a100), isTheCard(h100A), isTheCard(h100B), isTheCard(l40s),
				func(t *testing.T, b *migBench) {
					if len(b.after.GPUs) != 4 {
						t.Errorf("there are %d GPUs, want 4", len(b.after.GPUs))
					}
				},
			},
		},
		{
			name: "shows the profiles that a GPU offers, with their places",
			do:   lookOnly,
			then: []migCheck{offers(a100, profiles80GB()), offers(h100A, profiles80GB())},
		},
		{
			name:  "offers the same in MIG mode and beside instances",
			given: []given{inMIG(h100A)},
			first: []migAction{create(h100A, mig3g, 0)},
			do:    lookOnly,
			then:  []migCheck{offers(h100A, profiles80GB())},
		},
		{
			name:  "shows the numbers of the capability devices of instances, also of those that others made and divided",
			given: []given{inMIG(h100A, h100B)},
			first: []migAction{
				create(h100A, mig1g, 0), create(h100A, mig1g, 1), destroy(h100A, mig1g, 0), create(h100A, mig2g, 2),
				somebodyCreates(h100A, mig3g, 4), somebodyDivides(h100B, mig3g, 4, 1), create(h100B, mig1g, 0),
			},
			do: lookOnly,
			then: []migCheck{
				hasCapabilities(h100A, at(mig1g, 1), 2), hasCapabilities(h100A, at(mig2g, 2), 2), hasCapabilities(h100A, at(mig3g, 4), 2),
				hasCapabilities(h100B, at(mig3g, 4), 2), hasCapabilities(h100B, at(mig1g, 0), 2),
			},
		},
		{
			name: "shows which GPUs have no MIG",
			do:   lookOnly,
			then: []migCheck{onTheCard(l40s, func(t *testing.T, g *gpu.GPU) {
				if g.MIG != nil {
					t.Errorf("it has MIG: %+v", g.MIG)
				}
			})},
		},
		{
			name:  "shows the modes, and whether changing them takes a reset",
			given: []given{inMIG(h100B)},
			do:    lookOnly,
			then: []migCheck{
				isInMIG(a100, false), isInMIG(h100A, false), isInMIG(h100B, true),
				needsReset(a100, true), needsReset(h100A, false),
			},
		},
		{
			name:  "shows a mode that waits for a reset",
			given: []given{waitsForReset(a100)},
			do:    lookOnly,
			then:  []migCheck{hasModes(a100, false, true)},
		},
		{
			name:  "shows the end of a mode that waits for a reset",
			given: []given{inMIG(a100), waitsForReset(a100)},
			do:    lookOnly,
			then:  []migCheck{hasModes(a100, true, false)},
		},
		{
			name:  "shows instances that others made",
			given: []given{inMIG(h100A)},
			first: []migAction{somebodyCreates(h100A, mig1g, 6), somebodyCreates(h100A, mig3g, 0)},
			do:    lookOnly,
			then: []migCheck{
				hasInstances(h100A, at(mig3g, 0), at(mig1g, 6)),
				isWhole(h100A, mig3g, 0), isWhole(h100A, mig1g, 6), hasInstances(h100B),
			},
		},
		{
			name:  "does not show instances that others removed",
			given: []given{inMIG(h100A)},
			first: []migAction{create(h100A, mig3g, 0), create(h100A, mig1g, 6), somebodyDestroys(h100A, mig3g, 0)},
			do:    lookOnly,
			then:  []migCheck{hasInstances(h100A, at(mig1g, 6))},
		},
		{
			name:  "shows an instance without a compute instance",
			given: []given{inMIG(h100A)},
			first: []migAction{somebodyHalfMakes(h100A, mig2g, 2)},
			do:    lookOnly,
			then:  []migCheck{hasInstances(h100A, at(mig2g, 2)), isHalf(h100A, mig2g, 2)},
		},
		{
			name:  "tells profiles of one size apart",
			given: []given{inMIG(h100A)},
			first: []migAction{create(h100A, mig1gm, 0), create(h100A, mig1g, 1), create(h100A, mig1gd, 2), create(h100A, mig2g, 4)},
			do:    lookOnly,
			then:  []migCheck{hasInstances(h100A, at(mig1gm, 0), at(mig1g, 1), at(mig1gd, 2), at(mig2g, 4))},
		},
		{
			name:  "shows who computes on a GPU",
			first: []migAction{starts("trainer", l40s), starts("server", h100A), starts("notebook", h100A)},
			do:    lookOnly,
			then:  []migCheck{runsOn("trainer", l40s), runsOn("server", h100A), runsOn("notebook", h100A)},
		},
		{
			name:  "shows in which instance a process runs",
			given: []given{inMIG(h100A)},
			first: []migAction{
				create(h100A, mig3g, 4), create(h100A, mig1g, 0), create(h100A, mig1g, 1),
				startsIn("trainer", h100A, mig3g, 4), startsIn("notebook", h100A, mig1g, 1),
			},
			do:   lookOnly,
			then: []migCheck{runsIn("trainer", h100A, mig3g, 4), runsIn("notebook", h100A, mig1g, 1)},
		},
		{
			name:  "does not show a process that ended",
			first: []migAction{starts("trainer", l40s), starts("server", l40s), ends("trainer")},
			do:    lookOnly,
			then:  []migCheck{runsNot("trainer"), runsOn("server", l40s)},
		},
		{
			name:  "is the same each time when nothing happens",
			given: []given{inMIG(h100A, h100B)},
			first: []migAction{sevenSmall(h100A), create(h100B, mig4g, 0), startsIn("trainer", h100A, mig1g, 3), starts("server", l40s)},
			do:    lookOnly,
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:  "hands out values that the reader may change",
			given: []given{inMIG(h100A)},
			first: []migAction{create(h100A, mig3g, 0)},
			do: func(ctx context.Context, b *migBench) error {
				host, err := b.MIG().Inventory(ctx)
				if err != nil {
					return err
				}
				g, _ := host.GPU(h100A)
				g.MIG.Enabled, g.MIG.Profiles[0].Starts[0], g.MIG.Instances[0].Start = false, 99, 99
				return nil
			},
			then: []migCheck{nothingChanged, offers(h100A, profiles80GB())},
		},
		{
			name: "fails when it is given no time",
			do: stopped(migAction(func(ctx context.Context, b *migBench) error {
				_, err := b.MIG().Inventory(ctx)
				return err
			})),
			fails: backend.Timeout,
		},
	}
}

// isTheCard compares what a GPU is, rather than how it stands, with what was given.
func isTheCard(gpuID string) migCheck {
	identity := func(g *gpu.GPU) gpu.GPU {
		return gpu.GPU{
			ID: g.ID, Model: g.Model, Vendor: g.Vendor, PCI: g.PCI, Address: g.Address, VRAM: g.VRAM,
			Driver: g.Driver, ComputeMode: g.ComputeMode, Minor: g.Minor,
		}
	}
	return onTheCard(gpuID, func(t *testing.T, g *gpu.GPU) {
		t.Helper()
		h := standardMIGHost()
		want, _ := h.GPU(gpuID)
		if diff := gocmp.Diff(identity(want), identity(g)); diff != "" {
			t.Errorf("not the GPU that was given (-want +got):\n%s", diff)
		}
	})
}

// hasCapabilities looks for the numbers of an instance's capability devices; saneMIG sees to it that no two have the same.
func hasCapabilities(gpuID string, p gpu.MIGPlacement, want int) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		i, ok := instanceAt(&b.after, gpuID, p)
		if got := i.Capabilities(); !ok || len(got) != want {
			t.Errorf("GPU %s: the instance %s at %d has the capability devices %v, and %d were wanted", gpuID, p.Profile, p.Start, got, want)
		}
	}
}

// offers compares profiles in whatever order.
func offers(gpuID string, want []gpu.MIGProfile) migCheck {
	byName := func(profiles []gpu.MIGProfile) []gpu.MIGProfile {
		return slices.SortedFunc(slices.Values(profiles), func(a, b gpu.MIGProfile) int { return cmp.Compare(a.Name, b.Name) })
	}
	return onTheMIG(gpuID, func(t *testing.T, m *gpu.MIG) {
		t.Helper()
		if diff := gocmp.Diff(byName(want), byName(m.Profiles)); diff != "" {
			t.Errorf("GPU %s offers other profiles (-want +got):\n%s", gpuID, diff)
		}
	})
}

func needsReset(gpuID string, want bool) migCheck {
	return onTheMIG(gpuID, func(t *testing.T, m *gpu.MIG) {
		t.Helper()
		if m.NeedsReset != want {
			t.Errorf("GPU %s needs a reset for its mode: %t, want %t", gpuID, m.NeedsReset, want)
		}
	})
}
