// Package catalog holds what vendors document about GPU models: which sharing
// modes a model has, which partition counts its driver offers, how MIG divides it, and
// where that is written. A host's own answer always wins over the catalog.
//
// A false or an empty field means that no page we know says so. It does not mean
// that the GPU cannot do it.
package catalog

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// Model is one GPU model.
type Model struct {
	Name   string // "NVIDIA A2", unique
	Vendor string // "NVIDIA"
	Family string // architecture: "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell"
	// Aliases are other names under which hosts and documents know the model.
	Aliases []string
	// Devices are the PCI device ids under which the model appears ("25B6"), upper case.
	Devices []string
	// Subsystems tell the model from others that share a device id ("157E10DE").
	// Empty means that the device id alone is enough.
	Subsystems []string
	VRAM       gpu.Bytes // of one GPU, as sold
	// Unified is true where that is the system's memory, of which the driver tells no amount.
	Unified bool
	// GPUP and DDA tell which of the two Hyper-V modes the vendor supports.
	GPUP, DDA bool
	// PartitionCounts are the valid counts, ascending; empty when not documented.
	PartitionCounts []int
	// CountsInferred is true when the counts follow from NVIDIA's vGPU profiles
	// rather than from a page about GPU-P (assumption hyperv-gpu-p-counts).
	CountsInferred bool
	// MIG is nil when the model has none that we know of.
	MIG     *MIGTable
	Sources []Source
}

// Source says where a fact is documented.
type Source struct {
	Fact  string // what it says, in our words
	Title string // title of the page
	URL   string
}

// ByPCI finds the model of a device by its vendor and device id.
func ByPCI(id gpu.PCIID) (Model, bool) { return byPCI(id) }

// Of finds the model of a device that its driver calls by a name, "" where it does not: by the
// PCI id, if the model there has that name, else by the name. Boards reuse ids of others.
func Of(id gpu.PCIID, name string) (Model, bool) {
	if m, ok := byPCI(id); ok && (name == "" || m.isCalled(name)) {
		return m, true
	}
	return byName(name)
}

// ByName finds a model by name, without case, with or without the vendor ("A2").
func ByName(name string) (Model, bool) { return byName(name) }

// HyperV tells whether a vendor documents the model for Hyper-V.
func (m Model) HyperV() bool { return m.GPUP || m.DDA }

// All lists the models by name.
func All() []Model { return all() }
