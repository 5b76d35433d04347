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
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// A VM that ran and that a change stops has a pending start. It is written before the
// stop and dropped when the VM is seen to run; whoever takes the lease next starts the VM.

// withPending adds pending starts to a list. The first one for a VM counts.
func withPending(list []gpu.PendingStart, more ...gpu.PendingStart) []gpu.PendingStart {
	out := slices.Clone(list)
	for _, d := range more {
		if !slices.ContainsFunc(out, func(o gpu.PendingStart) bool { return gpu.SameID(o.VM, d.VM) }) {
			out = append(out, d)
		}
	}
	return out
}

// pendingStarts are those of a change under way: of the VMs that ran when it began and
// that it may have stopped so far.
func (e *entry) pendingStarts(now time.Time) []gpu.PendingStart {
	if e.Status != running {
		return nil
	}
	var out []gpu.PendingStart
	for i := range min(e.Begun, len(e.Steps), len(e.Undo)) {
		if s := e.Steps[i]; s.Op == change.OpStopVM && starts(e.Undo[i]) {
			out = append(out, e.pendingStart(s, now))
		}
	}
	return out
}

// starts tells whether steps start a VM.
func starts(steps []change.Step) bool {
	return slices.ContainsFunc(steps, func(s change.Step) bool { return s.Op == change.OpStartVM })
}

// pendingStart is that of a VM which a step stops.
func (e *entry) pendingStart(s change.Step, now time.Time) gpu.PendingStart {
	return gpu.PendingStart{VM: s.VM, Name: s.VMName(), Since: now, Subject: e.Subject, Run: e.Run}
}

// stops tells whether the change stops a VM.
func (e *entry) stops(vm string) bool {
	return slices.ContainsFunc(e.Steps, func(s change.Step) bool { return s.Op == change.OpStopVM && gpu.SameID(s.VM, vm) })
}

// stillPending are the pending starts that a host with these claims leaves. One is over when the VM runs, or
// was started and paused or saved since, and when the VM is gone or its owner wants it to
// stay off. A VM of a cluster that is not here may have moved; where the nodes have their records
// in common, its start is pending there.
func stillPending(pending []gpu.PendingStart, host *gpu.Host) []gpu.PendingStart {
	return slices.DeleteFunc(slices.Clone(pending), func(d gpu.PendingStart) bool {
		vm, here := host.VM(d.VM)
		if !here {
			_, unknown := host.UnknownVM(d.VM)
			_, dark := host.UnknownPart(gpu.PartCluster)
			return (host.Cluster == nil || host.Cluster.Records) && !unknown && !dark
		}
		c, _ := host.Claim(gpu.ClaimAssignment, d.VM)
		return vm.Started() || c != nil && c.Want.Assignment != nil && c.Want.Assignment.Power.StayOff
	})
}

// dropStarted takes from the records the starts that are not pending any more on a host. nil is a host that could not be
// read.
func dropStarted(st *backend.State, host *gpu.Host) {
	if host != nil {
		now := change.WithClaims(*host, st.Claims)
		st.PendingStarts = stillPending(st.PendingStarts, &now)
	}
}

// isOff says that a VM is off that ran, and what to do.
func isOff(name string) string {
	return fmt.Sprintf("VM %s is off: the next apply that changes something on this host starts it, and so does `gpu-agent reconcile` "+
		"there; or start it by hand", words.Name(name))
}

// pendingStartTimeout bounds one pending start of a VM.
const pendingStartTimeout = 3 * time.Minute

// startPending starts the VMs whose start is pending, under the lease and while nothing else of this process writes.
// Those of changes that are not settled are left to putting these back. One that does
// not start stays pending, and keeps nobody from the host: it may be just what comes next
// that lets it start.
func (s *Server) startPending(ctx context.Context, lease backend.Lease) ([]Settled, error) {
	ctx = context.WithoutCancel(ctx)
	host, state, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := readJournal(&state)
	if err != nil {
		return nil, err
	}
	w := s.work(lease.Fence, &entry{Run: lease.Run}, nil)
	w.undoing = true
	var out []Settled
	for i := range host.PendingStarts {
		d := &host.PendingStarts[i]
		if _, here := host.VM(d.VM); !here || slices.ContainsFunc(entries, func(e *entry) bool { return e.Status == running && e.stops(d.VM) }) {
			continue
		}
		starting, cancel := context.WithTimeout(ctx, pendingStartTimeout)
		err := w.runner.run(starting, change.Step{Op: change.OpStartVM, VM: d.VM, Name: d.Name})
		cancel()
		if lost := staleFence(err); lost != nil {
			return out, lost
		}
		end := Settled{Subject: d.Subject, Started: []string{d.Name}}
		if err != nil {
			d.Why = err.Error()
			end = Settled{Subject: d.Subject, Stands: []string{fmt.Sprintf("%s (%v)", isOff(d.Name), err)}}
		}
		out = append(out, end)
	}
	now, _, err := s.read(ctx)
	if err == nil {
		err = s.dropStartedTogether(ctx, lease.Fence, &now, nil)
	}
	if err != nil {
		return out, failure("read what is owed still", err)
	}
	err = s.guarded(ctx, lease.Fence, func(st *backend.State) error {
		for i := range st.PendingStarts {
			if d, ok := host.Owes(st.PendingStarts[i].VM); ok {
				st.PendingStarts[i].Why = d.Why
			}
		}
		dropStarted(st, &now)
		return nil
	})
	if err != nil {
		return out, failure("write that VMs run again", err)
	}
	return out, nil
}

// startPendingAlone is startPending for a run that has just got the lease.
func (s *Server) startPendingAlone(ctx context.Context, lease backend.Lease) ([]Settled, error) {
	state, err := s.store.Load(ctx)
	if err != nil || !s.anyPending(ctx, &state) {
		return nil, err
	}
	release, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	defer s.keepAlive(ctx, lease.Fence)()
	return s.startPending(ctx, lease)
}

// anyPending reports whether any start is pending on the host or in its cluster.
func (s *Server) anyPending(ctx context.Context, st *backend.State) bool {
	_, shared, err := s.sharedState(ctx)
	return len(st.PendingStarts) > 0 || err == nil && len(shared.PendingStarts) > 0
}

// startPendingBefore is startPending for a lease that is about to be given back, while nothing else of this process writes.
func (s *Server) startPendingBefore(ctx context.Context, st *backend.State) {
	if !s.anyPending(ctx, st) {
		return
	}
	defer s.keepAlive(ctx, st.Lease.Fence)()
	_, _ = s.startPending(ctx, *st.Lease) // else it stays pending
}

// defaultStartPatience is how long putting a change back tries to start a VM that the
// change stopped: memory and partitions of one that has just stopped come back late.
const defaultStartPatience = 16 * time.Second

// again tries a start until it succeeds, fails for a reason that time does not mend, or
// has been tried for long enough, at growing intervals.
func (s *Server) again(ctx context.Context, start func() error) error {
	spent := time.Duration(0)
	for pause := s.startPatience / 64; ; pause *= 2 {
		err := start()
		if err == nil || spent+pause > s.startPatience || !passes(err) {
			return err
		}
		spent += pause
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// passes tells whether a failure may pass by itself.
func passes(err error) bool {
	var be *backend.Error
	if !errors.As(err, &be) {
		return false
	}
	switch be.Code {
	case backend.NotFound, backend.InvalidParameter, backend.NotSupported, backend.AccessDenied:
		return false
	}
	return true
}
