package main

import (
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestList holds the list to the code: a place that has gone, or was rewritten, is an error.
func TestList(t *testing.T) {
	all := list()
	if len(all) < 60 {
		t.Errorf("the list has %d mutations, want 60 at least", len(all))
	}
	seen := map[string]bool{}
	for _, m := range all {
		if seen[m.name()] {
			t.Errorf("%s is there twice", m.name())
		}
		seen[m.name()] = true
	}
	places, err := locate("../..", all)
	if err != nil {
		t.Fatal(err)
	}
	files, err := broken(places)
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
			t.Error(err)
		}
	}
}

// A mutation that does not build would end `make mutate`.
func TestListBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds what has mutations once more: make lint")
	}
	t.Chdir("../..")
	overlay, err := writeOverlay(t.TempDir(), list())
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", overlay}
	for _, m := range list() {
		if at := "./" + m.in; !slices.Contains(args, at) {
			args = append(args, at)
		}
	}
	if out, err := goTool(t.Context(), args...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A new rule is a new place that matters.
func TestEveryRuleIsOnTheList(t *testing.T) {
	registry, err := os.ReadFile("../../internal/rules/registry.go")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range list() {
		listed[m.function] = true
	}
	found := regexp.MustCompile(`check: (check\w+)`).FindAllSubmatch(registry, -1)
	if len(found) < 50 {
		t.Fatalf("the registry names %d checks", len(found))
	}
	for _, m := range found {
		if !listed[string(m[1])] {
			t.Errorf("no mutation leaves out %s", m[1])
		}
	}
}
