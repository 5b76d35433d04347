package agent

import (
	"context"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// settledInventory is the host as it is once changes that were begun and have not ended
// are put back, which is the first thing that the next run has done. A plan that met a
// change half made would refuse the very apply that mends it.
func (s *Server) settledInventory(ctx context.Context) (gpu.Host, error) {
	host, state, err := s.read(ctx)
	if err != nil {
		return gpu.Host{}, err
	}
	entries, err := readJournal(&state)
	if err != nil {
		return gpu.Host{}, err
	}
	entries = entries.without(func(e *entry) bool { return s.awaits(ctx, e) })
	for _, e := range entries {
		if e.Status == running {
			host.Unfinished = append(host.Unfinished, e.Subject)
		}
	}
	// What these changes stopped runs again by then, and the VMs that others owe a start too, but
	// for those that find no room any more.
	host.PendingStarts = slices.DeleteFunc(host.PendingStarts, func(d gpu.PendingStart) bool {
		return slices.ContainsFunc(entries, func(e *entry) bool { return e.Status == running && e.stops(d.VM) })
	})
	for _, e := range slices.Backward(entries) {
		if e.Status == running {
			host = e.putBackOn(host, s.clock())
		}
	}
	slices.Sort(host.Moving)
	host.Moving = slices.Compact(host.Moving)
	for _, d := range host.PendingStarts {
		if start := (change.Step{Op: change.OpStartVM, VM: d.VM}); change.Obstacle(&host, start) == nil {
			host = change.Project(host, start)
		}
	}
	return host, nil
}

// putBackOn is a host without what the change may have made of it so far.
func (e *entry) putBackOn(host gpu.Host, at time.Time) gpu.Host {
	isBack := e.isBack(&host) // then only claims, and what no inventory shows, are put back
	now, left := host, false
	for _, stop := range e.again() {
		if !isBack && !stop.TakenSince(&host) {
			host = change.Project(host, stop)
		}
	}
	for i := min(e.Begun, len(e.Undo)) - 1; i >= 0; i-- {
		for _, back := range e.Undo[i] {
			switch {
			case isBack && e.Steps[i].Claim == nil && back.IsShown():
			case back.TakenSince(&host):
				left = left || back.Op != change.OpStartVM
			case back.Op == change.OpStartVM && change.Obstacle(&host, back) != nil:
				host.PendingStarts = withPending(host.PendingStarts, e.pendingStart(back, at))
			default:
				host.Moving = append(host.Moving, change.EffectsOf(&host, []change.Step{back}).Moves...)
				host = change.Project(host, back)
			}
		}
	}
	if claim := e.leaves(); left && claim != nil {
		host = change.Project(host, change.Step{Op: change.OpPutClaim, Claim: claim})
	}
	for _, vm := range now.VMs { // a node that is drained for it is resumed, and no other one lists them
		host, _ = change.FailBack(host, now, vm.ID)
		if _, here := host.VM(vm.ID); !here {
			host.VMs = append(slices.Clone(host.VMs), vm)
		}
	}
	return host
}
