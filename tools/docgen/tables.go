package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// tables are what a template may ask for with a line `<!-- table: name -->`.
var tables = map[string]func() string{
	"rules":      rulesTable,
	"disruption": disruptionTable,
	"models":     modelsTable,
	"mig":        migTable,

	"environment": environmentTable,
	"imports":     importsTable,

	"empty objects": emptyObjectsTable,
}

const opening, closing = "<!-- table: ", " -->"

// fill replaces the marks in a template by their tables.
func fill(text string) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), opening)
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, closing)
		table, ok := tables[name]
		if !ok {
			return "", fmt.Errorf("there is no table %q", name)
		}
		lines[i] = table()
	}
	return strings.Join(lines, ""), nil
}

func rulesTable() string {
	var t table
	t.row("Rule", "What must hold", "Default", "Decided on", "Applies to", "Source")
	t.row("---", "---", "---", "---", "---", "---")
	for _, r := range rules.All() {
		scope, source := "the fleet", "this provider"
		if r.Scope == rules.HostScope {
			scope = "one host"
		}
		switch {
		case strings.Contains(r.Source, "nvidia.com"):
			source = "[NVIDIA](" + r.Source + ")"
		case strings.Contains(r.Source, "microsoft.com"):
			source = "[Microsoft](" + r.Source + ")"
		case strings.Contains(r.Source, "container-device-interface"):
			source = "[CDI](" + r.Source + ")"
		case r.Source != "":
			source = "[Source](" + r.Source + ")"
		}
		level := string(r.Default)
		switch {
		case r.Fixed:
			level += "; no level lifts it"
		case slices.Contains(change.RefusedAnyway(), r.ID):
			level += "; no level lifts what the host refuses"
		}
		var subjects []string
		for _, s := range r.Subjects {
			subjects = append(subjects, "`gpu_"+string(s)+"`")
		}
		t.row("`"+r.ID+"`", `<a id="`+r.ID+`"></a>`+r.Sentence, // findings link it
			level, scope, strings.Join(subjects, ", "), source)
	}
	return t.String()
}

func disruptionTable() string {
	var t table
	t.row("Change", "Idle GPU, or VM off", "Held GPU, or VM running")
	t.row("---", "---", "---")
	for _, d := range rules.DisruptionTable() {
		t.row(d.Change, "`"+d.Idle+"`", "`"+d.Held+"`")
	}
	return t.String()
}

// emptyObjectsTable has the objects that may have nothing in them.
func emptyObjectsTable() string {
	var t table
	t.row("Object", "With nothing in it")
	t.row("---", "---")
	for _, name := range slices.Sorted(maps.Keys(provider.EmptyObjects)) {
		of, path, _ := strings.Cut(name, " ")
		if kind, inner, isType := strings.Cut(path, " "); isType {
			of, path = of+" `"+kind+"`", inner
		}
		t.row("`"+path+"` of the "+of, provider.EmptyObjects[name])
	}
	return t.String()
}

// modelsTable has the models that are documented for Hyper-V.
func modelsTable() string {
	var t table
	var p pages
	t.row("Model", "Architecture", "Memory", "GPU-P", "Partition counts", "DDA", "Sources")
	t.row("---", "---", "---", "---", "---", "---", "---")
	for _, m := range catalog.All() {
		if m.HyperV() {
			t.row(m.Name, m.Family, m.VRAM.String(), yes(m.GPUP), counts(m), yes(m.DDA), p.cite(m.Sources))
		}
	}
	return t.String() + p.String()
}

// migTable has the models with MIG.
func migTable() string {
	var t table
	var p pages
	t.row("Model", "Architecture", "Memory slices", "Profiles", "Driver from", "Inferred", "Sources")
	t.row("---", "---", "---", "---", "---", "---", "---")
	for _, m := range catalog.All() {
		if m.MIG == nil {
			continue
		}
		var profiles, inferred []string
		for _, profile := range m.MIG.Profiles {
			profiles = append(profiles, fmt.Sprintf("%d × `%s`", profile.Max, profile.Name))
		}
		for _, fact := range []struct {
			inferred bool
			name     string
		}{{m.MIG.PlacementsInferred, "placements"}, {m.MIG.MemoryInferred, "memory"}} {
			if fact.inferred {
				inferred = append(inferred, fact.name)
			}
		}
		t.row(m.Name, m.Family, strconv.Itoa(m.MIG.Slices), strings.Join(profiles, ", "), m.MIG.MinDriver,
			strings.Join(inferred, ", "), p.cite(slices.Concat(m.MIG.Sources, m.Sources)))
	}
	return t.String() + p.String()
}

// pages numbers the pages that a table rests on.
type pages []string

// cite gives the numbers of some sources.
func (p *pages) cite(sources []catalog.Source) string {
	var numbers []int
	for _, s := range sources {
		page := fmt.Sprintf("[%s](%s)", s.Title, s.URL)
		i := slices.Index(*p, page)
		if i < 0 {
			i = len(*p)
			*p = append(*p, page)
		}
		numbers = append(numbers, i+1)
	}
	slices.Sort(numbers)
	return list(slices.Compact(numbers))
}

// String lists the pages.
func (p *pages) String() string {
	var b strings.Builder
	b.WriteString("\nSources:\n\n")
	for i, page := range *p {
		fmt.Fprintf(&b, "%d. %s\n", i+1, page)
	}
	return b.String()
}

func counts(m catalog.Model) string {
	if m.CountsInferred {
		return list(m.PartitionCounts) + " (inferred)"
	}
	return list(m.PartitionCounts)
}

func list(numbers []int) string {
	var out []string
	for _, n := range numbers {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ", ")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// table is a Markdown table.
type table struct{ strings.Builder }

func (t *table) row(cells ...string) {
	for _, c := range cells {
		t.WriteString("| ")
		t.WriteString(strings.ReplaceAll(c, "|", `\|`))
		t.WriteString(" ")
	}
	t.WriteString("|\n")
}
