package provider_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/core"
)

var update = flag.Bool("update", false, "write testdata/diagnostics.golden again, from the file that "+core.Record+" names")

// TestDiagnosticsAsRead holds every diagnostic that the provider's code writes, and every
// refusal of the planner, to a file that people have read: an example of each that tests came
// by, or else what the code has, with "…" for what it fills in. To write it again:
//
//	make messages
//
// Findings of rules are in internal/rules/testdata/findings.golden.
func TestDiagnosticsAsRead(t *testing.T) {
	t.Parallel()
	golden := filepath.Join("testdata", "diagnostics.golden")
	sites := slices.Concat(written(t, "."), refusals(t, "../change"))
	if len(sites) < 120 {
		t.Fatalf("found %d places that write diagnostics", len(sites))
	}
	if *update {
		rewrite(t, golden, sites)
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.SplitAfter(string(text), between)
	examples = examples[:len(examples)-1]
	used := map[int]bool{}
	for _, s := range sites {
		found := false
		for i, e := range examples {
			if s.wrote(strings.TrimSuffix(e, between)) {
				found, used[i] = true, true
			}
		}
		if !found {
			t.Errorf("%s: %s does not have\n%s", s.at, golden, s.template)
		}
	}
	for i, e := range examples {
		if !used[i] {
			t.Errorf("nothing writes this any more:\n%s", e)
		}
	}
}

const between = "\n" + "----------------------------------------" + "\n"

// site is a place in the code that writes a diagnostic.
type site struct {
	at      string
	pattern *regexp.Regexp // of an example
	// template is what the code has, with "…" for what it fills in.
	template string
}

func (s site) wrote(example string) bool {
	return example == s.template || !strings.HasPrefix(example, unfilled) && s.pattern.MatchString(example)
}

// unfilled begins a template.
const unfilled = "template: "

// rewrite keeps of all that tests came by one example of each place, and the template of a place
// that they did not come by. The example that people have read already stays if it was said again.
func rewrite(t *testing.T, golden string, sites []site) {
	t.Helper()
	old, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	read := strings.Split(string(old), between)
	said := map[string]bool{}
	for _, e := range slices.Concat(refused(t), told(t)) {
		said[e] = true
	}
	f, err := os.Open(os.Getenv(core.Record))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var d core.Recorded
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		level := map[bool]string{true: "warning", false: "error"}[d.Warning]
		said[neutral(fmt.Sprintf("%s: %s\n\n%s\n", level, d.Summary, d.Detail))] = true
	}
	all := slices.SortedFunc(maps.Keys(said), cmpLength)
	kept := map[string]bool{}
	for _, s := range sites {
		var by []string
		for _, e := range all {
			if s.wrote(e) {
				by = append(by, e)
			}
		}
		at := max(0, slices.IndexFunc(by, func(e string) bool { return slices.Contains(read, e) }))
		if len(by) == 0 { // a test with a real CLI may have come by it
			by = append(slices.DeleteFunc(slices.Clone(read), func(e string) bool { return !s.wrote(e) }), s.template)
		}
		kept[by[at]] = true
	}
	var b strings.Builder
	for _, e := range slices.Sorted(maps.Keys(kept)) {
		b.WriteString(e + between)
	}
	if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func cmpLength(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// variable is what differs from run to run.
var variable = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`/tmp/[^\s"]*/`), "/tmp/"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:4711"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "2026-08-01T12:00:00Z"},
	{regexp.MustCompile(`process \d+`), "process 4711"},
	{regexp.MustCompile(`PID \d+`), "PID 4711"},
	{regexp.MustCompile(`instance [0-9a-f-]{36}`), "instance 0f1e2d3c-0000-4000-8000-000000000000"},
}

func neutral(text string) string {
	for _, v := range variable {
		text = v.pattern.ReplaceAllString(text, v.by)
	}
	return text
}

// written are the calls below a folder that add an error or a warning.
func written(t *testing.T, root string) []site {
	t.Helper()
	var out []site
	each(t, root, func(at string, call *ast.CallExpr) {
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return
		}
		args := call.Args
		switch fun.Sel.Name {
		case "AddAttributeError", "AddAttributeWarning":
			args = args[1:]
		case "AddError", "AddWarning", "NewErrorDiagnostic":
		default:
			return
		}
		if len(args) != 2 {
			return
		}
		summary, literal := patternOf(args[0])
		if !literal {
			return // a finding of a rule, or a summary that another place chooses
		}
		detail, _ := patternOf(args[1])
		out = append(out, site{
			at: at, pattern: regexp.MustCompile(`(?s)^(error|warning): ` + summary + "\n\n" + detail + "\n$"),
			template: unfilled + textOf(args[0]) + "\n\n" + textOf(args[1]) + "\n",
		})
	})
	return out
}

// refusals are the calls that refuse a change, with the ways out of them.
func refusals(t *testing.T, root string) []site {
	t.Helper()
	var out []site
	fixes := map[*ast.CallExpr]string{}
	each(t, root, func(at string, call *ast.CallExpr) {
		switch fun := call.Fun.(type) {
		case *ast.SelectorExpr: // refuse(...).or("fix"), which comes before what it is called on
			if inner, ok := fun.X.(*ast.CallExpr); ok {
				fixes[inner] = fixes[call]
				if fun.Sel.Name == "or" {
					fixes[inner] = "\nFix: " + textOf(call.Args[0])
				}
			}
		case *ast.Ident:
			of, isRefusal := map[string]string{"refuse": " of ", "refuseGPU": " of GPU "}[fun.Name]
			if !isRefusal || len(call.Args) < 4 {
				return
			}
			found, literal := patternOf(call.Args[3])
			if text := textOf(call.Args[3]); literal && strings.Contains(text, " ") { // else the words are those of internal/placement
				out = append(out, site{
					at: at, pattern: regexp.MustCompile(`(?s)` + found),
					template: unfilled + "the planner refuses to " + textOf(call.Args[1]) + of + textOf(call.Args[2]) +
						"\n\nFound: " + text + fixes[call] + "\n",
				})
			}
		}
	})
	return out
}

func each(t *testing.T, root string, visit func(at string, call *ast.CallExpr)) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				visit(set.Position(call.Pos()).String(), call)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var verb = regexp.MustCompile(`%[-+# 0-9.\[\]]*[a-zA-Z]`)

// patternOf is a regular expression of the texts that an expression can have, and whether
// it has any words.
func patternOf(e ast.Expr) (pattern string, literal bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return quoted(text), err == nil
	case *ast.BinaryExpr:
		x, a := patternOf(e.X)
		y, b := patternOf(e.Y)
		return x + y, a || b
	case *ast.CallExpr:
		if fun, ok := e.Fun.(*ast.SelectorExpr); ok && fun.Sel.Name == "Sprintf" {
			return patternOf(e.Args[0])
		}
	case *ast.ParenExpr:
		return patternOf(e.X)
	}
	return ".*", false
}

func quoted(text string) string {
	var b strings.Builder
	for _, part := range verb.Split(strings.ReplaceAll(text, "%%", "\x00"), -1) {
		b.WriteString(".*" + regexp.QuoteMeta(strings.ReplaceAll(part, "\x00", "%")))
	}
	return strings.TrimPrefix(b.String(), ".*")
}

// textOf is the text that an expression makes, with "…" for what is filled in.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return verb.ReplaceAllString(text, "…")
		}
	case *ast.BinaryExpr:
		return textOf(e.X) + textOf(e.Y)
	case *ast.CallExpr:
		if fun, ok := e.Fun.(*ast.SelectorExpr); ok && fun.Sel.Name == "Sprintf" {
			return textOf(e.Args[0])
		}
	case *ast.ParenExpr:
		return textOf(e.X)
	}
	return "…"
}
