package assumptions_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/assumptions"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const root = "../.."

func all() []assumptions.Assumption {
	return slices.Concat(assumptions.Of(gpu.HyperV), assumptions.Of(gpu.Linux))
}

func TestList(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range all() {
		if seen[a.ID] || !strings.HasPrefix(a.ID, string(a.Platform)+"-") {
			t.Errorf("%s is there twice, or not named after its platform %s", a.ID, a.Platform)
		}
		seen[a.ID] = true
		if a.Says == "" || a.Source == "" || a.Answered == "" || len(a.Where) == 0 {
			t.Errorf("%s is not complete: %+v", a.ID, a)
		}
		if a.Asked == (a.Unasked != "") {
			t.Errorf("%s is asked by reading: %t, and why not: %q", a.ID, a.Asked, a.Unasked)
		}
		for _, file := range a.Where {
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil || !strings.Contains(string(text), a.ID) {
				t.Errorf("%s does not name %s: %v", file, a.ID, err)
			}
		}
	}
}

// TestNamed finds assumptions that the code names, and only the list may have.
func TestNamed(t *testing.T) {
	named := regexp.MustCompile(`[Aa]ssumption\s+(?://\s*)?((?:hyperv|linux)-[a-z0-9-]+)`)
	found := 0
	for _, dir := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.Contains(path, "assumptions") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				found++
				list := all()
				i := slices.IndexFunc(list, func(a assumptions.Assumption) bool { return a.ID == m[1] })
				file, err := filepath.Rel(root, path)
				if err != nil {
					return err
				}
				if i < 0 || !slices.Contains(list[i].Where, filepath.ToSlash(file)) {
					t.Errorf("%s relies on %s, which the list does not say", path, m[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := len(all()); found < want {
		t.Errorf("the code names %d assumptions, and the list has %d", found, want)
	}
}
