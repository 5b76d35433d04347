package rules

import (
	"cmp"
	"fmt"
	"maps"
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
		around := map[string]*gpu.Host{}
		for _, host := range hosts {
			maps.Copy(around, r.around(host))
		}
		for e := range r.others(subjectsOn(around)...) {
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

// around are the nodes at hand of the cluster of a host.
func (r *run) around(host string) map[string]*gpu.Host {
	out := map[string]*gpu.Host{}
	if h, ok := r.host(host); ok && h.Cluster != nil {
		out[host] = h
		for _, n := range h.Cluster.Nodes {
			if key, ok := r.fleet.node(h, n.Name); ok {
				out[key] = r.fleet.hosts[key]
			}
		}
	}
	return out
}

// subjectsOn are what plans for some hosts are about.
func subjectsOn(hosts map[string]*gpu.Host) []string {
	var out []string
	for _, host := range sortedKeys(hosts) {
		out = append(out, gpusOn(host), vmsOn(host))
	}
	return out
}

// drainage is what a config does to the nodes of a cluster once other plans are made there.
type drainage struct {
	config *gpu.PartitionConfig
	of     map[string]*gpu.Host // as they were
	claims []*gpu.Claim         // that others hold for their VMs
	made   map[*entry]bool
	then   map[string]*gpu.Host
	why    map[string]string // they are not drained then
	// first is what the config does before the others, with all that it moves after any of them.
	first map[string]change.Forecast
}

func (d *drainage) clone() *drainage {
	c := *d
	c.made, c.then, c.why, c.first = maps.Clone(d.made), maps.Clone(d.then), maps.Clone(d.why), maps.Clone(d.first)
	return &c
}

// drainOrder makes the other plans of the clusters of some hosts one after the other, that of the
// run last, and compares what the config then does with what it does first.
func (r *run) drainOrder(config change.Change, hosts []string) []Finding {
	var out []Finding
	seen := map[string]bool{}
	for _, host := range hosts {
		if seen[host] {
			continue
		}
		nodes := r.around(host)
		for key := range nodes {
			seen[key] = true
		}
		found, decided := r.drainOrderIn(config, nodes)
		if out = append(out, found...); decided {
			break
		}
	}
	return out
}

// drainOrderIn does so in one cluster. It is decided when the config would not drain a node any more.
func (r *run) drainOrderIn(config change.Change, nodes map[string]*gpu.Host) (out []Finding, decided bool) {
	if len(nodes) == 0 {
		return nil, false
	}
	var others []*entry
	for e := range r.others(subjectsOn(nodes)...) {
		if e.plan.Token != config.Token && r.mayOvertake(e.plan, config) {
			others = append(others, e)
		}
	}
	id := [2]string{config.Token, sortedKeys(nodes)[0]}
	d, more := r.drainage(id, config, nodes, others)
	for _, e := range more {
		found, decided := r.drainedAfter(d, config, e.plan)
		if r.plan.Token == config.Token { // else it was said before
			out = append(out, found...)
		}
		if decided {
			return out, true
		}
		d.made[e] = true
	}
	if r.plan.Token == config.Token {
		return out, false
	}
	r.book.drained.Store(id, d)
	if !r.mayOvertake(r.plan, config) {
		return nil, false
	}
	return r.drainedAfter(d.clone(), config, r.plan)
}

func (r *run) mayOvertake(o, config change.Change) bool {
	return !o.Unchanged && !ordered(o, config) && !ordered(config, o)
}

// drainage is the last one of a cluster, since most plans come one after the other there, and those
// of some others that are not made in it. What cannot be added to it begins anew.
func (r *run) drainage(id [2]string, config change.Change, nodes map[string]*gpu.Host, others []*entry) (*drainage, []*entry) {
	d := &drainage{config: config.Want.Config, of: nodes, made: map[*entry]bool{}, then: maps.Clone(nodes), why: map[string]string{}, first: map[string]change.Forecast{}}
	for _, host := range sortedKeys(nodes) {
		d.claims = append(d.claims, r.fleet.claimsElsewhere(host, nodes[host])...)
	}
	kept, _ := r.book.drained.Load(id)
	if last, ok := kept.(*drainage); ok && last.config == d.config && maps.Equal(last.of, nodes) && slices.Equal(last.claims, d.claims) {
		more := slices.DeleteFunc(slices.Clone(others), func(e *entry) bool { return last.made[e] })
		if len(others)-len(more) == len(last.made) {
			return last.clone(), more
		}
	}
	for host, f := range r.drainsOn(config, nodes, func(string, string) bool { return true }) {
		d.first[host], d.why[host] = f, f.Undrained
	}
	return d, others
}

// drainedAfter makes one more plan, after those before it and alone, and compares: one of those
// before it may keep from a drain what this one alone brings about.
func (r *run) drainedAfter(d *drainage, config, o change.Change) (out []Finding, decided bool) {
	out, decided = r.drainedIn(d, d.then, config, o)
	if decided || len(d.made) == 0 {
		return out, decided
	}
	why := maps.Clone(d.why)
	alone, decided := r.drainedIn(d, maps.Clone(d.of), config, o)
	d.why = why
	return append(out, alone...), decided
}

// drainedIn makes a plan on nodes, and compares.
func (r *run) drainedIn(d *drainage, nodes map[string]*gpu.Host, config, o change.Change) (out []Finding, decided bool) {
	changed := map[string]bool{}
	for _, part := range halves(o) {
		for _, host := range r.hostsOf(part) {
			if h := nodes[host]; h != nil {
				if after, ok := r.after(r.withClaims(host, h), host, withoutDrain(part)); ok {
					nodes[host], changed[host] = &after, true
				}
			}
		}
	}
	later := *r
	later.fleet, later.memo = NewFleet(nodes), newMemo()
	second := later.drainsOn(config, nodes, func(host, why string) bool { return changed[host] || why != d.why[host] })
	for _, host := range sortedKeys(second) {
		was, is := d.first[host], second[host]
		full := is.Undrained != "" && change.WhyNotDrained(nodes[host]) == "" && len(was.Refused) == 0 && len(is.Refused) > 0 // once more VMs have partitions
		if !is.Drains && (full || was.Drains && len(is.Stops)+len(is.Refused) > 0) {
			return append(out, r.notDrained(config, o, is)), true
		}
		if is.Moves = slices.DeleteFunc(is.Moves, func(vm string) bool { return slices.Contains(was.Moves, vm) }); len(is.Moves) > 0 {
			out = append(out, r.drained(config, o, is))
		}
		was.Moves = slices.Concat(was.Moves, is.Moves)
		d.first[host], d.why[host] = was, is.Undrained
	}
	return out, false
}

// drainsOn is what a config does to those of some nodes that are asked for, by why they are not
// drained, as a run knows them.
func (r *run) drainsOn(config change.Change, nodes map[string]*gpu.Host, asked func(host, why string) bool) map[string]change.Forecast {
	out := map[string]change.Forecast{}
	for host, h := range nodes {
		if _, has := config.Want.Config.GPUs[host]; !has {
			continue
		}
		sent := r.sent(config, host)
		if why := cmp.Or(sent.Undrained[host], change.WhyNotDrained(h)); asked(host, why) {
			f := change.Foresee(r.withClaims(host, h), host, sent)
			f.Undrained = why
			out[host] = f
		}
	}
	return out
}

func (r *run) notDrained(config, o change.Change, then change.Forecast) Finding {
	what := "the host refuses it"
	if len(then.Refused) == 0 {
		what = "these VMs are shut down: " + joinAll(quoteAll(then.StopNames()))
	}
	return r.orderOf(config, o, Finding{
		Level: Error, Title: "The drain may come too late", Host: then.Host,
		Found: fmt.Sprintf("the node is not drained (%s), and %s.", then.Undrained, what),
		Fix:   "Make one of the two in an apply of its own first.",
	})
}

func (r *run) drained(config, o change.Change, then change.Forecast) Finding {
	return r.orderOf(config, o, Finding{
		Level: Warning, Title: "A node may be drained", Host: then.Host,
		Found: fmt.Sprintf("the node is drained: live migration moves these VMs to other nodes of the cluster meanwhile: %s.", joinAll(quoteAll(then.Moves))),
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
