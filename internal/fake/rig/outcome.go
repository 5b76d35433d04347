package rig

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
)

// forPrograms are the commands whose outcome a CLI tells programs too, with -json.
var forPrograms = []string{"plan", "apply", "destroy", "refresh", "validate"}

// event is a line of what a CLI writes with -json, or all that it writes of a validation.
type event struct {
	Type       string
	Diagnostic diagnostic
	Change     *struct {
		Resource  struct{ Addr string }
		Action    string
		Reason    string
		Importing *struct{}
	}
	Hook struct {
		Resource struct{ Addr string }
		Action   tfjson.Action
	}
	Changes *struct {
		Import, Add, Change, Remove int
		Operation                   string
	}
	Outputs     map[string]struct{ Action string }
	Diagnostics []diagnostic // of a validation
}

type diagnostic struct {
	Severity, Summary, Detail, Address string
	Snippet                            struct{ Context, Code string }
}

// outcome reads what a CLI has written with -json. What is no JSON, such as a panic, is the answer.
func outcome(out string) core.Outcome {
	var o core.Outcome
	lines := slices.Collect(strings.Lines(out))
	if json.Valid([]byte(out)) { // a validation has several lines
		lines = []string{out}
	}
	for _, line := range lines {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			o.Answer += line
			continue
		}
		switch e.Type {
		case "diagnostic":
			o.Diagnostics = append(o.Diagnostics, e.Diagnostic.read())
		case "planned_change":
			action := e.Change.Action
			if action == string(tfjson.ActionNoop) || action == "noop" {
				if e.Change.Importing == nil {
					continue
				}
				action = "import"
			}
			o.Changes = append(o.Changes, core.Change{Address: e.Change.Resource.Addr, Action: action, Tainted: e.Change.Reason == "tainted"})
		case "apply_start", "apply_complete":
			o.Progress = append(o.Progress, core.Progress{Address: e.Hook.Resource.Addr, Action: e.Hook.Action, Done: e.Type == "apply_complete"})
		case "change_summary":
			n := &core.Counts{Import: e.Changes.Import, Add: e.Changes.Add, Change: e.Changes.Change, Destroy: e.Changes.Remove}
			if e.Changes.Operation == "plan" {
				o.Plan = n
			} else {
				o.Done = n
			}
		case "outputs":
			for _, x := range e.Outputs {
				o.Outputs = o.Outputs || x.Action != "" && x.Action != "noop"
			}
		case "":
			for _, d := range e.Diagnostics {
				o.Diagnostics = append(o.Diagnostics, d.read())
			}
		}
	}
	o.Diagnostics = slices.DeleteFunc(o.Diagnostics, func(d core.Diagnostic) bool {
		return d.Summary == "Provider development overrides are in effect"
	})
	return o
}

var (
	argument = regexp.MustCompile(`^\s*(\w+)\s*=`)
	inBlock  = regexp.MustCompile(`^(?:resource|(data)) "(\w+)" "(\w+)"$`)
)

func (d diagnostic) read() core.Diagnostic {
	out := core.Diagnostic{Warning: d.Severity == "warning", Summary: d.Summary, Detail: d.Detail, Address: d.Address}
	if m := inBlock.FindStringSubmatch(d.Snippet.Context); m != nil && out.Address == "" {
		out.Address = strings.TrimPrefix(m[1]+"."+m[2]+"."+m[3], ".")
	}
	if m := argument.FindStringSubmatch(d.Snippet.Code); m != nil {
		out.Attribute = m[1]
	}
	return out
}
