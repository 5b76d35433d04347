package catalog

import (
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const nvidia = "NVIDIA"

// vendorIDs are the PCI vendor ids of the vendors in the catalog.
var vendorIDs = map[string]string{nvidia: "10DE"}

func byPCI(id gpu.PCIID) (Model, bool) {
	for _, m := range models() {
		if m.isDevice(id) {
			return m.clone(), true
		}
	}
	return Model{}, false
}

func byName(name string) (Model, bool) {
	for _, m := range models() {
		if m.isCalled(name) {
			return m.clone(), true
		}
	}
	return Model{}, false
}

func all() []Model {
	list := models()
	out := make([]Model, len(list))
	for i, m := range list {
		out[i] = m.clone()
	}
	return out
}

func (m Model) isDevice(id gpu.PCIID) bool {
	return strings.EqualFold(vendorIDs[m.Vendor], id.Vendor) &&
		containsFold(m.Devices, id.Device) &&
		(len(m.Subsystems) == 0 || containsFold(m.Subsystems, id.Subsystem))
}

func (m Model) isCalled(name string) bool {
	want := m.bareName(name)
	return m.bareName(m.Name) == want ||
		slices.ContainsFunc(m.Aliases, func(a string) bool { return m.bareName(a) == want })
}

// bareName is a name without case and without the model's vendor.
func (m Model) bareName(name string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), strings.ToLower(m.Vendor)+" ")
}

// clone copies a model, so that no caller can write into the table.
func (m Model) clone() Model {
	m.Aliases = slices.Clone(m.Aliases)
	m.Devices = slices.Clone(m.Devices)
	m.Subsystems = slices.Clone(m.Subsystems)
	m.PartitionCounts = slices.Clone(m.PartitionCounts)
	m.MIG = m.MIG.clone()
	m.Sources = slices.Clone(m.Sources)
	return m
}

func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(e string) bool { return strings.EqualFold(e, s) })
}
