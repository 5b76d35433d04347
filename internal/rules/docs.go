package rules

import (
	"fmt"
	"strings"
)

// Docs is the registry as a page of documentation in Markdown: every rule, and what
// changes disturb.
func Docs() string {
	var b strings.Builder
	b.WriteString(`# Rules

Every rule is checked at plan, before anything is touched. Rules that one host can decide are checked again on the host at apply.
A violation that stood before a change, and that the change does not worsen, is at most a warning.
The provider attribute ` + "`rules`" + ` sets the level of a rule to ` + "`error`, `warning` or `off`" + `:

` + "```hcl" + `
provider "gpu" {
  rules = {
    "homogeneous-gpus"  = "warning"
    "failover-headroom" = "off"
  }
}
` + "```" + `

| Rule | What must hold | Default | Decided on | Applies to | Source |
|---|---|---|---|---|---|
`)
	for _, r := range registry {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", r.ID, cell(r.Sentence), r.Default, scopeText(r.Scope), subjectsText(r), sourceText(r.Source))
	}
	b.WriteString(`
## What a change disturbs

` + "`max_disruption`" + ` of a partition config, and ` + "`power`" + ` of each VM's assignment, must allow what the last column says.

| Change | Idle, or VM off | Held by running VMs, or VM runs |
|---|---|---|
`)
	for _, d := range DisruptionTable() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(d.Change), d.Idle, d.Held)
	}
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func scopeText(s Scope) string {
	if s == HostScope {
		return "one host"
	}
	return "the fleet"
}

func subjectsText(r Rule) string {
	out := make([]string, len(r.Subjects))
	for i, k := range r.Subjects {
		out[i] = "`gpu_" + string(k) + "`"
	}
	return strings.Join(out, ", ")
}

func sourceText(url string) string {
	if url == "" {
		return "this provider"
	}
	return "[Microsoft](" + url + ")"
}
