package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// packItem is a share that a run plans and that is not placed yet.
type packItem struct {
	share *gpu.Share
	label string
	rooms []*sharedHost // where it may go
	size  float64       // the most that it is of a device there
}

func newPackItem(s *gpu.Share, label string, rooms []*sharedHost) packItem {
	i := packItem{share: s, label: label, rooms: rooms}
	for _, room := range rooms {
		for _, d := range room.devices {
			i.size = max(i.size, d.fraction(s))
		}
	}
	return i
}

// verdict is what is known of several shares together.
type verdict int

const (
	fit verdict = iota
	doNotFit
	// undecided is too much to try out.
	undecided
)

// Bounds of the search: how many times a share is put somewhere, and how many sets of
// devices are looked at for one share.
const (
	packSteps   = 5000
	packChoices = 100
)

// pack tells whether shares that are not placed fit on their hosts together: the largest
// first, each where it would be put, and if that fails by trying. The devices are left as
// they were.
func pack(items []packItem) verdict {
	items = slices.Clone(items)
	slices.SortStableFunc(items, compareItems)
	if _, failed := packInOrder(items, false); len(failed) == 0 {
		return fit
	}
	if tooMany(items) {
		return doNotFit
	}
	s := packSearch{items: items, pinned: map[string]bool{}}
	for _, i := range items {
		s.apart = s.apart || devicesWanted(i.share) > 1 || !slices.Equal(i.rooms, items[0].rooms)
		for _, id := range i.share.GPUIDs {
			s.pinned[gpu.FoldID(id)] = true
		}
	}
	switch {
	case s.place(0):
		return fit
	case s.cut:
		return undecided
	}
	return doNotFit
}

// compareItems orders shares by how hard they are to place.
func compareItems(a, b packItem) int {
	return cmp.Or(
		cmp.Compare(devicesWanted(b.share), devicesWanted(a.share)), cmp.Compare(len(b.share.GPUIDs), len(a.share.GPUIDs)), cmp.Compare(b.size, a.size),
		cmp.Compare(b.share.MemoryRequest, a.share.MemoryRequest), cmp.Compare(b.share.MemoryLimit, a.share.MemoryLimit), cmp.Compare(a.label, b.label),
	)
}

// tooMany tells that shares cannot fit since there are more of one size than all devices
// take together, whatever else is there. It saves trying what is hopeless.
func tooMany(items []packItem) bool {
	var devices []*shareDevice
	seen := map[*sharedHost]bool{}
	for _, item := range items {
		for _, room := range item.rooms {
			if !seen[room] {
				seen[room] = true
				devices = append(devices, room.devices...)
			}
		}
	}
	sizes := []func(*gpu.Share) float64{
		func(s *gpu.Share) float64 { return float64(s.MemoryRequest) },
		func(s *gpu.Share) float64 { return float64(s.MemoryLimit) },
		func(s *gpu.Share) float64 { return s.ActiveThreadPercentage },
	}
	rooms := []func(*shareDevice, taken) float64{
		func(d *shareDevice, t taken) float64 { return float64(d.memory) - float64(t.request) },
		func(d *shareDevice, t taken) float64 { return d.limitsAllowed() - float64(t.limit) },
		func(d *shareDevice, t taken) float64 { return d.threadsAllowed() - t.threads },
	}
	for i, size := range sizes {
		tried := map[float64]bool{}
		for _, least := range items {
			if tried[size(least.share)] {
				continue
			}
			tried[size(least.share)] = true
			most, wanted := 0, 0
			for _, item := range items {
				if size(item.share) >= size(least.share) {
					wanted += devicesWanted(item.share)
				}
			}
			for _, d := range devices {
				t := d.taken()
				n := max(d.seats-t.shares, 0)
				if of := size(least.share); of > 0 {
					n = min(n, int(max(rooms[i](d, t), 0)*(1+tolerance)/of+tolerance))
				}
				most += n
			}
			if wanted > most {
				return true
			}
		}
	}
	return false
}

// packed is where a share went.
type packed struct {
	item    packItem
	room    *sharedHost
	devices []*shareDevice
}

// packInOrder puts each share where it goes after those before it. What it put is taken
// back in the end unless keep is true.
func packInOrder(items []packItem, keep bool) (done, failed []packed) {
	for _, item := range items {
		best := packed{item: item}
		for _, room := range item.rooms {
			devices := room.pick(item.share)
			if devices == nil {
				continue
			}
			if best.devices == nil || compareChoices(devices, best.devices) < 0 {
				best.room, best.devices = room, devices
			}
		}
		if best.devices == nil {
			failed = append(failed, best)
			continue
		}
		take(best.devices, item.share)
		done = append(done, best)
	}
	if !keep {
		for _, p := range done {
			release(p.devices, p.item.share)
		}
	}
	return done, failed
}

func take(devices []*shareDevice, s *gpu.Share) {
	for _, d := range devices {
		d.shares = append(d.shares, s)
	}
}

func release(devices []*shareDevice, s *gpu.Share) {
	for _, d := range devices {
		if i := slices.Index(d.shares, s); i >= 0 {
			d.shares = slices.Delete(slices.Clone(d.shares), i, i+1)
		}
	}
}

// packSearch tries all ways to place shares. Devices that are the same for all of them
// count once.
type packSearch struct {
	items []packItem
	// apart is true when hosts and groups matter: a share wants several devices, or may not
	// go where another may.
	apart  bool
	pinned map[string]bool
	steps  int
	cut    bool // not everything was tried
}

// place finds places for the shares from one on.
func (p *packSearch) place(from int) bool {
	if from == len(p.items) {
		return true
	}
	item := p.items[from]
	seen := map[string]bool{}
	for _, room := range item.rooms {
		for _, devices := range p.choices(room, item.share) {
			like := p.signature(room, devices)
			if seen[like] {
				continue
			}
			seen[like] = true
			if p.steps++; p.steps > packSteps {
				p.cut = true
				return false
			}
			take(devices, item.share)
			found := p.possible(from+1) && p.place(from+1)
			release(devices, item.share)
			if found || p.cut && p.steps > packSteps {
				return found
			}
		}
	}
	return false
}

// possible tells whether each of the shares that are left still has a place of its own.
func (p *packSearch) possible(from int) bool {
	for _, item := range p.items[from:] {
		if !slices.ContainsFunc(item.rooms, func(room *sharedHost) bool { return room.pick(item.share) != nil }) {
			return false
		}
	}
	return true
}

// choices are the sets of devices of a host that a share could be on.
func (p *packSearch) choices(room *sharedHost, s *gpu.Share) [][]*shareDevice {
	groups := map[string][]*shareDevice{}
	for _, d := range room.scoped(s) {
		if d.takes(s) {
			groups[d.group] = append(groups[d.group], d)
		}
	}
	var out [][]*shareDevice
	for _, name := range sortedKeys(groups) {
		p.subsets(groups[name], s, nil, &out)
	}
	return out
}

// subsets adds the sets of a group that have as many devices as a share wants, on each
// pinned GPU one.
func (p *packSearch) subsets(group []*shareDevice, s *gpu.Share, chosen []*shareDevice, out *[][]*shareDevice) {
	switch {
	case len(*out) >= packChoices:
		p.cut = true
		return
	case len(chosen) == devicesWanted(s):
		*out = append(*out, slices.Clone(chosen))
		return
	}
	for i, d := range group {
		if len(s.GPUIDs) == 0 || gpu.SameID(d.GPU, s.GPUIDs[len(chosen)]) {
			rest := group[i+1:]
			if len(s.GPUIDs) > 0 {
				rest = group
			}
			p.subsets(rest, s, append(chosen, d), out)
		}
	}
}

// signature is the same for sets of devices that make no difference to any share.
func (p *packSearch) signature(room *sharedHost, devices []*shareDevice) string {
	parts := make([]string, len(devices))
	for i, d := range devices {
		parts[i] = fmt.Sprint(d.mode, d.memory, d.oversubscription, d.seats, d.part, d.taken(), "\x00", d.pool.id)
		if d.config != nil {
			parts[i] += "\x00" + d.config.ID
		}
		if d.Instance != nil {
			parts[i] += "\x00" + d.Instance.Profile
		}
		if p.apart {
			parts[i] += "\x00" + room.key + "\x00" + d.group
		}
		if p.pinned[gpu.FoldID(d.GPU)] {
			parts[i] += "\x00" + d.GPU
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "\x00\x00")
}
