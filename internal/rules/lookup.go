package rules

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Config finds the plan of the run that wants the partition config of an id.
func (b *Book) Config(id string) (change.Change, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, e := range b.about(configNamed(id)) {
		if c := e.plan.Want.Config; c != nil && gpu.SameID(c.ID, id) {
			return e.plan, true
		}
	}
	return change.Change{}, false
}

// Pool returns the pool of that id that the run plans.
func (b *Book) Pool(id string) (change.Change, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, e := range b.about(poolNamed(id)) {
		if p := e.plan.Want.Pool; p != nil && gpu.SameID(p.ID, id) {
			return e.plan, true
		}
	}
	return change.Change{}, false
}

// Plan returns the plan of a token.
func (b *Book) Plan(token string) (change.Change, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := b.plans[token]
	if token == "" || e == nil {
		return change.Change{}, false
	}
	return e.plan, true
}

// Assigned are the VMs whose assignments the run makes or changes, and which it may stop for
// that. One that was off when its assignment was read is none of them.
func (b *Book) Assigned() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []string
	for _, e := range b.plans {
		if a := e.plan.Want.Assignment; a != nil && !e.plan.Unchanged && (e.plan.Approved == nil || e.plan.Approved.HasVM(a.VMID)) {
			out = append(out, a.VMID)
		}
	}
	return out
}
