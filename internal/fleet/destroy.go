package fleet

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Destroy is what the plan of a destroy has found out.
type Destroy struct {
	// Findings are those of the rules, and an error for each host that would refuse.
	Findings []rules.Finding
	// View is the hosts when the destroy's turn comes: what uses the object has gone before.
	View View
	// Approved is what the destroy disturbs there.
	Approved change.Approved
}

// PlanDestroy works out the destroy of an object on the hosts of a view, for good or to
// make it anew. Users of the object that the run destroys as well, or may yet destroy, count
// as gone; one that turns out to stay is an error of its own plan.
func (f *Fleet) PlanDestroy(v View, ch change.Change) Destroy {
	l := f.Ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	ch.Owner, ch.Want = f.opt.Owner, gpu.Want{}
	if ch.Token != "" {
		l.leaving[ch.Token] = true
		l.book.Put(ch.Token, ch) // what it holds is going
	}
	v = f.withNeighbours(v)
	d := f.destroy(v, f.index(v), ch)
	if rules.HasErrors(d.Findings) {
		if after, users := f.withoutUsers(v, ch); len(users) > 0 {
			d = f.destroy(after, rules.NewFleet(after.Hosts), ch)
			if !rules.HasErrors(d.Findings) {
				l.awaited = append(l.awaited, awaited{of: ch, view: v, users: users})
			}
		}
	}
	return d
}

// destroy asks the rules and the planner what a destroy does to hosts.
func (f *Fleet) destroy(v View, index *rules.Fleet, ch change.Change) Destroy {
	w := f.worldOf(v, index)
	d := Destroy{View: v, Approved: change.Approved{Keys: []string{}, Handed: rules.TakenOver(w, ch)}}
	ch.Prior = without(ch.Prior, d.Approved.Handed)
	d.Findings = rules.Check(w, ch, f.opt.Levels.Without(rules.Feasible)) // which is asked below
	for _, name := range slices.Sorted(maps.Keys(destroyedOn(ch.Prior))) {
		h, ok := v.Hosts[name]
		if !ok {
			continue
		}
		known := index.WithClaims(name, h)
		steps, err := change.Plan(known, name, ch)
		var refused *change.Refusal
		switch {
		case err == nil:
			d.Approved.Approve(change.Disturbs(&known, name, steps)...)
		case errors.As(err, &refused) && !slices.ContainsFunc(d.Findings, func(x rules.Finding) bool { return x.Level == rules.Error && x.Host == name }):
			d.Findings = append(d.Findings, rules.Refused(name, ch, refused))
		}
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

// destroyedOn are the hosts that a destroy concerns.
func destroyedOn(prior gpu.Want) map[string]bool {
	if a := prior.Assignment; a != nil {
		return map[string]bool{a.Host: true}
	}
	return members(prior)
}

// withoutUsers is a view without the assignments and shares of this state that go before an
// object does, or that the run changes so that they let go of it. The users returned are
// those that it has not planned yet, by token. The caller holds the ledger.
func (f *Fleet) withoutUsers(v View, of change.Change) (View, map[string]bool) {
	out, users := View{Hosts: maps.Clone(v.Hosts), Errors: v.Errors}, map[string]bool{}
	if of.Prior.Config == nil && of.Prior.Pool == nil {
		return out, users // nothing rests on a share or on what a VM has
	}
	index := f.index(v)
	for name := range members(of.Prior) {
		h, ok := v.Hosts[name]
		if !ok {
			continue
		}
		after := index.WithClaims(name, h)
		for _, c := range slices.Clone(after.Claims) {
			if c.Owner != f.opt.Owner || c.Kind != gpu.ClaimAssignment && c.Kind != gpu.ClaimShare {
				continue
			}
			ch, planned := f.Ledger.book.Plan(c.Token)
			switch {
			case !planned || f.Ledger.leaving[c.Token]:
				users[c.Token] = true
				ch = change.Change{Subject: of.Subject, Owner: c.Owner, Token: c.Token, Prior: c.Want}
			case ch.Unchanged:
				continue
			}
			ch.Owner = f.opt.Owner
			after = afterwards(after, name, ch)
		}
		out.Hosts[name] = &after
	}
	return out, users
}

// afterwards is a host once a change was made. One that the host would refuse is an error
// of its own: it counts as made, for what it lets go of.
func afterwards(host gpu.Host, name string, ch change.Change) gpu.Host {
	steps, err := change.Plan(host, name, ch)
	if err != nil && !ch.Want.Empty() {
		return host
	}
	for _, s := range steps {
		host = change.Project(host, s)
	}
	if err == nil {
		return host
	}
	if s := ch.Prior.Share; s != nil {
		host = change.Project(host, change.Step{Op: change.OpRemoveShare, Share: &gpu.ShareSpec{Name: s.Name}})
		host.Claims = change.DropClaim(host.Claims, gpu.ClaimShare, s.Name)
	}
	return host
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

// awaited is a destroy that its hosts would refuse while one of some users stays.
type awaited struct {
	of    change.Change
	view  View
	users map[string]bool
}

// Record puts a plan into the ledger and tells what is wrong with it, on the hosts of a view
// and beside the rest of the run.
func (f *Fleet) Record(instance string, v View, p change.Change) []rules.Finding {
	l := f.Ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	findings := l.record(instance, p, func(p change.Change) []rules.Finding { return f.Check(f.withNeighbours(v), p) })
	return append(findings, f.inTheWayOf(p)...)
}

// inTheWayOf finds that a resource stays, by its plan, and is in the way of a destroy that
// was planned before. The caller holds the ledger.
func (f *Fleet) inTheWayOf(p change.Change) []rules.Finding {
	l := f.Ledger
	if p.Want.Empty() || l.leaving[p.Token] {
		return nil
	}
	var out []rules.Finding
	for _, a := range l.awaited {
		if !a.users[p.Token] {
			continue
		}
		after, _ := f.withoutUsers(a.view, a.of)
		for _, x := range f.destroy(after, rules.NewFleet(after.Hosts), a.of).Findings {
			if x.Level == rules.Error {
				out = append(out, rules.Finding{
					Level: rules.Error, Path: x.Path, Rule: x.Rule, Host: x.Host, GPU: x.GPU, Other: a.of.Subject,
					Title: "What it uses is destroyed in the same run",
					Found: strings.TrimSuffix(a.of.Subject, ".") + " is destroyed, and this stays. " + x.Found,
					Fix:   "Destroy both, or keep both. Otherwise: " + x.Fix,
				})
				break
			}
		}
	}
	return out
}
