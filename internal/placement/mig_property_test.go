package placement_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// migModels are the models of the catalog that have MIG.
func migModels() []catalog.Model {
	return slices.DeleteFunc(catalog.All(), func(m catalog.Model) bool { return m.MIG == nil })
}

// multisets yields all numbers of instances that take up to the GPU's slices and a
// little more, each up to one above its maximum.
func multisets(table *catalog.MIGTable, yield func(map[string]int)) {
	smallest := table.Slices
	for _, p := range table.Profiles {
		smallest = min(smallest, p.Size)
	}
	want := map[string]int{}
	var add func(i, left int)
	add = func(i, left int) {
		if i == len(table.Profiles) {
			yield(want)
			return
		}
		p := table.Profiles[i]
		for n := 0; n <= p.Max+1 && n*p.Size <= left; n++ {
			if n > 0 {
				want[p.Name] = n
			}
			add(i+1, left-n*p.Size)
		}
		delete(want, p.Name)
	}
	add(0, table.Slices+smallest)
}

func TestPlaceMIGIsExactForEveryModel(t *testing.T) {
	for _, m := range migModels() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			tried, fit := 0, 0
			multisets(m.MIG, func(want map[string]int) {
				tried++
				best, fits := newOracle(m.MIG.Profiles, nil).solve(want)
				if fits {
					fit++
				}
				wantPlan(t, m.MIG.Profiles, nil, want, best, fits)
			})
			t.Logf("%d of %d sets of instances fit", fit, tried)
			if fit < 5 || fit == tried {
				t.Errorf("%d of %d sets of instances fit: the test tries too little", fit, tried)
			}
		})
	}
}

func TestPlaceMIGKeepsWhatItCan(t *testing.T) {
	models := migModels()
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.SampledFrom(models).Draw(t, "model")
		have := drawInstances(t, m.MIG.Profiles)
		want := map[string]int{}
		for range rapid.IntRange(0, 7).Draw(t, "wanted") {
			want[rapid.SampledFrom(m.MIG.Profiles).Draw(t, "profile").Name]++
		}
		// Half of the time what is held is wanted, so that the plans are not all refused.
		if rapid.Bool().Draw(t, "held wanted") {
			want = map[string]int{}
			for _, h := range have {
				if h.Held != "" || rapid.Bool().Draw(t, "wanted too") {
					want[h.Profile]++
				}
			}
			for range rapid.IntRange(0, 3).Draw(t, "more") {
				want[rapid.SampledFrom(m.MIG.Profiles).Draw(t, "profile").Name]++
			}
		}
		best, fits := newOracle(m.MIG.Profiles, have).solve(want)
		wantPlan(t, m.MIG.Profiles, have, want, best, fits)
	})
}

// drawInstances are instances that a GPU can have, some of them in use.
func drawInstances(t *rapid.T, profiles []gpu.MIGProfile) []placement.MIGInstance {
	var out []placement.MIGInstance
	for range rapid.IntRange(0, 7).Draw(t, "tries") {
		p := rapid.SampledFrom(profiles).Draw(t, "profile")
		h := placement.MIGInstance{
			MIGPlacement: gpu.MIGPlacement{Profile: p.Name, Start: rapid.SampledFrom(p.Starts).Draw(t, "start")},
			Size:         p.Size, Held: rapid.SampledFrom([]string{"", "", "process 4711"}).Draw(t, "held"),
		}
		layout := []gpu.MIGPlacement{h.MIGPlacement}
		for _, o := range out {
			layout = append(layout, o.MIGPlacement)
		}
		if placement.CheckMIGPlacements(profiles, layout) == nil {
			out = append(out, h)
		}
	}
	return out
}

// wantPlan compares the solver with the oracle and checks that the plan does what it says.
func wantPlan(t testingT, profiles []gpu.MIGProfile, have []placement.MIGInstance, want map[string]int, best verdict, fits bool) {
	t.Helper()
	plan, err := placement.PlaceMIG(profiles, have, want)
	if (err == nil) != fits {
		t.Fatalf("have %v, want %v: fits %t, but the answer is %v", have, want, fits, err)
	}
	if err != nil {
		return
	}
	if err := placement.CheckMIGPlacements(profiles, plan.Layout()); err != nil {
		t.Fatalf("have %v, want %v: the layout %v is wrong: %v", have, want, plan.Layout(), err)
	}
	got := map[string]int{}
	for _, p := range plan.Layout() {
		got[p.Profile]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("have %v: instances (-want +got):\n%s", have, diff)
	}
	o := newOracle(profiles, have)
	o.layout = plan.Layout()
	for _, p := range o.layout {
		i := slices.IndexFunc(profiles, func(q gpu.MIGProfile) bool { return q.Name == p.Profile })
		o.fill(p.Start, profiles[i].Size, true)
	}
	if o.look(); !o.fits || o.best.compare(best) != 0 {
		t.Fatalf("have %v, want %v: %v is worth %v (held kept %t), but %v can be had", have, want, o.layout, o.best, o.fits, best)
	}
	before := map[string]int{}
	for _, h := range have {
		before[fmt.Sprint(h.MIGPlacement)]++
	}
	after := map[string]int{}
	for _, p := range slices.Concat(plan.Keep, plan.Remove) {
		after[fmt.Sprint(p)]++
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Fatalf("want %v: what is kept and removed is not what was there:\n%s", want, diff)
	}
	if len(plan.Keep) != best.kept {
		t.Fatalf("have %v, want %v: %d are kept, but %d can be", have, want, len(plan.Keep), best.kept)
	}
	shuffled := slices.Clone(have)
	slices.Reverse(shuffled)
	if again, err := placement.PlaceMIG(profiles, shuffled, maps.Clone(want)); err != nil || !cmp.Equal(plan, again) {
		t.Fatalf("have %v, want %v: once %v, then %v (%v)", have, want, plan, again, err)
	}
}

// testingT is what a test and a drawn test have in common.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}
