package placement

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// PlaceMIG finds places for numbers of instances by profile. The instances that the
// GPU has afterwards are exactly the wanted ones; what is held stays where it is. There
// is a plan exactly when some placement exists. Among several, in this order:
//
//  1. the most memory slices stay with instances that the GPU has;
//  2. the fewest instances are removed and created;
//  3. the most room is left: for each way in which a profile can lie on the GPU, the
//     largest first and of equal ones that with the fewest places, how many instances
//     the free slices still take if they take nothing else; the first difference decides;
//  4. the largest profile has the lowest start, then the next.
//
// The search looks at all placements that are not worse from the outset, which are at
// most some hundreds on the GPUs that there are.
func PlaceMIG(profiles []gpu.MIGProfile, have []MIGInstance, want map[string]int) (MIGPlan, error) {
	if err := checkMIGCounts(profiles, want); err != nil {
		return MIGPlan{}, err
	}
	left := map[string]int{}
	for name, n := range want {
		left[name] = n
	}
	var held, idle, surplus []MIGInstance
	for _, h := range have {
		switch {
		case h.Held == "":
			idle = append(idle, h)
		case left[h.Profile] == 0:
			surplus = append(surplus, h)
		default:
			left[h.Profile]--
			held = append(held, h)
		}
	}
	if len(surplus) > 0 {
		return MIGPlan{}, instancesInUse(surplus, 0, 0)
	}
	s := newMIGSearch(profiles, held, idle, left)
	if err := s.run(false); err != nil {
		return MIGPlan{}, err
	}
	if !s.found {
		return MIGPlan{}, whyNot(profiles, held, idle, want)
	}
	return s.plan(have), nil
}

// checkMIGCounts finds what no placement can cure.
func checkMIGCounts(profiles []gpu.MIGProfile, want map[string]int) error {
	var found gpu.Refusal
	total := 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		p, ok := findProfile(profiles, name)
		switch {
		case want[name] < 0:
			add(&found, MIGNoRoom, "%d instances of %s cannot be made", want[name], name)
		case want[name] == 0:
		case !ok:
			addProfile(&found, name, profiles)
		default:
			total += min(want[name], 64) * min(p.Size, 64)
		}
	}
	addTooMany(&found, profiles, want)
	addMedia(&found, profiles, want)
	if has := slicesOf(profiles); total > has && found.Fault == 0 {
		add(&found, MIGNoRoom, "the instances take %s together, but the GPU has %d", words.Plural(total, "memory slice"), has)
	}
	return found.Err()
}

// whyNot tells which instances in use are in the way, or that none are.
func whyNot(profiles []gpu.MIGProfile, held, idle []MIGInstance, want map[string]int) error {
	fits := func(stay, move []MIGInstance) bool {
		left := map[string]int{}
		for name, n := range want {
			left[name] = n
		}
		for _, h := range stay {
			left[h.Profile]--
		}
		s := newMIGSearch(profiles, stay, slices.Concat(move, idle), left)
		return s.run(true) == nil && s.found
	}
	if len(held) == 0 || !fits(nil, held) {
		var at []string
		for _, p := range profiles {
			if want[p.Name] > 0 {
				at = append(at, fmt.Sprintf("%s takes %s at %s", p.Name, words.Plural(p.Size, "slice"), startsText(p.Starts)))
			}
		}
		return unfit(MIGNoRoom, "the instances do not fit beside each other wherever they are put: %s", words.JoinAll(at))
	}
	var blocking []MIGInstance
	for i, h := range held {
		// It is in the way alone when moving it would do.
		if fits(slices.Concat(held[:i], held[i+1:]), held[i:i+1]) {
			blocking = append(blocking, h)
		}
	}
	if len(blocking) == 0 {
		blocking = held
	}
	used, need := uint64(0), 0
	for name, n := range want {
		if p, ok := findProfile(profiles, name); ok {
			need += n * p.Size
		}
	}
	for _, h := range held {
		m, _ := mask(h.Start, h.Size)
		used |= m
		need -= h.Size
	}
	return instancesInUse(blocking, slicesOf(profiles)-bits.OnesCount64(used), need)
}

// migSearch looks for the best placement of the wanted instances that are not held.
type migSearch struct {
	demands []migDemand
	rest    []migPromise // of the demands from each on
	ways    []migWay
	fixed   []gpu.MIGPlacement // what is held
	taken   uint64             // By what is held

	budget int
	first  bool // the first placement will do

	now   []int // the spots taken, demand after demand
	found bool
	best  []int
	score migScore
	room  []int // of the placement at hand
}

// migDemand is a wanted profile.
type migDemand struct {
	name  string
	count int
	spots []migSpot // ascending
	// idle is how many of the spots from each on hold an instance already.
	idle []int
	size int // of the largest spot
}

// migSpot is where an instance can be.
type migSpot struct {
	start int
	size  int
	mask  uint64
	idle  bool // an instance that may be removed is there
}

// migWay is how a profile can lie on the GPU.
type migWay []uint64 // ascending by start, all of one size

// migPromise is what demands can keep at most.
type migPromise struct{ slices, instances int }

// migScore compares placements: the greater, the better.
type migScore struct {
	slices, instances int // kept
	room              []int
}

// searchBudget ends a search through a table that no GPU has: the largest there is takes
// some thousand steps.
const searchBudget = 1 << 22

func newMIGSearch(profiles []gpu.MIGProfile, held, idle []MIGInstance, left map[string]int) *migSearch {
	s := &migSearch{ways: migWays(profiles), budget: searchBudget}
	for _, h := range held {
		s.fixed = append(s.fixed, h.MIGPlacement)
	}
	for _, h := range held {
		m, _ := mask(h.Start, h.Size)
		s.taken |= m
	}
	for i := range profiles {
		p := &profiles[i]
		// A profile that is listed twice is one profile.
		if left[p.Name] > 0 && !slices.ContainsFunc(s.demands, func(k migDemand) bool { return k.name == p.Name }) {
			s.demands = append(s.demands, newMIGDemand(p, left[p.Name], idle, s.taken))
		}
	}
	slices.SortStableFunc(s.demands, func(a, b migDemand) int { return cmp.Compare(b.size, a.size) })
	s.rest = make([]migPromise, len(s.demands)+1)
	for i := len(s.demands) - 1; i >= 0; i-- {
		k, after := s.demands[i], s.rest[i+1]
		n := min(k.count, k.idle[0])
		s.rest[i] = migPromise{slices: after.slices + n*k.size, instances: after.instances + n}
	}
	return s
}

// newMIGDemand lists where instances of a profile can be: at its starts, and where one is.
func newMIGDemand(p *gpu.MIGProfile, count int, idle []MIGInstance, taken uint64) migDemand {
	k := migDemand{name: p.Name, count: count}
	for _, h := range idle {
		if m, ok := mask(h.Start, h.Size); ok && h.Profile == p.Name && m&taken == 0 {
			k.spots = append(k.spots, migSpot{start: h.Start, size: h.Size, mask: m, idle: true})
		}
	}
	for _, start := range p.Starts {
		if m, ok := mask(start, p.Size); ok && m&taken == 0 {
			k.spots = append(k.spots, migSpot{start: start, size: p.Size, mask: m})
		}
	}
	// Of two spots with one start the one that holds an instance comes first and stays.
	slices.SortStableFunc(k.spots, func(a, b migSpot) int { return cmp.Compare(a.start, b.start) })
	k.spots = slices.CompactFunc(k.spots, func(a, b migSpot) bool { return a.start == b.start })
	k.idle = make([]int, len(k.spots)+1)
	for i := len(k.spots) - 1; i >= 0; i-- {
		k.idle[i] = k.idle[i+1]
		if k.spots[i].idle {
			k.idle[i]++
		}
		k.size = max(k.size, k.spots[i].size)
	}
	return k
}

// migWays are the ways in which the profiles can lie, in the order in which room counts.
func migWays(profiles []gpu.MIGProfile) []migWay {
	var out []migWay
	for i := range profiles {
		var w migWay
		for _, start := range slices.Compact(slices.Sorted(slices.Values(profiles[i].Starts))) {
			if m, ok := mask(start, profiles[i].Size); ok {
				w = append(w, m)
			}
		}
		if len(w) > 0 {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b migWay) int {
		return cmp.Or(
			cmp.Compare(bits.OnesCount64(b[0]), bits.OnesCount64(a[0])),
			cmp.Compare(len(a), len(b)),
			slices.Compare(a, b),
		)
	})
	return slices.CompactFunc(out, slices.Equal[migWay])
}

// Room is how many instances fit into free slices. They are of one size, so taking the
// first that fits is best.
func (w migWay) room(taken uint64) int {
	n := 0
	for _, m := range w {
		if m&taken == 0 {
			taken |= m
			n++
		}
	}
	return n
}

func (s *migSearch) run(first bool) error {
	s.first = first
	if len(s.demands) == 0 {
		s.found = true
		return nil
	}
	s.place(0, 0, s.demands[0].count, s.taken, migScore{})
	if s.budget <= 0 {
		return unfit(MIGNoRoom, "the GPU lists more ways to place its MIG profiles than can be searched")
	}
	return nil
}

// Place takes left more spots of demand k, from one on, and then those of the demands after
// it. What it looks at first wins when nothing else tells two placements apart.
func (s *migSearch) place(k, from, left int, taken uint64, kept migScore) {
	if s.budget--; s.budget <= 0 || (s.first && s.found) {
		return
	}
	if left == 0 {
		if k++; k == len(s.demands) {
			s.finish(taken, kept)
			return
		}
		from, left = 0, s.demands[k].count
	}
	demand := &s.demands[k]
	for i := from; i+left <= len(demand.spots); i++ {
		// What is still to come can only shrink from here on.
		can := min(left, demand.idle[i])
		if s.found && s.score.beats(kept.slices+can*demand.size+s.rest[k+1].slices, kept.instances+can+s.rest[k+1].instances) {
			return
		}
		spot := &demand.spots[i]
		if spot.mask&taken != 0 {
			continue
		}
		next := kept
		if spot.idle {
			next.slices += spot.size
			next.instances++
		}
		s.now = append(s.now, i)
		s.place(k, i+1, left-1, taken|spot.mask, next)
		s.now = s.now[:len(s.now)-1]
	}
}

// beats tells whether this placement keeps more than another can.
func (b *migScore) beats(otherSlices, otherInstances int) bool {
	return b.slices > otherSlices || (b.slices == otherSlices && b.instances > otherInstances)
}

// finish compares a whole placement with the best one.
func (s *migSearch) finish(taken uint64, kept migScore) {
	if s.found && s.score.beats(kept.slices, kept.instances) {
		return
	}
	s.room = s.room[:0]
	for _, w := range s.ways {
		s.room = append(s.room, w.room(taken))
	}
	if s.found && !kept.beats(s.score.slices, s.score.instances) && slices.Compare(s.room, s.score.room) <= 0 {
		return
	}
	s.found = true
	s.best = append(s.best[:0], s.now...)
	s.score.slices, s.score.instances = kept.slices, kept.instances
	s.score.room = append(s.score.room[:0], s.room...)
}

// plan sorts what the GPU has into what stays and what goes.
func (s *migSearch) plan(have []MIGInstance) MIGPlan {
	var out MIGPlan
	out.Keep = append(out.Keep, s.fixed...)
	at := 0
	for i := range s.demands {
		k := &s.demands[i]
		for _, spot := range s.best[at : at+k.count] {
			p := gpu.MIGPlacement{Profile: k.name, Start: k.spots[spot].start}
			if k.spots[spot].idle {
				out.Keep = append(out.Keep, p)
			} else {
				out.Create = append(out.Create, p)
			}
		}
		at += k.count
	}
	stays := slices.Clone(out.Keep)
	for _, h := range have {
		if i := slices.Index(stays, h.MIGPlacement); i >= 0 {
			stays = slices.Delete(stays, i, i+1)
			continue
		}
		out.Remove = append(out.Remove, h.MIGPlacement)
	}
	sortPlacements(out.Keep)
	sortPlacements(out.Remove)
	sortPlacements(out.Create)
	return out
}
