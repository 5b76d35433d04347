package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// TimeOfDay is a time on the clock, in minutes after midnight. 24:00 is the end of a
// day.
type TimeOfDay int

// EndOfDay is 24:00.
const EndOfDay TimeOfDay = 24 * 60

// ParseTimeOfDay reads "22:00".
func ParseTimeOfDay(s string) (TimeOfDay, error) {
	if s == EndOfDay.String() {
		return EndOfDay, nil
	}
	t, err := time.Parse("15:04", s)
	if err != nil || len(s) != len("15:04") {
		return 0, fmt.Errorf("%q is no time of day such as \"04:00\" or \"22:30\"", s)
	}
	return TimeOfDay(t.Hour()*60 + t.Minute()), nil
}

func (t TimeOfDay) String() string { return fmt.Sprintf("%02d:%02d", t/60, t%60) }

// Window is a span of time that comes back on certain days. It goes by the clock of
// its zone: a window from 22:00 to 04:00 belongs to the day on which it starts and ends
// on the next. Where the clock is put forward over its start or end, that is when the
// clock is put forward, so a window inside the skipped time does not open on that day.
// Where a time comes twice because the clock is put back, the first counts.
type Window struct {
	// Days are those on which the window starts; none means every day.
	Days []time.Weekday
	// Start is before 24:00, and End is another time. An End that is not after Start is on
	// the next day.
	Start, End TimeOfDay
	Zone       *time.Location
}

// Open tells whether a moment is inside of the window, the end excluded.
func (w *Window) Open(now time.Time) bool {
	// Where the clock is put back over midnight, the date that it shows is one too early.
	for day := -1; day <= 1; day++ {
		if start, end, ok := w.span(now, day); ok && !now.Before(start) && now.Before(end) {
			return true
		}
	}
	return false
}

// opensWithin is more days than a window stays closed: one day of the week, on which
// the clock skips it once.
const opensWithin = 15

// Opens is when the window opens next after a moment, in its zone.
func (w *Window) Opens(now time.Time) time.Time {
	for day := -1; day < opensWithin; day++ {
		if start, end, ok := w.span(now, day); ok && start.After(now) && start.Before(end) {
			return start
		}
	}
	return time.Time{}
}

// span is the window of the day that lies so many days after now's. It is false when
// the window does not start on that day.
func (w *Window) span(now time.Time, days int) (start, end time.Time, ok bool) {
	year, month, today := now.In(w.Zone).Date()
	date := time.Date(year, month, today+days, 0, 0, 0, 0, time.UTC) // a calendar without gaps
	if len(w.Days) > 0 && !slices.Contains(w.Days, date.Weekday()) {
		return time.Time{}, time.Time{}, false
	}
	start = w.when(date, w.Start)
	if w.overnight() {
		date = date.AddDate(0, 0, 1)
	}
	return start, w.when(date, w.End), true
}

func (w *Window) overnight() bool { return w.End <= w.Start }

// when is the moment at which the clock of the zone first shows a time of a date, or
// jumps over it. time.Date alone does not say which of two moments it chooses.
func (w *Window) when(date time.Time, at TimeOfDay) time.Time {
	wanted := date.Add(time.Duration(at) * time.Minute)
	t := time.Date(wanted.Year(), wanted.Month(), wanted.Day(), wanted.Hour(), wanted.Minute(), 0, 0, w.Zone)
	from, to := t.ZoneBounds() // of the offset from UTC that holds at t
	switch shown := onTheClock(t); {
	case shown.After(wanted):
		return from
	case shown.Before(wanted):
		return to
	}
	if !from.IsZero() {
		_, before := from.Add(-time.Second).Zone()
		if first := wanted.Add(-time.Duration(before) * time.Second); first.Before(from) {
			return first.In(w.Zone)
		}
	}
	return t
}

// onTheClock is what the clock shows at a moment, as if it were UTC.
func onTheClock(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// week is the order in which days are told.
var week = []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Saturday, time.Sunday}

// String tells the window in words: "on Friday and Saturday from 22:00 to 04:00 of the
// next day (Europe/Berlin)".
func (w *Window) String() string {
	var b strings.Builder
	var names []string
	for _, d := range week {
		if slices.Contains(w.Days, d) {
			names = append(names, d.String())
		}
	}
	if len(names) == 0 || len(names) == len(week) {
		b.WriteString("every day")
	} else {
		b.WriteString("on " + join(names))
	}
	fmt.Fprintf(&b, " from %s to %s", w.Start, w.End)
	if w.overnight() {
		b.WriteString(" of the next day")
	}
	return b.String() + " (" + w.Zone.String() + ")"
}
