package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Request is the change of one resource, on all the hosts that it concerns.
type Request struct {
	change.Change
	// MaxUnavailable is how many hosts are changed at once; 0 means 1, and ever more where nobody is disturbed.
	MaxUnavailable int
	// StopOnFailure leaves what succeeded in place when a host fails, instead of
	// putting it back.
	StopOnFailure bool
	// Ends is what the plan of a destroy has said: that the run only ends objects.
	Ends bool
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
	// Waited is true when other changes of the run were waited for in vain.
	Waited bool
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

// Begun tells whether a host was touched, even if it is as it was before.
func (e *Failure) Begun() bool {
	for _, end := range e.Ends {
		if end != EndUntouched {
			return true
		}
	}
	return false
}

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
			fmt.Fprintf(&b, "Still in place on %s: %s\n", h, s)
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
	Copies []string // hosts that have only a copy of Hyper-V Replica's
}

func (e *VMGoneError) Error() string {
	if len(e.Silent) > 0 {
		return fmt.Sprintf("no host that answers has the VM %s; these hosts do not answer: %s", words.Name(e.VM), strings.Join(e.Silent, ", "))
	}
	if len(e.Copies) > 0 {
		return fmt.Sprintf("no host has the VM %s, only a copy of it that Hyper-V Replica keeps on %s", words.Name(e.VM), words.Join(e.Copies))
	}
	return fmt.Sprintf("no host has the VM %s", words.Name(e.VM))
}

// Apply makes a change on all its hosts: it waits for each host's turn and lease in
// sorted order, asks the rules again, lets every host prepare, and only then, inside
// of the maintenance window if it disturbs anybody, changes MaxUnavailable hosts at a time.
// When one fails, the others are put back, or left with StopOnFailure. A change that finds
// no room waits for the other changes of the run.
func (f *Fleet) Apply(ctx context.Context, req Request) (*Result, error) {
	if f.opt.ReadOnly != "" {
		return nil, &ReadOnlyError{Reason: f.opt.ReadOnly}
	}
	if err := f.Ledger.silent(req.Subject); err != nil {
		return nil, err
	}
	var res *Result
	req.Approved = f.Ledger.approved(req.Change)
	if req.Want.Empty() && req.Approved != nil {
		a := *req.Approved
		if req.Ends {
			f.Ledger.handovers.noneComes()
		}
		if handed, _ := f.awaitSuccessor(ctx, f.Snapshot(ctx, nil, Cached), req.Change); len(a.Handed) == 0 {
			a.Handed = handed // which its plan could not know
		}
		req.Approved = &a
	}
	err := f.waits.change(ctx, func() (err error) {
		res, err = f.applyOnce(ctx, req)
		return err
	})
	if err == nil {
		f.dropOrphanedClaims(ctx)
	}
	return res, err
}

func (f *Fleet) applyOnce(ctx context.Context, req Request) (*Result, error) {
	res, err := f.apply(ctx, req)
	var moved *agent.Error
	if req.Want.Assignment != nil || req.Prior.Assignment != nil {
		// The VM moved to another node after this run looked: look again, once.
		if errors.As(err, &moved) && moved.Code == agent.HostChanged {
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
	if a := req.Approved; req.Want.Empty() && a != nil {
		maps.DeleteFunc(changes, func(name string, _ agent.Change) bool {
			return slices.Contains(a.Handed, name) || len(a.Handed) > 0 && req.Prior.Assignment != nil // wherever the VM is by now
		})
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
	drained, err := t.reserveDrains(ctx, names)
	if err != nil {
		return nil, err
	}
	defer drained()
	view = f.lookAgain(ctx, view)
	index := f.index(view)
	view.index = index
	if a := cmp.Or(req.Want.Assignment, req.Prior.Assignment); a != nil && !a.Reserves() {
		if _, err := vmOf(req, view); errors.As(err, new(*AmbiguousVMError)) {
			return nil, t.failed("", err)
		}
	}
	req.Undrained = whatif.Undrained(whatif.World{Fleet: index, Owner: f.opt.Owner}, req.Change)
	for _, n := range names {
		ch := t.changes[n]
		ch.Undrained = req.Undrained
		if req.Want.Assignment == nil && req.Prior.Assignment == nil {
			ch.Claims = index.ClaimsElsewhere(n)
		}
		t.changes[n] = ch
	}
	if !req.ClaimOnly {
		// Against the hosts as they are now; against the other resources of this run the
		// plan of this very instance was checked when the apply began.
		findings := f.CheckAlone(view.withRecord(req.Change), req.Change)
		errs, warnings := split(findings)
		if len(errs) > 0 {
			return nil, t.failed(errs[0].Host, &agent.Error{Code: agent.RuleViolation, Host: errs[0].Host, Findings: errs})
		}
		res.Warnings = warnings
	}
	if err := t.prepare(ctx, names); err != nil {
		return nil, err
	}
	t.noteWhere(view)
	warnings, refused := t.inWindow(names...)
	if refused != nil {
		return nil, t.failed(refused.Host, refused)
	}
	res.Warnings = append(res.Warnings, warnings...)
	if err := t.run(ctx, names); err != nil {
		return nil, err
	}
	return res, nil
}

// lookAgain is a view as this run knows its hosts now: other changes of the run may have
// written to them, or moved VMs between them, while this one waited. A host that does not
// answer any more stays as it was; the change finds out itself.
func (f *Fleet) lookAgain(ctx context.Context, v View) View {
	return v.With(f.Snapshot(ctx, slices.Sorted(maps.Keys(v.Hosts))))
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

// Cause is the platform's error behind a failed change, if there is one.
func Cause(err error) (*backend.Error, bool) {
	var ae *agent.Error
	if errors.As(err, &ae) && ae.Cause != nil {
		return ae.Cause, true
	}
	return errors.AsType[*backend.Error](err)
}
