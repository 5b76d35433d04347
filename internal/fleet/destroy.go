package fleet

import (
	"context"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Destroy is what the plan of a destroy has found out.
type Destroy struct {
	// Findings are those of the rules, and an error for each host that would refuse.
	Findings []rules.Finding
	// View is the hosts as they are now.
	View View
	// Forecasts are what it does to each host, as Fleet.Record tells of a plan.
	Forecasts []change.Forecast
	// Approved is what the destroy disturbs there.
	Approved change.Approved
	// Ends is true when the run only ends objects, as far as the plan has waited to see.
	Ends bool
	// touches is true when it changes more than claims.
	touches bool
}

// After is the hosts once the destroy is done, and whether all of them would do it.
func (d Destroy) After() (View, bool) {
	v := View{Hosts: maps.Clone(d.View.Hosts), Errors: d.View.Errors}
	for _, does := range d.Forecasts {
		if does.On != nil && len(does.Refused) == 0 {
			after := change.ProjectAll(*does.On, does.Steps)
			v.Hosts[does.Host] = &after
		}
	}
	return v, !rules.HasErrors(d.Findings)
}

// PlanDestroy works out the destroy of an object on the hosts of a view, for good or to
// make it anew. Users of the object that the run destroys as well, or may yet destroy, count
// as gone; one that turns out to stay is an error of its own plan. A destroy for good, and a
// replacement that is about another object, waits a moment for another resource that takes
// over what it ends.
func (f *Fleet) PlanDestroy(ctx context.Context, v View, ch change.Change, forGood bool) (d Destroy) {
	l := f.Ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	ch.Owner, ch.Want = f.opt.Owner, gpu.Want{}
	v = v.withRecord(ch)
	if a := ch.Prior.Assignment; a != nil {
		is := *a
		if at, err := FindAssigned(v, &is); err == nil {
			is.VMName, is.Host = at.VM.Name, at.Host // where it is by now
		}
		ch.Prior.Assignment = &is
	}
	next, leaves := l.book.Plan(ch.Token)
	leaves = leaves && !forGood && object(next.Want) != object(ch.Prior)
	if ch.Token != "" && !leaves { // else its plan says so already
		l.book.Put(ch.Token, ch) // what it holds is going
	}
	if forGood || leaves {
		l.mu.Unlock()
		handed, ends := f.awaitSuccessor(ctx, v, ch)
		l.mu.Lock()
		defer func() {
			d.Ends = ends
			if forGood && d.touches && len(handed) == 0 {
				l.handovers.endsFirst(ch)
			}
		}()
	}
	v = f.withNeighbours(v)
	world := f.world(v)
	d.View, d.Approved = v, change.Approved{Keys: []string{}, Handed: whatif.TakenOver(world.World, ch)}
	ch.Prior = without(ch.Prior, d.Approved.Handed)
	d.Findings, d.Forecasts = rules.CheckAndSimulate(world, ch, f.opt.Levels)
	d.Findings = append(d.Findings, rules.Unrestorable(v.Hosts, ch)...)
	d.Findings = append(d.Findings, rules.NotMounted(ch, d.Forecasts)...)
	for _, does := range d.Forecasts {
		if len(does.Refused) == 0 && does.On != nil {
			d.Approved.Approve(change.Disturbs(does.On, does.Host, does.Steps)...)
			d.touches = d.touches || len(change.OnHost(does.Steps)) > 0
		}
	}
	d.Findings = append(d.Findings, rules.Decided(world, ch, f.opt.Levels, d.Findings)...) // as what a VM keeps that others put there
	if forGood && !rules.HasErrors(d.Findings) {
		d.Findings = append(d.Findings, rules.StillUsed(world, ch, f.opt.Levels)...)
	}
	d.Findings = append(d.Findings, f.RefusedLater(ch.Subject)...)
	return d
}

// without is what an object is on other hosts than some.
func without(prior gpu.Want, hosts []string) gpu.Want {
	if len(hosts) == 0 {
		return prior
	}
	drop := func(of map[string][]string) map[string][]string {
		of = maps.Clone(of)
		maps.DeleteFunc(of, func(host string, _ []string) bool { return slices.Contains(hosts, host) })
		return of
	}
	switch {
	case prior.Config != nil:
		c := *prior.Config
		c.GPUs = drop(c.GPUs)
		return gpu.Want{Config: &c}
	case prior.Pool != nil:
		p := *prior.Pool
		p.Members = drop(p.Members)
		return gpu.Want{Pool: &p}
	}
	return gpu.Want{}
}

// Disturbable is what changes of some hosts could disturb as they are now, for an object
// that is planned next. Of hosts that did not answer nothing is known.
func (v View) Disturbable(names []string) change.Approved {
	a := change.Approved{Hosts: []string{}, Keys: []string{}}
	for _, name := range names {
		if h, ok := v.Hosts[name]; ok && !slices.Contains(a.Hosts, name) {
			a.Hosts = append(a.Hosts, name)
			a.Approve(change.Disturbable(h, name)...)
		}
	}
	return a
}

// Record puts a plan into the ledger and tells what is wrong with it, on the hosts of a view
// and beside the rest of the run, and what it does to each host, in sorted order.
func (f *Fleet) Record(instance string, v View, p change.Change) ([]rules.Finding, []change.Forecast) {
	l := f.Ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	p.Approved = l.approved(p)
	var does []change.Forecast
	w := f.world(f.withNeighbours(v.withRecord(p)))
	findings := l.record(instance, p, func(p change.Change) (findings []rules.Finding) {
		findings, does = rules.CheckAndSimulate(w, p, f.opt.Levels)
		return findings
	})
	if !p.Unchanged {
		findings = append(findings, f.RefusedLater(p.Subject)...)
		findings = append(findings, rules.Unrestorable(v.Hosts, p)...)
		findings = append(findings, rules.NotMounted(p, does)...)
	}
	return slices.Concat(findings, rules.Decided(w, p, f.opt.Levels, findings), f.comesLate(p)), does
}

// RefusedLater finds, once per run, that a provider which may change nothing plans a change.
func (f *Fleet) RefusedLater(subject string) []rules.Finding {
	if f.opt.ReadOnly == "" || f.opt.Recorded || !f.Once("read-only") {
		return nil
	}
	return []rules.Finding{{
		Level: rules.Warning, Title: "The apply will be refused",
		Found: words.Capital(f.opt.ReadOnly) + ". " + words.Capital(subject) + " is the first change of this plan.",
		Fix:   "Lift it before the apply, or take the plan as a preview.",
	}}
}
