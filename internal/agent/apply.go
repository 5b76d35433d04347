package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// proposal is a change worked out on a host as it is now.
type proposal struct {
	host         gpu.Host
	findings     []rules.Finding
	steps        []change.Step
	precondition precondition
}

// propose asks the rules and plans the steps. When a rule forbids the change there
// are no steps.
func (s *Server) propose(ctx context.Context, ch Change) (proposal, error) {
	of, some := concerns(&ch)
	if !some {
		host, err := s.inventory(ctx)
		if err != nil {
			return proposal{}, err
		}
		return s.proposeOn(host, ch)
	}
	host, whole, err := s.readAgain(ctx, of)
	if err != nil {
		return proposal{}, err
	}
	p, err := s.proposeOn(host, ch)
	if others, some := about(p.steps); whole || err == nil && len(violations(p.findings)) == 0 && some && others.Within(of) {
		return p, err
	}
	// Nothing is refused, and no other VM or GPU touched, by what may be old.
	if host, err = s.inventory(ctx); err != nil {
		return proposal{}, err
	}
	return s.proposeOn(host, ch)
}

// proposeOn is propose on a host that was read.
func (s *Server) proposeOn(host gpu.Host, ch Change) (proposal, error) {
	var err error
	p := proposal{host: host}
	known := change.WithPeerClaims(host, ch.Claims, ch.Owner, ch.Token)
	if !ch.ClaimOnly {
		world := rules.World{World: whatif.World{Hosts: map[string]*gpu.Host{ch.Host: &known}, Owner: ch.Owner}}
		p.findings = rules.Check(world, ch.Change, ch.Levels, rules.HostScope)
		if len(violations(p.findings)) > 0 {
			return p, nil
		}
	}
	if p.steps, err = change.Plan(known, ch.Host, ch.Change); err != nil {
		return p, refused(err)
	}
	if err := able(s.backend, p.steps); err != nil {
		return p, err
	}
	p.precondition = newPrecondition(&host, p.steps)
	return p, nil
}

func violations(findings []rules.Finding) []rules.Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f rules.Finding) bool { return f.Level != rules.Error })
}

func (s *Server) prepare(ctx context.Context, ch Change) (Prepared, error) {
	p, err := s.propose(ctx, ch)
	if err != nil {
		return Prepared{}, err
	}
	effects := change.EffectsOf(&p.host, p.steps)
	return Prepared{
		Steps: p.steps, Disruption: effects.Class, StopsVMs: effects.StopNames(), Drains: effects.Drains,
		Findings: p.findings, Basis: string(document.Encode(p.precondition)),
	}, nil
}

// apply makes a change. It returns an error without an outcome when nothing was
// touched, and one with an outcome when something was and had to be put back.
func (s *Server) apply(ctx context.Context, fence int64, ch Change, prepared string, progress func(StepProgress)) (Outcome, error) {
	release, err := s.take(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	j, lease, err := s.underLease(ctx, fence)
	if err != nil {
		return Outcome{}, err
	}
	if old := j.find(ch.ID); old != nil {
		return s.repeat(ctx, old)
	}
	defer s.keepAlive(ctx, fence)()
	// One of this run that could not be put back, as its records were away, comes first: put back
	// later, it would take what this change makes.
	settled, err := s.settleEach(ctx, lease, j.dead(lease))
	if err = cmp.Or(err, notPutBack(settled)); err != nil {
		return Outcome{}, err
	}

	p, err := s.propose(ctx, ch)
	if err != nil {
		return Outcome{}, err
	}
	if errs := violations(p.findings); len(errs) > 0 {
		return Outcome{}, &Error{Code: RuleViolation, Message: "a rule forbids the change", Findings: errs}
	}
	if prepared != "" {
		changed, err := p.precondition.changed(prepared)
		if err != nil {
			return Outcome{}, err
		}
		if changed != "" {
			return Outcome{}, &Error{
				Code: HostChanged, Message: "the host is not as it was when the change was prepared, and nothing was touched: " + changed,
			}
		}
	}
	undo, expected := change.Schedule(p.host, p.steps)
	e := &entry{
		ID: ch.ID, Subject: ch.Subject, Host: ch.Host, Run: lease.Run, Worker: s.worker,
		Status: running, Steps: p.steps, Before: change.Observe(&p.host, change.OnHost(p.steps)), Undo: undo,
	}
	w := s.work(fence, e, progress)
	if !slices.ContainsFunc(e.Steps, func(s change.Step) bool { return !isLocal(s) }) {
		w.untouched = &p.host
	}
	return w.make(ctx, expected, &ch)
}

// repeat answers a change that was sent again.
func (s *Server) repeat(ctx context.Context, e *entry) (Outcome, error) {
	if e.Status != applied {
		return Outcome{}, &Error{Code: Refused, Message: "an earlier attempt at this change is not put back yet; acquire the lease again first"}
	}
	host, err := s.inventory(ctx)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Host: host, Done: e.Steps}, nil
}

// settle ends an applied change.
func (s *Server) settle(ctx context.Context, fence int64, id string, undo bool) (Outcome, error) {
	release, err := s.take(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	j, _, err := s.underLease(ctx, fence)
	e := j.find(id)
	switch {
	case err != nil:
		return Outcome{}, err
	case e == nil && undo:
		return Outcome{}, &Error{
			Code: BadRequest, Message: fmt.Sprintf("there is no change %s to undo; it was settled before or never applied", id),
		}
	case e == nil:
		return Outcome{}, nil
	case e.Status != applied:
		return Outcome{}, &Error{Code: BadRequest, Message: fmt.Sprintf("the change %s was not applied", id)}
	case !undo:
		if err := s.strike(ctx, fence, e); err != nil {
			return Outcome{}, failure("settle the change", err)
		}
		return Outcome{Done: e.Steps}, nil
	}
	defer s.keepAlive(ctx, fence)()
	e.Status, e.Worker = running, s.worker
	if err := s.record(ctx, fence, e); err != nil {
		return Outcome{}, failure("undo the change", err)
	}
	return s.work(fence, e, nil).putBack(ctx)
}

// work is one change on its way through its steps.
type work struct {
	server   *Server
	runner   runner
	fence    int64
	entry    *entry
	progress func(StepProgress)
	// undoing is true from when the change is being put back.
	undoing bool
	// last is what went through the gate last.
	last change.Step
	// hostIsBack is true when an earlier attempt has put the host back, and only the
	// claims may be left.
	hostIsBack bool
	// left is true when a VM has moved to another node with what was made of it, or VMs hold what
	// was made of a GPU.
	left bool
	// waits is true when the change stays in the journal, since something waits until the host is in
	// its cluster again.
	waits bool
	// unrecorded is true when the change had not come to write its claim.
	unrecorded bool
	// untouched is the host as it was read for a change that only concerns claims, nil for any other: there is nothing to read back.
	untouched *gpu.Host
}

func (s *Server) work(fence int64, e *entry, progress func(StepProgress)) *work {
	if progress == nil {
		progress = func(StepProgress) {}
	}
	w := &work{server: s, fence: fence, entry: e, progress: progress}
	w.runner = runner{
		host:    s.backend,
		timeout: s.stepTimeout,
		gate: func(ctx context.Context, step change.Step) error {
			if err := s.pass(ctx, fence, w.undoing); err != nil {
				return err
			}
			s.touched()
			w.last = step
			return nil
		},
		claims: func(ctx context.Context, step change.Step) error { return s.recordClaim(ctx, fence, step) },
	}
	return w
}

// make runs the steps. ctx only says whether to go on: a step that has begun ends by
// its own means, because one that is cut off in the middle leaves a host that nobody
// knows.
func (w *work) make(ctx context.Context, expected gpu.Host, ch *Change) (Outcome, error) {
	detached := context.WithoutCancel(ctx)
	defer w.server.touched()
	rest := w.entry.Steps
	for {
		if ctx.Err() != nil {
			return w.fail(detached, &Error{Code: Cancelled, Message: "the change was cancelled"})
		}
		local := 0
		for local < len(rest) && isLocal(rest[local]) {
			local++
		}
		if local == len(rest) {
			break // the write that ends the change makes them
		}
		now := rest[:local+1]
		rest = rest[len(now):]
		// Written before the step, so that a step that may have run is known to be one;
		// after it nothing needs to be written, since what puts it back also fits then.
		begun := w.entry.Begun
		w.entry.Begun += len(now)
		if err := w.server.record(detached, w.fence, w.entry, now[:local]...); err != nil {
			w.entry.Begun = begun + local // it may have been written all the same
			return w.fail(detached, failure("write the journal", err))
		}
		w.tell(begun, now)
		if err := w.runner.run(detached, now[local]); err != nil {
			return w.fail(detached, stepFailed(now[local], err))
		}
	}
	if err := w.derive(detached); err != nil {
		return w.fail(detached, failure("write the journal", err))
	}
	w.tell(w.entry.Begun, rest)
	host, wrong, err := w.look(detached, &expected, rest, ch.Want.Assignment)
	if err != nil {
		return w.fail(detached, failure("read the host back after the change", err))
	}
	if len(wrong) > 0 {
		return w.fail(detached, &Error{
			Code: StepFailed, Step: "read the host back",
			Message: "the host does not show what was wanted although every step succeeded: " + strings.Join(wrong, "; "),
		})
	}
	w.entry.Status, w.entry.Begun = applied, len(w.entry.Steps)
	err = w.server.dropStartedTogether(detached, w.fence, &host, w.entry)
	if err != nil {
		w.entry.Status = running
		return w.fail(detached, failure("write the records of the cluster", err))
	}
	err = w.server.rewrite(detached, w.fence, w.entry, func(st *backend.State) bool {
		st.Claims = edited(st.Claims, rest)
		// The host shows what was wanted: VMs that the change stops and does not start stay off.
		st.PendingStarts = slices.DeleteFunc(slices.Clone(st.PendingStarts), func(d gpu.PendingStart) bool { return w.entry.stops(d.VM) })
		dropStarted(st, &host)
		return !ch.Keep
	})
	if err != nil {
		w.entry.Status = running
		return w.fail(detached, failure("write the journal", err))
	}
	return Outcome{Host: host, Done: w.entry.Steps}, nil
}

// tell says which steps come now, after so many.
func (w *work) tell(begun int, steps []change.Step) {
	for i, step := range steps {
		w.progress(StepProgress{Index: begun + i + 1, Total: len(w.entry.Steps), Text: step.String()})
	}
}

// edited are claims after steps that only concern claims.
func edited(claims []gpu.Claim, steps []change.Step) []gpu.Claim {
	for _, step := range steps {
		claims = editClaims(claims, step)
	}
	return claims
}

// look reads the host back after the change, and compares it with what was expected, once the claims
// are written that are left. Nothing is put back for what may be old.
func (w *work) look(ctx context.Context, expected *gpu.Host, left []change.Step, wanted *gpu.Assignment) (host gpu.Host,
	wrong []string, err error,
) {
	compare := func() []string {
		host.Claims = edited(host.Claims, left)
		wrong := change.Verify(expected, &host, w.entry.Steps)
		starts := slices.ContainsFunc(w.entry.Steps, func(s change.Step) bool { return s.Op == change.OpStartVM })
		if why := change.Undelivered(&host, wanted); why != "" && starts {
			wrong = append(wrong, why)
		}
		return wrong
	}
	if w.untouched != nil {
		host = *w.untouched
		return host, compare(), nil
	}
	if of, some := about(w.entry.Steps); some {
		var whole bool
		if host, whole, err = w.server.readAgain(ctx, of); err != nil {
			return host, nil, err
		}
		if wrong = compare(); whole || len(wrong) == 0 {
			return host, wrong, nil
		}
	}
	if host, err = w.server.inventory(ctx); err != nil {
		return host, nil, err
	}
	return host, compare(), nil
}

// derive has device nodes and specifications follow what the change has done, as far as they
// can. What is behind then is in the inventory, and the next change or reconcile tries again.
// It may take long: the error is that of the lease and the records after it.
func (w *work) derive(ctx context.Context) error {
	if !change.MovesDevices(w.entry.Steps) {
		return nil
	}
	_ = w.runner.run(ctx, change.Step{Op: change.OpRefreshDevices}) // the host remembers it
	return w.server.pass(ctx, w.fence, w.undoing)
}

func stepFailed(step change.Step, err error) *Error {
	var ae *Error
	if errors.As(err, &ae) && ae.Code == StaleFence {
		return ae
	}
	e := &Error{Code: StepFailed, Step: step.String(), Message: "could not " + step.String(), Cause: causeOf(err)}
	if e.Cause == nil {
		e.Message += ": " + err.Error()
	}
	return e
}

// fail puts back what was done and adds to the error how that went.
func (w *work) fail(ctx context.Context, e *Error) (Outcome, error) {
	if e.Code == StaleFence {
		// Whoever holds the lease now finds the journal and puts the change back; two
		// doing so at once would only get in each other's way.
		w.lostLease(ctx, e)
		return Outcome{}, e
	}
	out, err := w.putBack(ctx)
	if lost := staleFence(err); lost != nil {
		lost.Message = e.Error() + "; while it was put back " + lost.Message
		return Outcome{}, lost
	}
	if err != nil {
		out.Stands = append(out.Stands, err.Error())
	}
	e.Outcome = &out
	return Outcome{}, e
}

// putBack undoes the change and ends it in the journal, whether or not everything
// could be undone. It has its own time, whatever became of the caller.
func (w *work) putBack(ctx context.Context) (Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.server.undoTimeout)
	defer cancel()
	out := Outcome{}
	var err error
	if out.Done, out.Stands, err = w.undo(ctx); err != nil {
		return out, err
	}
	_ = w.derive(ctx)
	// The change has ended; a host that cannot be read now is no part of how.
	host := w.server.readBack(ctx)
	switch {
	case w.waits:
		out.Stands = append(out.Stands, errAway.Message)
	case onlyPaused(out.Done): // the journal has its node resumed
		out.Stands[len(out.Stands)-1] += "; " + isPaused
	default:
		if err := w.close(ctx, halfDone(out.Done), host); err != nil {
			return out, failure("write the journal", err)
		}
	}
	out.RolledBack = len(out.Stands) == 0
	if host != nil {
		if _, err := w.server.remember(ctx, host); err == nil {
			out.Host = *host
		}
	}
	return out, nil
}

// readBack is the host as it is after a change, nil when it cannot be read.
func (s *Server) readBack(ctx context.Context) *gpu.Host {
	host, err := s.readHost(ctx)
	if err != nil {
		return nil
	}
	return &host
}

// close takes the change out of the journal. What stands gets a claim that says so, and the
// start of a VM that does not run is still pending.
func (w *work) close(ctx context.Context, incomplete bool, now *gpu.Host) error {
	if err := w.server.dropStartedTogether(ctx, w.fence, now, nil); staleFence(err) != nil {
		return err
	}
	incomplete = incomplete || w.left
	if claim := w.entry.leaves(); incomplete && claim != nil && claim.Cluster != "" {
		if err := w.server.together(ctx, w.fence, func(st *backend.State) {
			st.Claims = putUnlessOthers(st.Claims, *claim, w.unrecorded)
		}); err != nil {
			return err
		}
		incomplete = false
	}
	return w.server.rewrite(ctx, w.fence, w.entry, func(st *backend.State) bool {
		if claim := w.entry.leaves(); incomplete && claim != nil {
			st.Claims = change.PutClaim(st.Claims, *claim)
		}
		dropStarted(st, now)
		return false
	})
}

// undo puts the steps back, the last one first. A step that cannot be put back does
// not keep the others from being tried: a VM that waits to be started again must not
// stay off for it. Where none waits, a later attempt goes on from there; and where a VM cannot
// be stopped, the others are started with what they have. It returns the steps that stand and
// why.
func (w *work) undo(ctx context.Context) (stand []change.Step, why []string, err error) {
	u, err := w.beginUndo(ctx)
	if err != nil {
		return nil, nil, err
	}
	total := w.entry.Begun
	for i := total - 1; i >= 0; i-- {
		step := w.entry.Steps[i]
		action := w.actionFor(u, step)
		switch action {
		case waitForHost:
			w.waits = true
			continue
		case letStand:
			u.stand = append(u.stand, step)
			continue
		case revertNothing, revertUnseen, revertAll:
		}
		failed := w.undoStep(ctx, step, revertedBy(action, w.entry.Undo[i]), i, total)
		if lost := staleFence(failed); lost != nil {
			w.lostLease(ctx, lost)
			return nil, nil, lost
		}
		if ends := w.noteUndone(u, i, failed); ends {
			break
		}
		if lost := staleFence(w.server.record(ctx, w.fence, w.entry)); lost != nil {
			w.lostLease(ctx, lost)
			return nil, nil, lost
		}
	}
	slices.Reverse(u.stand)
	return u.stand, u.why, nil
}

// undoing is how far the steps of a change are put back.
type undoing struct {
	gone, away func(change.Step) bool // what a step is on is on another host by now, or that host is not there
	stand      []change.Step          // the steps that stand, the last one first
	why        []string
	onlyStart  bool // nothing else is put back any more than that VMs are started
}

// undoAction is what undo does with a step. The first line that fits decides:
//
//	what the step is on is on a host that is not there      waitForHost
//	a VM could not be stopped, and the step stops none      letStand
//	a later step of the step's GPU stands                   letStand
//	what the step is on is another host's by now            revertNothing
//	a claim, of a change of which something is left behind  revertNothing
//	the host shows what it showed before the change         revertUnseen, but for claims
//	otherwise                                               revertAll
type undoAction int

const (
	waitForHost   undoAction = iota // a later attempt puts it back
	letStand                        // it cannot be put back in its order
	revertNothing                   // it counts as put back
	revertUnseen                    // only what no inventory shows is put back
	revertAll
)

func (w *work) actionFor(u *undoing, step change.Step) undoAction {
	ofItsGPU := func(s change.Step) bool { return s.GPU != "" && s.GPU == step.GPU }
	switch {
	case u.away != nil && u.away(step):
		return waitForHost
	case u.onlyStart && step.Op != change.OpStopVM, slices.ContainsFunc(u.stand, ofItsGPU):
		return letStand
	case u.gone(step), w.left && step.Op == change.OpPutClaim:
		return revertNothing
	case w.hostIsBack && step.Claim == nil:
		return revertUnseen
	}
	return revertAll
}

// revertedBy are the steps of an inverse that an action takes.
func revertedBy(action undoAction, inverse []change.Step) []change.Step {
	switch action {
	case revertAll:
		return inverse
	case revertUnseen:
		return slices.DeleteFunc(slices.Clone(inverse), func(s change.Step) bool { return s.IsShown() })
	case waitForHost, letStand, revertNothing:
	}
	return nil
}

// beginUndo finds out what is elsewhere, and stops the VMs again that the change has started.
func (w *work) beginUndo(ctx context.Context) (*undoing, error) {
	w.undoing = true
	u := &undoing{gone: w.server.elsewhere(ctx, w.entry), away: w.server.away(ctx, w.entry)}
	if u.away != nil {
		u.gone = u.away
	}
	begun := w.entry.Steps[:min(w.entry.Begun, len(w.entry.Steps))]
	w.left = w.entry.Left != "" || w.entry.leftBehind(u.gone)
	w.unrecorded = w.entry.Left == leftUnrecorded || w.entry.Left == "" &&
		!slices.ContainsFunc(begun, func(s change.Step) bool { return s.Op == change.OpPutClaim })
	step, err := w.stopAgain(ctx, u.gone)
	if lost := staleFence(err); lost != nil {
		w.lostLease(ctx, lost)
		return nil, lost
	}
	if err != nil {
		u.stand, u.why, u.onlyStart = append(u.stand, step), append(u.why, err.Error()), true
	}
	return u, nil
}

// noteUndone has the journal say how far the change is put back, and tells whether a later attempt goes
// on from here.
func (w *work) noteUndone(u *undoing, i int, failed error) (ends bool) {
	step := w.entry.Steps[i]
	if failed == nil {
		switch {
		case len(u.why) > 0: // a later attempt begins again where this one first failed
		case w.waits:
			w.entry.Undo[i] = nil // what waits was done later
		default:
			w.entry.Begun = i
			w.keepLeft()
		}
		return false
	}
	u.stand, u.why = append(u.stand, step), append(u.why, failed.Error())
	switch {
	case step.Op == change.OpStopVM: // it was to be started, which others do not wait for
	case slices.ContainsFunc(w.entry.Undo[:i], starts):
		w.entry.Restarted, u.onlyStart = true, u.onlyStart || step.Op == change.OpStartVM
	default:
		return w.comesAgain()
	}
	return false
}

// keepLeft has the journal say what is left behind, for the attempts that do not come back to the
// steps that told it. One that tries them again finds out for itself: what was in its way may be gone.
func (w *work) keepLeft() {
	switch {
	case !w.left || w.entry.Left != "":
	case w.unrecorded:
		w.entry.Left = leftUnrecorded
	default:
		w.entry.Left = leftRecorded
	}
}

// halfDone tells whether some of the steps that stand made something. A VM that only waits for its
// start has all that it had, and its claim says what that is.
func halfDone(stand []change.Step) bool {
	return slices.ContainsFunc(stand, func(s change.Step) bool { return s.Op != change.OpStopVM })
}

// onlyPaused tells whether all that stands is that the node is not resumed.
func onlyPaused(stand []change.Step) bool {
	return len(stand) == 1 && stand[0].Op == change.OpDrainNode
}

// isPaused says that a node stays paused, and what to do.
const isPaused = "the node stays paused: the next apply that changes something on this host resumes it, and so does `gpu-agent " +
	"reconcile` there; or run `Resume-ClusterNode`"

// comesAgain tells whether there will be another attempt at putting the change back.
func (w *work) comesAgain() bool { return w.entry.Attempts > 0 && w.entry.Attempts < maxAttempts }

// again are the steps that stop the VMs that a failed attempt has started.
func (e *entry) again() (stops []change.Step) {
	for i := range min(e.Begun, len(e.Undo)) {
		if e.Restarted && e.Steps[i].Op == change.OpStopVM && starts(e.Undo[i]) {
			stops = append(stops, e.Steps[i])
		}
	}
	return stops
}

// stopAgain stops the VMs that an attempt before has started although it failed.
func (w *work) stopAgain(ctx context.Context, gone func(change.Step) bool) (change.Step, error) {
	if w.hostIsBack {
		return change.Step{}, nil
	}
	for _, step := range w.entry.again() {
		if gone(step) || w.server.taken(ctx, step) {
			continue
		}
		if err := w.runner.run(ctx, step); err != nil {
			return step, fmt.Errorf("%s once more: %w", step, err)
		}
	}
	w.entry.Restarted = false
	return change.Step{}, nil
}

// undoStep puts back the step at an index, of as many as are put back in all.
func (w *work) undoStep(ctx context.Context, step change.Step, inverse []change.Step, at, total int) error {
	for k, back := range inverse {
		if back.Op == change.OpSetPartitionCount && w.entry.Attempts > 0 && w.server.taken(ctx, back) {
			w.left = true
			continue
		}
		w.progress(StepProgress{Index: total - at, Total: total, Text: back.String(), Undo: true})
		run := func() error { return w.runner.run(ctx, back) }
		if back.Op == change.OpStartVM {
			if w.entry.Attempts > 0 && w.server.taken(ctx, back) {
				continue // one that people have paused since stays so
			}
			if err := w.server.again(ctx, run); err != nil {
				return fmt.Errorf("%s, since it was not possible to %s: %w; %s", step, back, err, isOff(back.VMName()))
			}
			continue
		}
		if err := run(); err != nil && !lostMeanwhile(back, err) {
			if w.entry.Attempts > 0 {
				switch host := w.server.readBack(ctx); {
				case host == nil:
				case w.entry.isDone(host, back, inverse[k+1:], at, err):
					continue
				case back.TakenSince(host):
					w.left = true
					continue
				}
			}
			return fmt.Errorf("%s, since it was not possible to %s: %w", step, back, err)
		}
	}
	return nil
}

// taken is Step.TakenSince on the host as it is now. Where it is so, the record of the change says that it is
// not complete, and the next apply goes on from there.
func (s *Server) taken(ctx context.Context, back change.Step) bool {
	host := s.readBack(ctx)
	return host != nil && back.TakenSince(host)
}

// lostMeanwhile tells whether a daemon or a share cannot be put back because what it is on
// is gone, as a reboot does. The claims tell what is to be there, and Reconcile brings it
// back with what it is on.
func lostMeanwhile(back change.Step, err error) bool {
	cause := causeOf(err)
	return (back.Op == change.OpEnsureDaemon || back.Op == change.OpWriteShare) && cause != nil && cause.Code == backend.NotFound
}

func staleFence(err error) *Error {
	var ae *Error
	if errors.As(err, &ae) && ae.Code == StaleFence {
		return ae
	}
	return nil
}
