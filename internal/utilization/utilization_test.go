package utilization_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

const gib = 1 << 30

var twoSeconds = utilization.Window{From: time.Unix(100, 0), To: time.Unix(102, 0)}

func number(f float64) *float64 { return &f }

func yes(b bool) *bool { return &b }

// table is what a model's GPUs offer.
func table(t testing.TB, model string) []gpu.MIGProfile {
	t.Helper()
	m, ok := catalog.ByName(model)
	if !ok || m.MIG == nil {
		t.Fatalf("the catalog has no MIG profiles of %s", model)
	}
	return m.MIG.Profiles
}

// instances are at placements of an 80 GB H100.
func instances(t testing.TB, model string, placements ...gpu.MIGPlacement) *utilization.MIG {
	t.Helper()
	out := &utilization.MIG{Profiles: table(t, model)}
	for _, p := range placements {
		profile, ok := (&gpu.MIG{Profiles: out.Profiles}).Profile(p.Profile)
		if !ok || !slices.Contains(profile.Starts, p.Start) {
			t.Fatalf("a %s has no %s at %d", model, p.Profile, p.Start)
		}
		out.Instances = append(out.Instances, utilization.Instance{Profile: p.Profile, Start: p.Start, Size: profile.Size})
	}
	return out
}

const (
	h100 = "NVIDIA H100 80GB HBM3"
	a30  = "NVIDIA A30"
)

func at(profile string, start int) gpu.MIGPlacement {
	return gpu.MIGPlacement{Profile: profile, Start: start}
}

func TestFragmentation(t *testing.T) {
	for name, test := range map[string]struct {
		model                      string
		placements                 []gpu.MIGPlacement
		total, free, unallocatable int
	}{
		"empty": {h100, nil, 8, 8, 0},
		"full":  {h100, []gpu.MIGPlacement{at("7g.80gb", 0)}, 8, 0, 0},
		"seven of the smallest leave the last slice": {
			h100,
			[]gpu.MIGPlacement{
				at("1g.10gb", 0), at("1g.10gb", 1), at("1g.10gb", 2), at("1g.10gb", 3), at("1g.10gb", 4), at("1g.10gb", 5), at("1g.10gb", 6),
			},
			8, 1, 1,
		},
		// The last two slices take one of double memory.
		"one of double memory reaches it": {h100, []gpu.MIGPlacement{at("4g.40gb", 0), at("2g.20gb", 4)}, 8, 2, 0},
		// 3g and 4g take all compute slices, and all memory.
		"halves": {h100, []gpu.MIGPlacement{at("4g.40gb", 0), at("3g.40gb", 4)}, 8, 0, 0},
		// A lone slice between instances still takes the smallest.
		"scattered": {h100, []gpu.MIGPlacement{at("1g.10gb", 1), at("1g.10gb", 3), at("1g.10gb", 5)}, 8, 5, 0},
		// 2+2+2+1 are all seven compute slices, so that slice 7 is lost.
		"no compute slice is left": {h100, []gpu.MIGPlacement{at("2g.20gb", 0), at("2g.20gb", 2), at("2g.20gb", 4), at("1g.10gb", 6)}, 8, 1, 1},
		// 1g of double memory at 0, 2 and 4, then a 4g's worth of compute with two slices of memory.
		"double memory":       {h100, []gpu.MIGPlacement{at("1g.20gb", 0), at("1g.20gb", 2), at("1g.20gb", 4)}, 8, 2, 0},
		"an A30":              {a30, []gpu.MIGPlacement{at("1g.6gb", 1)}, 4, 3, 0},
		"an A30 that is full": {a30, []gpu.MIGPlacement{at("2g.12gb", 0), at("2g.12gb", 2)}, 4, 0, 0},
	} {
		f := utilization.Assess(&utilization.GPU{ID: "G", MIG: instances(t, test.model, test.placements...)}, twoSeconds)
		if f.MIG.MemorySlices != test.total || f.MIG.FreeMemory != test.free || f.MIG.Unallocatable != test.unallocatable {
			t.Errorf("%s: %d slices, %d free, %d of no use; want %d, %d, %d", name,
				f.MIG.MemorySlices, f.MIG.FreeMemory, f.MIG.Unallocatable, test.total, test.free, test.unallocatable)
		}
	}
}

// A profile that the GPU has once is not there twice, and a driver's odd answers stop
// nothing.
func TestFragmentationOfOddTables(t *testing.T) {
	odd := &utilization.MIG{
		Profiles: []gpu.MIGProfile{
			{Name: "2g", Slices: 2, Size: 2, Max: 1, Starts: []int{0}},
			{Name: "1g+me", Slices: 1, Size: 1, Max: 1, Starts: []int{0, 1}},
			{Name: "none", Starts: []int{-1}},
		},
		Instances: []utilization.Instance{
			{Profile: "1g+me", Start: 0, Size: 1}, {Profile: "9g", Start: -3, Size: 2}, {Profile: "9g", Start: 7, Size: 2},
		},
	}
	f := utilization.Assess(&utilization.GPU{MIG: odd}, twoSeconds)
	if f.MIG.MemorySlices != 2 || f.MIG.FreeMemory != 1 || f.MIG.Unallocatable != 1 {
		t.Errorf("got %+v", f.MIG)
	}
	if f = utilization.Assess(&utilization.GPU{MIG: &utilization.MIG{}}, twoSeconds); f.MIG.MemorySlices != 0 ||
		f.MIG.Slices != 0 || f.Allocated != 0 {
		t.Errorf("a table without profiles gives %+v", f.MIG)
	}
}

// The higher of two readings counts.
func TestAssess(t *testing.T) {
	first := utilization.Reading{
		Busy: number(30), MemoryBusy: number(7), MemoryUsed: 9 * gib, MemoryTotal: 80 * gib,
		Processes: []gpu.Process{{PID: 7, Name: "old"}, {PID: 3, Name: "python"}},
	}
	second := utilization.Reading{
		Busy: number(10), MemoryBusy: number(9), SMActivity: number(12), MemoryUsed: 8 * gib, MemoryTotal: 80 * gib,
		Processes: []gpu.Process{{PID: 3, Name: "python3"}},
	}
	got := utilization.Assess(&utilization.GPU{ID: "GPU-1", Allocated: 0.5, First: first, Second: second}, twoSeconds)
	want := utilization.Figures{ID: "GPU-1", Window: 2 * time.Second, Use: utilization.Use{
		Allocated: 0.5, Busy: number(30), MemoryBusy: number(9), SMActivity: number(12), MemoryUsed: 9 * gib, MemoryTotal: 80 * gib,
		Processes: []gpu.Process{{PID: 3, Name: "python3"}, {PID: 7, Name: "old"}}, Idle: yes(false),
	}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(utilization.MIGFigures{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIdle(t *testing.T) {
	process := []gpu.Process{{PID: 1}}
	for name, test := range map[string]struct {
		first, second utilization.Reading
		want          *bool
	}{
		"nothing there": {utilization.Reading{}, utilization.Reading{}, yes(true)},
		"quiet counters": {
			utilization.Reading{Busy: number(0)}, utilization.Reading{Busy: number(0), SMActivity: number(0.4)}, yes(true),
		},
		"a process at first":         {utilization.Reading{Processes: process}, utilization.Reading{}, yes(false)},
		"a process in the end":       {utilization.Reading{}, utilization.Reading{Processes: process}, yes(false)},
		"a kernel ran":               {utilization.Reading{Busy: number(1)}, utilization.Reading{Busy: number(0)}, yes(false)},
		"multiprocessors worked":     {utilization.Reading{}, utilization.Reading{SMActivity: number(1)}, yes(false)},
		"hidden, without counters":   {utilization.Reading{}, utilization.Reading{Hidden: true}, nil},
		"hidden, with a counter":     {utilization.Reading{Hidden: true}, utilization.Reading{Hidden: true, SMActivity: number(0)}, yes(true)},
		"hidden, but something seen": {utilization.Reading{Hidden: true, Processes: process}, utilization.Reading{}, yes(false)},
	} {
		f := utilization.Assess(&utilization.GPU{First: test.first, Second: test.second}, twoSeconds)
		if diff := cmp.Diff(test.want, f.Idle); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAssessMIG(t *testing.T) {
	m := instances(t, h100, at("3g.40gb", 4), at("1g.10gb", 0), at("2g.20gb", 2))
	m.Instances[0].Allocated = 1
	m.Instances[0].Second.SMActivity = number(40)
	m.Instances[1].Allocated = 0.5
	m.Instances[2].Second.Hidden = true
	parent := utilization.Reading{Hidden: true, MemoryTotal: 80 * gib}
	f := utilization.Assess(&utilization.GPU{ID: "G", Allocated: 3, First: parent, Second: parent, MIG: m}, twoSeconds)
	if f.MIG.Slices != 7 || f.MIG.AllocatedSlices != 4 || f.MIG.UsedSlices != 5 || f.Allocated != 4.0/7 || f.Idle != nil {
		t.Errorf("got %+v, %+v", f, f.MIG)
	}
	var order []string
	for _, in := range f.MIG.Instances {
		order = append(order, in.Profile)
	}
	if diff := cmp.Diff([]string{"1g.10gb", "2g.20gb", "3g.40gb"}, order); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	m.Instances[2].Second.Hidden = false
	if f = utilization.Assess(&utilization.GPU{First: parent, Second: parent, MIG: m}, twoSeconds); f.Idle == nil || *f.Idle {
		t.Errorf("with all instances known it is idle: %v", f.Idle)
	}
}
