package rules

import (
	"slices"
	"strings"
)

// Detail is the body of a diagnostic: where, what was found, what was wanted, how to
// fix it, and the rule's id to relax it by. The title is not repeated.
func (f Finding) Detail() string {
	var b strings.Builder
	line := func(name, text string) {
		if text == "" {
			return
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(name + ": " + text)
	}
	line("Where", f.where())
	line("Found", f.Found)
	line("Wanted", f.Wanted)
	if !strings.Contains(f.Found, f.Other) {
		line("Other side", f.Other)
	}
	line("Fix", f.Fix)
	if f.Stood {
		line("Note", "This stood before; the planned change neither causes nor worsens it.")
	}
	line("Rule", f.Rule)
	return b.String()
}

func (f Finding) where() string {
	var parts []string
	if f.Host != "" {
		parts = append(parts, hostText(f.Host))
	}
	if f.GPU != "" {
		parts = append(parts, "GPU "+f.GPU)
	}
	if f.VM != "" {
		parts = append(parts, "VM "+quote(f.VM))
	}
	return strings.Join(parts, ", ")
}

// HasErrors tells whether a finding stops the change.
func HasErrors(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Error })
}

// NotAnnounced is that a host, as it is by now, would be disturbed more than the plan has
// announced.
func NotAnnounced(host, what string) Finding {
	return Finding{
		Level: Error, Title: "The plan did not announce all that the apply would disturb", Host: host,
		Found: capital(what) + ". Since the state was read for this plan the host has changed, and nothing of this change was done.",
		Fix:   "Plan again, and apply what that plan says.",
	}
}
