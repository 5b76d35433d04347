package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
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

	// turn lets one change at a time through, in the order in which they asked.
	turn    *semaphore.Weighted
	waiting atomic.Int64
	// fence is the lease that the holder of the turn has, 0 for none.
	fence int64

	mu   sync.Mutex
	conn Conn
	// generation counts the writes. An inventory that began before a write is not
	// kept after it.
	generation int
	seen       *gpu.Host
}

func newHost(name string, ep Endpoint, applying *atomic.Bool) *host {
	return &host{name: name, endpoint: ep, applying: applying, turn: semaphore.NewWeighted(1)}
}

// connect dials once and keeps the connection. A failure is not kept: the next
// caller tries again.
func (h *host) connect(ctx context.Context) (Conn, error) {
	c, err, _ := h.flight.Do("connect", func() (any, error) {
		h.mu.Lock()
		c := h.conn
		h.mu.Unlock()
		if c != nil {
			return c, nil
		}
		c, err := h.endpoint.Dial(ctx, h.applying.Load())
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		h.conn = c
		h.mu.Unlock()
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	conn, _ := c.(Conn)
	return conn, nil
}

// drop forgets a connection that has broken, so that the next call dials again.
func (h *host) drop(broken Conn) {
	h.mu.Lock()
	if h.conn == broken {
		h.conn = nil
	}
	h.mu.Unlock()
	_ = broken.Close() // it has ended already
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
		h.mu.Lock()
		seen := h.seen
		h.mu.Unlock()
		if seen != nil {
			return seen, nil
		}
		_, err, _ := h.flight.Do("inventory", func() (any, error) {
			// One caller's cancellation must not fail the others that share the flight.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), inventoryTimeout)
			defer cancel()
			if err := parallel.Acquire(ctx, 1); err != nil {
				return nil, err
			}
			defer parallel.Release(1)
			h.mu.Lock()
			began, again := h.generation, h.seen != nil
			h.mu.Unlock()
			if again {
				return nil, nil
			}
			var fresh gpu.Host
			if _, err := h.ask(ctx, func(conn Conn) (err error) { fresh, err = conn.Inventory(ctx); return err }); err != nil {
				return nil, err
			}
			h.keep(&fresh, began)
			return nil, nil
		})
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// keep stores an inventory unless the host was written to since it began.
func (h *host) keep(fresh *gpu.Host, began int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.generation == began {
		h.seen = fresh
	}
}

// wrote starts a new generation. fresh is the host as the write left it, or nil
// when that is not known.
func (h *host) wrote(fresh *gpu.Host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.generation++
	h.seen = fresh
}

// enter waits for this host's turn and for its lease.
func (h *host) enter(ctx context.Context, req agent.LeaseRequest) (Conn, error) {
	h.waiting.Add(1)
	err := h.turn.Acquire(ctx, 1)
	h.waiting.Add(-1)
	if err != nil {
		return nil, err
	}
	conn, err := h.lease(ctx, req)
	if err != nil {
		h.turn.Release(1)
	}
	return conn, err
}

// lease takes the host's lease, or renews what this run holds already.
func (h *host) lease(ctx context.Context, req agent.LeaseRequest) (Conn, error) {
	return h.ask(ctx, func(conn Conn) (err error) {
		h.fence, err = conn.AcquireLease(ctx, req)
		return err
	})
}

// leave passes the turn on. The lease goes back only when nobody in this run waits
// for the host, so that a run is not interleaved with another one.
func (h *host) leave(ctx context.Context, conn Conn) error {
	defer h.turn.Release(1)
	if h.waiting.Load() > 0 {
		return nil
	}
	fence := h.fence
	h.fence = 0
	return conn.ReleaseLease(ctx, fence)
}

func (h *host) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == nil {
		return nil
	}
	err := h.conn.Close()
	h.conn = nil
	return err
}
