package agent

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Client talks to the agent of one host over any connection. Its errors are *Error.
type Client struct {
	conn grpc.ClientConnInterface
	rpc  agentpb.AgentClient
	host string
	// version is what the client calls itself in Hello.
	version string
	held    heldLease
}

// ClientOption configures a client.
type ClientOption func(*Client)

// WithClientVersion says which version of the client Hello names.
func WithClientVersion(version string) ClientOption {
	return func(c *Client) { c.version = version }
}

// NewClient makes a client. host is the provider's name for the host, for errors.
func NewClient(conn grpc.ClientConnInterface, host string, opts ...ClientOption) *Client {
	c := &Client{conn: conn, rpc: agentpb.NewAgentClient(conn), host: host, version: unversioned}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Close closes the connection that the client was made with.
func (c *Client) Close() error {
	c.held.end()
	if closer, ok := c.conn.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Hello introduces both ends and fails when they speak different protocols.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	r, err := c.rpc.Hello(ctx, &agentpb.HelloRequest{Protocol: Protocol, ClientVersion: c.version})
	if err != nil {
		return Hello{}, fromStatus(c.host, err)
	}
	h := Hello{Protocol: int(r.GetProtocol()), AgentVersion: r.GetAgentVersion(), Platform: r.GetPlatform(), HostName: r.GetHostName(), Role: Role(r.GetRole())}
	if h.Protocol != Protocol {
		e := mismatch(Protocol, c.version, h.Protocol, h.AgentVersion)
		e.Host = c.host
		return h, e
	}
	return h, nil
}

// Inventory reads the whole host and the claims on it.
func (c *Client) Inventory(ctx context.Context) (gpu.Host, error) {
	r, err := c.rpc.Inventory(ctx, &agentpb.InventoryRequest{})
	if err != nil {
		return gpu.Host{}, fromStatus(c.host, err)
	}
	var h gpu.Host
	return h, c.read("inventory", r.GetHost(), &h)
}

// Prepare says what a change would do, and touches nothing.
func (c *Client) Prepare(ctx context.Context, ch Change) (Prepared, error) {
	doc, err := encodeChange(ch)
	if err != nil {
		return Prepared{}, err
	}
	r, err := c.rpc.Prepare(ctx, &agentpb.PrepareRequest{Change: doc})
	if err != nil {
		return Prepared{}, fromStatus(c.host, err)
	}
	var p Prepared
	return p, c.read("prepared change", r.GetPrepared(), &p)
}

// encodeChange writes a change, unless the host would refuse it for its size.
func encodeChange(ch Change) ([]byte, error) {
	doc, err := encode("change", ch)
	if err != nil {
		return nil, err
	}
	return doc, checkSize("change", doc)
}

// How long a cancelled Apply waits for the host: to hear of the change and of its
// end, and to put everything back. The second covers the host's own budget
// (defaultUndoTimeout).
const (
	cancelTimeout = 30 * time.Second
	cancelGrace   = 45 * time.Minute
)

// Apply makes a prepared change. When ctx ends it does not hang up: it asks the host
// to stop after the present step and to undo, and returns how that ended.
func (c *Client) Apply(ctx context.Context, fence int64, ch Change, basis string, progress func(StepProgress)) (Outcome, error) {
	doc, err := encodeChange(ch)
	if err != nil {
		return Outcome{}, err
	}
	if ctx.Err() != nil {
		return Outcome{}, &Error{Kind: Cancelled, Host: c.host, Message: "the call was cancelled"}
	}
	callCtx, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	heard := make(chan struct{})
	stopWatching := context.AfterFunc(ctx, func() { c.cancel(callCtx, ch.ID, heard, hangUp) })
	defer stopWatching()
	stream, err := c.rpc.Apply(callCtx, &agentpb.ApplyRequest{Fence: fence, Change: doc, Basis: basis})
	if err != nil {
		return Outcome{}, c.unheard(err)
	}
	// The server sends its header as soon as Cancel can find the change. What goes
	// wrong here is told by Recv.
	_, _ = stream.Header()
	close(heard)
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return Outcome{}, &Error{Kind: Unavailable, Host: c.host, Message: "the host ended the change without saying how"}
		}
		if err != nil {
			return Outcome{}, c.unheard(err)
		}
		switch {
		case ev.GetStep() != nil:
			if progress != nil {
				s := ev.GetStep()
				progress(StepProgress{Index: int(s.GetIndex()), Total: int(s.GetTotal()), Text: s.GetText(), Undo: s.GetUndo()})
			}
		case ev.GetOutcome() != nil:
			var out Outcome
			if err := c.read("outcome", ev.GetOutcome(), &out); err != nil {
				return Outcome{}, c.unheard(err)
			}
			return out, nil
		}
	}
}

// unheard is the error of a change of which the host's last word was not heard: the
// stream broke off, the call was given up here, or the word cannot be read. None of
// them means that the host touched nothing.
func (c *Client) unheard(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{Kind: Unavailable, Host: c.host, Message: "how the change ended cannot be read: " + e.Message, transport: err}
	}
	failed := fromStatus(c.host, err)
	if !errors.As(failed, &e) || e.transport == nil {
		return failed
	}
	switch e.Kind {
	case Cancelled:
		e.Kind, e.Message = Unavailable, "the call was given up before the host said how the change ended"
	case Internal:
		e.Kind = Unavailable
	}
	return failed
}

// cancel asks the host to stop a change as soon as the host has heard of it, and
// hangs up when it does not hear or does not end: the agent undoes what it began when
// the connection is gone.
func (c *Client) cancel(callCtx context.Context, changeID string, heard <-chan struct{}, hangUp func()) {
	defer hangUp()
	ctx, done := context.WithTimeout(callCtx, cancelTimeout)
	defer done()
	select {
	case <-heard:
	case <-ctx.Done():
		return
	}
	if _, err := c.rpc.Cancel(ctx, &agentpb.CancelRequest{ChangeId: changeID}); err != nil {
		return
	}
	grace, end := context.WithTimeout(callCtx, cancelGrace)
	defer end()
	<-grace.Done() // Apply returned, or the time is over
}

// Settle ends an applied change: it is kept, or undone because another host failed.
// The outcome holds the host only when something was undone.
func (c *Client) Settle(ctx context.Context, fence int64, changeID string, undo bool) (Outcome, error) {
	r, err := c.rpc.Settle(ctx, &agentpb.SettleRequest{Fence: fence, ChangeId: changeID, Undo: undo})
	if err != nil {
		return Outcome{}, fromStatus(c.host, err)
	}
	var out Outcome
	return out, c.read("outcome", r.GetOutcome(), &out)
}

// Claims lists the claims on the host without reading the host itself.
func (c *Client) Claims(ctx context.Context) ([]gpu.Claim, error) {
	r, err := c.rpc.Claims(ctx, &agentpb.ClaimsRequest{})
	if err != nil {
		return nil, fromStatus(c.host, err)
	}
	var claims []gpu.Claim
	return claims, c.read("list of claims", r.GetClaims(), &claims)
}

// ForgetClaim drops one claim, under the lease. What it stands for stays as it is.
func (c *Client) ForgetClaim(ctx context.Context, fence int64, kind gpu.ClaimKind, id string) error {
	_, err := c.rpc.ForgetClaim(ctx, &agentpb.ForgetClaimRequest{Fence: fence, Kind: string(kind), Id: id})
	return fromStatus(c.host, err)
}

// Journal lists the changes that are not settled, and says who holds the lease.
func (c *Client) Journal(ctx context.Context) (Journal, error) {
	r, err := c.rpc.Journal(ctx, &agentpb.JournalRequest{})
	if err != nil {
		return Journal{}, fromStatus(c.host, err)
	}
	var j Journal
	return j, c.read("journal", r.GetJournal(), &j)
}

func (c *Client) read(what string, doc []byte, into any) error {
	if err := decode(what, doc, into); err != nil {
		return &Error{Kind: Internal, Host: c.host, Message: err.Error()}
	}
	return nil
}
