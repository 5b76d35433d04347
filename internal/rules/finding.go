package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Detail is the body of a diagnostic: where, what was found and what it means for the plan,
// how to fix it, and the rule's id to relax it by. Nothing is said twice: neither the title
// nor a place that the text names.
func (f Finding) Detail() string {
	if f.Again {
		return "" // the run has told it
	}
	found := strings.TrimSpace(f.Found + " " + f.Wanted)
	var lines []string
	line := func(name, text string) {
		if text != "" {
			lines = append(lines, name+": "+text)
		}
	}
	line("Where", f.where(found))
	line("Found", found)
	if f.Other != f.Of && !strings.Contains(found, f.Other) {
		line("Other side", f.Other)
	}
	line("Fix", f.Fix)
	if f.Stood {
		line("Note", "This was so before; the planned change neither causes it nor makes it worse.")
	}
	if f.Rule != "" {
		line("Rule", f.Rule+" ("+page+f.Rule+")")
	}
	line("If this is intended", f.relax())
	return strings.Join(lines, "\n")
}

// page has every rule.
const page = "https://registry.terraform.io/providers/gpufleet/gpu/latest/docs/guides/rules#"

// relax is how people who know better go on; "" where no level helps.
func (f Finding) relax() string {
	at := slices.IndexFunc(registry, func(r Rule) bool { return r.ID == f.Rule })
	if f.Stood || at < 0 || !registry[at].Lenient {
		return ""
	}
	to := Warning
	if f.Level == Warning {
		if registry[at].Default != Warning {
			return "" // no error is a warning already
		}
		to = Off
	}
	return fmt.Sprintf("`rules = { %q = %q }` in the provider's configuration.", f.Rule, string(to))
}

// AlsoHere begins the summary of a finding whose cause the run has told.
const AlsoHere = "Also here: "

// Summary is that of a diagnostic. Terraform shows one of several warnings that have the same, so that it is another one
// where the detail is short.
func (f Finding) Summary() string {
	if f.Again {
		return AlsoHere + f.Title
	}
	return f.Title
}

// Cause is the same for findings of a run that have one cause: all that they say but the names of what they are about.
// label is the resource whose plan tells it.
func (f Finding) Cause(label string) string {
	if f.Contended != "" {
		return key(f.Rule, f.Title, f.Contended)
	}
	label = cmp.Or(f.Of, label)
	names := []string{label, "it"}
	if name := quotedIn(label); name != "" {
		names = append(names, name, "it")
	}
	if f.VM != "" { // its host says where it is; elsewhere the host is what the finding is about
		names = append(names, quote(f.VM), "it", quote(f.Host), "there")
	}
	return strings.NewReplacer(names...).Replace(strings.Join([]string{f.Rule, string(f.Level), f.Title, f.Found, f.Wanted, f.Fix}, "\x00"))
}

// quotedIn is the first quoted name of a label, such as that of `gpu_share "a" on gpu01`; "" for none.
func quotedIn(label string) string {
	from := strings.IndexByte(label, '"')
	if from < 0 {
		return ""
	}
	name, err := strconv.QuotedPrefix(label[from:])
	if err != nil {
		return ""
	}
	return name
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
