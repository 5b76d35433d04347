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

// A VM that ran and that a change stops is owed a start. The debt is written before the
// stop and dropped when the VM is seen to run; whoever takes the lease next pays it.

// owe adds debts to a list. The first one for a VM counts.
func owe(list []gpu.OwedStart, more ...gpu.OwedStart) []gpu.OwedStart {
	out := slices.Clone(list)
	for _, d := range more {
		if !slices.ContainsFunc(out, func(o gpu.OwedStart) bool { return gpu.SameID(o.VM, d.VM) }) {
			out = append(out, d)
		}
	}
	return out
}

// debts are the starts that a change under way owes: of the VMs that ran when it began and
// that it may have stopped so far.
func (e *entry) debts(now time.Time) []gpu.OwedStart {
	if e.Status != running {
		return nil
	}
	var out []gpu.OwedStart
	for i := range min(e.Begun, len(e.Steps), len(e.Undo)) {
		if s := e.Steps[i]; s.Op == change.OpStopVM && starts(e.Undo[i]) {
			out = append(out, e.owes(s, now))
		}
	}
	return out
}

// starts tells whether steps start a VM.
func starts(steps []change.Step) bool {
	return slices.ContainsFunc(steps, func(s change.Step) bool { return s.Op == change.OpStartVM })
}

// owes is the debt of a step that stops a VM.
func (e *entry) owes(s change.Step, now time.Time) gpu.OwedStart {
	return gpu.OwedStart{VM: s.VM, Name: s.VMName(), Since: now, Subject: e.Subject, Run: e.Run}
}

// stops tells whether the change stops a VM.
func (e *entry) stops(vm string) bool {
	return slices.ContainsFunc(e.Steps, func(s change.Step) bool { return s.Op == change.OpStopVM && gpu.SameID(s.VM, vm) })
}

// stillOwed are the debts that a host with these claims leaves. One is paid when the VM runs, or
// was started and paused or saved since, and void when the VM is gone or its owner wants it to
// stay off. A VM of a cluster that is not here may have moved; where the nodes have their records
// in common, the debt is there.
func stillOwed(owed []gpu.OwedStart, host *gpu.Host) []gpu.OwedStart {
	return slices.DeleteFunc(slices.Clone(owed), func(d gpu.OwedStart) bool {
		vm, here := host.VM(d.VM)
		if !here {
			_, unknown := host.UnknownVM(d.VM)
			_, dark := host.UnknownPart(gpu.PartCluster)
			return (host.Cluster == nil || host.Cluster.Records) && !unknown && !dark
		}
		c, _ := host.Claim(gpu.ClaimAssignment, d.VM)
		return started(vm) || c != nil && c.Want.Assignment != nil && c.Want.Assignment.Power.StayOff
	})
}

// paid takes from the records what a host no longer owes. nil is a host that could not be
// read.
func paid(st *backend.State, host *gpu.Host) {
	if host != nil {
		now := change.WithClaims(*host, st.Claims)
		st.Owed = stillOwed(st.Owed, &now)
	}
}

// isOff says that a VM is off that ran, and what to do.
func isOff(name string) string {
	return fmt.Sprintf("VM %s is off: the next apply that changes something on this host starts it, and so does `gpu-agent reconcile` "+
		"there; or start it by hand", words.Name(name))
}

// payTimeout bounds one start of a VM that is owed one.
const payTimeout = 3 * time.Minute

// pay starts the VMs that are owed a start, under the lease and while nothing else of this process writes.
// Those of changes that are not settled are left to putting these back. One that does
// not start stays owed, and keeps nobody from the host: it may be just what comes next
// that lets it start.
func (s *Server) pay(ctx context.Context, lease backend.Lease) ([]Settled, error) {
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
	for i := range host.Owed {
		d := &host.Owed[i]
		if _, here := host.VM(d.VM); !here || slices.ContainsFunc(entries, func(e *entry) bool { return e.Status == running && e.stops(d.VM) }) {
			continue
		}
		starting, cancel := context.WithTimeout(ctx, payTimeout)
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
		err = s.paidTogether(ctx, lease.Fence, &now, nil)
	}
	if err != nil {
		return out, failure("read what is owed still", err)
	}
	err = s.guarded(ctx, lease.Fence, func(st *backend.State) error {
		for i := range st.Owed {
			if d, ok := host.Owes(st.Owed[i].VM); ok {
				st.Owed[i].Why = d.Why
			}
		}
		paid(st, &now)
		return nil
	})
	if err != nil {
		return out, failure("write that VMs run again", err)
	}
	return out, nil
}

// payAlone is pay for a run that has just got the lease.
func (s *Server) payAlone(ctx context.Context, lease backend.Lease) ([]Settled, error) {
	state, err := s.store.Load(ctx)
	if err != nil || !s.owes(ctx, &state) {
		return nil, err
	}
	release, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	defer s.keepAlive(ctx, lease.Fence)()
	return s.pay(ctx, lease)
}

// owes tells whether the host, or its cluster, owes any start.
func (s *Server) owes(ctx context.Context, st *backend.State) bool {
	_, shared, err := s.sharedState(ctx)
	return len(st.Owed) > 0 || err == nil && len(shared.Owed) > 0
}

// payBefore is pay for a lease that is about to be given back, while nothing else of this process writes.
func (s *Server) payBefore(ctx context.Context, st *backend.State) {
	if !s.owes(ctx, st) {
		return
	}
	defer s.keepAlive(ctx, st.Lease.Fence)()
	_, _ = s.pay(ctx, *st.Lease) // else it stays owed
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
