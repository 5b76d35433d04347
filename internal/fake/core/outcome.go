package core

import (
	"fmt"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// Outcome is what has come of a command: what Terraform tells a program of it, with `-json`.
type Outcome struct {
	Diagnostics Diagnostics
	// Changes are those that a plan makes, and Plan is how many of each; nil if nothing was planned.
	Changes []Change
	Plan    *Counts
	// Outputs reports whether an output changes.
	Outputs bool
	// Progress is what an apply has begun and done, and Done is how much in the end; nil if it came to none.
	Progress []Progress
	Done     *Counts
	// Answer is what was asked for: outputs, the addresses in a state.
	Answer string
}

// Change is what a plan makes of an instance.
type Change struct {
	Address, Action string
	Tainted         bool // that is why it is replaced
}

// Progress is that a change of an instance begins, or is done.
type Progress struct {
	Address string
	Action  tfjson.Action
	Done    bool
}

// Counts are how many instances are changed in each way; a replacement is an addition and a destruction.
type Counts struct{ Import, Add, Change, Destroy int }

// Outcome is that of a plan that nobody has applied.
func (p *Plan) Outcome() Outcome {
	out := Outcome{Diagnostics: p.warnings, Plan: new(p.counts())}
	for _, c := range p.changes {
		switch {
		case c.action.replaces():
			out.Changes = append(out.Changes, Change{c.String(), "replace", c.reason == "tainted"})
		case c.action != noop:
			out.Changes = append(out.Changes, Change{Address: c.String(), Action: string(c.action.json()[0])})
		case c.importing != nil:
			out.Changes = append(out.Changes, Change{Address: c.String(), Action: "import"})
		}
	}
	for _, c := range p.outputChanges() {
		out.Outputs = out.Outputs || c.action != noop
	}
	return out
}

func (p *Plan) counts() Counts {
	var n Counts
	for _, c := range p.changes {
		switch {
		case c.action == create:
			n.Add++
		case c.action == update:
			n.Change++
		case c.action == remove:
			n.Destroy++
		case c.action.replaces():
			n.Add++
			n.Destroy++
		}
		if c.importing != nil {
			n.Import++
		}
	}
	return n
}

// String is the outcome in words of our own, for tests that look for some of them.
func (o Outcome) String() string {
	var b strings.Builder
	for _, c := range o.Changes {
		fmt.Fprintf(&b, "%s: %s%s\n", c.Address, c.Action, map[bool]string{true: ", tainted"}[c.Tainted])
	}
	switch n := o.Plan; {
	case n == nil:
	case *n == Counts{} && !o.Outputs && len(o.Changes) == 0:
		b.WriteString("No changes.\n")
	case n.Import > 0:
		fmt.Fprintf(&b, "Plan: %d to import, %d to add, %d to change, %d to destroy.\n", n.Import, n.Add, n.Change, n.Destroy)
	default:
		fmt.Fprintf(&b, "Plan: %d to add, %d to change, %d to destroy.\n", n.Add, n.Change, n.Destroy)
	}
	for _, x := range o.Progress {
		fmt.Fprintf(&b, "%s: %s %s\n", x.Address, x.Action, map[bool]string{false: "begins", true: "is done"}[x.Done])
	}
	b.WriteString(o.Diagnostics.String())
	if n := o.Done; n != nil {
		fmt.Fprintf(&b, "Done: %d imported, %d added, %d changed, %d destroyed.\n", n.Import, n.Add, n.Change, n.Destroy)
	}
	return b.String() + o.Answer
}
