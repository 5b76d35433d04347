package rules

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// decided are the keys of what a resource is short of whatever the resources of this state
// do that the run has not planned yet: they may let go of what they have. Nil where all is
// decided, as for what is done once: that finds the host as it is.
func (r *run) decided() map[string]bool {
	if r.rule.ID != change.Capacity || r.applying || r.plan.Act != "" || r.owner == "" || r.plan.Token == "" || r.plan.Want.Empty() {
		return nil
	}
	least := *r
	least.found, least.lenient = nil, true
	r.rule.check(&least)
	keys := map[string]bool{}
	for _, v := range least.found {
		for _, k := range v.keys {
			keys[k] = true
		}
	}
	return keys
}

// mayGo tells whether a VM's assignment is one of this state that the run has not planned
// yet, while that matters.
func (r *run) mayGo(vm *gpu.VM) bool {
	if !r.lenient {
		return false
	}
	c, ok := r.claimOnVM(vm.ID)
	return ok && c.Owner == r.owner && !r.superseded(c)
}

// Short finds that resources which were planned before are short of what a resource keeps
// by its plan, which is in the book by now.
func Short(w World, kept change.Change, levels Levels) []Finding {
	var out []Finding
	if w.Others == nil || levels[change.Capacity] == Off {
		return nil
	}
	w.Others.short.Range(func(token, value any) bool {
		p, _ := value.(change.Change)
		if token == kept.Token || w.Others.Superseded(p) {
			return true
		}
		r, done := begin(w, p)
		defer done()
		if _, ok := r.locate(p.Want.Assignment); p.Want.Assignment != nil && !ok {
			return true
		}
		for i := range registry {
			if registry[i].ID == change.Capacity {
				r.rule = &registry[i]
			}
		}
		r.rule.check(&r)
		keys := r.decided()
		for _, v := range r.found {
			if v.Level == Warning || !containsAll(keys, v.keys) {
				continue
			}
			w.Others.short.Delete(token)
			f := v.Finding
			f.Rule, f.Level, f.Path, f.Other = r.rule.ID, levels.inForce(r.rule, f.Level), pathOf(kept), labelOf(p)
			out = append(out, f)
		}
		return true
	})
	return out
}

// Superseded tells whether the book has another plan for the resource by now.
func (b *Book) Superseded(p change.Change) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := b.plans[p.Token]
	return e == nil || e.plan.Want != p.Want
}
