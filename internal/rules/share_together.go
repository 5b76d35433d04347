package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Terraform plans the resources of a run in any order, and asks for each one once. So a
// plan that is about shares looks at all of them that are known by then: whichever is
// planned last sees them all, and the verdict is one. What this state has counts by its
// plans alone; a claim of its own that is not planned yet may be about to change or to go.

// together finds out whether the shares of the run that are not placed fit on their hosts,
// as far as they have to do with some hosts: each by itself, beside each other, and in
// whatever order they are made. Each thing is said once in a run.
func together(r *run, o *shareOutcome, hosts []string) {
	if r.Mode.OnHost || r.Mode.Past || !r.Shares().CanBeAsked(hosts) {
		return
	}
	me := r.Plan.Want.Share
	unplaced, reached := r.Shares().Unplaced(hosts)
	if len(unplaced) == 0 && (me == nil || len(me.Devices) > 0) || len(reached) == 0 || r.Shares().Pending(reached, whatif.Layouts...) {
		return
	}
	on := strings.Join(reached, " ")
	if r.ToldByAnother(key("together", on)) || r.ToldByAnother(key("order", on)) {
		return
	}
	packTogether(r, o, unplaced, hosts, reached, on)
}

func packTogether(r *run, o *shareOutcome, unplaced []whatif.UnplacedShare, hosts, reached []string, on string) {
	p, me := newPacking(r, reached), r.Plan.Want.Share
	for _, u := range unplaced {
		p.add(r, o, u.Entry.Plan.Want.Share, whatif.Label(u.Entry.Plan), u.Hosts)
	}
	if me != nil && len(me.Devices) == 0 && !r.Plan.Unchanged {
		p.add(r, o, me, r.label(), hosts)
	}
	if fit, placed := inEveryOrder(r, o, p.inTheEnd, p.then, on, ""); fit {
		if fit, _ = inEveryOrder(r, o, p.early, p.now, on, releasedLater); fit {
			o.beside(r, placed)
		}
	}
}

// packing is the shares of a run that are not placed, in two worlds: once all configs of the run are
// made, and as the hosts are now, for those that may come before the configs.
type packing struct {
	then, now       map[string]*placement.SharedHost
	inTheEnd, early []placement.PackItem
}

func newPacking(r *run, hosts []string) *packing {
	p := &packing{then: map[string]*placement.SharedHost{}, now: map[string]*placement.SharedHost{}}
	for _, host := range hosts {
		p.then[host], p.now[host] = r.Shares().Room(host), r.Shares().Today(host)
	}
	if me := r.Plan.Want.Share; me != nil && len(me.Devices) > 0 && p.then[me.Host] != nil {
		p.then[me.Host].Put(me)
	}
	return p
}

// add adds a share that may go to some hosts, unless it does not even fit alone.
func (p *packing) add(r *run, o *shareOutcome, s *gpu.Share, label string, hosts []string) {
	in := func(world map[string]*placement.SharedHost) placement.PackItem {
		return placement.NewPackItem(s, label, words.Each(hosts, func(host string) *placement.SharedHost { return world[host] }))
	}
	then, now := in(p.then), in(p.now)
	if !fitsAlone(r, o, then, now.Rooms) {
		return
	}
	if p.inTheEnd = append(p.inTheEnd, then); s.Config == "" {
		p.early = append(p.early, now)
	}
}

// inEveryOrder tells whether shares fit on hosts in whatever order they are made, and reports that
// they do not. Those that take the place of others of their name are left out.
func inEveryOrder(r *run, o *shareOutcome, items []placement.PackItem, known map[string]*placement.SharedHost,
	on, fix string,
) (bool, []placement.PackItem) {
	slices.SortStableFunc(items, func(a, b placement.PackItem) int { return strings.Compare(a.Label, b.Label) })
	items, moves := whatif.Renamed(items, r.Shares().Moves(known))
	if len(items) == 0 {
		return true, nil
	}
	if placement.Pack(items) == placement.DoNotFit {
		f := leftOver(r, items, "The shares of this run do not fit together")
		f.Fix += fix
		o.once(r, f, key("together", on))
		return false, nil
	}
	if r.Shares().Pending(whatif.SortedKeys(known), gpu.ClaimShare) {
		return false, nil // what is planned of these may take or free room
	}
	every, stuck := placement.EveryOrder(items, moves)
	if every != placement.Fit {
		f := anyOrder(r, items, moves, stuck)
		f.Fix += fix
		o.once(r, f, key("order", on))
	}
	return every == placement.Fit, items
}

// releasedLater says when shares find room on what a run releases.
const releasedLater = " What a gpu_partition_config of this run releases can be used in the next apply."

// once reports what no other plan of the run has reported yet.
func (o *shareOutcome) once(r *run, f Finding, k string) {
	if r.Tells(k) {
		o.add(f, k)
	}
}

// fitsAlone reports a share of the run that finds no place by itself, or one that another
// plan takes away.
func fitsAlone(r *run, o *shareOutcome, item placement.PackItem, today []*placement.SharedHost) bool {
	s := item.Share
	own := s == r.Plan.Want.Share
	if f, lacks := noRoom(r, s, item.Rooms, today); lacks {
		if !own { // its own plan has said so of this one
			if f.Path = r.pathOfShares(); r.Plan.Want.Share == nil {
				f.Rule = sharePlacement // the others are about shares
			}
			f.Wanted, f.Other, f.Of = fmt.Sprintf("%s wants %s.", capital(item.Label), shareText(s)), item.Label, item.Label
			o.once(r, f, key("alone", item.Label))
		}
		return false
	}
	for i, room := range item.Rooms {
		if f, lost := passing(r, item, room, today[i]); lost {
			o.once(r, f, key("passing", item.Label, room.Key))
			return false
		}
	}
	return true
}

// passing finds a device that a share may be put on before this run changes it: without a
// reference Terraform may make the share first.
func passing(r *run, item placement.PackItem, room, today *placement.SharedHost) (f Finding, lost bool) {
	s := item.Share
	if s.Config != "" {
		return f, false
	}
	for _, now := range today.Scoped(s) {
		then := room.Find(now.SharedDevice)
		if !now.Alone(s) || then != nil && then.Mode == now.Mode && then.Seats >= now.Seats && then.Oversubscription >= now.Oversubscription &&
			then.Alone(s) {
			continue
		}
		becomes := "goes with another layout of the GPU"
		if then != nil {
			becomes = "is of mode " + string(then.Mode)
			if then.Unfit != nil {
				becomes = then.Unfit.Brief
			}
		}
		f = Finding{
			Rule: sharePlacement, Path: r.pathOfShares(), Title: "The share may be made before the GPU's layout", Host: room.Key, GPU: now.GPU,
			Found: fmt.Sprintf("%s of %s takes the share as it is now (%s); after this run it %s. Nothing says which of the two comes first.",
				placement.DeviceText(now.SharedDevice), hostText(room.Key), now.Mode, becomes),
			Wanted: fmt.Sprintf("%s wants %s. A share stays where it was placed.", capital(item.Label), shareText(s)),
			Fix: "Refer to the config, as in `config = gpu_partition_config.NAME.id`, so that the share waits for it: Terraform tells a " +
				"provider nothing of `depends_on`. Or name GPUs in `gpu_ids` that this run does not change.",
		}
		if item.Label != r.label() {
			f.Other, f.Of = item.Label, item.Label
		}
		return f, true
	}
	return f, false
}

// pathOfShares is the attribute of the checked plan that shares have to do with.
func (r *run) pathOfShares() string {
	switch w := r.Plan.Want; {
	case w.Share != nil:
		return placeAttribute(w.Share)
	case w.Pool != nil:
		return "members"
	case w.Config != nil:
		return "hosts"
	}
	return "name"
}

// anyOrder words shares that fit beside each other, but not in every order.
func anyOrder(r *run, items []placement.PackItem, moves []placement.Move, stuck *gpu.Share) Finding {
	f := Finding{
		Rule: sharePlacement, Path: r.pathOfShares(), Title: "The shares of this run fit in some orders only", Host: items[0].Rooms[0].Key,
		Found:  "There are too many ways to place the shares of this run one after the other to try them all.",
		Wanted: fmt.Sprintf("These shares of this run need room at the same time: %s.", join(shareTexts(items))),
		Fix:    "Name the GPUs of these shares in `gpu_ids`, or apply the largest of them first, with `-target`.",
	}
	if stuck != nil {
		f.Found = fmt.Sprintf("If the others are created first, each on the fullest GPU that has room, share %s does not fit. Terraform "+
			"creates them in any order, and a share that is placed is not moved.", quote(stuck.Name))
	}
	if pins := placement.Pins(items, moves); len(pins) > 0 {
		lines := words.Each(whatif.SortedKeys(pins), func(name string) string {
			return fmt.Sprintf("share %s `gpu_ids = [%s]`", quote(name), strings.Join(quoteAll(pins[name]), ", "))
		})
		f.Fix = "Pin them: " + joinAll(lines) + "."
	}
	return f
}

func shareTexts(items []placement.PackItem) []string {
	return words.Each(items, func(i placement.PackItem) string { return quote(i.Share.Name) + " (" + shareText(i.Share) + ")" })
}
