package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
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
	if req.Run == "" {
		return 0, &Error{Kind: BadRequest, Message: "a lease needs the id of a run"}
	}
	if req.TTL <= 0 {
		req.TTL = defaultLeaseTTL
	}
	waited := time.NewTimer(req.Wait)
	defer waited.Stop()
	for poll := firstLeasePoll; ; poll = min(2*poll, lastLeasePoll) {
		lease, held, err := s.tryLease(ctx, req)
		if err != nil {
			return 0, failure("acquire the lease", err)
		}
		if held == nil {
			return lease.Fence, s.settleDead(ctx, lease)
		}
		refusal := &Error{Kind: LeaseHeld, Lease: held, Message: describeHolder(held)}
		if req.Wait <= 0 {
			return 0, refusal
		}
		select {
		case <-time.After(poll):
		case <-waited.C:
			return 0, refusal
		case <-ctx.Done():
			return 0, &Error{Kind: Cancelled, Lease: held, Message: "the call was cancelled while it waited: " + describeHolder(held)}
		}
	}
}

func describeHolder(l *backend.Lease) string {
	holder := l.Holder
	if holder == "" {
		holder = "somebody"
	}
	if l.Owner != "" {
		holder += fmt.Sprintf(" (owner %q)", l.Owner)
	}
	return fmt.Sprintf("another run changes the host: %s, run %s, since %s; its lease ends at %s unless it is renewed",
		holder, l.Run, l.Since.UTC().Format(time.RFC3339), l.Expires.UTC().Format(time.RFC3339))
}

// tryLease takes the lease, or returns the one that stands in the way.
func (s *Server) tryLease(ctx context.Context, req LeaseRequest) (lease backend.Lease, held *backend.Lease, err error) {
	err = s.store.Update(ctx, func(st *backend.State) error {
		held = nil
		now := s.clock()
		if l := st.Lease; l != nil && l.Expires.After(now) {
			entries, err := readJournal(st)
			if err != nil {
				return err
			}
			// The same run may come back through a new process while the old one still puts
			// things in order; that one renews the lease until it is done.
			if l.Run != req.Run || entries.busyElsewhere(s.worker) {
				other := *l
				held = &other
				return nil
			}
			l.TTL, l.Expires = req.TTL, now.Add(req.TTL)
			lease = *l
			return nil
		}
		st.Fence++
		lease = backend.Lease{Run: req.Run, Owner: req.Owner, Holder: req.Holder, Fence: st.Fence, Since: now, Expires: now.Add(req.TTL), TTL: req.TTL}
		st.Lease = &lease
		return nil
	})
	return lease, held, err
}

// releaseLease gives the lease back, and keeps what the run applied and did not
// settle. A lease that is gone already is no error.
func (s *Server) releaseLease(ctx context.Context, fence int64) error {
	release, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	err = s.store.Update(ctx, func(st *backend.State) error {
		if st.Lease == nil || st.Lease.Fence != fence {
			return nil
		}
		entries, err := readJournal(st)
		if err != nil {
			return err
		}
		st.Lease = nil
		return entries.without(func(e *entry) bool { return e.Status == applied }).write(st)
	})
	if err != nil {
		return failure("release the lease", err)
	}
	return nil
}

// guarded makes a write under the lease, and renews it. A lease that expired but
// that nobody took since is still good: nobody can have written in between.
func (s *Server) guarded(ctx context.Context, fence int64, write func(*backend.State) error) error {
	return s.store.Update(ctx, func(st *backend.State) error {
		if err := checkFence(st, fence); err != nil {
			return err
		}
		st.Lease.Expires = s.clock().Add(st.Lease.TTL)
		return write(st)
	})
}

func checkFence(st *backend.State, fence int64) error {
	switch {
	case st.Lease != nil && st.Lease.Fence == fence:
		return nil
	case st.Lease != nil:
		other := *st.Lease
		return &Error{Kind: StaleFence, Lease: &other, Message: "this run lost its lease on the host; " + describeHolder(st.Lease)}
	default:
		return &Error{Kind: StaleFence, Message: "this run holds no lease on the host"}
	}
}

// keepAlive renews the lease while a change takes its time, until stop is called. A
// renewal that fails is no reason to stop a change: the next write finds out.
func (s *Server) keepAlive(ctx context.Context, fence int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	state, err := s.store.Load(ctx)
	if err != nil || state.Lease == nil {
		return cancel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(max(state.Lease.TTL/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = s.guarded(ctx, fence, func(*backend.State) error { return nil })
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
