package fit

import (
	"slices"
)

// searchBudget is how many GPUs are given a role before a search is ended.
const searchBudget = 400_000

// searching gives one GPU after the other each role that it can have.
type searching struct {
	p       *problem
	need    []int
	order   []int // of GPUs, those alike beside each other
	options [][]role
	alike   []int // the position before that is of a GPU like it, -1 for none
	twin    []int // the position of the same GPU on the host before that is like its own, -1 for none
	first   []int // of its host, where hosts matter
	rest    []map[Kind]int
	least   map[Kind]int // GPUs that all units of a kind need
	most    []int        // partitions of a GPU that are large enough for a type
	atLeast int
	best    *solution
	budget  int
	packs   int

	roles   []role // by GPU
	chosen  []int  // by position
	used    int
	changes int
	have    []int // instances of a type, and partitions that are large enough for one
	of      map[Kind]int
	count   map[int]int
	members map[int]int
	side    []Kind
	sided   []int
}

// search looks for the best solution, from the best so far on. It sets searched where it looked at everything.
func (p *problem) search(need []int, best *solution, atLeast int) *solution {
	s := &searching{
		p: p, need: need, best: best, atLeast: atLeast, budget: min(searchBudget, p.nodes), packs: searchBudget,
		roles: make([]role, len(p.gpus)), chosen: make([]int, len(p.gpus)), have: make([]int, len(p.types)), of: map[Kind]int{},
		least: map[Kind]int{},
		most:  make([]int, len(p.types)),
		count: map[int]int{}, members: map[int]int{}, side: make([]Kind, len(p.hosts)), sided: make([]int, len(p.hosts)),
	}
	s.arrange()
	for _, kind := range kinds {
		s.least[kind] = p.atLeastOf(kind, need)
	}
	for _, t := range p.of[Partitions] {
		s.most[t] = 1
		for _, c := range p.classes {
			s.most[t] = max(s.most[t], c.most(p.types[t].vram))
		}
	}
	s.from(0)
	p.nodes -= min(searchBudget, p.nodes) - max(s.budget, 0)
	p.searched = s.budget > 0 && s.packs > 0
	if s.best != nil && p.searched {
		s.best.atLeast = s.best.used
	}
	return s.best
}

// arrange sorts the GPUs, so that each is looked at only once of several that are alike.
func (s *searching) arrange() {
	p := s.p
	for i := range p.gpus {
		s.order = append(s.order, i)
	}
	shape := make([]string, len(p.hosts))
	for h := range p.hosts {
		slices.SortStableFunc(p.hosts[h].gpus, func(a, b int) int { return compareText(p.gpus[a].like, p.gpus[b].like) })
		for _, i := range p.hosts[h].gpus {
			shape[h] += p.gpus[i].like + "\n"
		}
	}
	rank := func(i int) string {
		if p.hostsMatter {
			return shape[p.gpus[i].host]
		}
		return p.gpus[i].like
	}
	slices.SortStableFunc(s.order, func(a, b int) int {
		if c := compareText(rank(a), rank(b)); c != 0 || !p.hostsMatter {
			return c
		}
		if c := p.gpus[a].host - p.gpus[b].host; c != 0 {
			return c
		}
		return compareText(p.gpus[a].like, p.gpus[b].like)
	})
	n := len(s.order)
	s.alike, s.twin, s.first, s.rest = make([]int, n), make([]int, n), make([]int, n), make([]map[Kind]int, n+1)
	s.options = make([][]role, n)
	s.rest[n] = map[Kind]int{}
	for k, i := range s.order {
		s.alike[k], s.twin[k], s.first[k] = -1, -1, k
		s.options[k] = s.p.rolesOf(i)
		if k == 0 {
			continue
		}
		before := s.order[k-1]
		sameHost := p.gpus[before].host == p.gpus[i].host
		if p.gpus[before].like == p.gpus[i].like && (sameHost || !p.hostsMatter) {
			s.alike[k] = k - 1
		}
		if p.hostsMatter && sameHost {
			s.first[k] = s.first[k-1]
		}
		if size := len(p.hosts[p.gpus[i].host].gpus); p.hostsMatter && k >= size && s.first[k] >= size {
			other := s.order[s.first[k]-size]
			if shape[p.gpus[other].host] == shape[p.gpus[i].host] {
				s.twin[k] = k - size
			}
		}
	}
	for k := n - 1; k >= 0; k-- {
		s.rest[k] = map[Kind]int{}
		for _, kind := range kinds {
			could := slices.ContainsFunc(s.options[k], func(r role) bool { return r.kind == kind })
			s.rest[k][kind] = s.rest[k+1][kind] + flag(could)
		}
	}
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// rolesOf are the roles that a GPU can have: what it keeps first, and nothing last.
func (p *problem) rolesOf(i int) []role {
	d := &p.gpus[i]
	var out []role
	add := func(r role) {
		if !slices.ContainsFunc(out, r.same) {
			out = append(out, r)
		}
	}
	if d.kept.kind != "" && len(p.of[d.kept.kind]) > 0 {
		add(d.kept)
	}
	if len(p.of[Partitions]) > 0 {
		for _, n := range slices.Backward(d.class.counts) {
			add(role{kind: Partitions, count: n})
		}
	}
	for _, set := range d.class.patterns {
		add(role{kind: Instances, set: set})
	}
	if len(p.of[Shares]) > 0 && d.class.seats > 0 {
		add(role{kind: Shares})
	}
	if len(p.of[Whole]) > 0 {
		add(role{kind: Whole})
	}
	return append(out, role{})
}

// lacks is how many more GPUs of each kind are needed at least.
func (s *searching) lacks(k int) (int, bool) {
	total := 0
	left := slices.Clone(s.need)
	for _, t := range s.p.of[Instances] {
		left[t] = max(left[t]-s.have[t], 0)
	}
	for _, kind := range kinds {
		n := 0
		switch kind {
		case Partitions:
			n = s.lacksPartitions()
		case Instances:
			n = s.p.atLeastOf(kind, left)
		case Shares, Whole:
			n = max(s.least[kind]-s.of[kind], 0)
		}
		if n > s.rest[k][kind] {
			return 0, false
		}
		total += n
	}
	return total, true
}

// lacksPartitions is how many more GPUs with partitions are needed at least: those of a size are for all that ask for no more.
func (s *searching) lacksPartitions() int {
	n, want := 0, 0
	for _, t := range s.p.of[Partitions] {
		want += s.need[t]
		if left := want - s.have[t]; left > 0 && s.need[t] > 0 {
			n = max(n, (left+s.most[t]-1)/s.most[t])
		}
	}
	return n
}

// hopeless reports whether nothing better follows.
func (s *searching) hopeless(k int) bool {
	more, ok := s.lacks(k)
	if !ok {
		return true
	}
	if s.best == nil {
		return false
	}
	used := max(s.used+more, s.atLeast)
	return used > s.best.used || used == s.best.used && s.changes >= s.best.changes
}

func (s *searching) from(k int) {
	if s.budget--; s.budget <= 0 || s.packs <= 0 || s.hopeless(k) {
		return
	}
	if k == len(s.order) {
		s.finish()
		return
	}
	i := s.order[k]
	for n, r := range s.options[k] {
		if !s.inOrder(k, n) || !s.allows(i, r) {
			continue
		}
		s.chosen[k] = n
		s.set(i, r, 1)
		s.from(k + 1)
		s.set(i, r, -1)
	}
}

// inOrder reports whether a choice is the one to look at of those that only swap GPUs, or hosts, that are alike.
func (s *searching) inOrder(k, n int) bool {
	if a := s.alike[k]; a >= 0 && n < s.chosen[a] {
		return false
	}
	if s.twin[k] < 0 || n >= s.chosen[s.twin[k]] {
		return true
	}
	apart := s.twin[k] - k
	for at := s.first[k]; at < k; at++ {
		if s.chosen[at] != s.chosen[at+apart] {
			return true
		}
	}
	return false
}

// allows reports whether a role goes with those of the cluster and of the host.
func (s *searching) allows(i int, r role) bool {
	h := s.p.gpus[i].host
	if g := s.p.hosts[h].group; r.kind == Partitions && g >= 0 && s.members[g] > 0 && s.count[g] != r.count {
		return false
	}
	side := sideOf(r.kind)
	return side == "" || s.sided[h] == 0 || s.side[h] == side
}

// set gives a GPU a role, or takes it.
func (s *searching) set(i int, r role, by int) {
	if r.kind == "" {
		return
	}
	d := &s.p.gpus[i]
	s.used += by
	s.of[r.kind] += by
	s.roles[i] = role{}
	if by > 0 {
		s.roles[i] = r
	}
	if d.changed(r) {
		s.changes += by
	}
	if sideOf(r.kind) != "" {
		s.side[d.host] = sideOf(r.kind)
		s.sided[d.host] += by
	}
	switch r.kind {
	case Partitions:
		if g := s.p.hosts[d.host].group; g >= 0 {
			s.count[g] = r.count
			s.members[g] += by
		}
		for _, t := range s.p.of[Partitions] {
			s.have[t] += r.count * by * flag(d.class.partitions[r.count] >= s.p.types[t].vram)
		}
	case Instances:
		for _, t := range d.class.offers {
			s.have[t] += r.set[t] * by
		}
	case Shares, Whole:
	}
}

// finish takes what was chosen if it holds everything and is better.
func (s *searching) finish() {
	next := &solution{roles: slices.Clone(s.roles)}
	if !s.p.settle(next, s.need, &s.packs) {
		return
	}
	s.p.drop(next)
	s.p.counted(next)
	if next.better(s.best) {
		s.best = next
	}
}
