package catalog

import (
	"bytes"
	_ "embed" // for the catalog's figures
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// figures are all figures of the catalog, each beside where it is documented.
//
//go:embed catalog.json
var figures []byte

// document is the file. A note is for who reads it.
type document struct {
	Pages      map[string]page     `json:"pages"`
	Geometries map[string]geometry `json:"geometries"`
	Tables     map[string]table    `json:"tables"`
	Models     []entry             `json:"models"`
}

// page is where something is documented, and what it says, if that is one thing.
type page struct {
	Title string `json:"title"`
	URL   string `json:"url"`
	Fact  string `json:"fact,omitempty"`
}

type citation struct {
	Page string `json:"page"`
	Fact string `json:"fact,omitempty"`
}

// geometry is how profiles divide a GPU, whatever its memory.
type geometry struct {
	Note     string `json:"note,omitempty"`
	Slices   int    `json:"slices"`
	Profiles []struct {
		ID      int    `json:"id"`
		Compute int    `json:"compute"`
		Share   int    `json:"share"` // of the memory, as an index into what a table says of it
		Suffix  string `json:"suffix,omitempty"`
		Max     int    `json:"max"`
		Size    int    `json:"size"`
		Starts  []int  `json:"starts"`
	} `json:"profiles"`
}

// table is a geometry with the memory of its shares: as in the profiles' names, and as the
// driver lists it.
type table struct {
	Geometry           string     `json:"geometry"`
	GB                 []int      `json:"gb"`
	MiB                []int64    `json:"mib"`
	ModeNeedsReset     bool       `json:"mode_needs_reset,omitempty"`
	PlacementsInferred bool       `json:"placements_inferred,omitempty"`
	MemoryInferred     bool       `json:"memory_inferred,omitempty"`
	IDsInferred        bool       `json:"ids_inferred,omitempty"`
	IDsUnknown         bool       `json:"ids_unknown,omitempty"`
	Sources            []citation `json:"sources"`
}

type entry struct {
	Name            string   `json:"name"`
	Family          string   `json:"family"`
	Aliases         []string `json:"aliases,omitempty"`
	Devices         []string `json:"devices,omitempty"`
	Subsystems      []string `json:"subsystems,omitempty"`
	VRAM            int64    `json:"vram_gib"`
	Unified         bool     `json:"unified,omitempty"`
	GPUP            bool     `json:"gpu_p,omitempty"`
	DDA             bool     `json:"dda,omitempty"`
	PartitionCounts []int    `json:"partition_counts,omitempty"`
	CountsInferred  bool     `json:"counts_inferred,omitempty"`
	MIG             *struct {
		Table     string     `json:"table"`
		MinDriver string     `json:"min_driver,omitempty"`
		Sources   []citation `json:"sources,omitempty"`
	} `json:"mig,omitempty"`
	Note    string     `json:"note,omitempty"`
	Sources []citation `json:"sources"`
}

// models are all models, sorted by name.
var models = sync.OnceValue(func() []Model {
	out, err := read(figures)
	if err != nil {
		panic(err) // it is in the program
	}
	return out
})

func read(data []byte) ([]Model, error) {
	var d document
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(&d); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	var out []Model
	for _, e := range d.Models {
		m, err := d.model(e)
		if err != nil {
			return nil, fmt.Errorf("%s in the catalog: %w", e.Name, err)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (d *document) model(e entry) (Model, error) {
	m := Model{
		Name: e.Name, Vendor: nvidia, Family: e.Family, Aliases: e.Aliases, Devices: e.Devices, Subsystems: e.Subsystems,
		VRAM: gpu.FromMiB(e.VRAM * 1024), Unified: e.Unified, GPUP: e.GPUP, DDA: e.DDA, PartitionCounts: e.PartitionCounts,
		CountsInferred: e.CountsInferred,
	}
	var err error
	if m.Sources, err = d.cite(e.Sources); err != nil || e.MIG == nil {
		return m, err
	}
	t, ok := d.Tables[e.MIG.Table]
	g, known := d.Geometries[t.Geometry]
	if !ok || !known {
		return m, fmt.Errorf("no table %q or geometry %q", e.MIG.Table, t.Geometry)
	}
	m.MIG = &MIGTable{
		Slices: g.Slices, MinDriver: e.MIG.MinDriver, ModeNeedsReset: t.ModeNeedsReset,
		PlacementsInferred: t.PlacementsInferred, MemoryInferred: t.MemoryInferred, IDsInferred: t.IDsInferred, IDsUnknown: t.IDsUnknown,
	}
	for _, p := range g.Profiles {
		if p.Share < 0 || p.Share >= len(t.GB) || len(t.GB) != len(t.MiB) {
			return m, fmt.Errorf("table %q does not tell the memory of share %d", e.MIG.Table, p.Share)
		}
		m.MIG.Profiles = append(m.MIG.Profiles, gpu.MIGProfile{
			ID: p.ID, Name: fmt.Sprintf("%dg.%dgb%s", p.Compute, t.GB[p.Share], p.Suffix), Slices: p.Compute,
			Memory: gpu.FromMiB(t.MiB[p.Share]), Max: p.Max, Size: p.Size, Starts: p.Starts,
		})
	}
	m.MIG.Sources, err = d.cite(slices.Concat(t.Sources, e.MIG.Sources))
	return m, err
}

// cite looks the pages of citations up.
func (d *document) cite(list []citation) ([]Source, error) {
	var out []Source
	for _, c := range list {
		p, ok := d.Pages[c.Page]
		if c.Fact == "" {
			c.Fact = p.Fact
		}
		if !ok || c.Fact == "" {
			return nil, fmt.Errorf("no page %q, or it does not say what it tells", c.Page)
		}
		out = append(out, Source{Fact: c.Fact, Title: p.Title, URL: p.URL})
	}
	return out, nil
}
