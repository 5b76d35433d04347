package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// A share has a place exactly when some devices have room for it, whatever came and went
// before, and no device ever gives more than it has.
func TestPlaceShareAgreesWithTryingEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, o := drawShareHost(t)
		for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
			if len(o.placed) > 0 && rapid.IntRange(0, 3).Draw(t, "destroy") == 0 {
				gone := o.placed[rapid.IntRange(0, len(o.placed)-1).Draw(t, "which")].Name
				o.placed = slices.DeleteFunc(o.placed, func(s gpu.Share) bool { return s.Name == gone })
				h.Claims = slices.DeleteFunc(h.Claims, func(c gpu.Claim) bool { return c.Is(gpu.ClaimShare, gone) })
				continue
			}
			s := drawShare(t, h, fmt.Sprintf("s%d", i))
			want := o.fits(s)
			devices, err := placement.PlaceShare(h, "gpu01", &s, "t")
			if (err == nil) != want {
				t.Fatalf("placed %v, error %v, but there is room: %t", devices, err, want)
			}
			again, _ := placement.PlaceShare(h, "gpu01", &s, "t")
			if diff := cmp.Diff(devices, again); diff != "" {
				t.Fatalf("another place the second time:\n%s", diff)
			}
			if err != nil {
				if rules.FindingOf(gpu.RefusalOf(err)).Found == "" {
					t.Fatalf("an error without a finding: %v", err)
				}
				continue
			}
			s.Devices = devices
			if !slices.ContainsFunc(o.ways(s), func(at []gpu.SharedDevice) bool { return gpu.SameDevices(at, devices) }) {
				t.Fatalf("%v is no place for %+v", devices, s)
			}
			has(h, "vdi", s)
			o.placed = append(o.placed, s)
			if !o.sound() {
				t.Fatalf("above capacity with %+v", s)
			}
			if _, err := placement.PlaceShare(h, "gpu01", &s, "claim-"+s.Name); err != nil {
				t.Fatalf("it does not fit where it is: %v", err)
			}
		}
	})
}

// The proof at plan says that shares do not fit together exactly when no way of placing
// them works.
func TestPlanProofAgreesWithTryingEverything(t *testing.T) {
	seen := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		h, o := drawShareHost(t)
		var others []gpu.Share
		w := world(h)
		for i := range rapid.IntRange(0, 4).Draw(t, "others") {
			s := drawShare(t, h, fmt.Sprintf("s%d", i))
			if s.Config != "" && !slices.ContainsFunc(h.Claims, func(c gpu.Claim) bool { return c.ID == s.Config }) ||
				!o.fits(append(others, s)...) {
				continue
			}
			others = append(others, s)
			put(&w, s.Name, wantShare(s))
		}
		s := drawShare(t, h, "last")
		var rulesHit []string
		for _, f := range rules.Check(w, shareP(s), nil) {
			if rules.Passes(f.Rule) && f.Level == rules.Error && !strings.Contains(f.Title, "in some orders only") {
				rulesHit = append(rulesHit, f.Rule)
			}
			if f.Rule == "share-placement" && f.Level == rules.Warning {
				t.Fatalf("a small case was not decided: %s", f.Found)
			}
		}
		want := o.fits(append(others, s)...)
		seen[want]++
		if (len(rulesHit) == 0) != want {
			t.Fatalf("violated %v, but there is room: %t", rulesHit, want)
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("the cases are all alike: %v", seen)
	}
}
