package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// cluster is the host's cluster, nil when it is in none.
func (s *Server) cluster(ctx context.Context) (*backend.Cluster, error) {
	c, ok := s.backend.(backend.Clustered)
	if !ok {
		return nil, nil
	}
	cluster, err := c.Cluster(ctx)
	if err != nil || cluster == nil {
		return nil, err
	}
	strict := *cluster
	strict.Store = recordStore{Store: cluster.Store, version: s.version}
	return &strict, nil
}

// member is what the cluster's lease calls this process. A node has two for a while when
// one still ends a change and the run has come back through the other: neither may take
// the lease from the other when it ends.
func (s *Server) member(c *backend.Cluster) string { return c.Node + "/" + s.worker }

// joinCluster takes the lease of the host's cluster for a run, or joins it: all hosts
// of a run hold it together. It tells who else has it, and its fence is 0 when the host
// is in no cluster.
func (s *Server) joinCluster(ctx context.Context, req LeaseRequest, seen *sighting) (fence int64, refusal *Error, err error) {
	cluster, err := s.cluster(ctx)
	if err != nil {
		return 0, nil, failure("acquire the lease of the cluster", err)
	}
	if cluster == nil {
		return 0, nil, nil
	}
	self := s.member(cluster)
	err = cluster.Store.Update(ctx, func(st *backend.State) error {
		fence, refusal = 0, nil
		now := s.clock()
		l := st.Lease
		switch {
		case l != nil && l.Run == req.Run:
			l.TTL, l.Expires, l.Clock = req.TTL, now.Add(req.TTL), cluster.Node
		case l != nil && !expiredInCluster(l, cluster.Node, now) && !seen.abandoned(l, now):
			refusal = heldBy("cluster "+cluster.Name, l)
			return nil
		default:
			st.Fence++
			l = &backend.Lease{Run: req.Run, Owner: req.Owner, Holder: req.Holder, Fence: st.Fence, Since: now, Expires: now.Add(req.TTL), Clock: cluster.Node, TTL: req.TTL}
			st.Lease = l
		}
		if !slices.Contains(l.Hosts, self) {
			l.Hosts = append(slices.Clone(l.Hosts), self)
		}
		fence = l.Fence
		return nil
	})
	if err != nil {
		return 0, nil, failure("acquire the lease of the cluster", err)
	}
	return fence, refusal, nil
}

// maxSkew is how far apart the clocks of two nodes may be: Kerberos, which a cluster
// needs, does not work beyond.
const maxSkew = 5 * time.Minute

// expiredInCluster tells whether a lease has certainly expired, by the clock of this
// node. Another node may have written the time, even one that has left the lease since,
// or be about to renew it, and its clock may be ahead or behind.
func expiredInCluster(l *backend.Lease, node string, now time.Time) bool {
	skew := time.Duration(0)
	if l.Clock != node || slices.ContainsFunc(l.Hosts, func(member string) bool { return !strings.HasPrefix(member, node+"/") }) {
		skew = maxSkew
	}
	return now.After(l.Expires.Add(skew))
}

// leaveCluster ends this process's part in the cluster's lease. The last one of the run
// gives it back.
func (s *Server) leaveCluster(ctx context.Context, fence int64) error {
	cluster, err := s.cluster(ctx)
	if err != nil || cluster == nil {
		return err
	}
	self := s.member(cluster)
	return cluster.Store.Update(ctx, func(st *backend.State) error {
		if st.Lease == nil || st.Lease.Fence != fence {
			return nil
		}
		st.Lease.Hosts = slices.DeleteFunc(slices.Clone(st.Lease.Hosts), func(h string) bool { return h == self })
		if len(st.Lease.Hosts) == 0 {
			st.Lease = nil
		}
		return nil
	})
}

// checkCluster fails when the run has lost the lease of the cluster.
func (s *Server) checkCluster(ctx context.Context, fence int64) error {
	if fence == 0 {
		return nil
	}
	cluster, err := s.cluster(ctx)
	if err != nil {
		return err
	}
	if cluster == nil {
		return &Error{Kind: StaleFence, Message: "this run holds the lease of a cluster that the host has left"}
	}
	state, err := cluster.Store.Load(ctx)
	if err != nil {
		return err
	}
	if l := state.Lease; l != nil && l.Fence == fence || l == nil && state.Fence <= fence { // deleted, and nobody came: renewCluster writes it again
		return nil
	}
	return lost(&state, "cluster "+cluster.Name)
}

// renewCluster renews the cluster's lease once a third of its time has gone: it is
// shared by many hosts, and each write of each would be one more to it. A time that is
// further ahead than a lease lives was written by a clock that is ahead, and says nothing
// about how long ago that was: those who look on would take the run for dead.
func (s *Server) renewCluster(ctx context.Context, host backend.Lease) error {
	if host.ClusterFence == 0 {
		return nil
	}
	cluster, err := s.cluster(ctx)
	if err != nil || cluster == nil {
		return err
	}
	state, err := cluster.Store.Load(ctx)
	if err != nil {
		return err
	}
	now := s.clock()
	if l := state.Lease; l != nil && l.Fence == host.ClusterFence {
		if left := l.Expires.Sub(now); left > 2*l.TTL/3 && left <= l.TTL {
			return nil
		}
	}
	return cluster.Store.Update(ctx, func(st *backend.State) error {
		switch l := st.Lease; {
		case l == nil && st.Fence <= host.ClusterFence:
			st.Fence = host.ClusterFence
			st.Lease = &backend.Lease{Run: host.Run, Owner: host.Owner, Holder: host.Holder, Fence: host.ClusterFence, Since: host.Since, TTL: host.TTL, Hosts: []string{s.member(cluster)}}
		case l == nil || l.Fence != host.ClusterFence:
			return lost(st, "cluster "+cluster.Name)
		}
		st.Lease.Expires, st.Lease.Clock = now.Add(st.Lease.TTL), cluster.Node
		return nil
	})
}
