package backend_test

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func model(t *testing.T, is func(catalog.Model) bool) catalog.Model {
	t.Helper()
	i := slices.IndexFunc(catalog.All(), is)
	if i < 0 {
		t.Fatal("the catalog has no such model")
	}
	return catalog.All()[i]
}

func hostWith(m catalog.Model, edit func(*gpu.GPU)) gpu.Host {
	id := gpu.PCIID{Vendor: "10DE", Device: m.Devices[0]}
	if len(m.Subsystems) > 0 {
		id.Subsystem = m.Subsystems[0]
	}
	g := gpu.GPU{ID: "g", Model: m.Name, PCI: id}
	edit(&g)
	return gpu.Host{GPUs: []gpu.GPU{g}}
}

func wantHolds(t *testing.T, a backend.Answer, want *bool) {
	t.Helper()
	if (a.Holds == nil) != (want == nil) || (want != nil && *a.Holds != *want) {
		t.Errorf("%s: %v, want %v: %s", a.Assumption, a.Holds, want, a.Found)
	}
}

func TestCountsAsInCatalog(t *testing.T) {
	inferred := model(t, func(m catalog.Model) bool { return m.CountsInferred })
	offering := func(counts ...int) gpu.Host {
		return hostWith(inferred, func(g *gpu.GPU) { g.Partitionable = &gpu.Partitionable{ValidCounts: counts} })
	}
	wantHolds(t, backend.CountsAsInCatalog(gpu.Host{}), nil)
	wantHolds(t, backend.CountsAsInCatalog(offering(inferred.PartitionCounts...)), new(true))
	wantHolds(t, backend.CountsAsInCatalog(offering(1, 3)), new(false))
	known := model(t, func(m catalog.Model) bool { return len(m.PartitionCounts) > 0 && !m.CountsInferred })
	wantHolds(t, backend.CountsAsInCatalog(hostWith(known, func(g *gpu.GPU) { g.Partitionable = &gpu.Partitionable{ValidCounts: []int{3}} })),
		nil)
}

func TestMIGAsInCatalog(t *testing.T) {
	m := model(t, func(m catalog.Model) bool {
		return m.MIG != nil && m.MIG.PlacementsInferred && m.MIG.IDsInferred && m.MIG.MemoryInferred
	})
	with := func(edit func(*gpu.MIGProfile)) gpu.Host {
		profiles := slices.Clone(m.MIG.Profiles)
		edit(&profiles[0])
		return hostWith(m, func(g *gpu.GPU) { g.MIG = &gpu.MIG{Profiles: profiles} })
	}
	for i, want := range []struct {
		edit  func(*gpu.MIGProfile)
		holds [3]bool
	}{
		{func(*gpu.MIGProfile) {}, [3]bool{true, true, true}},
		{func(p *gpu.MIGProfile) { p.Starts = []int{7} }, [3]bool{false, true, true}},
		{func(p *gpu.MIGProfile) { p.Memory /= 2 }, [3]bool{true, false, true}},
		{func(p *gpu.MIGProfile) { p.ID = 99 }, [3]bool{true, true, false}},
	} {
		for j, a := range backend.MIGAsInCatalog(with(want.edit)) {
			if a.Holds == nil || *a.Holds != want.holds[j] {
				t.Errorf("case %d, %s: %v, want %t: %s", i, a.Assumption, a.Holds, want.holds[j], a.Found)
			}
		}
	}
	for _, a := range backend.MIGAsInCatalog(gpu.Host{}) {
		wantHolds(t, a, nil)
	}
}
