package rules

import (
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
