package fleet_test

import (
	stdcmp "cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// changed is a change of a resource.
type changed struct {
	r *resource
	p change.Change
}

// together makes several changes in one run: all are planned, each with those before it in the
// ledger, and then applied in one of the orders that Terraform may choose. What was announced
// for them is what the hosts do. It tells whether the plan allows it.
func (w *world) together(all ...changed) bool {
	var changes []change.Change
	for i, c := range all {
		w.note("%s%s: %s -> %s", map[bool]string{true: "  and "}[i > 0], c.r.label, wantText(c.p.Prior), wantText(c.p.Want))
		changes = append(changes, c.p)
	}
	says := w.plan(changes...)
	if len(says.errors) > 0 {
		w.counts["runs refused"]++
		w.note("  refused: %s: %s", says.errors[0].Rule, says.errors[0].Found)
		if len(all) <= 3 {
			w.refusedRightly(all, says)
		}
		return false
	}
	all = slices.DeleteFunc(all, func(c changed) bool {
		_, unable := says.unable[c.p.Subject]
		return unable // its apply fails, as the plan says
	})
	order := w.inOrder(all)
	if len(all) <= 3 {
		for _, other := range w.orders(nil, all) {
			if !w.linux || !slices.EqualFunc(other, order, func(a, b changed) bool { return a.r == b.r }) {
				w.elsewhere(other, func(o *world, other []changed) {
					// Where the host may choose, it may do so in any way; but of what starts before the changes
					// the plan takes one seat, and beside VMs that are pinned it counts with the emptier GPU.
					if o.seen.seats = pick(o, randomGPUs...); says.owing() || o.pins(changes) {
						o.seen.seats = ""
					}
					o.carryOut(says, other)
				})
			}
		}
	}
	w.carryOut(says, order)
	return true
}

// carryOut makes changes that were planned together in an order, and compares.
func (w *world) carryOut(says announced, all []changed) {
	var changes []change.Change
	w.seen.begin()
	run := w.run(nil)
	again := false // in the same run
	for left := all; len(left) > 0; {
		var later []changed
		waits := true
		for _, c := range left {
			switch err := w.applied(run, c.p, says, again); {
			case err == nil:
				w.note("  %s is made", c.r.label)
				w.made(c.r, c.p)
			case forRoom(err):
				failure, applied := errors.AsType[*fleet.Failure](err)
				if applied && !failure.Waited {
					w.fatal("%s has not waited: %v", c.r.label, err)
				}
				waits = waits && applied // else the plan right before has refused it
				w.note("  %s waits: %v", c.r.label, err)
				later = append(later, c)
			case w.tolerates(err, c.p, says):
				return
			default:
				w.fatal("the plan of all is clean, and the hosts refuse %s: %v", c.r.label, err)
			}
		}
		if len(later) == 0 {
			break
		}
		if len(later) == len(left) {
			w.fatal("each waits for the others: %v", later)
		}
		if left, again = later, w.chance(50) && waits; again { // several operations at a time: it waits until the others are made
			w.counts["runs that wait"]++
			continue
		}
		// One operation at a time nothing frees the room meanwhile: the next run completes it.
		w.counts["runs in two"]++
		changes = nil
		for _, c := range later {
			changes = append(changes, c.p)
		}
		next := w.plan(changes...)
		if len(next.errors) > 0 {
			w.fatal("the next run does not complete it: %v", next.errors)
		}
		says.approved, run, left = next.approved, w.run(nil), w.inOrder(later)
	}
	w.counts["runs applied"]++
	changes = nil
	for _, c := range all {
		changes = append(changes, c.p)
	}
	w.counts["applied"] += len(all)
	w.compareRun(says, w.shown(), changes...)
}

// pins tells whether an assignment, of the state or of the run, pins its VM to a GPU.
func (w *world) pins(changes []change.Change) bool {
	pinned := func(of gpu.Want) bool {
		return of.Assignment != nil && of.Assignment.Partition != nil && of.Assignment.Partition.PinnedGPU != ""
	}
	return slices.ContainsFunc(changes, func(p change.Change) bool { return pinned(p.Want) }) ||
		slices.ContainsFunc(w.resources, func(r *resource) bool { return pinned(r.has) })
}

// owing tells whether a VM starts before anything is changed.
func (a announced) owing() bool {
	for _, h := range a.saw {
		if len(h.Unfinished)+len(h.PendingStarts) > 0 {
			return true
		}
	}
	return false
}

// inOrder puts changes into an order that their references allow.
func (w *world) inOrder(of []changed) []changed {
	return shuffled(w, of, func(a, b changed) bool { return a.r != b.r && comesFirst(a.p, b.p) })
}

// shuffled puts things into some order in which those are first that come first.
func shuffled[T any](w *world, of []T, first func(a, b T) bool) []T {
	of = slices.Clone(of)
	w.rng.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	var out []T
	for len(of) > 0 {
		i := max(0, slices.IndexFunc(of, func(c T) bool {
			return !slices.ContainsFunc(of, func(o T) bool { return first(o, c) })
		}))
		out = append(out, of[i])
		of = slices.Delete(of, i, i+1)
	}
	return out
}

// comesFirst tells whether Terraform makes a change before another one. What is destroyed goes
// after what referred to it and goes too, and before what is changed to refer to it no more.
func comesFirst(a, b change.Change) bool {
	switch gone, goes := a.Want.Empty(), b.Want.Empty(); {
	case gone && goes:
		return refers(a.Prior, b)
	case gone:
		return refers(b.Prior, a)
	case goes:
		return false
	}
	return refers(b.Want, a)
}

// refers tells whether an object names another one.
func refers(w gpu.Want, to change.Change) bool {
	id := ""
	for _, of := range []gpu.Want{to.Want, to.Prior} {
		switch {
		case of.Config != nil:
			id = of.Config.ID
		case of.Pool != nil:
			id = of.Pool.ID
		}
	}
	switch {
	case id == "":
	case w.Assignment != nil && w.Assignment.Pool != nil:
		return w.Assignment.Pool.ID == id
	case w.Assignment != nil && w.Assignment.Partition != nil:
		return slices.Contains(w.Assignment.Partition.ConfigIDs(), id)
	case w.Share != nil:
		return w.Share.Pool == id || w.Share.Config == id
	}
	return false
}

// applied makes a change as Terraform does: what is not destroyed is planned once more right
// before, and not again while it waits.
func (w *world) applied(f *fleet.Fleet, p change.Change, says announced, waited bool) error {
	if !p.Want.Empty() && !waited {
		findings, _ := f.Record(f.Ledger.Instance(""), f.Snapshot(w.t.Context(), f.HostNames()), p)
		for _, x := range findings {
			if x.Level == rules.Error {
				return &agent.Error{Code: agent.RuleViolation, Host: x.Host, Findings: []rules.Finding{x}}
			}
		}
	}
	p.Approved = says.approved[p.Token]
	return w.applyLinux(f, fleet.Request{Change: p, MaxUnavailable: 2})
}

// forRoom tells whether a change was refused untouched for what another one may take away.
func forRoom(err error) bool {
	if failure, ok := errors.AsType[*fleet.Failure](err); ok && failure.Begun() {
		return false
	}
	ae, ok := errors.AsType[*agent.Error](err)
	if !ok || ae.Code != agent.RuleViolation {
		return ok && ae.Code == agent.Refused && ae.Cause != nil && (ae.Cause.Code == backend.Insufficient || ae.Cause.Code == backend.InUse)
	}
	return !slices.ContainsFunc(ae.Findings, func(x rules.Finding) bool { return x.Level == rules.Error && !rules.Passes(x.Rule) })
}

// elsewhere has a copy of a world, with agents of its own, make some changes.
func (w *world) elsewhere(of []changed, do func(*world, []changed)) {
	o := &world{
		t: w.t, seed: w.seed, linux: w.linux, hours: w.hours, history: append(slices.Clone(w.history), "  in another order:"),
		rng: rand.New(rand.NewPCG(w.seed, uint64(len(w.history)))), endpoints: map[string]fleet.Endpoint{},
		seen: &witness{}, counts: map[string]int{},
	}
	if w.cluster != nil {
		is := *w.cluster
		is.removed = maps.Clone(is.removed)
		o.cluster = &is
	}
	var err error
	if o.sim, err = w.sim.Copy(w.t.Context()); err != nil {
		w.fatal("the copy of the fleet: %v", err)
	}
	copies := map[*resource]*resource{}
	for _, r := range w.resources {
		is := *r
		copies[r], o.resources = &is, append(o.resources, &is)
	}
	for _, r := range w.drifting {
		o.drifting = append(o.drifting, copies[r])
	}
	of = slices.Clone(of)
	for i := range of {
		is := *of[i].r
		of[i].r = stdcmp.Or(copies[of[i].r], &is)
	}
	defer func() {
		w.failed = w.failed || o.failed
		o.end()
	}()
	o.seen.begin()
	o.seen.hides = w.seen.hides
	o.serve()
	do(o, of)
}

// refusedRightly makes the changes of a run that is refused one after another, each as in a run of
// its own that nobody planned, in every order that Terraform may choose. Where only the steps can
// tell, some order has to fail, or to end otherwise than another one: else the refusal is too wide.
//
// Which GPU a VM's partition is of is the host's to choose.
func (w *world) refusedRightly(all []changed, says announced) {
	levels := rules.Levels{"pinned-gpu-on-clustered-vm": rules.Off}
	for _, x := range says.errors {
		if _, ofRun := ofTheRun[x.Rule+": "+x.Title]; ofRun || slices.Contains(atStart, x.Title) {
			return
		}
		levels[x.Rule] = rules.Off
	}
	w.counts["runs refused by steps"]++
	var first *ending
	differ := false
	for _, order := range w.orders(nil, all) {
		for _, seats := range append([]string{""}, randomGPUs...) {
			w.elsewhere(order, func(o *world, order []changed) {
				o.seen.seats = seats
				for _, c := range order {
					p := c.p
					p.Adopt, p.Approved = p.Token == "", says.approved[p.Token]
					if err := o.applyLinux(o.run(levels), fleet.Request{Change: p, MaxUnavailable: 2}); err != nil {
						differ = true
						return
					}
				}
				is := o.ending()
				differ = differ || first != nil && !cmp.Equal(*first, is, sameLayout...)
				first = &is
			})
			if differ {
				return
			}
			if w.linux {
				break
			}
		}
	}
	x := says.errors[0]
	w.fatal("the plan refuses what the hosts do in every order: %s: %s %s", x.Rule, x.Title, x.Found)
}

// ending is what some changes have left and done.
type ending struct {
	Layouts        map[string]cardLayout
	Daemons        map[string][]string // which a plan does not announce, and a daemon that is kept goes on
	Counts         map[string]int
	Stopped, Moved map[string]bool
}

func (w *world) ending() ending {
	e := ending{
		Layouts: map[string]cardLayout{}, Daemons: map[string][]string{}, Counts: map[string]int{}, Stopped: w.seen.stopped, Moved: w.seen.moved,
	}
	for name, h := range w.hosts() {
		for i := range h.GPUs {
			g := &h.GPUs[i]
			l := layoutOf(h, g)
			e.Layouts[name+" "+g.ID], e.Daemons[name+" "+g.ID] = l, l.Daemons
			if g.Partitionable != nil {
				e.Counts[name+" "+g.ID] = g.Partitionable.Count
			}
		}
	}
	return e
}

// orders are those in which Terraform may make changes.
func (w *world) orders(made, left []changed) [][]changed {
	if len(left) == 0 {
		return [][]changed{made}
	}
	var out [][]changed
	for i, c := range left {
		if !slices.ContainsFunc(left, func(o changed) bool { return o.r != c.r && comesFirst(o.p, c.p) }) {
			out = append(out, w.orders(append(slices.Clone(made), c), slices.Delete(slices.Clone(left), i, i+1))...)
		}
	}
	return out
}
