package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// waits tells whether what a rule finds may hang on what resources of this state let go of by a
// plan that is still to come.
func (r *run) waits(rule string) bool {
	return rule == change.Capacity || rule == Feasible || endsLayout(r.plan)
}

// decided are the keys of what is wrong with a plan whatever the resources of this state do that
// the run has not planned yet. Nil where all is decided, as for what is done once: that finds
// the host as it is.
func (r *run) decided() map[string]bool {
	if !r.waits(r.rule.ID) || r.applying || r.plan.Act != "" || r.owner == "" && !endsLayout(r.plan) || r.plan.Token == "" {
		return nil
	}
	least := *r
	least.found, least.lenient = nil, true
	r.rule.check(&least)
	return least.keysFound()
}

// mayGo tells whether a VM's assignment is one of this state that the run has not planned
// yet, while that matters.
func (r *run) mayGo(host string, vm *gpu.VM) bool {
	if !r.lenient {
		return false
	}
	c, ok := r.claimOnVM(host, vm.ID)
	return ok && c.Owner == r.owner && !r.superseded(c)
}

// undecided tells whether a violation hangs on plans that are still to come. Of room that is only
// warned of nothing does.
func (r *run) undecided(v violation, decided map[string]bool) bool {
	return decided != nil && (v.Level != Warning || r.rule.ID == Feasible) && !containsAll(decided, v.keys)
}

// Decided finds what is wrong with plans that came before, and hung on what resources of this
// state do of which the last one is in the book by now. Of a plan with which that one has been found in conflict nothing is
// said again.
func Decided(w World, last change.Change, levels Levels, said []Finding) []Finding {
	var out []Finding
	if w.Others == nil {
		return nil
	}
	says := map[string]bool{} // by token
	inTheWay := !last.Want.Empty() || keepsMore(w, last)
	find := func(id [2]string, p change.Change) {
		if p.Token == last.Token || endsLayout(p) && !inTheWay || w.Others.Superseded(p) {
			return
		}
		if slices.ContainsFunc(said, func(f Finding) bool { return f.Level == Error && f.Other == labelOf(p) }) {
			w.Others.undecided.Delete(id)
			return
		}
		r, done := begin(w, p)
		defer done()
		if _, ok := r.locate(p.Want.Assignment); p.Want.Assignment != nil && !ok {
			return
		}
		for i := range registry {
			if rule := &registry[i]; id[0] == rule.ID && levels[rule.ID] != Off {
				r.rule, r.again, r.askedOn = rule, true, r.hostsOf(last)
				r.rule.check(&r)
			}
		}
		if len(r.found) == 0 {
			return
		}
		stood, keys := r.keysBefore(), r.decided()
		for _, v := range r.found {
			if v.Level == Warning && r.rule.ID != Feasible || r.undecided(v, keys) {
				continue
			}
			w.Others.undecided.Delete(id)
			if f, ok := r.weighed(v, levels, stood); ok {
				says[p.Token] = says[p.Token] || f.Level == Error
				f.Path, f.Other = pathOf(last), labelOf(p)
				if endsLayout(p) && !last.Want.Empty() {
					f.Title = "What it uses is destroyed in the same run"
					f.Found = labelOf(p) + " is destroyed, but this resource stays. " + f.Found
					f.Fix = "Destroy both, or keep both. Otherwise: " + f.Fix
				}
				out = append(out, f)
			}
		}
	}
	var waiting [][2]string
	plans := map[[2]string]change.Change{}
	w.Others.undecided.Range(func(key, value any) bool {
		id, _ := key.([2]string)
		waiting = append(waiting, id)
		plans[id], _ = value.(change.Change)
		return true
	})
	slices.SortFunc(waiting, func(a, b [2]string) int {
		return cmp.Or(strings.Compare(labelOf(plans[a]), labelOf(plans[b])), slices.Compare(a[:], b[:]))
	})
	// What hosts would refuse comes last, since some other rule may say why.
	for _, last := range []bool{false, true} {
		for _, id := range waiting {
			switch p := plans[id]; {
			case last != (id[0] == Feasible):
			case !last || !says[p.Token]:
				find(id, p)
			default:
				w.Others.undecided.Delete(id)
			}
		}
	}
	return out
}

// keepsMore tells whether the VM of an assignment that goes keeps what others gave it, and so may be
// in the way still.
func keepsMore(w World, p change.Change) bool {
	a := p.Prior.Assignment
	if a == nil {
		return false
	}
	r, done := begin(w, p)
	defer done()
	given := 1
	switch {
	case a.Pool != nil:
		given = poolCount(a.Pool)
	case a.Device != nil:
		given = len(a.Device.GPUIDs)
	}
	at, ok := r.locate(a)
	return ok && len(at.vm.PartitionAdapters)+len(at.vm.Devices) > given
}

// Superseded tells whether the book has another plan for the resource by now.
func (b *Book) Superseded(p change.Change) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := b.plans[p.Token]
	return e == nil || e.plan.Want != p.Want
}
