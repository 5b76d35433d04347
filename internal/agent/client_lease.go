package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
)

// heldLease is the lease that a client holds. It is renewed while nothing is written
// under it: a change may wait for other hosts, or for other changes of its run, for
// longer than a lease lives.
type heldLease struct {
	mu    sync.Mutex
	fence int64
	stop  context.CancelFunc // nil when none is held
}

// begin has another lease renewed from now on.
func (h *heldLease) begin(fence int64, renew func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop()
	h.fence, h.stop = fence, stop
	go renew(ctx)
}

func (h *heldLease) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop()
}

func (h *heldLease) endOf(fence int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fence == fence {
		h.drop()
	}
}

func (h *heldLease) drop() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// AcquireLease gives the run the right to change the host, waiting for another
// holder as long as the request says. The run that holds it gets it again. The client
// renews it until it is released, the client closed or its process dead.
func (c *Client) AcquireLease(ctx context.Context, req LeaseRequest) (fence int64, err error) {
	r, err := c.rpc.AcquireLease(ctx, &agentpb.AcquireLeaseRequest{
		Run: req.Run, Owner: req.Owner, Holder: req.Holder, TtlMs: req.TTL.Milliseconds(), WaitMs: req.Wait.Milliseconds(), Cluster: req.Cluster,
	})
	if err != nil {
		return 0, fromStatus(c.host, err)
	}
	fence = r.GetFence()
	if req.TTL > 0 {
		c.held.begin(fence, func(ctx context.Context) { c.renew(ctx, fence, req.TTL/3) })
	}
	return fence, nil
}

// renew renews a lease until it is lost or the connection has ended. Another failure
// may pass.
func (c *Client) renew(ctx context.Context, fence int64, every time.Duration) {
	tick := time.NewTicker(max(every, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		_, err := c.rpc.RenewLease(ctx, &agentpb.RenewLeaseRequest{Fence: fence})
		if err == nil {
			continue
		}
		if e, ok := errors.AsType[*Error](fromStatus(c.host, err)); ok && (e.Code == StaleFence || e.Broken()) {
			return
		}
	}
}

// ReleaseLease gives the lease back. It succeeds when the lease is gone already.
func (c *Client) ReleaseLease(ctx context.Context, fence int64) error {
	c.held.endOf(fence)
	_, err := c.rpc.ReleaseLease(ctx, &agentpb.ReleaseLeaseRequest{Fence: fence})
	return fromStatus(c.host, err)
}
