package utilization

import (
	"cmp"
	"slices"
	"time"
)

// Point is how busy a GPU was at most in the step that ends at a time.
type Point struct {
	At   time.Time
	Busy float64 // percent
}

// History is the long view of one GPU. Shares are of the time that was recorded.
type History struct {
	From, To time.Time
	Step     time.Duration
	// Recorded is how much of the time there are points for.
	Recorded time.Duration
	Peak     float64 // percent
	Mean     float64 // percent, of the steps' peaks
	// Idle is the share of all time; Nights are the hours from 20 to 6 of working days,
	// Weekends Saturday and Sunday, Days the rest. One without any point is nil.
	Idle     *float64
	Nights   *float64
	Weekends *float64
	Days     *float64
}

// Night begins and ends at these hours.
const (
	nightFrom = 20
	nightTo   = 6
)

// Summarize makes the long view of a GPU's points, with days and nights as they are in a
// place.
func Summarize(points []Point, from, to time.Time, step time.Duration, place *time.Location) History {
	out := History{From: from, To: to, Step: step}
	var all, nights, weekends, days tally
	for _, p := range points {
		idle := p.Busy < quiet
		all.add(idle)
		// A point stands for the step before it.
		switch at := p.At.Add(-step / 2).In(place); {
		case at.Weekday() == time.Saturday, at.Weekday() == time.Sunday:
			weekends.add(idle)
		case at.Hour() >= nightFrom, at.Hour() < nightTo:
			nights.add(idle)
		default:
			days.add(idle)
		}
		out.Mean += p.Busy / float64(len(points))
	}
	if len(points) > 0 {
		out.Peak = slices.MaxFunc(points, func(a, b Point) int { return cmp.Compare(a.Busy, b.Busy) }).Busy
	}
	out.Recorded = min(time.Duration(all.points)*step, to.Sub(from))
	out.Idle, out.Nights, out.Weekends, out.Days = all.share(), nights.share(), weekends.share(), days.share()
	return out
}

// tally counts points, and the idle ones among them.
type tally struct{ points, idle int }

func (t *tally) add(idle bool) {
	t.points++
	if idle {
		t.idle++
	}
}

func (t *tally) share() *float64 {
	if t.points == 0 {
		return nil
	}
	return new(ratio(t.idle, t.points))
}
