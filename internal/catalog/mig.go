package catalog

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// MIGTable is what is known about MIG on a GPU model: what a plan rests on while the
// host cannot be asked. Names and memory differ a little between drivers, so that the
// GPU's own answer always wins.
type MIGTable struct {
	// Profiles are in the order in which nvidia-smi lists them.
	Profiles []gpu.MIGProfile
	// Slices is the number of memory slices that starts and sizes count.
	Slices int
	// MinDriver is the first driver with MIG for the model; "" when not documented.
	MinDriver string
	// ModeNeedsReset is true where switching MIG on or off needs a reset of the GPU.
	ModeNeedsReset bool
	// PlacementsInferred is true when starts and sizes follow from the fractions and
	// counts of NVIDIA's guide, or from a GPU of the same kind, rather than from a listing
	// of the model itself (nvidia-smi mig -lgipp; assumption linux-mig-placements).
	PlacementsInferred bool
	// MemoryInferred is true when the profiles' memory is the GPU's memory shared out,
	// which is a little more than the driver gives (assumption linux-mig-memory).
	MemoryInferred bool
	// IDsInferred is true when the profile ids are those of GPUs with the same geometry
	// (assumption linux-mig-ids).
	IDsInferred bool
	// IDsUnknown is true when no page tells the profile ids; all are 0 then.
	IDsUnknown bool
	Sources    []Source
}

// Profile finds a profile by its name.
func (t *MIGTable) Profile(name string) (gpu.MIGProfile, bool) {
	return (&gpu.MIG{Profiles: t.Profiles}).Profile(name)
}

// clone copies a table, so that no caller can write into the catalog.
func (t *MIGTable) clone() *MIGTable {
	if t == nil {
		return nil
	}
	c := *t
	c.Profiles = slices.Clone(t.Profiles)
	for i := range c.Profiles {
		c.Profiles[i].Starts = slices.Clone(c.Profiles[i].Starts)
	}
	c.Sources = slices.Clone(t.Sources)
	return &c
}

// eighths describes a GPU with seven compute and eight memory slices by what its
// profiles have of the memory: an eighth, a quarter, a half and all.
type eighths struct {
	gb  [4]int   // as in the profiles' names
	mib [4]int64 // as the driver lists it; zero when not known
}

// profiles has the geometry that all GPUs with seven compute slices share. The eighth
// memory slice belongs to no single slice of compute.
func (e eighths) profiles() []gpu.MIGProfile {
	memory := e.mib
	if memory == [4]int64{} {
		for i, share := range []int64{8, 4, 2, 1} {
			memory[i] = 1024 * min(int64(e.gb[3])/share, int64(e.gb[i]))
		}
	}
	p := func(id, compute, share, highest, size int, suffix string, starts ...int) gpu.MIGProfile {
		return gpu.MIGProfile{
			ID: id, Name: fmt.Sprintf("%dg.%dgb%s", compute, e.gb[share], suffix), Slices: compute,
			Memory: gpu.FromMiB(memory[share]), Max: highest, Size: size, Starts: starts,
		}
	}
	return []gpu.MIGProfile{
		p(19, 1, 0, 7, 1, "", 0, 1, 2, 3, 4, 5, 6),
		p(20, 1, 0, 1, 1, "+me", 0, 1, 2, 3, 4, 5, 6),
		p(15, 1, 1, 4, 2, "", 0, 2, 4, 6),
		p(14, 2, 1, 3, 2, "", 0, 2, 4),
		p(9, 3, 2, 2, 4, "", 0, 4),
		p(5, 4, 2, 1, 4, "", 0),
		p(0, 7, 3, 1, 8, "", 0),
	}
}

// variant is a profile of a GPU whose compute and memory slices are shared out alike.
type variant struct {
	id      int
	suffix  string
	highest int
}

// shares makes the profiles of one share of such a GPU: compute of all its compute
// slices and the same part of its memory slices.
func shares(compute, gb int, mib int64, size int, starts []int, variants ...variant) []gpu.MIGProfile {
	out := make([]gpu.MIGProfile, len(variants))
	for i, v := range variants {
		out[i] = gpu.MIGProfile{
			ID: v.id, Name: fmt.Sprintf("%dg.%dgb%s", compute, gb, v.suffix), Slices: compute,
			Memory: gpu.FromMiB(mib), Max: v.highest, Size: size, Starts: slices.Clone(starts),
		}
	}
	return out
}
