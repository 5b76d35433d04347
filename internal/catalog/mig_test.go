package catalog_test

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var profileName = regexp.MustCompile(`^([1-7])g\.([0-9]+)gb(|\+me|\+me\.all|\+gfx|-me)$`)

// withMIG runs a subtest for each model that has MIG.
func withMIG(t *testing.T, check func(t *testing.T, m catalog.Model)) {
	t.Helper()
	for _, m := range catalog.All() {
		if m.MIG != nil {
			t.Run(m.Name, func(t *testing.T) { check(t, m) })
		}
	}
}

func TestMIGTablesAreComplete(t *testing.T) {
	withMIG(t, func(t *testing.T, m catalog.Model) {
		if len(m.MIG.Sources) == 0 {
			t.Error("there is no source")
		}
		for _, s := range m.MIG.Sources {
			if u, err := url.Parse(s.URL); err != nil || u.Scheme != "https" || s.Title == "" || s.Fact == "" {
				t.Errorf("source is not complete: %+v", s)
			}
		}
		if m.MIG.ModeNeedsReset != (m.Family == "Ampere") {
			t.Errorf("a reset for the mode is %t on %s", m.MIG.ModeNeedsReset, m.Family)
		}
		names := map[string]bool{}
		ids := map[int]bool{}
		for _, p := range m.MIG.Profiles {
			if names[p.Name] {
				t.Errorf("there are two profiles %s", p.Name)
			}
			names[p.Name] = true
			if m.MIG.IDsUnknown != (p.ID == 0) && p.Size != m.MIG.Slices {
				t.Errorf("%s has id %d, but ids unknown is %t", p.Name, p.ID, m.MIG.IDsUnknown)
			}
			if ids[p.ID] && !m.MIG.IDsUnknown {
				t.Errorf("there are two profiles with id %d", p.ID)
			}
			ids[p.ID] = true
		}
	})
}

func TestMIGProfilesFitTheirGPU(t *testing.T) {
	withMIG(t, func(t *testing.T, m catalog.Model) {
		for _, p := range m.MIG.Profiles {
			parts := profileName.FindStringSubmatch(p.Name)
			if parts == nil {
				t.Errorf("%q is not the name of a profile", p.Name)
				continue
			}
			if parts[1] != strconv.Itoa(p.Slices) {
				t.Errorf("%s has %d compute slices", p.Name, p.Slices)
			}
			gigabytes, _ := strconv.ParseInt(parts[2], 10, 64)
			if p.Memory > m.VRAM || p.Memory.MiB() > gigabytes*1024 || p.Memory.MiB() < gigabytes*1024*8/10 {
				t.Errorf("%s has %s", p.Name, p.Memory)
			}
			if got := most(p); strings.Contains(parts[3], "+me") && p.Max != 1 || !strings.Contains(parts[3], "+me") && p.Max != got {
				t.Errorf("%s has at most %d instances, but %d fit", p.Name, p.Max, got)
			}
			for i, s := range p.Starts {
				if s < 0 || s+p.Size > m.MIG.Slices || (i > 0 && s <= p.Starts[i-1]) {
					t.Errorf("%s starts at %v with %d of %d slices", p.Name, p.Starts, p.Size, m.MIG.Slices)
				}
			}
		}
	})
}

// most is how many instances of one profile lie beside each other.
func most(p gpu.MIGProfile) int {
	n, free := 0, 0
	for _, s := range p.Starts {
		if s >= free {
			n++
			free = s + p.Size
		}
	}
	return n
}

// These facts decide what a plan allows, so they are repeated here on purpose: for
// each size of GPU the numbers in mig-parted's default configuration and NVIDIA's guide.
func TestDocumentedMIGProfiles(t *testing.T) {
	seven := func(eighth, quarter, half, full int) map[string]int {
		return map[string]int{
			fmt.Sprintf("1g.%dgb", eighth): 7, fmt.Sprintf("1g.%dgb+me", eighth): 1,
			fmt.Sprintf("1g.%dgb", quarter): 4, fmt.Sprintf("2g.%dgb", quarter): 3,
			fmt.Sprintf("3g.%dgb", half): 2, fmt.Sprintf("4g.%dgb", half): 1,
			fmt.Sprintf("7g.%dgb", full): 1,
		}
	}
	pro6000 := map[string]int{
		"1g.24gb": 4, "1g.24gb+me": 1, "1g.24gb+gfx": 4, "1g.24gb+me.all": 1, "1g.24gb-me": 4,
		"2g.48gb": 2, "2g.48gb+gfx": 2, "2g.48gb+me.all": 1, "2g.48gb-me": 2, "4g.96gb": 1, "4g.96gb+gfx": 1,
	}
	tests := []struct {
		devices []string
		want    map[string]int
	}{
		{[]string{"20B7"}, map[string]int{"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1}},
		{[]string{"20B0", "20B1", "20F1", "20F6", "20BD"}, seven(5, 10, 20, 40)},
		{[]string{"20B2", "20B5", "20F3", "20F5", "2330", "2331", "2322", "2324"}, seven(10, 20, 40, 80)},
		{[]string{"2321", "233A", "2339"}, seven(12, 24, 47, 94)},
		{[]string{"2342", "233D", "20B6", "2329"}, seven(12, 24, 48, 96)},
		{[]string{"2335", "233B", "232C"}, seven(18, 35, 71, 141)},
		{[]string{"2337"}, seven(8, 16, 32, 64)},
		{[]string{"2BB9"}, map[string]int{"1g.42gb": 2, "1g.42gb+gfx": 2, "1g.42gb+me.all": 1, "1g.42gb-me": 2, "2g.84gb": 1, "2g.84gb+gfx": 1}},
		{[]string{"2348"}, seven(18, 36, 72, 144)},
		{[]string{"2901"}, seven(23, 45, 90, 180)},
		{[]string{"2941"}, seven(23, 47, 93, 186)},
		{[]string{"3182"}, seven(34, 67, 135, 269)},
		{[]string{"31C2"}, seven(35, 70, 139, 278)},
		{[]string{"2BB1", "2BB4", "2BB5"}, pro6000},
		{
			[]string{"2BB3"}, map[string]int{
				"1g.24gb": 2, "1g.24gb+me": 1, "1g.24gb+gfx": 2, "1g.24gb+me.all": 1, "1g.24gb-me": 2, "2g.48gb": 1, "2g.48gb+gfx": 1,
			},
		},
		{[]string{"2C31"}, map[string]int{"1g.16gb": 2, "1g.16gb+gfx": 2, "1g.16gb+me.all": 1, "1g.16gb-me": 2, "2g.32gb": 1, "2g.32gb+gfx": 1}},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		for _, device := range tt.devices {
			t.Run(device, func(t *testing.T) {
				m, ok := catalog.ByPCI(gpu.PCIID{Vendor: "10DE", Device: device, Subsystem: "204D10DE"})
				if !ok || m.MIG == nil {
					t.Fatal("the catalog has no MIG for it")
				}
				seen[m.Name] = true
				got := map[string]int{}
				for _, p := range m.MIG.Profiles {
					got[p.Name] = p.Max
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("numbers of instances (-want +got):\n%s", diff)
				}
			})
		}
	}
	// A GB200 with more memory has the device id of the other one, and Thor none.
	for name, want := range map[string]map[string]int{
		"NVIDIA GB200 189GB": seven(23, 47, 95, 189),
		"NVIDIA Thor":        {"1g.0gb": 1, "1g.0gb+me": 1, "1g.0gb+gfx": 1, "2g.0gb": 1, "2g.0gb+gfx": 1, "3g.0gb": 1, "3g.0gb+gfx": 1},
	} {
		m, ok := catalog.ByName(name)
		if !ok || m.MIG == nil {
			t.Fatalf("the catalog has no MIG for %s", name)
		}
		seen[m.Name] = true
		got := map[string]int{}
		for _, p := range m.MIG.Profiles {
			got[p.Name] = p.Max
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("numbers of instances of %s (-want +got):\n%s", m.Name, diff)
		}
	}
	withMIG(t, func(t *testing.T, m catalog.Model) {
		if !seen[m.Name] {
			t.Errorf("this test knows no numbers; the others are %v", slices.Sorted(maps.Keys(seen)))
		}
	})
}

// A listing of an A100 with 40 GB (nvidia-smi mig -lgip and -lgipp), and what a guess
// from names and fractions would get wrong.
func TestListedMIGProfiles(t *testing.T) {
	m, ok := catalog.ByName("A100-SXM4-40GB")
	if !ok {
		t.Fatal("the catalog does not know it")
	}
	want := []gpu.MIGProfile{
		{ID: 19, Name: "1g.5gb", Slices: 1, Memory: gpu.FromMiB(4864), Max: 7, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
		{ID: 20, Name: "1g.5gb+me", Slices: 1, Memory: gpu.FromMiB(4864), Max: 1, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
		{ID: 15, Name: "1g.10gb", Slices: 1, Memory: gpu.FromMiB(9856), Max: 4, Size: 2, Starts: []int{0, 2, 4, 6}},
		{ID: 14, Name: "2g.10gb", Slices: 2, Memory: gpu.FromMiB(9856), Max: 3, Size: 2, Starts: []int{0, 2, 4}},
		{ID: 9, Name: "3g.20gb", Slices: 3, Memory: gpu.FromMiB(19968), Max: 2, Size: 4, Starts: []int{0, 4}},
		{ID: 5, Name: "4g.20gb", Slices: 4, Memory: gpu.FromMiB(19968), Max: 1, Size: 4, Starts: []int{0}},
		{ID: 0, Name: "7g.40gb", Slices: 7, Memory: gpu.FromMiB(40192), Max: 1, Size: 8, Starts: []int{0}},
	}
	if diff := cmp.Diff(want, m.MIG.Profiles); diff != "" {
		t.Errorf("profiles (-want +got):\n%s", diff)
	}
	if m.MIG.PlacementsInferred || m.MIG.MemoryInferred || m.MIG.IDsInferred || m.MIG.IDsUnknown || m.MIG.MinDriver != "450.80.02" {
		t.Errorf("%+v", m.MIG)
	}
	pro, _ := catalog.ByName("RTX Pro 6000")
	if p, ok := pro.MIG.Profile("2g.48gb+gfx"); !ok || p.ID != 35 || p.Size != 6 || !slices.Equal(p.Starts, []int{0, 6}) ||
		pro.MIG.Slices != 12 {
		t.Errorf("a half of the RTX PRO 6000: %+v", p)
	}
	if _, ok := pro.MIG.Profile("3g.48gb"); ok {
		t.Error("a profile was found that there is not")
	}
}

func TestInferredMIGTablesSaySo(t *testing.T) {
	flags := func(m catalog.Model) string {
		return fmt.Sprintf("placements %t, memory %t, ids %t, unknown %t",
			m.MIG.PlacementsInferred, m.MIG.MemoryInferred, m.MIG.IDsInferred, m.MIG.IDsUnknown)
	}
	for name, want := range map[string]string{
		"A30":                    "placements false, memory false, ids false, unknown false",
		"H100 NVL":               "placements false, memory false, ids false, unknown false",
		"H200":                   "placements true, memory false, ids false, unknown false",
		"H20":                    "placements true, memory true, ids true, unknown false",
		"GB200":                  "placements true, memory true, ids false, unknown false",
		"B300":                   "placements true, memory true, ids true, unknown false",
		"RTX PRO 6000":           "placements true, memory false, ids false, unknown false",
		"RTX PRO 5000 Blackwell": "placements true, memory true, ids false, unknown true",
	} {
		m, ok := catalog.ByName(name)
		if !ok {
			t.Fatalf("the catalog does not know %s", name)
		}
		if got := flags(m); got != want {
			t.Errorf("%s: inferred are %s; want %s", name, got, want)
		}
	}
}

func TestModelsOutsideHyperVAreNotOfferedThere(t *testing.T) {
	for name, want := range map[string]bool{"A30": false, "B200": false, "H100 PCIe": true, "T4": true, "L2": true} {
		m, ok := catalog.ByName(name)
		if !ok || m.HyperV() != want {
			t.Errorf("%s: known %t, Hyper-V %t; want %t", name, ok, m.HyperV(), want)
		}
	}
}
