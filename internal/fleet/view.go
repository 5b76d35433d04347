package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// View is what a set of hosts answered.
type View struct {
	// Hosts that answered, by the provider's name.
	Hosts map[string]*gpu.Host
	// Errors of those that did not.
	Errors map[string]error

	index *whatif.Fleet // of the same hosts, nil for none
	owner string        // of the state that looks
}

// Complete tells whether every host answered.
func (v View) Complete() bool { return len(v.Errors) == 0 }

// Recorded tells whether every host answered with all claims that it holds: only then is
// an object without one not there.
func (v View) Recorded() bool {
	for _, h := range v.Hosts {
		if len(h.Unreadable) > 0 {
			return false
		}
	}
	return v.Complete()
}

// Host is a host of the view, or why it did not answer.
func (v View) Host(name string) (*gpu.Host, error) { return v.Hosts[name], v.Errors[name] }

// Silent lists the hosts that did not answer, sorted.
func (v View) Silent() []string { return slices.Sorted(maps.Keys(v.Errors)) }

// With adds what other hosts answered to the view. Those that did not answer are left
// out: nothing is wanted of them.
func (v View) With(other View) View {
	out := View{Hosts: maps.Clone(v.Hosts), Errors: v.Errors, owner: v.owner}
	maps.Copy(out.Hosts, other.Hosts)
	return out
}

// distrustEvicted takes a host that shows itself in a cluster as one that cannot read its cluster,
// where another host is the node that it says it is, or more of the nodes that it lists deny it than
// list it: it has been evicted and does not know it, or what it says is not so.
func (v View) distrustEvicted() {
	var in map[string][]string
	for name, h := range v.Hosts {
		if h.Cluster != nil {
			if in == nil {
				in = map[string][]string{}
			}
			in[gpu.FoldID(h.Cluster.Name)] = append(in[gpu.FoldID(h.Cluster.Name)], name)
		}
	}
	for _, names := range in {
		if v.listEachOther(names) {
			continue
		}
		slices.Sort(names)
		for _, why := range []func(string, []string) string{v.twin, v.denied} {
			doubts := map[string]string{}
			for _, name := range names {
				if reason := why(name, names); reason != "" {
					doubts[name] = reason
				}
			}
			for name, reason := range doubts {
				is := *v.Hosts[name]
				is.Cluster, is.Unknown = nil, append(slices.Clone(is.Unknown), gpu.Unknown{Part: gpu.PartCluster, Why: reason})
				v.Hosts[name] = &is
			}
			names = slices.DeleteFunc(names, func(name string) bool { return doubts[name] != "" })
		}
	}
}

// listEachOther reports whether hosts list the same nodes, and each of them is another one of these: as
// a rule they do.
func (v View) listEachOther(names []string) bool {
	nodes := v.Hosts[names[0]].Cluster.Nodes
	if len(names) > len(nodes) {
		return false
	}
	is := make([]bool, len(nodes))
	for _, name := range names {
		h := v.Hosts[name]
		if !slices.EqualFunc(nodes, h.Cluster.Nodes, func(a, b gpu.Node) bool { return a.Name == b.Name }) {
			return false
		}
		i := slices.IndexFunc(nodes, func(n gpu.Node) bool { return gpu.SameID(n.Name, h.Name) })
		if i < 0 || is[i] {
			return false
		}
		is[i] = true
	}
	return true
}

// twin is why a host is not the node that it says it is: another one says so too, and the
// configuration does not call this one by the node's name.
func (v View) twin(name string, nodes []string) string {
	h := v.Hosts[name]
	i := slices.IndexFunc(nodes, func(other string) bool { return other != name && gpu.SameID(v.Hosts[other].Name, h.Name) })
	if i < 0 || gpu.SameID(name, h.Name) {
		return ""
	}
	return fmt.Sprintf("it says that it is node %s of cluster %s, and so does %s", h.Name, h.Cluster.Name, nodes[i])
}

// denied is why a host is none of the nodes of its cluster.
func (v View) denied(name string, nodes []string) string {
	h, listing := v.Hosts[name], 0
	var denying []string
	for _, other := range nodes {
		switch o := v.Hosts[other]; {
		case other == name || !h.Lists(o.Name):
		case o.Lists(h.Name):
			listing++
		default:
			denying = append(denying, other)
		}
	}
	if len(denying) <= listing {
		return ""
	}
	return fmt.Sprintf("it shows itself as a node of cluster %s, whose node %s does not list it: it has been evicted, or has not joined yet",
		h.Cluster.Name, denying[0])
}

// reconcileNodeStates has the nodes of a cluster see each other as each sees itself: a change that one puts back
// may have paused it, or has resumed it since the other was read.
func (v View) reconcileNodeStates() {
	itself := map[[2]string]gpu.NodeState{}
	for _, h := range v.Hosts {
		if h.Cluster != nil {
			itself[[2]string{h.ClusterName(), gpu.FoldID(h.Name)}] = h.NodeState()
		}
	}
	for name, h := range v.Hosts {
		for i := 0; h.Cluster != nil && i < len(h.Cluster.Nodes); i++ {
			n := h.Cluster.Nodes[i]
			state := itself[[2]string{h.ClusterName(), gpu.FoldID(n.Name)}]
			if state == "" || state == n.State {
				continue
			}
			is, cluster := *h, *h.Cluster
			cluster.Nodes = slices.Clone(cluster.Nodes)
			cluster.Nodes[i].State, is.Cluster = state, &cluster
			h, v.Hosts[name] = &is, &is
		}
	}
}

// returnDrained has VMs be where they are once the changes are put back for which a node was drained.
func (v View) returnDrained() {
	for _, name := range slices.Sorted(maps.Keys(v.Hosts)) {
		for _, id := range v.Hosts[name].Returning {
			if at, err := FindVM(v, id); err == nil && at.Host != name && v.Hosts[at.Host].SharesCluster(v.Hosts[name]) {
				home, away := change.FailBack(*v.Hosts[name], *v.Hosts[at.Host], id)
				v.Hosts[name], v.Hosts[at.Host] = &home, &away
			}
		}
	}
}

// doubt has a host count as one that does not answer, since it could not read what matters.
func (v View) doubt(host string, u gpu.Unknown) {
	if v.Errors != nil && v.Errors[host] == nil {
		v.Errors[host] = &UnreadablePartError{Host: host, Unknown: u}
	}
}

// Answered tells whether every host answered, those among them that could not read a part.
func (v View) Answered() bool {
	for _, err := range v.Errors {
		if unread := (*UnreadablePartError)(nil); !errors.As(err, &unread) {
			return false
		}
	}
	return true
}

// Except is the view in which hosts count as not answering that could not read what matters.
func (v View) Except(lacks func(h *gpu.Host) (gpu.Unknown, bool)) View {
	out := View{Hosts: map[string]*gpu.Host{}, Errors: maps.Clone(v.Errors), owner: v.owner}
	if out.Errors == nil {
		out.Errors = map[string]error{}
	}
	for name, h := range v.Hosts {
		if u, unknown := lacks(h); unknown {
			out.doubt(name, u)
			continue
		}
		out.Hosts[name] = h
	}
	return out
}

// UnreadablePartError is a host that answers and could not read what was asked for.
type UnreadablePartError struct {
	Host    string
	Unknown gpu.Unknown
}

func (e *UnreadablePartError) Error() string {
	return fmt.Sprintf("of host %s this cannot be read: %s", e.Host, e.Unknown)
}
