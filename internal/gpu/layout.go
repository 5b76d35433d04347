package gpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Layout is what a GPU is cut into and how processes share it. Parts that are nil, 0 or
// "" are not known, or not the subject.
type Layout struct {
	Partitions  int         `json:"partitions,omitempty"` // of GPU-P
	MIG         *MIGState   `json:"mig,omitempty"`
	VGPU        *VGPUState  `json:"vgpu,omitempty"`
	ComputeMode ComputeMode `json:"compute_mode,omitempty"`
	TimeSlice   TimeSlice   `json:"time_slice,omitempty"`
}

// MIGState is the mode and the instances of one GPU.
type MIGState struct {
	Enabled    bool           `json:"enabled"`
	Placements []MIGPlacement `json:"placements,omitempty"`
}

// VGPUState is the modes and the vGPUs of one GPU.
type VGPUState struct {
	FunctionsOn   bool        `json:"functions_on,omitempty"`
	Heterogeneous bool        `json:"heterogeneous,omitempty"`
	Places        []VGPUPlace `json:"places,omitempty"`
}

// Layout is what the GPU has now, in all of its parts.
func (g *GPU) Layout() Layout {
	l := Layout{ComputeMode: g.ComputeMode, TimeSlice: g.TimeSlice}
	if g.Partitionable != nil {
		l.Partitions = g.Partitionable.Count
	}
	if g.MIG != nil {
		s := g.MIG.State()
		l.MIG = &s
	}
	if g.VGPU != nil {
		s := g.VGPU.State()
		l.VGPU = &s
	}
	return l
}

// Only are the parts of the layout that configs of a kind set.
func (l Layout) Only(kind Kind) Layout {
	switch kind {
	case KindGPUP:
		return Layout{Partitions: l.Partitions}
	case KindMIG:
		return Layout{MIG: l.MIG}
	case KindVGPU:
		only := Layout{VGPU: l.VGPU}
		if l.MIG != nil && l.MIG.Enabled && l.VGPU != nil && len(l.VGPU.Places) > 0 {
			only.MIG = l.MIG // in MIG mode each lives in a GPU instance
		}
		return only
	case KindMPS, KindTimeSlicing:
		return Layout{ComputeMode: l.ComputeMode, TimeSlice: l.TimeSlice}
	}
	return Layout{}
}

// Or takes the parts that the layout lacks from another one.
func (l Layout) Or(o Layout) Layout {
	return Layout{
		Partitions: cmp.Or(l.Partitions, o.Partitions), MIG: cmp.Or(l.MIG, o.MIG), VGPU: cmp.Or(l.VGPU, o.VGPU),
		ComputeMode: cmp.Or(l.ComputeMode, o.ComputeMode), TimeSlice: cmp.Or(l.TimeSlice, o.TimeSlice),
	}
}

// State is the mode in force and the instances, by start.
func (m *MIG) State() MIGState {
	s := MIGState{Enabled: m.Enabled}
	for i := range m.Instances {
		s.Placements = append(s.Placements, m.Instances[i].Placement())
	}
	slices.SortFunc(s.Placements, func(a, b MIGPlacement) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Profile, b.Profile))
	})
	return s
}

// State is the modes in force and the vGPUs, by function.
func (v *VGPU) State() VGPUState {
	s := VGPUState{FunctionsOn: v.FunctionsOn, Heterogeneous: v.Heterogeneous}
	for i := range v.Instances {
		s.Places = append(s.Places, v.Instances[i].VGPUPlace)
	}
	slices.SortFunc(s.Places, func(a, b VGPUPlace) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Type, b.Type), cmp.Compare(a.UUID, b.UUID))
	})
	return s
}

// Same reports whether two places are one. Not every host gives vGPUs a UUID.
func (p VGPUPlace) Same(o VGPUPlace) bool {
	return p.Function == o.Function && SameID(p.Type, o.Type) && (p.UUID == "" || o.UUID == "" || SameID(p.UUID, o.UUID))
}

// Text writes the layout as configs of a kind have it: "gpu_p:4", "mig:1g.10gb@0+3g.40gb@4",
// "vgpu:2xL40S-12Q", "mps:exclusive_process", "time_slicing:long".
func (l Layout) Text(kind Kind) string {
	text := "none"
	switch {
	case kind == KindGPUP && l.Partitions > 0:
		text = strconv.Itoa(l.Partitions)
	case kind == KindMIG && l.MIG != nil:
		text = l.MIG.String()
	case kind == KindVGPU && l.VGPU != nil:
		return l.VGPU.String()
	case kind == KindMPS:
		text = string(cmp.Or(l.ComputeMode, ComputeDefault))
	case kind == KindTimeSlicing:
		text = string(cmp.Or(l.TimeSlice, TimeSliceDefault))
	}
	return string(kind) + ":" + text
}

// String writes mode and instances: "3g.40gb@0+1g.10gb@4", "none" for MIG mode without
// instances, "off" without MIG mode.
func (s MIGState) String() string {
	switch {
	case !s.Enabled:
		return "off"
	case len(s.Placements) == 0:
		return "none"
	}
	return PlacementsText(s.Placements)
}

// String is "3g.40gb@4".
func (p MIGPlacement) String() string { return fmt.Sprintf("%s@%d", p.Profile, p.Start) }

// PlacementsText lists placements, for people.
func PlacementsText(list []MIGPlacement) string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.String()
	}
	return strings.Join(out, "+")
}

// String writes the vGPUs: "vgpu:2xL40S-12Q+1xL40S-24Q", "vgpu:none".
func (s VGPUState) String() string {
	counts := VGPUCounts(s.Places)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%dx%s", counts[name], name))
	}
	return "vgpu:" + cmp.Or(strings.Join(out, "+"), "none")
}

// Layouts are those of some GPUs, by id.
type Layouts map[string]Layout

// Of is the layout of a GPU; the zero value when none is known.
func (l Layouts) Of(id string) Layout {
	for k, v := range l {
		if SameID(k, id) {
			return v
		}
	}
	return Layout{}
}

// With is the layouts with another one for a GPU.
func (l Layouts) With(id string, of Layout) Layouts {
	out := l.Without(id)
	if of == (Layout{}) {
		return out
	}
	if out == nil {
		out = Layouts{}
	}
	out[id] = of
	return out
}

// Without is the layouts without that of a GPU, nil when it was the only one.
func (l Layouts) Without(id string) Layouts {
	out := maps.Clone(l)
	maps.DeleteFunc(out, func(k string, _ Layout) bool { return SameID(k, id) })
	if len(out) == 0 {
		return nil
	}
	return out
}
