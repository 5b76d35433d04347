// Package golden compares formats with what was committed of them, and tells a change that
// older versions live with from one that they do not.
package golden

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Update is the environment variable by which the files are written instead: "yes", if the
// change is compatible, or "breaking", if it need not be. `make golden` sets it.
const Update = "GPU_TEST_GOLDEN"

// Document compares what a build knows of documents, as document.Knowledge describes it. What
// is new has to be optional; nothing goes or changes.
func Document(t *testing.T, file, description string) {
	t.Helper()
	compare(t, file, description, lines, inDocuments)
}

// Schema compares a Terraform schema, as `terraform providers schema -json` prints it. What is
// new is not required, unless it is in something new; nothing goes or changes, but that what
// was required may become optional.
func Schema(t *testing.T, file string, schema []byte) {
	t.Helper()
	compare(t, file, string(schema), leaves, inSchemas)
}

// inDocuments are the lines of a change that other versions do not live with.
func inDocuments(removed, added []string) []string {
	breaks := signed("-", removed)
	for _, line := range added {
		path, shape, _ := strings.Cut(line, ": ")
		inNew := slices.ContainsFunc(added, func(other string) bool {
			o, _, _ := strings.Cut(other, ": ")
			return strings.HasPrefix(path, o+".") || strings.HasPrefix(path, o+"=")
		})
		if shape != "value" && !strings.HasSuffix(shape, ", optional") && !inNew {
			breaks = append(breaks, "+ "+line)
		}
	}
	return breaks
}

func inSchemas(removed, added []string) (breaks []string) {
	const required, optional = ".required: true", ".optional: true"
	for _, line := range removed {
		if path, was := strings.CutSuffix(line, required); !was || !slices.Contains(added, path+optional) {
			breaks = append(breaks, "- "+line)
		}
	}
	for _, line := range added {
		path, is := strings.CutSuffix(line, required)
		parent := strings.TrimSuffix(path[:max(strings.LastIndex(path, ".attributes."), 0)], ".block")
		isNew := slices.ContainsFunc(added, func(o string) bool {
			return strings.HasPrefix(o, parent+".nesting_mode: ") || strings.HasPrefix(o, parent+".version: ")
		})
		if is && !isNew {
			breaks = append(breaks, "+ "+line)
		}
	}
	return breaks
}

func compare(t *testing.T, file, got string, split func(string) []string, breaking func(removed, added []string) []string) {
	t.Helper()
	file = filepath.Join("testdata", file)
	committed, err := os.ReadFile(file)
	if err != nil && (!os.IsNotExist(err) || os.Getenv(Update) == "") {
		t.Fatal(err)
	}
	was, is := split(string(committed)), split(got)
	removed, added := without(was, is), without(is, was)
	var breaks []string
	if len(committed) > 0 {
		breaks = breaking(removed, added)
	}
	switch {
	case string(committed) == got:
	case os.Getenv(Update) == "breaking", os.Getenv(Update) == "yes" && len(breaks) == 0:
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	case len(breaks) > 0:
		t.Errorf("%s: other versions do not live with this change; the guide on upgrades says what may change in which release, and `make "+
			"golden BREAKING=1` accepts it:\n%s", file, strings.Join(breaks, "\n"))
	default:
		t.Errorf("%s: the format has changed, in a way that other versions live with; `make golden` accepts it:\n%s",
			file, strings.Join(append(signed("-", removed), signed("+", added)...), "\n"))
	}
}

func signed(sign string, lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, sign+" "+l)
	}
	return out
}

// without are the lines of a that are not in b.
func without(a, b []string) []string {
	in := make(map[string]bool, len(b))
	for _, l := range b {
		in[l] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(l string) bool { return in[l] })
}

func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// leaves are the values of a JSON document, each with its path.
func leaves(text string) []string {
	var doc any
	if json.Unmarshal([]byte(text), &doc) != nil {
		return lines(text)
	}
	var out []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		m, ok := v.(map[string]any)
		for name, field := range m {
			walk(path+"."+name, field)
		}
		if !ok {
			out = append(out, fmt.Sprintf("%s: %v", path, v))
		}
	}
	walk("", doc)
	slices.Sort(out)
	return out
}
