package fit

import (
	"cmp"
	"slices"
)

// filling is a solution in the making: first fit, the hardest units first.
type filling struct {
	p     *problem
	order map[Kind][]int // in which GPUs are begun, of those that can be of a kind
	// keeps begins those first that have the layout already.
	keeps bool

	roles  []role
	bins   []bin // of shares, as they are begun
	free   []int // partitions
	sets   [][]int
	count  map[int]int // of clusters, by group
	side   []Kind      // of hosts of which the platform is not known: Partitions or Shares
	begun  map[Kind][]int
	units  [][]load
	wholes map[int][]load // of hosts
}

// variant is one way to go about it.
type variant struct {
	kinds    []Kind
	share    []load
	keeps    bool
	smallest bool // begin GPUs that are of use to the fewest kinds
}

func (p *problem) variants() []variant {
	var present []Kind
	for _, k := range []Kind{Whole, Partitions, Instances, Shares} {
		if len(p.of[k]) > 0 {
			present = append(present, k)
		}
	}
	orders := [][]Kind{present}
	if len(present) > 1 {
		back := slices.Clone(present)
		slices.Reverse(back)
		orders = append(orders, back)
	}
	if len(p.gpus) <= exactGPUs {
		orders = permutations(present)
	}
	var out []variant
	for _, shares := range p.sharesInOrder() {
		for _, order := range orders {
			for _, keeps := range either(slices.ContainsFunc(p.gpus, func(d device) bool { return d.kept.kind != "" })) {
				for _, smallest := range either(len(present) > 1) {
					out = append(out, variant{order, shares, keeps, smallest})
				}
			}
		}
	}
	return out
}

// sharesInOrder are the shares of each demand by what is hard about them, and as they were asked for where they are equal.
func (p *problem) sharesInOrder() [][]load {
	typeOf := make([]int, len(p.demands))
	for t := range p.types {
		for _, d := range p.types[t].demands {
			typeOf[d] = t
		}
	}
	var out [][]load
	for _, hard := range p.hardness(Shares) {
		var list []load
		for d, t := range typeOf {
			if p.types[t].kind == Shares {
				list = append(list, load{t, p.demands[d].Count})
			}
		}
		slices.SortStableFunc(list, func(a, b load) int { return cmp.Compare(hard(b.t), hard(a.t)) })
		if !slices.ContainsFunc(out, func(o []load) bool { return slices.Equal(o, list) }) {
			out = append(out, list)
		}
	}
	return out
}

// either is both where it makes a difference.
func either(differs bool) []bool {
	if differs {
		return []bool{true, false}
	}
	return []bool{false}
}

func permutations(of []Kind) [][]Kind {
	if len(of) == 0 {
		return [][]Kind{nil}
	}
	var out [][]Kind
	for i := range of {
		for _, rest := range permutations(slices.Delete(slices.Clone(of), i, i+1)) {
			out = append(out, append([]Kind{of[i]}, rest...))
		}
	}
	return out
}

// greedy is the best of what several orders come to, nil where none of them places everything.
func (p *problem) greedy(need []int) *solution {
	var best *solution
	for _, v := range p.variants() {
		f := p.newFilling(v)
		if left := f.fill(v, need); slices.Max(left) > 0 {
			continue
		}
		s := p.fromFilling(f, need)
		if s != nil && s.better(best) {
			best = s
		}
		if best != nil && best.used <= p.atLeast(need) && best.changes <= p.leastChanges(best.used) {
			break
		}
	}
	return best
}

// greedyPart is how many units of each type have a place in the order that places most.
func (p *problem) greedyPart(need []int) []int {
	var best []int
	least := never
	for _, v := range p.variants() {
		f := p.newFilling(v)
		left := f.fill(v, need)
		missing := 0
		got := make([]int, len(need))
		for t := range need {
			missing += left[t]
			got[t] = need[t] - left[t]
		}
		if missing < least && p.fromFilling(f, got) != nil {
			least, best = missing, got
		}
	}
	if best == nil {
		return make([]int, len(need))
	}
	return best
}

// fromFilling makes a solution of a filling.
func (p *problem) fromFilling(f *filling, need []int) *solution {
	if p.spare > 0 {
		return p.lastingFrom(f, need)
	}
	s := &solution{roles: f.roles, units: f.units}
	for h, loads := range f.wholes {
		s.units[p.firstWhole(s.roles, h)] = loads
	}
	for i := range s.roles {
		if r := &s.roles[i]; r.kind == Instances {
			r.set = p.setOf(s.units[i])
			if k := p.gpus[i].kept; k.kind == Instances && covers(k.set, r.set) {
				*r = k
			}
		}
	}
	return p.counted(s)
}

// covers reports whether a set has all of another one.
func covers(set, of []int) bool {
	for t, n := range of {
		if set[t] < n {
			return false
		}
	}
	return true
}

// lastingFrom makes a solution of a filling that outlasts the failures, and takes GPUs that can be spared.
func (p *problem) lastingFrom(f *filling, need []int) *solution {
	s := &solution{roles: slices.Clone(f.roles)}
	budget := packBudget
	if len(p.types)*len(p.gpus) > mostLasting || !p.settle(s, need, &budget) {
		return nil
	}
	if len(p.gpus) <= exactGPUs {
		return p.thinned(p.counted(s), need)
	}
	return p.counted(s)
}

// mostLasting is how many types times GPUs are looked at again and again.
const mostLasting = 1_000_000

// strengthen gives GPUs to a kind, on the hosts with the fewest in use, until its units have a place whichever hosts fail.
func (f *filling) strengthen(kind Kind, need []int) {
	p := f.p
	only := make([]int, len(need))
	for _, t := range p.of[kind] {
		only[t] = need[t]
	}
	for p.wants(kind, only) && len(p.types)*len(p.gpus) <= mostLasting {
		s := &solution{roles: slices.Clone(f.roles)}
		budget := packBudget
		if p.settle(s, only, &budget) || budget < 0 || !f.reinforce(kind, f.weakest(kind, need)) {
			return
		}
	}
}

// weakest is the type of a kind that has too few places when hosts fail, the largest where that is not the type's own matter.
func (f *filling) weakest(kind Kind, need []int) int {
	p := f.p
	for _, t := range p.of[kind] {
		if kind != Instances || need[t] == 0 {
			continue
		}
		of := make([]int, len(p.hosts))
		for i, r := range f.roles {
			if r.kind == Instances {
				of[p.gpus[i].host] += r.set[t]
			}
		}
		if p.lasting(of, func(int) int { return 0 }) < need[t] {
			return t
		}
	}
	i := slices.IndexFunc(p.of[kind], func(t int) bool { return need[t] > 0 })
	return p.of[kind][i]
}

// reinforce begins a GPU for a type on the host with the fewest in use, or as many as a unit has on one host.
func (f *filling) reinforce(kind Kind, t int) bool {
	used := make([]int, len(f.p.hosts))
	for i, r := range f.roles {
		used[f.p.gpus[i].host] += flag(r.kind != "")
	}
	free := make([]int, len(f.p.hosts))
	for i := range f.p.gpus {
		free[f.p.gpus[i].host] += flag(f.allows(i, kind))
	}
	i := f.next(kind, never, func(i int) int {
		h := f.p.gpus[i].host
		return f.worth(i, t) * flag(free[h] >= f.p.types[t].gpus) * (exactGPUs*exactGPUs - used[h])
	})
	if i < 0 {
		return false
	}
	left := f.p.types[t].gpus - 1
	for _, o := range f.p.hosts[f.p.gpus[i].host].gpus {
		if o != i && left > 0 && f.allows(o, kind) {
			f.begin(o, f.roleFor(o, t))
			left--
		}
	}
	f.begin(i, f.roleFor(i, t))
	return true
}

// worth is more than 0 for a GPU that takes units of a type.
func (f *filling) worth(i, t int) int {
	c, u := f.p.gpus[i].class, &f.p.types[t]
	switch u.kind {
	case Partitions:
		n := f.roleFor(i, t).count
		return flag(c.offersPartitions(n, u.vram))
	case Instances:
		return flag(slices.Contains(c.offers, t))
	case Shares:
		return flag(c.seats > 0 && c.memory >= u.memory)
	case Whole:
	}
	return 1
}

// roleFor is what a GPU becomes to take as many units of a type as it can.
func (f *filling) roleFor(i, t int) role {
	d, u := &f.p.gpus[i], &f.p.types[t]
	r := role{kind: u.kind}
	switch u.kind {
	case Partitions:
		if r.count = d.class.most(u.vram); f.p.hosts[d.host].group >= 0 && f.count[f.p.hosts[d.host].group] > 0 {
			r.count = f.count[f.p.hosts[d.host].group]
		}
	case Instances:
		for _, set := range d.class.patterns {
			if r.set == nil || set[t] > r.set[t] {
				r.set = set
			}
		}
	case Shares, Whole:
	}
	return r
}

// packBudget is how many bins are filled before a packing is given up.
const packBudget = 20_000

// thinned takes GPUs that can be spared, from the fullest hosts first.
func (p *problem) thinned(s *solution, need []int) *solution {
	for {
		of := make([]int, len(p.hosts))
		for i, r := range s.roles {
			of[p.gpus[i].host] += flag(r.kind != "")
		}
		var order []int
		for i, r := range s.roles {
			if r.kind != "" {
				order = append(order, i)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of[p.gpus[b].host], of[p.gpus[a].host]) })
		taken := false
		for _, i := range order {
			budget := packBudget
			next := &solution{roles: slices.Clone(s.roles)}
			next.roles[i] = role{}
			if p.settle(next, need, &budget) {
				s, taken = p.counted(next), true
				break
			}
		}
		if !taken {
			return s
		}
	}
}

func (p *problem) newFilling(v variant) *filling {
	f := &filling{
		p: p, keeps: v.keeps, roles: make([]role, len(p.gpus)), free: make([]int, len(p.gpus)), sets: make([][]int, len(p.gpus)),
		count: map[int]int{}, side: make([]Kind, len(p.hosts)), begun: map[Kind][]int{}, units: make([][]load, len(p.gpus)),
		wholes: map[int][]load{},
	}
	order := make([]int, len(p.gpus))
	for i := range order {
		order[i] = i
	}
	if p.spare > 0 { // spread, so that a host that fails takes little with it
		at := make([]int, len(p.gpus))
		for h := range p.hosts {
			for n, i := range p.hosts[h].gpus {
				at[i] = n
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	}
	if v.smallest {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.useful(a), p.useful(b)) })
	}
	f.order = map[Kind][]int{Whole: order}
	for _, i := range order {
		for kind, could := range map[Kind]bool{
			Partitions: len(p.gpus[i].class.counts) > 0, Instances: len(p.gpus[i].class.offers) > 0, Shares: p.gpus[i].class.seats > 0,
		} {
			if could {
				f.order[kind] = append(f.order[kind], i)
			}
		}
	}
	return f
}

// useful is to how many kinds of demands a GPU could be given.
func (p *problem) useful(i int) int {
	c := p.gpus[i].class
	return flag(len(p.of[Partitions]) > 0 && len(c.counts) > 0) + flag(len(c.offers) > 0) + flag(len(p.of[Shares]) > 0 && c.seats > 0)
}

// fill places units, and says how many of each type have no place.
func (f *filling) fill(v variant, need []int) []int {
	left := slices.Clone(need)
	for _, kind := range v.kinds {
		for _, t := range f.p.of[kind] {
			switch kind {
			case Partitions:
				left[t] = f.partitions(t, left[t])
			case Instances:
				left[t] = f.instances(t, left[t])
			case Whole:
				left[t] = f.whole(t, left[t])
			case Shares: // below, by demand
			}
		}
		for _, d := range v.share {
			if n := min(d.n, left[d.t]); kind == Shares && n > 0 {
				left[d.t] -= n - f.shares(d.t, n)
			}
		}
		if f.p.spare > 0 {
			f.strengthen(kind, need)
		}
	}
	return left
}

// allows reports whether a GPU that is not used yet may become of a kind, beside the others of its host.
func (f *filling) allows(i int, kind Kind) bool {
	d := &f.p.gpus[i]
	if f.roles[i].kind != "" {
		return false
	}
	side := sideOf(kind)
	return side == "" || f.side[d.host] == "" || f.side[d.host] == side
}

// sideOf is which platform a kind is of: Hyper-V's is that of partitions, Linux's that of shares; "" for either.
func sideOf(kind Kind) Kind {
	switch kind {
	case Partitions:
		return Partitions
	case Instances, Shares:
		return Shares
	case Whole:
	}
	return ""
}

func (f *filling) begin(i int, r role) {
	d := &f.p.gpus[i]
	r.keeps = d.kept.kind != "" && d.kept.same(r)
	f.roles[i] = r
	f.begun[r.kind] = append(f.begun[r.kind], i)
	if group := f.p.hosts[d.host].group; r.kind == Partitions && group >= 0 {
		f.count[group] = r.count
	}
	if side := sideOf(r.kind); side != "" {
		f.side[d.host] = side
	}
}

// next is the GPU to begin for a kind: the first of those with the best score, -1 where none has one. No score is above most.
func (f *filling) next(kind Kind, most int, score func(i int) int) int {
	for len(f.order[kind]) > 0 && f.roles[f.order[kind][0]].kind != "" {
		f.order[kind] = f.order[kind][1:]
	}
	if f.keeps {
		most += never
	}
	best, at := 0, -1
	for _, i := range f.order[kind] {
		if !f.allows(i, kind) {
			continue
		}
		n := score(i)
		if n > 0 && f.keeps && f.p.gpus[i].kept.kind == kind {
			n += never
		}
		if n > best {
			best, at = n, i
		}
		if best >= most {
			break
		}
	}
	return at
}

// give puts units on a GPU with partitions.
func (f *filling) give(i, t, n int) int {
	if n > 0 {
		f.free[i] -= n
		f.units[i] = with(f.units[i], t, n)
	}
	return n
}

func (f *filling) partitions(t, left int) int {
	vram := f.p.types[t].vram
	for _, i := range f.begun[Partitions] {
		if d := &f.p.gpus[i]; d.class.partitions[f.roles[i].count] >= vram {
			left -= f.give(i, t, min(left, f.free[i]))
		}
	}
	countOf := func(i int) int {
		d := &f.p.gpus[i]
		group := f.p.hosts[d.host].group
		if n := f.count[group]; group >= 0 && n > 0 {
			return n * flag(d.class.offersPartitions(n, vram))
		}
		if f.keeps && d.kept.kind == Partitions && d.class.partitions[d.kept.count] >= vram {
			return d.kept.count
		}
		return d.class.most(vram)
	}
	most := 0
	for _, c := range f.p.classes {
		most = max(most, c.most(vram))
	}
	for left > 0 {
		i := f.next(Partitions, most, countOf)
		if i < 0 {
			break
		}
		n := countOf(i)
		f.begin(i, role{kind: Partitions, count: n})
		f.free[i] = n
		left -= f.give(i, t, min(left, n))
	}
	return left
}

func (f *filling) instances(t, left int) int {
	add := func(i int) {
		for left > 0 {
			f.sets[i][t]++
			if !f.p.gpus[i].class.takes(f.p, f.sets[i]) {
				f.sets[i][t]--
				return
			}
			f.units[i] = with(f.units[i], t, 1)
			left--
		}
	}
	for _, i := range f.begun[Instances] {
		if slices.Contains(f.p.gpus[i].class.offers, t) {
			add(i)
		}
	}
	for left > 0 {
		i := f.next(Instances, flag(!f.keeps)+never*flag(f.keeps), func(i int) int {
			if !slices.Contains(f.p.gpus[i].class.offers, t) {
				return 0
			}
			return 1 + flag(f.keeps)*f.p.keeping(i, t)
		})
		if i < 0 {
			break
		}
		f.sets[i] = make([]int, len(f.p.types))
		f.begin(i, role{kind: Instances, set: f.sets[i]})
		add(i)
	}
	return left
}

// keeping is how many instances of a type a GPU has.
func (p *problem) keeping(i, t int) int {
	if k := p.gpus[i].kept; k.kind == Instances {
		return k.set[t]
	}
	return 0
}

func (f *filling) shares(t, left int) int {
	u := &f.p.types[t]
	for i := range f.bins {
		if left == 0 {
			return 0
		}
		if n := f.bins[i].holds(u, left); n > 0 {
			f.bins[i].take(u, n)
			f.units[f.bins[i].at] = with(f.units[f.bins[i].at], t, n)
			left -= n
		}
	}
	for left > 0 {
		i := f.next(Shares, 1, func(i int) int {
			c := f.p.gpus[i].class
			return flag(c.seats > 0 && c.memory >= u.memory)
		})
		if i < 0 {
			break
		}
		f.begin(i, role{kind: Shares})
		c := f.p.gpus[i].class
		b := bin{at: i, room: int64(c.memory), threads: wholeThreads, seats: c.seats}
		n := b.holds(u, left)
		b.take(u, n)
		f.units[i] = with(f.units[i], t, n)
		f.bins = append(f.bins, b)
		left -= n
	}
	return left
}

// whole takes the host with the fewest free GPUs that are enough, or with the most where hosts are to spare.
func (f *filling) whole(t, left int) int {
	g := f.p.types[t].gpus
	free := make([]int, len(f.p.hosts))
	for i := range f.p.gpus {
		free[f.p.gpus[i].host] += flag(f.allows(i, Whole))
	}
	for left > 0 {
		best := -1
		for h, n := range free {
			if n >= g && (best < 0 || n != free[best] && (n < free[best]) == (f.p.spare == 0)) {
				best = h
			}
		}
		if best < 0 {
			break
		}
		taken := 0
		gpus := slices.Clone(f.p.hosts[best].gpus)
		slices.SortStableFunc(gpus, func(a, b int) int {
			cost := func(i int) int { return flag(f.p.gpus[i].changed(role{kind: Whole})) }
			return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(f.p.useful(a), f.p.useful(b)))
		})
		for _, i := range gpus {
			if taken < g && f.allows(i, Whole) {
				f.begin(i, role{kind: Whole})
				taken++
			}
		}
		f.wholes[best] = with(f.wholes[best], t, 1)
		free[best] -= g
		left--
	}
	return left
}
