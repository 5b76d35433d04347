package fleet

import (
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// LeftOut is a GPU that stays out of an object whose configuration selects it.
type LeftOut struct {
	Host string
	GPU  string
	// Why is what would be wrong with the object if it had the GPU.
	Why rules.Finding
}

// LeaveOut takes GPUs out of what a config or pool wants that it does not have yet and cannot have as the hosts are:
// one that somebody has plugged in, or that is named and not there. The caller has made sure that the configuration
// selects what it selected before, so that the world brought them and nobody asks for them now. Nothing of the rest of the
// run counts, so that the apply leaves out what the plan left out.
func (f *Fleet) LeaveOut(v View, p change.Change) []LeftOut {
	had := whatif.WantedGPUs(p.Prior)
	var come []LeftOut
	all := whatif.WantedGPUs(p.Want)
	for _, host := range slices.Sorted(maps.Keys(all)) {
		for _, id := range all[host] {
			if !gpu.HasID(had[host], id) {
				come = append(come, LeftOut{Host: host, GPU: id})
			}
		}
	}
	if len(come) == 0 {
		return nil
	}
	p.Owner = f.opt.Owner
	p.Approved = nil // What an apply may disturb is asked with the rest, once it is known what is wanted.
	v = f.withNeighbours(v.withRecord(p))
	wanted := f.faults(v, p)
	if len(wanted) == 0 {
		return nil
	}
	for _, c := range come {
		leave(all, had, c)
	}
	known := f.faults(v, p)
	var out []LeftOut
	for _, c := range come {
		all[c.Host] = append(slices.Clone(all[c.Host]), c.GPU)
		slices.Sort(all[c.Host])
		now := f.faults(v, p)
		if i := slices.IndexFunc(now, func(o rules.Finding) bool { return !slices.ContainsFunc(known, sameFault(o)) }); i >= 0 {
			c.Why = now[i]
			leave(all, had, c)
			out = append(out, c)
		}
	}
	return out
}

// leave takes a GPU out of what is wanted, and with the last one a host that had none.
func leave(all, had map[string][]string, c LeftOut) {
	all[c.Host] = slices.DeleteFunc(slices.Clone(all[c.Host]), func(id string) bool { return gpu.SameID(id, c.GPU) })
	if _, was := had[c.Host]; !was && len(all[c.Host]) == 0 {
		delete(all, c.Host)
	}
}

// faults are why a plan cannot be made on the hosts, whatever else the run does.
func (f *Fleet) faults(v View, p change.Change) []rules.Finding {
	alone := f.world(v)
	alone.Others, alone.Window = whatif.NewBook(), nil
	errors, _ := split(f.CheckAlone(v, p))
	return append(errors, rules.Infeasible(alone, p)...)
}

// sameFault matches what is wrong with the same thing, however many GPUs are named with it.
func sameFault(a rules.Finding) func(rules.Finding) bool {
	return func(b rules.Finding) bool { return a.Rule == b.Rule && a.Title == b.Title && a.Host == b.Host }
}
