package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// PackItem is a share that a run plans and that is not placed yet.
type PackItem struct {
	Share *gpu.Share
	Label string
	Rooms []*SharedHost // where it may go
	size  float64       // the most that it is of a device there
}

// NewPackItem is a share and the hosts that it may be placed on.
func NewPackItem(s *gpu.Share, label string, rooms []*SharedHost) PackItem {
	i := PackItem{Share: s, Label: label, Rooms: rooms}
	for _, room := range rooms {
		for _, d := range room.devices {
			i.size = max(i.size, d.fraction(s))
		}
	}
	return i
}

// Verdict is what is known of several shares together.
type Verdict int

// Verdicts.
const (
	Fit Verdict = iota
	DoNotFit
	// Undecided is too much to try out.
	Undecided
)

// Bounds of the search: how many times a share is put somewhere, and how many sets of
// Devices are looked at for one share.
const (
	packSteps   = 5000
	packChoices = 100
)

// Pack tells whether shares that are not placed fit on their hosts together: the largest
// first, each where it would be put, and if that fails by trying. The devices are left as
// they were.
func Pack(items []PackItem) Verdict {
	_, v := arrange(items)
	return v
}

// arrange finds places for shares together.
func arrange(items []PackItem) (at map[*gpu.Share][]*Device, v Verdict) {
	items = slices.Clone(items)
	slices.SortStableFunc(items, CompareItems)
	at = map[*gpu.Share][]*Device{}
	done, failed := PackInOrder(items, false)
	if len(failed) == 0 {
		for _, p := range done {
			at[p.Item.Share] = p.Devices
		}
		return at, Fit
	}
	if tooMany(items) {
		return nil, DoNotFit
	}
	s := packSearch{items: items, pinned: map[string]bool{}, at: at}
	for _, i := range items {
		s.apart = s.apart || DevicesWanted(i.Share) > 1 || !slices.Equal(i.Rooms, items[0].Rooms)
		for _, id := range i.Share.GPUIDs {
			s.pinned[gpu.FoldID(id)] = true
		}
	}
	switch {
	case s.place(0):
		return at, Fit
	case s.cut:
		return nil, Undecided
	}
	return nil, DoNotFit
}

// CompareItems orders shares by how hard they are to place.
func CompareItems(a, b PackItem) int {
	return cmp.Or(
		cmp.Compare(DevicesWanted(b.Share), DevicesWanted(a.Share)), cmp.Compare(len(b.Share.GPUIDs), len(a.Share.GPUIDs)),
		cmp.Compare(b.size, a.size),
		cmp.Compare(b.Share.MemoryRequest, a.Share.MemoryRequest), cmp.Compare(b.Share.MemoryLimit, a.Share.MemoryLimit),
		cmp.Compare(a.Label, b.Label),
	)
}

// tooMany tells that shares cannot fit since there are more of one size than all devices
// take together, whatever else is there. It saves trying what is hopeless.
func tooMany(items []PackItem) bool {
	var devices []*Device
	seen := map[*SharedHost]bool{}
	for _, item := range items {
		if item.Share.RequestFraction+item.Share.LimitFraction > 0 {
			return false // it has another size on each device
		}
		for _, room := range item.Rooms {
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
	rooms := []func(*Device, Taken) float64{
		func(d *Device, t Taken) float64 { return float64(d.Memory) - float64(t.Request) },
		func(d *Device, t Taken) float64 { return d.limitsAllowed() - float64(t.Limit) },
		func(d *Device, t Taken) float64 { return d.threadsAllowed() - t.Threads },
	}
	for i, size := range sizes {
		tried := map[float64]bool{}
		for _, least := range items {
			if tried[size(least.Share)] {
				continue
			}
			tried[size(least.Share)] = true
			most, wanted := 0, 0
			for _, item := range items {
				if size(item.Share) >= size(least.Share) {
					wanted += DevicesWanted(item.Share)
				}
			}
			for _, d := range devices {
				t := d.Taken()
				n := max(d.Seats-t.shares, 0)
				if of := size(least.Share); of > 0 {
					n = min(n, int(max(rooms[i](d, t), 0)*(1+Tolerance)/of+Tolerance))
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

// Packed is where a share went.
type Packed struct {
	Item    PackItem
	Room    *SharedHost
	Devices []*Device
}

// PackInOrder puts each share where it goes after those before it. What it put is taken
// back in the end unless keep is true.
func PackInOrder(items []PackItem, keep bool) (done, failed []Packed) {
	for _, item := range items {
		best := Packed{Item: item}
		for _, room := range item.Rooms {
			devices := room.Pick(item.Share)
			if devices == nil {
				continue
			}
			if best.Devices == nil || compareChoices(devices, best.Devices) < 0 {
				best.Room, best.Devices = room, devices
			}
		}
		if best.Devices == nil {
			failed = append(failed, best)
			continue
		}
		take(best.Devices, item.Share)
		done = append(done, best)
	}
	if !keep {
		for _, p := range done {
			Release(p.Devices, p.Item.Share)
		}
	}
	return done, failed
}

func take(devices []*Device, s *gpu.Share) {
	for _, d := range devices {
		d.Shares = append(d.Shares, s)
	}
}

// Release takes a share off its devices.
func Release(devices []*Device, s *gpu.Share) {
	for _, d := range devices {
		if i := slices.Index(d.Shares, s); i >= 0 {
			d.Shares = slices.Delete(slices.Clone(d.Shares), i, i+1)
		}
	}
}

// packSearch tries all ways to place shares. Devices that are the same for all of them
// count once.
type packSearch struct {
	items []PackItem
	// apart is true when hosts and groups matter: a share wants several devices, or may not
	// go where another may.
	apart  bool
	pinned map[string]bool
	steps  int
	cut    bool // not everything was tried
	at     map[*gpu.Share][]*Device
}

// Place finds places for the shares from one on.
func (p *packSearch) place(from int) bool {
	if from == len(p.items) {
		return true
	}
	item := p.items[from]
	seen := map[string]bool{}
	for _, room := range item.Rooms {
		for _, devices := range p.choices(room, item.Share) {
			like := p.signature(room, devices)
			if seen[like] {
				continue
			}
			seen[like] = true
			if p.steps++; p.steps > packSteps {
				p.cut = true
				return false
			}
			take(devices, item.Share)
			found := p.possible(from+1) && p.place(from+1)
			Release(devices, item.Share)
			if found {
				p.at[item.Share] = devices
			}
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
		if !slices.ContainsFunc(item.Rooms, func(room *SharedHost) bool { return room.Pick(item.Share) != nil }) {
			return false
		}
	}
	return true
}

// choices are the sets of devices of a host that a share could be on.
func (p *packSearch) choices(room *SharedHost, s *gpu.Share) [][]*Device {
	groups := map[string][]*Device{}
	for _, d := range room.Scoped(s) {
		if d.Takes(s) {
			groups[d.group] = append(groups[d.group], d)
		}
	}
	var out [][]*Device
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		p.subsets(groups[name], s, nil, &out)
	}
	return out
}

// subsets adds the sets of a group that have as many devices as a share wants, on each
// pinned GPU one.
func (p *packSearch) subsets(group []*Device, s *gpu.Share, chosen []*Device, out *[][]*Device) {
	switch {
	case len(*out) >= packChoices:
		p.cut = true
		return
	case len(chosen) == DevicesWanted(s):
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
func (p *packSearch) signature(room *SharedHost, devices []*Device) string {
	parts := make([]string, len(devices))
	for i, d := range devices {
		parts[i] = fmt.Sprint(d.Mode, d.Memory, d.Oversubscription, d.Seats, d.part, d.Taken(), "\x00", d.pool.id)
		if d.Config != nil {
			parts[i] += "\x00" + d.Config.ID
		}
		if d.Instance != nil {
			parts[i] += "\x00" + d.Instance.Profile
		}
		if p.apart {
			parts[i] += "\x00" + room.Key + "\x00" + d.group
		}
		if p.pinned[gpu.FoldID(d.GPU)] {
			parts[i] += "\x00" + d.GPU
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "\x00\x00")
}
