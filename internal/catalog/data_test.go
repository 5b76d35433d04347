package catalog

import (
	"encoding/json"
	"strings"
	"testing"
)

// What the file says and nobody reads, or what it refers to and does not have, is an error.
func TestTheFileIsReadStrictly(t *testing.T) {
	for name, tt := range map[string]struct{ from, to, says string }{
		"an unknown field":  {`"family":`, `"famly":`, `unknown field "famly"`},
		"a page":            {`{"page": "pci-list"`, `{"page": "pci-lists"`, `no page "pci-lists"`},
		"a table":           {`{"table": "A30"`, `{"table": "A31"`, `no table "A31"`},
		"a geometry":        {`"geometry": "four slices"`, `"geometry": "five slices"`, `geometry "five slices"`},
		"memory of a share": {`"gb": [6, 12, 24]`, `"gb": [6, 12]`, "does not tell the memory of share"},
		"what a page says": {
			`"fact": "Names, fractions of memory`, `"fact": "", "title": "Names, fractions of memory`, "does not say what it tells",
		},
		"no number as a size": {`"vram_gib": 24`, `"vram_gib": "24"`, "cannot unmarshal string"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(string(figures), tt.from, tt.to, 1)
			if text == string(figures) {
				t.Fatalf("the file does not have %s", tt.from)
			}
			if _, err := read([]byte(text)); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
}

// TestNothingInTheFileIsUnused has each page, geometry and table behind some model.
func TestNothingInTheFileIsUnused(t *testing.T) {
	var d document
	if err := json.Unmarshal(figures, &d); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	cites := func(list []citation) {
		for _, c := range list {
			used["page "+c.Page] = true
		}
	}
	for _, e := range d.Models {
		if cites(e.Sources); e.MIG != nil {
			cites(e.MIG.Sources)
			used["table "+e.MIG.Table] = true
			cites(d.Tables[e.MIG.Table].Sources)
			used["geometry "+d.Tables[e.MIG.Table].Geometry] = true
		}
	}
	for name := range d.Pages {
		if !used["page "+name] {
			t.Errorf("page %q is cited nowhere", name)
		}
	}
	for name := range d.Tables {
		if !used["table "+name] {
			t.Errorf("table %q is of no model", name)
		}
	}
	for name := range d.Geometries {
		if !used["geometry "+name] {
			t.Errorf("geometry %q is of no table", name)
		}
	}
}
