package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
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
	if len(host.Stale) > 0 {
		// the host remembers it
		_ = s.work(lease.Fence, &entry{}, nil).runner.run(context.WithoutCancel(ctx), change.Step{Op: change.OpRefreshDevices})
	}
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
func (s *Server) restoreLayout(ctx context.Context, lease backend.Lease, host *gpu.Host, l change.Lost) (Settled, error) {
	end := soFar(&l)
	if !l.Restorable() {
		return end, nil
	}
	if ctx.Err() != nil {
		return end, &Error{Code: Cancelled, Message: "there was no time left to put back " + l.Subject}
	}
	ctx = context.WithoutCancel(ctx)
	steps := l.Steps(host)
	e := &entry{
		ID: rand.Text(), Subject: l.Subject, Host: host.Name, Run: lease.Run, Worker: s.worker,
		Status: running, Steps: steps, Before: change.Observe(host, steps), Undo: change.KeepRestored(host, steps),
	}
	w := s.work(lease.Fence, e, nil)
	failed, err := w.makeEach(ctx)
	switch {
	case staleFence(err) != nil:
		return end, err
	case err != nil || len(failed[change.WholeHost]) > 0:
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
	_ = w.derive(ctx) // the next write finds the lease as it is
	now, err := s.inventory(ctx)
	if err != nil {
		return end, err
	}
	left := change.StillLost(&now, l.Subject)
	for i := range l.Differences {
		was := &l.Differences[i]
		is := left.Of(was.Object)
		switch {
		case was.Lacks() == "":
		case len(failed[was.Object]) > 0:
			end.Stands = append(end.Stands, failed[was.Object]...)
		case is != nil && len(is.Stays()) > 0:
			for _, why := range is.Stays() {
				if !slices.Contains(end.Stands, why) {
					end.Stands = append(end.Stands, why)
				}
			}
		case is != nil:
			end.Stands = append(end.Stands, fmt.Sprintf("%s does not show %s although every step succeeded", is.Object, is.Lacks()))
		case was.Undeclared():
			end.Dropped = append(end.Dropped, was.Object)
		default:
			end.Restored = append(end.Restored, was.Object+": "+was.Lacks())
		}
	}
	return end, nil
}

// makeEach runs the steps like make, but one that fails keeps only those on the same object
// from being tried. It tells what failed by object.
func (w *work) makeEach(ctx context.Context) (failed map[string][]string, err error) {
	failed = map[string][]string{}
	for i, step := range w.entry.Steps {
		on := step.Object()
		if on != change.WholeHost && len(failed[on]) > 0 {
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

// soFar is the answer as far as it is known before anything is put back.
func soFar(l *change.Lost) Settled {
	end := Settled{Subject: l.Subject}
	for i := range l.Differences {
		end.Stands = append(end.Stands, l.Differences[i].Stays()...)
	}
	return end
}

func restorable(lost []change.Lost) bool {
	return slices.ContainsFunc(lost, func(l change.Lost) bool { return l.Restorable() })
}

// conflicts is the answer when nothing can be put back.
func conflicts(lost []change.Lost) []Settled {
	var out []Settled
	for _, l := range lost {
		out = append(out, soFar(&l))
	}
	return out
}

// lost reads the host and finds what it lacks of what is declared. One that declares
// nothing may still have shares of ours, and when it cannot be read nothing is lost.
func (s *Server) lost(ctx context.Context, st *backend.State) (gpu.Host, []change.Lost, error) {
	declares := slices.ContainsFunc(st.Claims, func(c gpu.Claim) bool {
		return c.Kind == gpu.ClaimConfig || c.Kind == gpu.ClaimShare
	})
	if s.platform(ctx) != gpu.Linux {
		return gpu.Host{}, nil, nil
	}
	host, err := s.inventory(ctx)
	switch {
	case err != nil && !declares:
		return gpu.Host{}, nil, nil
	case err != nil:
		return gpu.Host{}, nil, err
	}
	return host, change.FindLost(&host), nil
}
