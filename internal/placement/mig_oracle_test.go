package placement_test

import (
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// oracle tries all placements of all instances, with none of the solver's thoughts: it
// fills a row of slices, one instance after the other, and looks at what came out.
type oracle struct {
	profiles []gpu.MIGProfile
	have     []placement.MIGInstance

	row    []bool
	layout []gpu.MIGPlacement
	fits   bool
	best   verdict
}

// verdict is what the solver promises to make as great as it can.
type verdict struct {
	keptSlices, kept int
	room             []int
}

func (v verdict) compare(o verdict) int {
	return slices.Compare(append([]int{v.keptSlices, v.kept}, v.room...), append([]int{o.keptSlices, o.kept}, o.room...))
}

func newOracle(profiles []gpu.MIGProfile, have []placement.MIGInstance) *oracle {
	o := &oracle{profiles: profiles, have: have}
	for _, p := range profiles {
		for _, s := range p.Starts {
			o.row = append(o.row, make([]bool, max(0, s+p.Size-len(o.row)))...)
		}
	}
	return o
}

// allowed is what the numbers of instances alone must meet.
func (o *oracle) allowed(want map[string]int) bool {
	extra, all, media, total := 0, 0, 0, 0
	for name, n := range want {
		total += n
		switch {
		case strings.HasSuffix(name, "+me.all"):
			all += n
		case strings.HasSuffix(name, "+me"):
			extra += n
		}
		if !strings.HasSuffix(name, "-me") {
			media += n
		}
		for _, p := range o.profiles {
			if p.Name == name && n > p.Max {
				return false
			}
		}
	}
	return extra+all <= 1 && (all == 0 || media == 1)
}

// solve finds whether the wanted instances fit, and how good the best placement is.
func (o *oracle) solve(want map[string]int) (verdict, bool) {
	if !o.allowed(want) {
		return verdict{}, false
	}
	var todo []gpu.MIGProfile
	for _, p := range o.profiles {
		for range want[p.Name] {
			todo = append(todo, p)
		}
	}
	o.put(todo, 0)
	return o.best, o.fits
}

func (o *oracle) put(todo []gpu.MIGProfile, from int) {
	if len(todo) == 0 {
		o.look()
		return
	}
	p := todo[0]
	for _, start := range p.Starts {
		if start < from || slices.Contains(o.row[start:start+p.Size], true) {
			continue
		}
		o.fill(start, p.Size, true)
		o.layout = append(o.layout, gpu.MIGPlacement{Profile: p.Name, Start: start})
		next := 0
		if len(todo) > 1 && todo[1].Name == p.Name {
			next = start // instances of one profile need not be swapped
		}
		o.put(todo[1:], next)
		o.layout = o.layout[:len(o.layout)-1]
		o.fill(start, p.Size, false)
	}
}

func (o *oracle) fill(start, size int, to bool) {
	for i := range size {
		o.row[start+i] = to
	}
}

// look judges a whole layout.
func (o *oracle) look() {
	v := verdict{}
	for _, h := range o.have {
		if slices.Contains(o.layout, h.MIGPlacement) {
			v.keptSlices += h.Size
			v.kept++
		} else if h.Held != "" {
			return
		}
	}
	v.room = o.room()
	if !o.fits || v.compare(o.best) > 0 {
		o.fits, o.best = true, v
	}
}

// room counts, for each way to lie on the GPU, how many instances still fit.
func (o *oracle) room() []int {
	type way struct {
		size   int
		starts []int
	}
	var ways []way
	for _, p := range o.profiles {
		if !slices.ContainsFunc(ways, func(w way) bool { return w.size == p.Size && slices.Equal(w.starts, p.Starts) }) {
			ways = append(ways, way{p.Size, p.Starts})
		}
	}
	slices.SortFunc(ways, func(a, b way) int {
		if a.size != b.size {
			return b.size - a.size
		}
		return len(a.starts) - len(b.starts)
	})
	out := make([]int, len(ways))
	for i, w := range ways {
		out[i] = o.fitting(w.starts, w.size)
	}
	return out
}

// fitting is how many instances fit at most, by taking or leaving each start.
func (o *oracle) fitting(starts []int, size int) int {
	if len(starts) == 0 {
		return 0
	}
	most := o.fitting(starts[1:], size)
	if !slices.Contains(o.row[starts[0]:starts[0]+size], true) {
		o.fill(starts[0], size, true)
		most = max(most, 1+o.fitting(starts[1:], size))
		o.fill(starts[0], size, false)
	}
	return most
}
