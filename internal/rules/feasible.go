package rules

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Feasible is the id of the rule that has what the other rules do not say.
const Feasible = "feasible-on-host"

// checkFeasible asks the planner whether each host can do what the plan wants of it.
func checkFeasible(r *run) {
	if r.before || r.othersBefore || r.applying {
		return
	}
	for _, host := range r.asked() {
		h := r.fleet.hosts[host]
		if !r.plan.Unchanged {
			if refused, open, _ := r.refusedBy(host, h, r.plan); refused != nil && (!open || !r.lenient) {
				r.reportRefused(host, refused)
			}
		}
		if r.again {
			continue
		}
		for _, f := range r.late(host, h) {
			f.Path, f.Other = pathOf(r.plan), ""
			r.report(f, key("overtaken", host, f.Found))
		}
	}
	if !r.again {
		for _, f := range r.drainOrders() {
			f.Path = pathOf(r.plan)
			r.report(f, key("drain order", f.Host, f.Found))
		}
	}
}

// late finds the plans of the run that come too late after the one at hand, and those after
// which that one does.
func (r *run) late(host string, h *gpu.Host) []Finding {
	var out []Finding
	about := []string{gpusOn(host)}
	if isLayout(r.plan) {
		about = append(about, vmsOn(host), sharesOn(host))
	}
	for e := range r.others(about...) {
		f, late := r.overtaken(host, h, e.plan, r.plan)
		if !late {
			f, late = r.overtaken(host, h, r.plan, e.plan)
		}
		if late {
			f.Other = labelOf(e.plan)
			out = append(out, f)
		}
	}
	return out
}

// isLayout tells whether a plan is of a config or a pool: what comes before or after it finds
// another host.
func isLayout(p change.Change) bool {
	return p.Want.Config != nil || p.Want.Pool != nil || p.Prior.Config != nil || p.Prior.Pool != nil
}

// overtaken tells whether a plan comes too late once another one is made, and nothing says
// which of the two comes first.
func (r *run) overtaken(host string, h *gpu.Host, ends, makes change.Change) (f Finding, late bool) {
	if ends.Unchanged || makes.Unchanged || !isLayout(ends) && !isLayout(makes) || ordered(ends, makes) || ordered(makes, ends) {
		return f, false
	}
	known := r.withClaims(host, h)
	if f, late = r.overtakenOn(known, host, ends, makes); !late {
		return f, false
	}
	// Terraform makes first what the other refers to, and before that what a depends_on names,
	// which is not known here: it comes too late only where it does so in either case.
	return r.overtakenOn(r.used(known, host, makes), host, ends, makes)
}

func (r *run) overtakenOn(known gpu.Host, host string, ends, makes change.Change) (f Finding, late bool) {
	if len(r.refusals(known, host, ends)) > 0 {
		return f, false
	}
	for _, after := range r.outcomes(known, host, withoutDrain(makes), ends) {
		if refused := r.refusals(after, host, ends); len(refused) == 0 {
			f, late = r.leavesOver(host, known, after, ends, makes)
		} else if refused[0].Rule != change.Capacity {
			f, late = comesTooLate(host, ends, makes, refused[0]), true
		}
		if late {
			return f, true
		}
	}
	return f, false
}

// outcomes are what a plan may make of a host, if the host can do it: a VM that starts takes a
// partition of whichever GPU the platform chooses, which may be one that another plan is about.
func (r *run) outcomes(known gpu.Host, host string, p, about change.Change) []gpu.Host {
	after, ok := r.after(known, host, p)
	if !ok {
		return nil
	}
	out := []gpu.Host{after}
	a := cmp.Or(p.Want.Assignment, p.Prior.Assignment)
	if a == nil {
		return out
	}
	now, _ := known.VM(cmp.Or(a.VMID, a.VM))
	then, ok := after.VM(cmp.Or(a.VMID, a.VM))
	if !ok || !then.Runs() || goesOn(now, then) {
		return out
	}
	var gpus []string
	for _, c := range []*gpu.PartitionConfig{about.Prior.Config, about.Want.Config} {
		if c != nil {
			gpus = append(gpus, c.GPUs[host]...)
		}
	}
	slices.Sort(gpus)
	for _, id := range slices.Compact(gpus) {
		if seated, ok := change.SeatedOn(after, then.ID, id); ok {
			out = append(out, seated)
		}
	}
	return out
}

// comesTooLate says that a host refuses a plan once another one is made.
func comesTooLate(host string, ends, makes change.Change, refused *change.Refusal) Finding {
	f := Refused(host, ends, refused)
	f.Title, f.Wanted, f.Fix = "The change may come too late", eitherFirst, "Make one of the two in an apply of its own first."
	if ends.Want.Empty() {
		f.Title, f.Fix = "The destroy may come too late", "Destroy it first, in an apply of its own, or keep what it made: `on_destroy = \"keep\"`."
	} else if a := makes.Want.Assignment; a != nil && a.Partition != nil && ends.Want.Config != nil {
		f.Fix = "Write `partition = { config = ... }` with the id of the config, so that the config comes first."
	}
	f.Found = fmt.Sprintf("If %s is %s before %s is %s, the host refuses the latter. %s", labelOf(makes), done(makes), labelOf(ends), done(ends), f.Found)
	return f
}

// used is a host once what a plan refers to is made there.
func (r *run) used(known gpu.Host, host string, by change.Change) gpu.Host {
	for e := range r.others(gpusOn(host)) {
		if e.plan.Unchanged || !by.Want.RefersTo(e.plan.Want) {
			continue
		}
		if after, ok := r.after(known, host, e.plan); ok {
			known = after
		}
	}
	return known
}

const eitherFirst = "Nothing says which of the two comes first."

// done is what becomes of a resource by a plan.
func done(p change.Change) string {
	switch {
	case p.Want.Empty():
		return "destroyed"
	case p.Prior.Empty():
		return "created"
	}
	return "changed"
}

// leavesOver finds that how a GPU is shared afterwards hangs on which of two plans is made first: what
// a config leaves and keeps stays under what another one makes of the GPU, and an instance that a
// share no longer uses is not kept for it.
func (r *run) leavesOver(host string, known, after gpu.Host, ends, makes change.Change) (f Finding, differs bool) {
	if ends.Prior.Config == nil && ends.Prior.Share == nil || makes.Want.Config == nil {
		return f, false
	}
	last, _ := r.after(after, host, ends)
	first, _ := r.after(known, host, ends)
	if first, ok := r.after(first, host, makes); ok {
		for i := range last.GPUs {
			a, b := &last.GPUs[i], &first.GPUs[i]
			divided := a.MIGEnabled() && b.MIGEnabled() // its modes go with that
			f = Finding{Rule: Feasible, Level: Error, Host: host, GPU: a.ID, Wanted: eitherFirst}
			switch {
			case divided && a.MIG.State().String() != b.MIG.State().String():
				f.Title = "The order of two changes decides the layout"
				f.Found = fmt.Sprintf("If %s is %s first, %s gets other GPU instances than if %s is %s first.", labelOf(ends), done(ends), gpuText(a), labelOf(makes), done(makes))
				f.Fix = "Make one of the two in an apply of its own first, or declare `mig.placements`."
				return f, true
			case !divided && (a.ComputeMode != b.ComputeMode || a.TimeSlice != b.TimeSlice), !slices.Equal(servedBy(&last, a), servedBy(&first, b)):
				does := "covers it"
				if !contains(makes.Want.Config.GPUs[host], a.ID) {
					does = "changes its MPS daemon"
				}
				f.Title = "The order of two configs decides the layout"
				f.Found = fmt.Sprintf("%s releases %s and keeps its sharing mode, and %s %s in the same run.", labelOf(ends), gpuText(a), labelOf(makes), does)
				f.Fix = "Release it in an apply of its own first, or with `on_destroy = \"restore\"`, which restores the sharing mode from before."
				return f, true
			}
		}
	}
	return f, false
}

// servedBy are the MPS daemons of a GPU, by name.
func servedBy(h *gpu.Host, g *gpu.GPU) []string {
	var out []string
	if h.MPS != nil {
		for _, d := range h.MPS.Daemons {
			if placement.GPUsOf(d.Devices)[g.ID] {
				out = append(out, d.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// handsOver tells whether two plans are of one config or pool, which goes from one resource to
// another as it is.
func handsOver(a, b change.Change) bool {
	same := func(v, w gpu.Want) bool {
		return v.Config != nil && w.Config != nil && gpu.SameID(v.Config.ID, w.Config.ID) || v.Pool != nil && w.Pool != nil && gpu.SameID(v.Pool.ID, w.Pool.ID)
	}
	return same(a.Prior, b.Want) || same(a.Want, b.Prior)
}

// ordered tells whether two plans have an order: Terraform's, since the one refers, or has
// referred, to the other, or that of a handover.
func ordered(user, used change.Change) bool {
	return handsOver(user, used) || user.Want.RefersTo(used.Want) || user.Want.RefersTo(used.Prior) || used.Want.Empty() && user.Prior.RefersTo(used.Prior)
}

// Infeasible is what hosts would refuse of a plan, unless another plan of the run, or one
// that is still to come, makes way for it.
func Infeasible(w World, p change.Change) []Finding {
	r, done := begin(w, p)
	defer done()
	var out []Finding
	for _, host := range r.hostsOf(p) {
		if refused, _, _ := r.refusedBy(host, r.fleet.hosts[host], p); refused != nil {
			out = append(out, Refused(host, p, refused))
		}
	}
	return out
}

func (r *run) reportRefused(host string, refused *change.Refusal) {
	f := Refused(host, r.plan, refused)
	f.Path = pathOf(r.plan)
	if Repairs(r.plan) {
		f.Level = Warning // what is to be put right stood before
	}
	r.report(f, key(Feasible, host))
	r.found[len(r.found)-1].same = refused.Rule // one that is relaxed
}

// Repairs tells whether a plan wants nothing else than before: it puts right what differs.
func Repairs(p change.Change) bool {
	return reflect.DeepEqual(declared(p.Want), declared(p.Prior))
}

// declared is a want without where its VM happens to be, and what it is called there.
func declared(w gpu.Want) gpu.Want {
	if w.Assignment != nil {
		a := *w.Assignment
		a.Host, a.VMName = "", ""
		w.Assignment = &a
	}
	return w
}

// Refused says why a host would refuse a plan.
func Refused(host string, p change.Change, refused *change.Refusal) Finding {
	if refused.Code == change.Unannounced {
		return NotAnnounced(host, refused.Found)
	}
	where := hostText(host)
	if !strings.HasPrefix(refused.Object, "host ") { // else it is about the host itself
		where = cmp.Or(refused.Object, "the object") + " on " + where
	}
	f := Finding{
		Rule:   Feasible,
		Level:  Error,
		Title:  "The host would refuse the change",
		Host:   host,
		Found:  fmt.Sprintf("%s: %s.", capital(where), refused.Found),
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
// state that the run has not planned yet, and may destroy, or put right. The host is as it is
// then.
func (r *run) refusedBy(host string, h *gpu.Host, p change.Change) (refused *change.Refusal, open bool, known gpu.Host) {
	known = r.withClaims(host, h)
	if p.Want.Empty() && p.Prior.Assignment != nil && len(r.othersForVM(p.Prior.Assignment)) > 0 {
		return nil, false, known // another resource of the run has taken it over by then
	}
	var all change.Refusals
	var others []change.Change
	var ends *change.Change
	switch parts := halves(p); {
	case len(parts) > 1:
		p = parts[1]
		after, ok := r.after(known, host, parts[0])
		if known = after; !ok {
			ends = &parts[0]
			others = append(others, parts[0]) // others make way for it first
		}
		all = r.refusals(known, host, p)
	case p.Token == r.plan.Token:
		all = r.asItIs(host, h).Refused
	default:
		all = r.refusals(known, host, p)
	}
	if len(all) == 0 || all[0].Code == change.NotOwner && !p.Want.Empty() {
		return nil, false, known // whose something is, other rules say
	}
	refused = all[0]
	add := func(o change.Change) {
		if o.Token == p.Token || o.Unchanged || r.failsBeside(o, host) {
			return
		}
		for _, part := range halves(o) {
			switch {
			case !endsLayout(p):
			case part.Want.Empty():
				part.Prior = permitted(part.Prior) // where it may not go, it says so itself
			case o.Prior.RefersTo(p.Prior):
				continue // which Terraform makes after the destroy
			}
			others = append(others, part)
		}
	}
	for _, e := range r.book.about(gpusOn(host), vmsOn(host), sharesOn(host)) {
		if e.token != r.plan.Token {
			add(e.plan)
		}
	}
	add(r.plan)
	after, possible := r.madeWay(known, host, others, p)
	if possible {
		return nil, false, after
	}
	same := func(x *change.Refusal) bool { return x.Object == refused.Object && x.Found == refused.Found }
	if left := r.refusals(after, host, p); len(left) > 0 && !slices.ContainsFunc(left, same) {
		refused = left[0] // the others of the run make way for the first
	}
	if ends != nil {
		if all := r.refusals(after, host, *ends); len(all) > 0 {
			refused = all[0] // what is replaced does not go, and so stands in the way
		}
	}
	var unplanned []change.Change
	for _, c := range known.Claims {
		if (r.owner != "" || endsLayout(p)) && c.Owner == r.owner && !r.superseded(&c) && c.Token != p.Token && !p.Want.RefersTo(c.Want) {
			unplanned = append(unplanned, change.Change{Token: c.Token, Prior: letsGo(c.Want)})
			if c.Want.Config != nil {
				unplanned = append(unplanned, change.Change{Token: c.Token, Prior: c.Want, Want: c.Want})
			}
		}
	}
	known, open = r.madeWay(after, host, unplanned, p)
	return refused, open, known
}

// permitted is what an object has whose VM may be shut down now.
func permitted(w gpu.Want) gpu.Want {
	if w.Assignment != nil {
		a := *w.Assignment
		a.Power.AllowShutdown, a.Power.NextOff = true, false
		w.Assignment = &a
	}
	return w
}

// letsGo is what an object has that may go, or be changed, in any way that nobody knows yet: its
// VM may be left off.
func letsGo(w gpu.Want) gpu.Want {
	if w = permitted(w); w.Assignment != nil {
		w.Assignment.Power.StayOff = true
	}
	return w
}

// failsBeside tells whether some other host will not let what a plan puts right be put right,
// which is no error: then no host sees it.
func (r *run) failsBeside(p change.Change, host string) bool {
	if r.alone || !Repairs(p) {
		return false
	}
	alone := *r
	alone.alone = true
	return slices.ContainsFunc(r.hostsOf(p), func(other string) bool {
		if other == host {
			return false
		}
		refused, open, _ := alone.refusedBy(other, r.fleet.hosts[other], p)
		return refused != nil && !open
	})
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
	after, err := change.After(known, host, r.sent(p, host))
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
	case a.Share != nil && b.Share != nil && !gpu.SameID(a.Share.Pool, b.Share.Pool):
		two = false // nothing has the pool go before the new one is made
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
