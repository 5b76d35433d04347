package placement

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Move is a share that is placed and that a run changes or ends. Its devices are those of
// From; To is nil when it ends.
type Move struct {
	Room     *SharedHost
	From, To *gpu.Share
}

// orderSteps bounds the search of EveryOrder: how often a host is looked at for a share.
const orderSteps = 20000

// EveryOrder tells whether shares that are not placed all find a place in whatever order
// they come, each where it would be put by then, while the moves happen in between: nothing
// tells a share, when its turn comes, what comes after it, and it is never moved. What finds
// no room waits for a move. The hosts have the shares that stay, and those of the moves as
// they will be; they are left as they were. stuck is a share that is left over in some order.
//
// Undecided is also DoNotFit for who has to be sure.
func EveryOrder(items []PackItem, moves []Move) (v Verdict, stuck *gpu.Share) {
	o := orders{items: items, moves: moves, seen: map[string]bool{}, waiting: make([]int, 0, len(items))}
	classes := map[string]int{}
	for i, item := range items {
		key := item.class()
		at, ok := classes[key]
		if !ok {
			at = len(o.class)
			classes[key] = at
			o.class, o.waiting = append(o.class, nil), append(o.waiting, 0)
		}
		o.class[at] = append(o.class[at], i)
		o.waiting[at]++
		for _, room := range item.Rooms {
			if !slices.Contains(o.rooms, room) {
				o.rooms = append(o.rooms, room)
			}
		}
	}
	if o.roomy() {
		return Fit, nil
	}
	o.begin()
	defer o.end()
	switch {
	case !o.visit():
		return DoNotFit, o.unplaced
	case o.cut:
		return Undecided, nil
	}
	return Fit, nil
}

// orders is the search of EveryOrder. Shares of one class make no difference to each other.
type orders struct {
	items    []PackItem
	moves    []Move
	class    [][]int // the items of each class
	waiting  []int   // how many of each class are not placed
	done     []bool  // moves
	rooms    []*SharedHost
	seen     map[string]bool
	steps    int
	cut      bool
	unplaced *gpu.Share
}

// class is the same for shares that want the same of the same hosts.
func (i PackItem) class() string {
	s, rooms := i.Share, make([]string, len(i.Rooms))
	for n, room := range i.Rooms {
		rooms[n] = room.Key
	}
	return fmt.Sprintf("%d %d %v %v %v %v %q %q %q %d %q %q", s.MemoryRequest, s.MemoryLimit, s.RequestFraction,
		s.LimitFraction, s.ActiveThreadPercentage, s.ClientPriority != nil,
		gpu.FoldID(s.Pool), gpu.FoldID(s.Config), s.Profile, DevicesWanted(s), s.GPUIDs, rooms)
}

// begin puts the moves back to where they come from.
func (o *orders) begin() {
	o.done = make([]bool, len(o.moves))
	for _, m := range o.moves {
		m.swap(m.To, m.From)
	}
}

func (o *orders) end() {
	for _, m := range o.moves {
		m.swap(m.From, m.To)
	}
}

// swap puts one share in another one's place.
func (m Move) swap(from, to *gpu.Share) {
	for _, at := range m.From.Devices {
		d := m.Room.Find(at)
		if d == nil {
			continue
		}
		shares := slices.Clone(d.Shares)
		if i := slices.Index(shares, from); from != nil && i >= 0 {
			shares = slices.Delete(shares, i, i+1)
		}
		if to != nil {
			shares = append(shares, to)
		}
		d.Shares = shares
	}
}

// possible tells whether there is room for a move by now.
func (m Move) possible() bool {
	if m.To == nil {
		return true
	}
	m.swap(m.From, nil)
	defer m.swap(nil, m.From)
	return !slices.ContainsFunc(m.From.Devices, func(at gpu.SharedDevice) bool {
		d := m.Room.Find(at)
		return d != nil && d.Exceeded(d.add(d.Taken(), m.To, 1)) != 0 && !d.eases(m.From, m.To)
	})
}

// eases tells whether a share wants no more than before, which is never refused.
func (d *Device) eases(from, to *gpu.Share) bool {
	return d.Request(to) <= d.Request(from) && d.Limit(to) <= d.Limit(from) && to.ActiveThreadPercentage <= from.ActiveThreadPercentage
}

// visit tries all that can come next. It returns false once a share is left over.
func (o *orders) visit() bool {
	key := o.state()
	if o.seen[key] {
		return true
	}
	if o.steps >= orderSteps {
		o.cut = true
		return true
	}
	o.seen[key] = true
	placed, ok := o.placeNext()
	if !ok {
		return false
	}
	moved, ok := o.moveNext()
	if !ok {
		return false
	}
	return placed || moved || !o.leftOver()
}

// placeNext has one share of each class come next, where it finds room, and goes on from there.
func (o *orders) placeNext() (went, ok bool) {
	for c, n := range o.waiting {
		if n == 0 {
			continue
		}
		item := o.items[o.class[c][n-1]]
		o.steps += len(item.Rooms)
		done, _ := PackInOrder([]PackItem{item}, true)
		if len(done) == 0 {
			continue
		}
		went = true
		o.waiting[c]--
		ok := o.visit()
		o.waiting[c]++
		Release(done[0].Devices, item.Share)
		if !ok {
			return true, false
		}
	}
	return went, true
}

// moveNext has each move that there is room for come next, and goes on from there.
func (o *orders) moveNext() (went, ok bool) {
	for i, m := range o.moves {
		if o.done[i] || !m.possible() {
			continue
		}
		went = true
		m.swap(m.From, m.To)
		o.done[i] = true
		ok := o.visit()
		o.done[i] = false
		m.swap(m.To, m.From)
		if !ok {
			return true, false
		}
	}
	return went, true
}

// leftOver tells whether anything is left where nothing can come next, and notes what.
func (o *orders) leftOver() bool {
	for c, n := range o.waiting {
		if n > 0 {
			o.unplaced = o.items[o.class[c][n-1]].Share
			return true
		}
	}
	for i, m := range o.moves {
		if !o.done[i] {
			o.unplaced = m.To
			return true
		}
	}
	return false
}

// state is the same for two ways that lead to the same.
func (o *orders) state() string {
	var b strings.Builder
	fmt.Fprint(&b, o.waiting, o.done)
	for _, room := range o.rooms {
		for _, d := range room.devices {
			t := d.Taken()
			fmt.Fprint(&b, " ", t.shares, t.Request, t.Limit, t.Threads)
		}
	}
	return b.String()
}

// roomy tells, without trying, that every share finds a place wherever the others are: they
// are too little to fill up all the devices that it could be on. It spares the search what
// is plain.
//
// Two things have to hold in any order. A move that wants more than before finds its room even if
// all that may be on its device has come before it (raisesFit). And each share finds a device: of
// those it may be on, the others cannot fill up all (classRoomy), or cannot have begun all
// (staysEmpty).
func (o *orders) roomy() bool {
	most, reach := o.mostTaken(), o.reachOfClasses()
	if !o.raisesFit(most, reach) {
		return false
	}
	for c := range o.class {
		if !o.classRoomy(c, most, reach) && !o.staysEmpty(c, most, reach) {
			return false
		}
	}
	return true
}

// mostTaken is what is taken of each device by the shares that are placed, with the moves at their
// largest: in any order and at any time it is no more.
func (o *orders) mostTaken() map[*Device]Taken {
	most := map[*Device]Taken{}
	for _, room := range o.rooms {
		for _, d := range room.devices {
			most[d] = d.Taken()
		}
	}
	for m, d := range o.devicesMoved() {
		t := most[d]
		if m.To == nil {
			t = d.add(t, m.From, 1)
		} else {
			t.Request += max(d.Request(m.From), d.Request(m.To)) - d.Request(m.To)
			t.Limit += max(d.Limit(m.From), d.Limit(m.To)) - d.Limit(m.To)
			t.Threads += max(m.From.ActiveThreadPercentage, m.To.ActiveThreadPercentage) - m.To.ActiveThreadPercentage
		}
		most[d] = t
	}
	return most
}

// devicesMoved are the moves, once for each of their devices.
func (o *orders) devicesMoved() iter.Seq2[Move, *Device] {
	return func(yield func(Move, *Device) bool) {
		for _, m := range o.moves {
			for _, at := range m.From.Devices {
				if d := m.Room.Find(at); d != nil && !yield(m, d) {
					return
				}
			}
		}
	}
}

// reachOfClasses are the devices that the shares of each class may be on.
func (o *orders) reachOfClasses() []map[*Device]bool {
	reach := make([]map[*Device]bool, len(o.class))
	for c := range o.class {
		reach[c] = map[*Device]bool{}
		item := o.items[o.class[c][0]]
		for _, room := range item.Rooms {
			for _, d := range room.Scoped(item.Share) {
				if d.Alone(item.Share) {
					reach[c][d] = true
				}
			}
		}
	}
	return reach
}

// raisesFit tells whether each move that wants more than before has room for it beside all shares that
// may be on its device: who comes before the raise may take its room.
func (o *orders) raisesFit(most map[*Device]Taken, reach []map[*Device]bool) bool {
	for m, d := range o.devicesMoved() {
		if m.To == nil || d.eases(m.From, m.To) {
			continue
		}
		all := most[d]
		for c, items := range o.class {
			if reach[c][d] {
				all = d.add(all, o.items[items[0]].Share, len(items))
			}
		}
		if d.Exceeded(all) != 0 {
			return false
		}
	}
	return true
}

// Alone tells whether a share fits on a device that has no other.
func (d *Device) Alone(s *gpu.Share) bool {
	empty := *d
	empty.Shares = nil
	return empty.Takes(s)
}

// others goes through the other shares that a share of a class may meet: one of each class,
// and how many.
func (o *orders) others(c int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for other, items := range o.class {
			n := len(items)
			if other == c {
				n--
			}
			if n > 0 && !yield(other, n) {
				return
			}
		}
	}
}

// classRoomy tells whether the others cannot fill up all devices of a class, wherever they
// are.
func (o *orders) classRoomy(c int, most map[*Device]Taken, reach []map[*Device]bool) bool {
	s := o.items[o.class[c][0]].Share
	// A device is full for the share once the others have as much of something there as
	// is left of it. What each of them does to that, at most, is its weight.
	weights := make([]float64, len(o.class))
	free, always := map[string]int{}, map[string]int{} // by group
	for _, room := range o.rooms {
		for _, d := range room.devices {
			with := d.add(most[d], s, 1)
			if !reach[c][d] || d.Exceeded(with) != 0 {
				continue
			}
			group, all := room.Key+"\x00"+d.group, with
			free[group]++
			for other, n := range o.others(c) {
				if reach[other][d] {
					share := o.items[o.class[other][0]].Share
					weights[other] = max(weights[other], d.weight(share, with))
					all = d.add(all, share, n)
				}
			}
			if d.Exceeded(all) == 0 {
				always[group]++
			}
		}
	}
	full := 0.0
	for other, n := range o.others(c) {
		full += weights[other] * float64(n*DevicesWanted(o.items[o.class[other][0]].Share))
	}
	for group, n := range free {
		if always[group] >= DevicesWanted(s) || float64(n-DevicesWanted(s)+1) > full+Tolerance {
			return true
		}
	}
	return false
}

// weight is how much of what is left of a device a share takes, 1 when it takes all.
func (d *Device) weight(s *gpu.Share, taken Taken) float64 {
	w := 1 / float64(d.Seats-taken.shares+1)
	if request := d.Request(s); request > 0 {
		w = max(w, float64(request)/float64(d.Memory-taken.Request+1))
	}
	if limit := d.Limit(s); limit > 0 {
		w = max(w, float64(limit)/(d.limitsAllowed()-float64(taken.Limit)+1))
	}
	if s.ActiveThreadPercentage > 0 {
		w = max(w, s.ActiveThreadPercentage/(d.threadsAllowed()-taken.Threads+1e-6))
	}
	return min(w, 1)
}

// staysEmpty tells whether a device that nobody has stays free for a class. A share goes to
// the fullest device that takes it, so that it begins one only when it does not fit on those
// that have been begun: any two of these hold more than one device together.
func (o *orders) staysEmpty(c int, most map[*Device]Taken, reach []map[*Device]bool) bool {
	var empty []*Device
	for d := range reach[c] {
		if d.exclusive() == 0 && most[d].shares == 0 && d.Exceeded(d.add(Taken{}, o.items[o.class[c][0]].Share, 1)) == 0 {
			empty = append(empty, d)
		}
	}
	full := 0.0
	for other, n := range o.others(c) {
		s, common, w := o.items[o.class[other][0]].Share, 0, 0.0
		for _, d := range empty {
			if reach[other][d] {
				common, w = common+1, max(w, d.weight(s, Taken{shares: 1}))
			}
		}
		if common > 0 && (common < len(empty) || DevicesWanted(s) > 1) {
			return false
		}
		full += w * float64(n)
	}
	return DevicesWanted(o.items[o.class[c][0]].Share) == 1 && float64(len(empty)) > max(1, 2*full)
}

// Pins are GPUs on which shares that are not placed fit in every order, by name of the
// share, if they are named in `gpu_ids`; nil when none are found. Pins that are written
// already stay.
func Pins(items []PackItem, moves []Move) map[string][]string {
	at, v := arrange(items)
	if v != Fit {
		return nil
	}
	out, pinned := map[string][]string{}, make([]PackItem, len(items))
	for i, item := range items {
		s := *item.Share
		if len(s.GPUIDs) == 0 {
			for _, d := range at[item.Share] {
				if !gpu.HasID(s.GPUIDs, d.GPU) {
					s.GPUIDs = append(slices.Clone(s.GPUIDs), d.GPU)
				}
			}
			s.Count = len(s.GPUIDs)
			out[s.Name] = s.GPUIDs
		}
		pinned[i] = item
		pinned[i].Share = &s
	}
	if v, _ = EveryOrder(pinned, moves); v != Fit {
		return nil
	}
	return out
}
