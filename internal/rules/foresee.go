package rules

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Foresee tells what a plan does to the hosts that it concerns, host by host in sorted order,
// as far as they are at hand.
func Foresee(w World, p change.Change) []change.Forecast {
	r, done := begin(w, p)
	defer done()
	return r.foreseen()
}

func (r *run) foreseen() []change.Forecast {
	var out []change.Forecast
	for _, f := range r.forecasts() {
		out = append(out, f)
	}
	return out
}

// promised is the same once others of the run have made way, where the plan needs that.
func (r *run) promised() []change.Forecast {
	out := r.foreseen()
	for i, f := range out {
		if len(halves(r.plan)) == 1 {
			out[i] = r.onceMadeWay(f, true)
		}
	}
	return out
}

// onceMadeWay is a forecast once others of the run have made way for what a host refuses; if it
// may be, also those that the run has not planned yet.
func (r *run) onceMadeWay(f change.Forecast, may bool) change.Forecast {
	if len(f.Refused) == 0 {
		return f
	}
	if refused, open, then := r.refusedBy(f.Host, r.fleet.hosts[f.Host], r.plan); refused == nil || open && may {
		was := f
		f = change.Foresee(then, f.Host, r.sent(r.plan, f.Host))
		f.Undrained = was.Undrained
		for _, s := range was.Stops { // whoever is still to be planned may stay after all
			if refused != nil && !slices.ContainsFunc(f.Stops, func(o change.Stop) bool { return gpu.SameID(o.VM, s.VM) }) {
				f.Stops = append(f.Stops, s)
			}
		}
		slices.SortFunc(f.Stops, func(a, b change.Stop) int { return strings.Compare(a.Name, b.Name) })
	}
	return f
}

// forecasts goes through the hosts at hand that the plan concerns, and what it does there.
func (r *run) forecasts() iter.Seq2[string, change.Forecast] {
	return func(yield func(string, change.Forecast) bool) {
		for _, host := range r.asked() {
			if !yield(host, r.forecast(host, r.fleet.hosts[host])) {
				return
			}
		}
	}
}

// forecast is what the plan does to a host. What uses a config or a pool goes before that is
// destroyed.
func (r *run) forecast(host string, h *gpu.Host) change.Forecast {
	f := r.asItIs(host, h)
	if r.before || r.applying || !endsLayout(r.plan) {
		return f
	}
	made, ok := r.memo.wayMade[lenientOn{host, r.lenient}]
	if !ok {
		made = r.onceMadeWay(f, r.lenient)
		r.memo.wayMade[lenientOn{host, r.lenient}] = made
	}
	return made
}

// asked are the hosts at hand that the plan concerns, or, of one that is asked about once more,
// those of them that it is asked about for.
func (r *run) asked() []string {
	hosts := r.hostsOf(r.plan)
	if r.again && endsLayout(r.plan) {
		hosts = slices.DeleteFunc(hosts, func(host string) bool { return !slices.Contains(r.askedOn, host) })
	}
	return hosts
}

// asItIs is what the plan does to a host as that is now; it is worked out once for all rules.
func (r *run) asItIs(host string, h *gpu.Host) change.Forecast {
	if r.before {
		return r.foresee(host, h, r.plan)
	}
	f, ok := r.memo.forecasts[host]
	if !ok {
		f = r.foresee(host, h, r.plan)
		r.memo.forecasts[host] = f
	}
	return f
}

// endsLayout tells whether a plan is the destroy of a config or a pool.
func endsLayout(p change.Change) bool { return p.Want.Empty() && isLayout(p) }

// foresee asks the planner what a plan does to a host.
func (r *run) foresee(host string, h *gpu.Host, p change.Change) change.Forecast {
	if p.Want.Empty() && p.Prior.Assignment != nil && len(r.othersForVM(p.Prior.Assignment)) > 0 {
		return change.Forecast{Host: host} // another resource of the run has taken it over by then
	}
	known := r.withClaims(host, h)
	if a := p.Want.Assignment; a != nil && a.Partition != nil && a.Partition.Config != "" && !r.before && !r.othersBefore {
		for e := range r.others(configNamed(a.Partition.Config)) { // which is made before
			if !e.plan.Unchanged {
				after := r.configured(host, h, e)
				if _, stays := after.VM(cmp.Or(a.VMID, a.VM)); stays { // else it was drained, and comes back
					known = after
				}
			}
		}
	}
	sent := r.sent(p, host)
	f := change.Foresee(known, host, sent)
	f.Undrained = sent.Undrained[host]
	return f
}

// refusals are why a host that carries the claims for its VMs would not do what a plan wants.
func (r *run) refusals(known gpu.Host, host string, p change.Change) change.Refusals {
	_, err := change.Plan(known, host, r.sent(p, host))
	var refused change.Refusals
	errors.As(err, &refused)
	return refused
}

// sent is a plan as a host will get it.
func (r *run) sent(p change.Change, host string) change.Change {
	p.Subject, p.Owner, p.Adopt = labelOf(p), r.owner, p.Token == ""
	if !r.applying { // else it is decided
		p.Undrained = r.undrained(p, host)
	}
	return p
}

// hostsOf are the hosts at hand that a plan concerns. Of a VM that another one replaces the plan
// of its own destroy tells.
func (r *run) hostsOf(p change.Change) []string {
	var out []string
	for _, w := range []gpu.Want{p.Want, p.Prior} {
		gpus, _ := wantedGPUs(w)
		out = append(out, r.atHand(gpus)...)
		switch {
		case w.Share != nil:
			if _, ok := r.host(w.Share.Host); ok {
				out = append(out, w.Share.Host)
			}
		case w.Assignment != nil && len(out) == 0:
			if at, ok := r.locate(w.Assignment); ok {
				out = append(out, at.key)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// withClaims is a host with the claims that other nodes of its cluster hold for its VMs.
func (r *run) withClaims(host string, h *gpu.Host) gpu.Host {
	others := r.fleet.claimsElsewhere(host, h)
	if len(others) == 0 {
		return *h
	}
	return change.WithPeerClaims(*h, values(others), r.owner, "")
}

// ClaimsElsewhere are the claims that other nodes of its cluster hold for the VMs of a host.
func (f *Fleet) ClaimsElsewhere(host string) []gpu.Claim {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if h := f.hosts[host]; h != nil {
		return values(f.claimsElsewhere(host, h))
	}
	return nil
}

func values(of []*gpu.Claim) []gpu.Claim {
	var out []gpu.Claim
	for _, c := range of {
		out = append(out, *c)
	}
	return out
}

// claimsElsewhere are none where the nodes have their records in common: then the host shows them.
func (f *Fleet) claimsElsewhere(host string, h *gpu.Host) []*gpu.Claim {
	if h.Cluster == nil || h.Cluster.Records {
		return nil
	}
	var out []*gpu.Claim
	for i := range h.VMs {
		out = append(out, f.peerClaims(host, h, h.VMs[i].ID)...)
	}
	return out
}

// peerClaims are those for one VM.
func (f *Fleet) peerClaims(host string, h *gpu.Host, vmID string) []*gpu.Claim {
	var out []*gpu.Claim
	for _, p := range f.vmClaims[gpu.FoldID(vmID)] {
		if p.host != host && h.SharesCluster(f.hosts[p.host]) {
			out = append(out, p.item)
		}
	}
	return out
}
