package fleet_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
)

// compareReport compares what the report of a run foretold with what the hosts show, and did. Where a config of several changes drains
// nodes, who moves and who is stopped instead hangs on their order.
func (w *world) compareReport(r planreport.Report, before, after map[string]*gpu.Host, changes []change.Change) {
	stops, moves, ends, resets := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	last := 0
	for _, c := range r.Changes {
		if c.Turn < last {
			w.fatal("the changes of the report are not in the order of their turns")
		}
		last = c.Turn
		for _, s := range c.Stops {
			stops[s.VM] = true
		}
		for _, vm := range c.Moves {
			moves[vm] = true
		}
		for _, p := range c.Ends {
			ends[strconv.Itoa(p.PID)] = true
		}
		for _, id := range c.Resets {
			resets[id] = true
		}
	}
	drains := slices.ContainsFunc(changes, func(p change.Change) bool { return p.Want.Config != nil && p.Want.Config.Drain })
	if !drains || len(changes) == 1 {
		if !maps.Equal(stops, w.seen.stopped) {
			w.fatal("the report says that %v are stopped, and stopped were %v", keys(stops), keys(w.seen.stopped))
		}
		if !maps.Equal(moves, w.seen.moved) {
			w.fatal("the report says that %v move, and moved have %v", keys(moves), keys(w.seen.moved))
		}
	}
	if w.linux {
		ended := map[string]bool{}
		for name, h := range before {
			lives := pids(after[name])
			for pid := range pids(h) {
				if !lives[pid] {
					ended[pid] = true
				}
			}
		}
		if !maps.Equal(ends, ended) {
			w.fatal("the report says that processes %v end, and these have ended: %v", keys(ends), keys(ended))
		}
		if !maps.Equal(resets, w.seen.resets) {
			w.fatal("the report says that GPUs %v are reset, and these were: %v", keys(resets), keys(w.seen.resets))
		}
	}
	foretold := map[string]*gpu.Host{}
	for i := range r.After.Hosts {
		foretold[r.After.Hosts[i].Name] = &r.After.Hosts[i]
	}
	if slices.ContainsFunc(r.Incomplete, func(why string) bool { return strings.HasSuffix(why, "the cluster decides.") }) {
		w.counts["reports that do not tell where a VM will be"]++
		return
	}
	w.counts["reports"]++
	as := asForetold{inOrder: inItsOrder(r, changes), placed: map[string]bool{}}
	for _, p := range changes {
		if p.Want.Share != nil && len(p.Want.Share.Devices) == 0 {
			as.placed[p.Want.Share.Name] = !as.inOrder
		}
	}
	if diff := cmp.Diff(as.digest(foretold), as.digest(after)); diff != "" {
		w.fatal("the hosts are not as the report foretold (-report +hosts):\n%s\nits changes: %s", diff, asJSON(r.Changes))
	}
}

// inItsOrder tells whether changes were made in the order that their report has.
func inItsOrder(r planreport.Report, changes []change.Change) bool {
	var foretold, made []string
	for _, c := range r.Changes {
		if !slices.Contains(foretold, c.Label) {
			foretold = append(foretold, c.Label)
		}
	}
	for _, p := range changes {
		made = append(made, p.Subject)
	}
	foretold = slices.DeleteFunc(foretold, func(label string) bool { return !slices.Contains(made, label) })
	made = slices.DeleteFunc(made, func(label string) bool { return !slices.Contains(foretold, label) })
	return slices.Equal(foretold, made)
}

func keys(of map[string]bool) []string { return slices.Sorted(maps.Keys(of)) }

func asJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// asForetold is how much of the hosts a report foretells. Made in another order a share may find another device, and a claim records
// another layout of before.
type asForetold struct {
	inOrder bool
	placed  map[string]bool // the shares that may be elsewhere
}

// digest is what hosts show, without what they choose by themselves: ids of what they make, and which GPU a VM has a partition of that
// is not pinned.
func (as asForetold) digest(hosts map[string]*gpu.Host) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for name, h := range hosts {
		held := map[string]int{}
		for i := range h.GPUs {
			g := &h.GPUs[i]
			l := layoutOf(h, g)
			for k := range l.VGPU.Places {
				l.VGPU.Places[k].UUID = ""
			}
			if l.MIG.Enabled {
				l.Slice, l.Compute = "", ""
			}
			say("%s GPU %s: %s, dismounted %v, %s", name, g.ID, g.Status, g.Dismounted, asJSON(l))
			if g.Partitionable != nil {
				say("%s GPU %s: %d partitions", name, g.ID, g.Partitionable.Count)
				for _, p := range g.Partitionable.Partitions {
					held[p.VMID]++
				}
			}
		}
		for _, vm := range h.VMs {
			var adapters, devices []string
			for _, a := range vm.PartitionAdapters {
				adapters = append(adapters, fmt.Sprintf("%q %s", a.PinnedGPU, asJSON(a.Quotas)))
			}
			for _, d := range vm.Devices {
				of := d.Pool
				if of == "" {
					of = d.GPU
				}
				devices = append(devices, of)
			}
			slices.Sort(adapters)
			slices.Sort(devices)
			say("%s VM %s: %s, holds %d, %v %v %s", name, vm.Name, vm.State, held[vm.ID], adapters, devices, asJSON(vm.Settings))
		}
		for _, p := range h.Pools {
			say("%s pool %s: %v", name, p.Name, slices.Sorted(slices.Values(p.GPUs)))
		}
		for _, c := range h.Claims {
			if s := c.Want.Share; s != nil && as.placed[s.Name] {
				somewhere := *s
				somewhere.Devices = nil
				c.Want.Share, c.GPUs = &somewhere, nil
			}
			if !as.inOrder {
				c.OriginalLayouts, c.AppliedLayouts, c.SettingsBefore = nil, nil, gpu.VMSettings{}
			}
			say("%s claim %s %s: %s of %s, pending %v, incomplete %v, %v, before %s, given %s, settings %s, holds %s, %s", name, c.Kind, c.ID,
				c.Token, c.Owner, c.Pending, c.Incomplete, slices.Sorted(slices.Values(c.GPUs)), asJSON(c.OriginalLayouts), asJSON(c.AppliedLayouts),
				asJSON(c.SettingsBefore), asJSON(c.HeldUntilOff), asJSON(c.Want))
		}
		for _, s := range h.Shares {
			say("%s share %s", name, s.Name)
		}
		if h.MPS != nil {
			for _, d := range h.MPS.Daemons {
				say("%s daemon %s: %s", name, d.Name, asJSON(d.MPSDaemonSpec))
			}
		}
	}
	slices.Sort(out)
	return out
}
