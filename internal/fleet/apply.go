package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Request is the change of one resource, on all the hosts that it concerns.
type Request struct {
	// Label names the resource in messages, as in rules.Plan.
	Label string
	// Token is the resource instance's token in claims.
	Token string
	// Adopt lets a delete act on an object that was imported and never claimed.
	Adopt       bool
	Want, Prior gpu.Want
	// ClaimOnly rewrites claims and touches nothing else.
	ClaimOnly bool
	// MaxUnavailable is how many hosts are changed at once; 0 means 1.
	MaxUnavailable int
	// StopOnFailure leaves what succeeded in place when a host fails, instead of
	// putting it back.
	StopOnFailure bool
	// HostTimeout bounds the work on one host, from when its turn comes.
	HostTimeout time.Duration
	// Progress, when set, hears of each step.
	Progress func(host, text string)
}

// Result is what an applied change left.
type Result struct {
	// Hosts that took part, as they are now.
	Hosts map[string]*gpu.Host
	// Warnings are findings of the rules that did not stop the change.
	Warnings []rules.Finding
	// Skipped are hosts that the object leaves and that could not be told.
	Skipped map[string]error
}

// HostEnd says how a change ended on one host.
type HostEnd string

// Ends.
const (
	EndUntouched  HostEnd = "untouched"
	EndApplied    HostEnd = "applied"
	EndRolledBack HostEnd = "rolled back"
	EndPartial    HostEnd = "left half done"
)

// Failure is a change that did not succeed on every host.
type Failure struct {
	Label string
	// Host is the first host that failed and Err its reason.
	Host string
	Err  error
	// Ends is how it ended on each host; Stands what a failed rollback left.
	Ends   map[string]HostEnd
	Stands map[string][]string
	// Result holds the hosts as they are after the failure.
	Result Result
}

func (e *Failure) Error() string {
	return fmt.Sprintf("%s: host %s: %v", e.Label, e.Host, e.Err)
}

func (e *Failure) Unwrap() error { return e.Err }

// Clean tells whether no host keeps anything of the change.
func (e *Failure) Clean() bool {
	for _, end := range e.Ends {
		if end == EndApplied || end == EndPartial {
			return false
		}
	}
	return true
}

// Summary lists the hosts by how the change ended there.
func (e *Failure) Summary() string {
	var b strings.Builder
	for _, end := range []HostEnd{EndApplied, EndRolledBack, EndPartial, EndUntouched} {
		var names []string
		for _, h := range slices.Sorted(maps.Keys(e.Ends)) {
			if e.Ends[h] == end {
				names = append(names, h)
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", strings.ToUpper(string(end[:1]))+string(end[1:]), strings.Join(names, ", "))
		}
	}
	for _, h := range slices.Sorted(maps.Keys(e.Stands)) {
		for _, s := range e.Stands[h] {
			fmt.Fprintf(&b, "On %s there still stands: %s\n", h, s)
		}
	}
	return b.String()
}

// ReadOnlyError refuses a write that the configuration forbids.
type ReadOnlyError struct{ Reason string }

func (e *ReadOnlyError) Error() string { return e.Reason }

// VMGoneError is a VM that no host of the fleet has.
type VMGoneError struct {
	VM     string
	Silent []string // hosts that did not answer
}

func (e *VMGoneError) Error() string {
	if len(e.Silent) > 0 {
		return fmt.Sprintf("no host that answers has the VM %s; these hosts do not answer: %s", e.VM, strings.Join(e.Silent, ", "))
	}
	return fmt.Sprintf("no host has the VM %s", e.VM)
}

// Apply makes a change on all its hosts: it waits for each host's turn and lease in
// sorted order, asks the rules again, lets every host prepare, and only then
// changes MaxUnavailable hosts at a time. When one fails, the others are put back,
// or left with StopOnFailure.
func (f *Fleet) Apply(ctx context.Context, req Request) (*Result, error) {
	if f.opt.ReadOnly != "" {
		return nil, &ReadOnlyError{Reason: f.opt.ReadOnly}
	}
	res, err := f.apply(ctx, req)
	var moved *agent.Error
	if req.Want.Assignment != nil || req.Prior.Assignment != nil {
		// The VM moved to another node after this run looked: look again, once.
		if errors.As(err, &moved) && moved.Kind == agent.HostChanged {
			f.forgetSnapshots()
			return f.apply(ctx, req)
		}
	}
	return res, err
}

func (f *Fleet) forgetSnapshots() {
	for _, h := range f.hosts {
		h.wrote(nil)
	}
}

func (f *Fleet) apply(ctx context.Context, req Request) (*Result, error) {
	changes, view, skipped, err := f.changes(ctx, req)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(changes))
	res := &Result{Hosts: map[string]*gpu.Host{}, Skipped: skipped}
	if len(names) == 0 {
		return res, nil
	}

	t := &transaction{
		fleet: f, req: req, changes: changes, conns: map[string]Conn{}, prepared: map[string]agent.Prepared{},
		ends: map[string]HostEnd{}, stands: map[string][]string{}, result: res,
	}
	for _, n := range names {
		t.ends[n] = EndUntouched
	}
	defer t.leave(ctx)
	if err := t.enter(ctx, names); err != nil {
		return nil, err
	}
	if !req.ClaimOnly {
		// Against the hosts as they are now; against the other resources of this run the
		// plan of this very instance was checked when the apply began.
		findings := f.CheckAlone(f.refreshed(view, names), rules.Plan{Label: req.Label, Token: req.Token, Want: req.Want, Prior: req.Prior})
		errs, warnings := split(findings)
		if len(errs) > 0 {
			return nil, t.failed(errs[0].Host, &agent.Error{Kind: agent.RuleViolation, Host: errs[0].Host, Findings: errs})
		}
		res.Warnings = warnings
	}
	if err := t.prepare(ctx, names); err != nil {
		return nil, err
	}
	release, err := t.reserveStops(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := t.run(ctx, names); err != nil {
		return nil, err
	}
	return res, nil
}

// refreshed replaces the hosts of a change in a view by what this run knows of them
// now that it holds their leases.
func (f *Fleet) refreshed(v View, names []string) View {
	out := View{Hosts: maps.Clone(v.Hosts), Errors: v.Errors}
	for _, n := range names {
		h := f.hosts[n]
		h.mu.Lock()
		if h.seen != nil {
			out.Hosts[n] = h.seen
		}
		h.mu.Unlock()
	}
	return out
}

func split(findings []rules.Finding) (errs, warnings []rules.Finding) {
	for _, x := range findings {
		if x.Level == rules.Error {
			errs = append(errs, x)
		} else {
			warnings = append(warnings, x)
		}
	}
	return errs, warnings
}

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
	lease := agent.LeaseRequest{Run: t.fleet.run, Owner: t.fleet.opt.Owner, Holder: t.fleet.holder, TTL: leaseTTL, Wait: t.fleet.opt.LeaseWait}
	for _, n := range names {
		conn, err := t.fleet.hosts[n].enter(ctx, lease)
		if err != nil {
			return t.failed(n, err)
		}
		t.conns[n] = conn
	}
	return nil
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
		p, err := t.conns[n].Prepare(ctx, t.changes[n])
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
	out, err := t.conns[n].Apply(ctx, t.fleet.hosts[n].fence, t.changes[n], t.prepared[n].Basis, progress)
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
	case errors.As(err, &ae) && ae.Kind == agent.Unavailable:
		// The connection broke with the change in flight: the agent ends it by itself,
		// but how is not known here.
		t.took(n, EndPartial, nil)
		t.stand(n, []string{"the connection broke in the middle; the agent finishes or undoes the change by itself, and the next plan shows which"})
	default:
		t.took(n, end, nil)
	}
	t.note(n, err)
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
		out, err := t.conns[n].Settle(ctx, t.fleet.hosts[n].fence, t.changes[n].ID, undo)
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
		out, err := t.conns[n].Apply(ctx, t.fleet.hosts[n].fence, ch, "", func(agent.StepProgress) {})
		if err != nil {
			t.stand(n, []string{fmt.Sprintf("a claim that does not say that the object is incomplete: %v", err)})
			continue
		}
		_, _ = t.conns[n].Settle(ctx, t.fleet.hosts[n].fence, ch.ID, false)
		t.took(n, EndApplied, &out)
	}
}

// changes works out which hosts a request concerns and what each has to do.
func (f *Fleet) changes(ctx context.Context, req Request) (map[string]agent.Change, View, map[string]error, error) {
	base := agent.Change{Subject: req.Label, Owner: f.opt.Owner, Token: req.Token, Adopt: req.Adopt, ClaimOnly: req.ClaimOnly,
		Want: req.Want, Prior: req.Prior, Levels: f.opt.Levels}
	out, skipped := map[string]agent.Change{}, map[string]error{}
	put := func(name string, edit func(*agent.Change)) {
		ch := base
		ch.ID, ch.Host = rand.Text(), name
		if edit != nil {
			edit(&ch)
		}
		out[name] = ch
	}

	if req.Want.Assignment != nil || req.Prior.Assignment != nil {
		view := f.LookAll(ctx)
		err := f.assignmentChanges(req, view, put)
		return out, view, skipped, err
	}

	joining, leaving := members(req.Want), members(req.Prior)
	for n := range joining {
		delete(leaving, n)
	}
	view := f.Look(ctx, f.withPeers(ctx, slices.Concat(slices.Collect(maps.Keys(joining)), slices.Collect(maps.Keys(leaving)))))
	for n := range joining {
		if err, silent := view.Errors[n]; silent {
			return nil, view, nil, &Failure{Label: req.Label, Host: n, Err: err}
		}
		put(n, nil)
	}
	for n := range leaving {
		err, silent := view.Errors[n]
		switch {
		case !silent:
			put(n, func(ch *agent.Change) { ch.Want = gpu.Want{} })
		case !f.Has(n) || f.opt.KeepUnreachable:
			// A host that is decommissioned must not hold its object hostage; nothing can be
			// put back there any more.
			skipped[n] = err
		default:
			return nil, view, nil, &Failure{Label: req.Label, Host: n, Err: err}
		}
	}
	for n, ch := range out {
		ch.Claims = claimsElsewhere(view, n)
		out[n] = ch
	}
	return out, view, skipped, nil
}

// members are the hosts that a want concerns.
func members(w gpu.Want) map[string]bool {
	out := map[string]bool{}
	if w.Config != nil {
		for n := range w.Config.GPUs {
			out[n] = true
		}
	}
	if w.Pool != nil {
		for n := range w.Pool.Members {
			out[n] = true
		}
	}
	return out
}

// withPeers adds the other hosts of the same clusters: rules about clusters need
// them, and claims for VMs that moved may lie there.
func (f *Fleet) withPeers(ctx context.Context, names []string) []string {
	return f.Peers(f.Look(ctx, names), names)
}

// Peers returns names and the hosts that share a cluster with them, sorted.
func (f *Fleet) Peers(v View, names []string) []string {
	set := map[string]bool{}
	clusters := map[string]bool{}
	for _, n := range names {
		set[n] = true
		if h, ok := v.Hosts[n]; ok && h.Cluster != nil {
			clusters[gpu.FoldID(h.Cluster.Name)] = true
			for _, node := range h.Cluster.Nodes {
				for _, key := range f.HostNames() {
					if gpu.SameID(key, node.Name) {
						set[key] = true
					}
				}
			}
		}
	}
	for key, h := range f.hosts {
		if c := h.endpoint.Cluster; c != "" && clusters[gpu.FoldID(c)] {
			set[key] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// claimsElsewhere are the claims for VMs of a host that other hosts hold.
func claimsElsewhere(v View, name string) []gpu.Claim {
	here, ok := v.Hosts[name]
	if !ok {
		return nil
	}
	var out []gpu.Claim
	for _, n := range slices.Sorted(maps.Keys(v.Hosts)) {
		if n == name {
			continue
		}
		for _, c := range v.Hosts[n].Claims {
			if c.Kind != gpu.ClaimAssignment {
				continue
			}
			if _, lives := here.VM(c.ID); lives {
				out = append(out, c)
			}
		}
	}
	return out
}

func (f *Fleet) assignmentChanges(req Request, view View, put func(string, func(*agent.Change))) error {
	id := ""
	if a := req.Prior.Assignment; a != nil {
		id = a.VMID
	}
	if a := req.Want.Assignment; a != nil {
		id = a.VMID
	}
	owner := ""
	for _, n := range slices.Sorted(maps.Keys(view.Hosts)) {
		if _, ok := view.Hosts[n].VM(id); ok {
			owner = n
		}
	}
	if owner == "" && (!req.Want.Empty() || !view.Complete() && !f.opt.KeepUnreachable) {
		return &VMGoneError{VM: id, Silent: view.Silent()}
	}
	if owner != "" {
		put(owner, func(ch *agent.Change) { ch.Claims = claimsElsewhere(view, owner) })
	}
	// A claim that an earlier owner host still holds goes away with this write.
	for n, h := range view.Hosts {
		if n == owner {
			continue
		}
		for _, c := range h.Claims {
			if !c.Is(gpu.ClaimAssignment, id) {
				continue
			}
			put(n, func(ch *agent.Change) {
				ch.Want, ch.ClaimOnly, ch.Token = gpu.Want{}, true, c.Token
				if ch.Prior.Empty() {
					ch.Prior = c.Want
				}
			})
		}
	}
	return nil
}

// Cause is the platform's error behind a failed change, if there is one.
func Cause(err error) (*backend.Error, bool) {
	var ae *agent.Error
	if errors.As(err, &ae) && ae.Cause != nil {
		return ae.Cause, true
	}
	var be *backend.Error
	return be, errors.As(err, &be)
}
