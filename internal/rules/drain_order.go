package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// checkDrainOrder finds nodes that a config of the run drains as long as it comes first, and
// whose VMs it would stop once some other plan of the run is made: Terraform may choose either
// order, and hands a create nothing of what its plan has announced.
func (r *run) checkDrainOrder() {
	if r.plan.Unchanged || r.plan.Want.Empty() {
		return
	}
	if drains(r.plan) {
		r.drainOrder(r.plan, sortedKeys(r.plan.Want.Config.GPUs))
		return
	}
	if r.book.draining == 0 {
		return
	}
	hosts := r.hostsOf(r.plan)
	for e := range r.others(r.subjectsAround(hosts)...) {
		if drains(e.plan) && !e.plan.Unchanged {
			r.drainOrder(e.plan, hosts)
		}
	}
}

func drains(p change.Change) bool {
	c := p.Want.Config
	return c != nil && c.Drain && c.Kind == gpu.KindGPUP
}

// around are the nodes at hand of the clusters of some hosts.
func (r *run) around(hosts []string) map[string]*gpu.Host {
	out := map[string]*gpu.Host{}
	for _, host := range hosts {
		if h, ok := r.host(host); ok && h.Cluster != nil && out[host] == nil {
			out[host] = h
			for _, n := range h.Cluster.Nodes {
				if key, ok := r.fleet.node(h, n.Name); ok {
					out[key] = r.fleet.hosts[key]
				}
			}
		}
	}
	return out
}

func (r *run) subjectsAround(hosts []string) []string {
	var out []string
	for _, host := range sortedKeys(r.around(hosts)) {
		out = append(out, gpusOn(host), vmsOn(host))
	}
	return out
}

// drainOrder makes the other plans of the clusters of some hosts one after the other, that of the
// run last, until one keeps a config from draining a node.
func (r *run) drainOrder(config change.Change, hosts []string) {
	then := r.around(hosts)
	first := r.drainsOn(config, then)
	if !slices.ContainsFunc(slices.Collect(maps.Values(first)), func(f change.Forecast) bool { return f.Drains }) {
		return
	}
	var others []change.Change
	for e := range r.others(r.subjectsAround(hosts)...) {
		others = append(others, e.plan)
	}
	if r.plan.Token != config.Token {
		others = append(others, r.plan)
	}
	for _, o := range others {
		if o.Unchanged || o.Token == config.Token || o.Want.Empty() || ordered(o, config) || ordered(config, o) {
			continue
		}
		for _, part := range halves(o) {
			for _, host := range r.hostsOf(part) {
				if h := then[host]; h != nil {
					if after, ok := r.after(r.withClaims(host, h), host, withoutDrain(part)); ok {
						then[host] = &after
					}
				}
			}
		}
		later := *r
		later.fleet, later.memo = NewFleet(then), newMemo()
		second := later.drainsOn(config, then)
		for _, host := range sortedKeys(second) {
			f := second[host]
			if !first[host].Drains || f.Drains || len(f.Stops)+len(f.Refused) == 0 {
				continue
			}
			if r.plan.Token == config.Token || r.plan.Token == o.Token {
				r.reportDrainOrder(config, o, f)
			}
			return
		}
	}
}

// drainsOn is what a config does to some nodes, as a run knows them.
func (r *run) drainsOn(config change.Change, nodes map[string]*gpu.Host) map[string]change.Forecast {
	out, sent := map[string]change.Forecast{}, r.sent(config)
	for host := range config.Want.Config.GPUs {
		if h := nodes[host]; h != nil {
			f := change.Foresee(r.withClaims(host, h), host, sent)
			f.Undrained = cmp.Or(sent.Undrained[host], change.WhyNotDrained(h))
			out[host] = f
		}
	}
	return out
}

func (r *run) reportDrainOrder(config, o change.Change, then change.Forecast) {
	what := "the host refuses it"
	if len(then.Refused) == 0 {
		var names []string
		for _, s := range then.Stops {
			names = append(names, quote(s.Name))
		}
		what = "these VMs are shut down: " + joinAll(names)
	}
	f := Finding{
		Title: "The drain may come too late", Path: pathOf(r.plan), Host: then.Host, Other: labelOf(o),
		Found:  fmt.Sprintf("If %s is %s before %s is %s, the node is not drained (%s), and %s.", labelOf(o), done(o), labelOf(config), done(config), then.Undrained, what),
		Wanted: eitherFirst,
		Fix:    "Make one of the two in an apply of its own first.",
	}
	if a := o.Want.Assignment; a != nil && a.Partition != nil {
		f.Fix = "Write `partition = { config = ... }` with the id of the config, so that the config comes first."
	}
	if r.plan.Token == o.Token {
		f.Other = labelOf(config)
	}
	r.report(f, key("drain order", then.Host, labelOf(config), labelOf(o)))
}
