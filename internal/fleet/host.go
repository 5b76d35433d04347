package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// host is one host of the fleet: its connection, what it looked like last, and the
// queue of this run's changes to it.
type host struct {
	name     string
	endpoint Endpoint
	// applying tells whether this run changes hosts.
	applying *atomic.Bool
	flight   singleflight.Group

	// queue lets one change at a time through, in the order in which they asked.
	queue   *semaphore.Weighted
	waiting atomic.Int64
	// fence is the fencing token of the lease that the change at the head of the queue has, 0 for none, and leased the
	// connection that it was taken with.
	fence  int64
	leased Conn

	mu   sync.Mutex
	conn Conn
	// lacks is what the agent does not know of what this build may ask for, and version its
	// own.
	lacks   []string
	version string
	// generation counts the writes. An inventory that began before a write is not
	// kept after it.
	generation int
	seen       *gpu.Host
	saw        func(host string, h *gpu.Host) // hears of each other value of seen
	failed     *failedLook
	silent     error // why it did not answer the last look
	// cluster is the first cluster that the host was seen in, folded. It stays for the
	// run, since all changes of the run take their turns in one order.
	cluster string
}

// failedLook is why an inventory failed, for those who ask soon after.
type failedLook struct {
	err      error
	applying bool      // whether the run was applying then
	ends     time.Time // until when it counts; zero for as long as the run only plans
}

const (
	// dialTimeout bounds opening a connection, the upload of an agent included.
	dialTimeout      = 5 * time.Minute
	inventoryTimeout = 2 * time.Minute
	releaseTimeout   = 10 * time.Second
	// slowFailure is how long a failure takes that is remembered.
	slowFailure = time.Second
)

func newHost(name string, ep Endpoint, applying *atomic.Bool, saw func(string, *gpu.Host)) *host {
	return &host{name: name, endpoint: ep, applying: applying, saw: saw, queue: semaphore.NewWeighted(1)}
}

// share does work that several callers want at the same time once for all of them. It
// goes on when one of them gives up, the first one included.
func (h *host) share(ctx context.Context, what string, work func(context.Context) error) error {
	for {
		applying := h.applying.Load()
		done := h.flight.DoChan(what, func() (any, error) {
			began := h.applying.Load()
			return began, work(context.WithoutCancel(ctx))
		})
		select {
		case r := <-done:
			// An apply may bring an agent to the host. That a plan, which may not, found none
			// says nothing to it.
			if began, _ := r.Val.(bool); r.Err == nil || began == applying {
				return r.Err
			}
		case <-ctx.Done():
			return h.gaveUp("before the host had answered")
		}
	}
}

// gaveUp is the error of a caller whose run was cancelled.
func (h *host) gaveUp(when string) error {
	return &agent.Error{Code: agent.Cancelled, Host: h.name, Message: "the run was cancelled " + when}
}

// connect dials once and keeps the connection.
func (h *host) connect(ctx context.Context) (Conn, error) {
	for {
		if c := h.connected(); c != nil {
			return c, nil
		}
		if err := h.share(ctx, "connect", h.dial); err != nil {
			return nil, err
		}
	}
}

func (h *host) connected() Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.conn.(ForPlans); ok && h.applying.Load() {
		h.conn = nil
		go func() { _ = c.Close() }()
	}
	return h.conn
}

func (h *host) dial(ctx context.Context) error {
	if h.connected() != nil {
		return nil // since the caller looked
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := h.endpoint.Dial(ctx, h.applying.Load())
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn, h.lacks = c, nil
	switch c := c.(type) {
	case ForPlans: // an apply asks another
	case interface{ Agent() agent.Hello }:
		h.lacks, h.version = c.Agent().Lacks(), c.Agent().AgentVersion
	}
	return nil
}

// drop forgets a connection that has broken, so that the next call dials again.
func (h *host) drop(broken Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == broken {
		h.conn = nil
	}
	// An agent on this machine ends its change before it closes, which may take long.
	go func() { _ = broken.Close() }()
}

// ask makes a call that may be repeated. When the connection turns out to have ended
// since it was last used, it is opened again, once.
func (h *host) ask(ctx context.Context, call func(Conn) error) (Conn, error) {
	for again := false; ; again = true {
		conn, err := h.connect(ctx)
		if err != nil {
			return nil, err
		}
		if err = call(conn); err == nil {
			return conn, nil
		}
		if again || !broken(err) || ctx.Err() != nil {
			return nil, err
		}
		h.drop(conn)
	}
}

// broken tells whether the connection is why a call failed.
func broken(err error) bool {
	ae, ok := errors.AsType[*agent.Error](err)
	return ok && ae.Broken()
}

func (h *host) snapshot(ctx context.Context, parallel *semaphore.Weighted) (*gpu.Host, error) {
	for {
		if seen, err := h.known(); seen != nil || err != nil {
			return seen, err
		}
		if err := h.share(ctx, "inventory", func(ctx context.Context) error { return h.look(ctx, parallel) }); err != nil {
			return nil, err
		}
	}
}

// known is what the host looked like last, or why it could not be looked at a moment
// ago.
func (h *host) known() (*gpu.Host, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.failed; h.seen == nil && f != nil && f.applying == h.applying.Load() && (f.ends.IsZero() || time.Now().Before(f.ends)) {
		return nil, f.err
	}
	return h.seen, nil
}

// silence is why the host could not be looked at last, however long ago.
func (h *host) silence() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen != nil {
		return nil
	}
	return h.silent
}

// look takes an inventory. How long the hosts before it took is not held against it.
func (h *host) look(ctx context.Context, parallel *semaphore.Weighted) error {
	if err := parallel.Acquire(ctx, 1); err != nil {
		return err
	}
	defer parallel.Release(1)
	if seen, err := h.known(); seen != nil || err != nil {
		return err // since the caller looked
	}
	applying, start := h.applying.Load(), time.Now()
	h.mu.Lock()
	began := h.generation
	h.mu.Unlock()
	fresh, err := h.inventory(ctx)
	if err == nil {
		h.keep(fresh, began)
	} else {
		h.fail(err, applying, time.Since(start))
	}
	return err
}

// readAgain is the host as it is now. What is known of it stays.
func (h *host) readAgain(ctx context.Context, parallel *semaphore.Weighted) (*gpu.Host, error) {
	if err := parallel.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer parallel.Release(1)
	return h.inventory(ctx)
}

// inventory asks the host what it is like now.
func (h *host) inventory(ctx context.Context) (*gpu.Host, error) {
	var fresh gpu.Host
	_, err := h.ask(ctx, func(conn Conn) (err error) {
		ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
		defer cancel()
		fresh, err = conn.Inventory(ctx)
		return err
	})
	if err == nil {
		err = h.isWhere(&fresh)
	}
	return &fresh, err
}

// isWhere fails for a host that is not in the cluster that the configuration has it in: one of the
// two is wrong, and nothing is changed by it. A host that cannot read its cluster says neither.
func (h *host) isWhere(fresh *gpu.Host) error {
	said := h.endpoint.Cluster
	if _, dark := fresh.UnknownPart(gpu.PartCluster); said == "" || dark || gpu.SameID(said, fresh.ClusterName()) {
		return nil
	}
	is := "in no cluster"
	if c := fresh.ClusterName(); c != "" {
		is = fmt.Sprintf("a node of cluster %q", c)
	}
	return &connect.Error{
		Host: h.name, Code: connect.WrongCluster,
		Found: fmt.Sprintf("the host says that it is %s, and the provider's configuration has it in cluster %q", is, said),
		Fix:   "correct `cluster` of this host in `hosts` of the provider, or leave it out",
	}
}

// fail remembers why the host could not be looked at: for a while when that took long to
// find out, since hundreds of resources would else wait for it one after the other, and
// for the whole plan when only an apply can ask the host, or it does not answer sensibly.
func (h *host) fail(err error, applying bool, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed, h.silent = nil, err
	_, notYet := errors.AsType[*NotYetKnownError](err)
	ae, answered := errors.AsType[*agent.Error](err)
	switch {
	case (notYet || answered && ae.Code == agent.BadReply) && !applying: // which may be large, and would be the same again
		h.failed = &failedLook{err: err}
	case took > slowFailure:
		h.failed = &failedLook{err: err, applying: applying, ends: time.Now().Add(took)}
	}
}

// keep stores an inventory unless the host was written to since it began.
func (h *host) keep(fresh *gpu.Host, began int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(fresh)
	if h.generation == began {
		h.seen = fresh
		h.saw(h.name, fresh)
	}
}

// note remembers the host's cluster. The caller holds the lock.
func (h *host) note(fresh *gpu.Host) {
	if h.cluster == "" && fresh != nil {
		h.cluster = gpu.FoldID(fresh.ClusterName())
	}
}

// wrote starts a new generation. fresh is the host as the write left it, or nil
// when that is not known.
func (h *host) wrote(fresh *gpu.Host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(fresh)
	h.generation++
	h.seen = fresh
	h.saw(h.name, fresh)
}

// enter waits in this host's queue and for its lease. waits hears of another run that has
// the lease.
func (h *host) enter(ctx context.Context, req agent.LeaseRequest, waits func(*agent.Error)) (Conn, error) {
	h.waiting.Add(1)
	err := h.queue.Acquire(ctx, 1)
	h.waiting.Add(-1)
	if err != nil {
		h.giveBack(ctx) // whoever was before it may have left the lease to this change
		return nil, h.gaveUp("while this change waited for others of the same host")
	}
	atOnce := req
	atOnce.Wait = 0
	conn, err := h.lease(ctx, atOnce)
	if held, ok := errors.AsType[*agent.Error](err); ok && held.Code == agent.LeaseHeld {
		waits(held)
		conn, err = h.lease(ctx, req)
	}
	if err != nil {
		h.queue.Release(1)
	}
	return conn, err
}

// lease takes the host's lease, or renews what this run holds already.
func (h *host) lease(ctx context.Context, req agent.LeaseRequest) (Conn, error) {
	conn, err := h.ask(ctx, func(conn Conn) (err error) {
		h.fence, err = conn.AcquireLease(ctx, req)
		return err
	})
	h.leased = conn
	return conn, err
}

// leave lets the next change through, and passes the lease on with it.
func (h *host) leave(ctx context.Context) {
	h.queue.Release(1)
	h.giveBack(ctx)
}

// giveBack ends the lease when nobody in this run works on the host or waits for it,
// so that a run is not interleaved with another one. It goes over the connection that
// the lease was taken with: if that has broken, the agent behind it may still be at
// work under the lease, and gives it back itself.
func (h *host) giveBack(ctx context.Context) {
	if h.waiting.Load() > 0 || !h.queue.TryAcquire(1) {
		return
	}
	defer h.queue.Release(1)
	if h.leased == nil || h.fence == 0 {
		return
	}
	// The lease has to go back even when the run is being cancelled; one that does not
	// go back expires.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = h.leased.ReleaseLease(ctx, h.fence)
	h.fence = 0
}
