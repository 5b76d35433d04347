package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Client talks to the agent of one host over any connection. Its errors are *Error.
type Client struct {
	conn grpc.ClientConnInterface
	rpc  agentpb.AgentClient
	host string
	// version is what the client calls itself in Hello.
	version string
	agent   Hello
	held    heldLease
}

// ClientOption configures a client.
type ClientOption func(*Client)

// WithClientVersion says which version of the client Hello names.
func WithClientVersion(version string) ClientOption {
	return func(c *Client) { c.version = version }
}

// WithHello says what the agent said of itself when the connection was made.
func WithHello(h Hello) ClientOption { return func(c *Client) { c.agent = h } }

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

// Hello introduces both ends and fails when there is no protocol that both speak.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	r, err := c.rpc.Hello(ctx, &agentpb.HelloRequest{Protocol: Protocol, OldestProtocol: OldestProtocol, ClientVersion: c.version},
		grpc.MaxCallRecvMsgSize(introduction))
	if err != nil {
		return Hello{}, fromStatus(c.host, err)
	}
	h := Hello{
		Protocol: int(r.GetProtocol()), AgentVersion: said(r.GetAgentVersion()), Platform: said(r.GetPlatform()),
		HostName: said(r.GetHostName()), Role: Role(said(r.GetRole())),
		Capabilities: r.GetCapabilities(),
	}
	if _, err := agree(spoken, c.version, protocols{oldest: h.Protocol, newest: h.Protocol}, h.AgentVersion); err != nil {
		return h, fromStatus(c.host, toStatus(err))
	}
	c.agent = h
	return h, nil
}

// Agent is what the agent said of itself, the zero value when nobody asked.
func (c *Client) Agent() Hello { return c.agent }

// Inventory reads the whole host and the claims on it.
func (c *Client) Inventory(ctx context.Context) (h gpu.Host, err error) {
	err = ask(ctx, c, c.rpc.Inventory, &agentpb.InventoryRequest{}, func(r *agentpb.InventoryReply) error {
		return c.readHost("inventory", r.GetHost(), &h, &h, "claims[")
	})
	return h, err
}

// Prepare says what a change would do, and touches nothing.
func (c *Client) Prepare(ctx context.Context, ch Change) (p Prepared, err error) {
	doc, err := encodeChange(ch)
	if err != nil {
		return Prepared{}, err
	}
	err = ask(ctx, c, c.rpc.Prepare, &agentpb.PrepareRequest{Change: doc}, func(r *agentpb.PrepareReply) error {
		return c.readStrictly("prepared change", r.GetPrepared(), &p)
	})
	gpu.SayPlainly(p.Findings)
	return p, err
}

// largeAnswers lets few large answers at a time into this process, of all hosts: what it takes to
// receive them adds up to little.
var largeAnswers = make(gate, 3)

// ask makes a call that may be repeated, and reads its answer. A large answer is asked for once
// more, in its turn.
func ask[Q, A any](ctx context.Context, c *Client, call func(context.Context, Q, ...grpc.CallOption) (A, error),
	of Q, read func(A) error,
) error {
	answer, err := call(ctx, of, grpc.MaxCallRecvMsgSize(usualReply))
	if status.Code(err) == codes.ResourceExhausted {
		leave, given := largeAnswers.pass(ctx)
		if given != nil {
			return fromStatus(c.host, status.FromContextError(ctx.Err()).Err())
		}
		defer leave()
		answer, err = call(ctx, of)
	}
	if err != nil {
		return fromStatus(c.host, err)
	}
	return read(answer)
}

// encodeChange writes a change, unless the host would refuse it for its size.
func encodeChange(ch Change) ([]byte, error) {
	doc := document.Encode(ch)
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
		return Outcome{}, &Error{Code: Cancelled, Host: c.host, Message: "the call was cancelled"}
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
			return Outcome{}, &Error{Code: Unavailable, Host: c.host, Message: "the host ended the change without saying how"}
		}
		if err != nil {
			return Outcome{}, c.unheard(err)
		}
		switch {
		case ev.GetStep() != nil:
			if progress != nil {
				s := ev.GetStep()
				progress(StepProgress{Index: int(s.GetIndex()), Total: int(s.GetTotal()), Text: said(s.GetText()), Undo: s.GetUndo()})
			}
		case ev.GetOutcome() != nil:
			var out Outcome
			if err := c.readHost("outcome", ev.GetOutcome(), &out, &out.Host, "host.claims["); err != nil {
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
		return &Error{Code: Unavailable, Host: c.host, Message: "how the change ended cannot be read: " + e.Message, transport: err}
	}
	failed := fromStatus(c.host, err)
	if !errors.As(failed, &e) || e.transport == nil {
		return failed
	}
	if e.Code == Cancelled {
		e.Message = "the call was given up before the host said how the change ended"
	}
	if e.Code == Cancelled || e.Code == BadReply {
		e.Code = Unavailable
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
	err = c.readHost("outcome", r.GetOutcome(), &out, &out.Host, "host.claims[")
	return out, err
}

// Claims lists the claims on the host without reading the host itself.
func (c *Client) Claims(ctx context.Context) (claims []gpu.Claim, err error) {
	err = ask(ctx, c, c.rpc.Claims, &agentpb.ClaimsRequest{}, func(r *agentpb.ClaimsReply) error {
		return c.read("list of claims", r.GetClaims(), &claims)
	})
	return claims, err
}

// ForgetClaim drops one claim, under the lease. What it stands for stays as it is.
func (c *Client) ForgetClaim(ctx context.Context, fence int64, kind gpu.ClaimKind, id string) error {
	_, err := c.rpc.ForgetClaim(ctx, &agentpb.ForgetClaimRequest{Fence: fence, Kind: string(kind), Id: id})
	return fromStatus(c.host, err)
}

// Journal lists the changes that are not settled, and says who holds the lease.
func (c *Client) Journal(ctx context.Context) (j Journal, err error) {
	err = ask(ctx, c, c.rpc.Journal, &agentpb.JournalRequest{}, func(r *agentpb.JournalReply) error {
		return c.read("journal", r.GetJournal(), &j)
	})
	gpu.SayPlainly(&j)
	return j, err
}

// read reads an answer that only informs. What a newer agent says beyond what this client
// knows is left out: nothing is decided by it here, and the agent decides by all that it
// knows.
func (c *Client) read(what string, doc []byte, into any) error {
	return c.readLimited(what, doc, func() error { return document.ReadKnown(doc, into, nil) })
}

// readStrictly reads an answer by which the client decides: what a change would do, and what
// it would disturb.
func (c *Client) readStrictly(what string, doc []byte, into any) error {
	return c.readLimited(what, doc, func() error { return document.Read(doc, into) })
}

// readLimited reads an answer unless it would take much memory.
func (c *Client) readLimited(what string, doc []byte, read func() error) error {
	if over := largestReply.exceeded(doc); over != "" {
		return c.senseless("the %s is larger than any host's: it has %s", what, over)
	}
	err := read()
	if unknown, ok := errors.AsType[*document.UnknownError](err); ok {
		return &Error{Code: VersionMismatch, Host: c.host, Message: fmt.Sprintf(
			"this client (version %s) does not know %s of the %s of the agent (version %s); upgrade the client",
			c.version, said(unknown.Names()), what, c.agent.AgentVersion)}
	}
	if err != nil {
		return c.senseless("the %s cannot be read: %s", what, said(err.Error()))
	}
	return nil
}

// senseless is the error of an answer that no agent gives.
func (c *Client) senseless(format string, args ...any) error {
	return &Error{Code: BadReply, Host: c.host, Message: fmt.Sprintf(format, args...)}
}

// readHost reads an answer with a host in it, whose claims are at a path. Facts that this
// client does not know are left out, as in read. A claim that it knows in part is not: it
// would be taken for the whole, and written again without the rest. It counts as a record that
// cannot be read, beside which nothing is changed.
func (c *Client) readHost(what string, doc []byte, into any, host *gpu.Host, claims string) error {
	unknown := map[string][]string{} // of claims, by their places
	err := c.readLimited(what, doc, func() error {
		return document.ReadKnown(doc, into, func(path string) {
			rest, inside := strings.CutPrefix(path, claims)
			at, field, inClaim := strings.Cut(rest, "].")
			if inside && inClaim && len(unknown[at]) < mostFields {
				unknown[at] = append(unknown[at], field)
			}
		})
	})
	if err != nil {
		return err
	}
	if err := checkHost(host); err != nil {
		return c.senseless("the %s is none of a host: %v", what, err)
	}
	var whole []gpu.Claim
	for i, claim := range host.Claims {
		found, newer := "", false
		if fields := unknown[strconv.Itoa(i)]; len(fields) > 0 {
			found, newer = "this provider does not know its "+strings.Join(fields, ", "), true
		} else if err := checkClaim(&claim); err != nil {
			found = err.Error()
		}
		if found == "" {
			whole = append(whole, claim)
			continue
		}
		host.Unreadable = append(host.Unreadable, gpu.UnreadableRecord{
			Record: fmt.Sprintf("the claim for %s %s", claim.Kind, words.Name(claim.ID)), Newer: newer, Agent: c.agent.AgentVersion, Found: found,
		})
	}
	host.Claims = whole
	gpu.SayPlainly(host)
	return nil
}

// mostFields is how many unknown fields of a claim are named.
const mostFields = 12
