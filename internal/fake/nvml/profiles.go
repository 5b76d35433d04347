//go:build linux

package fakenvml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What an instance has of the media engines, as lib/records.h numbers it.
const (
	mediaNone = iota
	mediaShare
	mediaExtensions
	mediaAll
)

// media tells a profile's share of the media engines from its name.
func media(name string) int {
	switch {
	case strings.HasSuffix(name, "+me.all"):
		return mediaAll
	case strings.Contains(name, "+me"):
		return mediaExtensions
	case strings.HasSuffix(name, "-me"):
		return mediaNone
	default:
		return mediaShare
	}
}

// numbers are the values of NVML_GPU_INSTANCE_PROFILE_* by compute slices and what the
// profile has beyond them.
var numbers = map[string]int{
	"1": 0, "2": 1, "3": 2, "4": 3, "7": 4, "8": 5, "6": 6,
	"1+me": 7, "2+me": 8, "1 double": 9,
	"1+gfx": 10, "2+gfx": 11, "4+gfx": 12, "1-me": 13, "2-me": 14, "1+me.all": 15, "2+me.all": 16, "3+gfx": 17,
}

// profileRecords are the GPU's MIG profiles with what gpu.MIGProfile has no word for:
// NVML's number, and the engines, which are only roughly those of real cards.
func (g GPU) profileRecords(index int) ([]profileRecord, error) {
	var records []profileRecord
	used := map[int]string{}
	for _, p := range g.Profiles {
		number, ok := numbers[g.variant(p)]
		if !ok {
			return nil, fmt.Errorf("MIG profile %s: NVML has no number for one of %d slices like it", p.Name, p.Slices)
		}
		if other := used[number]; other != "" {
			return nil, fmt.Errorf("MIG profiles %s and %s have the same number in NVML, %d", other, p.Name, number)
		}
		used[number] = p.Name
		records = append(records, g.profileRecord(index, number, p))
	}
	slices.SortFunc(records, func(a, b profileRecord) int { return a.Number - b.Number })
	if !g.hasIDs() {
		for i := range records {
			records[i].ID = madeUpIDs + records[i].Number
		}
	}
	return records, nil
}

// madeUpIDs is where the ids of profiles begin whose real ones nobody documents.
const madeUpIDs = 100

// hasIDs says whether the profiles have ids that tell them apart.
func (g GPU) hasIDs() bool {
	seen := map[int]bool{}
	for _, p := range g.Profiles {
		seen[p.ID] = true
	}
	return len(seen) == len(g.Profiles)
}

// variant says what a profile is to NVML: "1+me".
func (g GPU) variant(p gpu.MIGProfile) string {
	v := fmt.Sprint(p.Slices)
	if i := strings.IndexAny(p.Name, "+-"); i >= 0 {
		return v + p.Name[i:]
	}
	for _, other := range g.Profiles {
		if other.Slices == p.Slices && other.Size < p.Size {
			return v + " double"
		}
	}
	return v
}

func (g GPU) profileRecord(index, number int, p gpu.MIGProfile) profileRecord {
	r := profileRecord{
		GPU: index, Number: number, ID: p.ID, Name: p.Name, Slices: p.Slices, Memory: int(p.Memory / gpu.MiB),
		SMs: p.Slices * cmp.Or(g.SliceSMs, 16), Copies: p.Slices,
		Media: media(p.Name), Graphics: strings.HasSuffix(p.Name, "+gfx"),
		Max: p.Max, Size: p.Size, Starts: p.Starts,
	}
	switch r.Media {
	case mediaShare:
		r.Decoders = p.Slices
		if cmp.Or(g.Arch, Hopper) == Ampere {
			r.Decoders = p.Slices * 5 / 7
		}
	case mediaExtensions, mediaAll:
		r.Decoders, r.JPEGs, r.OFAs = p.Slices, 1, 1
	}
	return r
}
