package placement_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// migOf are the profiles of a model.
func migOf(t testing.TB, model string) []gpu.MIGProfile {
	t.Helper()
	m, ok := catalog.ByName(model)
	if !ok || m.MIG == nil {
		t.Fatalf("the catalog has no MIG for %s", model)
	}
	return m.MIG.Profiles
}

func at(profile string, start int) gpu.MIGPlacement {
	return gpu.MIGPlacement{Profile: profile, Start: start}
}

// idle and inUse are instances of an A100 or H100 with 80 GB.
func idle(profile string, start int) placement.MIGInstance {
	size := map[string]int{"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4, "7g.80gb": 8}[profile]
	return placement.MIGInstance{MIGPlacement: at(profile, start), Size: size}
}

func inUse(profile string, start int) placement.MIGInstance {
	i := idle(profile, start)
	i.Held = "process 4711 (python)"
	return i
}

func TestPlaceMIG(t *testing.T) {
	sevenSmall := []placement.MIGInstance{
		idle("1g.10gb", 0), idle("1g.10gb", 1), idle("1g.10gb", 2), idle("1g.10gb", 3),
		idle("1g.10gb", 4), idle("1g.10gb", 5), idle("1g.10gb", 6),
	}
	tests := []struct {
		name  string
		model string // "" is an H100 with 80 GB
		have  []placement.MIGInstance
		want  map[string]int
		plan  placement.MIGPlan
	}{
		{name: "nothing on an empty GPU"},
		{
			name: "nothing is left of what there is",
			have: []placement.MIGInstance{idle("3g.40gb", 4)},
			plan: placement.MIGPlan{Remove: []gpu.MIGPlacement{at("3g.40gb", 4)}},
		},
		{
			// NVIDIA's known issue: in the order 1g, 2g, 3g the driver runs out of places.
			name: "mig-parted's balanced layout",
			want: map[string]int{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
			plan: placement.MIGPlan{Create: []gpu.MIGPlacement{at("2g.20gb", 0), at("1g.10gb", 2), at("1g.10gb", 3), at("3g.40gb", 4)}},
		},
		{
			name: "the largest that still fits stays possible",
			want: map[string]int{"1g.10gb": 1},
			plan: placement.MIGPlan{Create: []gpu.MIGPlacement{at("1g.10gb", 6)}},
		},
		{
			name: "a half leaves the other to 4g",
			want: map[string]int{"3g.40gb": 1},
			plan: placement.MIGPlan{Create: []gpu.MIGPlacement{at("3g.40gb", 4)}},
		},
		{
			name: "a double eighth at the end leaves all of 2g",
			want: map[string]int{"1g.20gb": 1},
			plan: placement.MIGPlan{Create: []gpu.MIGPlacement{at("1g.20gb", 6)}},
		},
		{
			name: "what stands is kept where it stands",
			have: []placement.MIGInstance{idle("1g.10gb", 0), idle("3g.40gb", 4)},
			want: map[string]int{"1g.10gb": 2, "3g.40gb": 1},
			plan: placement.MIGPlan{
				Keep: []gpu.MIGPlacement{at("1g.10gb", 0), at("3g.40gb", 4)}, Create: []gpu.MIGPlacement{at("1g.10gb", 1)},
			},
		},
		{
			name: "seven small ones make room for larger ones",
			have: sevenSmall,
			want: map[string]int{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2},
			plan: placement.MIGPlan{
				Keep:   []gpu.MIGPlacement{at("1g.10gb", 2), at("1g.10gb", 3)},
				Remove: []gpu.MIGPlacement{at("1g.10gb", 0), at("1g.10gb", 1), at("1g.10gb", 4), at("1g.10gb", 5), at("1g.10gb", 6)},
				Create: []gpu.MIGPlacement{at("2g.20gb", 0), at("3g.40gb", 4)},
			},
		},
		{
			name: "more slices are kept rather than more instances",
			have: []placement.MIGInstance{idle("3g.40gb", 0), idle("1g.10gb", 4), idle("1g.10gb", 5)},
			want: map[string]int{"4g.40gb": 0, "3g.40gb": 2},
			plan: placement.MIGPlan{
				Keep: []gpu.MIGPlacement{at("3g.40gb", 0)}, Remove: []gpu.MIGPlacement{at("1g.10gb", 4), at("1g.10gb", 5)},
				Create: []gpu.MIGPlacement{at("3g.40gb", 4)},
			},
		},
		{
			name: "an idle one moves out of the way of one in use",
			have: []placement.MIGInstance{inUse("1g.10gb", 4), idle("3g.40gb", 0)},
			want: map[string]int{"1g.10gb": 1, "4g.40gb": 1},
			plan: placement.MIGPlan{
				Keep: []gpu.MIGPlacement{at("1g.10gb", 4)}, Remove: []gpu.MIGPlacement{at("3g.40gb", 0)},
				Create: []gpu.MIGPlacement{at("4g.40gb", 0)},
			},
		},
		{
			name: "quarters of an A30", model: "A30",
			want: map[string]int{"2g.12gb": 1, "1g.6gb": 1, "1g.6gb+me": 1},
			plan: placement.MIGPlan{Create: []gpu.MIGPlacement{at("2g.12gb", 0), at("1g.6gb", 2), at("1g.6gb+me", 3)}},
		},
		{
			name: "one instance has all media engines", model: "RTX PRO 6000",
			want: map[string]int{"1g.24gb+me.all": 1, "1g.24gb-me": 1, "2g.48gb-me": 1},
			plan: placement.MIGPlan{Create: []gpu.MIGPlacement{at("2g.48gb-me", 0), at("1g.24gb+me.all", 6), at("1g.24gb-me", 9)}},
		},
		{
			name: "halves of an RTX PRO 4500", model: "RTX PRO 4500 Blackwell",
			want: map[string]int{"1g.16gb+gfx": 1, "1g.16gb": 1},
			plan: placement.MIGPlan{Create: []gpu.MIGPlacement{at("1g.16gb", 0), at("1g.16gb+gfx", 1)}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			model := tt.model
			if model == "" {
				model = "H100 PCIe"
			}
			got, err := placement.PlaceMIG(migOf(t, model), tt.have, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.plan, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if again, err := placement.PlaceMIG(migOf(t, model), asInstances(t, migOf(t, model), got.Layout()), tt.want); err != nil ||
				again.Changes() {
				t.Errorf("planned again on what it made: %+v, %v", again, err)
			}
		})
	}
}

// asInstances is a GPU that has a layout.
func asInstances(t *testing.T, profiles []gpu.MIGProfile, layout []gpu.MIGPlacement) []placement.MIGInstance {
	t.Helper()
	var out []placement.MIGInstance
	for _, p := range layout {
		profile, ok := (&gpu.MIG{Profiles: profiles}).Profile(p.Profile)
		if !ok {
			t.Fatalf("there is no profile %s", p.Profile)
		}
		out = append(out, placement.MIGInstance{MIGPlacement: p, Size: profile.Size})
	}
	return out
}

// An instance keeps its place even where the table at hand, which may be inferred,
// does not put one.
func TestPlaceMIGKeepsAnInstanceThatTheTableDoesNotKnow(t *testing.T) {
	have := []placement.MIGInstance{idle("2g.20gb", 1), {MIGPlacement: at("1g.11gb", 5), Size: 1}}
	got, err := placement.PlaceMIG(migOf(t, "H100 PCIe"), have, map[string]int{"2g.20gb": 2})
	if err != nil {
		t.Fatal(err)
	}
	want := placement.MIGPlan{
		Keep: []gpu.MIGPlacement{at("2g.20gb", 1)}, Remove: []gpu.MIGPlacement{at("1g.11gb", 5)},
		Create: []gpu.MIGPlacement{at("2g.20gb", 4)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestPlaceMIGSaysWhyItDoesNotFit(t *testing.T) {
	tests := []struct {
		name  string
		model string
		have  []placement.MIGInstance
		want  map[string]int
		says  []string
	}{
		{
			name: "unknown profile", want: map[string]int{"1g.5gb": 1, "9g.90gb": 1},
			says: []string{"no profile 1g.5gb", "no profile 9g.90gb", "1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb and 7g.80gb"},
		},
		{name: "below zero", want: map[string]int{"1g.10gb": -1}, says: []string{"-1 instances of 1g.10gb"}},
		{name: "too many", want: map[string]int{"1g.10gb": 8}, says: []string{"8 instances of 1g.10gb, but the GPU takes 7 at most"}},
		{
			name: "two with media extensions", model: "A30", want: map[string]int{"1g.6gb+me": 1, "2g.12gb+me": 1},
			says: []string{"one instance with +me", "1g.6gb+me and 2g.12gb+me"},
		},
		{
			name: "all media engines are taken", model: "RTX PRO 6000", want: map[string]int{"1g.24gb+me.all": 1, "1g.24gb": 2, "1g.24gb-me": 1},
			says: []string{"only instances with -me", "1g.24gb, 1g.24gb and 1g.24gb+me.all"},
		},
		{
			name: "slices lacking", want: map[string]int{"4g.40gb": 1, "3g.40gb": 1, "1g.10gb": 1},
			says: []string{"take 9 memory slices together, but the GPU has 8"},
		},
		{
			name: "slices enough, places not", want: map[string]int{"4g.40gb": 1, "2g.20gb": 2},
			says: []string{"wherever they are put", "2g.20gb takes 2 slices at 0, 2 and 4", "4g.40gb takes 4 slices at 0"},
		},
		{
			name: "one in use is not wanted", have: []placement.MIGInstance{inUse("1g.10gb", 0), inUse("1g.10gb", 1)},
			want: map[string]int{"1g.10gb": 1},
			says: []string{"1 instance in use is in the way: 1g.10gb at 1 (process 4711 (python))"},
		},
		{
			name: "scattered by one in use", have: []placement.MIGInstance{inUse("1g.10gb", 2), inUse("1g.10gb", 6)},
			want: map[string]int{"1g.10gb": 2, "4g.40gb": 1},
			says: []string{"1 instance in use is in the way: 1g.10gb at 2", "6 memory slices are free, which would be enough"},
		},
		{
			name: "scattered by several in use", have: []placement.MIGInstance{inUse("1g.10gb", 0), inUse("1g.10gb", 1)},
			want: map[string]int{"1g.10gb": 2, "4g.40gb": 1},
			says: []string{"2 instances in use are in the way: 1g.10gb at 0 (process 4711 (python)) and 1g.10gb at 1", "6 memory slices are free"},
		},
		{
			name: "one in use takes too much", have: []placement.MIGInstance{inUse("3g.40gb", 0)},
			want: map[string]int{"3g.40gb": 1, "4g.40gb": 1},
			says: []string{"1 instance in use is in the way: 3g.40gb at 0", "4 memory slices are free"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			model := tt.model
			if model == "" {
				model = "H100 PCIe"
			}
			plan, err := placement.PlaceMIG(migOf(t, model), tt.have, tt.want)
			if err == nil {
				t.Fatalf("it was planned: %+v", plan)
			}
			wantSays(t, err.Error(), tt.says)
		})
	}
}

func wantSays(t *testing.T, text string, parts []string) {
	t.Helper()
	for _, s := range parts {
		if !strings.Contains(text, s) {
			t.Errorf("%q does not say %q", text, s)
		}
	}
}

func TestCheckMIGPlacements(t *testing.T) {
	tests := []struct {
		name   string
		model  string
		layout []gpu.MIGPlacement
		says   []string
	}{
		{name: "nothing"},
		{name: "both halves", layout: []gpu.MIGPlacement{at("4g.40gb", 0), at("3g.40gb", 4)}},
		{name: "no such profile", layout: []gpu.MIGPlacement{at("1g.5gb", 0)}, says: []string{"no profile 1g.5gb", "offers 1g.10gb"}},
		{
			name: "no such start", layout: []gpu.MIGPlacement{at("2g.20gb", 6)},
			says: []string{"2g.20gb cannot start at 6: it may start at 0, 2 and 4"},
		},
		{name: "start below zero", layout: []gpu.MIGPlacement{at("2g.20gb", -1)}, says: []string{"2g.20gb cannot start at -1"}},
		{
			name: "overlap", layout: []gpu.MIGPlacement{at("3g.40gb", 0), at("1g.10gb", 3)},
			says: []string{"3g.40gb at 0 (slices 0 to 3) and 1g.10gb at 3 overlap"},
		},
		{
			name: "twice in one place", layout: []gpu.MIGPlacement{at("1g.10gb", 3), at("1g.10gb", 3)},
			says: []string{"1g.10gb at 3 and 1g.10gb at 3 overlap"},
		},
		{
			name: "more than the maximum, and media twice", layout: []gpu.MIGPlacement{at("1g.10gb+me", 0), at("1g.10gb+me", 1)},
			says: []string{"2 instances of 1g.10gb+me, but the GPU takes 1 at most", "one instance with +me"},
		},
		{
			name: "media of two profiles", model: "RTX PRO 6000", layout: []gpu.MIGPlacement{at("1g.24gb+me", 0), at("2g.48gb+me.all", 6)},
			says: []string{"1g.24gb+me and 2g.48gb+me.all"},
		},
		{name: "media for one", model: "RTX PRO 6000", layout: []gpu.MIGPlacement{at("1g.24gb+me", 0), at("1g.24gb+gfx", 3), at("2g.48gb", 6)}},
		{
			name: "all that is wrong is told", layout: []gpu.MIGPlacement{at("5g.50gb", 0), at("4g.40gb", 4), at("7g.80gb", 0), at("1g.10gb", 6)},
			says: []string{"no profile 5g.50gb", "4g.40gb cannot start at 4", "7g.80gb at 0 (slices 0 to 7) and 1g.10gb at 6 overlap"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			model := tt.model
			if model == "" {
				model = "H100 PCIe"
			}
			err := placement.CheckMIGPlacements(migOf(t, model), tt.layout)
			if (err != nil) != (len(tt.says) > 0) {
				t.Fatalf("error: %v", err)
			}
			if err != nil {
				wantSays(t, err.Error(), tt.says)
			}
		})
	}
}

func TestFollowMIG(t *testing.T) {
	have := []placement.MIGInstance{idle("1g.10gb", 0), inUse("1g.10gb", 1), idle("3g.40gb", 4)}
	layout := []gpu.MIGPlacement{at("2g.20gb", 2), at("3g.40gb", 4), at("1g.10gb", 1)}
	got, err := placement.FollowMIG(migOf(t, "H100 PCIe"), have, layout)
	if err != nil {
		t.Fatal(err)
	}
	want := placement.MIGPlan{
		Keep:   []gpu.MIGPlacement{at("1g.10gb", 1), at("3g.40gb", 4)},
		Remove: []gpu.MIGPlacement{at("1g.10gb", 0)},
		Create: []gpu.MIGPlacement{at("2g.20gb", 2)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}

	_, err = placement.FollowMIG(migOf(t, "H100 PCIe"), have, []gpu.MIGPlacement{at("3g.40gb", 0)})
	if blocked := gpu.RefusalOf(err); blocked == nil || blocked.Fault != placement.MIGInUse || len(blocked.By) != 1 ||
		!strings.Contains(blocked.Error(), " at 1 (") {
		t.Errorf("an instance in use that is not in the layout: %v", err)
	}
	if _, err := placement.FollowMIG(migOf(t, "H100 PCIe"), nil, []gpu.MIGPlacement{at("3g.40gb", 1)}); err == nil {
		t.Error("a layout that cannot be was planned")
	}
}
