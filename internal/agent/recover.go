package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// maxAttempts is how often the runs to come try to put back what one change left,
// before it is taken as it stands. A host must not be blocked for ever by something
// that cannot be put back any more.
const maxAttempts = 3

// Settled is a change of a run that ended without settling it, or a layout of which the
// host has lost something.
type Settled struct {
	Subject string
	// Kept is true when the change was complete and stays.
	Kept bool
	// Restored says what of a layout the host has again, object by object.
	Restored []string
	// Dropped are shares without a claim that were taken back from containers.
	Dropped []string
	// Started are VMs that were owed a start and run again.
	Started []string
	// Stands says what could not be put back.
	Stands []string
}

// Reconcile settles what runs left that are dead, and puts back what a reboot took from
// what is declared: MIG, vGPUs, compute modes, time slices, MPS daemons and what is handed
// to containers, from whom shares without a claim are taken. It touches nothing else. It waits for a run that is at work as
// long as it is told. What could not be put back is in the answer and no error.
func (s *Server) Reconcile(ctx context.Context, wait time.Duration) (settled []Settled, err error) {
	defer recovered("reconcile", &err)
	// Most often nothing is left, and a host that boots does not need its cluster for that.
	state, err := s.store.Load(ctx)
	if err != nil {
		return nil, failure("read the journal", err)
	}
	host, lost, err := s.lost(ctx, &state)
	if err != nil {
		return nil, err
	}
	if len(state.Journal) == 0 && !s.owes(ctx, &state) && s.expired(&state) && !restorable(lost) && len(host.Stale) == 0 {
		return conflicts(lost), s.dropExpired(ctx, state.Lease)
	}
	// Its process is all that holds this lease: when it dies, the next one must not wait long.
	lease, _, err := s.waitForLease(ctx, LeaseRequest{
		Run: "reconcile-" + s.worker, Holder: s.process("reconcile"), TTL: recoveryTTL, Wait: wait, Cluster: true,
	})
	if err != nil {
		return nil, err
	}
	stop := s.keepAlive(ctx, lease.Fence)
	settled, err = s.settleAll(ctx, lease)
	if err == nil {
		var restored []Settled
		restored, err = s.restore(ctx, lease)
		settled = append(settled, restored...)
	}
	stop()
	if released := s.release(context.WithoutCancel(ctx), lease.Fence, func(context.Context, *backend.State) {}); err == nil {
		err = released
	}
	return settled, err
}

func (s *Server) expired(st *backend.State) bool { return s.left("the host", "", st.Lease) <= 0 }

// dropExpired takes the lease of a run that died before its first step from the records
// of this host. What it had in the cluster expires there.
func (s *Server) dropExpired(ctx context.Context, lease *backend.Lease) error {
	if lease == nil {
		return nil
	}
	err := s.store.Update(ctx, func(st *backend.State) error {
		if st.Lease != nil && st.Lease.Fence == lease.Fence && s.expired(st) {
			st.Lease = nil
		}
		return nil
	})
	if err != nil {
		return failure("drop an expired lease", err)
	}
	return nil
}

// Shutdown ends this process's part in the host, after its calls have ended: changes
// that it applied and that nobody settled are kept, and its lease is given back, so
// that the next run need not wait for it to expire. What another process took over is
// left to it.
func (s *Server) Shutdown(ctx context.Context) error {
	release, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	state, err := backend.LoadReadable(ctx, s.store) // nothing to give back is no error
	if err != nil {
		return failure("give the lease back", err)
	}
	if state.Lease == nil {
		return nil
	}
	if state.Lease.Worker != s.worker {
		return s.leaveTo(ctx, state.Lease)
	}
	s.payBefore(ctx, &state)
	err = s.giveBack(ctx, state.Lease.Fence, func(st *backend.State) error {
		if st.Lease.Worker != s.worker {
			return errTakenOver
		}
		return keepApplied(st)
	})
	switch {
	case errors.Is(err, errTakenOver):
		return s.leaveTo(ctx, state.Lease)
	case err != nil:
		return failure("give the lease back", err)
	}
	return nil
}

var errTakenOver = errors.New("another process has the lease")

// leaveTo leaves a lease to the process that took it over. That one answers for its own
// part in the cluster's lease, and not for the part of this one.
func (s *Server) leaveTo(ctx context.Context, host *backend.Lease) error {
	if err := s.leaveCluster(ctx, host.ClusterFence); err != nil {
		return failure("leave the lease of the cluster", err)
	}
	return nil
}

// settleDead settles what runs left that ended without settling their changes, the last
// one first: one that was applied stays, one that was cut off is put back. It runs
// under a fresh lease.
func (s *Server) settleDead(ctx context.Context, lease backend.Lease) ([]Settled, error) {
	if dead, err := s.deadNow(ctx, lease); err != nil || len(dead) == 0 {
		return nil, err
	}
	release, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	defer s.keepAlive(ctx, lease.Fence)()
	dead, err := s.deadNow(ctx, lease) // what was in progress in this process has ended by now
	if err != nil {
		return nil, err
	}
	return s.settleEach(ctx, lease, dead)
}

// deadNow reads what runs left that ended without settling it.
func (s *Server) deadNow(ctx context.Context, lease backend.Lease) (journal, error) {
	state, err := s.store.Load(ctx)
	if err != nil {
		return nil, failure("read the journal", err)
	}
	j, err := readJournal(&state)
	if err != nil {
		return nil, err
	}
	return j.dead(lease).without(func(e *entry) bool { return s.awaits(ctx, e) }), nil
}

// settleEach settles dead changes, while nothing else of this process writes.
func (s *Server) settleEach(ctx context.Context, lease backend.Lease, dead journal) (settled []Settled, err error) {
	for _, e := range slices.Backward(dead) {
		end := Settled{Subject: e.Subject, Kept: e.Status == applied}
		var owes bool
		if end.Stands, owes, err = s.settleOne(ctx, lease, e); err != nil {
			return settled, err
		}
		if !owes && (e.Attempts >= maxAttempts || !s.awaits(ctx, e)) {
			settled = append(settled, end)
		}
	}
	return settled, nil
}

// settleBefore settles what dead runs left for a run that has got the lease. When
// something stands it gives the lease back, unless the run had it already.
func (s *Server) settleBefore(ctx context.Context, lease backend.Lease, fresh bool) error {
	if state, err := s.store.Load(ctx); err == nil && len(state.Journal) == 0 && !s.owes(ctx, &state) {
		return nil // most often
	}
	settled, err := s.settleDead(ctx, lease)
	left := notPutBack(settled)
	if err == nil && left == nil {
		_, err := s.payAlone(ctx, lease)
		if lost := staleFence(err); lost != nil {
			return lost
		}
		return nil
	}
	if fresh {
		// Else it expires.
		_ = s.giveBack(context.WithoutCancel(ctx), lease.Fence, func(*backend.State) error { return nil })
	}
	if err != nil {
		return err
	}
	return left
}

// notPutBack is the error of changes of which something stands, and nil of none.
func notPutBack(settled []Settled) error {
	var stands []string
	for _, end := range settled {
		for _, left := range end.Stands {
			stands = append(stands, fmt.Sprintf("of %s: %s", end.Subject, left))
		}
	}
	if len(stands) == 0 {
		return nil
	}
	return &Error{Code: StepFailed, Message: "a change that an earlier run began could not be put back", Outcome: &Outcome{Stands: stands}}
}

// dead are the changes that a run which has the lease finds and nobody will settle. Its own that
// were applied it settles itself.
func (j journal) dead(lease backend.Lease) journal {
	return j.without(func(e *entry) bool { return e.Run == lease.Run && e.Status == applied })
}

// settleOne settles one dead change, and says what could not be put back. Where that is only the
// start of a VM, the VM is owed it, of which pay tells: it keeps nobody from the host.
func (s *Server) settleOne(ctx context.Context, lease backend.Lease, e *entry) (stands []string, owes bool, err error) {
	if e.Status == applied {
		if err := s.strike(ctx, lease.Fence, e); err != nil {
			return nil, false, failure("settle a change of an earlier run", err)
		}
		return nil, false, nil
	}
	back, err := s.hostIsBack(ctx, e)
	if err != nil {
		return nil, false, err // a host that cannot be read was not tried
	}
	e.Worker = s.worker
	e.Attempts++
	if err := s.record(ctx, lease.Fence, e); err != nil {
		return nil, false, failure("put back a change of an earlier run", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.undoTimeout)
	defer cancel()
	w := s.work(lease.Fence, e, nil)
	w.hostIsBack = back
	left, stands, err := w.undo(ctx)
	if err != nil {
		return nil, false, err
	}
	_ = w.derive(ctx) // the next write finds the lease as it is
	if len(stands) > 0 && !halfDone(left) {
		stands, owes = nil, true
	}
	if w.waits || len(stands) > 0 && (w.comesAgain() || s.awaits(ctx, e)) {
		return stands, owes, nil
	}
	if err := w.close(ctx, halfDone(left), s.readBack(ctx)); err != nil {
		return nil, false, failure("write the journal", err)
	}
	return stands, owes, nil
}

// hostIsBack tells whether the host shows what it showed before a change. An attempt to
// put the change back that could not write its progress, because the disk was full, has
// done so; doing it once more would need the VMs off that have been started again.
func (s *Server) hostIsBack(ctx context.Context, e *entry) (bool, error) {
	host, err := s.inventory(ctx)
	if err != nil {
		return false, err
	}
	return e.isBack(&host), nil
}

// isBack tells whether a host shows what it showed before the change.
func (e *entry) isBack(host *gpu.Host) bool {
	return len(e.Before) > 0 && slices.Equal(change.Observe(host, change.OnHost(e.Steps)), e.Before)
}

// isDone tells whether a host refuses a step of putting a change back because that is done: it shows
// what that step, or that and what comes after it, makes. An attempt that could not write its progress
// leaves such steps.
func (e *entry) isDone(host *gpu.Host, back change.Step, rest []change.Step, at int, err error) bool {
	cause := causeOf(err)
	if _, here := host.VM(back.VM); back.VM != "" && !here {
		return false // it moved away, with all that it has
	}
	if cause == nil || !slices.Contains([]backend.Code{backend.NotFound, backend.InvalidState, backend.InUse}, cause.Code) {
		return false
	}
	for _, inverse := range slices.Backward(e.Undo[:at]) {
		rest = slices.Concat(rest, inverse)
	}
	for n := range len(rest) + 1 {
		done := slices.Concat([]change.Step{back}, rest[:n])
		then := change.ProjectAll(*host, done)
		if slices.Equal(change.Observe(host, done), change.Observe(&then, done)) {
			return true
		}
	}
	return false
}
