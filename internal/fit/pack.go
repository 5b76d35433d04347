package fit

import (
	"cmp"
	"fmt"
	"slices"
)

// pack places the units of shares, or of whole GPUs, into bins: the number of each type by the bin's place. It tries the largest
// first, in several orders, and then everything, as long as the budget lasts.
func (p *problem) pack(kind Kind, bins []bin, need []int, budget *int) (map[int][]load, bool) {
	for _, order := range p.orders(kind) {
		if at, ok := p.packInOrder(order, bins, need); ok {
			return at, true
		}
	}
	s := packing{p: p, types: p.of[kind], bins: slices.Clone(bins), at: map[int][]load{}, failed: map[string]bool{}, budget: budget}
	slices.SortStableFunc(s.bins, func(a, b bin) int { return compareBins(b, a) })
	left := slices.Clone(need)
	if s.from(0, left) {
		return s.at, true
	}
	return nil, false
}

func compareBins(a, b bin) int {
	return cmp.Or(cmp.Compare(a.room, b.room), cmp.Compare(a.threads, b.threads), cmp.Compare(a.seats, b.seats))
}

// hardness are measures of how hard a type of a kind is to place.
func (p *problem) hardness(kind Kind) []func(t int) float64 {
	out := []func(t int) float64{func(t int) float64 { return p.types[t].size }}
	if kind != Shares || len(p.of[kind]) == 0 {
		return out
	}
	most := 1.0
	for _, c := range p.classes {
		most = max(most, float64(c.memory))
	}
	memory := func(t int) float64 { return float64(p.types[t].memory) / most }
	threads := func(t int) float64 { return float64(p.types[t].threads) / wholeThreads }
	return append(out, memory, threads,
		func(t int) float64 { return memory(t) + threads(t) },
		func(t int) float64 { return memory(t) * threads(t) })
}

// orders are the types of a kind, the hardest first.
func (p *problem) orders(kind Kind) [][]int {
	var out [][]int
	for _, hard := range p.hardness(kind) {
		list := slices.Clone(p.of[kind])
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(hard(b), hard(a)) })
		if !slices.ContainsFunc(out, func(o []int) bool { return slices.Equal(o, list) }) {
			out = append(out, list)
		}
	}
	return out
}

// holds is how many units of a type a bin takes beside what it has.
func (b *bin) holds(t *unitType, most int) int {
	room, threads := t.sizes()
	n := min(most, b.seats)
	if room > 0 {
		n = min(n, int(b.room/room))
	}
	if threads > 0 {
		n = min(n, int(b.threads/threads))
	}
	return max(n, 0)
}

func (b *bin) take(t *unitType, n int) {
	room, threads := t.sizes()
	b.room -= room * int64(n)
	b.threads -= threads * int64(n)
	if t.kind == Shares {
		b.seats -= n
	}
}

// packInOrder is first fit.
func (p *problem) packInOrder(order []int, bins []bin, need []int) (map[int][]load, bool) {
	bins = slices.Clone(bins)
	at := map[int][]load{}
	for _, t := range order {
		left := need[t]
		for i := range bins {
			if left == 0 {
				break
			}
			n := bins[i].holds(&p.types[t], left)
			if n == 0 {
				continue
			}
			bins[i].take(&p.types[t], n)
			at[bins[i].at] = with(at[bins[i].at], t, n)
			left -= n
		}
		if left > 0 {
			return nil, false
		}
	}
	return at, true
}

// packing fills one bin after the other, each so that nothing more fits.
type packing struct {
	p      *problem
	types  []int
	bins   []bin
	at     map[int][]load
	failed map[string]bool // what is left for the bins from one on, that they do not take
	budget *int
}

func (s *packing) from(i int, left []int) bool {
	if !s.p.someLeft(s.types, left) {
		return true
	}
	if i == len(s.bins) || !s.possible(i, left) {
		return false
	}
	key := fmt.Sprint(i, left)
	if s.failed[key] {
		return false
	}
	if *s.budget--; *s.budget < 0 {
		return false
	}
	b := s.bins[i]
	units := make([]int, len(s.p.types))
	found := s.fill(i, 0, &b, units, left)
	if found {
		for t, n := range units {
			if n > 0 {
				s.at[s.bins[i].at] = append(s.at[s.bins[i].at], load{t, n})
			}
		}
		return true
	}
	if *s.budget >= 0 {
		s.failed[key] = true
	}
	return false
}

func (p *problem) someLeft(types, left []int) bool {
	return slices.ContainsFunc(types, func(t int) bool { return left[t] > 0 })
}

// fill chooses how many units of each type from one on go into a bin.
func (s *packing) fill(i, k int, b *bin, units, left []int) bool {
	if k == len(s.types) {
		for _, t := range s.types {
			if left[t] > 0 && b.holds(&s.p.types[t], 1) > 0 {
				return false // another choice has this unit in the bin too
			}
		}
		return s.from(i+1, left)
	}
	t := s.types[k]
	for n := b.holds(&s.p.types[t], left[t]); n >= 0; n-- {
		if *s.budget < 0 {
			return false
		}
		next := *b
		next.take(&s.p.types[t], n)
		left[t] -= n
		units[t] = n
		if s.fill(i, k+1, &next, units, left) {
			left[t] += n
			return true
		}
		left[t] += n
		units[t] = 0
	}
	return false
}

// possible compares what is left with the bins from one on, added up.
func (s *packing) possible(i int, left []int) bool {
	var room, threads, haveRoom, haveThreads int64
	seats, count := 0, 0
	for _, t := range s.types {
		r, th := s.p.types[t].sizes()
		room += r * int64(left[t])
		threads += th * int64(left[t])
		count += left[t]
	}
	for _, b := range s.bins[i:] {
		haveRoom += b.room
		haveThreads += b.threads
		seats += b.seats
	}
	whole := s.p.types[s.types[0]].kind == Whole
	if room > haveRoom || !whole && (threads > haveThreads || count > seats) {
		return false
	}
	for _, t := range s.types { // those as large as one
		least, wanted := s.p.types[t], 0
		for _, o := range s.types {
			if r, _ := s.p.types[o].sizes(); r >= max(int64(least.memory), int64(least.gpus)) {
				wanted += left[o]
			}
		}
		for _, b := range s.bins[i:] {
			least.threads = 0
			wanted -= b.holds(&least, wanted)
		}
		if wanted > 0 {
			return false
		}
	}
	return true
}
