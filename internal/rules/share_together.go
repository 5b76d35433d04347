package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Terraform plans the resources of a run in any order, and asks for each one once. So a
// plan that is about shares looks at all of them that are known by then: whichever is
// planned last sees them all, and the verdict is one. What this state has counts by its
// plans alone; a claim of its own that is not planned yet may be about to change or to go.

// pending tells whether hosts have claims of this state, of some kinds, that the run has
// not planned yet.
func (r *run) pending(hosts []string, kinds ...gpu.ClaimKind) bool {
	return r.unplanned(hosts, func(c *gpu.Claim) bool { return slices.Contains(kinds, c.Kind) })
}

// pendingUnder tells whether the run has still to plan what decides the devices that a share has.
// Another config that takes them says so itself.
func (r *run) pendingUnder(s *gpu.Share, host string) bool {
	return r.unplanned([]string{host}, func(c *gpu.Claim) bool {
		switch c.Kind {
		case gpu.ClaimConfig:
			return slices.ContainsFunc(s.Devices, func(d gpu.SharedDevice) bool { return c.Covers(d.GPU) })
		case gpu.ClaimPool:
			return c.Want.Pool != nil && gpu.SameID(c.Want.Pool.ID, s.Pool)
		case gpu.ClaimAssignment, gpu.ClaimShare:
		}
		return false
	})
}

// unplanned tells whether hosts have claims of this state that matter and that the run has not
// planned yet.
func (r *run) unplanned(hosts []string, matters func(*gpu.Claim) bool) bool {
	if r.applying || r.owner == "" {
		return false
	}
	for _, host := range hosts {
		h, ok := r.host(host)
		if !ok {
			continue
		}
		for i := range h.Claims {
			if c := &h.Claims[i]; c.Owner == r.owner && matters(c) && !r.superseded(c) && !r.takesOver(host, c) {
				return true
			}
		}
	}
	return false
}

// layouts are the claims that decide what a host has for shares.
var layouts = []gpu.ClaimKind{gpu.ClaimConfig, gpu.ClaimPool}

// together finds out whether the shares of the run that are not placed fit on their hosts,
// as far as they have to do with some hosts: each by itself, beside each other, and in
// whatever order they are made. Each thing is said once in a run.
func (r *run) together(o *shareOutcome, hosts []string) {
	if r.applying || r.before || r.othersBefore || !r.canBeAsked(hosts) {
		return
	}
	me := r.plan.Want.Share
	entries, reached := r.unplaced(hosts)
	if len(reached) == 0 || len(entries) == 0 && (me == nil || len(me.Devices) > 0) || r.pending(reached, layouts...) {
		return
	}
	on := strings.Join(reached, " ")
	if r.toldBefore(key("together", on)) || r.toldBefore(key("order", on)) {
		return
	}
	known, now := map[string]*placement.SharedHost{}, map[string]*placement.SharedHost{}
	for _, key := range reached {
		known[key], now[key] = r.room(key), r.today(key)
	}
	if me != nil && len(me.Devices) > 0 && known[me.Host] != nil {
		known[me.Host].Put(me)
	}
	var items, soon []placement.PackItem // in the end, and those that may come before the configs of the run
	add := func(s *gpu.Share, label string, hosts []string) {
		in := func(known map[string]*placement.SharedHost) placement.PackItem {
			rooms := make([]*placement.SharedHost, len(hosts))
			for i, key := range hosts {
				rooms[i] = known[key]
			}
			return placement.NewPackItem(s, label, rooms)
		}
		then, today := in(known), in(now)
		if !r.fitsAlone(o, then, today.Rooms) {
			return
		}
		if items = append(items, then); s.Config == "" {
			soon = append(soon, today)
		}
	}
	for _, u := range entries {
		add(u.entry.plan.Want.Share, labelOf(u.entry.plan), u.hosts)
	}
	if me != nil && len(me.Devices) == 0 && !r.plan.Unchanged {
		add(me, r.label(), hosts)
	}
	if fit, placed := r.inEveryOrder(o, items, known, on, ""); fit {
		if fit, _ = r.inEveryOrder(o, soon, now, on, releasedLater); fit {
			o.beside(r, placed)
		}
	}
}

// inEveryOrder tells whether shares fit on hosts in whatever order they are made, and reports that
// they do not. Those that take the place of others of their name are left out.
func (r *run) inEveryOrder(o *shareOutcome, items []placement.PackItem, known map[string]*placement.SharedHost, on, fix string) (bool, []placement.PackItem) {
	slices.SortStableFunc(items, func(a, b placement.PackItem) int { return strings.Compare(a.Label, b.Label) })
	items, moves := renamed(items, r.moves(known))
	if len(items) == 0 {
		return true, nil
	}
	if placement.Pack(items) == placement.DoNotFit {
		f := r.leftOver(items, "The shares of this run do not fit together")
		f.Fix += fix
		o.once(r, f, key("together", on))
		return false, nil
	}
	if r.pending(sortedKeys(known), gpu.ClaimShare) {
		return false, nil // what is planned of these may take or free room
	}
	every, stuck := placement.EveryOrder(items, moves)
	if every != placement.Fit {
		f := r.anyOrder(items, moves, stuck)
		f.Fix += fix
		o.once(r, f, key("order", on))
	}
	return every == placement.Fit, items
}

// releasedLater says when shares find room on what a run releases.
const releasedLater = " What a gpu_partition_config of this run releases can be used in the next apply."

// once reports what no other plan of the run has reported yet.
func (o *shareOutcome) once(r *run, f Finding, k string) {
	if by, _ := r.book.told.LoadOrStore(k, r.plan.Token); by == r.plan.Token {
		o.add(f, k)
	}
}

// toldBefore tells whether another plan has reported that.
func (r *run) toldBefore(k string) bool {
	by, told := r.book.told.Load(k)
	return told && by != r.plan.Token
}

// fitsAlone reports a share of the run that finds no place by itself, or one that another
// plan takes away.
func (r *run) fitsAlone(o *shareOutcome, item placement.PackItem, today []*placement.SharedHost) bool {
	s := item.Share
	own := s == r.plan.Want.Share
	if f, lacks := r.noRoom(s, item.Rooms, today); lacks {
		if !own { // its own plan has said so of this one
			if f.Path = r.pathOfShares(); r.plan.Want.Share == nil {
				f.Rule = sharePlacement // the others are about shares
			}
			f.Wanted, f.Other = fmt.Sprintf("%s of this run wants %s.", capital(item.Label), shareText(s)), item.Label
			o.once(r, f, key("alone", item.Label))
		}
		return false
	}
	for i, room := range item.Rooms {
		if f, lost := r.passing(item, room, today[i]); lost {
			o.once(r, f, key("passing", item.Label, room.Key))
			return false
		}
	}
	return true
}

// passing finds a device that a share may be put on before this run changes it: without a
// reference Terraform may make the share first.
func (r *run) passing(item placement.PackItem, room, today *placement.SharedHost) (f Finding, lost bool) {
	s := item.Share
	if s.Config != "" {
		return f, false
	}
	for _, now := range today.Scoped(s) {
		then := room.Find(now.SharedDevice)
		if !now.Alone(s) || then != nil && then.Mode == now.Mode && then.Seats >= now.Seats && then.Oversubscription >= now.Oversubscription && then.Alone(s) {
			continue
		}
		becomes := "goes with another layout of the GPU"
		if then != nil {
			becomes = "is of mode " + string(then.Mode)
			if then.Unfit != nil {
				becomes = then.Unfit.Found
			}
		}
		f = Finding{
			Rule: sharePlacement, Path: r.pathOfShares(), Title: "The share may be made before the GPU's layout", Host: room.Key, GPU: now.GPU,
			Found: fmt.Sprintf("%s of %s takes the share as it is now (%s); after this run it %s. Nothing says which of the two comes first.",
				placement.DeviceText(now.SharedDevice), hostText(room.Key), now.Mode, becomes),
			Wanted: fmt.Sprintf("%s wants %s. A share stays where it was placed.", capital(item.Label), shareText(s)),
			Fix:    "Refer to the config, as in `config = gpu_partition_config.NAME.id`, so that the share waits for it: Terraform tells a provider nothing of `depends_on`. Or name GPUs in `gpu_ids` that this run does not change.",
		}
		if item.Label != r.label() {
			f.Other = item.Label
		}
		return f, true
	}
	return f, false
}

// today is a host with the GPUs as they are laid out now, in the pools that this run wants,
// under the shares that stay.
func (r *run) today(key string) *placement.SharedHost {
	h := r.fleet.hosts[key]
	room := placement.NewSharedHost(key, r.laidOut(key, h), h)
	for _, s := range r.sharesPlaced(key, h) {
		room.Put(s)
	}
	return room
}

// pathOfShares is the attribute of the checked plan that shares have to do with.
func (r *run) pathOfShares() string {
	switch w := r.plan.Want; {
	case w.Share != nil:
		return r.placeAttribute(w.Share)
	case w.Pool != nil:
		return "members"
	case w.Config != nil:
		return "hosts"
	}
	return "name"
}

// moves are the shares on hosts that the run changes or ends.
func (r *run) moves(known map[string]*placement.SharedHost) []placement.Move {
	var out []placement.Move
	add := func(prior, want *gpu.Share) {
		if prior == nil || len(prior.Devices) == 0 || known[prior.Host] == nil {
			return
		}
		if want != nil && len(want.Devices) == 0 {
			want = nil // it is replaced
		}
		if want == nil || !want.SameAmounts(prior) {
			out = append(out, placement.Move{Room: known[prior.Host], From: prior, To: want})
		}
	}
	seen := map[*entry]bool{}
	for _, host := range sortedKeys(known) {
		for e := range r.others(sharesOn(host)) {
			if !seen[e] && !e.plan.Unchanged {
				seen[e] = true
				add(e.plan.Prior.Share, e.plan.Want.Share)
			}
		}
	}
	if !r.plan.Unchanged {
		add(r.plan.Prior.Share, r.plan.Want.Share)
	}
	return out
}

// renamed leaves out shares that take the place of one of their name. One of another shape is placed
// anew.
func renamed(items []placement.PackItem, moves []placement.Move) ([]placement.PackItem, []placement.Move) {
	moves = slices.DeleteFunc(moves, func(m placement.Move) bool {
		if m.To != nil {
			return false
		}
		i := slices.IndexFunc(items, func(i placement.PackItem) bool {
			return gpu.SameID(i.Share.Name, m.From.Name) && slices.Contains(i.Rooms, m.Room) && len(i.Share.GPUIDs) == 0 && change.SamePlacement(m.From, i.Share)
		})
		if i < 0 {
			return false
		}
		stays := *items[i].Share
		stays.Devices = m.From.Devices
		m.Room.Put(&stays)
		items = slices.Delete(items, i, i+1)
		return true
	})
	return items, moves
}

// anyOrder words shares that fit beside each other, but not in every order.
func (r *run) anyOrder(items []placement.PackItem, moves []placement.Move, stuck *gpu.Share) Finding {
	f := Finding{
		Rule: sharePlacement, Path: r.pathOfShares(), Title: "The shares of this run fit in some orders only", Host: items[0].Rooms[0].Key,
		Found:  "There are too many ways to place the shares of this run one after the other to try them all.",
		Wanted: fmt.Sprintf("These shares of this run need room at the same time: %s.", join(shareTexts(items))),
		Fix:    "Name the GPUs of these shares in `gpu_ids`, or apply the largest of them first, with `-target`.",
	}
	if stuck != nil {
		f.Found = fmt.Sprintf("If the others are created first, each on the fullest GPU that has room, share %s does not fit. Terraform creates them in any order, and a share that is placed is not moved.", quote(stuck.Name))
	}
	if pins := placement.Pins(items, moves); len(pins) > 0 {
		lines := words.Each(sortedKeys(pins), func(name string) string {
			return fmt.Sprintf("share %s `gpu_ids = [%s]`", quote(name), strings.Join(quoteAll(pins[name]), ", "))
		})
		f.Fix = "Pin them: " + joinAll(lines) + "."
	}
	return f
}

func shareTexts(items []placement.PackItem) []string {
	return words.Each(items, func(i placement.PackItem) string { return quote(i.Share.Name) + " (" + shareText(i.Share) + ")" })
}
