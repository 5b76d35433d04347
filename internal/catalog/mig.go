package catalog

import (
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
