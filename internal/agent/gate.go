package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// hold is a lease as the process that has it remembers it.
type hold struct {
	lease backend.Lease
	// renewed is when this process last wrote the lease, and joined when it last wrote that of
	// the cluster, by the clock that runs on while this process, or the machine, is stopped.
	renewed, joined time.Duration
	// last is what the records held after the last write under the lease. When they are
	// gone, this is all that is left of them.
	last backend.State
}

// unsettled tells whether the run has changes in the journal.
func (h *hold) unsettled() bool {
	entries, err := readJournal(&h.last)
	return err == nil && slices.ContainsFunc(entries, func(e *entry) bool { return e.Run == h.lease.Run })
}

func (s *Server) held(fence int64) (hold, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.holds[fence]
	return h, ok
}

// until is when others may take the lease, by that clock.
func (h *hold) until() time.Duration {
	if h.lease.ClusterFence == 0 {
		return h.renewed + h.lease.TTL
	}
	return min(h.renewed, h.joined) + h.lease.TTL
}

// keep remembers a lease that was written since a moment of the boot clock.
func (s *Server) keep(since time.Duration, st backend.State) hold {
	lease := *st.Lease
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.holds, func(fence int64, h hold) bool { return fence != lease.Fence && !h.unsettled() })
	h, known := s.holds[lease.Fence]
	if !known {
		h.joined = since // before the host's
	}
	h.lease, h.renewed, h.last = lease, since, st
	s.holds[lease.Fence] = h
	return h
}

// joined remembers that the cluster's lease was written since a moment of the boot clock.
func (s *Server) joined(fence int64, since time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, known := s.holds[fence]; known {
		h.joined = max(h.joined, since)
		s.holds[fence] = h
	}
}

func (s *Server) forgetHold(fence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, fence)
}

// standing is what the records say of a lease.
type standing int

const (
	ours  standing = iota
	taken          // another run has it, or had it since
	// gone is a lease that is not in the records although nobody took it: they were
	// deleted, or older ones were put in their place. This process is then the only one
	// that knows of the changes under it.
	gone
)

func (s *Server) standing(st *backend.State, fence int64) standing {
	h, known := s.held(fence)
	switch l := st.Lease; {
	case l != nil && l.Fence == fence && (!known || l.Run == h.lease.Run):
		return ours
	case !known || !h.unsettled(), st.Fence > fence, l != nil && l.Run != h.lease.Run && s.left("the host", "", l) > 0:
		return taken
	}
	return gone
}

// pass is the gate. Every effect on the host goes through it just before it happens,
// those of undoing as well: a lease that another run has taken lets nothing through.
//
// Undoing goes on when the records can be neither written nor read: it is what starts the
// VMs again, and nobody can have taken a lease there.
func (s *Server) pass(ctx context.Context, fence int64, undoing bool) error {
	_, err := s.reach(ctx, fence)
	if err == nil || staleFence(err) != nil || !undoing {
		return err
	}
	_, err = s.confirm(ctx, fence, 0)
	if lost := staleFence(err); lost != nil {
		return lost
	}
	return nil
}

// reach gives the records as they are under the lease. Where more than a third of the lease's time
// is left they are read, else the lease is renewed.
func (s *Server) reach(ctx context.Context, fence int64) (backend.State, error) {
	if h, ok := s.held(fence); ok && h.until()-s.bootClock() > h.lease.TTL/3 {
		if st, err := s.confirm(ctx, fence, h.lease.TTL/3); err == nil || staleFence(err) != nil {
			return st, err
		}
	}
	var renewed backend.State
	err := s.guarded(ctx, fence, func(st *backend.State) error {
		renewed = *st
		return nil
	})
	if err != nil {
		return renewed, failure("renew the lease", err)
	}
	return renewed, nil
}

// confirm reads that the lease is this run's, of the host and of its cluster, and for how
// long at least. An error that is no StaleFence says that it is not known.
func (s *Server) confirm(ctx context.Context, fence int64, left time.Duration) (backend.State, error) {
	st, err := s.store.Load(ctx)
	if err != nil {
		return st, err
	}
	switch s.standing(&st, fence) {
	case taken:
		return st, lost(&st, "the host")
	case gone:
		return st, errGone
	case ours:
	}
	if left > 0 && s.left("the host", "", st.Lease) <= left {
		return st, errExpiring
	}
	_, err = s.checkCluster(ctx, st.Lease)
	return st, err
}

var (
	errGone     = &Error{Code: Internal, Message: "the agent's records of this host were deleted or replaced by older ones"}
	errExpiring = &Error{Code: Internal, Message: "the lease is about to expire"}
)

// claim makes sure, in a write to the records, that the lease is this run's. What is
// missing of it there is written again from memory.
func (s *Server) claim(st *backend.State, fence int64) error {
	switch s.standing(st, fence) {
	case taken:
		return lost(st, "the host")
	case gone:
		h, _ := s.held(fence)
		return h.bring(st)
	case ours:
	}
	return nil
}

// bring puts what this process remembers into records that know less.
func (h *hold) bring(st *backend.State) error {
	if err := bringJournal(st, &h.last); err != nil {
		return err
	}
	entries, err := readJournal(&h.last)
	if err != nil {
		return err
	}
	lease := h.lease
	st.Lease, st.Fence = &lease, max(st.Fence, lease.Fence)
	for _, c := range h.last.Claims {
		i := slices.IndexFunc(st.Claims, func(o gpu.Claim) bool { return o.Is(c.Kind, c.ID) })
		if i < 0 || st.Claims[i].Revision < c.Revision {
			st.Claims = change.PutClaim(st.Claims, c)
		}
	}
	st.Claims = slices.DeleteFunc(slices.Clone(st.Claims), func(c gpu.Claim) bool { // those that the run has dropped
		_, kept := (&gpu.Host{Claims: h.last.Claims}).Claim(c.Kind, c.ID)
		return !kept && slices.ContainsFunc(entries, func(e *entry) bool {
			return slices.ContainsFunc(e.Steps, func(s change.Step) bool {
				return s.Op == change.OpDropClaim && s.Claim.Is(c.Kind, c.ID) && s.Claim.Revision >= c.Revision
			})
		})
	})
	st.PendingStarts = withPending(st.PendingStarts, h.last.PendingStarts...)
	return nil
}

// bringJournal adds the changes of other records to these.
func bringJournal(st, from *backend.State) error {
	remembered, err := readJournal(from)
	if err != nil {
		return err
	}
	entries, err := readJournal(st)
	if err != nil {
		return err
	}
	for _, e := range remembered {
		entries = append(entries.without(func(o *entry) bool { return o.ID == e.ID }), e)
	}
	entries.write(st)
	return nil
}
