package backend

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// comparison gathers what GPUs show of something that the catalog infers.
type comparison struct {
	lines []string
	holds *bool
}

func (c *comparison) add(g *gpu.GPU, what string, host, inferred any, same bool) {
	c.lines = append(c.lines, fmt.Sprintf("%s, %s: %s %v, in the catalog %v", g.ID, g.Model, what, host, inferred))
	c.holds = new(same && (c.holds == nil || *c.holds))
}

func (c *comparison) answer(id string) Answer {
	return Answer{Assumption: id, Found: strings.Join(c.lines, "\n"), Holds: c.holds}
}

// CountsAsInCatalog compares the partition counts that drivers offer with those that the
// catalog infers.
func CountsAsInCatalog(h gpu.Host) Answer {
	var counts comparison
	for i := range h.GPUs {
		g := &h.GPUs[i]
		m, ok := catalog.Of(g.PCI, g.Model)
		if p := g.Partitionable; ok && m.CountsInferred && p != nil {
			valid := slices.Sorted(slices.Values(p.ValidCounts))
			counts.add(g, "counts", valid, m.PartitionCounts, slices.Equal(valid, m.PartitionCounts))
		}
	}
	return counts.answer("hyperv-gpu-p-counts")
}

// MIGAsInCatalog compares the MIG profiles that drivers offer with what the catalog infers
// of them.
func MIGAsInCatalog(h gpu.Host) []Answer {
	var places, memory, ids comparison
	for i := range h.GPUs {
		g := &h.GPUs[i]
		m, ok := catalog.Of(g.PCI, g.Model)
		if !ok || m.MIG == nil || g.MIG == nil {
			continue
		}
		for _, p := range g.MIG.Profiles {
			at := slices.IndexFunc(m.MIG.Profiles, func(q gpu.MIGProfile) bool { return q.Name == p.Name })
			if at < 0 {
				continue // a newer driver's
			}
			q := m.MIG.Profiles[at]
			if m.MIG.PlacementsInferred {
				places.add(g, p.Name, []any{p.Size, p.Starts}, []any{q.Size, q.Starts}, p.Size == q.Size && slices.Equal(p.Starts, q.Starts))
			}
			if m.MIG.MemoryInferred {
				memory.add(g, p.Name, p.Memory, q.Memory, p.Memory <= q.Memory && p.Memory >= q.Memory-q.Memory/10)
			}
			if m.MIG.IDsInferred {
				ids.add(g, p.Name, p.ID, q.ID, p.ID == q.ID)
			}
		}
	}
	return []Answer{places.answer("linux-mig-placements"), memory.answer("linux-mig-memory"), ids.answer("linux-mig-ids")}
}
