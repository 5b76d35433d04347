package fit

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// never is more GPUs than there are.
const never = 1 << 30

// mostWeights keeps the bounds of many types quick.
const mostWeights = 48

// measure is a way to weigh the units of a kind: no GPU has more than its capacity of that weight, however it is laid out.
type measure struct {
	weight func(t int) int64
	// capacities are those of the GPUs, the largest first, added up.
	capacities []int64
}

// measures are the ways to weigh a kind.
func (p *problem) measures(kind Kind) []measure {
	if p.weighed == nil {
		p.weighed = map[Kind][]measure{}
	}
	if _, ok := p.weighed[kind]; ok {
		return p.weighed[kind]
	}
	var out []measure
	add := func(weight func(t int) int64, capacity func(c *class) int64) {
		m := measure{weight: weight}
		byClass := map[*class]int64{}
		for i := range p.gpus {
			c := p.gpus[i].class
			if _, ok := byClass[c]; !ok {
				byClass[c] = capacity(c)
			}
			m.capacities = append(m.capacities, byClass[c])
		}
		slices.SortFunc(m.capacities, func(a, b int64) int { return cmp.Compare(b, a) })
		for i := 1; i < len(m.capacities); i++ {
			m.capacities[i] += m.capacities[i-1]
		}
		out = append(out, m)
	}
	types := p.sample(kind)
	switch kind {
	case Partitions:
		part := p.partsOfGPUs()
		add(func(t int) int64 { return part[t] }, func(c *class) int64 {
			most := int64(0)
			for _, n := range c.counts {
				for _, t := range p.of[Partitions] {
					most = max(most, int64(n)*part[t]*int64(flag(c.partitions[n] >= p.types[t].vram)))
				}
			}
			return most
		})
		for _, least := range types {
			vram := p.types[least].vram
			add(func(t int) int64 { return int64(flag(p.types[t].vram >= vram)) }, func(c *class) int64 { return int64(c.most(vram)) })
		}
	case Instances:
		p.weighInstances(add)
	case Shares:
		memory := func(t int) int64 { return int64(p.types[t].memory) }
		threads := func(t int) int64 { return p.types[t].threads }
		add(memory, func(c *class) int64 { return int64(c.memory) * int64(flag(c.seats > 0)) })
		add(threads, func(c *class) int64 { return int64(wholeThreads * flag(c.seats > 0)) })
		for _, least := range types {
			for _, size := range []struct {
				of   func(int) int64
				room func(*class) int64
			}{{memory, func(c *class) int64 { return int64(c.memory) }}, {threads, func(*class) int64 { return wholeThreads }}} {
				x := size.of(least)
				add(func(t int) int64 { return int64(flag(size.of(t) >= x)) }, func(c *class) int64 {
					if x == 0 {
						return int64(c.seats)
					}
					return min(size.room(c)/x, int64(c.seats))
				})
			}
		}
	case Whole:
		add(func(t int) int64 { return int64(p.types[t].gpus) }, func(*class) int64 { return 1 })
	}
	p.weighed[kind] = out
	return out
}

// offersPartitions reports whether a GPU takes a partition count that gives each at least some memory.
func (c *class) offersPartitions(count int, vram gpu.Bytes) bool {
	size, ok := c.partitions[count]
	return ok && size >= vram
}

// most is how many partitions of at least some memory the class has at once.
func (c *class) most(vram gpu.Bytes) int {
	most := 0
	for n, size := range c.partitions {
		if size >= vram {
			most = max(most, n)
		}
	}
	return most
}

// partsOfGPUs weighs each type of partition by the part of a GPU that it is at least.
func (p *problem) partsOfGPUs() []int64 {
	const whole = 720_720 // which the partition counts divide
	out := make([]int64, len(p.types))
	for _, t := range p.of[Partitions] {
		most := 0
		for _, c := range p.classes {
			most = max(most, c.most(p.types[t].vram))
		}
		out[t] = whole / int64(max(most, 1))
	}
	return out
}

// sample are the types of a kind, or of many some of all sizes.
func (p *problem) sample(kind Kind) []int {
	types := p.of[kind]
	if len(types) <= mostWeights {
		return types
	}
	var out []int
	for i := range mostWeights {
		out = append(out, types[i*(len(types)-1)/(mostWeights-1)])
	}
	return out
}

// weighInstances weighs by memory slices, by compute slices, each profile alone, and all as large as one.
func (p *problem) weighInstances(add func(weight func(int) int64, capacity func(*class) int64)) {
	capacity := func(weight func(int) int64) func(*class) int64 {
		return func(c *class) int64 {
			most := int64(0)
			for _, set := range c.patterns {
				sum := int64(0)
				for _, t := range c.offers {
					sum += weight(t) * int64(set[t])
				}
				most = max(most, sum)
			}
			return most
		}
	}
	slicesOf := func(compute bool) func(int) int64 {
		return func(t int) int64 {
			least := int64(0) // of several models with a profile of that name
			for _, c := range p.classes {
				for _, x := range c.profiles {
					n := int64(x.Size)
					if compute {
						n = int64(x.Slices)
					}
					if x.Name == p.types[t].profile && (least == 0 || n < least) {
						least = n
					}
				}
			}
			return least
		}
	}
	for _, compute := range []bool{false, true} {
		by := map[int]int64{}
		for _, t := range p.of[Instances] {
			by[t] = slicesOf(compute)(t)
		}
		weight := func(t int) int64 { return by[t] }
		add(weight, capacity(weight))
	}
	for _, least := range p.of[Instances] {
		alone := func(t int) int64 { return int64(flag(t == least)) }
		add(alone, capacity(alone))
		asLarge := func(t int) int64 { return int64(flag(p.types[t].size >= p.types[least].size)) }
		add(asLarge, capacity(asLarge))
	}
}

// atLeastOf is how many GPUs the units of a kind take at least, never for more than there are.
func (p *problem) atLeastOf(kind Kind, need []int) int {
	least := 0
	for _, m := range p.measures(kind) {
		want := int64(0)
		for _, t := range p.of[kind] {
			want += m.weight(t) * int64(need[t])
		}
		if want <= 0 {
			continue
		}
		n, _ := slices.BinarySearch(m.capacities, want)
		if n == len(m.capacities) {
			return never
		}
		least = max(least, n+1)
	}
	return least
}

// atLeast is how many GPUs are proved to be needed. A GPU is of one kind. Of any n on some hosts the fullest host has its part.
func (p *problem) atLeast(need []int) int {
	n := 0
	for _, kind := range kinds {
		n += p.atLeastOf(kind, need)
	}
	if n >= never || p.spare == 0 {
		return n
	}
	left := n
	for n-(n*p.spare+len(p.hosts)-1)/len(p.hosts) < left {
		n++
	}
	return n
}

// impossible reports whether it is proved that not all units have a place.
func (p *problem) impossible(need []int) bool {
	if p.atLeast(need) > len(p.gpus) {
		return true
	}
	for _, least := range p.sample(Whole) {
		want, have := 0, 0
		for _, t := range p.of[Whole] {
			if p.types[t].gpus >= p.types[least].gpus {
				want += need[t]
			}
		}
		of := make([]int, len(p.hosts))
		for h := range p.hosts {
			of[h] = len(p.hosts[h].gpus) / p.types[least].gpus
		}
		have = p.lasting(of, func(int) int { return 0 })
		if want > have {
			return true
		}
	}
	return false
}

// leastChanges is how many GPUs of so many get another layout at least.
func (p *problem) leastChanges(used int) int {
	for i := range p.gpus {
		if d := &p.gpus[i]; d.kept.kind != "" || d.keep == nil && len(p.of[Whole]) > 0 {
			used--
		}
	}
	return max(used, 0)
}
