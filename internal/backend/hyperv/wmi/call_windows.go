package wmi

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// pending is a call under way.
type pending struct {
	op   string
	done chan struct{}
	err  error
}

func (p *pending) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// queue remembers calls whose callers have gone. A call into COM cannot be taken
// back, and what it does it may still do, so nothing new begins before it has ended.
type queue struct {
	mu        sync.Mutex
	abandoned []*pending
}

func (q *queue) abandon(p *pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abandoned = append(q.abandoned, p)
}

func (q *queue) first() *pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abandoned = slices.DeleteFunc(q.abandoned, (*pending).ended)
	if len(q.abandoned) == 0 {
		return nil
	}
	return q.abandoned[0]
}

// wait returns when no abandoned call is under way any more, or ctx ends.
func (q *queue) wait(ctx context.Context) error {
	for {
		p := q.first()
		if p == nil {
			return ctx.Err()
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return fmt.Errorf("an earlier call (%s) has not ended: %w", p.op, ctx.Err())
		}
	}
}

// do runs f on a goroutine of its own and returns when f has ended or ctx has,
// whichever is first.
func (c *connection) do(ctx context.Context, q *queue, op string, f func() error) error {
	if err := q.wait(ctx); err != nil {
		return fmt.Errorf("WMI: %s: %w", op, err)
	}
	if err := c.begin(); err != nil {
		return fault(op, err)
	}
	p := &pending{op: op, done: make(chan struct{})}
	go onStack(func() {
		defer close(p.done)
		p.err = fault(op, guard(f))
		if err := guard(func() error { c.end(); return nil }); err != nil && p.err == nil {
			p.err = fault(op, err)
		}
	})
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		q.abandon(p)
		return fmt.Errorf("WMI: %s: the host has not answered: %w", op, ctx.Err())
	}
}
