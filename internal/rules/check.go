package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// run is one evaluation of one rule for one plan.
type run struct {
	whatif.Run
	world World
	rule  *Rule
	found []violation
	// place is what is known of the place of the plan's share, for all rules of one check.
	place *shareMemo
}

// violation is a finding with what identifies it, one key per object that is wrong.
// It stood before when every key did, so that a longer list counts as worse.
type violation struct {
	Finding
	keys []string
	same string // the rule that would warn of the same
	// stands is true for a warning that every plan repeats, of a rule that does not otherwise.
	stands bool
}

// begin makes an evaluation of a plan. What it looks at stays as it is until done.
func begin(w World, p change.Change) (start *run, done func()) {
	r, done := whatif.Begin(w.World, p)
	return &run{Run: *r, world: w, place: &shareMemo{}}, done
}

func (r *run) check(levels Levels, scopes []Scope) []Finding {
	p, handed := r.Plan, r.HandedOver()
	var out []Finding
	for i := range registry {
		rule := &registry[i]
		if !rule.asked(levels, scopes) || handed && rule.ID != Feasible || !rule.concerns(p) {
			continue
		}
		if r.waits(rule.ID) {
			r.Book.Decide(rule.ID, p)
		}
		if rule.ID == Feasible && slices.ContainsFunc(out, func(f Finding) bool { return f.Level == Error }) {
			continue // some other rule says why
		}
		r.rule, r.found = rule, nil
		rule.check(r)
		if len(r.found) == 0 {
			continue
		}
		out = r.addFound(out, levels)
	}
	slices.SortStableFunc(out, compareFindings)
	return out
}

// addFound adds what the rule has found, at its level, and sets aside what hangs on plans to come.
func (r *run) addFound(out []Finding, levels Levels) []Finding {
	stood, decided := r.keysBefore(), r.decided()
	for _, v := range r.found {
		if r.undecided(v, decided) {
			r.Book.Await(whatif.Undecided{Rule: r.rule.ID, Plan: r.Plan})
			continue // those who have it may let go of it: the last of them is told
		}
		f, says := r.weighed(v, levels, stood)
		if !says {
			continue
		}
		if f.Level == Error {
			out = slices.DeleteFunc(out, func(o Finding) bool { return o.Rule == v.same && o.Host == v.Host && o.Level == Warning })
		}
		out = append(out, f)
	}
	return out
}

// weighed is what a violation is to a plan: a warning where it stood before, and nothing where
// an earlier plan has warned of it.
func (r *run) weighed(v violation, levels Levels, stood map[string]bool) (Finding, bool) {
	v.Rule = r.rule.ID
	v.Level = levels.inForce(r.rule, v.Level)
	if r.Plan.Unchanged && v.Level == Warning && !r.rule.standing && !v.stands {
		return v.Finding, false // it was said when it was planned; every plan after would say it again
	}
	v.Stood = len(stood) > 0 && containsAll(stood, v.keys)
	if v.Stood {
		v.Level = Warning
	}
	return v.Finding, true
}

// keysBefore evaluates the rule for what the resource, and the others of the run, had
// before this run. A resource that changes nothing may come into conflict with
// another one that does: that is new, whichever of the two is planned first.
func (r *run) keysBefore() map[string]bool {
	before := *r
	before.found = nil
	before.Mode = r.Mode.Before()
	if !r.Plan.Unchanged {
		if r.Plan.Adopt && !r.Plan.Want.Empty() {
			// No host has it on record as ours: it is as it was, but whoever else of this run
			// has it may not.
			before.Book = whatif.NewBook()
		}
		before.Plan.Want = r.Plan.Prior
		if r.Plan.Prior.Empty() || !r.rule.concerns(before.Plan) {
			return nil
		}
	}
	r.rule.check(&before)
	return before.keysFound()
}

// keysFound are the keys of all that was found.
func (r *run) keysFound() map[string]bool {
	keys := map[string]bool{}
	for _, v := range r.found {
		for _, k := range v.keys {
			keys[k] = true
		}
	}
	return keys
}

// report records a violation. Without keys it is identified by where it is.
func (r *run) report(f Finding, keys ...string) {
	if len(keys) == 0 {
		keys = []string{key(f.Path, f.Host, f.GPU, f.VM)}
	}
	r.found = append(r.found, violation{Finding: f, keys: keys})
}

// reportVM records a violation of a VM, on its owner host.
func (r *run) reportVM(at whatif.Located, f Finding, keys ...string) {
	f.Host, f.VM = at.Key, at.VM.Name
	r.report(f, keys...)
}

// key makes a violation's key of its parts; ids are compared without case.
func key(parts ...string) string { return gpu.FoldID(strings.Join(parts, "\x00")) }

// asked tells whether a check asks the rule.
func (r *Rule) asked(levels Levels, scopes []Scope) bool {
	return (levels[r.ID] != Off || r.Fixed) && (len(scopes) == 0 || slices.Contains(scopes, r.Scope))
}

// concerns tells whether the rule looks at plans of that kind.
func (r *Rule) concerns(p change.Change) bool {
	w := p.Want
	if w.Empty() {
		w = p.Prior
	}
	kind, _ := w.Object()
	return slices.Contains(r.Subjects, kind) && (w.Config == nil || r.kind == "" || r.kind == w.Config.Kind)
}

func (l Levels) inForce(rule *Rule, own Level) Level {
	own = cmp.Or(own, rule.Default)
	if rule.Fixed {
		return own
	}
	switch l[rule.ID] {
	case Warning:
		return Warning
	case Error:
		if rule.Default == Warning {
			return Error
		}
	case Off: // of a rule whose level is fixed
	}
	return own
}

func containsAll(set map[string]bool, keys []string) bool {
	for _, k := range keys {
		if !set[k] {
			return false
		}
	}
	return true
}

// compareFindings puts errors first and leaves the order of the rules otherwise.
func compareFindings(a, b Finding) int {
	rank := func(f Finding) int {
		if f.Level == Error {
			return 0
		}
		return 1
	}
	if d := cmp.Compare(rank(a), rank(b)); d != 0 || a.Rule != b.Rule {
		return d
	}
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.VM, b.VM))
}
