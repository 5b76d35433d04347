package fleet

import (
	"context"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Destroy is what the plan of a destroy has found out.
type Destroy struct {
	// Findings are those of the rules, and an error for each host that would refuse.
	Findings []rules.Finding
	// View is the hosts when the destroy's turn comes: what uses the object has gone before.
	View View
	// Forecasts are what it does to each host, as Fleet.Record tells of a plan.
	Forecasts []change.Forecast
	// Approved is what the destroy disturbs there.
	Approved change.Approved
	// touches is true when it changes more than claims.
	touches bool
}

// After is the hosts once the destroy is done, and whether all of them would do it.
func (d Destroy) After() (View, bool) {
	v := View{Hosts: maps.Clone(d.View.Hosts), Errors: d.View.Errors}
	for _, does := range d.Forecasts {
		if h := v.Hosts[does.Host]; h != nil && len(does.Refused) == 0 {
			after := change.ProjectAll(*h, does.Steps)
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
	if a := ch.Prior.Assignment; a != nil {
		is := *a
		if at, err := FindVM(v, is.VMID); err == nil {
			is.VMName, is.Host = at.VM.Name, at.Host // where it is by now
		}
		ch.Prior.Assignment = &is
	}
	next, leaves := l.book.Plan(ch.Token)
	leaves = leaves && !forGood && object(next.Want) != object(ch.Prior)
	if ch.Token != "" {
		l.leaving[ch.Token] = true
		if !leaves { // else its plan says so already
			l.book.Put(ch.Token, ch) // what it holds is going
		}
	}
	if forGood || leaves {
		l.mu.Unlock()
		handed := f.awaitSuccessor(ctx, v, ch)
		l.mu.Lock()
		defer func() {
			if forGood && d.touches && len(handed) == 0 {
				l.handovers.endsFirst(ch)
			}
		}()
	}
	v = f.withNeighbours(v)
	index := f.index(v)
	defer func() { d.Findings = append(d.Findings, f.RefusedLater(ch.Subject)...) }()
	world := f.worldOf(v, index)
	d = f.destroy(world, v, ch)
	if decided := rules.Decided(world, ch, f.opt.Levels); len(decided) > 0 { // what a VM keeps that others put there
		d.Findings = append(d.Findings, decided...)
		return d
	}
	if forGood && !rules.HasErrors(d.Findings) {
		d.Findings = append(d.Findings, rules.StillUsed(world, ch, f.opt.Levels)...)
		return d
	}
	if !rules.HasErrors(d.Findings) || ch.Prior.Config == nil && ch.Prior.Pool == nil {
		return d // nothing rests on a share or on what a VM has
	}
	after, awaits := View{Hosts: maps.Clone(v.Hosts), Errors: v.Errors}, map[string][]awaited{}
	for name := range members(ch.Prior) {
		if h, ok := v.Hosts[name]; ok {
			known := index.WithClaims(name, h)
			left, users := f.withoutUsers(known, name, ch, "")
			after.Hosts[name] = &left
			for _, token := range users {
				awaits[token] = append(awaits[token], awaited{of: ch, host: name, known: known})
			}
		}
	}
	if len(awaits) == 0 {
		return d
	}
	if d = f.destroy(f.worldOf(after, rules.NewFleet(after.Hosts)), after, ch); !rules.HasErrors(d.Findings) {
		for token, a := range awaits {
			l.awaited[token] = append(l.awaited[token], a...)
		}
	}
	return d
}

// destroy asks the rules and the planner what a destroy does to hosts.
func (f *Fleet) destroy(w rules.World, v View, ch change.Change) Destroy {
	d := Destroy{View: v, Approved: change.Approved{Keys: []string{}, Handed: rules.TakenOver(w, ch)}}
	ch.Prior = without(ch.Prior, d.Approved.Handed)
	d.Findings, d.Forecasts = rules.CheckAndForesee(w, ch, f.opt.Levels.Without(rules.Feasible)) // which is asked below
	var able []string
	for _, does := range d.Forecasts {
		name := does.Host
		known := w.Fleet.WithClaims(name, v.Hosts[name])
		switch {
		case len(does.Refused) == 0:
			d.Approved.Approve(change.Disturbs(&known, name, does.Steps)...)
			d.touches = d.touches || len(change.OnHost(does.Steps)) > 0
			able = append(able, name)
		case !slices.ContainsFunc(d.Findings, func(x rules.Finding) bool { return x.Level == rules.Error && x.Host == name }):
			d.Findings = append(d.Findings, rules.Refused(name, ch, does.Refused[0]))
		}
	}
	if f.opt.Levels[rules.Feasible] != rules.Off {
		d.Findings = append(d.Findings, rules.Overtaken(w, ch, able)...)
	}
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

// withoutUsers is a host without the assignments and shares of this state that go before an
// object does, or that the run changes so that they let go of it. The users returned are
// those that the run has not planned to keep, by token. Where one user alone is asked about,
// all others go. The caller holds the ledger.
func (f *Fleet) withoutUsers(host gpu.Host, name string, of change.Change, alone string) (after gpu.Host, users []string) {
	after = host
	for _, c := range host.Claims {
		if c.Owner != f.opt.Owner || c.Kind != gpu.ClaimAssignment && c.Kind != gpu.ClaimShare {
			continue
		}
		ch, planned := f.Ledger.book.Plan(c.Token)
		switch {
		case !planned || f.Ledger.leaving[c.Token] || alone != "" && alone != c.Token:
			users = append(users, c.Token)
			ch = change.Change{Subject: of.Subject, Token: c.Token, Prior: c.Want}
		case ch.Unchanged, isUpdate(ch): // which Terraform makes after the destroy
			continue
		}
		ch.Owner = f.opt.Owner
		after = afterwards(after, name, ch)
	}
	return after, users
}

// isUpdate tells whether an assignment is changed in place.
func isUpdate(ch change.Change) bool {
	was, is := ch.Prior.Assignment, ch.Want.Assignment
	return was != nil && is != nil && gpu.SameID(was.VMID, is.VMID)
}

// afterwards is a host once a change was made. One that the host would refuse is an error
// of its own: it counts as made, for what it lets go of.
func afterwards(host gpu.Host, name string, ch change.Change) gpu.Host {
	after, err := change.After(host, name, ch)
	if err != nil && !ch.Want.Empty() {
		return host
	}
	return after
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

// awaited is a destroy that a host, as it is now, would refuse while one of some users stays.
type awaited struct {
	of    change.Change
	host  string
	known gpu.Host
}

// Record puts a plan into the ledger and tells what is wrong with it, on the hosts of a view
// and beside the rest of the run, and what it does to each host, in sorted order.
func (f *Fleet) Record(instance string, v View, p change.Change) ([]rules.Finding, []change.Forecast) {
	l := f.Ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	p.Approved = l.approved(p)
	var does []change.Forecast
	w := f.world(f.withNeighbours(v))
	findings := l.record(instance, p, func(p change.Change) (findings []rules.Finding) {
		findings, does = rules.CheckAndForesee(w, p, f.opt.Levels)
		return findings
	})
	if !p.Unchanged {
		findings = append(findings, f.RefusedLater(p.Subject)...)
	}
	return slices.Concat(findings, f.inTheWayOf(p), rules.Decided(w, p, f.opt.Levels), f.comesLate(p)), does
}

// RefusedLater finds, once per run, that a provider which may change nothing plans a change.
func (f *Fleet) RefusedLater(subject string) []rules.Finding {
	if f.opt.ReadOnly == "" || f.opt.Recorded || !f.TellOnce("read-only") {
		return nil
	}
	return []rules.Finding{{
		Level: rules.Warning, Title: "The apply will be refused",
		Found: words.Capital(f.opt.ReadOnly) + ". " + words.Capital(subject) + " is the first change of this plan.",
		Fix:   "Lift it before the apply, or take the plan as a preview.",
	}}
}

// inTheWayOf finds that a resource stays, by its plan, and is in the way of a destroy that
// was planned before. The caller holds the ledger.
func (f *Fleet) inTheWayOf(p change.Change) []rules.Finding {
	l := f.Ledger
	if p.Want.Empty() || l.leaving[p.Token] {
		return nil
	}
	var out []rules.Finding
	for _, a := range l.awaited[p.Token] {
		if slices.ContainsFunc(out, func(x rules.Finding) bool { return x.Other == a.of.Subject }) {
			continue
		}
		after, _ := f.withoutUsers(a.known, a.host, a.of, p.Token)
		v := View{Hosts: map[string]*gpu.Host{a.host: &after}}
		w := f.worldOf(v, rules.NewFleet(v.Hosts))
		w.Others = rules.NewBook()
		w.Others.Put(p.Token, p)
		for _, x := range f.destroy(w, v, a.of).Findings {
			if x.Level == rules.Error {
				out = append(out, rules.Finding{
					Level: rules.Error, Rule: x.Rule, Host: x.Host, GPU: x.GPU, Other: a.of.Subject,
					Title: "What it uses is destroyed in the same run",
					Found: a.of.Subject + " is destroyed, but this resource stays. " + x.Found,
					Fix:   "Destroy both, or keep both. Otherwise: " + x.Fix,
				})
				break
			}
		}
	}
	return out
}
