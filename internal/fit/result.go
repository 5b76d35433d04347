package fit

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// result puts a solution into the words of hosts, GPUs and demands. missing is nil where everything has a place.
func (p *problem) result(s *solution, missing []int) Result {
	out := Result{
		Layouts: Layouts{}, Placements: map[string][]Place{}, Missing: map[string]int{}, Unused: []Unused{}, GPUs: s.used, AtLeast: s.atLeast,
		Changes: s.changes,
	}
	if missing != nil {
		out.AtLeast = min(p.atLeast(p.counts()), never)
		if out.AtLeast == never {
			out.AtLeast = len(p.gpus) + 1
		}
	}
	counts := p.countsOfGroups(s.roles)
	for i := range p.gpus {
		d, r := &p.gpus[i], s.roles[i]
		name := p.source[d.host].Name
		set := func(l Layout) {
			if out.Layouts[name] == nil {
				out.Layouts[name] = map[string]Layout{}
			}
			out.Layouts[name][d.gpu.ID] = l
		}
		switch n := p.follows(d, counts); {
		case r.kind != "":
			set(p.layout(d, r))
			continue
		case n != 0:
			set(Layout{Kind: gpu.KindGPUP, GPUP: &GPUP{n}})
		}
		out.Unused = append(out.Unused, Unused{Host: name, GPU: d.gpu.ID, Model: d.gpu.Model})
	}
	models := map[string]map[string]string{}
	for i := range p.gpus {
		d := &p.gpus[i]
		name := p.source[d.host].Name
		if models[name] == nil {
			models[name] = map[string]string{}
		}
		models[name][d.gpu.ID] = d.gpu.Model
	}
	out.Configs = configs(out.Layouts, models)
	for i := range p.demands {
		out.Placements[p.demands[i].Name] = []Place{}
	}
	p.place(s, &out, missing)
	out.Remaining = p.remaining(s)
	return out
}

// layout is what a GPU of a role is laid out as.
func (p *problem) layout(d *device, r role) Layout {
	if d.kept.kind != "" && d.kept.same(r) {
		return *d.keep
	}
	switch r.kind {
	case Partitions:
		return Layout{Kind: gpu.KindGPUP, GPUP: &GPUP{r.count}}
	case Instances:
		profiles := map[string]int{}
		for t, n := range r.set {
			if n > 0 {
				profiles[p.types[t].profile] = n
			}
		}
		return Layout{Kind: gpu.KindMIG, MIG: &MIG{profiles}}
	case Shares:
		return *mpsLayout()
	case Whole:
	}
	return Layout{Kind: WholeGPU}
}

// instances are the places of the instances of a GPU, by profile.
func (p *problem) instances(d *device, r role) map[string][]gpu.MIGPlacement {
	l := p.layout(d, r)
	have := placement.MIGInstances(d.gpu)
	for i := range have {
		have[i].Held = ""
	}
	plan, err := placement.PlaceMIG(d.class.profiles, have, l.MIG.Profiles)
	if err != nil {
		return nil // of a layout to keep that the GPU does not have
	}
	out := map[string][]gpu.MIGPlacement{}
	for _, at := range plan.Layout() {
		out[at.Profile] = append(out[at.Profile], at)
	}
	return out
}

// dealing gives the units of each type to its demands, in their order.
type dealing struct {
	p     *problem
	out   *Result
	queue [][]int // demands, once for each unit
}

func (d *dealing) give(t int, places ...Place) {
	name := d.p.demands[d.queue[t][0]].Name
	d.queue[t] = d.queue[t][1:]
	d.out.Placements[name] = append(d.out.Placements[name], places...)
}

// place says where the unit of each demand is, and how many have no place.
func (p *problem) place(s *solution, out *Result, missing []int) {
	deal := &dealing{p, out, make([][]int, len(p.types))}
	for t := range p.types {
		for _, d := range p.types[t].demands {
			for range p.demands[d].Count {
				deal.queue[t] = append(deal.queue[t], d)
			}
		}
		if missing != nil {
			for _, d := range deal.queue[t][len(deal.queue[t])-missing[t]:] {
				out.Missing[p.demands[d].Name]++
			}
		}
	}
	for i, units := range s.units {
		if len(units) == 0 {
			continue
		}
		switch s.roles[i].kind {
		case Instances:
			deal.instances(s, i)
		case Whole:
			deal.whole(s, i)
		case Partitions, Shares:
			deal.numbered(s, i)
		}
	}
}

func (d *dealing) at(i int) Place {
	of := &d.p.gpus[i]
	return Place{Host: d.p.source[of.host].Name, GPU: of.gpu.ID}
}

func (d *dealing) instances(s *solution, i int) {
	spots, at := d.p.instances(&d.p.gpus[i], s.roles[i]), d.at(i)
	for _, l := range s.units[i] {
		profile := d.p.types[l.t].profile
		for k := range l.n {
			at.Unit = profile
			if k < len(spots[profile]) {
				at.Unit = spots[profile][k].String()
			}
			d.give(l.t, at)
		}
	}
}

func (d *dealing) whole(s *solution, i int) {
	var gpus []Place
	for _, other := range d.p.hosts[d.p.gpus[i].host].gpus {
		if s.roles[other].kind == Whole {
			at := d.at(other)
			at.Unit = string(Whole)
			gpus = append(gpus, at)
		}
	}
	for _, l := range s.units[i] {
		for range l.n {
			n := d.p.types[l.t].gpus
			d.give(l.t, gpus[:n]...)
			gpus = gpus[n:]
		}
	}
}

func (d *dealing) numbered(s *solution, i int) {
	at, number := d.at(i), 0
	for _, l := range s.units[i] {
		for range l.n {
			number++
			at.Unit = strconv.Itoa(number)
			d.give(l.t, at)
		}
	}
}

// remaining is what else the GPUs in use still take, each profile or kind alone, and how many GPUs are free.
func (p *problem) remaining(s *solution) map[string]int {
	out := map[string]int{}
	for _, kind := range kinds {
		if len(p.of[kind]) > 0 && kind != Instances {
			out[string(kind)] = 0
		}
	}
	known := map[string]map[string]int{}
	for i, r := range s.roles {
		if r.kind == "" {
			out[string(Whole)]++
			continue
		}
		placed := 0
		for _, l := range s.units[i] {
			placed += l.n
		}
		switch r.kind {
		case Partitions:
			out[string(Partitions)] += r.count - placed
		case Shares:
			out[string(Shares)] += p.sharesLeft(i, s.units[i])
		case Instances:
			key := fmt.Sprintf("%p %v %v", p.gpus[i].class, p.layout(&p.gpus[i], r), s.units[i])
			if known[key] == nil {
				known[key] = p.instancesLeft(i, s)
			}
			for profile, n := range known[key] {
				out[profile] += n
			}
		case Whole:
		}
	}
	return out
}

// sharesLeft is how many more of the smallest demanded shares a GPU takes.
func (p *problem) sharesLeft(i int, units []load) int {
	c := p.gpus[i].class
	b := bin{room: int64(c.memory), threads: wholeThreads, seats: c.seats}
	for _, l := range units {
		b.take(&p.types[l.t], l.n)
	}
	types := p.of[Shares]
	return b.holds(&p.types[types[len(types)-1]], never)
}

// instancesLeft is how many more instances of each profile a GPU takes beside those that were placed, where these are.
func (p *problem) instancesLeft(i int, s *solution) map[string]int {
	d := &p.gpus[i]
	spots := p.instances(d, s.roles[i])
	var held []placement.MIGInstance
	want := map[string]int{}
	for _, l := range s.units[i] {
		profile := p.types[l.t].profile
		list := spots[profile]
		for _, at := range list[:min(l.n, len(list))] {
			x := slices.IndexFunc(d.class.profiles, func(m gpu.MIGProfile) bool { return m.Name == profile })
			held = append(held, placement.MIGInstance{MIGPlacement: at, Size: d.class.profiles[x].Size, Held: "a demand"})
			want[profile]++
		}
	}
	out := map[string]int{}
	for _, m := range d.class.profiles {
		had := want[m.Name]
		for n := 1; ; n++ {
			want[m.Name] = had + n
			if _, err := placement.PlaceMIG(d.class.profiles, held, want); err != nil {
				break
			}
			out[m.Name] = n
		}
		if want[m.Name] = had; had == 0 {
			delete(want, m.Name)
		}
	}
	return out
}
