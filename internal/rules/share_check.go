package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// shareOutcome is what a check found out about the place of a share. Several rules report
// parts of it.
type shareOutcome struct {
	found []violation
	// host and devices are where the share is, or would be put now; none when that is not
	// known.
	host    *placement.SharedHost
	devices []*placement.Device
}

// shareMemo keeps the outcome for the rules of one check, of the plan and of what it was
// before.
type shareMemo struct{ now, before *shareOutcome }

// checkShareRoom reports what the rule at hand is about of all that keeps a share from its
// place.
func checkShareRoom(r *run) {
	if r.Plan.Want.Share == nil {
		return
	}
	for _, v := range r.outcome().found {
		if v.Rule == r.rule.ID {
			r.report(v.Finding, v.keys...)
		}
	}
}

// outcome finds out where the plan's share goes, once for all rules.
func (r *run) outcome() *shareOutcome {
	at := &r.place.now
	if r.Mode.Past {
		at = &r.place.before
	}
	if *at == nil {
		*at = placeOf(r, r.Plan.Want.Share)
	}
	return *at
}

func (o *shareOutcome) add(f Finding, keys ...string) {
	o.found = append(o.found, violation{Finding: f, keys: keys})
}

// placeOf finds a share's place beside the others of the run.
func placeOf(r *run, s *gpu.Share) *shareOutcome {
	o := &shareOutcome{}
	if err := placement.CheckShare(s); err != nil {
		f := FindingOf(gpu.RefusalOf(err))
		o.add(f, key(f.Rule, f.Path, s.Name))
		return o
	}
	hosts := r.Shares().HostsFor(s)
	if !r.Shares().CanBeAsked(hosts) || s.Host == "" && len(s.Devices) > 0 {
		return o // known-pool says that there is none; a host that cannot be asked may have room
	}
	s, hosts = r.Shares().TakenOver(s, hosts)
	switch { // what is pending says it once it is planned
	case len(s.Devices) > 0 && !r.Shares().PendingUnder(s, hosts[0]):
		checkPlaced(r, o, s, r.Shares().Room(hosts[0]))
	case len(s.Devices) == 0 && !r.Shares().Pending(hosts, whatif.Layouts...):
		findRoom(r, o, s, hosts)
	}
	together(r, o, hosts)
	reportRatio(r, o, s)
	return o
}

// checkPlaced checks a share where it is.
func checkPlaced(r *run, o *shareOutcome, s *gpu.Share, room *placement.SharedHost) {
	lost := false
	for _, at := range s.Devices {
		d := room.Find(at)
		if d == nil || d.Unfit != nil {
			if e := r.Shares().TakenBy(room.Key, at.GPU); e != nil { // for good, while others may bring it back
				o.add(Finding{
					Rule: sharePlacement, Path: "name", Title: "The layout changes under the share", Host: room.Key,
					GPU: at.GPU, Other: whatif.Label(e.Plan),
					Found: fmt.Sprintf("%s is on %s of %s, which %s takes.", capital(r.label()), placement.DeviceText(at),
						hostText(room.Key), whatif.Label(e.Plan)),
					Wanted: "A share stays where it was placed.",
					Fix:    "Take the share out of the configuration in an apply of its own first, or leave the GPU out of the config.",
				}, key("taken", room.Key, placement.DeviceText(at)))
				return
			}
			lost = lost || d == nil && r.Shares().Today(room.Key).Find(at) != nil // else that is so already, whatever is planned
			continue
		}
		if pool := r.Shares().LeftPool(s, room.Key, at.GPU); pool != "" {
			o.add(Finding{
				Rule: sharePlacement, Path: "pool", Title: "The GPU leaves the pool under the share", Host: room.Key, GPU: at.GPU,
				Found: fmt.Sprintf("%s is on %s of %s, which this run takes out of pool %s.", capital(r.label()),
					placement.DeviceText(at), hostText(room.Key), quote(pool)),
				Wanted: "A share stays where it was placed, on a GPU of its pool.",
				Fix:    "Take the share out of the configuration in an apply of its own first, or leave the GPU in the pool.",
			}, key("left pool", room.Key, placement.DeviceText(at)))
			return
		}
		if was := placement.ShareModeOf(room.Host, at); was != d.Mode {
			o.add(Finding{
				Rule: sharePlacement, Path: "name", Title: "The layout changes under the share", Host: room.Key,
				GPU: at.GPU, Other: r.reshapes(room.Key, at.GPU),
				Found: fmt.Sprintf("%s is on %s of %s, which this run changes from mode %s to %s.", capital(r.label()),
					placement.DeviceText(at), hostText(room.Key), was, d.Mode),
				Wanted: "A share stays where it was placed, on a device of the mode that it was placed in.",
				Fix:    "Take the share out of the configuration in an apply of its own first, or leave the layout as it is.",
			}, key("mode", room.Key, placement.DeviceText(at)))
			return
		}
	}
	devices, err := room.Place(s)
	if err != nil {
		f := roomFinding(r, s, gpu.RefusalOf(err))
		// What did not fit before either is only warned of, but not where this run takes its device as well.
		o.add(f, key("placed", f.Rule, room.Key, s.Name, strconv.FormatBool(lost)))
		return
	}
	o.host, o.devices = room, devices
}

// reshapes names another plan of the run that changes the layout of a GPU, "" for none.
func (r *run) reshapes(host, id string) string {
	for e := range r.Others(whatif.GPUsOn(host)) {
		for _, c := range []*gpu.PartitionConfig{e.Plan.Want.Config, e.Plan.Prior.Config} {
			if c != nil && !e.Plan.Unchanged && gpu.HasID(c.GPUs[host], id) {
				return whatif.Label(e.Plan)
			}
		}
	}
	return ""
}

// findRoom looks for room for a share that is not placed, for it alone.
func findRoom(r *run, o *shareOutcome, s *gpu.Share, hosts []string) {
	var rooms, today []*placement.SharedHost
	for _, key := range hosts {
		rooms, today = append(rooms, r.Shares().Room(key)), append(today, r.Shares().Today(key))
	}
	if f, lacks := noRoom(r, s, rooms, today); lacks {
		o.add(f, key("room", f.Rule, f.Host, s.Name))
		if !r.Mode.OnHost && !r.Mode.Past {
			r.Tells(key("alone", r.label())) // so that no other plan says it again
		}
		return
	}
	for _, room := range rooms {
		if o.devices = room.Pick(s); o.devices != nil {
			o.host = room
			return
		}
	}
}

// noRoom finds that no host has room for a share. One that names no config has to have room now:
// nothing says that what a config of the run makes, or releases, comes before it.
func noRoom(r *run, s *gpu.Share, rooms, today []*placement.SharedHost) (f Finding, lacks bool) {
	picks := func(room *placement.SharedHost) bool { return room.Pick(s) != nil }
	alone := func(room *placement.SharedHost) bool {
		return slices.ContainsFunc(room.Scoped(s), func(d *placement.Device) bool { return d.Alone(s) })
	}
	fix := ""
	if fits := slices.ContainsFunc(rooms, picks); s.Config == "" && !r.Mode.OnHost {
		if fits {
			rooms = today
		}
		if fits || !slices.ContainsFunc(today, alone) {
			fix = " For what a gpu_partition_config of the same run makes, refer to it with `config`; what it releases can be used in the next " +
				"apply."
		}
	}
	if slices.ContainsFunc(rooms, picks) {
		return f, false
	}
	var refused gpu.Refusals
	for _, room := range rooms {
		_, err := room.Place(s)
		refused = append(refused, gpu.RefusalOf(err))
	}
	if f = roomFinding(r, s, refused...); f.Path != "memory" {
		f.Fix += fix
	}
	return f, true
}

// beside moves a share to where it goes when the others of the run are placed too, so that
// what is told of its devices counts them.
func (o *shareOutcome) beside(r *run, items []placement.PackItem) {
	items = slices.Clone(items)
	slices.SortStableFunc(items, placement.CompareItems)
	done, failed := placement.PackInOrder(items, true)
	if len(failed) > 0 {
		return
	}
	for _, p := range done {
		if p.Item.Share == r.Plan.Want.Share {
			placement.Release(p.Devices, p.Item.Share)
			o.host, o.devices = p.Room, p.Devices
		}
	}
}

// leftOver words shares that do not fit beside each other: which one is left over when the
// largest goes first, and what it finds.
func leftOver(r *run, items []placement.PackItem, title string) Finding {
	items = slices.Clone(items)
	slices.SortStableFunc(items, placement.CompareItems)
	done, failed := placement.PackInOrder(items, true)
	last := failed[0]
	var refused gpu.Refusals
	for _, room := range last.Item.Rooms {
		if _, err := room.Place(last.Item.Share); err != nil {
			refused = append(refused, gpu.RefusalOf(err))
		}
	}
	for _, p := range done {
		placement.Release(p.Devices, p.Item.Share)
	}
	f := roomFinding(r, last.Item.Share, refused...)
	f.Rule, f.Path, f.Title = sharePlacement, r.pathOfShares(), title
	f.Found = fmt.Sprintf("Placed largest first, share %s does not fit. %s", quote(last.Item.Share.Name), f.Found)
	f.Wanted = fmt.Sprintf("These shares of this run need room at the same time: %s.", join(shareTexts(items)))
	f.Fix = "Ask for less, add GPUs or hosts, or leave one of the shares out." + wayOut
	return f
}

// roomFinding words why a share has no place on any of its hosts.
func roomFinding(r *run, s *gpu.Share, refused ...*gpu.Refusal) Finding {
	f := groupOf(placement.ShareNoRoom)
	f.Found = "No host was found for it."
	if len(refused) > 0 {
		f = FindingOf(refused[0])
	}
	if len(s.Devices) > 0 && f.Title == shareDoesNotFit {
		f.Title = "The share does not fit where it is"
	}
	if len(refused) > 1 {
		var found []string
		for _, one := range refused {
			g := FindingOf(one)
			found = append(found, g.Found)
			if g.Rule != f.Rule {
				f.Rule, f.Path, f.Title = sharePlacement, "name", shareDoesNotFit
			}
		}
		if len(found) > words.Listed {
			found = append(found[:words.Listed], fmt.Sprintf("%d more hosts have no room either.", len(found)-words.Listed))
		}
		f.Host, f.GPU, f.Found = "", "", strings.Join(found, " ")
	}
	if f.Path == "name" {
		f.Path = placeAttribute(s)
	}
	f.Wanted = fmt.Sprintf("%s wants %s.", capital(r.label()), shareText(s))
	return f
}

// placeAttribute is the attribute that says where a share goes.
func placeAttribute(s *gpu.Share) string {
	switch {
	case len(s.GPUIDs) > 0:
		return "gpu_ids"
	case s.Pool != "":
		return "pool"
	}
	return "host"
}

// shareText tells what a share wants: "1 device with 20.0 GiB of memory (at most 40.0 GiB)
// and 25 % of the threads".
func shareText(s *gpu.Share) string {
	text := plural(placement.DevicesWanted(s), "device")
	if s.Profile != "" {
		text += " of MIG profile " + s.Profile
	}
	var parts []string
	switch {
	case s.RequestFraction > 0 && s.LimitFraction > 0 && s.LimitFraction != s.RequestFraction:
		parts = append(parts, fmt.Sprintf("%s of its memory (at most %s)", placement.Decimal(s.RequestFraction),
			placement.Decimal(s.LimitFraction)))
	case s.RequestFraction > 0:
		parts = append(parts, placement.Decimal(s.RequestFraction)+" of its memory")
	case s.LimitFraction > 0:
		parts = append(parts, "at most "+placement.Decimal(s.LimitFraction)+" of its memory")
	case s.MemoryRequest > 0 && s.MemoryLimit > 0 && s.MemoryLimit != s.MemoryRequest:
		parts = append(parts, fmt.Sprintf("%s of memory (at most %s)", s.MemoryRequest, s.MemoryLimit))
	case s.MemoryRequest > 0:
		parts = append(parts, s.MemoryRequest.String()+" of memory")
	case s.MemoryLimit > 0:
		parts = append(parts, "at most "+s.MemoryLimit.String()+" of memory")
	}
	if s.ActiveThreadPercentage > 0 {
		parts = append(parts, placement.Percent(s.ActiveThreadPercentage)+" of the threads")
	}
	if len(parts) > 0 {
		text += " with " + join(parts)
	}
	return text
}

// reportRatio tells of limits that add up to more than a device has, as its config allows.
func reportRatio(r *run, o *shareOutcome, s *gpu.Share) {
	if len(o.devices) == 0 {
		return
	}
	all := r.In(r.Mode.WithEveryClaim()).Shares().Room(o.host.Key)
	for _, d := range o.devices {
		t := d.Taken()
		if now := all.Find(d.SharedDevice); now != nil && len(now.Shares) > len(d.Shares) && now.Takes(s) { // else one of them goes
			d, t = now, now.Taken()
		}
		t.Limit += d.Limit(s)
		t.Threads += s.ActiveThreadPercentage
		var over []string
		path := ""
		if ratio := float64(t.Limit) / float64(max(d.Memory, 1)); s.LimitsMemory() && d.Memory > 0 && ratio > 1+placement.Tolerance {
			over = append(over, fmt.Sprintf("memory limits add up to %s of %s (%s times)", t.Limit, d.Memory, placement.Decimal(ratio)))
			path = "memory"
		}
		if ratio := t.Threads / 100; s.ActiveThreadPercentage > 0 && ratio > 1+placement.Tolerance {
			over = append(over, fmt.Sprintf("thread percentages add up to %s (%s times)", placement.Percent(t.Threads), placement.Decimal(ratio)))
			path = cmp.Or(path, "active_thread_percentage")
		}
		if len(over) == 0 {
			continue
		}
		o.add(Finding{
			Rule: oversubscription, Level: Warning, Path: path, Title: "The device is oversubscribed", Host: o.host.Key, GPU: d.GPU,
			Found: fmt.Sprintf("With %s%s, on %s the %s.", r.label(), d.Beside(), placement.DeviceText(d.SharedDevice), join(over)),
			Wanted: fmt.Sprintf(
				"Partition config %s allows %s times. When all of them use their limits at once, allocations fail or work slows down.",
				quote(d.Config.ID), placement.Decimal(d.Oversubscription)),
			Fix: "Nothing if this is intended; otherwise lower the limits.",
		}, key("ratio", o.host.Key, placement.DeviceText(d.SharedDevice)))
	}
}

// checkTimeSlicingNoIsolation warns of what time-slicing does not hold apart.
func checkTimeSlicingNoIsolation(r *run) {
	if c := r.Plan.Want.Config; c != nil && c.TimeSlicing != nil && (r.Plan.Prior.Config == nil || r.Plan.Prior.Config.TimeSlicing == nil) {
		r.report(Finding{
			Path: "time_slicing", Title: "Time-slicing does not isolate workloads",
			Found:  fmt.Sprintf("%s lets %s take turns on each device.", capital(r.label()), plural(c.TimeSlicing.Replicas, "share")),
			Wanted: "They share memory and a fault domain, and nothing limits a share to its part. It is not a boundary between tenants.",
			Fix:    "Use `mig` where workloads must be kept apart, or `mps` for address spaces of their own and limits.",
		}, key("time-slicing"))
	}
	s := r.Plan.Want.Share
	if s == nil || !s.LimitsMemory() {
		return
	}
	o := r.outcome()
	for _, d := range o.devices {
		if d.Mode == gpu.ShareTimeSlicing && !placement.CanLimitContainers(o.host.Host, d) {
			r.report(Finding{
				Path: "memory", Title: "The memory limit is not enforced", Host: o.host.Key, GPU: d.GPU,
				Found: fmt.Sprintf("%s of %s takes turns (time-slicing), with driver %s and container toolkit %s.",
					placement.DeviceText(d.SharedDevice), hostText(o.host.Key), cmp.Or(d.OnGPU.Driver.Version, "unknown"),
					cmp.Or(o.host.Host.ContainerToolkit, "none")),
				Wanted: fmt.Sprintf("%s has a limit of %s. Only driver branch 615 with container toolkit 1.20.1, or later, enforce it for a container.",
					capital(r.label()), d.Limit(s)),
				Fix: "Upgrade both, use `mps` in place of `time_slicing`, or rely on the workload to respect the limit.",
			}, key("unheld", o.host.Key, placement.DeviceText(d.SharedDevice)))
			return
		}
	}
}
