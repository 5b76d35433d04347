package vgpu

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Layout is what a partition config of the kind vgpu wants of each of its GPUs:
//
//	vgpu = { type = "L40S-12Q" }             # as many as the GPU takes
//	vgpu = { type = "L40S-12Q", count = 3 }
//	vgpu = { types = { "L40S-12Q" = 2, "L40S-24Q" = 1 } }
//
// Exactly one of Type and Types is set; the zero layout wants no vGPUs. What is read back
// is [GPU.Layout] and, per vGPU, function, UUID and holder.
type Layout struct {
	Type string `json:"type,omitempty"`
	// Count is nil for as many as the GPU takes.
	Count *int           `json:"count,omitempty"`
	Types map[string]int `json:"types,omitempty"`
	// Heterogeneous is the mode of mixed frame buffer sizes. Nil is on when the types
	// need it, else as the GPU has it. The mode costs capacity and changes only while the
	// GPU has no vGPU, so true leaves room for another size later.
	Heterogeneous *bool `json:"heterogeneous,omitempty"`
}

// Empty tells whether no vGPUs are wanted.
func (l Layout) Empty() bool { return l.Type == "" && len(l.Types) == 0 }

// Validate checks what can be checked without a GPU.
func (l Layout) Validate() error {
	switch {
	case l.Type != "" && len(l.Types) > 0:
		return errors.New("type and types exclude each other")
	case l.Type == "" && l.Count != nil:
		return errors.New("count belongs to type")
	case l.Count != nil && *l.Count < 1:
		return fmt.Errorf("count is %d, wanted at least 1", *l.Count)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Types)) {
		if n := l.Types[name]; n < 1 {
			return fmt.Errorf("types has %d of %s, wanted at least 1", n, name)
		}
	}
	return nil
}

// Layout is what the GPU has now.
func (g *GPU) Layout() Layout {
	l := Layout{}
	for _, f := range g.Functions {
		for _, v := range f.VGPUs {
			if l.Types == nil {
				l.Types = map[string]int{}
			}
			l.Types[v.Type.ShortName()]++
		}
	}
	if l.Types != nil {
		on := g.Heterogeneous.Enabled
		l.Heterogeneous = &on
	}
	return l
}

// demand is a number of vGPUs of one type.
type demand struct {
	typ   Type
	count int
}

// resolve gives a layout's names the types that they mean on this GPU, the largest
// first. Unknown are the names that mean none, and a demand without a count is one
// for as many as the GPU takes where that is not told.
func (l Layout) resolve(g *GPU) (all []demand, unknown []string) {
	wanted := maps.Clone(l.Types)
	if l.Type != "" {
		wanted = map[string]int{l.Type: 0}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		t, ok := g.Find(name)
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		d := demand{typ: t, count: wanted[name]}
		if l.Type != "" {
			d.count = l.count(g, t)
		}
		same := slices.IndexFunc(all, func(o demand) bool { return o.typ.ID == t.ID })
		if same < 0 {
			all = append(all, d)
		} else { // one type under two of its names
			all[same].count += d.count
		}
	}
	slices.SortStableFunc(all, func(a, b demand) int {
		return cmp.Or(cmp.Compare(b.typ.FrameBuffer, a.typ.FrameBuffer), cmp.Compare(a.typ.Name, b.typ.Name))
	})
	return all, unknown
}

// count is the number of vGPUs of a layout with one type; 0 when it is not told.
func (l Layout) count(g *GPU, t Type) int {
	switch {
	case l.Count != nil:
		return *l.Count
	case l.heterogeneous(g, []demand{{typ: t}}):
		return 0 // fewer fit than the maximum says, how many depends on placement
	case g.SRIOV != nil:
		return min(t.Max, g.SRIOV.Total)
	}
	return t.Max
}

// heterogeneous tells whether the mode is to be on.
func (l Layout) heterogeneous(g *GPU, wanted []demand) bool {
	if l.Heterogeneous != nil {
		return *l.Heterogeneous
	}
	return mixed(wanted) || g.Heterogeneous.Enabled && !migBacked(wanted)
}

// mixed tells whether the types that share the GPU by time slices differ in size. A MIG
// instance has its own frame buffer.
func mixed(wanted []demand) bool {
	sliced := slices.DeleteFunc(slices.Clone(wanted), func(d demand) bool { return d.typ.MIGBacked() })
	return slices.ContainsFunc(sliced, func(d demand) bool { return d.typ.FrameBuffer != sliced[0].typ.FrameBuffer })
}

// migBacked tells whether the types live in MIG instances.
func migBacked(wanted []demand) bool {
	return slices.ContainsFunc(wanted, func(d demand) bool { return d.typ.MIGBacked() })
}
