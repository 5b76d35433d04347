package fit

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// role is what a GPU is used as.
type role struct {
	kind  Kind // "" for nothing
	count int  // of partitions
	set   []int
	keeps bool // it is what the GPU has
}

func (r role) same(o role) bool {
	return r.kind == o.kind && r.count == o.count && slices.Equal(r.set, o.set)
}

// solution is a role for each GPU, and where units go.
type solution struct {
	roles   []role
	units   [][]load // of each GPU; of whole GPUs by host, on the first of them
	used    int
	changes int
	// atLeast is how many GPUs are proved to be needed.
	atLeast int
	// exhausted is true where nothing was found since there is nothing.
	exhausted bool
}

// load is a number of units of a type.
type load struct{ t, n int }

// with adds units to those that a GPU has.
func with(loads []load, t, n int) []load {
	for i := range loads {
		if loads[i].t == t {
			loads[i].n += n
			return loads
		}
	}
	return append(loads, load{t, n})
}

// setOf are loads as a set of instances.
func (p *problem) setOf(loads []load) []int {
	out := make([]int, len(p.types))
	for _, l := range loads {
		out[l.t] += l.n
	}
	return out
}

func (s *solution) better(o *solution) bool {
	return o == nil || cmp.Or(cmp.Compare(s.used, o.used), cmp.Compare(s.changes, o.changes)) < 0
}

// roleOf is the layout that a GPU keeps as a role that the demands can use.
func (p *problem) roleOf(d *device) role {
	none := role{}
	if d.keep == nil {
		return none
	}
	switch l := d.keep; {
	case l.GPUP != nil:
		if _, ok := d.class.partitions[l.GPUP.PartitionCount]; ok {
			return role{kind: Partitions, count: l.GPUP.PartitionCount, keeps: true}
		}
	case l.MIG != nil:
		set, some := make([]int, len(p.types)), false
		for _, t := range d.class.offers {
			set[t] = l.MIG.Profiles[p.types[t].profile]
			some = some || set[t] > 0
		}
		if some {
			return role{kind: Instances, set: set, keeps: true}
		}
	case l.MPS != nil:
		if d.class.seats > 0 {
			return role{kind: Shares, keeps: true}
		}
	case l.Kind == WholeGPU:
		return role{kind: Whole, keeps: true}
	}
	return none
}

// changed reports whether a GPU gets another layout by its role. One without a layout is as it must be to be given out whole.
func (d *device) changed(r role) bool {
	switch {
	case r.kind == "":
		return false
	case d.kept.kind != "" && d.kept.same(r):
		return false
	case r.kind == Whole:
		return d.keep != nil && d.keep.Kind != WholeGPU
	}
	return true
}

// counted fills in what a solution costs.
func (p *problem) counted(s *solution) *solution {
	s.used, s.changes = 0, 0
	count := p.countsOfGroups(s.roles)
	for i, r := range s.roles {
		switch d := &p.gpus[i]; {
		case r.kind != "":
			s.used++
			if d.changed(r) {
				s.changes++
			}
		case p.follows(d, count) != 0:
			s.changes++
		}
	}
	return s
}

// countsOfGroups are the partition counts of the clusters, by group.
func (p *problem) countsOfGroups(roles []role) map[int]int {
	out := map[int]int{}
	for i, r := range roles {
		if g := p.hosts[p.gpus[i].host].group; r.kind == Partitions && g >= 0 {
			out[g] = r.count
		}
	}
	return out
}

// follows is the partition count that a GPU gets although nothing is placed on it, since all of a cluster have one; 0 for none.
func (p *problem) follows(d *device, counts map[int]int) int {
	n := counts[p.hosts[d.host].group]
	if d.keep == nil || d.keep.GPUP == nil || n == 0 || d.keep.GPUP.PartitionCount == n {
		return 0
	}
	if _, ok := d.class.partitions[n]; !ok {
		return 0
	}
	return n
}

// bin is what shares are placed into, or whole GPUs of a host.
type bin struct {
	at      int // the GPU, or the host
	room    int64
	threads int64
	seats   int
}

// binsFor are the bins of the GPUs with a role, but for those of hosts that failed.
func (p *problem) binsFor(kind Kind, roles []role, failed []int) []bin {
	var out []bin
	for h := range p.hosts {
		if slices.Contains(failed, h) {
			continue
		}
		whole := 0
		for _, i := range p.hosts[h].gpus {
			if roles[i].kind != kind {
				continue
			}
			whole++
			if c := p.gpus[i].class; kind == Shares {
				out = append(out, bin{at: i, room: int64(c.memory), threads: wholeThreads, seats: c.seats})
			}
		}
		if kind == Whole && whole > 0 {
			out = append(out, bin{at: h, room: int64(whole), seats: whole})
		}
	}
	return out
}

// sizes are the units of a type as bins count them.
func (t *unitType) sizes() (room, threads int64) {
	if t.kind == Whole {
		return int64(t.gpus), 0
	}
	return int64(t.memory), t.threads
}

// settle places all units on the GPUs of some roles, and reports whether they have a place, also without any of the hosts to spare.
func (p *problem) settle(s *solution, need []int, budget *int) bool {
	s.units = make([][]load, len(p.gpus))
	if !p.coversInstances(s.roles, need) || p.spare > 0 && !p.coversPartitions(s.roles, need) || !p.fillPartitions(s, need) {
		return false
	}
	for _, kind := range []Kind{Shares, Whole} {
		if !p.wants(kind, need) {
			continue
		}
		at, ok := p.pack(kind, p.binsFor(kind, s.roles, nil), need, budget)
		if !ok || !p.outlasts(kind, s.roles, at, need, budget) {
			return false
		}
		for i, units := range at {
			if kind == Whole {
				i = p.firstWhole(s.roles, i)
			}
			s.units[i] = units
		}
	}
	p.fillInstances(s, need)
	return true
}

// mostFailures is how many sets of hosts are tried one by one.
const mostFailures = 4_000

// outlasts reports whether shares, or whole GPUs, have a place whichever hosts fail.
func (p *problem) outlasts(kind Kind, roles []role, at map[int][]load, need []int, budget *int) bool {
	if p.spare == 0 || p.hasSpares(kind, roles, at) {
		return true
	}
	tried := 0
	for failed := range p.failures(kind, roles) {
		if tried++; tried > mostFailures || tried*len(p.types) > 100*mostFailures {
			*budget = -1 // it is not known
			return false
		}
		if _, ok := p.pack(kind, p.binsFor(kind, roles, failed), need, budget); !ok {
			return false
		}
	}
	return true
}

// hasSpares reports whether what is on the GPUs of hosts that fail goes to others, one for one, that are alike and free.
func (p *problem) hasSpares(kind Kind, roles []role, at map[int][]load) bool {
	all, free := make([]int, len(p.hosts)), 0
	var like *class
	for i, r := range roles {
		if r.kind != kind {
			continue
		}
		d := &p.gpus[i]
		if like == nil {
			like = d.class
		}
		if kind == Shares && like != d.class {
			return false
		}
		all[d.host]++
		if kind == Shares && len(at[i]) == 0 || kind == Whole && len(at[d.host]) == 0 {
			free++
		}
	}
	if kind == Whole {
		hosts, most := 0, slices.Max(all)
		for h, n := range all {
			hosts += flag(n == most && len(at[h]) == 0)
		}
		return hosts >= p.spare
	}
	slices.SortFunc(all, func(a, b int) int { return b - a })
	for _, n := range all[:p.spare] {
		free -= n
	}
	return free >= 0
}

func (p *problem) firstWhole(roles []role, host int) int {
	i := slices.IndexFunc(p.hosts[host].gpus, func(i int) bool { return roles[i].kind == Whole })
	return p.hosts[host].gpus[i]
}

func (p *problem) wants(kind Kind, need []int) bool {
	return slices.ContainsFunc(p.of[kind], func(t int) bool { return need[t] > 0 })
}

// failures are all sets of hosts that may fail together and have GPUs of a kind.
func (p *problem) failures(kind Kind, roles []role) func(func([]int) bool) {
	return func(yield func([]int) bool) {
		if p.spare == 0 {
			return
		}
		var with []int
		for h := range p.hosts {
			if slices.ContainsFunc(p.hosts[h].gpus, func(i int) bool { return roles[i].kind == kind }) {
				with = append(with, h)
			}
		}
		n := min(p.spare, len(with))
		var choose func(from int, set []int) bool
		choose = func(from int, set []int) bool {
			if len(set) == n {
				return yield(set)
			}
			for i := from; i < len(with); i++ {
				if !choose(i+1, append(set[:len(set):len(set)], with[i])) {
					return false
				}
			}
			return true
		}
		choose(0, nil)
	}
}

// lasting is what is left of the capacities of hosts when the largest fail, those of each group together.
func (p *problem) lasting(of []int, group func(host int) int) int {
	total := 0
	byGroup := map[int][]int{}
	for h, n := range of {
		if n > 0 {
			total += n
			byGroup[group(h)] = append(byGroup[group(h)], n)
		}
	}
	if p.spare == 0 {
		return total
	}
	for _, list := range byGroup {
		slices.SortFunc(list, func(a, b int) int { return b - a })
		for _, n := range list[:min(p.spare, len(list))] {
			total -= n
		}
	}
	return total
}

// coversPartitions reports whether there are enough partitions of each size: those of a size are for all that ask for no more. A VM
// finds another node in its own cluster only.
func (p *problem) coversPartitions(roles []role, need []int) bool {
	want := 0
	for _, t := range p.of[Partitions] { // the largest first
		want += need[t]
		if need[t] == 0 {
			continue
		}
		of := p.partitionsFor(roles, t)
		if p.lasting(of, func(h int) int { return p.hosts[h].group }) < want {
			return false
		}
	}
	return true
}

// coversInstances is the same for the instances of each profile, which may be made anew on any host.
func (p *problem) coversInstances(roles []role, need []int) bool {
	for _, t := range p.of[Instances] {
		if need[t] == 0 {
			continue
		}
		of := make([]int, len(p.hosts))
		for i, r := range roles {
			if r.kind == Instances {
				of[p.gpus[i].host] += r.set[t]
			}
		}
		if p.lasting(of, func(int) int { return 0 }) < need[t] {
			return false
		}
	}
	return true
}

// fillPartitions places the largest units first, and reports whether all have a place.
func (p *problem) fillPartitions(s *solution, need []int) bool {
	var order []int
	for i, r := range s.roles {
		if r.kind == Partitions {
			order = append(order, i)
		}
	}
	size := func(i int) gpu.Bytes { return p.gpus[i].class.partitions[s.roles[i].count] }
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(flag(p.gpus[a].changed(s.roles[a])), flag(p.gpus[b].changed(s.roles[b]))))
	})
	if p.spare > 0 {
		return p.fillLasting(s, need, order, size)
	}
	at, taken := 0, 0
	for _, t := range p.of[Partitions] {
		for left := need[t]; left > 0; {
			if at == len(order) || size(order[at]) < p.types[t].vram {
				return false
			}
			i := order[at]
			n := min(left, s.roles[i].count-taken)
			s.units[i] = with(s.units[i], t, n)
			left -= n
			if taken += n; taken == s.roles[i].count {
				at, taken = at+1, 0
			}
		}
	}
	return true
}

// fillLasting is the same with hosts to spare: each cluster gets no more than it keeps whichever hosts fail.
func (p *problem) fillLasting(s *solution, need, order []int, size func(i int) gpu.Bytes) bool {
	free := map[int]int{}
	for _, i := range order {
		free[i] = s.roles[i].count
	}
	placed := map[int]int{} // by group
	for _, t := range p.of[Partitions] {
		left := need[t]
		lasts := map[int]int{}
		for _, i := range order {
			group := p.hosts[p.gpus[i].host].group
			if left == 0 || free[i] == 0 || size(i) < p.types[t].vram {
				continue
			}
			if _, known := lasts[group]; !known {
				lasts[group] = p.lastingIn(group, s.roles, t)
			}
			if n := min(left, free[i], lasts[group]-placed[group]); n > 0 {
				s.units[i] = with(s.units[i], t, n)
				free[i] -= n
				left -= n
				placed[group] += n
			}
		}
		if left > 0 {
			return false
		}
	}
	return true
}

// lastingIn is how many partitions for a type a cluster has whichever of its hosts fail.
func (p *problem) lastingIn(group int, roles []role, t int) int {
	of := p.partitionsFor(roles, t)
	for h := range of {
		if p.hosts[h].group != group {
			of[h] = 0
		}
	}
	return p.lasting(of, func(int) int { return 0 })
}

// partitionsFor are the partitions of each host that are large enough for a type.
func (p *problem) partitionsFor(roles []role, t int) []int {
	of := make([]int, len(p.hosts))
	for i, r := range roles {
		if d := &p.gpus[i]; r.kind == Partitions && d.class.partitions[r.count] >= p.types[t].vram {
			of[d.host] += r.count
		}
	}
	return of
}

// fillInstances takes what GPUs have before what is made. Without hosts to spare nothing is made that nobody asked for.
func (p *problem) fillInstances(s *solution, need []int) {
	var order []int
	for i, r := range s.roles {
		if r.kind == Instances {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(flag(p.gpus[a].changed(s.roles[a])), flag(p.gpus[b].changed(s.roles[b])))
	})
	for _, t := range p.of[Instances] {
		left := need[t]
		for _, i := range order {
			if n := min(left, s.roles[i].set[t]); n > 0 {
				s.units[i] = with(s.units[i], t, n)
				left -= n
			}
		}
	}
	for _, i := range order {
		if p.spare == 0 && p.gpus[i].changed(s.roles[i]) && s.units[i] != nil {
			s.roles[i].set = p.setOf(s.units[i])
		}
	}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// drop takes the roles of GPUs that nothing was placed on, where no host is to be spared.
func (p *problem) drop(s *solution) {
	if p.spare > 0 {
		return
	}
	for i, r := range s.roles {
		if r.kind != "" && r.kind != Whole && s.units[i] == nil {
			s.roles[i] = role{}
		}
	}
	// Of whole GPUs those of the host that units take.
	for h := range p.hosts {
		taken, first := 0, -1
		for _, i := range p.hosts[h].gpus {
			if s.roles[i].kind == Whole && first < 0 {
				first = i
				for _, l := range s.units[i] {
					taken += l.n * p.types[l.t].gpus
				}
			}
		}
		if first < 0 {
			continue
		}
		var all []int
		for _, i := range p.hosts[h].gpus {
			if s.roles[i].kind == Whole {
				all = append(all, i)
			}
		}
		slices.SortStableFunc(all, func(a, b int) int {
			return cmp.Compare(flag(p.gpus[a].changed(s.roles[a])), flag(p.gpus[b].changed(s.roles[b])))
		})
		units := s.units[first]
		s.units[first] = nil
		for n, i := range all {
			if n >= taken {
				s.roles[i] = role{}
			}
		}
		if taken > 0 {
			s.units[p.firstWhole(s.roles, h)] = units
		}
	}
}
