package packaging_test

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "draw the picture of the architecture in CONTRIBUTING.md again")

// layers are the boxes of the picture, from the top. What is in none is a stand-in for tests, which nothing shipped imports.
var layers = []struct {
	title    string
	packages []string
}{
	{"programs", []string{"terraform-provider-gpu", "gpu-agent"}},
	{"Terraform", []string{"provider"}},
	{"many hosts", []string{"adopt", "fleet", "connect", "fleetmap"}},
	{"one host", []string{"agent"}},
	{"what may be, and what a change does: pure", []string{"rules", "whatif", "change", "fit", "placement"}},
	{"platforms", []string{"backend/hyperv", "backend/nvidia", "backend/simulated", "backend"}},
	{"files of other programs", []string{"cdi", "container", "deviceplugin", "dra", "lint", "migparted", "mpsconf", "slurm"}},
	{"vocabulary", []string{"assumptions", "catalog", "document", "gpu", "planreport", "utilization", "words"}},
}

// The picture is drawn from the imports, so that it stays true.
func TestPictureOfTheArchitecture(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- BEGIN_ARCHITECTURE -->\n", "<!-- END_ARCHITECTURE -->"
	text := read(t, "CONTRIBUTING.md")
	before, rest, _ := strings.Cut(text, begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("CONTRIBUTING.md has no place for the picture: %s", begin)
	}
	want := before + begin + "\n```mermaid\n" + drawn(t, imports(t)) + "```\n\n" + end + after
	if *update {
		if err := os.WriteFile(filepath.Join(root, "CONTRIBUTING.md"), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("the picture of the architecture is not up to date (-want +got); draw it again with\n"+
			"\tgo test ./test/packaging -run TestPictureOfTheArchitecture -update\n%s", diff)
	}
}

// imports are the packages that are shipped, each with those of ours that it imports on any system. Packages below another one
// are a part of it, but for backends.
func imports(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		importer := picturePackage(filepath.ToSlash(filepath.Dir(rel)))
		if importer == "" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		if all[importer] == nil {
			all[importer] = map[string]bool{}
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if dir, ours := strings.CutPrefix(path, "github.com/gpufleet/terraform-provider-gpu/"); ours {
				if imported := picturePackage(dir); imported != "" && imported != importer {
					all[importer][imported] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// picturePackage is the name in the picture of the package in a directory; empty for what is not shipped.
func picturePackage(dir string) string {
	parts := strings.Split(dir, "/")
	switch {
	case dir == ".":
		return "terraform-provider-gpu"
	case parts[0] == "cmd":
		return parts[1]
	case parts[0] != "internal" || parts[1] == "fake" || parts[1] == "conformance":
		return ""
	case parts[1] == "backend" && len(parts) > 2:
		return parts[1] + "/" + parts[2]
	}
	return parts[1]
}

// drawn is the picture in Mermaid's language: a box for each layer, and an arrow for each import that does not follow from others.
func drawn(t *testing.T, all map[string]map[string]bool) string {
	t.Helper()
	var picture strings.Builder
	picture.WriteString("flowchart TD\n")
	id := strings.NewReplacer("/", "_", "-", "_")
	var placed []string
	for i, layer := range layers {
		fmt.Fprintf(&picture, "  subgraph layer%d [\"%s\"]\n", i+1, layer.title)
		for _, name := range layer.packages {
			if all[name] == nil {
				t.Errorf("there is no package %s, which the layer %q names", name, layer.title)
			}
			fmt.Fprintf(&picture, "    %s[\"%s\"]\n", id.Replace(name), name)
		}
		picture.WriteString("  end\n")
		placed = append(placed, layer.packages...)
	}
	for _, importer := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(placed, importer) {
			t.Errorf("the package %s is in no layer: add it to one in layers", importer)
		}
	}
	for _, importer := range placed {
		for _, imported := range slices.Sorted(maps.Keys(all[importer])) {
			follows := false
			for other := range all[importer] {
				follows = follows || reaches(all, other, imported)
			}
			if !follows {
				fmt.Fprintf(&picture, "  %s --> %s\n", id.Replace(importer), id.Replace(imported))
			}
		}
	}
	return picture.String()
}

// reaches reports whether a package imports another one, directly or through others.
func reaches(all map[string]map[string]bool, from, to string) bool {
	for next := range all[from] {
		if next == to || reaches(all, next, to) {
			return true
		}
	}
	return false
}
