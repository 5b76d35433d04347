package whatif

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Drains are the nodes of clusters that configs of the run drain.
type Drains struct{ *Run }

// Drains looks at the nodes that are drained.
func (r *Run) Drains() Drains { return Drains{r} }

// Undrained are the nodes, of those that a plan would drain, whose running VMs find no room on
// the others while they are changed, and why.
func Undrained(w World, p change.Change) map[string]string {
	r, done := Begin(w, p)
	defer done()
	if !drains(p) {
		return nil
	}
	return r.Drains().undrained(p, SortedKeys(p.Want.Config.GPUs)...)
}

// undrained goes through the nodes of the clusters of some hosts in the order in which they are
// changed: those that are not drained first. What a drain moves comes back afterwards, as far as the
// node still has room.
func (r Drains) undrained(p change.Change, hosts ...string) map[string]string {
	if !drains(p) {
		return nil
	}
	out, done := map[string]string{}, map[string]bool{}
	for _, host := range hosts {
		if h, ok := r.Host(host); ok && Cluster(h) != "" && !done[Cluster(h)] {
			done[Cluster(h)] = true
			maps.Copy(out, r.undrainedIn(h, p))
		}
	}
	return out
}

// undrainedIn looks at one cluster: at the nodes that get another layout, or, of what is done once
// and changes no GPU, at all of the config.
func (r Drains) undrainedIn(h *gpu.Host, p change.Change) map[string]string {
	id := drainIn{p.Want.Config, Cluster(h)}
	if known, ok := r.memo.undrained[id]; ok {
		return known
	}
	out, all := map[string]string{}, p.Act == change.ActDrain
	r.memo.undrained[id] = out
	part := *p.Want.Config
	part.GPUs = map[string][]string{}
	for _, host := range r.Fleet.Cluster(h) {
		if ids, ok := p.Want.Config.GPUs[host]; ok && all {
			part.GPUs[host] = nil
		} else if ok {
			part.GPUs[host] = ids
		}
	}
	e := evacuation{config: &part}
	byID := map[string]*evacuee{}
	for _, n := range h.Cluster.Nodes {
		host, ok := r.Fleet.node(h, n.Name)
		if !ok {
			continue // where nobody knows of any room
		}
		node := r.Fleet.byName[host]
		changes := e.addNode(host, n.Name, node, byID)
		if _, has := part.GPUs[host]; (changes || all && has) && change.WhyNotDrained(node) == "" {
			e.drains = append(e.drains, host)
		}
	}
	slices.Sort(e.drains)
	for {
		host, vm := e.firstUndrainable()
		if host == "" {
			return out
		}
		// It is changed before those that are drained, which leaves them other room.
		out[host] = fmt.Sprintf("no other node is sure to have room for VM %s while this one is changed", vm)
		e.drains = slices.DeleteFunc(e.drains, func(d string) bool { return d == host })
	}
}

// evacuation is a cluster whose nodes are drained one after the other for a config.
type evacuation struct {
	config *gpu.PartitionConfig
	slots  []Slot
	vms    []*evacuee
	drains []string // the nodes that are drained, in their order
}

// evacuee is a VM, and the slots that it has partitions of, one for each.
type evacuee struct {
	Demand
	at []int
}

// addNode adds the GPUs of a node and the VMs on them, and tells whether the config changes one that
// VMs have.
func (e *evacuation) addNode(host, name string, node *gpu.Host, byID map[string]*evacuee) (changes bool) {
	for i := range node.GPUs {
		g := &node.GPUs[i]
		if !Partitions(g) || InPool(node, g.ID) != nil {
			continue
		}
		p := g.Partitionable
		up := node.NodeState() == gpu.NodeUp && p.SupportsIncomingLiveMigration != nil && *p.SupportsIncomingLiveMigration
		for _, part := range p.Partitions {
			id := gpu.FoldID(part.VMID)
			if byID[id] == nil {
				byID[id] = evacueeOf(host, node, part.VMID)
				e.vms = append(e.vms, byID[id])
			}
			byID[id].at = append(byID[id].at, len(e.slots))
		}
		changes = changes || gpu.HasID(e.config.GPUs[host], g.ID) && p.Count != e.config.Count && len(p.Partitions) > 0
		e.slots = append(e.slots, Slot{GPU: g, Count: p.Count, host: host, node: name, up: up})
	}
	return changes
}

func evacueeOf(host string, node *gpu.Host, id string) *evacuee {
	vm, ok := node.VM(id)
	if !ok {
		vm = &gpu.VM{ID: id, Name: id}
	}
	v := &evacuee{Demand: Demand{Name: vm.Name, VM: vm, clustered: vm.Clustered && vm.Runs(), host: host}}
	for _, a := range vm.PartitionAdapters {
		v.min, v.pinned = a.Quotas.VRAM.Min, a.PinnedGPU
	}
	return v
}

// firstUndrainable is the first of the nodes to be drained, in their order, that one of its VMs may not
// be able to leave, wherever the cluster places the others.
func (e *evacuation) firstUndrainable() (host, vm string) {
	now := evacuation{config: e.config, slots: slices.Clone(e.slots), drains: e.drains}
	for _, v := range e.vms {
		now.vms = append(now.vms, &evacuee{Demand: v.Demand, at: slices.Clone(v.at)})
	}
	for host := range e.config.GPUs {
		if !slices.Contains(e.drains, host) {
			now.lay(host)
		}
	}
	for i, from := range e.drains {
		if vm := now.drain(from, e.drains[i+1:]); vm != "" {
			return from, vm
		}
	}
	return "", ""
}

// lay gives the GPUs of a node the config's partitions.
func (e *evacuation) lay(host string) {
	for i := range e.slots {
		if s := &e.slots[i]; s.host == host && gpu.HasID(e.config.GPUs[host], s.GPU.ID) {
			s.Count = e.config.Count
		}
	}
}

// free are the free partitions of a node that a VM may take, as their slots.
func (e *evacuation) free(v *evacuee, node string) (at []int) {
	for i := range e.slots {
		s := &e.slots[i]
		if s.node != node || !v.fits(s, v.host) {
			continue
		}
		left := s.Count
		for _, o := range e.vms {
			for _, k := range o.at {
				if k == i {
					left--
				}
			}
		}
		for range left {
			at = append(at, i)
		}
	}
	return at
}

// drain moves the VMs of a node away, gives it the config's partitions, and has the VMs come back. It
// returns the name of a VM that may find no room, and "" for none. Those in later are drained after it.
func (e *evacuation) drain(from string, later []string) string {
	moving, needs, all := e.leave(from)
	home, nodes := e.otherNodes(from)
	for _, v := range moving {
		room := 0 // that others have to take before there is none left for it
		for _, n := range nodes {
			room += max(0, len(e.free(v, n))-needs[v]+1)
		}
		if room <= all-needs[v] {
			return v.Name
		}
	}
	// At worst they are where they have to leave once more, if they cannot come back.
	leavesOnce := func(node string) int {
		if slices.ContainsFunc(e.slots, func(s Slot) bool { return s.node == node && slices.Contains(later, s.host) }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(nodes, func(a, b string) int { return leavesOnce(a) - leavesOnce(b) })
	for _, v := range moving {
		for _, n := range nodes {
			if at := e.free(v, n); len(at) >= needs[v] {
				v.at = at[:needs[v]]
				break
			}
		}
	}
	e.lay(from)
	e.comeBack(moving, needs, from, home)
	return ""
}

// leave takes the partitions of the VMs of a node that a drain moves, and returns these VMs, how many
// partitions each needs, and how many all need.
func (e *evacuation) leave(from string) (moving []*evacuee, needs map[*evacuee]int, all int) {
	needs = map[*evacuee]int{}
	for _, v := range e.vms {
		if v.host == from && v.clustered {
			needs[v] = len(v.at)
			all += len(v.at)
			v.at, moving = nil, append(moving, v)
		}
	}
	return moving, needs, all
}

// otherNodes are what the cluster calls a host, and the other nodes with GPUs.
func (e *evacuation) otherNodes(host string) (home string, nodes []string) {
	for _, s := range e.slots {
		if s.host == host {
			home = s.node
		} else if !slices.Contains(nodes, s.node) {
			nodes = append(nodes, s.node)
		}
	}
	return home, nodes
}

// comeBack has VMs come back as far as they can, at worst in an order that leaves those away that need
// most.
func (e *evacuation) comeBack(moving []*evacuee, needs map[*evacuee]int, from, home string) {
	slices.SortStableFunc(moving, func(a, b *evacuee) int { return needs[a] - needs[b] })
	for _, v := range moving {
		away := v.at
		v.host, v.at = "", nil
		if at := e.free(v, home); len(at) >= needs[v] {
			v.host, v.at = from, at[:needs[v]]
		} else {
			v.host, v.at = e.slots[away[0]].host, away
		}
	}
}

func drains(p change.Change) bool {
	c := p.Want.Config
	return c != nil && c.Drain && c.Kind == gpu.KindGPUP
}

// around are the nodes at hand of the cluster of a host.
func (r Drains) around(host string) map[string]*gpu.Host {
	out := map[string]*gpu.Host{}
	if h, ok := r.Host(host); ok && h.Cluster != nil {
		out[host] = h
		for _, n := range h.Cluster.Nodes {
			if key, ok := r.Fleet.node(h, n.Name); ok {
				out[key] = r.Fleet.byName[key]
			}
		}
	}
	return out
}

// subjectsOn are what plans for some hosts are about.
func subjectsOn(hosts map[string]*gpu.Host) []string {
	var out []string
	for _, host := range SortedKeys(hosts) {
		out = append(out, GPUsOn(host), vmsOn(host))
	}
	return out
}

// drainage is what a config does to the nodes of a cluster once other plans are made there.
type drainage struct {
	config *gpu.PartitionConfig
	of     map[string]*gpu.Host // as they were
	claims []*gpu.Claim         // that others hold for their VMs
	made   map[*Entry]bool
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

// drainage is the last one of a cluster, since most plans come one after the other there, and those
// of some others that are not made in it. What cannot be added to it begins anew.
func (r Drains) drainage(id [2]string, config change.Change, nodes map[string]*gpu.Host, others []*Entry) (*drainage, []*Entry) {
	d := &drainage{
		config: config.Want.Config, of: nodes, made: map[*Entry]bool{}, then: maps.Clone(nodes), why: map[string]string{},
		first: map[string]change.Forecast{},
	}
	for _, host := range SortedKeys(nodes) {
		d.claims = append(d.claims, r.Fleet.claimsElsewhere(host, nodes[host])...)
	}
	kept, _ := r.Book.drained.Load(id)
	if last, ok := kept.(*drainage); ok && last.config == d.config && maps.Equal(last.of, nodes) && slices.Equal(last.claims, d.claims) {
		more := slices.DeleteFunc(slices.Clone(others), func(e *Entry) bool { return last.made[e] })
		if len(others)-len(more) == len(last.made) {
			return last.clone(), more
		}
	}
	for host, f := range r.drainsOn(config, nodes, func(string, string) bool { return true }) {
		d.first[host], d.why[host] = f, f.Undrained
	}
	return d, others
}

// drainsOn is what a config does to those of some nodes that are asked for, by why they are not
// drained, as a run knows them.
func (r Drains) drainsOn(config change.Change, nodes map[string]*gpu.Host, asked func(host, why string) bool) map[string]change.Forecast {
	out := map[string]change.Forecast{}
	for host, h := range nodes {
		if _, has := config.Want.Config.GPUs[host]; !has {
			continue
		}
		sent := r.sent(config, host)
		if why := cmp.Or(sent.Undrained[host], change.WhyNotDrained(h)); asked(host, why) {
			f := change.Simulate(r.withClaims(host, h), host, sent)
			f.Undrained = why
			out[host] = f
		}
	}
	return out
}

func (r Drains) mayOvertake(o, config change.Change) bool {
	return !o.Unchanged && !ordered(o, config) && !ordered(config, o)
}

// DrainOrder is a node that a config drains or not, as it comes before or after another plan.
type DrainOrder struct {
	Config, First change.Change
	Then          change.Forecast // of the config, once the other one is made
	TooLate       bool            // the node is no longer drained; else VMs move only then
}

// Orders finds nodes that a config of the run drains or not, as it comes before or after some
// other plan: Terraform may choose either order, and hands a create nothing of what its plan has
// announced. VMs that are stopped only then are an error, and those that only move are named.
func (r Drains) Orders() []DrainOrder {
	if r.Plan.Unchanged {
		return nil
	}
	if drains(r.Plan) {
		return r.drainOrder(r.Plan, SortedKeys(r.Plan.Want.Config.GPUs))
	}
	var out []DrainOrder
	if r.Book.draining > 0 {
		hosts := r.HostsOf(r.Plan)
		around := map[string]*gpu.Host{}
		for _, host := range hosts {
			maps.Copy(around, r.around(host))
		}
		for e := range r.Others(subjectsOn(around)...) {
			if drains(e.Plan) && !e.Plan.Unchanged {
				out = append(out, r.drainOrder(e.Plan, hosts)...)
			}
		}
	}
	return out
}

// drainOrder makes the other plans of the clusters of some hosts one after the other, that of the
// run last, and compares what the config then does with what it does first.
func (r Drains) drainOrder(config change.Change, hosts []string) []DrainOrder {
	var out []DrainOrder
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
func (r Drains) drainOrderIn(config change.Change, nodes map[string]*gpu.Host) (out []DrainOrder, decided bool) {
	if len(nodes) == 0 {
		return nil, false
	}
	var others []*Entry
	for e := range r.Others(subjectsOn(nodes)...) {
		if e.Plan.Token != config.Token && r.mayOvertake(e.Plan, config) {
			others = append(others, e)
		}
	}
	id := [2]string{config.Token, SortedKeys(nodes)[0]}
	d, more := r.drainage(id, config, nodes, others)
	for _, e := range more {
		found, decided := r.drainedAfter(d, config, e.Plan)
		if r.Plan.Token == config.Token { // else it was said before
			out = append(out, found...)
		}
		if decided {
			return out, true
		}
		d.made[e] = true
	}
	if r.Plan.Token == config.Token {
		return out, false
	}
	r.Book.drained.Store(id, d)
	if !r.mayOvertake(r.Plan, config) {
		return nil, false
	}
	return r.drainedAfter(d.clone(), config, r.Plan)
}

// drainedAfter makes one more plan, after those before it and alone, and compares: one of those
// before it may keep from a drain what this one alone brings about.
func (r Drains) drainedAfter(d *drainage, config, o change.Change) (out []DrainOrder, decided bool) {
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
func (r Drains) drainedIn(d *drainage, nodes map[string]*gpu.Host, config, o change.Change) (out []DrainOrder, decided bool) {
	changed := map[string]bool{}
	for _, part := range halves(o) {
		for _, host := range r.HostsOf(part) {
			if h := nodes[host]; h != nil {
				if after, ok := r.after(r.withClaims(host, h), host, withoutDrain(part)); ok {
					nodes[host], changed[host] = &after, true
				}
			}
		}
	}
	later := *r.Run
	later.Fleet, later.memo = NewFleet(nodes), newMemo()
	second := later.Drains().drainsOn(config, nodes, func(host, why string) bool { return changed[host] || why != d.why[host] })
	for _, host := range SortedKeys(second) {
		was, is := d.first[host], second[host]
		// once more VMs have partitions
		full := is.Undrained != "" && change.WhyNotDrained(nodes[host]) == "" && len(was.Refused) == 0 && len(is.Refused) > 0
		if !is.Drains && (full || was.Drains && len(is.Stops)+len(is.Refused) > 0) {
			return append(out, DrainOrder{Config: config, First: o, Then: is, TooLate: true}), true
		}
		if is.Moves = slices.DeleteFunc(is.Moves, func(vm string) bool { return slices.Contains(was.Moves, vm) }); len(is.Moves) > 0 {
			out = append(out, DrainOrder{Config: config, First: o, Then: is})
		}
		was.Moves = slices.Concat(was.Moves, is.Moves)
		d.first[host], d.why[host] = was, is.Undrained
	}
	return out, false
}
