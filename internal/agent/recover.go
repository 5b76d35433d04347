package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// maxAttempts is how often the runs to come try to put back what one change left,
// before it is taken as it stands. A host must not be blocked for ever by something
// that cannot be put back any more.
const maxAttempts = 3

// unfinished are the changes in the journal that are neither applied nor put back.
func (s *Server) unfinished(ctx context.Context) ([]string, error) {
	state, err := s.store.Load(ctx)
	if err != nil {
		return nil, failure("read the journal", err)
	}
	entries, err := readJournal(&state)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Status == running {
			out = append(out, e.Subject)
		}
	}
	return out, nil
}

// settleDead settles what runs left that ended without settling their changes: one
// that was applied stays, one that was cut off is put back. It runs under a fresh
// lease, which it gives back when it fails.
func (s *Server) settleDead(ctx context.Context, lease backend.Lease) error {
	state, err := s.store.Load(ctx)
	if err != nil {
		return failure("read the journal", err)
	}
	if dead, err := s.dead(&state, lease); err != nil || len(dead) == 0 {
		return err
	}
	release, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	defer s.keepAlive(ctx, lease.Fence)()

	// What was in progress in this process has ended by now.
	if state, err = s.store.Load(ctx); err != nil {
		return failure("read the journal", err)
	}
	dead, err := s.dead(&state, lease)
	if err != nil {
		return err
	}
	stands, err := s.settleEach(ctx, lease, dead)
	if err == nil && len(stands) == 0 {
		return nil
	}
	_ = s.store.Update(context.WithoutCancel(ctx), func(st *backend.State) error {
		if st.Lease != nil && st.Lease.Fence == lease.Fence {
			st.Lease = nil // else it expires
		}
		return nil
	})
	if err != nil {
		return err
	}
	return &Error{Kind: StepFailed, Message: "a change that an earlier run began could not be put back", Outcome: &Outcome{Stands: stands}}
}

// settleEach settles dead changes, the last one first, and says what could not be put
// back.
func (s *Server) settleEach(ctx context.Context, lease backend.Lease, dead journal) ([]string, error) {
	var stands []string
	for _, e := range slices.Backward(dead) {
		left, err := s.settleOne(ctx, lease, e)
		if err != nil {
			return nil, err
		}
		for _, l := range left {
			stands = append(stands, fmt.Sprintf("of %s: %s", e.Subject, l))
		}
	}
	return stands, nil
}

// dead are the changes in the journal that nobody works on or will settle.
func (s *Server) dead(st *backend.State, lease backend.Lease) (journal, error) {
	j, err := readJournal(st)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := map[string]bool{}
	for c := range s.running {
		busy[c.change] = true
	}
	return j.without(func(e *entry) bool {
		return e.Run == lease.Run && (e.Status == applied || busy[e.ID])
	}), nil
}

// settleOne settles one dead change, and says what could not be put back.
func (s *Server) settleOne(ctx context.Context, lease backend.Lease, e *entry) ([]string, error) {
	host, err := s.hyperv()
	if err != nil {
		return nil, err
	}
	if e.Status == applied {
		if err := s.strike(ctx, lease.Fence, e); err != nil {
			return nil, failure("settle a change of an earlier run", err)
		}
		return nil, nil
	}
	e.Worker = s.worker
	e.Attempts++
	if err := s.record(ctx, lease.Fence, e); err != nil {
		return nil, failure("put back a change of an earlier run", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.undoTimeout)
	defer cancel()
	w := s.work(host, lease.Fence, e, nil)
	_, stands, err := w.undo(ctx)
	if err != nil {
		return nil, err
	}
	if len(stands) > 0 && e.Attempts < maxAttempts {
		return stands, nil
	}
	if err := w.close(ctx, len(stands) > 0); err != nil {
		return nil, failure("write the journal", err)
	}
	return stands, nil
}
