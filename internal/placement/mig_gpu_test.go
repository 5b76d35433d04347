package placement_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// The driver's name and its table win: the catalog only fills what a driver leaves out of a GPU that
// it calls by a name of the model, since boards reuse PCI ids of others.
func TestMIGProfilesAreTheDrivers(t *testing.T) {
	const h100 = "2330"
	documented := migOf(t, "H100 80GB HBM3")
	own := []gpu.MIGProfile{{ID: 99, Name: "2g.23gb", Slices: 2, Max: 3, Size: 2, Starts: []int{0, 2, 4}}}
	for name, tt := range map[string]struct {
		model, device string
		mig           *gpu.MIG
		want          []gpu.MIGProfile
	}{
		"no table":                         {"NVIDIA H100 80GB HBM3", h100, &gpu.MIG{}, documented},
		"no table, by an alias":            {"H100 SXM5 80GB", h100, &gpu.MIG{}, documented},
		"no table, and an id of its own":   {"NVIDIA H100 80GB HBM3", "FFFF", &gpu.MIG{}, documented},
		"no table, a model with its id":    {"NVIDIA GB200", h100, &gpu.MIG{}, migOf(t, "GB200")},
		"no table, a model nobody knows":   {"NVIDIA X1000", h100, &gpu.MIG{}, nil},
		"another table":                    {"NVIDIA H100 80GB HBM3", h100, &gpu.MIG{Profiles: own}, own},
		"a table of one that nobody knows": {"NVIDIA X1000", h100, &gpu.MIG{Profiles: own}, own},
	} {
		t.Run(name, func(t *testing.T) {
			g := gpu.GPU{Model: tt.model, PCI: gpu.PCIID{Vendor: "10DE", Device: tt.device}, MIG: tt.mig}
			if diff := cmp.Diff(tt.want, placement.MIGProfiles(&g)); diff != "" {
				t.Errorf("it has (-want +got):\n%s", diff)
			}
		})
	}
	if slices.ContainsFunc(migOf(t, "GB200"), func(p gpu.MIGProfile) bool { return p.Name == "3g.40gb" }) {
		t.Error("the two models have the same profiles, which shows nothing")
	}
}
