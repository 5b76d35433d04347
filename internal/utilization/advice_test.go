package utilization_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// texts are the advices as "kind: text".
func texts(list []utilization.Advice) []string {
	var out []string
	for _, a := range list {
		out = append(out, string(a.Code)+": "+a.Text)
	}
	return out
}

// short is what advice that rests on two seconds ends with.
const short = "short_window: GPU G: this rests on 2 s. Look again at other times, or name a Prometheus server that keeps DCGM's metrics, " +
	"before anything is taken away."

func reading(busy, sm *float64, used gpu.Bytes, processes ...gpu.Process) utilization.Reading {
	return utilization.Reading{Busy: busy, SMActivity: sm, MemoryUsed: used, MemoryTotal: 80 * gib, Processes: processes}
}

func TestAdviceOnAGPU(t *testing.T) {
	python := gpu.Process{PID: 42, Name: "python", Holder: "unit train.service"}
	for name, test := range map[string]struct {
		allocated float64
		second    utilization.Reading
		want      []string
	}{
		"free": {0, reading(number(0), nil, 0), []string{
			"free: GPU G: nothing of it is allocated, and nothing used it for the 2 s that were watched.", short,
		}},
		"unused": {1, reading(number(0), number(0), 0), []string{
			"unused: GPU G: 100 % of it is allocated, and nothing used it for the 2 s that were watched.", short,
		}},
		"held": {1, reading(number(0), number(0), 40*gib, python), []string{
			"held: GPU G: 100 % of it is allocated, and python (PID 42, unit train.service) holds 40.0 GiB of its 80.0 GiB of memory, but " +
				"computed nothing for the 2 s that were watched.", short,
		}},
		"oversized": {1, reading(number(90), number(10), 16*gib, python), []string{
			"oversized: GPU G: 100 % of it is allocated, but at most 16.0 GiB of 80.0 GiB of memory and 10 % of its multiprocessors were used for " +
				"the 2 s that were watched. " +
				"With 50 % headroom, 30 % of it would do.", short,
		}},
		"oversized by the coarser counter": {0.5, reading(number(10), nil, 8*gib, python), []string{
			"oversized: GPU G: 50 % of it is allocated, but at most 8.0 GiB of 80.0 GiB of memory and 10 % of its time were used for the 2 s that " +
				"were watched. " +
				"With 50 % headroom, 15 % of it would do.", short,
		}},
		"busy on few multiprocessors": {1, reading(number(98), number(30), 60*gib, python), []string{
			"oversized: GPU G: kernels ran 98 % of the time for the 2 s that were watched, but on 30 % of its multiprocessors: several such " +
				"workloads can have it at once by MPS.", short,
		}},
		"unaccounted": {0, reading(number(50), nil, 8*gib, python, gpu.Process{PID: 43}), []string{
			"unaccounted: GPU G: nothing of it is allocated, but 8.0 GiB of its 80.0 GiB of memory were used for the 2 s that were watched, by " +
				"python (PID 42, unit train.service) and a process (PID 43).", short,
		}},
		"oversubscribed": {1.5, reading(number(90), number(90), 70*gib, python), []string{
			"oversubscribed: GPU G: 150 % of it is allocated: when all use what they were given at once, they slow each other down, and memory " +
				"runs out.", short,
		}},
		"well used":          {1, reading(number(90), number(80), 60*gib, python), nil},
		"reserve is kept":    {1, reading(number(34), nil, 8*gib, python), nil}, // 51 % with the reserve
		"nothing measured":   {1, utilization.Reading{Processes: []gpu.Process{python}}, nil},
		"hidden":             {1, utilization.Reading{Hidden: true}, nil},
		"a share that is so": {0.25, reading(number(20), nil, 15*gib, python), nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := utilization.Assess(&utilization.GPU{ID: "G", Allocated: test.allocated, First: test.second, Second: test.second}, twoSeconds)
			if diff := cmp.Diff(test.want, texts(f.Advice(nil))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdviceOnMIG(t *testing.T) {
	use := func(in *utilization.Instance, sm *float64, used gpu.Bytes, processes ...gpu.Process) {
		in.Allocated = 1
		in.Second = utilization.Reading{SMActivity: sm, MemoryUsed: used, MemoryTotal: 40 * gib, Processes: processes}
	}
	python := gpu.Process{PID: 42, Name: "python"}
	for name, test := range map[string]struct {
		placements []gpu.MIGPlacement
		change     func([]utilization.Instance)
		want       []string
	}{
		"none used": {
			[]gpu.MIGPlacement{at("3g.40gb", 4), at("2g.20gb", 0)},
			func(in []utilization.Instance) { in[0].Allocated = 1 },
			[]string{"unused: GPU G: 3 of 7 slices are allocated, none used for the 2 s that were watched.", short},
		},
		"one of two used": {
			[]gpu.MIGPlacement{at("3g.40gb", 4), at("1g.10gb", 0)},
			func(in []utilization.Instance) {
				use(&in[0], number(80), 30*gib, python)
				in[1].Allocated = 0.5
			},
			[]string{"unused: GPU G: 4 of 7 slices are allocated, and nothing used 1g.10gb at 0 for the 2 s that were watched.", short},
		},
		"none allocated": {
			[]gpu.MIGPlacement{at("3g.40gb", 4), at("1g.10gb", 0)},
			func([]utilization.Instance) {},
			[]string{"free: GPU G: none of its 2 MIG instances is allocated.", short},
		},
		"no instance": {nil, func([]utilization.Instance) {}, []string{"free: GPU G: it is in MIG mode and has no instance.", short}},
		"a smaller one would do": {
			[]gpu.MIGPlacement{at("3g.40gb", 4)},
			func(in []utilization.Instance) { use(&in[0], number(20), 9*gib, python) },
			[]string{"oversized: GPU G: at most 9.0 GiB of 40.0 GiB of memory and 20 % of its multiprocessors of its instance 3g.40gb at 4 were " +
				"used for the 2 s that were watched. " +
				"With 50 % headroom, a 1g.20gb would do.", short},
		},
		"it is just right": {
			[]gpu.MIGPlacement{at("3g.40gb", 4)},
			func(in []utilization.Instance) { use(&in[0], number(50), 9*gib, python) }, // 2.25 slices with the reserve
			nil,
		},
		"held": {
			[]gpu.MIGPlacement{at("1g.10gb", 0)},
			func(in []utilization.Instance) { use(&in[0], number(0), 2*gib, python) },
			[]string{
				"held: GPU G: its instance 1g.10gb at 0 is allocated, and python (PID 42) holds 2.0 GiB of its 40.0 GiB of memory, but computed " +
					"nothing for the 2 s that were watched.", short,
			},
		},
		"unaccounted": {
			[]gpu.MIGPlacement{at("3g.40gb", 4), at("1g.10gb", 0)},
			func(in []utilization.Instance) {
				use(&in[0], number(80), 30*gib, python)
				use(&in[1], number(5), 1*gib, python)
				in[1].Allocated = 0
			},
			[]string{
				"unaccounted: GPU G: its instance 1g.10gb at 0 is not allocated, but used for the 2 s that were watched, by python (PID 42).", short,
			},
		},
		"all memory is taken": {
			[]gpu.MIGPlacement{at("1g.20gb", 0), at("1g.20gb", 2), at("3g.40gb", 4)},
			func(in []utilization.Instance) {
				for i := range in {
					use(&in[i], number(90), 9*gib, python)
				}
			},
			nil,
		},
		"placed so that a slice is lost": {
			[]gpu.MIGPlacement{at("1g.10gb", 0), at("1g.10gb", 1), at("1g.10gb", 2), at("1g.10gb", 3), at("1g.10gb", 4), at("1g.10gb", 6)},
			func(in []utilization.Instance) {
				for i := range in {
					use(&in[i], number(90), 9*gib, python)
				}
			},
			[]string{"fragmented: GPU G: 2 of its 8 slices of memory are free, but no MIG profile can be placed on 1 of them. " +
				"Other placements of its instances may leave room for one more.", short},
		},
		"fragmented": {
			[]gpu.MIGPlacement{at("2g.20gb", 0), at("2g.20gb", 2), at("2g.20gb", 4), at("1g.10gb", 6)},
			func(in []utilization.Instance) {
				for i := range in {
					use(&in[i], number(90), 9*gib, python)
				}
			},
			[]string{"fragmented: GPU G: 1 of its 8 slices of memory is free, but no MIG profile can be placed on what is free.", short},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := instances(t, h100, test.placements...)
			test.change(m.Instances)
			f := utilization.Assess(&utilization.GPU{ID: "G", MIG: m}, twoSeconds)
			if diff := cmp.Diff(test.want, texts(f.Advice(nil))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdviceWithALongView(t *testing.T) {
	to := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC) // a Monday
	from := to.AddDate(0, 0, -14)
	history := func(busy func(time.Time) float64) *utilization.History {
		var points []utilization.Point
		for at := from.Add(time.Hour); !at.After(to); at = at.Add(time.Hour) {
			points = append(points, utilization.Point{At: at, Busy: busy(at.Add(-time.Minute))})
		}
		h := utilization.Summarize(points, from, to, time.Hour, time.UTC)
		return &h
	}
	weekend := func(at time.Time) bool { return at.Weekday() == time.Saturday || at.Weekday() == time.Sunday }
	for name, test := range map[string]struct {
		busy func(time.Time) float64
		want string
	}{
		"never used": {
			func(time.Time) float64 { return 0 },
			"it was idle 100 % of the time (nights 100 %, weekends 100 %, working days 100 %), and 0 % busy at most. It can be shared, or given " +
				"to somebody else.",
		},
		"used in the day": {
			func(at time.Time) float64 {
				if weekend(at) || at.Hour() < 6 || at.Hour() >= 20 {
					return 0.5
				}
				return 70
			},
			"it was idle 58 % of the time (nights 100 %, weekends 100 %, working days 0 %), and 70 % busy at most. Work that can wait fits into " +
				"its nights and weekends.",
		},
		"always used": {
			func(time.Time) float64 { return 95 },
			"it was idle 0 % of the time (nights 0 %, weekends 0 %, working days 0 %), and 95 % busy at most. That it is idle now is not what it " +
				"usually is.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := utilization.Assess(&utilization.GPU{ID: "G", Allocated: 1}, twoSeconds)
			got := texts(f.Advice(history(test.busy)))
			want := []string{
				"unused: GPU G: 100 % of it is allocated, and nothing used it for the 2 s that were watched.",
				"long_view: GPU G: for the 14 days that were recorded before 2026-11-02, " + test.want,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no record", func(t *testing.T) {
		f := utilization.Assess(&utilization.GPU{ID: "G", Allocated: 1}, twoSeconds)
		h := utilization.Summarize(nil, from, to, time.Hour, time.UTC)
		got := texts(f.Advice(&h))
		if len(got) != 3 || got[1] != "long_view: GPU G: there is no record of it for the 14 days before 2026-11-02." || got[2] != short {
			t.Errorf("got %q", got)
		}
	})
}

// A window that is long enough needs no excuse.
func TestAdviceOfALongWindow(t *testing.T) {
	window := utilization.Window{From: twoSeconds.From, To: twoSeconds.From.Add(90 * time.Minute)}
	f := utilization.Assess(&utilization.GPU{ID: "G", Allocated: 0.004}, window)
	want := []string{"unused: GPU G: less than 1 % of it is allocated, and nothing used it for the 90 min that were watched."}
	if diff := cmp.Diff(want, texts(f.Advice(nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Many processes are counted.
func TestAdviceOnManyProcesses(t *testing.T) {
	var processes []gpu.Process
	for pid := range 6 {
		processes = append(processes, gpu.Process{PID: pid + 1, Name: "p"})
	}
	r := reading(number(50), nil, gib, processes...)
	f := utilization.Assess(&utilization.GPU{ID: "G", First: r, Second: r}, twoSeconds)
	if got := texts(f.Advice(nil)); !strings.HasSuffix(got[0], "by p (PID 1), p (PID 2), p (PID 3) and 3 more.") {
		t.Errorf("got %q", got)
	}
}
