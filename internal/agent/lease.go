package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// defaultLeaseTTL is how long a lease lives without a write when its request does
// not say.
const defaultLeaseTTL = 2 * time.Minute

// How often a waiting run looks whether the lease is free.
const (
	firstLeasePoll = 50 * time.Millisecond
	lastLeasePoll  = 2 * time.Second
)

// acquireLease gives a run the lease, waiting for another holder as long as the
// request says, and then settles what dead runs left.
func (s *Server) acquireLease(ctx context.Context, req LeaseRequest) (int64, error) {
	lease, fresh, err := s.waitForLease(ctx, req)
	if err != nil {
		return 0, err
	}
	if !fresh {
		// The run may have come back over a new connection while this process still ends a
		// change of the broken one. It would take a host in between for the result.
		release, err := s.take(ctx)
		if err != nil {
			return 0, err
		}
		release()
	}
	return lease.Fence, s.settleBefore(ctx, lease, fresh)
}

// waitForLease takes the lease of the cluster, if one is asked for, and then that of
// the host, until both are had, the time is over or ctx has ended. The lease is fresh
// unless the run had it already.
func (s *Server) waitForLease(ctx context.Context, req LeaseRequest) (lease backend.Lease, fresh bool, err error) {
	if req.Run == "" {
		return lease, false, &Error{Code: BadRequest, Message: "a lease needs the id of a run"}
	}
	if req.TTL <= 0 {
		req.TTL = defaultLeaseTTL
	}
	waited := time.NewTimer(req.Wait)
	defer waited.Stop()
	var fence int64 // of the cluster's lease
	defer func() {
		if err != nil && fence != 0 {
			s.stepBack(context.WithoutCancel(ctx), fence)
		}
	}()
	for poll := firstLeasePoll; ; poll = min(2*poll, lastLeasePoll) {
		var refusal *Error
		since := s.bootClock()
		// The cluster is joined each time: its lease must neither expire while the run waits
		// for the host, nor go with another process of the run that ends meanwhile.
		if req.Cluster {
			joined, other, err := s.joinCluster(ctx, req)
			if err != nil {
				return lease, false, err
			}
			fence, refusal = joined, other
		}
		if refusal == nil {
			if lease, fresh, refusal, err = s.tryLease(ctx, req, fence, since); err != nil {
				return lease, false, failure("acquire the lease", err)
			}
		}
		if refusal == nil {
			return lease, fresh, nil
		}
		if req.Wait <= 0 {
			return lease, false, refusal
		}
		select {
		case <-time.After(poll):
		case <-waited.C:
			return lease, false, refusal
		case <-ctx.Done():
			refusal.Code, refusal.Message = Cancelled, "the call was cancelled while it waited: "+refusal.Message
			return lease, false, refusal
		}
	}
}

// stepBack leaves the cluster's lease again after that of the host could not be had,
// unless another call to this process has both. A failure leaves it to expire.
func (s *Server) stepBack(ctx context.Context, fence int64) {
	state, err := s.store.Load(ctx)
	if err != nil || (state.Lease != nil && state.Lease.Worker == s.worker && state.Lease.ClusterFence == fence) {
		return
	}
	_ = s.leaveCluster(ctx, fence)
}

// heldBy refuses a lease that another run has, for so long at least by the clock of this machine.
func (s *Server) heldBy(of string, l *backend.Lease, left time.Duration) *Error {
	other := *l
	other.Expires = s.clock().Add(left)
	return &Error{Code: LeaseHeld, Lease: &other, Message: holder(of, &other).String()}
}

// holder is who has a lease, of the host or of a cluster.
func holder(of string, l *backend.Lease) gpu.Holder {
	return gpu.Holder{Of: of, Run: l.Run, Name: l.Holder, Owner: l.Owner, Since: l.Since, Until: l.Expires}
}

// alive tells of a lease that has not ended, for all that this machine knows; nil of none.
func (s *Server) alive(of, node string, l *backend.Lease) *gpu.Holder {
	if l == nil {
		return nil
	}
	left, known := s.endsIn(node, l)
	if !known {
		left = l.Expires.Sub(s.clock())
	}
	if left <= 0 {
		return nil
	}
	h := holder(of, l)
	return &h
}

// sighting is a lease as this process has first seen it.
type sighting struct {
	lease backend.Lease
	since time.Duration // by the boot clock
}

// clockOf names the boot clock of this machine, as that of a node of its cluster, or of a host.
func clockOf(node string) string { return node + "@" + machine() }

// write has a lease live for its time from now on.
func (s *Server) write(l *backend.Lease, node string) {
	l.Expires, l.Ends, l.Clock = s.clock().Add(l.TTL), s.bootClock()+l.TTL, clockOf(node)
}

// endsIn is when a lease ends by the clock of this machine, where that has written it. One that
// would live longer than it can was written before the machine started, and is over.
func (s *Server) endsIn(node string, l *backend.Lease) (left time.Duration, known bool) {
	if left = l.Ends - s.bootClock(); left > l.TTL {
		left = 0
	}
	return left, l.Clock == clockOf(node)
}

// left is how long another run's lease lives unless it is renewed; when none is left, it may
// be taken. The time in the lease counts on the machine that has written it. By any other clock
// it says nothing, and a lease is over when this process has seen it stand as it is for as long
// as it lives.
func (s *Server) left(of, node string, l *backend.Lease) time.Duration {
	if l == nil {
		return 0
	}
	if left, known := s.endsIn(node, l); known {
		return left
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.bootClock()
	g, seen := s.sightings[of]
	if !seen || g.lease.Run != l.Run || g.lease.Fence != l.Fence || g.lease.Ends != l.Ends {
		g = sighting{lease: *l, since: now}
		s.sightings[of] = g
	}
	return g.since + l.TTL - now
}

// tryLease takes the lease of the host, or tells who has it. That of the cluster, if the run
// has it, was written since a moment of the boot clock.
func (s *Server) tryLease(ctx context.Context, req LeaseRequest, clusterFence int64, since time.Duration) (lease backend.Lease,
	fresh bool, refusal *Error, err error,
) {
	var after backend.State
	err = s.store.Update(ctx, func(st *backend.State) error {
		fresh, refusal = false, nil
		l := st.Lease
		if left := s.left("the host", "", l); left > 0 {
			entries, err := readJournal(st)
			if err != nil {
				return err
			}
			// The same run may come back through a new process while the old one still puts
			// things in order; that one renews the lease until it is done.
			if l.Run != req.Run || entries.busyElsewhere(s.worker) {
				refusal = s.heldBy("the host", l, left)
				return nil
			}
			l.TTL, l.Worker, l.ClusterFence = req.TTL, s.worker, clusterFence
			s.write(l, "")
			lease, after = *l, *st
			return nil
		}
		st.Fence++
		fresh = true
		lease = backend.Lease{
			Run: req.Run, Owner: req.Owner, Holder: req.Holder, Worker: s.worker,
			Fence: st.Fence, ClusterFence: clusterFence, Since: s.clock(), TTL: req.TTL,
		}
		s.write(&lease, "")
		st.Lease = &lease
		after = *st
		return nil
	})
	if err == nil && refusal == nil {
		s.keep(since, after)
	}
	return lease, fresh, refusal, err
}

// releaseLease gives the lease back, and keeps what the run applied and did not
// settle. Before that it pays what is owed. A lease that is gone already is no error.
func (s *Server) releaseLease(ctx context.Context, fence int64) error {
	return s.release(ctx, fence, s.payBefore)
}

func (s *Server) release(ctx context.Context, fence int64, before func(context.Context, *backend.State)) error {
	release, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if state, err := s.store.Load(ctx); err == nil && s.standing(&state, fence) == ours {
		before(ctx, &state)
	}
	if err := s.giveBack(ctx, fence, keepApplied); err != nil {
		return failure("release the lease", err)
	}
	return nil
}

// keepApplied takes the changes that nobody settled out of the journal: they stay.
func keepApplied(st *backend.State) error {
	entries, err := readJournal(st)
	if err != nil {
		return err
	}
	entries.without(func(e *entry) bool { return e.Status == applied }).write(st)
	return nil
}

// giveBack ends a lease and this host's part in that of its cluster. before may still
// write, or refuse. A lease that is gone already is no error.
func (s *Server) giveBack(ctx context.Context, fence int64, before func(*backend.State) error) error {
	var cluster int64
	err := s.store.Update(ctx, func(st *backend.State) error {
		cluster = 0
		if st.Lease == nil || s.standing(st, fence) != ours {
			return nil // after older records another run's may have the same fence
		}
		if err := before(st); err != nil {
			return err
		}
		cluster = st.Lease.ClusterFence
		st.Lease = nil
		return nil
	})
	if err != nil {
		return err
	}
	s.forgetHold(fence)
	if cluster == 0 {
		return nil
	}
	return s.leaveCluster(ctx, cluster)
}

// guarded makes a write under the lease, and renews it; that of the cluster, which many hosts
// share, where it is missing or a quarter of its time has gone since this process did so. A
// lease that expired but that nobody took since is still good: nobody can have written in
// between.
func (s *Server) guarded(ctx context.Context, fence int64, write func(*backend.State) error) error {
	since := s.bootClock()
	var missing bool
	var after backend.State
	err := s.store.Update(ctx, func(st *backend.State) (err error) {
		if err := s.claim(st, fence); err != nil {
			return err
		}
		if missing, err = s.checkCluster(ctx, st.Lease); err != nil {
			return err
		}
		s.write(st.Lease, "")
		if err := write(st); err != nil {
			return err
		}
		after = *st
		return nil
	})
	if err != nil {
		return err
	}
	h := s.keep(since, after)
	if h.lease.ClusterFence == 0 || !missing && since-h.joined < h.lease.TTL/4 {
		return nil
	}
	if err := s.renewCluster(ctx, &h.lease); err != nil {
		return err
	}
	s.joined(fence, since)
	return nil
}

// lost is the error of a run whose lease the records do not hold.
func lost(st *backend.State, of string) error {
	if st.Lease == nil {
		return &Error{Code: StaleFence, Message: fmt.Sprintf("this run holds no lease on %s any more; run plan again, and apply", of)}
	}
	other := *st.Lease
	return &Error{
		Code: StaleFence, Lease: &other,
		Message: fmt.Sprintf("this run lost its lease on %s, as one does that stands still for longer than its lease lives; %s. "+
			"Wait for that run to end, then plan again", of, holder(of, st.Lease)),
	}
}

// renewLease lets the lease live on without a write.
func (s *Server) renewLease(ctx context.Context, fence int64) error {
	if err := s.guarded(ctx, fence, func(*backend.State) error { return nil }); err != nil {
		return failure("renew the lease", err)
	}
	return nil
}

// keepAlive renews the lease while a change takes its time, until stop is called. A
// renewal that fails is no reason to stop a change: the next write finds out.
func (s *Server) keepAlive(ctx context.Context, fence int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h, known := s.held(fence)
	if !known {
		return cancel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(max(h.lease.TTL/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = s.renewLease(ctx, fence)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
