package rules

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Feasible is the id of the rule that has what the other rules do not say.
const Feasible = "feasible-on-host"

// checkFeasible asks the planner whether each host can do what the plan wants of it, and
// what the plans want that came before this one and hung on it.
func checkFeasible(r *run) {
	if r.before || r.othersBefore || r.applying {
		return
	}
	for _, host := range r.hostsOf(r.plan) {
		h, ok := r.host(host)
		if !ok {
			continue
		}
		if !r.plan.Unchanged {
			r.checkFeasibleOn(host, h, r.plan)
		}
		for e := range r.others(gpusOn(host), vmsOn(host), sharesOn(host)) {
			if !r.book.isOpen(e.token, host) {
				continue
			}
			r.checkFeasibleOn(host, h, e.plan)
		}
		for e := range r.others(gpusOn(host)) {
			if f, late := r.overtaken(host, h, e.plan, r.plan); late {
				f.Path = pathOf(r.plan)
				r.report(f, key("overtaken", host, labelOf(e.plan)))
			}
		}
	}
}

// Overtaken finds plans of the run after which a host would refuse a destroy, though it lets it
// be made before them.
func Overtaken(w World, p change.Change, host string) []Finding {
	r, done := begin(w, p)
	defer done()
	var out []Finding
	if h, ok := r.host(host); ok {
		for e := range r.others(gpusOn(host), vmsOn(host)) {
			if f, late := r.overtaken(host, h, p, e.plan); late {
				f.Other = labelOf(e.plan)
				out = append(out, f)
			}
		}
	}
	return out
}

// overtaken tells whether a destroy comes too late once another plan is made, and nothing says
// which of the two comes first.
func (r *run) overtaken(host string, h *gpu.Host, ends, makes change.Change) (f Finding, late bool) {
	if !ends.Want.Empty() || ends.Prior.Config == nil && ends.Prior.Pool == nil || makes.Want.Assignment == nil || makes.Unchanged || refersTo(makes.Want, ends.Prior) {
		return f, false
	}
	known := r.withClaims(host, h)
	after, ok := r.after(known, host, makes)
	if !ok || len(r.refusals(known, host, ends)) > 0 {
		return f, false
	}
	refused := r.refusals(after, host, ends)
	if len(refused) == 0 {
		return f, false
	}
	f = Refused(host, ends, refused[0])
	f.Title = "The destroy may come too late"
	f.Found = fmt.Sprintf("If %s is made before %s is destroyed, the destroy is refused. %s", labelOf(makes), labelOf(ends), f.Found)
	f.Wanted = "Nothing says which of the two comes first."
	f.Fix = "Destroy it first, in an apply of its own, or keep what it made: `on_destroy = \"keep\"`."
	return f, true
}

func (r *run) checkFeasibleOn(host string, h *gpu.Host, p change.Change) {
	refused, open := r.refusedBy(host, h, p)
	r.book.setOpen(p.Token, host, open)
	if refused != nil && !open {
		r.reportRefused(host, p, refused)
	}
}

// Infeasible is what hosts would refuse of a plan, unless another plan of the run, or one
// that is still to come, makes way for it.
func Infeasible(w World, p change.Change) []Finding {
	r, done := begin(w, p)
	defer done()
	var out []Finding
	for _, host := range r.hostsOf(p) {
		if h, ok := r.host(host); ok {
			if refused, _ := r.refusedBy(host, h, p); refused != nil {
				out = append(out, Refused(host, p, refused))
			}
		}
	}
	return out
}

func (r *run) reportRefused(host string, p change.Change, refused *change.Refusal) {
	f := Refused(host, p, refused)
	f.Path = pathOf(r.plan)
	if reflect.DeepEqual(p.Want, p.Prior) {
		f.Level = Warning // what is to be put right stood before
	}
	if label := labelOf(p); label != r.label() {
		f.Other = label
	}
	r.report(f, key(Feasible, host, labelOf(p)))
}

// Refused says why a host would refuse a plan.
func Refused(host string, p change.Change, refused *change.Refusal) Finding {
	if refused.Code == change.Unannounced {
		return NotAnnounced(host, refused.Found)
	}
	f := Finding{
		Rule:   Feasible,
		Level:  Error,
		Title:  "The host would refuse the change",
		Host:   host,
		Found:  fmt.Sprintf("%s on %s: %s.", capital(cmp.Or(refused.Object, "the object")), hostText(host), refused.Found),
		Wanted: fmt.Sprintf("%s needs it to %s.", labelOf(p), cmp.Or(refused.Op, "be changed")),
		Fix:    "Remove the cause on the host, or change what is wanted.",
	}
	if refused.Fix != "" {
		f.Fix = capital(refused.Fix) + "."
	}
	return f
}

// refusedBy is why a host would refuse a plan of the run, whichever of the others are made
// there before; nil when it would not. It is open while that hangs on resources of this
// state that the run has not planned yet, and may destroy.
func (r *run) refusedBy(host string, h *gpu.Host, p change.Change) (refused *change.Refusal, open bool) {
	if p.Want.Empty() && p.Prior.Assignment != nil && len(r.othersForVM(p.Prior.Assignment)) > 0 {
		return nil, false // another resource of the run has taken it over by then
	}
	known := r.withClaims(host, h)
	var all change.Refusals
	var others []change.Change
	switch parts := halves(p); {
	case len(parts) > 1:
		p = parts[1]
		after, ok := r.after(known, host, parts[0])
		if known = after; !ok {
			others = append(others, parts[0]) // others make way for it first
		}
		all = r.refusals(known, host, p)
	case p.Token == r.plan.Token:
		all = r.forecast(host, h).Refused
	default:
		all = r.refusals(known, host, p)
	}
	if len(all) == 0 || all[0].Code == change.NotOwner {
		return nil, false // whose something is, other rules say
	}
	refused = all[0]
	for _, e := range r.book.about(gpusOn(host), vmsOn(host), sharesOn(host)) {
		if e.token != p.Token && e.token != r.plan.Token && !e.plan.Unchanged {
			others = append(others, halves(e.plan)...)
		}
	}
	if r.plan.Token != p.Token && !r.plan.Unchanged {
		others = append(others, halves(r.plan)...)
	}
	after, possible := r.madeWay(known, host, others, p)
	if possible {
		return nil, false
	}
	var unplanned []change.Change
	for _, c := range known.Claims {
		if r.owner != "" && c.Owner == r.owner && !r.superseded(&c) && c.Token != p.Token && !refersTo(p.Want, c.Want) {
			unplanned = append(unplanned, change.Change{Token: c.Token, Prior: c.Want})
		}
	}
	_, open = r.madeWay(after, host, unplanned, p)
	return refused, open
}

// madeWay makes those changes of a host that can be made, in whatever order, until a plan
// can be. What ends goes first: what is made again in the same run may be in the way.
func (r *run) madeWay(known gpu.Host, host string, others []change.Change, p change.Change) (gpu.Host, bool) {
	var ends, makes []change.Change
	for _, o := range others {
		if o.Want.Empty() {
			ends = append(ends, o)
		} else {
			makes = append(makes, o)
		}
	}
	known, possible := r.makeWay(known, host, ends, p)
	if possible {
		return known, true
	}
	return r.makeWay(known, host, makes, p)
}

func (r *run) makeWay(known gpu.Host, host string, others []change.Change, p change.Change) (gpu.Host, bool) {
	for made := true; made; {
		made = false
		for i := 0; i < len(others); {
			after, ok := r.after(known, host, others[i])
			if !ok {
				i++
				continue
			}
			known, made, others = after, true, slices.Delete(others, i, i+1)
			if len(r.refusals(known, host, p)) == 0 {
				return known, true
			}
		}
	}
	return known, false
}

// after is a host after a change, if the host can do it.
func (r *run) after(known gpu.Host, host string, p change.Change) (gpu.Host, bool) {
	after, err := change.After(known, host, r.sent(p))
	if err != nil {
		return known, false
	}
	return after, true
}

// halves are a plan, or, of a replacement, the end of one object and the making of another.
func halves(p change.Change) []change.Change {
	a, b := p.Prior, p.Want
	two := p.Replaces
	switch {
	case a.Assignment != nil && b.Assignment != nil:
		two = !gpu.SameID(a.Assignment.VMID, b.Assignment.VMID)
	case a.Config != nil && b.Config != nil:
		two = a.Config.Kind != b.Config.Kind || !gpu.SameID(a.Config.ID, b.Config.ID)
	case a.Pool != nil && b.Pool != nil:
		two = !gpu.SameID(a.Pool.Name, b.Pool.Name)
	}
	if !two {
		return []change.Change{p}
	}
	ends, makes := p, p
	ends.Want, makes.Prior = gpu.Want{}, gpu.Want{}
	return []change.Change{ends, makes}
}

// pathOf is the attribute that a finding about a plan as a whole is about.
func pathOf(p change.Change) string {
	w := p.Want
	if w.Empty() {
		w = p.Prior
	}
	switch {
	case w.Assignment != nil:
		return "vm"
	case w.Pool != nil:
		return "members"
	}
	return "name"
}
