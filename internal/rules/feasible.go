package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// Feasible is the id of the rule that has what the other rules do not say.
const Feasible = "feasible-on-host"

// checkFeasible asks the planner whether each host can do what the plan wants of it.
func checkFeasible(r *run) {
	if r.Mode.Past || r.Mode.OnHost {
		return
	}
	for _, host := range r.Asked() {
		h := r.At(host)
		if !r.Plan.Unchanged {
			if o := r.Obstacle(host, h, r.Plan); o.Refused != nil && (!o.Open || !r.Mode.Yielding) {
				reportRefused(r, host, o.Refused)
			}
		}
		if r.Only != nil {
			continue
		}
		for _, o := range r.TooLate(host, h) {
			f := comesTooLate(o)
			f.Path = pathOf(r.Plan)
			r.report(f, key("overtaken", host, f.Found))
		}
	}
	if r.Only == nil {
		for _, o := range r.Drains().Orders() {
			f := drainComesLate(r.Plan, o)
			f.Path = pathOf(r.Plan)
			r.report(f, key("drain order", f.Host, f.Found))
		}
	}
}

// comesTooLate says that a host refuses a plan once another one is made, or that how a GPU is shared
// hangs on which of the two is made first.
func comesTooLate(o whatif.TooLate) Finding {
	if o.Refused == nil {
		return leavesOver(o)
	}
	f := Refused(o.Host, o.Late, o.Refused)
	f.Title, f.Wanted, f.Fix = "The change may come too late", eitherFirst, "Make one of the two in an apply of its own first."
	if o.Late.Want.Empty() {
		f.Title, f.Fix = "The destroy may come too late",
			"Destroy it first, in an apply of its own, or keep what it made: `on_destroy = \"keep\"`."
	} else if a := o.First.Want.Assignment; a != nil && a.Partition != nil && o.Late.Want.Config != nil {
		f.Fix = configFirst(a.Partition)
	}
	f.Found = fmt.Sprintf("If %s is %s before %s is %s, the host refuses the latter. %s", whatif.Label(o.First),
		done(o.First), whatif.Label(o.Late), done(o.Late), f.Found)
	return f
}

const (
	eitherFirst = "Nothing says which of the two comes first."
)

// configFirst is the advice to refer to a config, so that Terraform makes it before the assignment.
func configFirst(p *gpu.PartitionWant) string {
	if len(p.ConfigIDs()) > 0 {
		return "Write `partition = { configs = [...] }` with the id of the config and those that are named already, so that all of them " +
			"come first."
	}
	return "Write `partition = { config = ... }` with the id of the config, so that the config comes first."
}

// done is what becomes of a resource by a plan.
func done(p change.Change) string {
	switch {
	case p.Want.Empty():
		return "destroyed"
	case p.Prior.Empty():
		return "created"
	}
	return "changed"
}

func leavesOver(o whatif.TooLate) Finding {
	f := Finding{Rule: Feasible, Level: Error, Host: o.Host, GPU: o.GPU.ID, Wanted: eitherFirst}
	if o.Instances {
		f.Title = "The order of two changes decides the layout"
		f.Found = fmt.Sprintf("If %s is %s first, %s gets other GPU instances than if %s is %s first.",
			whatif.Label(o.Late), done(o.Late), gpuText(o.GPU), whatif.Label(o.First), done(o.First))
		f.Fix = "Make one of the two in an apply of its own first, or declare `mig.placements`."
		return f
	}
	does := "covers it"
	if !gpu.HasID(o.First.Want.Config.GPUs[o.Host], o.GPU.ID) {
		does = "changes its MPS daemon"
	}
	f.Title = "The order of two configs decides the layout"
	f.Found = fmt.Sprintf("%s releases %s and keeps its sharing mode, and %s %s in the same run.",
		whatif.Label(o.Late), gpuText(o.GPU), whatif.Label(o.First), does)
	f.Fix = "Release it in an apply of its own first, or with `on_destroy = \"restore\"`, which restores the sharing mode from before."
	return f
}

// drainComesLate says that a config drains a node or not, as it comes before or after another plan.
func drainComesLate(checked change.Change, o whatif.DrainOrder) Finding {
	f := Finding{
		Rule: Feasible, Level: Warning, Title: "A node may be drained", Host: o.Then.Host, Other: whatif.Label(o.First), Wanted: eitherFirst,
		Found: fmt.Sprintf("the node is drained: live migration moves these VMs to other nodes of the cluster meanwhile: %s.",
			joinAll(quoteAll(o.Then.Moves))),
		Fix: "If they are to stay, make one of the two in an apply of its own first.",
	}
	if o.TooLate {
		what := "the host refuses it"
		if len(o.Then.Refused) == 0 {
			what = "these VMs are shut down: " + joinAll(quoteAll(o.Then.StopNames()))
		}
		f.Level, f.Title = Error, "The drain may come too late"
		f.Found = fmt.Sprintf("the node is not drained (%s), and %s.", o.Then.Undrained, what)
		f.Fix = "Make one of the two in an apply of its own first."
	}
	f.Found = fmt.Sprintf("If %s is %s before %s is %s, %s", whatif.Label(o.First), done(o.First),
		whatif.Label(o.Config), done(o.Config), f.Found)
	if a := o.First.Want.Assignment; a != nil && a.Partition != nil {
		f.Fix = configFirst(a.Partition)
	}
	if checked.Token == o.First.Token {
		f.Other = whatif.Label(o.Config)
	}
	return f
}

// Infeasible is what hosts would refuse of a plan, unless another plan of the run, or one
// that is still to come, makes way for it.
func Infeasible(w World, p change.Change) []Finding {
	r, done := begin(w, p)
	defer done()
	var out []Finding
	for _, host := range r.HostsOf(p) {
		if o := r.Obstacle(host, r.At(host), p); o.Refused != nil {
			out = append(out, Refused(host, p, o.Refused))
		}
	}
	return out
}

func reportRefused(r *run, host string, refused *gpu.Refusal) {
	f := Refused(host, r.Plan, refused)
	f.Path = pathOf(r.Plan)
	// What is to be put right stood before. What holds an object that is made anew may be made anew with it, which Terraform
	// asks for only where no error was found before.
	if whatif.Repairs(r.Plan) || whatif.MadeAnew(r.Plan) {
		f.Level = Warning
	}
	r.report(f, key(Feasible, host))
	r.found[len(r.found)-1].same = refused.Rule // one that is relaxed
}

// pathOf is the attribute that a finding about a plan as a whole is about.
func pathOf(p change.Change) string {
	w := p.Want
	if w.Empty() {
		w = p.Prior
	}
	switch {
	case w.Assignment != nil:
		return "vm"
	case w.Pool != nil:
		return "members"
	}
	return "name"
}
