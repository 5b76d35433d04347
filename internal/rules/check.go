package rules

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// run is one evaluation of one rule for one plan.
type run struct {
	fleet    *Fleet
	book     *Book
	owner    string
	complete bool
	silent   func(host string) bool
	// applying is true on the host that is changed: there are no other plans, and what its
	// claims say stands.
	applying bool
	window   *Window
	now      time.Time
	agents   Agents

	plan change.Change
	rule *Rule
	// before is true for the evaluation of what the resource had: rules about a
	// transition then find none, and rules about a state find what stood.
	before bool
	// lenient is true while resources of this state that the run has not planned yet count as
	// destroyed by it.
	lenient bool
	// again is true for a plan that is in the book, and is asked about once more, for one that
	// concerns the hosts askedOn.
	again   bool
	askedOn []string
	// othersBefore is true while the other plans of the run count with what they had:
	// what only this run brings about did not stand before it.
	othersBefore bool
	// everyClaim has shares of this state count by their claims until they are planned: for
	// what is told, not for what is refused.
	everyClaim bool

	// alone is true while it is asked whether another plan fails, which does not ask that again.
	alone bool

	memo  *memo
	found []violation
}

// memo keeps what several rules of one check ask for.
type memo struct {
	shares    shareMemo
	forecasts map[string]change.Forecast
	wayMade   map[lenientOn]change.Forecast
	projected map[string]*projection
	laidOut   map[string]*gpu.Host
	undrained map[drainIn]map[string]string
}

// drainIn is a config in a cluster.
type drainIn struct {
	config  *gpu.PartitionConfig
	cluster string
}

// lenientOn is a host, and whether what the run has not planned yet counts as gone there.
type lenientOn struct {
	host    string
	lenient bool
}

func newMemo() *memo {
	return &memo{
		forecasts: map[string]change.Forecast{}, wayMade: map[lenientOn]change.Forecast{}, projected: map[string]*projection{}, laidOut: map[string]*gpu.Host{},
		undrained: map[drainIn]map[string]string{},
	}
}

// violation is a finding with what identifies it, one key per object that is wrong.
// It stood before when every key did, so that a longer list counts as worse.
type violation struct {
	Finding
	keys []string
	same string // the rule that would warn of the same
}

// begin makes an evaluation of a plan. What it looks at stays as it is until done.
func begin(w World, p change.Change) (start run, done func()) {
	fleet, book := w.Fleet, w.Others
	if fleet == nil {
		fleet = NewFleet(w.Hosts)
	}
	if book == nil {
		book = NewBook()
	}
	fleet.mu.RLock()
	book.mu.RLock()
	return run{fleet: fleet, book: book, owner: w.Owner, complete: w.Complete, silent: w.Silent, applying: w.Others == nil, window: w.Window, now: w.Now, agents: w.Agents, plan: p, memo: newMemo()}, func() {
		book.mu.RUnlock()
		fleet.mu.RUnlock()
	}
}

func (r *run) check(levels Levels, scopes []Scope) []Finding {
	p, handed := r.plan, r.handedOver()
	var out []Finding
	for i := range registry {
		rule := &registry[i]
		if levels[rule.ID] == Off && !rule.Fixed || handed && rule.ID != Feasible || !rule.concerns(p) || (len(scopes) > 0 && !slices.Contains(scopes, rule.Scope)) {
			continue
		}
		if r.waits(rule.ID) {
			r.book.undecided.Delete([2]string{rule.ID, p.Token})
		}
		if rule.ID == Feasible && slices.ContainsFunc(out, func(f Finding) bool { return f.Level == Error }) {
			continue // some other rule says why
		}
		r.rule, r.found = rule, nil
		rule.check(r)
		if len(r.found) == 0 {
			continue
		}
		stood, decided := r.keysBefore(), r.decided()
		for _, v := range r.found {
			if r.undecided(v, decided) {
				r.book.undecided.Store([2]string{rule.ID, p.Token}, p)
				continue // those who have it may let go of it: the last of them is told
			}
			if f, says := r.weighed(v, levels, stood); says {
				if f.Level == Error {
					out = slices.DeleteFunc(out, func(o Finding) bool { return o.Rule == v.same && o.Host == v.Host && o.Level == Warning })
				}
				out = append(out, f)
			}
		}
	}
	slices.SortStableFunc(out, compareFindings)
	return out
}

// weighed is what a violation is to a plan: a warning where it stood before, and nothing where
// an earlier plan has warned of it.
func (r *run) weighed(v violation, levels Levels, stood map[string]bool) (Finding, bool) {
	v.Rule = r.rule.ID
	v.Level = levels.inForce(r.rule, v.Level)
	if r.plan.Unchanged && v.Level == Warning && !r.rule.standing {
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
	before.othersBefore = true
	if !r.plan.Unchanged {
		if r.plan.Adopt && !r.plan.Want.Empty() {
			// No host has it on record as ours: it is as it was, but whoever else of this run
			// has it may not.
			before.book = NewBook()
		}
		before.before = true
		before.plan.Want = r.plan.Prior
		if r.plan.Prior.Empty() || !r.rule.concerns(before.plan) {
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

// transition tells whether the plan means to change something: what only a change
// can violate is not looked at otherwise.
func (r *run) transition() bool { return !r.before && !r.plan.Unchanged }

// report records a violation. Without keys it is identified by where it is.
func (r *run) report(f Finding, keys ...string) {
	if len(keys) == 0 {
		keys = []string{key(f.Path, f.Host, f.GPU, f.VM)}
	}
	r.found = append(r.found, violation{Finding: f, keys: keys})
}

// reportVM records a violation of a VM, on its owner host.
func (r *run) reportVM(at located, f Finding, keys ...string) {
	f.Host, f.VM = at.key, at.vm.Name
	r.report(f, keys...)
}

// key makes a violation's key of its parts; ids are compared without case.
func key(parts ...string) string { return gpu.FoldID(strings.Join(parts, "\x00")) }

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

// host gives the inventory of a host if it is at hand.
func (r *run) host(key string) (*gpu.Host, bool) {
	h, ok := r.fleet.hosts[key]
	return h, ok
}

// others are the other plans of the run about the given subjects. The plan itself
// may be in the book; its token tells.
func (r *run) others(subjects ...string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range r.book.about(subjects...) {
			if e.token != "" && e.token == r.plan.Token {
				continue
			}
			if r.othersBefore {
				p := e.plan
				p.Want, p.Prior = p.Prior, gpu.Want{}
				e = &entry{token: e.token, plan: p}
			}
			if !yield(e) {
				return
			}
		}
	}
}

// hostsAtHand goes through the hosts of a config or a pool that are at hand, in the
// order of their names.
func (r *run) hostsAtHand(gpus map[string][]string) iter.Seq2[string, *gpu.Host] {
	return func(yield func(string, *gpu.Host) bool) {
		for _, key := range r.atHand(gpus) {
			if !yield(key, r.fleet.hosts[key]) {
				return
			}
		}
	}
}

// atHand are the hosts of a config or a pool that are at hand. An agent has one of as many as there are.
func (r *run) atHand(gpus map[string][]string) []string {
	if len(r.fleet.hosts) >= len(gpus) {
		return slices.DeleteFunc(sortedKeys(gpus), func(key string) bool { return r.fleet.hosts[key] == nil })
	}
	return slices.DeleteFunc(sortedKeys(r.fleet.hosts), func(key string) bool {
		_, ok := gpus[key]
		return !ok
	})
}

// selected goes through the GPUs that a list of ids names and that the host has. What one
// lacks that cannot be read is not known: rule readable speaks of it.
func selected(h *gpu.Host, ids []string) iter.Seq[*gpu.GPU] {
	return func(yield func(*gpu.GPU) bool) {
		for _, id := range ids {
			_, unknown := h.UnknownGPU(id)
			if g, ok := h.GPU(id); ok && !unknown && !yield(g) {
				return
			}
		}
	}
}

// contains tells whether a list has an id, without case.
func contains(ids []string, id string) bool {
	return slices.ContainsFunc(ids, func(x string) bool { return gpu.SameID(x, id) })
}
