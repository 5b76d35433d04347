package catalog_test

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const gib = 1024 * gpu.MiB

var (
	deviceID    = regexp.MustCompile(`^[0-9A-F]{4}$`)
	subsystemID = regexp.MustCompile(`^[0-9A-F]{8}$`)
)

func TestModelsAreComplete(t *testing.T) {
	families := []string{"Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell"}
	for _, m := range catalog.All() {
		t.Run(m.Name, func(t *testing.T) {
			if !strings.HasPrefix(m.Name, m.Vendor+" ") {
				t.Errorf("the name does not begin with the vendor %q", m.Vendor)
			}
			if !slices.Contains(families, m.Family) {
				t.Errorf("family %q is not an architecture", m.Family)
			}
			// which shares the id of the other one, and which has none
			if len(m.Devices) == 0 && m.Name != "NVIDIA GB200 189GB" && m.Name != "NVIDIA Thor" {
				t.Error("there is no PCI device id")
			}
			for _, d := range m.Devices {
				if !deviceID.MatchString(d) {
					t.Errorf("device id %q is not four upper-case hexadecimal digits", d)
				}
			}
			for _, s := range m.Subsystems {
				if !subsystemID.MatchString(s) {
					t.Errorf("subsystem %q is not eight upper-case hexadecimal digits", s)
				}
			}
			if m.VRAM < gib || m.VRAM%gib != 0 {
				t.Errorf("VRAM is %d bytes, not whole GiB", m.VRAM)
			}
			if !m.HyperV() && m.MIG == nil && !m.Unified {
				t.Error("it supports no mode")
			}
			if len(m.Sources) == 0 {
				t.Error("there is no source")
			}
			for _, s := range m.Sources {
				u, err := url.Parse(s.URL)
				if err != nil || u.Scheme != "https" || u.Host == "" || s.Title == "" || s.Fact == "" {
					t.Errorf("source is not complete: %+v", s)
				}
			}
		})
	}
}

func TestPartitionCountsAreValid(t *testing.T) {
	for _, m := range catalog.All() {
		t.Run(m.Name, func(t *testing.T) {
			if len(m.PartitionCounts) > 0 != m.GPUP {
				t.Errorf("GPU-P is %t, but the counts are %v", m.GPUP, m.PartitionCounts)
			}
			if m.CountsInferred && len(m.PartitionCounts) == 0 {
				t.Error("the counts are inferred, but there are none")
			}
			for i, c := range m.PartitionCounts {
				if c < 1 || (i > 0 && c <= m.PartitionCounts[i-1]) {
					t.Errorf("counts %v are not ascending from 1", m.PartitionCounts)
				}
			}
		})
	}
}

func TestNamesAndIDsAreUnique(t *testing.T) {
	names := map[string]string{}
	ids := map[string]string{}
	for _, m := range catalog.All() {
		for _, n := range append([]string{m.Name}, m.Aliases...) {
			key := strings.ToLower(n)
			if other, taken := names[key]; taken {
				t.Errorf("%q names both %s and %s", n, other, m.Name)
			}
			names[key] = m.Name
		}
		subsystems := m.Subsystems
		if len(subsystems) == 0 {
			subsystems = []string{""}
		}
		for _, d := range m.Devices {
			for _, s := range subsystems {
				if other, taken := ids[d+s]; taken {
					t.Errorf("PCI id %s %s is both %s and %s", d, s, other, m.Name)
				}
				if other, taken := ids[d]; taken {
					t.Errorf("device id %s is any %s, but also %s", d, other, m.Name)
				}
				ids[d+s] = m.Name
			}
		}
	}
}

func TestModelsAreSortedByName(t *testing.T) {
	byName := func(a, b catalog.Model) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(catalog.All(), byName) {
		t.Error("the models are not sorted by name")
	}
}

func TestByPCI(t *testing.T) {
	tests := []struct {
		name string
		id   gpu.PCIID
		want string // "" when unknown
	}{
		{"A2", gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"}, "NVIDIA A2"},
		{"A16, same device id", gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "14A910DE"}, "NVIDIA A16"},
		{"lower case", gpu.PCIID{Vendor: "10de", Device: "25b6", Subsystem: "157e10de"}, "NVIDIA A2"},
		{"A2 or A16, subsystem not known", gpu.PCIID{Vendor: "10DE", Device: "25B6"}, ""},
		{"a virtual function of an A16", gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "160210DE"}, ""},
		{"device id is enough", gpu.PCIID{Vendor: "10DE", Device: "26B9"}, "NVIDIA L40S"},
		{"any subsystem", gpu.PCIID{Vendor: "10DE", Device: "1EB8", Subsystem: "12A210DE"}, "NVIDIA T4"},
		{"another vendor's device", gpu.PCIID{Vendor: "1002", Device: "26B9"}, ""},
		{"management controller", gpu.PCIID{Vendor: "1A03", Device: "2000"}, ""},
		{"RTX PRO 5000 with 48 GB", gpu.PCIID{Vendor: "10DE", Device: "2BB3", Subsystem: "204D10DE"}, "NVIDIA RTX PRO 5000 Blackwell"},
		{"RTX PRO 5000 with 72 GB", gpu.PCIID{Vendor: "10DE", Device: "2BB3", Subsystem: "227A10DE"}, ""},
		{"nothing", gpu.PCIID{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := catalog.ByPCI(tt.id)
			if got.Name != tt.want || ok != (tt.want != "") {
				t.Errorf("ByPCI(%+v) = %q, %t; want %q", tt.id, got.Name, ok, tt.want)
			}
		})
	}
}

func TestByName(t *testing.T) {
	tests := []struct{ name, want string }{
		{"NVIDIA A2", "NVIDIA A2"},
		{"nvidia a2", "NVIDIA A2"},
		{"A2", "NVIDIA A2"},
		{" l40s ", "NVIDIA L40S"},
		{"L4", "NVIDIA L4"},
		{"Tesla T4", "NVIDIA T4"},
		{"NVIDIA Tesla T4", "NVIDIA T4"},
		{"RTX Pro 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition"},
		{"H100 PCIe", "NVIDIA H100 PCIe"},
		{"H100", ""}, // PCIe or NVL: they differ in memory
		{"A", ""},
		{"AMD A2", ""},
		{"Microsoft Basic Display Adapter", ""},
		{"", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := catalog.ByName(tt.name)
			if got.Name != tt.want || ok != (tt.want != "") {
				t.Errorf("ByName(%q) = %q, %t; want %q", tt.name, got.Name, ok, tt.want)
			}
		})
	}
}

func TestEveryModelIsFoundByItsOwnNamesAndIDs(t *testing.T) {
	for _, m := range catalog.All() {
		for _, n := range append([]string{m.Name, strings.TrimPrefix(m.Name, m.Vendor+" ")}, m.Aliases...) {
			if got, _ := catalog.ByName(n); got.Name != m.Name {
				t.Errorf("ByName(%q) = %q, want %q", n, got.Name, m.Name)
			}
		}
		if len(m.Devices) == 0 {
			continue
		}
		id := gpu.PCIID{Vendor: "10DE", Device: m.Devices[0]}
		if len(m.Subsystems) > 0 {
			id.Subsystem = m.Subsystems[0]
		}
		if got, _ := catalog.ByPCI(id); got.Name != m.Name {
			t.Errorf("ByPCI(%+v) = %q, want %q", id, got.Name, m.Name)
		}
	}
}

// Boards reuse the ids of others: the driver's name wins.
func TestOf(t *testing.T) {
	for _, test := range []struct{ device, name, want string }{
		{"26B9", "NVIDIA L40S", "NVIDIA L40S"},
		{"26B9", "", "NVIDIA L40S"},
		{"26B5", "NVIDIA L40S", "NVIDIA L40S"},
		{"2330", "NVIDIA GB200", "NVIDIA GB200"},
		{"2941", "NVIDIA GB300", "NVIDIA GB300"},
		{"2330", "H100 SXM5 80GB", "NVIDIA H100 80GB HBM3"},
		{"2330", "NVIDIA X1000", ""},
	} {
		got, ok := catalog.Of(gpu.PCIID{Vendor: "10DE", Device: test.device}, test.name)
		if got.Name != test.want || ok != (test.want != "") {
			t.Errorf("Of(%s, %q) = %q, %t; want %q", test.device, test.name, got.Name, ok, test.want)
		}
	}
}

// These facts decide what a plan allows, so they are repeated here on purpose.
func TestDocumentedFacts(t *testing.T) {
	tests := []struct {
		name      string
		vram      gpu.Bytes
		gpup, dda bool
		inferred  bool
		counts    []int
	}{
		{"A2", 16 * gib, true, true, false, []int{1, 2, 4, 8, 16}},
		{"A16", 16 * gib, true, true, true, []int{1, 2, 4, 8, 16}},
		{"A10", 24 * gib, true, true, true, []int{1, 2, 3, 4, 6, 8, 12, 24}},
		{"A40", 48 * gib, true, true, true, []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32}},
		{"L2", 24 * gib, true, false, true, []int{1, 2, 3, 4, 6, 8, 12, 24}},
		{"T4", 16 * gib, false, true, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, ok := catalog.ByName(tt.name)
			if !ok {
				t.Fatal("the catalog does not know it")
			}
			if m.VRAM != tt.vram || m.GPUP != tt.gpup || m.DDA != tt.dda || m.CountsInferred != tt.inferred {
				t.Errorf("VRAM %s, GPU-P %t, DDA %t, inferred %t", m.VRAM, m.GPUP, m.DDA, m.CountsInferred)
			}
			if diff := cmp.Diff(tt.counts, m.PartitionCounts); diff != "" {
				t.Errorf("partition counts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestModelsAreCopies(t *testing.T) {
	before := catalog.All()
	for _, m := range catalog.All() {
		if len(m.Devices) > 0 {
			m.Devices[0] = "0000"
		}
		m.Sources[0].URL = ""
		if len(m.PartitionCounts) > 0 {
			m.PartitionCounts[0] = 99
		}
		if len(m.Aliases) > 0 {
			m.Aliases[0] = ""
		}
		if len(m.Subsystems) > 0 {
			m.Subsystems[0] = ""
		}
		if m.MIG != nil {
			m.MIG.Slices = 0
			m.MIG.Profiles[0].Name = ""
			m.MIG.Profiles[1].Starts[0] = 99
			m.MIG.Sources[0].URL = ""
		}
	}
	if diff := cmp.Diff(before, catalog.All()); diff != "" {
		t.Errorf("a caller could write into the catalog (-before +after):\n%s", diff)
	}
}
