package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const (
	// recoveryWait bounds how long a process that lost its lease waits for one of its own.
	recoveryWait = 3 * time.Minute
	// recoveryTTL is short: the process that has such a lease does nothing but settle.
	recoveryTTL = 15 * time.Second
)

// lostLease is what a process does that lost its lease in the middle of a change. Nothing
// more of the change is made. What went through the gate last may have come late, after
// the run that has the lease now put the change back; so the process notes what it may
// have stopped, and looks itself that nothing stays off when nobody else comes.
func (w *work) lostLease(ctx context.Context, e *Error) {
	if w.entry.Begun == 0 && !w.undoing {
		return
	}
	e.Outcome = &Outcome{
		Stands: []string{"a change that was cut off; the run that took the lease over puts it back, or this agent when the lease is free"},
	}
	ctx = context.WithoutCancel(ctx)
	if w.last.Op == change.OpStopVM {
		e.Outcome.Stands = append(e.Outcome.Stands, "it may be off: VM "+words.Name(w.last.VMName())+
			", which this change stopped; whoever has the lease next starts it")
	}
	note := func(ctx context.Context) error { return w.server.note(ctx, w.fence, w.entry, w.last) }
	noted := note(ctx)
	w.server.recoveries.Go(func() {
		w.server.recover(ctx, noted, note)
		w.server.forgetHold(w.fence)
	})
}

// note adds to the records, without a lease, what the next one has to look at. It takes
// nothing from them and changes nothing.
func (s *Server) note(ctx context.Context, fence int64, e *entry, last change.Step) error {
	return s.store.Update(ctx, func(st *backend.State) error {
		if last.Op == change.OpStopVM {
			st.PendingStarts = withPending(st.PendingStarts, e.pendingStart(last, s.clock()))
		}
		// A start is pending whoever has been here since: one who got in after older records were
		// put in the place of these knew nothing of it, and that of a VM which runs is over.
		h, _ := s.held(fence)
		st.PendingStarts = withPending(st.PendingStarts, h.last.PendingStarts...)
		if st.Fence > fence {
			return nil // who took the lease over has seen the journal, or changed what it knows nothing of
		}
		// Another run got in after the records were deleted. It knows nothing of the change.
		st.Fence = max(st.Fence, fence) // no other lease may have the same
		return bringJournal(st, &h.last)
	})
}

// recover takes a lease of this process's own and settles what is left, once that is noted.
// Most often the run that took the lease over has done so.
func (s *Server) recover(ctx context.Context, noted error, note func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, recoveryWait)
	defer cancel()
	for poll := firstLeasePoll; ; poll = min(2*poll, lastLeasePoll) {
		if noted != nil {
			noted = note(ctx)
		}
		if state, err := s.store.Load(ctx); noted == nil && err == nil && len(state.Journal)+len(state.PendingStarts) == 0 {
			return // the run that took the lease over has done it all
		}
		lease, _, err := s.waitForLease(ctx, LeaseRequest{
			Run: "recovery-" + s.worker, Holder: s.process("recovery"), TTL: recoveryTTL, Cluster: true,
		})
		if err == nil {
			_, err = s.settleAll(ctx, lease)
			_ = s.giveBack(context.WithoutCancel(ctx), lease.Fence, func(*backend.State) error { return nil })
		}
		if err == nil && noted == nil {
			return
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return
		}
	}
}

// settleAll settles what dead runs left and starts the VMs whose start is pending.
func (s *Server) settleAll(ctx context.Context, lease backend.Lease) ([]Settled, error) {
	settled, err := s.settleDead(ctx, lease)
	if err != nil {
		return settled, err
	}
	started, err := s.startPendingAlone(ctx, lease)
	return append(settled, started...), err
}

// AwaitRecovery waits until this process has looked after the changes that lost their
// lease, or ctx ends. What is left then is left to the next run.
func (s *Server) AwaitRecovery(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.recoveries.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func machine() string {
	name, err := os.Hostname()
	if err != nil {
		return "this host"
	}
	return name
}

// process names this process to people as the holder of a lease.
func (s *Server) process(doing string) string {
	return fmt.Sprintf("%s on %s, process %d", doing, machine(), os.Getpid())
}
