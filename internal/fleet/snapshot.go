package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// SnapshotOption says how a snapshot is taken.
type SnapshotOption struct {
	cached, peers, again, forVM bool
	vm                          VMSearch
}

var (
	// Cached asks nobody: it is what this run has seen of all hosts that it has looked at. No hosts are named with it.
	Cached = SnapshotOption{cached: true}
	// WithClusterPeers adds the other nodes of the hosts' clusters: rules about clusters need these, and claims for VMs
	// that moved may lie there.
	WithClusterPeers = SnapshotOption{peers: true}
	// readAgain asks the hosts what they are like now. What the run knows of them stays as it was: its plans go by one
	// reading.
	readAgain = SnapshotOption{again: true}
)

// ForVM looks on as few of the hosts as it takes to find a VM; without names on all.
func ForVM(s VMSearch) SnapshotOption { return SnapshotOption{forVM: true, vm: s} }

// Snapshot is what hosts are like as this run knows it: one inventory call per host and run, shared by all who ask, in
// parallel. The hosts are not to be changed by the caller.
func (f *Fleet) Snapshot(ctx context.Context, names []string, options ...SnapshotOption) View {
	var o SnapshotOption
	for _, x := range options {
		o.cached, o.peers, o.again = o.cached || x.cached, o.peers || x.peers, o.again || x.again
		if x.forVM {
			o.forVM, o.vm = true, x.vm
		}
	}
	switch {
	case o.cached:
		return f.seenHosts()
	case o.forVM:
		return f.search(ctx, names, o.vm)
	}
	v := f.read(ctx, names, o.again)
	if o.peers {
		v = f.read(ctx, f.Peers(v, names), o.again)
	}
	return v
}

// read asks those hosts of which the run does not know what they are like, or all.
func (f *Fleet) read(ctx context.Context, names []string, again bool) View {
	v := View{Hosts: make(map[string]*gpu.Host, len(names)), Errors: map[string]error{}, owner: f.opt.Owner}
	var asked []string
	for _, name := range names {
		switch host := f.hosts[name]; {
		case host == nil:
			v.Errors[name] = &UnknownHostError{Host: name, Known: f.HostNames()}
		case again:
			asked = append(asked, name)
		default:
			if h, _ := host.known(); h != nil {
				v.Hosts[name] = h
			} else {
				asked = append(asked, name)
			}
		}
	}
	if len(asked) > 0 {
		f.ask(ctx, v, asked, again)
	}
	v.distrustEvicted()
	v.reconcileNodeStates()
	v.returnDrained()
	return v
}

// ask asks hosts, in parallel, and puts what they answer into a view.
func (f *Fleet) ask(ctx context.Context, v View, names []string, again bool) {
	var mu sync.Mutex
	var g errgroup.Group
	for _, name := range names {
		g.Go(func() error {
			read := f.hosts[name].snapshot
			if again {
				read = f.hosts[name].readAgain
			}
			h, err := read(ctx, f.parallel)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				v.Errors[name] = err
			} else {
				v.Hosts[name] = h
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in the view
}

// seenHosts are the hosts that this run has looked at already. They are shared, and indexed.
func (f *Fleet) seenHosts() View {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sawAt != f.seen.Changes() {
		var hosts map[string]*gpu.Host
		hosts, f.sawAt = f.seen.Hosts()
		for name, h := range hosts {
			if f.saw.Hosts[name] != h {
				f.saw.index.Put(name, h)
			}
		}
		f.saw.Hosts = hosts
	}
	return View{Hosts: f.saw.Hosts, Errors: map[string]error{}, index: f.saw.index, owner: f.opt.Owner}
}

// withNeighbours adds the hosts that pools of this run join to those of a view: what is
// planned on one may be wrong by what is planned on another. It asks nobody: whoever
// planned the pool has looked at them.
func (f *Fleet) withNeighbours(v View) View {
	if v.index != nil { // it has all that were looked at
		return v
	}
	for from := slices.Collect(maps.Keys(v.Hosts)); len(from) > 0; {
		more := View{Hosts: map[string]*gpu.Host{}}
		for _, name := range f.Ledger.book.InPoolsWith(from) {
			if h := f.hosts[name]; h != nil && v.Hosts[name] == nil && v.Errors[name] == nil {
				if seen, _ := h.known(); seen != nil {
					more.Hosts[name] = seen
				}
			}
		}
		if len(more.Hosts) == 0 {
			return v
		}
		v, from = v.With(more), slices.Collect(maps.Keys(more.Hosts))
	}
	return v
}

// index gives the rules' index of a view. Resources look at the same hosts in turn, those of
// their cluster, so the last one of each is kept.
func (f *Fleet) index(v View) *whatif.Fleet {
	if v.index != nil || len(v.Hosts) == 0 {
		return cmp.Or(v.index, whatif.NewFleet(nil))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	sorted := slices.AppendSeq(make([]string, 0, len(v.Hosts)), maps.Keys(v.Hosts))
	slices.Sort(sorted)
	names := strings.Join(sorted, "\n")
	last := f.indexed[names]
	switch {
	case last.index == nil:
		last.index = whatif.NewFleet(v.Hosts)
	case maps.Equal(last.Hosts, v.Hosts):
		return last.index
	default:
		last.index = last.index.With(v.Hosts)
	}
	last.Hosts = maps.Clone(v.Hosts)
	f.indexed[names] = last
	return last.index
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

// ClusterHosts are the provider's names of a cluster's hosts, sorted. Hosts whose
// cluster is neither configured nor answered count as members that do not answer.
func (f *Fleet) ClusterHosts(v View, cluster string) (members, unknown []string) {
	for _, name := range f.names {
		if h, ok := v.Hosts[name]; ok {
			if gpu.SameID(h.ClusterName(), cluster) {
				members = append(members, name)
			}
			u, dark := h.UnknownPart(gpu.PartCluster)
			if !dark || h.Cluster != nil {
				continue
			}
			v.doubt(name, u)
		}
		ce, ok := errors.AsType[*connect.Error](v.Errors[name])
		if c := f.hosts[name].endpoint.Cluster; c == "" || gpu.SameID(c, cluster) || ok && ce.Code == connect.WrongCluster {
			unknown = append(unknown, name)
		}
	}
	return members, unknown
}

// Begun adds to a view the hosts, of the same clusters, to which a run that ended early has given
// an object, and whose state does not know it: they hold a claim of its token.
func (f *Fleet) Begun(ctx context.Context, v View, kind gpu.ClaimKind, id, token string) (more []string, with View) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(v.Errors)), maps.Keys(v.Hosts))
	seen := f.Snapshot(ctx, f.Peers(v, names)).Hosts
	maps.DeleteFunc(seen, func(name string, h *gpu.Host) bool {
		c, ok := h.Claim(kind, id)
		return !ok || token == "" || c.Token != token || slices.Contains(names, name)
	})
	return slices.Sorted(maps.Keys(seen)), v.With(View{Hosts: seen})
}
