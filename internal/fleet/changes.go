package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
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
		view := f.Snapshot(ctx, f.HostNames())
		view.index = f.index(view)
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
	view := f.Snapshot(ctx, around, WithClusterPeers)
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

// vmOf finds the VM of a request, in the plan's words: of the hosts on which the configuration, or what
// its plan found, has it looked for; and while it is where this state last had it, it is that one.
func vmOf(req Request, view View) (FoundVM, error) {
	is, last := req.Prior.Assignment, ""
	if is != nil {
		last = is.Host
	}
	if want := req.Want.Assignment; want != nil {
		if is == nil || !gpu.SameID(is.VMID, want.VMID) {
			last = ""
		}
		is = want
	}
	if is.Among != nil {
		view.index, view.Hosts = nil, maps.Clone(view.Hosts)
		maps.DeleteFunc(view.Hosts, func(name string, _ *gpu.Host) bool { return !slices.Contains(is.Among, name) })
	}
	return FindVMNear(view, is.VMID, last)
}

// reservationChanges are those of a vGPU that is reserved for a VM: it is kept on one host, wherever the VM is.
func (f *Fleet) reservationChanges(req Request, view View, put func(string, func(*agent.Change))) error {
	want, prior := req.Want.Assignment, req.Prior.Assignment
	on := cmp.Or(want, prior).Host
	if err, silent := view.Errors[on]; silent && !(want == nil && f.opt.KeepUnreachable && !NeedsHand(err)) {
		return &Failure{Label: req.Subject, Host: on, Err: err}
	}
	if view.Hosts[on] != nil {
		put(on, nil)
	}
	if want == nil || prior == nil || !prior.Reserves() || prior.Host == on || view.Hosts[prior.Host] == nil {
		return nil
	}
	put(prior.Host, func(ch *agent.Change) { ch.Want, ch.ClaimOnly = gpu.Want{}, true })
	return nil
}

func (f *Fleet) assignmentChanges(req Request, view View, put func(string, func(*agent.Change))) error {
	a := cmp.Or(req.Want.Assignment, req.Prior.Assignment)
	if a.Reserves() {
		return f.reservationChanges(req, view, put)
	}
	id := a.VMID
	names := slices.Sorted(maps.Keys(view.Hosts))
	at, err := vmOf(req, view)
	if _, gone := errors.AsType[*VMGoneError](err); err != nil && !gone {
		return err
	}
	owner := at.Host
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
		put(owner, func(ch *agent.Change) {
			ch.Claims = f.index(view).ClaimsElsewhere(owner)
			if _, claim, ok := view.cameAlong(req.Change); ok {
				ch.Claims = append(ch.Claims, claim)
			}
		})
	}
	if req.Act != "" { // which may write no claim
		return nil
	}
	if owner == "" && !view.Complete() {
		return nil // The VM may be on a host that is silent. It has its GPU there, and what is on record of it stays, wherever that is.
	}
	// A claim that an earlier owner host, or its cluster, still holds goes away with this write. One
	// that shows the VM keeps it: the claim may be of another VM, or of a copy.
	var dropped []string
	for n, c := range view.Claims(gpu.ClaimAssignment, id) {
		h := view.Hosts[n]
		_, shown := h.VM(id)
		kept := func(o string) bool { return c.Cluster != "" && h.SharesCluster(view.Hosts[o]) } // any of its nodes shows it
		if shown || n == owner || c.Owner != f.opt.Owner && c.Token != req.Token || slices.ContainsFunc(dropped, kept) {
			continue
		}
		dropped = append(dropped, n)
		put(n, func(ch *agent.Change) {
			ch.Want, ch.ClaimOnly, ch.Token = gpu.Want{}, true, c.Token
			if ch.Prior.Empty() {
				ch.Prior = c.Want
			}
		})
	}
	return nil
}
