package rules

import (
	"slices"
	"strings"
)

// Detail is the body of a diagnostic: where, what was found and what it means for the plan,
// how to fix it, and the rule's id to relax it by. Nothing is said twice: neither the title
// nor a place that the text names.
func (f Finding) Detail() string {
	found := strings.TrimSpace(f.Found + " " + f.Wanted)
	var lines []string
	line := func(name, text string) {
		if text != "" {
			lines = append(lines, name+": "+text)
		}
	}
	line("Where", f.where(found))
	line("Found", found)
	if !strings.Contains(found, f.Other) {
		line("Other side", f.Other)
	}
	line("Fix", f.Fix)
	if f.Stood {
		line("Note", "This was so before; the planned change neither causes it nor makes it worse.")
	}
	line("Rule", f.Rule)
	return strings.Join(lines, "\n")
}

// where names the place of a finding, without what its text names.
func (f Finding) where(text string) string {
	var parts []string
	if f.Host != "" && !strings.Contains(text, quote(f.Host)) {
		parts = append(parts, hostText(f.Host))
	}
	if f.GPU != "" && !strings.Contains(text, f.GPU) {
		parts = append(parts, "GPU "+f.GPU)
	}
	if f.VM != "" && !strings.Contains(text, quote(f.VM)) {
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
		Level: Error, Title: "The apply would disturb more than the plan announced", Host: host,
		Found: capital(what) + ". The host has changed since this plan read it, and nothing of this change was done.",
		Fix:   "Plan again, without `-refresh=false`, and apply what that plan says.",
	}
}
