package vgpu

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Type is a vGPU type of one GPU. Ids belong to a GPU model: the same number is another
// type on another card.
type Type struct {
	ID int `json:"id"`
	// Name is the driver's, "NVIDIA L40S-2Q"; "" when an id in use cannot be resolved.
	Name        string    `json:"name"`
	FrameBuffer gpu.Bytes `json:"frame_buffer,omitempty"`
	// Max is how many an empty GPU takes when all are of this type; 0 when not told.
	Max int `json:"max,omitempty"`
	// MaxPerVM is how many of it one VM takes; 0 when not told.
	MaxPerVM int `json:"max_per_vm,omitempty"`
	// Instance is the MIG profile that the type lives in, "1g.18gb"; "" for a type that
	// shares the GPU by time slices, or when not told.
	Instance string `json:"instance,omitempty"`
}

// typeName takes apart L40S-2Q, M60-0Q, P100-2B4 and, with the compute slices first,
// H200X-1-18C and A100D-1-10CME.
var typeName = regexp.MustCompile(`-(?:(\d+)-)?(\d+)[ABCQ]\d*[A-Z]*$`)

// ShortName is the name without the vendor: "L40S-2Q".
func (t Type) ShortName() string {
	name := strings.TrimPrefix(strings.TrimPrefix(t.Name, "NVIDIA "), "GRID ")
	if name == "" {
		return fmt.Sprintf("type %d", t.ID)
	}
	return name
}

// MIGBacked tells whether vGPUs of the type live in MIG instances.
func (t Type) MIGBacked() bool {
	m := typeName.FindStringSubmatch(t.Name)
	return t.Instance != "" || m != nil && m[1] != ""
}

// complete fills the frame buffer from the name, which is in GiB; 0 is half of one.
func (t Type) complete() Type {
	if m := typeName.FindStringSubmatch(t.Name); t.FrameBuffer == 0 && m != nil {
		if gib, err := strconv.ParseUint(m[2], 10, 16); err == nil {
			t.FrameBuffer = gpu.Bytes(gib) * 1024 * gpu.MiB
			if gib == 0 {
				t.FrameBuffer = 512 * gpu.MiB
			}
		}
	}
	return t
}

// named tells whether people may mean the type by the name: the driver's name, without
// the vendor, or only its last word ("DC-1-24Q").
func (t Type) named(name string) bool {
	short := t.ShortName()
	fields := strings.Fields(short)
	return strings.EqualFold(name, t.Name) || strings.EqualFold(name, short) ||
		strings.EqualFold(name, fields[len(fields)-1])
}

// Find finds the type that a name means on this GPU.
func (g *GPU) Find(name string) (Type, bool) {
	i := slices.IndexFunc(g.Types, func(t Type) bool { return t.Name != "" && t.named(name) })
	if name == "" || i < 0 {
		return Type{}, false
	}
	return g.Types[i], true
}

// typeByID resolves an id by the GPU's own list.
func (g *GPU) typeByID(id int) Type {
	if i := slices.IndexFunc(g.Types, func(t Type) bool { return t.ID == id }); i >= 0 {
		return g.Types[i]
	}
	return Type{ID: id}
}

// offers lists the names of the GPU's types in the order of their size.
func (g *GPU) offers() string {
	types := slices.Clone(g.Types)
	slices.SortStableFunc(types, func(a, b Type) int {
		return cmp.Or(cmp.Compare(a.FrameBuffer, b.FrameBuffer), cmp.Compare(a.ShortName(), b.ShortName()))
	})
	return names(types)
}

func names(types []Type) string {
	if len(types) == 0 {
		return "no vGPU types"
	}
	return strings.Join(words.Each(types, Type.ShortName), ", ")
}
