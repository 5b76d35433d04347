package catalog

import "slices"

// Where MIG is documented.
const (
	migGuideTitle = "NVIDIA MIG user guide, supported profiles"
	migGuideURL   = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html"

	migStartTitle = "NVIDIA MIG user guide, getting started"
	migStartURL   = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/getting-started-with-mig.html"

	migPartedTitle = "NVIDIA mig-parted, default configuration"
	migPartedURL   = "https://github.com/NVIDIA/mig-parted/blob/main/deployments/systemd/config-default.yaml"

	goNVMLTitle = "NVIDIA go-nvml, mocked GPUs"
	goNVMLURL   = "https://github.com/NVIDIA/go-nvml/tree/main/pkg/nvml/mock"
)

// migGuide is a table of profiles in NVIDIA's guide.
func migGuide() Source {
	return Source{
		Fact:  "Names, fractions of memory and numbers of instances of the profiles.",
		Title: migGuideTitle, URL: migGuideURL,
	}
}

// migPlacements is the listing of placements in NVIDIA's guide.
func migPlacements() Source {
	return Source{
		Fact:  "nvidia-smi mig -lgipp lists 19 and 20 at {0,1,2,3,4,5,6}:1, 15 at {0,2,4,6}:2, 14 at {0,2,4}:2, 9 at {0,4}:4, 5 at {0}:4, 0 at {0}:8.",
		Title: migStartTitle, URL: migStartURL,
	}
}

// migParted is the part of mig-parted's default configuration for a model.
func migParted() Source {
	return Source{
		Fact:  "Names and numbers of instances of the profiles, by PCI id.",
		Title: migPartedTitle, URL: migPartedURL,
	}
}

// migMock is the table of a mocked GPU.
func migMock() Source {
	return Source{
		Fact:  "Memory and placements of the profiles.",
		Title: goNVMLTitle, URL: goNVMLURL,
	}
}

// migListing is a listing of the model's profiles (nvidia-smi mig -lgip).
func migListing(title, url string) Source {
	return Source{Fact: "Ids, memory and numbers of instances of the profiles.", Title: title, URL: url}
}

var migA30 = &MIGTable{
	Profiles: slices.Concat(
		shares(1, 6, 5952, 1, []int{0, 1, 2, 3}, variant{14, "", 4}, variant{21, "+me", 1}),
		shares(2, 12, 11968, 2, []int{0, 2}, variant{5, "", 2}, variant{6, "+me", 1}),
		shares(4, 24, 24000, 4, []int{0}, variant{0, "", 1}),
	),
	Slices: 4, MinDriver: "460.73.01", ModeNeedsReset: true,
	Sources: []Source{migGuide(), {
		Fact:  "Memory of the profiles: 5952, 11968 and 24000 MiB. go-nvml's mock has 5836, 11672 and 23344.",
		Title: migGuideTitle, URL: migGuideURL,
	}},
}

func migA100(minDriver string, e eighths) *MIGTable {
	return &MIGTable{
		Profiles: e.profiles(), Slices: 8, MinDriver: minDriver, ModeNeedsReset: true,
		Sources: []Source{migGuide(), migPlacements(), migMock()},
	}
}

var (
	a100With40GB = eighths{gb: [4]int{5, 10, 20, 40}, mib: [4]int64{4864, 9856, 19968, 40192}}
	a100With80GB = eighths{gb: [4]int{10, 20, 40, 80}, mib: [4]int64{9856, 19968, 40192, 80384}}
)

func migH100(minDriver string, e eighths, listing ...Source) *MIGTable {
	return &MIGTable{
		Profiles: e.profiles(), Slices: 8, MinDriver: minDriver,
		Sources: append([]Source{migGuide(), migPlacements()}, listing...),
	}
}

var (
	h100With80GB = eighths{gb: [4]int{10, 20, 40, 80}, mib: [4]int64{9984, 20096, 40448, 81152}}
	h100With94GB = eighths{gb: [4]int{12, 24, 47, 94}, mib: [4]int64{11008, 22144, 47488, 95360}}
	h100With96GB = eighths{gb: [4]int{12, 24, 48, 96}, mib: [4]int64{11264, 23552, 47616, 95232}}
	h200With141  = eighths{gb: [4]int{18, 35, 71, 141}, mib: [4]int64{16384, 33024, 71168, 143104}}
)

// alike is a table of a model whose geometry is that of the others with seven compute
// slices, for all that is known: its names and its numbers of instances are the same.
func alike(t MIGTable, e eighths, sources ...Source) *MIGTable {
	t.Profiles, t.Slices, t.PlacementsInferred = e.profiles(), 8, true
	t.MemoryInferred = e.mib == [4]int64{}
	t.Sources = sources
	return &t
}

// migRTXPro6000 has twelve memory slices, three for each compute slice: 0, 3, 6 and 9
// for quarters, 0 and 6 for halves. Listings of the cards show that; no page of
// NVIDIA's does, hence inferred.
var migRTXPro6000 = &MIGTable{
	Profiles: slices.Concat(
		shares(1, 24, 24192, 3, []int{0, 3, 6, 9},
			variant{14, "", 4}, variant{21, "+me", 1}, variant{47, "+gfx", 4}, variant{65, "+me.all", 1}, variant{67, "-me", 4}),
		shares(2, 48, 48512, 6, []int{0, 6},
			variant{5, "", 2}, variant{35, "+gfx", 2}, variant{64, "+me.all", 1}, variant{66, "-me", 2}),
		shares(4, 96, 97280, 12, []int{0}, variant{0, "", 1}, variant{32, "+gfx", 1}),
	),
	Slices: 12, MinDriver: "575.51.03", PlacementsInferred: true,
	Sources: []Source{
		migGuide(),
		migListing("RTX PRO 6000 in Google's device plugin", "https://github.com/GoogleCloudPlatform/container-engine-accelerators/pull/564"),
	},
}

// The two smaller cards are documented by fractions only: two halves.
var migRTXPro5000 = &MIGTable{
	Profiles: slices.Concat(
		shares(1, 24, 24*1024, 1, []int{0, 1},
			variant{0, "", 2}, variant{0, "+me", 1}, variant{0, "+gfx", 2}, variant{0, "+me.all", 1}, variant{0, "-me", 2}),
		shares(2, 48, 48*1024, 2, []int{0}, variant{0, "", 1}, variant{0, "+gfx", 1}),
	),
	Slices: 2, MinDriver: "575.57.08",
	PlacementsInferred: true, MemoryInferred: true, IDsUnknown: true,
	Sources: []Source{migGuide()},
}

var migRTXPro4500 = &MIGTable{
	Profiles: slices.Concat(
		shares(1, 16, 16*1024, 1, []int{0, 1},
			variant{0, "", 2}, variant{0, "+gfx", 2}, variant{0, "+me.all", 1}, variant{0, "-me", 2}),
		shares(2, 32, 32*1024, 2, []int{0}, variant{0, "", 1}, variant{0, "+gfx", 1}),
	),
	Slices: 2, MinDriver: "575.64",
	PlacementsInferred: true, MemoryInferred: true, IDsUnknown: true,
	Sources: []Source{migGuide()},
}
