package backend_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestNoBackendImportsAnother keeps what is shipped of each backend to itself. What two of them
// know of another program's files and commands is a package beside theirs.
func TestNoBackendImportsAnother(t *testing.T) {
	const backends = "github.com/gpufleet/terraform-provider-gpu/internal/backend/"
	seen := map[string]int{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		own, _, inside := strings.Cut(filepath.ToSlash(path), "/")
		if err != nil || !inside || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		seen[own]++
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			other, isBackend := strings.CutPrefix(name, backends)
			if other, _, _ = strings.Cut(other, "/"); isBackend && other != own {
				t.Errorf("%s imports backend %s", path, other)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []string{"hyperv", "nvidia", "simulated"} {
		if seen[own] < 10 {
			t.Errorf("%d files of backend %s were read", seen[own], own)
		}
	}
}
