package agent

import (
	"context"
	"slices"

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
func (s *Server) joinCluster(ctx context.Context, req LeaseRequest) (fence int64, refusal *Error, err error) {
	cluster, err := s.cluster(ctx)
	if err != nil {
		return 0, nil, failure("acquire the lease of the cluster", err)
	}
	if cluster == nil {
		return 0, nil, nil
	}
	self, of := s.member(cluster), "cluster "+cluster.Name
	err = cluster.Store.Update(ctx, func(st *backend.State) error {
		fence, refusal = 0, nil
		l := st.Lease
		left := s.left(of, cluster.Node, l)
		switch {
		case l != nil && l.Run == req.Run:
		case left > 0:
			refusal = s.heldBy(of, l, left)
			return nil
		default:
			st.Fence++
			l = &backend.Lease{Run: req.Run, Owner: req.Owner, Holder: req.Holder, Fence: st.Fence, Since: s.clock()}
			st.Lease = l
		}
		l.TTL = req.TTL
		s.write(l, cluster.Node)
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

// inCluster tells whether the run that has the lease of a host has that of its cluster, and
// whether that one is missing: deleted, and nobody came.
func inCluster(host *backend.Lease, st *backend.State) (has, missing bool) {
	if l := st.Lease; l != nil {
		return l.Run == host.Run && l.Fence == host.ClusterFence, false
	}
	return host.ClusterFence != 0 && st.Fence <= host.ClusterFence, true
}

// checkCluster fails when the run has lost the lease of the cluster.
func (s *Server) checkCluster(ctx context.Context, host *backend.Lease) (missing bool, err error) {
	if host.ClusterFence == 0 {
		return false, nil
	}
	cluster, err := s.cluster(ctx)
	if err != nil {
		return false, err
	}
	if cluster == nil {
		return false, errLeft
	}
	state, err := cluster.Store.Load(ctx)
	if err != nil {
		return false, err
	}
	has, missing := inCluster(host, &state)
	if !has {
		return false, lost(&state, "cluster "+cluster.Name)
	}
	return missing, nil
}

var errLeft = &Error{Code: StaleFence, Message: "this run holds the lease of a cluster that the host has left"}

// renewCluster renews the cluster's lease, and writes it again where it is missing.
func (s *Server) renewCluster(ctx context.Context, host *backend.Lease) error {
	cluster, err := s.cluster(ctx)
	if err != nil || cluster == nil {
		return err
	}
	return cluster.Store.Update(ctx, func(st *backend.State) error {
		has, missing := inCluster(host, st)
		switch {
		case !has:
			return lost(st, "cluster "+cluster.Name)
		case missing:
			st.Fence = host.ClusterFence
			st.Lease = &backend.Lease{
				Run: host.Run, Owner: host.Owner, Holder: host.Holder, Fence: host.ClusterFence, Since: host.Since,
				TTL: host.TTL, Hosts: []string{s.member(cluster)},
			}
		}
		s.write(st.Lease, cluster.Node)
		return nil
	})
}
