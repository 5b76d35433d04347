package rules_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// zone needs the zones that every Go installation brings.
func zone(t rapid.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// window is one "from" to "to" in a zone.
func window(t *testing.T, from, to, in string, days ...time.Weekday) *rules.Window {
	t.Helper()
	start, err := rules.ParseTimeOfDay(from)
	if err != nil {
		t.Fatal(err)
	}
	end, err := rules.ParseTimeOfDay(to)
	if err != nil {
		t.Fatal(err)
	}
	return &rules.Window{Days: days, Start: start, End: end, Zone: zone(t, in)}
}

// moment reads a time with its offset from UTC.
func moment(t *testing.T, s string) time.Time {
	t.Helper()
	m, err := time.Parse("2006-01-02 15:04:05 -0700", s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWindow(t *testing.T) {
	const berlin = "Europe/Berlin"
	for name, test := range map[string]struct {
		from, to, in string
		days         []time.Weekday
		open, closed []string
		opens        map[string]string // from a moment on, when it opens next
	}{
		"within a day": {
			from: "09:00", to: "17:30", in: "UTC",
			open:   []string{"2025-11-18 09:00:00 +0000", "2025-11-18 17:29:59 +0000", "2025-11-18 11:00:00 +0200"},
			closed: []string{"2025-11-18 08:59:59 +0000", "2025-11-18 17:30:00 +0000", "2025-11-18 10:59:59 +0200"},
			opens: map[string]string{
				"2025-11-18 08:59:59 +0000": "2025-11-18 09:00:00 +0000",
				"2025-11-18 09:00:00 +0000": "2025-11-19 09:00:00 +0000",
				"2025-12-31 20:00:00 +0000": "2026-01-01 09:00:00 +0000",
			},
		},
		"by the clock of its zone": {
			from: "22:00", to: "23:00", in: berlin,
			open:   []string{"2025-11-18 21:00:00 +0000", "2025-07-18 20:00:00 +0000"}, // winter and summer
			closed: []string{"2025-11-18 20:00:00 +0000", "2025-07-18 21:00:00 +0000"},
		},
		"over midnight, of the day on which it starts": {
			from: "22:00", to: "04:00", in: "UTC", days: []time.Weekday{time.Friday},
			open:   []string{"2025-11-21 22:00:00 +0000", "2025-11-22 00:00:00 +0000", "2025-11-22 03:59:59 +0000"},
			closed: []string{"2025-11-20 23:00:00 +0000", "2025-11-21 03:00:00 +0000", "2025-11-22 04:00:00 +0000", "2025-11-22 22:00:00 +0000"},
			opens: map[string]string{
				"2025-11-22 04:00:00 +0000": "2025-11-28 22:00:00 +0000",
				"2025-11-21 03:00:00 +0000": "2025-11-21 22:00:00 +0000",
			},
		},
		"some days": {
			from: "01:00", to: "02:00", in: "UTC", days: []time.Weekday{time.Monday, time.Wednesday},
			open:   []string{"2025-11-17 01:30:00 +0000", "2025-11-19 01:30:00 +0000"},
			closed: []string{"2025-11-18 01:30:00 +0000", "2025-11-23 01:30:00 +0000"},
			opens: map[string]string{
				"2025-11-17 01:30:00 +0000": "2025-11-19 01:00:00 +0000",
				"2025-11-19 02:00:00 +0000": "2025-11-24 01:00:00 +0000",
			},
		},
		"whole days": {
			from: "00:00", to: "24:00", in: berlin, days: []time.Weekday{time.Saturday, time.Sunday},
			open:   []string{"2025-11-22 00:00:00 +0100", "2025-11-22 23:59:59 +0100", "2025-11-23 23:59:59 +0100"},
			closed: []string{"2025-11-21 23:59:59 +0100", "2025-11-24 00:00:00 +0100"},
		},
		"the day the zone is in counts": {
			from: "00:30", to: "01:00", in: "Pacific/Auckland", days: []time.Weekday{time.Tuesday},
			open:   []string{"2025-11-17 11:30:00 +0000"}, // Monday in Greenwich
			closed: []string{"2025-11-18 11:30:00 +0000"},
		},
		// On 2025-03-30 the clock goes from 02:00 CET to 03:00 CEST.
		"it starts in the skipped hour": {
			from: "02:30", to: "05:00", in: berlin,
			open:   []string{"2025-03-30 03:00:00 +0200", "2025-03-30 04:59:59 +0200"},
			closed: []string{"2025-03-30 01:59:59 +0100", "2025-03-30 05:00:00 +0200"},
			opens: map[string]string{
				"2025-03-30 01:59:59 +0100": "2025-03-30 03:00:00 +0200",
				"2025-03-30 03:00:00 +0200": "2025-03-31 02:30:00 +0200",
			},
		},
		"it ends in the skipped hour": {
			from: "22:00", to: "02:30", in: berlin,
			open:   []string{"2025-03-30 01:59:59 +0100"},
			closed: []string{"2025-03-30 03:00:00 +0200"},
		},
		"it lies in the skipped hour": {
			from: "02:10", to: "02:50", in: berlin, days: []time.Weekday{time.Sunday},
			open:   []string{"2025-03-23 02:30:00 +0100", "2025-04-06 02:30:00 +0200"},
			closed: []string{"2025-03-30 01:59:59 +0100", "2025-03-30 03:00:00 +0200", "2025-03-30 03:30:00 +0200"},
			opens:  map[string]string{"2025-03-23 02:50:00 +0100": "2025-04-06 02:10:00 +0200"},
		},
		"it spans the skipped hour": {
			from: "22:00", to: "04:00", in: berlin,
			open:   []string{"2025-03-29 22:00:00 +0100", "2025-03-30 03:59:59 +0200"},
			closed: []string{"2025-03-29 21:59:59 +0100", "2025-03-30 04:00:00 +0200"},
		},
		// On 2025-10-26 the clock goes from 03:00 CEST back to 02:00 CET.
		"it starts in the doubled hour": {
			from: "02:30", to: "04:00", in: berlin,
			open:   []string{"2025-10-26 02:30:00 +0200", "2025-10-26 02:00:00 +0100", "2025-10-26 03:59:59 +0100"},
			closed: []string{"2025-10-26 02:29:59 +0200", "2025-10-26 04:00:00 +0100"},
			opens: map[string]string{
				"2025-10-26 01:00:00 +0200": "2025-10-26 02:30:00 +0200",
				"2025-10-26 02:30:00 +0100": "2025-10-27 02:30:00 +0100",
			},
		},
		"it ends in the doubled hour": {
			from: "22:00", to: "02:30", in: berlin,
			open:   []string{"2025-10-26 02:29:59 +0200"},
			closed: []string{"2025-10-26 02:30:00 +0200", "2025-10-26 02:10:00 +0100"},
		},
		"it lies in the doubled hour": {
			from: "02:10", to: "02:50", in: berlin,
			open:   []string{"2025-10-26 02:10:00 +0200", "2025-10-26 02:49:59 +0200"},
			closed: []string{"2025-10-26 02:50:00 +0200", "2025-10-26 02:10:00 +0100", "2025-10-26 02:30:00 +0100"},
			opens:  map[string]string{"2025-10-26 02:10:00 +0100": "2025-10-27 02:10:00 +0100"},
		},
		// In Newfoundland of 2010 the clock went from 00:01 back to 23:01 of the day before.
		"the clock is put back over midnight": {
			from: "00:00", to: "03:00", in: "America/St_Johns", days: []time.Weekday{time.Sunday},
			open:   []string{"2010-11-07 00:00:30 -0230", "2010-11-06 23:30:00 -0330", "2010-11-07 02:59:59 -0330"},
			closed: []string{"2010-11-06 23:59:59 -0230", "2010-11-07 03:00:00 -0330"},
		},
		// Samoa crossed the date line: 2011-12-30 did not exist.
		"the day is skipped": {
			from: "10:00", to: "12:00", in: "Pacific/Apia", days: []time.Weekday{time.Friday},
			closed: []string{"2011-12-29 11:00:00 -1000", "2011-12-31 11:00:00 +1400"},
			opens:  map[string]string{"2011-12-29 11:00:00 -1000": "2012-01-06 10:00:00 +1400"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := window(t, test.from, test.to, test.in, test.days...)
			for want, moments := range map[bool][]string{true: test.open, false: test.closed} {
				for _, m := range moments {
					if got := w.Open(moment(t, m)); got != want {
						t.Errorf("at %s it is open: %t, want %t", m, got, want)
					}
				}
			}
			for from, want := range test.opens {
				if got := w.Opens(moment(t, from)); !got.Equal(moment(t, want)) {
					t.Errorf("after %s it opens at %s, want %s", from, got, want)
				}
			}
		})
	}
}

// Whenever a window is closed, it opens at the moment that it says and not before.
func TestWindowOpensWhenItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.IntRange(0, 24*60-1).Draw(t, "start")
		w := &rules.Window{
			Start: rules.TimeOfDay(start),
			End:   rules.TimeOfDay((start + rapid.IntRange(1, 24*60-1).Draw(t, "length")) % (24 * 60)),
			Days: rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 6), func(n int) time.Weekday { return time.Weekday(n) }), 0, 7, rapid.ID).
				Draw(t, "days"),
			Zone: zone(t, rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "America/Santiago"}).Draw(t,
				"zone")),
		}
		// The year of the moment has all of these zones' changes of the clock.
		now := time.Unix(time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()+rapid.Int64Range(0, 365*24*60).Draw(t, "minute")*60, 0)
		opens := w.Opens(now)
		if !opens.After(now) || opens.Sub(now) > 15*24*time.Hour || !w.Open(opens) {
			t.Fatalf("%s: after %s it opens at %s", w, now.In(w.Zone), opens)
		}
		if w.Open(now) {
			return
		}
		for m := now; m.Before(opens); m = m.Add(time.Minute) {
			if w.Open(m) {
				t.Fatalf("%s: after %s it is open at %s and not only from %s on", w, now.In(w.Zone), m.In(w.Zone), opens)
			}
		}
	})
}

func TestTimeOfDay(t *testing.T) {
	for _, good := range []string{"00:00", "04:05", "23:59", "24:00"} {
		if got, err := rules.ParseTimeOfDay(good); err != nil || got.String() != good {
			t.Errorf("%q is read as %s, %v", good, got, err)
		}
	}
	for _, bad := range []string{"", "4:00", "04:0", "24:01", "25:00", "12:60", "1200", "12:00:00", "noon", "-1:00", " 4:00"} {
		if got, err := rules.ParseTimeOfDay(bad); err == nil {
			t.Errorf("%q is read as %s", bad, got)
		}
	}
}

func TestWindowInWords(t *testing.T) {
	for want, w := range map[string]*rules.Window{
		"every day from 01:00 to 05:00 (UTC)": window(t, "01:00", "05:00", "UTC"),
		"on Friday and Sunday from 22:00 to 04:00 of the next day (Europe/Berlin)": window(t, "22:00",
			"04:00", "Europe/Berlin", time.Sunday, time.Friday),
		"on Monday, Wednesday and Saturday from 00:00 to 24:00 (UTC)": window(t, "00:00",
			"24:00", "UTC", time.Saturday, time.Monday, time.Wednesday),
		"every day from 22:00 to 00:00 of the next day (UTC)": window(t, "22:00", "00:00", "UTC", 0, 1, 2, 3, 4, 5, 6),
	} {
		if got := w.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
