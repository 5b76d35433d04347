package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// drainOrders finds nodes that a config of the run drains or not, as it comes before or after some
// other plan: Terraform may choose either order, and hands a create nothing of what its plan has
// announced. VMs that are stopped only then are an error, and those that only move are named.
func (r *run) drainOrders() []Finding {
	if r.plan.Unchanged {
		return nil
	}
	if drains(r.plan) {
		return r.drainOrder(r.plan, sortedKeys(r.plan.Want.Config.GPUs))
	}
	var out []Finding
	if r.book.draining > 0 {
		hosts := r.hostsOf(r.plan)
		for e := range r.others(r.subjectsAround(hosts)...) {
			if drains(e.plan) && !e.plan.Unchanged {
				out = append(out, r.drainOrder(e.plan, hosts)...)
			}
		}
	}
	return out
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
// run last, and compares what the config then does with what it does first.
func (r *run) drainOrder(config change.Change, hosts []string) (out []Finding) {
	then := r.around(hosts)
	first := r.drainsOn(config, then)
	var others []change.Change
	for e := range r.others(r.subjectsAround(hosts)...) {
		others = append(others, e.plan)
	}
	if r.plan.Token != config.Token {
		others = append(others, r.plan)
	}
	for _, o := range others {
		if o.Unchanged || o.Token == config.Token || ordered(o, config) || ordered(config, o) {
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
		asked := r.plan.Token == config.Token || r.plan.Token == o.Token // else it was said before
		for _, host := range sortedKeys(second) {
			was, is := first[host], second[host]
			if was.Drains && !is.Drains && len(is.Stops)+len(is.Refused) > 0 {
				if asked {
					out = append(out, r.notDrained(config, o, is))
				}
				return out
			}
			if is.Moves = slices.DeleteFunc(is.Moves, func(vm string) bool { return slices.Contains(was.Moves, vm) }); len(is.Moves) > 0 && asked {
				out = append(out, r.drained(config, o, is))
			}
			was.Moves = append(was.Moves, is.Moves...)
			first[host] = was
		}
	}
	return out
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

func (r *run) notDrained(config, o change.Change, then change.Forecast) Finding {
	what := "the host refuses it"
	if len(then.Refused) == 0 {
		var names []string
		for _, s := range then.Stops {
			names = append(names, quote(s.Name))
		}
		what = "these VMs are shut down: " + joinAll(names)
	}
	return r.orderOf(config, o, Finding{
		Level: Error, Title: "The drain may come too late", Host: then.Host,
		Found: fmt.Sprintf("the node is not drained (%s), and %s.", then.Undrained, what),
		Fix:   "Make one of the two in an apply of its own first.",
	})
}

func (r *run) drained(config, o change.Change, then change.Forecast) Finding {
	var names []string
	for _, vm := range then.Moves {
		names = append(names, quote(vm))
	}
	return r.orderOf(config, o, Finding{
		Level: Warning, Title: "A node may be drained", Host: then.Host,
		Found: fmt.Sprintf("the node is drained: live migration moves these VMs to other nodes of the cluster meanwhile: %s.", joinAll(names)),
		Fix:   "If they are to stay, make one of the two in an apply of its own first.",
	})
}

// orderOf says of a finding which of two plans comes first.
func (r *run) orderOf(config, o change.Change, f Finding) Finding {
	f.Rule, f.Other, f.Wanted = Feasible, labelOf(o), eitherFirst
	f.Found = fmt.Sprintf("If %s is %s before %s is %s, %s", labelOf(o), done(o), labelOf(config), done(config), f.Found)
	if a := o.Want.Assignment; a != nil && a.Partition != nil {
		f.Fix = "Write `partition = { config = ... }` with the id of the config, so that the config comes first."
	}
	if r.plan.Token == o.Token {
		f.Other = labelOf(config)
	}
	return f
}
