package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// restore puts back what the host lacks of the declared layouts, under the lease.
func (s *Server) restore(ctx context.Context, lease backend.Lease) ([]Settled, error) {
	release, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	state, err := s.store.Load(ctx)
	if err != nil {
		return nil, failure("read the claims", err)
	}
	host, lost, err := s.lost(ctx, &state)
	if err != nil {
		return nil, err
	}
	defer s.keepAlive(ctx, lease.Fence)()
	var out []Settled
	for _, l := range lost {
		end, err := s.restoreLayout(ctx, lease, &host, l)
		if err != nil {
			return out, err
		}
		out = append(out, end)
	}
	return out, nil
}

// restoreLayout puts back what is missing of one declaration. What is on its way when ctx
// ends is finished.
func (s *Server) restoreLayout(ctx context.Context, lease backend.Lease, host *gpu.Host, l lostLayout) (Settled, error) {
	end := l.settled()
	lackings := l.lackings()
	if len(lackings) == 0 {
		return end, nil
	}
	if ctx.Err() != nil {
		return end, &Error{Kind: Cancelled, Message: "there was no time left to put back " + l.subject}
	}
	ctx = context.WithoutCancel(ctx)
	steps := l.steps(host)
	e := &entry{
		ID: rand.Text(), Subject: l.subject, Host: host.Name, Run: lease.Run, Worker: s.worker,
		Status: running, Steps: steps, Before: observe(host, steps), Undo: keepRestored(host, steps),
	}
	w := s.work(lease.Fence, e, nil)
	failed, err := w.makeEach(ctx)
	switch {
	case staleFence(err) != nil:
		return end, err
	case err != nil || len(failed[nothing]) > 0:
		// It is put back, which has the units run and nothing else.
		out, backErr := w.putBack(ctx)
		if err = cmp.Or(err, backErr); err != nil {
			return end, err
		}
		end.Stands = append(end.Stands, out.Stands...)
	default:
		if err := s.strike(ctx, lease.Fence, e); err != nil {
			return end, failure("write the journal", err)
		}
	}
	now, err := s.inventory(ctx)
	if err != nil {
		return end, err
	}
	left := stillLost(&now, l.subject)
	for _, was := range lackings {
		switch conflict, what := left.of(was.object); {
		case len(failed[was.object]) > 0:
			end.Stands = append(end.Stands, failed[was.object]...)
		case conflict != "":
			if text := was.object + ": " + conflict; !slices.Contains(end.Stands, text) {
				end.Stands = append(end.Stands, text)
			}
		case what != "":
			end.Stands = append(end.Stands, fmt.Sprintf("%s does not show %s although every step succeeded", was.object, what))
		case was.undeclared:
			end.Dropped = append(end.Dropped, was.object)
		default:
			end.Restored = append(end.Restored, was.object+": "+was.what)
		}
	}
	return end, nil
}

// keepRestored is what puts the steps of a restoration back: nothing but the units, since
// what was declared and is there again may be in use by then.
func keepRestored(host *gpu.Host, steps []Step) [][]Step {
	undo := make([][]Step, len(steps))
	for i, s := range steps {
		if s.Op == OpStopUnit {
			undo[i] = inverse(host, s)
		}
	}
	return refreshLast(steps, undo)
}

// nothing stands for what steps are on that are for the host as a whole.
const nothing = ""

// object is what a step is on, for people.
func (s Step) object() string {
	switch {
	case s.GPU != "":
		return "GPU " + s.GPU
	case s.Daemon != nil:
		return "MPS daemon " + s.Daemon.Name
	case s.Share != nil:
		return describeObject(gpu.ClaimShare, s.Share.Name)
	}
	return nothing
}

// makeEach runs the steps like make, but one that fails keeps only those on the same object
// from being tried. It tells what failed by object.
func (w *work) makeEach(ctx context.Context) (failed map[string][]string, err error) {
	failed = map[string][]string{}
	for i, step := range w.entry.Steps {
		on := step.object()
		if on != nothing && len(failed[on]) > 0 {
			continue
		}
		w.entry.Begun = i + 1
		if err := w.server.record(ctx, w.fence, w.entry); err != nil {
			w.entry.Begun = i
			return failed, failure("write the journal", err)
		}
		if err := w.runner.run(ctx, step); err != nil {
			if lost := staleFence(err); lost != nil {
				return failed, lost
			}
			failed[on] = append(failed[on], stepFailed(step, err).Error())
		}
	}
	return failed, nil
}
