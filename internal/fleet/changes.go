package fleet

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// changes works out which hosts a request concerns and what each has to do.
func (f *Fleet) changes(ctx context.Context, req Request) (map[string]agent.Change, View, map[string]error, error) {
	base := agent.Change{Change: req.Change, Levels: f.opt.Levels}
	base.Owner = f.opt.Owner
	out, skipped := map[string]agent.Change{}, map[string]error{}
	put := func(name string, edit func(*agent.Change)) {
		ch := base
		ch.ID, ch.Host = rand.Text(), name
		if edit != nil {
			edit(&ch)
		}
		out[name] = ch
	}

	if req.Want.Assignment != nil || req.Prior.Assignment != nil {
		view := f.LookAll(ctx)
		err := f.assignmentChanges(req, view, put)
		return out, view, skipped, err
	}

	joining, leaving := members(req.Want), members(req.Prior)
	for n := range joining {
		delete(leaving, n)
	}
	around := slices.Concat(slices.Collect(maps.Keys(joining)), slices.Collect(maps.Keys(leaving)))
	if s := req.Want.Share; s != nil {
		around = append(around, f.ShareHosts(ctx, *s)...)
	}
	view := f.LookAround(ctx, around)
	for n := range joining {
		if err, silent := view.Errors[n]; silent {
			return nil, view, nil, &Failure{Label: req.Subject, Host: n, Err: err}
		}
		put(n, nil)
	}
	for n := range leaving {
		err, silent := view.Errors[n]
		switch {
		case !silent:
			put(n, func(ch *agent.Change) {
				ch.Change = ch.On(n)
				ch.Want = gpu.Want{}
			})
		case !f.Has(n) || f.opt.KeepUnreachable && !NeedsHand(err):
			// A host that is decommissioned must not hold its object hostage; nothing can be
			// put back there any more.
			skipped[n] = err
		default:
			return nil, view, nil, &Failure{Label: req.Subject, Host: n, Err: err}
		}
	}
	return out, view, skipped, nil
}

// members are the hosts that a want concerns.
func members(w gpu.Want) map[string]bool {
	out := map[string]bool{}
	if w.Config != nil {
		for n := range w.Config.GPUs {
			out[n] = true
		}
	}
	if w.Pool != nil {
		for n := range w.Pool.Members {
			out[n] = true
		}
	}
	if w.Share != nil {
		out[w.Share.Host] = true
	}
	return out
}

// LookAround takes the snapshots of some hosts and of the others of their clusters: rules about
// clusters need these, and claims for VMs that moved may lie there.
func (f *Fleet) LookAround(ctx context.Context, names []string) View {
	return f.Look(ctx, f.Peers(f.Look(ctx, names), names))
}

// Peers returns names and the hosts that share a cluster with them, sorted.
func (f *Fleet) Peers(v View, names []string) []string {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
		h, ok := v.Hosts[n]
		if !ok || h.Cluster == nil {
			continue
		}
		for _, node := range h.Cluster.Nodes {
			for _, key := range f.byName[gpu.FoldID(node.Name)] {
				set[key] = true
			}
		}
		for _, key := range f.declared[gpu.FoldID(h.Cluster.Name)] {
			set[key] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func (f *Fleet) assignmentChanges(req Request, view View, put func(string, func(*agent.Change))) error {
	id := ""
	if a := req.Prior.Assignment; a != nil {
		id = a.VMID
	}
	if a := req.Want.Assignment; a != nil {
		id = a.VMID
	}
	owner := ""
	names := slices.Sorted(maps.Keys(view.Hosts))
	for _, n := range names {
		if _, ok := view.Hosts[n].VM(id); ok {
			owner = n
		}
	}
	if owner == "" {
		for _, n := range names {
			if u, unknown := view.Hosts[n].UnknownVM(id); unknown {
				return &UnreadablePartError{Host: n, Unknown: u}
			}
		}
	}
	if owner == "" && (!req.Want.Empty() || !view.Complete() && !f.opt.KeepUnreachable) {
		return &VMGoneError{VM: id, Silent: view.Silent()}
	}
	if owner != "" {
		put(owner, func(ch *agent.Change) { ch.Claims = f.index(view).ClaimsElsewhere(owner) })
	}
	if req.Act != "" { // which may write no claim
		return nil
	}
	// A claim that an earlier owner host, or its cluster, still holds goes away with this write.
	dropped := map[string]bool{}
	for n, c := range view.Claims(gpu.ClaimAssignment, id) {
		if n == owner || c.Owner != f.opt.Owner && c.Token != req.Token || dropped[gpu.FoldID(c.Cluster)] {
			continue
		}
		if c.Cluster != "" { // any of its nodes shows it
			dropped[gpu.FoldID(c.Cluster)] = true
		}
		put(n, func(ch *agent.Change) {
			ch.Want, ch.ClaimOnly, ch.Token = gpu.Want{}, true, c.Token
			if ch.Prior.Empty() {
				ch.Prior = c.Want
			}
		})
	}
	return nil
}
