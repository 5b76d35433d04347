package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// transaction is one change on its way through the hosts.
type transaction struct {
	fleet    *Fleet
	req      Request
	changes  map[string]agent.Change
	conns    map[string]Conn
	prepared map[string]agent.Prepared

	mu      sync.Mutex
	ends    map[string]HostEnd
	stands  map[string][]string
	result  *Result
	failure *Failure
}

func (t *transaction) enter(ctx context.Context, names []string) error {
	lease := t.lease(t.fleet.opt.LeaseWait)
	for _, n := range names {
		conn, err := t.fleet.hosts[n].enter(ctx, lease)
		if err != nil {
			return t.failed(n, err)
		}
		t.connected(n, conn)
	}
	return nil
}

// conn is the connection to a host, which changes when it had to be opened again.
func (t *transaction) conn(n string) Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conns[n]
}

func (t *transaction) connected(n string, conn Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[n] = conn
}

func (t *transaction) lease(wait time.Duration) agent.LeaseRequest {
	return agent.LeaseRequest{Run: t.fleet.run, Owner: t.fleet.opt.Owner, Holder: t.fleet.holder, TTL: leaseTTL, Wait: wait, Cluster: true}
}

func (t *transaction) leave(ctx context.Context) {
	// The lease has to go back even when the run is being cancelled; one that does
	// not go back expires.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for n, conn := range t.conns {
		_ = t.fleet.hosts[n].leave(ctx, conn)
	}
}

func (t *transaction) prepare(ctx context.Context, names []string) error {
	for _, n := range names {
		p, err := t.conn(n).Prepare(ctx, t.changes[n])
		if err != nil {
			return t.failed(n, err)
		}
		errs, _ := split(p.Findings)
		if len(errs) > 0 {
			return t.failed(n, &agent.Error{Kind: agent.RuleViolation, Host: n, Findings: errs})
		}
		t.prepared[n] = p
	}
	return nil
}

// reserveStops holds the right to stop as many VMs as the change needs, per
// cluster. A change that needs more than the limit waits until it is alone.
func (t *transaction) reserveStops(ctx context.Context) (func(), error) {
	need := map[string]int{}
	for n, p := range t.prepared {
		if len(p.StopsVMs) > 0 {
			need[t.fleet.stopDomain(n)] += len(p.StopsVMs)
		}
	}
	type held struct {
		sem *semaphore.Weighted
		n   int64
	}
	var taken []held
	release := func() {
		for _, h := range taken {
			h.sem.Release(h.n)
		}
	}
	limit := t.fleet.opt.MaxConcurrentVMStops
	for _, domain := range slices.Sorted(maps.Keys(need)) {
		sem, n := t.fleet.stopLimit(domain), int64(min(need[domain], limit))
		if err := sem.Acquire(ctx, n); err != nil {
			release()
			return nil, t.failed("", err)
		}
		taken = append(taken, held{sem, n})
	}
	return release, nil
}

// stopDomain is the cluster of a host, or the host itself when it stands alone.
func (f *Fleet) stopDomain(name string) string {
	h := f.hosts[name]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen != nil && h.seen.Cluster != nil {
		return "cluster " + gpu.FoldID(h.seen.Cluster.Name)
	}
	return "host " + name
}

func (f *Fleet) stopLimit(domain string) *semaphore.Weighted {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.stops[domain]
	if !ok {
		s = semaphore.NewWeighted(int64(f.opt.MaxConcurrentVMStops))
		f.stops[domain] = s
	}
	return s
}

// run changes the hosts, MaxUnavailable at a time. No host is begun after a failure
// or a cancellation; those that have begun end by themselves.
func (t *transaction) run(ctx context.Context, names []string) error {
	atOnce := semaphore.NewWeighted(int64(max(1, t.req.MaxUnavailable)))
	var wg sync.WaitGroup
	for _, n := range names {
		if len(t.prepared[n].Steps) == 0 {
			continue // it is as wanted
		}
		if err := atOnce.Acquire(ctx, 1); err != nil {
			t.note(n, err)
			break
		}
		if t.stopped() {
			atOnce.Release(1)
			break
		}
		wg.Go(func() {
			defer atOnce.Release(1)
			t.one(ctx, n)
		})
	}
	wg.Wait()
	return t.settle(ctx, names)
}

func (t *transaction) stopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure != nil
}

func (t *transaction) one(ctx context.Context, n string) {
	if t.req.HostTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.req.HostTimeout)
		defer cancel()
	}
	progress := func(p agent.StepProgress) {
		if t.req.Progress != nil {
			t.req.Progress(n, p.Text)
		}
	}
	out, err := t.conn(n).Apply(ctx, t.fleet.hosts[n].fence, t.changes[n], t.prepared[n].Basis, progress)
	if err == nil {
		t.took(n, EndApplied, &out)
		return
	}
	end := EndUntouched
	var ae *agent.Error
	switch {
	case errors.As(err, &ae) && ae.Outcome != nil && len(ae.Outcome.Stands) > 0:
		t.took(n, EndPartial, ae.Outcome)
	case errors.As(err, &ae) && ae.Outcome != nil && ae.Outcome.RolledBack:
		t.took(n, EndRolledBack, ae.Outcome)
	case errors.As(err, &ae) && ae.Kind == agent.Unavailable && ae.Cause == nil:
		t.cutOff(ctx, n, *ae)
		return
	default:
		t.took(n, end, nil)
	}
	t.note(n, err)
}

// cutOffWait is how long the agent that was cut off from its client is given to end the
// change, on top of the change's own time.
const cutOffWait = 2 * time.Minute

// cutOff finds out how a change ended whose connection broke. The agent ends it by
// itself, without a client; its lease is free when it has.
func (t *transaction) cutOff(ctx context.Context, n string, broke agent.Error) {
	h, ch := t.fleet.hosts[n], t.changes[n]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.req.HostTimeout+cutOffWait)
	defer cancel()
	h.drop(t.conn(n))
	conn, err := h.lease(ctx, t.lease(t.req.HostTimeout+cutOffWait))
	if err != nil {
		t.took(n, EndPartial, nil)
		t.stand(n, []string{fmt.Sprintf("the connection broke in the middle, and it could not be found out how the change ended (%v); "+
			"the agent finishes or undoes it by itself, and the next plan shows which", err)})
		t.note(n, &broke)
		return
	}
	t.connected(n, conn)
	host, err := conn.Inventory(ctx)
	var left agent.Prepared
	if err == nil {
		left, err = conn.Prepare(ctx, ch)
	}
	switch {
	case err != nil:
		t.took(n, EndPartial, &agent.Outcome{Host: host})
		t.stand(n, []string{fmt.Sprintf("the connection broke in the middle, and it could not be found out how the change ended: %v", err)})
	case len(left.Steps) == 0:
		// Only the answer was lost.
		t.took(n, EndApplied, &agent.Outcome{Host: host})
		return
	case slices.ContainsFunc(host.Claims, func(c gpu.Claim) bool { return c.Token == ch.Token && c.Incomplete }):
		t.took(n, EndPartial, &agent.Outcome{Host: host})
		t.stand(n, []string{"what the agent could not put back after the connection broke; the next plan shows it"})
	default:
		broke.Message += "; the agent went on without it and put the change back"
		t.took(n, EndRolledBack, &agent.Outcome{Host: host})
	}
	t.note(n, &broke)
}

// took records how a host ended and what it looks like now.
func (t *transaction) took(n string, end HostEnd, out *agent.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends[n] = end
	if out == nil || out.Host.Name == "" {
		t.fleet.hosts[n].wrote(nil)
		return
	}
	fresh := out.Host
	t.fleet.hosts[n].wrote(&fresh)
	t.result.Hosts[n] = &fresh
	if len(out.Stands) > 0 {
		t.stands[n] = out.Stands
	}
}

func (t *transaction) stand(n string, what []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stands[n] = append(t.stands[n], what...)
}

func (t *transaction) note(n string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil {
		t.failure = &Failure{Label: t.req.Label, Host: n, Err: err, Ends: t.ends, Stands: t.stands}
	}
}

// failed is the failure of a change that has touched nothing.
func (t *transaction) failed(n string, err error) error {
	t.note(n, err)
	t.failure.Result = *t.result
	return t.failure
}

// settle ends the change on the hosts that applied it: it stays when all succeeded
// or StopOnFailure is set, and is put back otherwise. It has its own time: what was
// begun must end even when the run is cancelled.
func (t *transaction) settle(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(t.req.HostTimeout, 10*time.Minute))
	defer cancel()
	undo := t.failure != nil && !t.req.StopOnFailure
	for _, n := range slices.Backward(names) {
		if t.ends[n] != EndApplied {
			continue
		}
		out, err := t.conn(n).Settle(ctx, t.fleet.hosts[n].fence, t.changes[n].ID, undo)
		switch {
		case !undo && err != nil:
			// What the host has is right; only its journal still lists the change, which
			// the next lease settles the same way.
		case undo && err != nil:
			t.took(n, EndPartial, nil)
			t.stand(n, []string{fmt.Sprintf("the change, which could not be undone: %v", err)})
		case undo && len(out.Stands) > 0:
			t.took(n, EndPartial, &out)
		case undo:
			t.took(n, EndRolledBack, &out)
		}
	}
	if t.failure == nil {
		return nil
	}
	t.markIncomplete(ctx, names)
	for _, n := range names {
		if _, ok := t.result.Hosts[n]; !ok {
			if h, err := t.fleet.Snapshot(ctx, n); err == nil {
				t.result.Hosts[n] = h
			}
		}
	}
	t.failure.Result = *t.result
	return t.failure
}

// markIncomplete says in the claims of the hosts that keep the change that the
// object as a whole is not as declared.
func (t *transaction) markIncomplete(ctx context.Context, names []string) {
	for _, n := range names {
		if t.ends[n] != EndApplied || t.changes[n].Want.Empty() {
			continue
		}
		ch := t.changes[n]
		ch.ID, ch.ClaimOnly, ch.Incomplete = rand.Text(), true, true
		out, err := t.conn(n).Apply(ctx, t.fleet.hosts[n].fence, ch, "", func(agent.StepProgress) {})
		if err != nil {
			t.stand(n, []string{fmt.Sprintf("a claim that does not say that the object is incomplete: %v", err)})
			continue
		}
		_, _ = t.conn(n).Settle(ctx, t.fleet.hosts[n].fence, ch.ID, false)
		t.took(n, EndApplied, &out)
	}
}
