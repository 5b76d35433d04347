package utilization

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Code is what an advice is about.
type Code string

// Codes of advice.
const (
	Unused         Code = "unused"         // given out, but nothing used it
	Held           Code = "held"           // processes hold memory, and do not compute
	Oversized      Code = "oversized"      // less would do
	Unaccounted    Code = "unaccounted"    // used, though it is not given out
	Oversubscribed Code = "oversubscribed" // more is given out than there is
	Fragmented     Code = "fragmented"     // free, but of no use to any MIG profile
	Free           Code = "free"           // neither given out nor used
	LongView       Code = "long_view"      // what the record of past days says
	ShortWindow    Code = "short_window"   // how little the rest is based on
)

// Advice is a sentence or two for people.
type Advice struct {
	Code Code   `json:"kind"`
	Text string `json:"text"`
}

const (
	// reserve is what is left on top of what was used: half as much again.
	reserve = 1.5
	// worthwhile is how much smaller a share has to be before it is proposed.
	worthwhile = 0.5
	// long is a window that needs no excuse.
	long = time.Hour
)

// Advice says what the figures mean. History is the long view, nil if there is none.
func (f *Figures) Advice(history *History) []Advice {
	var out []Advice
	add := func(code Code, text string, args ...any) {
		out = append(out, Advice{Code: code, Text: "GPU " + f.ID + ": " + fmt.Sprintf(text, args...)})
	}
	if f.MIG != nil {
		f.MIG.advise(f.watched(), add)
	} else {
		f.advise(f.watched(), add)
	}
	rests := len(out) > 0
	if history != nil {
		history.advise(f.Idle, add)
	}
	if rests && f.Window < long && (history == nil || history.Idle == nil) {
		add(ShortWindow, "this rests on %s. Look again at other times, or name a Prometheus server that keeps DCGM's metrics, before anything "+
			"is taken away.", span(f.Window))
	}
	return out
}

type adder func(code Code, text string, args ...any)

// watched says which time figures are about.
func (f *Figures) watched() string {
	return "for the " + span(f.Window) + " that were watched"
}

// advise is about a GPU that is not in MIG mode.
func (u *Use) advise(watched string, add adder) {
	idle := u.Idle != nil && *u.Idle
	switch {
	case u.Allocated == 0 && idle:
		add(Free, "nothing of it is allocated, and nothing used it %s.", watched)
	case u.Allocated == 0 && len(u.Processes) > 0:
		add(Unaccounted, "nothing of it is allocated, but %s of its %s of memory were used %s, by %s.",
			u.MemoryUsed, u.MemoryTotal, watched, names(u.Processes))
	case u.Allocated > 0 && idle:
		add(Unused, "%s of it is allocated, and nothing used it %s.", percent(u.Allocated), watched)
	case u.Allocated > 0 && u.resting():
		add(Held, "%s of it is allocated, and %s %s, but computed nothing %s.", percent(u.Allocated), names(u.Processes), hold(u), watched)
	default:
		u.size(watched, add)
	}
	if u.Allocated > 1 {
		add(Oversubscribed, "%s of it is allocated: when all use what they were given at once, they slow each other down, and memory runs out.",
			percent(u.Allocated))
	}
}

// resting tells whether processes were there that computed nothing.
func (u *Use) resting() bool {
	if len(u.Processes) == 0 || u.Busy == nil && u.SMActivity == nil {
		return false
	}
	return (u.Busy == nil || *u.Busy == 0) && (u.SMActivity == nil || *u.SMActivity < quiet)
}

// size proposes a smaller share where the use was measured.
func (u *Use) size(watched string, add adder) {
	used, ok := u.used()
	if !ok || u.Allocated == 0 {
		return
	}
	enough := math.Ceil(used*reserve*100-1e-6) / 100 // 30.000000000000004 is 30
	if enough > 0 && enough <= u.Allocated*worthwhile {
		add(Oversized, "%s of it is allocated, but at most %s were used %s. With 50 %% headroom, %s of it would do.",
			percent(u.Allocated), u.measured(), watched, percent(enough))
		return
	}
	if u.Busy != nil && u.SMActivity != nil && *u.Busy >= 50 && *u.SMActivity < *u.Busy*worthwhile {
		add(Oversized,
			"kernels ran %.0f %% of the time %s, but on %.0f %% of its multiprocessors: several such workloads can have it at once by MPS.",
			*u.Busy, watched, *u.SMActivity)
	}
}

// used is the part of the GPU that was used: of its memory or of its multiprocessors,
// whichever is more.
func (u *Use) used() (float64, bool) {
	compute := u.SMActivity
	if compute == nil {
		compute = u.Busy
	}
	if compute == nil || u.MemoryTotal == 0 {
		return 0, false
	}
	return max(*compute/100, float64(u.MemoryUsed)/float64(u.MemoryTotal)), true
}

// measured are the two numbers behind used.
func (u *Use) measured() string {
	memory := fmt.Sprintf("%s of %s of memory", u.MemoryUsed, u.MemoryTotal)
	if u.SMActivity != nil {
		return fmt.Sprintf("%s and %.0f %% of its multiprocessors", memory, *u.SMActivity)
	}
	return fmt.Sprintf("%s and %.0f %% of its time", memory, *u.Busy)
}

// advise is about a GPU in MIG mode.
func (m *MIGFigures) advise(watched string, add adder) {
	unused, idle := m.unused()
	switch allocated := fmt.Sprintf("%d of %d slices %s allocated", m.AllocatedSlices, m.Slices, words.Verb(m.AllocatedSlices, "is", "are")); {
	case m.AllocatedSlices > 0 && len(unused) > 0 && idle == m.AllocatedSlices:
		add(Unused, "%s, none used %s.", allocated, watched)
	case m.AllocatedSlices > 0 && len(unused) > 0:
		add(Unused, "%s, and nothing used %s %s.", allocated, strings.Join(unused, ", "), watched)
	case m.AllocatedSlices == 0 && len(m.Instances) > 0:
		add(Free, "none of its %d MIG instances is allocated.", len(m.Instances))
	case m.AllocatedSlices == 0:
		add(Free, "it is in MIG mode and has no instance.")
	}
	for i := range m.Instances {
		m.Instances[i].advise(m.profiles, watched, add)
	}
	if m.Unallocatable > 0 {
		add(Fragmented, "%s", m.fragmented())
	}
}

// fragmented says what is lost, and whether another layout could help: where all slices
// of compute are taken, none can.
func (m *MIGFigures) fragmented() string {
	text := fmt.Sprintf("%d of its %d slices of memory %s free, but no MIG profile can be placed on ",
		m.FreeMemory, m.MemorySlices, words.Verb(m.FreeMemory, "is", "are"))
	if m.Unallocatable == m.FreeMemory {
		text += "what is free."
	} else {
		text += fmt.Sprintf("%d of them.", m.Unallocatable)
	}
	left := m.Slices
	for i := range m.Instances {
		left -= m.Instances[i].Slices
	}
	if left > 0 {
		text += " Other placements of its instances may leave room for one more."
	}
	return text
}

// unused are the instances that are given out and idle, and their compute slices.
func (m *MIGFigures) unused() (names []string, slices int) {
	for i := range m.Instances {
		if in := &m.Instances[i]; in.Allocated > 0 && in.Idle != nil && *in.Idle {
			names, slices = append(names, in.name()), slices+in.Slices
		}
	}
	return names, slices
}

func (in *InstanceFigures) name() string { return fmt.Sprintf("%s at %d", in.Profile, in.Start) }

// advise proposes a smaller profile, and names processes in an instance that is not given
// out.
func (in *InstanceFigures) advise(profiles []gpu.MIGProfile, watched string, add adder) {
	if in.Allocated == 0 {
		if len(in.Processes) > 0 {
			add(Unaccounted, "its instance %s is not allocated, but used %s, by %s.", in.name(), watched, names(in.Processes))
		}
		return
	}
	if in.Idle == nil || *in.Idle {
		return
	}
	if in.resting() {
		add(Held, "its instance %s is allocated, and %s %s, but computed nothing %s.", in.name(), names(in.Processes), hold(&in.Use), watched)
		return
	}
	if in.SMActivity == nil || in.MemoryTotal == 0 {
		return
	}
	slices := *in.SMActivity / 100 * float64(in.Slices) * reserve
	memory := float64(in.MemoryUsed) * reserve
	if p := smallest(profiles, slices, memory); p != nil && p.Slices < in.Slices {
		add(Oversized, "at most %s of its instance %s were used %s. With 50 %% headroom, a %s would do.",
			in.measured(), in.name(), watched, p.Name)
	}
}

// smallest is the profile with the fewest slices, then the least memory, that has enough
// of both. Variants with media engines or graphics are there for a reason, and left out.
func smallest(profiles []gpu.MIGProfile, slices, memory float64) *gpu.MIGProfile {
	var best *gpu.MIGProfile
	for i := range profiles {
		p := &profiles[i]
		if float64(p.Slices) < slices || float64(p.Memory) < memory || strings.ContainsAny(p.Name, "+-") {
			continue
		}
		if best == nil || p.Slices < best.Slices || p.Slices == best.Slices && p.Memory < best.Memory {
			best = p
		}
	}
	return best
}

// advise is the long view.
func (h *History) advise(idleNow *bool, add adder) {
	if h.Idle == nil {
		add(LongView, "there is no record of it for the %s before %s.", span(h.To.Sub(h.From)), h.To.Format(time.DateOnly))
		return
	}
	text := fmt.Sprintf("for the %s that were recorded before %s, it was idle %s of the time", span(h.Recorded),
		h.To.Format(time.DateOnly), percent(*h.Idle))
	var parts []string
	for _, part := range []struct {
		name  string
		share *float64
	}{{"nights", h.Nights}, {"weekends", h.Weekends}, {"working days", h.Days}} {
		if part.share != nil {
			parts = append(parts, fmt.Sprintf("%s %s", part.name, percent(*part.share)))
		}
	}
	text += fmt.Sprintf(" (%s), and %.0f %% busy at most.", strings.Join(parts, ", "), h.Peak)
	const mostly, sometimes = 0.9, 0.5
	switch {
	case *h.Idle >= mostly:
		text += " It can be shared, or given to somebody else."
	case h.Nights != nil && *h.Nights >= mostly && h.Weekends != nil && *h.Weekends >= mostly:
		text += " Work that can wait fits into its nights and weekends."
	case idleNow != nil && *idleNow && *h.Idle < sometimes:
		text += " That it is idle now is not what it usually is."
	}
	add(LongView, "%s", text)
}
