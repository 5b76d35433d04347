package fleet_test

import (
	stdcmp "cmp"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var (
	clusterHistories = flag.Int("cluster-histories", 0,
		"how many histories TestClustersKeepTheirPromises goes through; 0 means 200, or 60 with -short")
	clusterSeed = flag.Uint64("cluster-seed", 1, "the first seed of TestClustersKeepTheirPromises")
)

// roundsPerHistory is how often something happens to a cluster, and Terraform is run after it.
const roundsPerHistory = 6

// TestClustersKeepTheirPromises goes through random histories of clusters of 2 to 16 nodes: VMs
// fail over, nodes die, are paused, evicted, repaired and taken out of the provider, people do
// what they please, runs die in the middle, and between all that others are applied. Of each run
// it is asked what TestWhatThePlanSaysIsWhatTheHostDoes asks, and that
//   - no VM stays off that people and the cluster left running,
//   - the next plan has nothing to do, and no error,
//   - each object has one claim, where it belongs,
//   - a destroy of all leaves what was before, the partition counts of GPUs too where they were to
//     be restored.
func TestClustersKeepTheirPromises(t *testing.T) {
	t.Parallel()
	n := *clusterHistories
	if n == 0 {
		if n = 200; testing.Short() {
			n = 60
		}
	}
	total := play(*clusterSeed, n, func(seed uint64) *world { return live(t, seed) })
	t.Logf("histories: %v", total)
	for sort, least := range map[string]int{
		"applied": 2000, "stopped": 100, "failovers": 500, "deaths": 200, "evictions": 50, "repairs": 200,
		"pauses": 100, "destroyed": 900, "given back": 500,
	} {
		if !t.Failed() && n >= 60 && total[sort]*1000 < n*least {
			t.Errorf("there are too few cases of %q: %v", sort, total)
		}
	}
}

// live is a history.
func live(t *testing.T, seed uint64) (w *world) {
	w = newCluster(t, seed)
	defer func() {
		if r := recover(); r != nil && r != any(errDiffers) {
			panic(r)
		}
	}()
	for range roundsPerHistory {
		for range w.rng.IntN(4) {
			w.happen()
		}
		w.round()
	}
	w.over()
	return w
}

// cluster is what is known of the cluster of a world.
type cluster struct {
	nodes []string
	// fates are those of the nodes that are not up, and removed those that the provider has
	// not.
	fates   map[string]string
	removed map[string]fleet.Endpoint
	// whole is true where the config is of the cluster, whichever hosts that are.
	whole bool
	// off are the VMs that nobody expects to run, by name.
	off map[string]bool
	// left are the hosts on which an object was when it left them and the provider had not them
	// any more, by the kind of its claim, for an assignment also by the VM.
	left map[string]bool
	// settings are those that VMs had at the beginning, by name.
	settings map[string]gpu.VMSettings
	// divided are the partition counts that GPUs had when no config had them last, by host and id.
	divided map[string]int
}

func newCluster(t *testing.T, seed uint64) *world {
	w := newBareWorld(t, seed, 17)
	n := 2 + w.rng.IntN(3)
	if w.chance(25) {
		n = 2 + w.rng.IntN(15)
	}
	c := &cluster{
		fates: map[string]string{}, removed: map[string]fleet.Endpoint{}, whole: w.chance(50), off: map[string]bool{}, left: map[string]bool{},
		settings: map[string]gpu.VMSettings{}, divided: map[string]int{},
	}
	w.cluster = c
	w.begin(hypervHosts(w, n))
	c.nodes = w.sim.Hosts()
	for _, h := range w.hosts() {
		for _, vm := range h.VMs {
			c.settings[vm.Name] = vm.Settings
		}
	}
	w.expect(nil)
	return w
}

// states are the states of all VMs, by name.
func (w *world) states() map[string]gpu.VMState {
	out := map[string]gpu.VMState{}
	for _, h := range w.hosts() {
		for _, vm := range h.VMs {
			out[vm.Name] = vm.State
		}
	}
	return out
}

// expect takes the VMs whose state is another than before to be as they are to be.
func (w *world) expect(before map[string]gpu.VMState) {
	for vm, now := range w.states() {
		if was, ok := before[vm]; !ok || was != now {
			w.cluster.off[vm] = now != gpu.VMRunning
		}
	}
}

// happen has something happen to the cluster that no run of Terraform has a part in.
func (w *world) happen() {
	before := w.states()
	defer func() { w.expect(before) }()
	ctx, c := w.t.Context(), w.cluster
	node := pick(w, c.nodes...)
	fate := c.fates[node]
	switch n := w.rng.IntN(20); {
	case fate != "" && n < 12:
		w.repair(node)
	case fate == "dead" && n < 15:
		w.evict(node)
	case fate == "dead" || fate == "evicted":
		if _, gone := c.removed[node]; !gone {
			w.note("%s is taken out of the provider", node)
			c.removed[node] = w.endpoints[node]
			delete(w.endpoints, node)
		}
	case n < 5:
		w.failOver(node)
	case n < 8:
		w.die(node)
	case n < 10:
		w.evict(node)
	case n < 12 && len(w.up()) > 1:
		w.note("%s is paused", node)
		w.must(w.sim.SetNodeState(ctx, node, gpu.NodePaused))
		c.fates[node] = "paused"
		w.counts["pauses"]++
	case n < 14:
		for _, vm := range w.hosts()[node].VMs {
			if vm.Clustered && w.chance(50) {
				to := pick(w, w.up()...)
				w.note("%s migrates to %s: %v", vm.Name, to, w.sim.LiveMigrate(ctx, vm.Name, to))
			}
		}
	default:
		w.meddle()
	}
}

func (w *world) must(err error) {
	if err != nil {
		w.fatal("%v", err)
	}
}

// up are the nodes that take VMs.
func (w *world) up() []string {
	return slices.DeleteFunc(slices.Clone(w.cluster.nodes), func(n string) bool { return w.cluster.fates[n] != "" })
}

// failOver has another node take over what runs on one in the cluster.
func (w *world) failOver(node string) {
	to := slices.DeleteFunc(w.up(), func(n string) bool { return n == node })
	if len(to) == 0 {
		return
	}
	for _, vm := range w.hosts()[node].VMs {
		if vm.Clustered {
			at := pick(w, to...)
			w.note("%s fails over from %s to %s: %v", vm.Name, node, at, w.sim.MoveVM(w.t.Context(), vm.Name, at))
			w.counts["failovers"]++
		}
	}
}

// die takes a node away. What the cluster has there starts elsewhere, and the rest is off.
func (w *world) die(node string) {
	if len(w.up()) < 2 {
		return
	}
	w.failOver(node)
	for _, vm := range w.hosts()[node].VMs {
		w.must(w.sim.SetVMState(w.t.Context(), vm.Name, gpu.VMOff))
	}
	w.must(w.sim.SetNodeState(w.t.Context(), node, gpu.NodeDown))
	w.must(w.sim.SetUnreachable(w.t.Context(), node, true))
	w.note("%s is dead", node)
	w.cluster.fates[node] = "dead"
	w.counts["deaths"]++
}

// evict takes a node out of the cluster, which one that is dead does not hear of.
func (w *world) evict(node string) {
	if w.cluster.fates[node] == "" && len(w.up()) < 2 {
		return
	}
	dead := w.cluster.fates[node] == "dead"
	w.failOver(node)
	w.must(w.sim.Edit(w.t.Context(), func(s *gpu.Snapshot) error {
		for i := range s.Hosts {
			switch h := &s.Hosts[i]; {
			case h.Cluster == nil:
			case h.Name != node:
				h.Cluster.Nodes = slices.DeleteFunc(slices.Clone(h.Cluster.Nodes), func(n gpu.Node) bool { return n.Name == node })
			case !dead:
				h.Cluster = nil
			}
		}
		return nil
	}))
	w.note("%s is evicted", node)
	w.cluster.fates[node] = "evicted"
	w.counts["evictions"]++
}

// repair makes a node a node again.
func (w *world) repair(node string) {
	w.must(w.sim.SetUnreachable(w.t.Context(), node, false))
	if w.cluster.fates[node] == "evicted" {
		w.must(w.sim.Edit(w.t.Context(), func(s *gpu.Snapshot) error {
			var all []gpu.Node
			for i := range s.Hosts {
				if h := &s.Hosts[i]; h.Cluster != nil && h.Name != node {
					h.Cluster.Nodes = append(slices.Clone(h.Cluster.Nodes), gpu.Node{Name: node, State: gpu.NodeUp})
					all = h.Cluster.Nodes
				}
			}
			for i := range s.Hosts {
				if h := &s.Hosts[i]; h.Name == node {
					h.Cluster = &gpu.Cluster{Name: "clu", Nodes: slices.Clone(all)}
				}
			}
			return nil
		}))
	}
	w.must(w.sim.Resume(w.t.Context(), node, false))
	w.note("%s is repaired", node)
	if e, gone := w.cluster.removed[node]; gone {
		w.endpoints[node] = e
		delete(w.cluster.removed, node)
	}
	delete(w.cluster.fates, node)
	w.counts["repairs"]++
}

// members are the hosts that a config is to be on, and whether all of them answer.
func (w *world) members(view fleet.View) (members []string, all bool) {
	if !w.cluster.whole {
		return slices.Sorted(maps.Keys(w.endpoints)), view.Complete()
	}
	in, unknown := w.run(nil).ClusterHosts(view, "clu")
	return in, len(unknown) == 0
}

// now is what a resource is to have, where it is now, and whether those answer that it concerns.
func (w *world) now(view fleet.View, want gpu.Want) (gpu.Want, bool) {
	switch {
	case want.Assignment != nil:
		a := *want.Assignment
		at, err := fleet.FindVM(view, a.VMID)
		if a.Host = at.Host; err != nil {
			return want, false
		}
		return gpu.Want{Assignment: &a}, true
	case want.Config != nil:
		c := *want.Config
		members, all := w.members(view)
		c.GPUs = map[string][]string{}
		for _, n := range members {
			c.GPUs[n] = randomGPUs
		}
		return gpu.Want{Config: &c}, all && len(members) > 0
	case want.Pool != nil:
		p := *want.Pool
		ids := slices.Concat(slices.Collect(maps.Values(p.Members))...)
		slices.Sort(ids)
		p.Members = map[string][]string{}
		for n := range w.endpoints {
			p.Members[n] = slices.Compact(slices.Clone(ids))
		}
		return gpu.Want{Pool: &p}, view.Complete()
	}
	return want, true
}

// round is a run of Terraform: it makes some changes, and repairs what is not as declared.
func (w *world) round() {
	w.refresh()
	view := lookAll(w.t, w.run(nil))
	w.undivided(view)
	var all []changed
	add := func(r *resource, p change.Change) {
		if !slices.ContainsFunc(all, func(c changed) bool { return c.r.label == r.label }) {
			all = append(all, changed{r, p})
		}
	}
	if w.again != nil {
		want, answers := w.now(view, w.due.Want)
		if !answers {
			return
		}
		w.due.Want = want
		add(w.again, w.due)
	}
	w.drifting = nil
	for _, r := range w.resources {
		if want, answers := w.now(view, r.has); answers && w.differs(view, r, want) {
			w.drifting = append(w.drifting, r)
			add(r, change.Change{Subject: r.label, Token: r.token, Want: want, Prior: r.has})
		}
	}
	for range w.rng.IntN(4) {
		r, want := w.choose()
		if r == nil {
			continue
		}
		if want.Empty() {
			if _, answers := w.now(view, r.has); !answers {
				continue
			}
		} else if now, answers := w.now(view, want); answers {
			want = now
		} else {
			continue
		}
		add(r, change.Change{Subject: r.label, Token: r.token, Want: want, Prior: r.has})
	}
	all = slices.DeleteFunc(all, func(c changed) bool {
		return reflect.DeepEqual(c.p.Prior, c.p.Want) && !slices.Contains(w.drifting, c.r)
	})
	if len(all) == 0 {
		return
	}
	if w.again == nil && len(all) == 1 && w.chance(25) {
		before := w.states()
		w.leaves(all[0].p)
		if w.cut(all[0].r, all[0].p) {
			w.again, w.due = all[0].r, all[0].p
		}
		w.stoppedForGood(all[0].p, before)
		return
	}
	if w.together(all...) {
		w.promises(all...)
	}
}

// refresh reads the objects of the state: a run that ended early may have given them to more nodes.
func (w *world) refresh() {
	f := w.run(nil)
	view := f.Snapshot(w.t.Context(), f.HostNames())
	reads := func(r *resource, kind gpu.ClaimKind, id string, on map[string][]string) map[string][]string {
		known := fleet.View{Hosts: maps.Clone(view.Hosts), Errors: view.Errors}
		maps.DeleteFunc(known.Hosts, func(name string, _ *gpu.Host) bool { return on[name] == nil })
		more, with := f.Begun(w.t.Context(), known, kind, id, r.token)
		on = maps.Clone(on)
		for _, name := range more {
			c, _ := with.Hosts[name].Claim(kind, id)
			on[name] = c.GPUs
			w.counts["begun"]++
		}
		return on
	}
	for _, r := range w.resources {
		switch has := r.has; {
		case has.Config != nil:
			c := *has.Config
			c.GPUs = reads(r, gpu.ClaimConfig, c.ID, c.GPUs)
			r.has = gpu.Want{Config: &c}
		case has.Pool != nil:
			p := *has.Pool
			p.Members = reads(r, gpu.ClaimPool, p.Name, p.Members)
			r.has = gpu.Want{Pool: &p}
		}
	}
}

// undivided notes the partition counts of hosts that no config has.
func (w *world) undivided(view fleet.View) {
	for name, h := range view.Hosts {
		divided := slices.ContainsFunc(h.Claims, func(c gpu.Claim) bool { return c.Kind == gpu.ClaimConfig })
		if divided || len(h.Unfinished) > 0 {
			continue
		}
		for _, g := range h.GPUs {
			if g.Partitionable != nil {
				w.cluster.divided[name+" "+g.ID] = g.Partitionable.Count
			}
		}
	}
}

// givenBack compares the partition counts of hosts that a config has left, and restores, with
// those from before it came.
func (w *world) givenBack(p change.Change) {
	prior, want := p.Prior.Config, p.Want.Config
	if prior == nil || !stdcmp.Or(want, prior).Restore {
		return
	}
	for name, h := range w.hosts() {
		_, was := prior.GPUs[name]
		if _, answers := w.endpoints[name]; !was || !answers || want != nil && want.GPUs[name] != nil ||
			w.cluster.left[string(gpu.ClaimConfig)+" on "+name] {
			continue
		}
		for _, g := range h.GPUs {
			if g.Partitionable == nil {
				continue
			}
			is, had := g.Partitionable.Count, w.cluster.divided[name+" "+g.ID]
			if is != had {
				w.fatal("GPU %s on %s has %d partitions after %s has left it, and had %d before", g.ID, name, is, p.Subject, had)
			}
			if prior.Count != had {
				w.counts["given back"]++
			}
		}
	}
}

// cameBack asks that a drain leaves VMs where they were, as far as their node still has room.
func (w *world) cameBack(before, after map[string]*gpu.Host) {
	for name, h := range before {
		home := after[name]
		if home == nil || home.NodeState() != gpu.NodeUp {
			continue
		}
		free := 0
		for _, g := range home.GPUs {
			if g.Partitionable != nil && !g.Dismounted {
				free += g.Partitionable.Free()
			}
		}
		for _, vm := range h.VMs {
			if _, back := home.VM(vm.ID); back || !w.seen.moved[vm.Name] {
				continue
			}
			at, err := fleet.FindVM(fleet.View{Hosts: after}, vm.ID)
			w.must(err)
			if seats := len(at.VM.PartitionAdapters); seats <= free &&
				!slices.ContainsFunc(at.VM.PartitionAdapters, func(a gpu.PartitionAdapter) bool {
					return a.PinnedGPU != "" || a.Quotas != (gpu.Quotas{})
				}) {
				w.fatal("%s was on %s, which has room for it (%d partitions), and is on %s after a drain", vm.Name, name, free, at.Host)
			}
			w.counts["found no room at home"]++
		}
	}
}

// stoppedForGood takes it that a VM stays off whose assignment says so.
func (w *world) stoppedForGood(p change.Change, before map[string]gpu.VMState) {
	for _, want := range []gpu.Want{p.Want, p.Prior} {
		if a := want.Assignment; a != nil && a.Power.StayOff {
			w.expect(before)
		}
	}
}

// differs tells whether a run has to put a resource right.
func (w *world) differs(view fleet.View, r *resource, want gpu.Want) bool {
	p := change.Change{Subject: r.label, Owner: randomOwner, Token: r.token, Want: want, Prior: r.has}
	if a := want.Assignment; a != nil {
		at, _ := fleet.FindVM(view, a.VMID)
		c, recorded := fleet.RecordOf(view, at)
		return !recorded || len(change.AssignmentDifferences(view.Hosts[at.Host], at.VM, a, c)) > 0
	}
	if c := want.Config; c != nil && !slices.Equal(slices.Sorted(maps.Keys(c.GPUs)), slices.Sorted(maps.Keys(r.has.Config.GPUs))) {
		return true
	}
	if c := want.Pool; c != nil && !slices.Equal(slices.Sorted(maps.Keys(c.Members)), slices.Sorted(maps.Keys(r.has.Pool.Members))) {
		return true
	}
	for name, h := range view.Hosts {
		steps, _ := change.Plan(*h, name, p)
		if len(change.OnHost(steps)) > 0 {
			return true
		}
	}
	return false
}

// promises asks of a run that was applied what is asked of every run.
func (w *world) promises(made ...changed) {
	for _, c := range made {
		w.leaves(c.p)
		w.givenBack(c.p)
		if a := c.p.Want.Assignment; a != nil && a.Power.StayOff {
			w.expectOf(a.VMName)
		} else if a := c.p.Prior.Assignment; a != nil && c.p.Want.Empty() && a.Power.StayOff {
			w.expectOf(a.VMName)
		} else if c.p.Want.Config != nil || c.p.Prior.Config != nil { // stays off when the config stops it, too
			for _, r := range w.resources {
				if a := r.has.Assignment; a != nil && a.Power.StayOff {
					w.expectOf(a.VMName)
				}
			}
		}
	}
	view := lookAll(w.t, w.run(nil))
	for name, h := range view.Hosts {
		for _, vm := range h.VMs {
			if !vm.Runs() && !w.cluster.off[vm.Name] && len(h.Unfinished) == 0 {
				w.fatal("VM %s on %s ran, and is %s", vm.Name, name, vm.State)
			}
		}
	}
	next := w.plan()
	if len(next.errors) > 0 {
		w.fatal("the next plan fails: %s: %s", next.errors[0].Rule, next.errors[0].Found)
	}
	for _, r := range w.resources {
		if want, answers := w.now(view, r.has); answers && w.differs(view, r, want) && !w.unableTo(next, r) {
			w.fatal("the next plan changes %s again: %s", r.label, wantText(want))
		}
	}
	w.claims(view)
}

// leaves notes on which hosts an object is that could not be told that it leaves them.
func (w *world) leaves(p change.Change) {
	for host := range w.cluster.removed {
		if c := p.Prior.Config; c != nil && c.GPUs[host] != nil {
			w.cluster.left[string(gpu.ClaimConfig)+" on "+host] = true
		}
		if c := p.Prior.Pool; c != nil && c.Members[host] != nil {
			w.cluster.left[string(gpu.ClaimPool)+" on "+host] = true
		}
		if a := p.Prior.Assignment; a != nil && p.Want.Empty() && a.Host == host {
			w.cluster.left[string(gpu.ClaimAssignment)+" "+a.VMID+" on "+host] = true
		}
	}
}

// unableTo tells whether a plan has said that a resource cannot be put right.
func (w *world) unableTo(says announced, r *resource) bool {
	_, unable := says.unable[r.label]
	return unable
}

// expectOf takes a VM to be as it is to be.
func (w *world) expectOf(vm string) { w.cluster.off[vm] = w.states()[vm] != gpu.VMRunning }

// claims looks at the claims of all hosts, those too that do not answer: each object of the state
// has one for each of its hosts, and nothing else has any.
func (w *world) claims(view fleet.View) {
	found := map[string][]string{}
	for name, h := range w.hosts() {
		for _, c := range h.Claims {
			key := string(c.Kind) + " " + c.ID
			if c.Kind != gpu.ClaimAssignment {
				key += " on " + name
			}
			found[key] = append(found[key], fmt.Sprintf("on %s, in cluster %q, token %s", name, c.Cluster, c.Token))
		}
	}
	for key, list := range found {
		if len(list) > 1 {
			w.fatal("there are %d claims for %s: %v", len(list), key, list)
		}
	}
	for _, r := range w.resources {
		want, answers := w.now(view, r.has)
		if !answers {
			continue
		}
		switch {
		case want.Assignment != nil && len(found[string(gpu.ClaimAssignment)+" "+want.Assignment.VMID]) == 0:
			w.fatal("%s has no claim", r.label)
		case want.Config != nil:
			for host := range want.Config.GPUs {
				if h := view.Hosts[host]; h != nil && len(h.Unfinished) > 0 {
					continue // the next run there puts it back
				}
				if len(found[string(gpu.ClaimConfig)+" "+want.Config.ID+" on "+host]) == 0 {
					w.fatal("%s has no claim on %s", r.label, host)
				}
			}
		}
	}
}

// takeOver makes again what a dead run had begun and nobody could put back: of VMs that have moved
// since and kept it, and of GPUs that others took. Its record says that it is not complete. What
// others are in the way of waits for the last time.
func (w *world) takeOver(last bool) {
	for _, h := range w.hosts() {
		for _, c := range h.Claims {
			known := slices.ContainsFunc(w.resources, func(r *resource) bool { return r.token == c.Token })
			if !c.Incomplete || known {
				continue
			}
			label := "gpu_partition_config vdi"
			if c.Kind == gpu.ClaimAssignment {
				vm, _ := h.VM(c.ID)
				label = "gpu_vm_assignment for VM " + vm.Name
			}
			if c.Kind == gpu.ClaimPool || slices.ContainsFunc(w.resources, func(r *resource) bool { return r.label == label }) {
				continue // on another host of it
			}
			r := w.resource(label)
			want, _ := w.now(lookAll(w.t, w.run(nil)), c.Want)
			if a := want.Assignment; a != nil && a.Device != nil { // people name GPUs of the node that the VM is on now
				d := *a.Device
				d.Host, a.Device = a.Host, &d
				w.clear(d)
			} else if a != nil && a.Partition != nil {
				w.leaveOne(a.VMID)
			}
			w.counts["taken over"]++
			if p := (change.Change{Subject: r.label, Token: r.token, Want: want}); !w.together(changed{r, p}) && last {
				w.fatal("what a dead run has left of %s cannot be taken over", label)
			}
		}
	}
}

// clear takes from VMs the GPUs of a device that they were given by hand: nobody else could.
func (w *world) clear(d gpu.DeviceWant) {
	w.must(w.sim.Edit(w.t.Context(), func(s *gpu.Snapshot) error {
		for i := range s.Hosts {
			for k := range s.Hosts[i].VMs {
				vm := &s.Hosts[i].VMs[k]
				vm.Devices = slices.DeleteFunc(vm.Devices, func(of gpu.DeviceAssignment) bool {
					byHand := s.Hosts[i].Name == d.Host && vm.State == gpu.VMOff && strings.HasPrefix(of.ID, givenByHand) &&
						slices.Contains(d.GPUIDs, of.GPU)
					if byHand {
						w.note("%s is taken GPU %s by hand", vm.Name, of.GPU)
					}
					return byHand
				})
			}
		}
		return nil
	}))
}

// leaveOne takes from a VM all partitions but one, where it was given more by hand.
func (w *world) leaveOne(id string) {
	w.must(w.sim.Edit(w.t.Context(), func(s *gpu.Snapshot) error {
		for i := range s.Hosts {
			if vm, ok := s.Hosts[i].VM(id); ok && len(vm.PartitionAdapters) > 1 {
				w.note("%s is taken all partitions but one by hand", vm.Name)
				vm.PartitionAdapters = vm.PartitionAdapters[:1]
			}
		}
		return nil
	}))
}

// over ends a history: all nodes are repaired, and all is destroyed.
func (w *world) over() {
	for _, n := range w.cluster.nodes {
		if w.cluster.fates[n] != "" {
			w.repair(n)
		}
	}
	for range 3 {
		w.cutOff = false
		if w.round(); w.again == nil {
			break
		}
	}
	if w.again != nil {
		return // its plan is refused: what a run has left is for people
	}
	for _, n := range w.cluster.nodes { // what a dead run has left is settled
		conn, err := w.endpoints[n].Dial(w.t.Context(), true)
		w.must(err)
		var fence int64
		for range 4 { // what cannot be put back is taken as it stands then
			fence, err = conn.AcquireLease(w.t.Context(), agent.LeaseRequest{
				Run: "reconcile " + n, Owner: randomOwner, TTL: time.Minute, Cluster: true,
			})
			if err == nil || !strings.Contains(err.Error(), "could not be put back") {
				break
			}
			w.counts["not put back"]++
		}
		w.must(err)
		w.must(conn.ReleaseLease(w.t.Context(), fence))
	}
	// What may not be stopped people shut down first.
	before := w.states()
	for vm, state := range before {
		if state != gpu.VMOff {
			w.must(w.sim.SetVMState(w.t.Context(), vm, gpu.VMOff))
		}
	}
	w.expect(before)
	var all []changed
	for _, last := range []bool{false, true} {
		w.takeOver(last)
		w.refresh()
		var these []changed
		for _, r := range w.resources {
			these = append(these, changed{r, change.Change{Subject: r.label, Token: r.token, Prior: r.has}})
		}
		w.drifting = nil
		if len(these) > 0 && !w.together(these...) {
			w.fatal("not all can be destroyed")
		}
		all = append(all, these...)
	}
	w.counts["destroyed"]++
	for _, c := range all {
		w.givenBack(c.p)
	}
	for name, h := range w.hosts() {
		left := func(c gpu.Claim) bool {
			return w.cluster.left[string(c.Kind)+" on "+name] || w.cluster.left[string(c.Kind)+" "+c.ID+" on "+name]
		}
		if h.Claims = slices.DeleteFunc(h.Claims, left); len(h.Claims) > 0 {
			w.fatal("%s has claims still: %+v", name, h.Claims)
		}
		for _, vm := range h.VMs {
			if s := w.cluster.settings[vm.Name]; !reflect.DeepEqual(vm.Settings, s) {
				w.fatal("VM %s has other settings than at the beginning:\n%s", vm.Name, cmp.Diff(s, vm.Settings))
			}
		}
	}
}
