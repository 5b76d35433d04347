package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
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
	// before is where clustered VMs were, by id, if nodes are drained.
	before map[string]string
}

// enter takes the turn and the lease of each host. All runs take the clusters in one
// order, and so the hosts: two that meet would otherwise wait for each other.
func (t *transaction) enter(ctx context.Context, names []string) error {
	lease := t.lease(t.fleet.opt.LeaseWait)
	names = slices.SortedFunc(slices.Values(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.fleet.stopDomain(a), t.fleet.stopDomain(b)), cmp.Compare(a, b))
	})
	for _, n := range names {
		conn, err := t.fleet.hosts[n].enter(ctx, lease, func(held *agent.Error) {
			t.progress(n, fmt.Sprintf("waiting for up to %s: %s", lease.Wait, held.Message))
		})
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

// leave passes on the turn of every host that the change has entered.
func (t *transaction) leave(ctx context.Context) {
	var wg sync.WaitGroup
	for n := range t.conns {
		wg.Go(func() { t.fleet.hosts[n].leave(ctx) })
	}
	wg.Wait()
}

// prepare has all hosts work out their part at the same time: they only read.
func (t *transaction) prepare(ctx context.Context, names []string) error {
	prepared, failed := make([]agent.Prepared, len(names)), make([]error, len(names))
	var hosts errgroup.Group
	hosts.SetLimit(t.fleet.opt.MaxParallelHosts)
	for i, n := range names {
		ch := t.changes[n]
		lacks, _ := t.fleet.Lacks(n)
		ch.Keep = len(names) == 1 && !slices.Contains(lacks, "keep")
		t.changes[n] = ch
		hosts.Go(func() error {
			prepared[i], failed[i] = t.conn(n).Prepare(ctx, ch)
			return nil
		})
	}
	_ = hosts.Wait()
	for i, n := range names {
		if failed[i] != nil {
			return t.failed(n, failed[i])
		}
		errs, _ := split(prepared[i].Findings)
		if len(errs) > 0 {
			return t.failed(n, &agent.Error{Code: agent.RuleViolation, Host: n, Findings: errs})
		}
		t.prepared[n] = prepared[i]
	}
	return nil
}

// reserveStops holds the right to stop as many VMs as the change of one host needs, per
// cluster. One that needs more than the limit waits until it is alone.
func (t *transaction) reserveStops(ctx context.Context, n string) (func(), error) {
	need := map[string]int{}
	if stops := len(t.prepared[n].StopsVMs); stops > 0 {
		need[t.fleet.stopDomain(n)] = stops
	}
	limit := t.fleet.opt.MaxConcurrentVMStops
	return t.reserve(ctx, t.fleet.stops, limit, need, "until it may stop VMs")
}

// reserveDrains holds the right to drain nodes, per cluster. Two changes that drain nodes
// of one cluster at once could leave its VMs nowhere to go, and each would take the
// other's node for one in maintenance.
func (t *transaction) reserveDrains(ctx context.Context, names []string) (func(), error) {
	need := map[string]int{}
	if c := t.req.Want.Config; c != nil && c.Drain && !t.req.ClaimOnly {
		for _, n := range names {
			need[t.fleet.stopDomain(n)] = 1
		}
	}
	return t.reserve(ctx, t.fleet.drains, 1, need, "until it may drain nodes")
}

// reserve takes what is needed of the limit of each domain, in sorted order. More than
// the limit is all of it.
func (t *transaction) reserve(ctx context.Context, of map[string]*semaphore.Weighted, limit int,
	need map[string]int, until string,
) (func(), error) {
	var taken []func()
	release := func() {
		for _, giveBack := range taken {
			giveBack()
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(need)) {
		sem, n := t.fleet.limit(of, domain, limit), int64(min(need[domain], limit))
		if err := sem.Acquire(ctx, n); err != nil {
			release()
			return func() {}, t.failed("", &agent.Error{Code: agent.Cancelled, Message: "the run was cancelled while this change waited " + until})
		}
		taken = append(taken, func() { sem.Release(n) })
	}
	return release, nil
}

// stopDomain is the cluster of a host, or the host itself when it stands alone.
func (f *Fleet) stopDomain(name string) string {
	h := f.hosts[name]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cluster != "" {
		return "cluster " + h.cluster
	}
	return "host " + name
}

// forget has the hosts of a domain read again when they are asked for next.
func (f *Fleet) forget(domain string) {
	for n, h := range f.hosts {
		if f.stopDomain(n) == domain {
			h.wrote(nil)
		}
	}
}

// limit is a domain's semaphore of f.stops or f.drains.
func (f *Fleet) limit(of map[string]*semaphore.Weighted, domain string, size int) *semaphore.Weighted {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := of[domain]
	if !ok {
		s = semaphore.NewWeighted(int64(size))
		of[domain] = s
	}
	return s
}

// run changes the hosts, MaxUnavailable at a time. Where nobody is disturbed and the configuration does not
// say how many, it is one, then two, then four: what fails on each host fails on few. No host is begun after a failure or
// a cancellation, or outside of the window; those that have begun end by themselves.
func (t *transaction) run(ctx context.Context, names []string) error {
	names, limit := t.turns(names)
	calm, round, left := limit > max(1, t.req.MaxUnavailable), 1, 1
	atOnce := semaphore.NewWeighted(int64(limit))
	var wg sync.WaitGroup
	for _, n := range names {
		if len(t.prepared[n].Steps) == 0 {
			continue // it is as wanted
		}
		if err := atOnce.Acquire(ctx, 1); err != nil {
			t.note(n, t.fleet.hosts[n].gaveUp("before this host was begun"))
			break
		}
		release, err := t.reserveStops(ctx, n)
		if err != nil || t.stopped() {
			release()
			atOnce.Release(1)
			break
		}
		if _, refused := t.inWindow(n); refused != nil { // it closed while others had their turn
			t.note(n, refused)
			release()
			atOnce.Release(1)
			break
		}
		wg.Go(func() {
			defer atOnce.Release(1)
			defer release()
			t.one(ctx, n)
		})
		if left--; calm && left == 0 {
			wg.Wait()
			round *= 2
			left = round
		}
	}
	wg.Wait()
	return t.settle(ctx, names)
}

// turns is the order of the hosts, and how many have their turn at once. A node that is
// drained needs the others, so these go one by one, and last: VMs that move would else
// stand in the way on nodes that come later and are not drained.
func (t *transaction) turns(names []string) (order []string, atOnce int) {
	drained := func(n string) int {
		if t.prepared[n].Drains {
			return 1
		}
		return 0
	}
	order = slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return drained(a) - drained(b) })
	if slices.ContainsFunc(order, func(n string) bool { return drained(n) > 0 }) {
		return order, 1
	}
	disturbed := func(n string) bool { return t.prepared[n].Disruption.Exceeds(gpu.DisruptNone) }
	if t.req.MaxUnavailable == 0 && !slices.ContainsFunc(order, disturbed) {
		return order, t.fleet.opt.MaxParallelHosts
	}
	return order, max(1, t.req.MaxUnavailable)
}

func (t *transaction) stopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure != nil
}

func (t *transaction) progress(n, text string) {
	if t.req.Progress != nil {
		t.req.Progress(n, text)
	}
}

func (t *transaction) one(ctx context.Context, n string) {
	if t.req.HostTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.req.HostTimeout)
		defer cancel()
	}
	out, err := t.conn(n).Apply(ctx, t.fleet.hosts[n].fence, t.changes[n], t.prepared[n].Basis,
		func(p agent.StepProgress) { t.progress(n, p.Text) })
	if err == nil {
		t.took(n, EndApplied, &out)
		return
	}
	var ae *agent.Error
	switch {
	case errors.As(err, &ae) && ae.Outcome != nil && len(ae.Outcome.Stands) > 0:
		t.took(n, EndPartial, ae.Outcome)
	case errors.As(err, &ae) && ae.Outcome != nil && ae.Outcome.RolledBack:
		t.took(n, EndRolledBack, ae.Outcome)
	case errors.As(err, &ae) && ae.Code == agent.Unavailable && ae.Cause == nil:
		t.cutOff(ctx, n, *ae)
		return
	default:
		t.took(n, EndUntouched, nil)
	}
	t.note(n, err)
}

// cutOffWait is how long the agent that was cut off from its client is given to end the
// change, on top of the change's own time.
const cutOffWait = 2 * time.Minute

// cutOff records how a change ended whose connection broke.
func (t *transaction) cutOff(ctx context.Context, n string, broke agent.Error) {
	out, end, err := t.findOut(ctx, n)
	t.took(n, end, out)
	switch {
	case err != nil:
		t.stand(n, []string{fmt.Sprintf("the connection broke in the middle, and it could not be found out how the change ended (%v); "+
			"the agent finishes or undoes it by itself, and the next plan shows which", err)})
	case end == EndApplied:
		return // only the answer was lost
	case end == EndPartial:
		t.stand(n, []string{"what the agent could not put back after the connection broke; the next plan shows it"})
	default:
		broke.Message += "; the agent went on without it and put the change back"
	}
	t.note(n, &broke)
}

// findOut connects to a host again and finds out how a change ended that was cut off.
// The agent ends it by itself, without a client; its lease is free when it has. With an
// error it is not known how: the host then counts as left half done.
func (t *transaction) findOut(ctx context.Context, n string) (*agent.Outcome, HostEnd, error) {
	h, ch := t.fleet.hosts[n], t.changes[n]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.req.HostTimeout+cutOffWait)
	defer cancel()
	h.drop(t.conn(n))
	conn, err := h.lease(ctx, t.lease(t.req.HostTimeout+cutOffWait))
	if err != nil {
		return nil, EndPartial, err
	}
	t.connected(n, conn)
	host, err := conn.Inventory(ctx)
	if err != nil {
		return nil, EndPartial, err
	}
	out := &agent.Outcome{Host: host}
	left, err := conn.Prepare(ctx, ch)
	if err != nil {
		return out, EndPartial, err
	}
	// A change that a rule forbids now has no steps either.
	forbidden, _ := split(left.Findings)
	switch {
	case len(left.Steps) == 0 && len(forbidden) == 0:
		return out, EndApplied, nil
	case slices.ContainsFunc(host.Claims, func(c gpu.Claim) bool { return c.Token == ch.Token && c.Incomplete }):
		return out, EndPartial, nil
	}
	return out, EndRolledBack, nil
}

// took records how a host ended and what it looks like now.
func (t *transaction) took(n string, end HostEnd, out *agent.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends[n] = end
	if out != nil && len(out.Stands) > 0 {
		t.stands[n] = out.Stands
	}
	if t.prepared[n].Drains { // VMs have come to other nodes
		t.fleet.forget(t.fleet.stopDomain(n))
	}
	if out == nil || out.Host.Name == "" { // the host could not be read after the change
		t.fleet.hosts[n].wrote(nil)
		return
	}
	fresh := out.Host
	t.fleet.hosts[n].wrote(&fresh)
	t.result.Hosts[n] = &fresh
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
		t.failure = &Failure{Label: t.req.Subject, Host: n, Err: err, Ends: t.ends, Stands: t.stands}
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
		if t.ends[n] != EndApplied || t.changes[n].Keep {
			continue
		}
		release := func() {}
		if undo {
			release, _ = t.reserveStops(ctx, n) // it may stop them again
		}
		out, err := t.conn(n).Settle(ctx, t.fleet.hosts[n].fence, t.changes[n].ID, undo)
		release()
		switch {
		case !undo && err != nil:
			// What the host has is right; only its journal still lists the change, which
			// the next lease settles the same way.
		case undo && broken(err):
			t.undoCutOff(ctx, n, err)
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
	t.sayWhereMoved(ctx)
	for _, n := range names {
		if _, ok := t.result.Hosts[n]; !ok {
			if h, err := t.fleet.Snapshot(ctx, []string{n}).Host(n); err == nil {
				t.result.Hosts[n] = h
			}
		}
	}
	t.failure.Result = *t.result
	return t.failure
}

// noteWhere remembers where the VMs are of nodes that are drained.
func (t *transaction) noteWhere(v View) {
	t.before = map[string]string{}
	for n, p := range t.prepared {
		for i := range v.Hosts[n].VMs {
			if vm := &v.Hosts[n].VMs[i]; p.Drains && vm.Clustered {
				t.before[vm.ID] = n
			}
		}
	}
}

// sayWhereMoved says of a failed change which VMs it has moved to other nodes.
func (t *transaction) sayWhereMoved(ctx context.Context) {
	if len(t.before) == 0 {
		return
	}
	now := View{Hosts: map[string]*gpu.Host{}} // as they were before a node that is resumed gets its VMs back
	for n := range t.fleet.Snapshot(ctx, slices.Compact(slices.Sorted(maps.Values(t.before))), WithClusterPeers).Hosts {
		if h, err := t.fleet.Snapshot(ctx, []string{n}).Host(n); err == nil {
			now.Hosts[n] = h
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.before)) {
		if at, err := FindVM(now, id); err == nil && at.Host != t.before[id] {
			t.stand(t.before[id], []string{fmt.Sprintf("VM %s has moved to %s", words.Name(at.VM.Name), at.Host)})
		}
	}
}

// undoCutOff records how the undoing of a change ended whose connection broke.
func (t *transaction) undoCutOff(ctx context.Context, n string, broke error) {
	out, end, err := t.findOut(ctx, n)
	if end == EndRolledBack {
		t.took(n, end, out)
		return
	}
	t.took(n, EndPartial, out)
	if err == nil {
		err = broke
	}
	t.stand(n, []string{fmt.Sprintf("the change, which could not be undone: %v", err)})
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
