package rules

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// waits tells whether what a rule finds may hang on what resources of this state let go of by a
// plan that is still to come.
func (r *run) waits(rule string) bool {
	return rule == change.Capacity || rule == Feasible || rule == failoverHeadroom || whatif.EndsLayout(r.Plan)
}

// decided are the keys of what is wrong with a plan whatever the resources of this state do that
// the run has not planned yet. Nil where all is decided, as for what is done once: that finds
// the host as it is.
func (r *run) decided() map[string]bool {
	if !r.waits(r.rule.ID) || r.Mode.OnHost || r.Plan.Act != "" || r.Owner == "" && !whatif.EndsLayout(r.Plan) ||
		r.Plan.Token == "" {
		return nil
	}
	least := *r
	least.found, least.Mode = nil, r.Mode.IfOthersYield()
	r.rule.check(&least)
	return least.keysFound()
}

// undecided tells whether a violation hangs on plans that are still to come. Of room that is only
// warned of nothing does.
func (r *run) undecided(v violation, decided map[string]bool) bool {
	return decided != nil && (v.Level != Warning || r.rule.ID == Feasible) && !containsAll(decided, v.keys)
}

// Decided finds what is wrong with plans that came before, and hung on what resources of this
// state do of which the last one is in the book by now. Of a plan with which that one has been found
// in conflict nothing is said again.
func Decided(w World, last change.Change, levels Levels, said []Finding) []Finding {
	if w.Others == nil {
		return nil
	}
	d := decision{world: w, last: last, levels: levels, said: said, erred: map[string]bool{}}
	d.inTheWay = !last.Want.Empty() || whatif.KeepsMore(w.World, last)
	waiting := w.Others.Undecided()
	for _, u := range waiting {
		if u.Rule != Feasible {
			d.decide(u)
		}
	}
	// What hosts would refuse comes last, since some other rule may say why.
	for _, u := range waiting {
		switch {
		case u.Rule != Feasible:
		case !d.erred[u.Plan.Token]:
			d.decide(u)
		default:
			w.Others.Decide(u.Rule, u.Plan)
		}
	}
	return d.found
}

// decision is what one more plan decides of those before it.
type decision struct {
	world    World
	last     change.Change
	levels   Levels
	said     []Finding       // of the last plan
	inTheWay bool            // the last plan may be in the way of the end of a config or a pool still
	erred    map[string]bool // plans with an error, by token
	found    []Finding
}

func (d *decision) decide(u whatif.Undecided) {
	p, book := u.Plan, d.world.Others
	if p.Token == d.last.Token || whatif.EndsLayout(p) && !d.inTheWay || book.Superseded(p) {
		return
	}
	if slices.ContainsFunc(d.said, func(f Finding) bool { return f.Level == Error && f.Other == whatif.Label(p) }) {
		book.Decide(u.Rule, p)
		return
	}
	r, done := begin(d.world, p)
	defer done()
	if _, ok := r.Locate(p.Want.Assignment); p.Want.Assignment != nil && !ok || d.levels[u.Rule] == Off {
		return
	}
	r.rule = &registry[slices.IndexFunc(registry, func(rule Rule) bool { return rule.ID == u.Rule })]
	r.Only = append([]string{}, r.HostsOf(d.last)...)
	r.rule.check(r)
	if len(r.found) > 0 {
		d.tell(r)
	}
}

// tell adds what has been found of a plan, and hangs on nothing any more.
func (d *decision) tell(r *run) {
	stood, keys := r.keysBefore(), r.decided()
	for _, v := range r.found {
		if v.Level == Warning && r.rule.ID != Feasible || r.undecided(v, keys) {
			continue
		}
		d.world.Others.Decide(r.rule.ID, r.Plan)
		if f, ok := r.weighed(v, d.levels, stood); ok {
			d.erred[r.Plan.Token] = d.erred[r.Plan.Token] || f.Level == Error
			d.found = append(d.found, d.of(r.Plan, f))
		}
	}
}

// of is a finding of a plan before, as the last one tells it.
func (d *decision) of(p change.Change, f Finding) Finding {
	f.Path = pathOf(d.last)
	if f.Contended != "" {
		return f // it is about no resource
	}
	f.Other, f.Of = whatif.Label(p), whatif.Label(p)
	if whatif.MadeAnew(p) {
		f.Title = "What is in use is replaced"
		f.Wanted += " The apply will refuse to replace it unless what uses it is replaced in the same run."
		f.Fix = "Replace neither, or both, with `-replace` of each: then what uses it goes first."
	}
	if whatif.EndsLayout(p) && !d.last.Want.Empty() {
		f.Of = "" // it says "this resource" of the one that tells it
		f.Title = "What it uses is destroyed in the same run"
		f.Found = whatif.Label(p) + " is destroyed, but this resource stays. " + f.Found
		f.Fix = "Destroy both, or keep both. Otherwise: " + f.Fix
	}
	return f
}
