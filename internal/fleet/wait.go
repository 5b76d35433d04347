package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// How long one resource of a run waits for others, since Terraform tells nobody what is still to come.
const (
	// DefaultPatience is how long a change that finds no room waits while nothing else of its run is under way, and how
	// long a run waits in all for what takes over the objects that end. If it is too short, an apply is refused for room
	// that another resource of the run frees a moment later, and a VM is stopped twice where its resource has got another
	// name. If it is too long, a run that is bound to be refused takes so much longer.
	DefaultPatience = 3 * time.Second
	// lullsInPatience makes the lull after which one end goes on for which no successor came: 300 ms of DefaultPatience,
	// and less where a test has less of it. If a lull is too short, it is over before Terraform has begun with the
	// successor, and the object is made again instead of handed over. If it is too long, each resource that ends
	// without a successor waits that long, one after the other with -parallelism=1.
	lullsInPatience = 10
)

// waits lets the changes of one run wait for each other. Terraform orders them by
// references alone: what takes room may come before what gives it up.
type waits struct {
	patience time.Duration

	mu    sync.Mutex
	busy  int           // changes under way that do not wait
	made  int           // changes that ended well
	until time.Time     // when patience ends unless busy or made change before
	bell  chan struct{} // closed when they change
}

func newWaits(patience time.Duration) *waits {
	return &waits{patience: patience, bell: make(chan struct{})}
}

func (w *waits) note(busy, made int) {
	w.busy, w.made, w.until = w.busy+busy, w.made+made, time.Now().Add(w.patience)
	close(w.bell)
	w.bell = make(chan struct{})
}

// change does a change. One that is refused, untouched, for what another resource has is
// tried again when another change of the run has ended well. It gives up once nothing
// else has been under way for a while: at a parallelism of 1 nothing can.
func (w *waits) change(ctx context.Context, do func() error) error {
	w.mu.Lock()
	w.note(1, 0)
	made := w.made
	w.mu.Unlock()
	for {
		err := do()
		w.mu.Lock()
		if !passes(err) || !w.await(ctx, made) {
			if err == nil {
				w.note(-1, 1)
			} else {
				w.note(-1, 0)
			}
			w.mu.Unlock()
			if failure, ok := errors.AsType[*Failure](err); ok {
				failure.Waited = passes(err)
			}
			return err
		}
		made = w.made
		w.mu.Unlock()
	}
}

// await waits until a change has ended well since so many had. It is called and returns
// with the lock, and busy counts the caller.
func (w *waits) await(ctx context.Context, made int) bool {
	w.note(-1, 0)
	defer w.note(1, 0)
	for w.made == made {
		idle := time.Until(w.until)
		if w.busy == 0 && idle <= 0 {
			return false // the others begin to wait anew: the place of this one may let in what they wait for
		}
		bell := w.bell
		w.mu.Unlock()
		var timer <-chan time.Time
		if idle > 0 {
			timer = time.After(idle)
		}
		select {
		case <-bell:
		case <-timer:
		case <-ctx.Done():
		}
		w.mu.Lock()
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// passes tells whether a change was refused, before it touched anything, for what another
// change of the run may take away.
func passes(err error) bool {
	failure, ok := errors.AsType[*Failure](err)
	if !ok || failure.Begun() {
		return false
	}
	ae, ok := errors.AsType[*agent.Error](err)
	if !ok || ae.Code != agent.RuleViolation {
		return ok && ae.Code == agent.Refused && ae.Cause != nil && (ae.Cause.Code == backend.Insufficient || ae.Cause.Code == backend.InUse)
	}
	for _, x := range ae.Findings {
		if x.Level == rules.Error && !rules.Passes(x.Rule) {
			return false
		}
	}
	return true
}
