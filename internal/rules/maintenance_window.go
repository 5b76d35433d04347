package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// maintenanceWindow is the id of the rule that two ways lead to: Check forecasts, and
// CheckWindow goes by what the hosts have prepared.
const maintenanceWindow = "maintenance-window"

// Disturbed is a host where a change disturbs what runs.
type Disturbed struct {
	Host  string
	Class gpu.Disruption
	// VMs are the names of the running VMs that are shut down.
	VMs []string
}

// CheckWindow is the rule maintenance-window at apply: the hosts have prepared the change, so
// what it disturbs is known. Outside of the window that is an error unless the levels say
// otherwise.
func CheckWindow(w World, p change.Change, disturbed []Disturbed, levels Levels) []Finding {
	if len(disturbed) == 0 || w.Window == nil || w.Window.Open(w.Now) || levels[maintenanceWindow] == Off {
		return nil
	}
	f := outsideOf(w.Window, w.Now, p, disturbed)
	f.Rule = maintenanceWindow
	for i := range registry {
		if registry[i].ID == maintenanceWindow {
			f.Level = levels.inForce(&registry[i], f.Level)
		}
	}
	return []Finding{f}
}

// checkMaintenanceWindow forecasts what a plan will disturb. Its finding is a warning: the
// window may well be open when the plan is applied. What may not be disturbed at all
// is the business of other rules.
func checkMaintenanceWindow(r *run) {
	if r.world.Window == nil || !r.Transition() || r.world.Window.Open(r.world.Now) {
		return
	}
	disturbed := r.disturbs()
	if len(disturbed) == 0 {
		return
	}
	f := outsideOf(r.world.Window, r.world.Now, r.Plan, disturbed)
	f.Level = Warning
	r.report(f)
}

// disturbs forecasts what the plan will disturb, by host, as far as it is allowed to.
func (r *run) disturbs() []Disturbed {
	var out []Disturbed
	for host, f := range r.Forecasts() {
		refused := slices.ContainsFunc(f.Refused, func(why *gpu.Refusal) bool { return why.Restores == "" })
		if refused || !f.Class.Exceeds(gpu.DisruptNone) {
			continue
		}
		out = append(out, Disturbed{Host: host, Class: f.Class, VMs: f.StopNames()})
	}
	return out
}

// outsideOf is the finding, without rule and level.
func outsideOf(w *Window, now time.Time, p change.Change, disturbed []Disturbed) Finding {
	f := Finding{
		Path:  "name",
		Title: "The maintenance window is closed",
		Found: fmt.Sprintf("It is %s, and the provider's `maintenance_window` is open %s.", clockText(now.In(w.Zone)), w),
		Fix: fmt.Sprintf("Apply when it opens, on %s (in %s). To go ahead earlier, set `rules = { %s = \"warning\" }` in the provider.",
			clockText(w.Opens(now)), untilText(w.Opens(now).Sub(now)), maintenanceWindow),
	}
	switch {
	case p.Want.Config != nil || p.Prior.Config != nil:
		f.Path = "max_disruption"
	case p.Want.Assignment != nil || p.Prior.Assignment != nil:
		f.Path = "power"
	}
	var parts []string
	for _, d := range disturbed {
		if len(d.VMs) == 0 {
			parts = append(parts, fmt.Sprintf("what runs on %s (%s)", hostText(d.Host), d.Class))
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s on %s, which %s shut down", verb(len(d.VMs), "VM", "VMs"),
			joinAll(quoteAll(d.VMs)), hostText(d.Host), verb(len(d.VMs), "is", "are")))
	}
	f.Wanted = fmt.Sprintf("%s disturbs %s.", whatif.Label(p), strings.Join(parts, "; "))
	if len(disturbed) == 1 {
		f.Host = disturbed[0].Host
		if len(disturbed[0].VMs) == 1 {
			f.VM = disturbed[0].VMs[0]
		}
	}
	return f
}

// clockText writes a moment for people: "Tue 2025-11-18 22:00 CET".
func clockText(t time.Time) string { return t.Format("Mon 2006-01-02 15:04 MST") }

// untilText writes a duration for people, in minutes rounded up: "1 d 7 h 57 min".
func untilText(d time.Duration) string {
	minutes := int((d + time.Minute - 1) / time.Minute)
	var parts []string
	for _, unit := range []struct {
		name    string
		minutes int
	}{{"d", 24 * 60}, {"h", 60}, {"min", 1}} {
		if n := minutes / unit.minutes; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, unit.name))
		}
		minutes %= unit.minutes
	}
	return strings.Join(parts, " ")
}
