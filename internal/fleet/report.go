package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// Planned is what a plan report tells of a planned resource beside its change.
type Planned struct {
	Type, Label string
	// Token is its token in claims, "" for none.
	Token string
	// Prior and Want are those of its change.
	Prior, Want gpu.Want
	// Destroyed is true for a resource that is destroyed for good.
	Destroyed bool
	// Unchanged is true where hosts need not know of the plan, and Policy where it changes policy all the same.
	Unchanged, Policy bool
	// Open is true where what is planned is known only after apply.
	Open bool
	// Terms are how it is applied.
	Terms Request
	// Errors are those that its plan was ended by.
	Errors []PlanError
}

// PlanError is an error of a plan, as Terraform shows it.
type PlanError struct{ Summary, Detail string }

// reported is what a run keeps for its report, guarded by the ledger.
type reported struct {
	wanted   bool
	planned  map[string]Planned // by instance
	findings []planreport.Finding
	known    map[planreport.Finding]bool // those
	// refused is why a resource cannot be applied, by its label.
	refused map[string]string
}

// Reports says that the run is to be reported.
func (f *Fleet) Reports() bool { return f.Ledger.reported.wanted }

// NotePlanned keeps for the report what is known of a plan. The second plan of an instance replaces the first, but for its errors.
func (l *Ledger) NotePlanned(instance string, p Planned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reported.planned == nil {
		l.reported.planned = map[string]Planned{}
	}
	was := l.reported.planned[instance]
	p.Errors = append(slices.Clip(was.Errors), p.Errors...)
	for _, e := range p.Errors {
		l.reported.refuse(p.Label, e.Summary)
	}
	l.reported.planned[instance] = p
}

// keep keeps findings for the report, and returns them.
func (r *reported) keep(label string, findings []rules.Finding) []rules.Finding {
	if !r.wanted {
		return findings
	}
	for _, x := range findings {
		is := planreport.Finding{
			Rule: x.Rule, Level: string(x.Level), Host: x.Host, Subject: cmp.Or(x.Of, label), Found: x.Found, Wanted: x.Wanted, Fix: x.Fix,
		}
		if is.Found == "" {
			is.Found = x.Title
		}
		if !r.known[is] {
			if r.known == nil {
				r.known = map[planreport.Finding]bool{}
			}
			r.known[is] = true
			r.findings = append(r.findings, is)
		}
		if x.Level == rules.Error {
			r.refuse(label, is.Found)
		}
	}
	return findings
}

func (r *reported) refuse(label, why string) {
	if r.refused == nil {
		r.refused = map[string]string{}
	}
	r.refused[label] = cmp.Or(r.refused[label], why)
}

// Report is what this run has planned, all of it made on what is known of the hosts; none is asked. ok is false where the run is
// no plan: an apply plans as well, and what was approved is what was reported before.
func (f *Fleet) Report() (r planreport.Report, ok bool) {
	l := f.Ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Applies() || f.replanning.Load() || !f.Refreshes() && len(l.reported.planned) == 0 {
		return planreport.Report{}, false
	}
	hosts := f.seenHosts().Hosts
	w := whatif.World{Fleet: whatif.NewFleet(hosts), Owner: f.opt.Owner, Others: l.bookOfAll(), Silent: f.without}
	made := whatif.Rehearse(w, whatif.Limits{Stops: f.opt.MaxConcurrentVMStops, Hosts: l.hostsAtOnce(), Domain: f.stopDomain})
	r = planreport.Report{
		Format: planreport.Format, Owner: f.opt.Owner, PlannedAt: f.opt.Now().UTC().Truncate(time.Second),
		Before: fleetFile(hosts), After: fleetFile(made.Hosts), Findings: []planreport.Finding{},
	}
	r.Changes = append([]planreport.Change{}, l.changesOf(made)...)
	r.Findings = append(r.Findings, l.reported.findings...)
	r.Findings = append(r.Findings, l.otherErrors()...)
	r.Findings = append(r.Findings, f.silentHosts()...)
	slices.SortStableFunc(r.Findings, func(a, b planreport.Finding) int { // Terraform plans in any order
		return cmp.Or(strings.Compare(a.Subject, b.Subject), strings.Compare(a.Level, b.Level), strings.Compare(a.Rule, b.Rule),
			strings.Compare(a.Host, b.Host), strings.Compare(a.Found, b.Found))
	})
	r.Incomplete = f.whyIncomplete(r)
	r.Complete = len(r.Incomplete) == 0
	return r, true
}

// fleetFile is hosts as a simulated fleet has them, by the provider's names.
func fleetFile(hosts map[string]*gpu.Host) gpu.Snapshot {
	s := gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{}}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := *hosts[name]
		h.Name, h.HeldBy = name, nil
		s.Hosts = append(s.Hosts, h)
	}
	return s
}

// bookOfAll are the plans of the run that can be applied, with those that the ledger needs not know of: destroys of what no claim is
// for.
func (l *Ledger) bookOfAll() *whatif.Book {
	refused := func(p change.Change) bool { return l.reported.refused[whatif.Label(p)] != "" }
	book := whatif.NewBook(slices.DeleteFunc(l.book.Plans(), refused)...)
	for instance, p := range l.reported.planned {
		if p.Destroyed && p.Token == "" && !p.Prior.Empty() {
			book.Put(instance, change.Change{Subject: p.Label, Prior: p.Prior, Adopt: true})
		}
	}
	return book
}

// byToken are the planned resources by the tokens that their plans have in the book.
func (l *Ledger) byToken() map[string]Planned {
	out := make(map[string]Planned, len(l.reported.planned))
	for instance, p := range l.reported.planned {
		switch e, recorded := l.entries[instance]; {
		case recorded:
			out[e.key] = p
		case p.Token != "":
			out[p.Token] = p
		default:
			out[instance] = p
		}
	}
	return out
}

func (l *Ledger) hostsAtOnce() func(token string) int {
	of := l.byToken()
	return func(token string) int { return of[token].Terms.MaxUnavailable }
}

// changesOf are the changes of a run in their order: those that hosts take part in, and those of policy, and those of which it is not
// known yet what they do.
func (l *Ledger) changesOf(made whatif.Rehearsal) []planreport.Change {
	var out []planreport.Change
	of, last := l.byToken(), 0
	for _, t := range made.Turns {
		p := of[t.Plan.Token]
		c := changeOf(t)
		c.Type = cmp.Or(p.Type, typeOf(t.Plan))
		c.LimitSeconds = int(p.Terms.HostTimeout.Seconds())
		if len(t.Does.Steps) == 0 {
			c.LimitSeconds = 0
		}
		if n := len(whatif.WantedGPUs(t.Part.Want)); n > 1 && len(t.Does.Steps) > 0 {
			c.OnFailure = "rollback"
			if p.Terms.StopOnFailure {
				c.OnFailure = "stop"
			}
		}
		last = max(last, t.Number)
		if i := len(out) - 1; t.Replaces && i >= 0 && out[i].Label == c.Label && out[i].Host == c.Host && out[i].Action == c.Action {
			out[i] = merged(out[i], c)
			continue
		}
		out = append(out, c)
	}
	var policy, open []planreport.Change
	for _, instance := range slices.SortedFunc(maps.Keys(l.reported.planned), func(a, b string) int {
		return cmp.Or(strings.Compare(l.reported.planned[a].Label, l.reported.planned[b].Label), strings.Compare(a, b))
	}) {
		p := l.reported.planned[instance]
		c := emptyChange(p.Type, p.Label, planreport.Update)
		if p.Prior.Empty() {
			c.Action = planreport.Create
		}
		switch {
		case p.Policy:
			c.Turn, c.PolicyOnly = 1, true
			for _, host := range hostsOf(p.Prior) {
				c.Host = host
				policy = append(policy, c)
			}
		case l.reported.refused[p.Label] != "":
			c.Turn, c.Refused = last+1, l.reported.refused[p.Label]
			if p.Destroyed {
				c.Action = planreport.Delete
			}
			for _, host := range hostsOf(cmp.Or(p.Want, p.Prior)) {
				c.Host = host
				open = append(open, c)
			}
		case p.Open:
			c.Turn, c.AfterApply = last+1, true
			open = append(open, c)
		}
	}
	out = slices.Concat(out, open)
	at := slices.IndexFunc(out, func(c planreport.Change) bool { return c.Turn > 1 })
	if at < 0 {
		at = len(out)
	}
	return slices.Insert(out, at, policy...)
}

// hostsOf are the hosts that an object is on, or one that is not known.
func hostsOf(w gpu.Want) []string {
	hosts := slices.Sorted(maps.Keys(whatif.WantedGPUs(w)))
	switch {
	case w.Assignment != nil:
		hosts = []string{w.Assignment.Host}
	case w.Share != nil:
		hosts = []string{w.Share.Host}
	}
	if len(hosts) == 0 {
		return []string{""}
	}
	return hosts
}

func emptyChange(of, label string, action planreport.Action) planreport.Change {
	return planreport.Change{
		Type: of, Label: label, Action: action, GPUs: []planreport.GPU{}, Stops: []planreport.Stop{}, Ends: []planreport.End{},
		Resets: []string{}, Drains: []string{},
	}
}

func changeOf(t whatif.Turn) planreport.Change {
	action := planreport.Update
	switch {
	case t.Replaces:
		action = planreport.Replace
	case t.Plan.Prior.Empty():
		action = planreport.Create
	case t.Plan.Want.Empty():
		action = planreport.Delete
	}
	c := emptyChange("", whatif.Label(t.Plan), action)
	c.Host, c.Turn = t.Does.Host, t.Number
	if len(t.Does.Refused) > 0 {
		c.Refused = t.Does.Refused[0].Error()
		return c
	}
	for i := range t.Does.On.GPUs {
		from := &t.Does.On.GPUs[i]
		to, ok := t.After.GPU(from.ID)
		told := slices.ContainsFunc(t.Does.GPUs, func(e change.GPUEffect) bool { return e.GPU == from.ID })
		if ok && (told || !sameLayout(from.Layout(), to.Layout())) {
			c.GPUs = append(c.GPUs, planreport.GPU{ID: from.ID, From: from.Layout(), To: to.Layout()})
		}
	}
	powers := map[string]gpu.Power{}
	for _, s := range change.OnHost(t.Does.Steps) {
		c.Steps = append(c.Steps, gpu.Printable(s.String()))
		if s.Op == change.OpStopVM && s.Power != nil {
			powers[gpu.FoldID(s.VM)] = *s.Power
		}
	}
	for _, s := range t.Does.Stops {
		c.Stops = append(c.Stops, planreport.Stop{
			VM: s.Name, VMID: s.VM, Host: t.Does.Host, StartsAgain: s.Starts, ShutdownSeconds: int(powers[gpu.FoldID(s.VM)].Timeout().Seconds()),
		})
	}
	for _, p := range t.Does.Ended {
		c.Ends = append(c.Ends, planreport.End{PID: p.PID, Name: p.Name, GPU: p.GPU})
	}
	c.Resets, c.Dismounts, c.Moves = append(c.Resets, t.Does.Resets...), t.Does.Dismounts, t.Does.Moves
	if t.Does.Drains {
		c.Drains = append(c.Drains, t.Does.Host)
	}
	return c
}

func sameLayout(a, b gpu.Layout) bool {
	text := func(l gpu.Layout) string {
		out := ""
		for _, kind := range gpu.Kinds() {
			out += l.Text(kind) + " "
		}
		return out
	}
	return text(a) == text(b)
}

// merged is a replacement of which nothing else comes between its two halves.
func merged(a, b planreport.Change) planreport.Change {
	for _, g := range b.GPUs {
		if i := slices.IndexFunc(a.GPUs, func(o planreport.GPU) bool { return o.ID == g.ID }); i >= 0 {
			a.GPUs[i].To = g.To
		} else {
			a.GPUs = append(a.GPUs, g)
		}
	}
	for _, s := range b.Stops {
		// One that is on again in between is off twice.
		if i := slices.IndexFunc(a.Stops, func(o planreport.Stop) bool { return o.VMID == s.VMID && !o.StartsAgain }); i >= 0 {
			a.Stops[i].StartsAgain = s.StartsAgain
		} else {
			a.Stops = append(a.Stops, s)
		}
	}
	a.Ends, a.Resets, a.Dismounts = append(a.Ends, b.Ends...), append(a.Resets, b.Resets...), append(a.Dismounts, b.Dismounts...)
	a.Drains, a.Moves, a.Steps = append(a.Drains, b.Drains...), append(a.Moves, b.Moves...), append(a.Steps, b.Steps...)
	a.LimitSeconds += b.LimitSeconds
	a.OnFailure, a.Refused = cmp.Or(a.OnFailure, b.OnFailure), cmp.Or(a.Refused, b.Refused)
	return a
}

// typeOf is the resource type of a plan of which only the book knows.
func typeOf(p change.Change) string {
	of, _, _ := strings.Cut(whatif.Label(p), " ")
	return of
}

// otherErrors are the errors that ended plans and that no rule found.
func (l *Ledger) otherErrors() []planreport.Finding {
	var out []planreport.Finding
	for _, instance := range slices.Sorted(maps.Keys(l.reported.planned)) {
		p := l.reported.planned[instance]
		for _, e := range p.Errors {
			known := func(f planreport.Finding) bool {
				return f.Level == string(rules.Error) && strings.Contains(e.Detail, f.Found)
			}
			is := planreport.Finding{Level: string(rules.Error), Subject: p.Label, Found: e.Summary}
			if e.Detail != "" {
				is.Found += ": " + e.Detail
			}
			again := strings.HasPrefix(e.Summary, rules.AlsoHere)
			if !again && !slices.ContainsFunc(l.reported.findings, known) && !slices.Contains(out, is) {
				out = append(out, is)
			}
		}
	}
	return out
}

// silentHosts tell of the hosts that did not answer.
func (f *Fleet) silentHosts() []planreport.Finding {
	var out []planreport.Finding
	for _, name := range f.names {
		if err := f.hosts[name].silence(); err != nil {
			level := rules.Error
			if f.GoesWithout(err) {
				level = rules.Warning
			}
			out = append(out, planreport.Finding{
				Level: string(level), Host: name, Subject: "host " + name, Found: gpu.Said("The host did not answer: "+err.Error(), gpu.MostSaid),
				Wanted: "The plan looks at every host that it concerns.", Fix: "Plan again once the host answers.",
			})
		}
	}
	return out
}

// onNoHost are the VMs of which a report cannot tell where they will be.
func onNoHost(r planreport.Report) []string {
	on := map[string]bool{}
	for i := range r.After.Hosts {
		for _, vm := range r.After.Hosts[i].VMs {
			on[gpu.FoldID(vm.ID)] = true
		}
	}
	var out []string
	for i := range r.Before.Hosts {
		for _, vm := range r.Before.Hosts[i].VMs {
			if !on[gpu.FoldID(vm.ID)] {
				out = append(out, vm.Name)
			}
		}
	}
	return out
}

// whyIncomplete says why the report is not all that an apply does.
func (f *Fleet) whyIncomplete(r planreport.Report) []string {
	var out []string
	say := func(text string) {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if f.Unknown() {
		say("Which hosts there are is known only after apply.")
	}
	for _, name := range f.names {
		if f.hosts[name].silence() != nil {
			say("Host " + name + " did not answer.")
		}
	}
	if slices.ContainsFunc(r.Findings, func(x planreport.Finding) bool { return x.Level == string(rules.Error) }) {
		say("The plan has errors, so that nothing of it can be applied.")
		return out
	}
	for _, vm := range onNoHost(r) {
		say("VM " + vm + " has to leave its node for a while and finds no room there afterwards: on which node it then is, the cluster decides.")
	}
	for _, c := range r.Changes {
		switch {
		case c.AfterApply:
			say("What " + c.Label + " does is known only after apply.")
		case c.Refused != "":
			say("What " + c.Label + " asks for is refused.")
		}
	}
	return out
}
