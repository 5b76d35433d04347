package agent

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Times that a host takes for itself, whatever the caller's patience.
const (
	// defaultStepTimeout bounds one step other than a guest's shutdown, which has the
	// VM's own timeout.
	defaultStepTimeout = 10 * time.Minute
	// defaultUndoTimeout bounds putting a whole change back.
	defaultUndoTimeout = 30 * time.Minute
)

// Server is the agent of one host.
type Server struct {
	backend backend.Backend
	store   recordStore
	name    string
	version string
	role    func(context.Context) (Role, error)
	clock   func() time.Time
	// bootClock is a clock that nobody sets and that runs on while the machine sleeps.
	bootClock func() time.Duration
	// worker names this process in the journal: an unfinished change of another
	// worker may still be going on.
	worker      string
	stepTimeout time.Duration
	undoTimeout time.Duration
	// startPatience is how long an undo tries to start a VM.
	startPatience time.Duration

	// busy lets one writer at a time through: two changes of one run queue here.
	busy chan struct{}
	// gates bound what callers can make the agent do at a time, readers too.
	gates gates

	mu      sync.Mutex
	running map[*calling]bool // the Apply calls in progress
	holds   map[int64]hold    // the leases that this process has, by fence
	last    *reading          // of the host
	// sightings are the leases of others: of the host under "", of a cluster under its name.
	sightings map[string]sighting

	// recoveries are the changes that lost their lease and are looked after.
	recoveries sync.WaitGroup
}

// Option configures a server.
type Option func(*Server)

// WithHostName says what the host calls itself, for Hello.
func WithHostName(name string) Option { return func(s *Server) { s.name = name } }

// unversioned is the version of a build that was told none.
const unversioned = "unknown"

// WithVersion says which version of the agent Hello names.
func WithVersion(version string) Option { return func(s *Server) { s.version = version } }

// WithRole decides for each call what its caller may do; an error refuses the call.
// Without it every caller is an operator. Given more than once, the least role counts.
func WithRole(role func(context.Context) (Role, error)) Option {
	return func(s *Server) {
		before := s.role
		s.role = func(ctx context.Context) (Role, error) {
			a, err := before(ctx)
			if err != nil || !a.Valid() {
				return a, err
			}
			b, err := role(ctx)
			if err != nil || !b.Valid() || b == Reader {
				return b, err
			}
			return a, nil
		}
	}
}

// WithClock replaces the clock that leases are measured with.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.clock = now } }

// WithBootClock replaces the clock by which the agent notices that it was stopped: the
// time since any moment, never set back, that runs on while the process, or the machine,
// stands still.
func WithBootClock(since func() time.Duration) Option { return func(s *Server) { s.bootClock = since } }

// WithTimeouts replaces how long one step, and putting a whole change back, may take.
func WithTimeouts(step, undo time.Duration) Option {
	return func(s *Server) { s.stepTimeout, s.undoTimeout = step, undo }
}

// WithStartPatience replaces how long putting a change back tries to start a VM again that
// does not start.
func WithStartPatience(d time.Duration) Option { return func(s *Server) { s.startPatience = d } }

// NewServer makes the agent of the host behind a backend. The store must be the
// host's own: several agents over one store take turns by its lease.
func NewServer(b backend.Backend, store backend.Store, opts ...Option) *Server {
	s := &Server{
		backend:       b,
		version:       unversioned,
		role:          func(context.Context) (Role, error) { return Operator, nil },
		clock:         time.Now,
		bootClock:     sinceBoot,
		worker:        rand.Text(),
		stepTimeout:   defaultStepTimeout,
		undoTimeout:   defaultUndoTimeout,
		startPatience: defaultStartPatience,
		busy:          make(chan struct{}, 1),
		gates:         newGates(),
		running:       map[*calling]bool{},
		holds:         map[int64]hold{},
		sightings:     map[string]sighting{},
	}
	for _, o := range opts {
		o(s)
	}
	s.store = recordStore{Store: store, version: s.version, sound: &sound{}}
	return s
}

// Register puts the agent on a gRPC server, which should have been made with
// ServerOptions.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	agentpb.RegisterAgentServer(r, &service{server: s})
}

// take waits until nothing else of this process writes to the host.
func (s *Server) take(ctx context.Context) (release func(), err error) {
	select {
	case s.busy <- struct{}{}:
		return func() { <-s.busy }, nil
	case <-ctx.Done():
		return nil, &Error{Code: Cancelled, Message: "the call was cancelled while it waited for another change of this run"}
	}
}

// inventory reads the host and the claims on it.
func (s *Server) inventory(ctx context.Context) (gpu.Host, error) {
	host, _, err := s.read(ctx)
	return host, err
}

// read reads the host with the claims on it, and all that the agent remembers of it.
func (s *Server) read(ctx context.Context) (gpu.Host, backend.State, error) {
	host, err := s.readHost(ctx)
	if err != nil {
		return gpu.Host{}, backend.State{}, failure("read the inventory", err)
	}
	return s.known(ctx, host)
}

// known is a host that was read with the claims on it, and all that the agent remembers of it.
func (s *Server) known(ctx context.Context, host gpu.Host) (gpu.Host, backend.State, error) {
	state, err := s.remember(ctx, &host)
	if err == nil {
		s.compareShares(ctx, &host)
	}
	return host, state, err
}

// compareShares finds shares whose specification is not what would be written now: for an
// older driver or toolkit, or edited by hand.
func (s *Server) compareShares(ctx context.Context, host *gpu.Host) {
	h, ok := s.backend.(backend.Sharing)
	if !ok || len(host.Shares) == 0 {
		return
	}
	var specs []gpu.ShareSpec
	for i := range host.Claims {
		c := &host.Claims[i]
		if c.Kind != gpu.ClaimShare || c.Want.Share == nil {
			continue
		}
		if _, handed := host.HandedShare(c.Want.Share.Name); !handed {
			continue
		}
		if spec, err := placement.ShareSpec(host, c.Want.Share); err == nil { // else it is not placed yet
			specs = append(specs, spec)
		}
	}
	if len(specs) == 0 {
		return
	}
	how, err := h.OutdatedShares(ctx, specs)
	if err != nil {
		return // what cannot be compared does not differ
	}
	for i := range host.Shares {
		host.Shares[i].Outdated = how[host.Shares[i].Name]
	}
}

// platform is that of the host.
func (s *Server) platform(ctx context.Context) gpu.Platform {
	switch b := s.backend.(type) {
	case interface {
		Platform(context.Context) gpu.Platform
	}: // one that can be either
		return b.Platform(ctx)
	case backend.HyperV:
		return gpu.HyperV
	}
	return gpu.Linux
}

// service is the gRPC face of a server: it reads documents and writes them.
type service struct {
	agentpb.UnimplementedAgentServer
	server *Server
}

func (g *service) Hello(ctx context.Context, r *agentpb.HelloRequest) (*agentpb.HelloReply, error) {
	role, err := g.server.admit(ctx, reads)
	if err != nil {
		return nil, toStatus(err)
	}
	client := protocols{oldest: int(r.GetOldestProtocol()), newest: int(r.GetProtocol())}
	if client.oldest == 0 {
		client.oldest = client.newest
	}
	protocol, err := agree(client, r.GetClientVersion(), spoken, g.server.version)
	if err != nil {
		return nil, toStatus(err)
	}
	return &agentpb.HelloReply{
		Protocol: int32(protocol), AgentVersion: g.server.version, Platform: string(g.server.platform(ctx)),
		HostName: g.server.name, Role: string(role),
		Capabilities: knownChange().All(),
	}, nil
}

// answer makes the reply to a call of a caller who may do that, in a place among those that work;
// without places everybody works at once.
func answer[R any](ctx context.Context, g *service, a access, places gate, reply func() (*R, error)) (*R, error) {
	if _, err := g.server.admit(ctx, a); err != nil {
		return nil, toStatus(err)
	}
	leave, err := places.pass(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	defer leave()
	r, err := reply()
	if err != nil {
		return nil, toStatus(err)
	}
	return r, nil
}

func (g *service) Inventory(ctx context.Context, _ *agentpb.InventoryRequest) (*agentpb.InventoryReply, error) {
	return answer(ctx, g, reads, g.server.gates.inventory, func() (*agentpb.InventoryReply, error) {
		host, err := g.server.settledInventory(ctx)
		return &agentpb.InventoryReply{Host: document.Encode(host)}, err
	})
}

func (g *service) AcquireLease(ctx context.Context, r *agentpb.AcquireLeaseRequest) (*agentpb.AcquireLeaseReply, error) {
	return answer(ctx, g, writes, nil, func() (*agentpb.AcquireLeaseReply, error) {
		fence, err := g.server.acquireLease(ctx, LeaseRequest{
			Run: r.GetRun(), Owner: r.GetOwner(), Holder: r.GetHolder(),
			TTL:  time.Duration(r.GetTtlMs()) * time.Millisecond,
			Wait: time.Duration(r.GetWaitMs()) * time.Millisecond, Cluster: r.GetCluster(),
		})
		return &agentpb.AcquireLeaseReply{Fence: fence}, err
	})
}

func (g *service) RenewLease(ctx context.Context, r *agentpb.RenewLeaseRequest) (*agentpb.RenewLeaseReply, error) {
	return answer(ctx, g, writes, nil, func() (*agentpb.RenewLeaseReply, error) {
		return &agentpb.RenewLeaseReply{}, g.server.renewLease(ctx, r.GetFence())
	})
}

func (g *service) ReleaseLease(ctx context.Context, r *agentpb.ReleaseLeaseRequest) (*agentpb.ReleaseLeaseReply, error) {
	return answer(ctx, g, writes, nil, func() (*agentpb.ReleaseLeaseReply, error) {
		return &agentpb.ReleaseLeaseReply{}, g.server.releaseLease(ctx, r.GetFence())
	})
}

func (g *service) Prepare(ctx context.Context, r *agentpb.PrepareRequest) (*agentpb.PrepareReply, error) {
	return answer(ctx, g, reads, g.server.gates.prepare, func() (*agentpb.PrepareReply, error) {
		ch, err := g.server.readChange(r.GetChange())
		if err != nil {
			return nil, err
		}
		prepared, err := g.server.prepare(ctx, ch)
		return &agentpb.PrepareReply{Prepared: document.Encode(prepared)}, err
	})
}

func (g *service) Apply(r *agentpb.ApplyRequest, stream grpc.ServerStreamingServer[agentpb.ApplyEvent]) error {
	if _, err := g.server.admit(stream.Context(), writes); err != nil {
		return toStatus(err)
	}
	ch, err := g.server.readChange(r.GetChange())
	if err != nil {
		return toStatus(err)
	}
	ctx, forget := g.server.watch(stream.Context(), ch.ID)
	defer forget()
	// The header tells the client that Cancel finds the change from now on. Whether the
	// client still listens is no reason to fail: a change ends by itself.
	_ = stream.SendHeader(nil)
	out, err := g.server.apply(ctx, r.GetFence(), ch, r.GetBasis(), func(p StepProgress) {
		_ = stream.Send(&agentpb.ApplyEvent{Event: &agentpb.ApplyEvent_Step{Step: &agentpb.StepEvent{
			Index: int32(p.Index), Total: int32(p.Total), Text: p.Text, Undo: p.Undo,
		}}})
	})
	if err != nil {
		return toStatus(err)
	}
	return stream.Send(&agentpb.ApplyEvent{Event: &agentpb.ApplyEvent_Outcome{Outcome: document.Encode(out)}})
}

func (g *service) Cancel(ctx context.Context, r *agentpb.CancelRequest) (*agentpb.CancelReply, error) {
	return answer(ctx, g, writes, nil, func() (*agentpb.CancelReply, error) {
		g.server.mu.Lock()
		defer g.server.mu.Unlock()
		for c := range g.server.running {
			if c.change == r.GetChangeId() {
				c.stop()
			}
		}
		return &agentpb.CancelReply{}, nil
	})
}

func (g *service) Settle(ctx context.Context, r *agentpb.SettleRequest) (*agentpb.SettleReply, error) {
	return answer(ctx, g, writes, nil, func() (*agentpb.SettleReply, error) {
		out, err := g.server.settle(ctx, r.GetFence(), r.GetChangeId(), r.GetUndo())
		return &agentpb.SettleReply{Outcome: document.Encode(out)}, err
	})
}

func (g *service) Claims(ctx context.Context, _ *agentpb.ClaimsRequest) (*agentpb.ClaimsReply, error) {
	return answer(ctx, g, reads, nil, func() (*agentpb.ClaimsReply, error) {
		state, err := backend.LoadReadable(ctx, g.server.store)
		if err != nil {
			return nil, failure("read the claims", err)
		}
		claims := append([]gpu.Claim{}, state.Claims...)
		if _, shared, err := g.server.sharedState(ctx); err == nil { // else those of the host are still told
			claims = append(claims, shared.Claims...)
		}
		return &agentpb.ClaimsReply{Claims: document.Encode(claims)}, nil
	})
}

func (g *service) ForgetClaim(ctx context.Context, r *agentpb.ForgetClaimRequest) (*agentpb.ForgetClaimReply, error) {
	return answer(ctx, g, writes, nil, func() (*agentpb.ForgetClaimReply, error) {
		return &agentpb.ForgetClaimReply{}, g.server.forget(ctx, r.GetFence(), gpu.ClaimKind(r.GetKind()), r.GetId())
	})
}

func (g *service) Journal(ctx context.Context, _ *agentpb.JournalRequest) (*agentpb.JournalReply, error) {
	return answer(ctx, g, reads, nil, func() (*agentpb.JournalReply, error) {
		j, err := g.server.openJournal(ctx)
		return &agentpb.JournalReply{Journal: document.Encode(j)}, err
	})
}

// calling is an Apply call in progress. A change that was sent twice has two.
type calling struct {
	change string
	stop   context.CancelFunc
}

// watch makes an Apply call known to Cancel until forget is called.
func (s *Server) watch(ctx context.Context, changeID string) (_ context.Context, forget func()) {
	ctx, stop := context.WithCancel(ctx)
	c := &calling{change: changeID, stop: stop}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[c] = true
	return ctx, func() {
		stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, c)
	}
}

// readChange reads a change and checks what every part of the agent relies on.
func (s *Server) readChange(doc []byte) (Change, error) {
	var ch Change
	if err := checkSize("change", doc); err != nil {
		return ch, err
	}
	if err := s.readStrictly("change", doc, &ch); err != nil {
		return ch, err
	}
	if err := checkCounts(&ch); err != nil {
		return ch, err
	}
	switch {
	case ch.ID == "":
		return ch, &Error{Code: BadRequest, Message: "the change has no id"}
	case ch.Host == "":
		return ch, &Error{Code: BadRequest, Message: "the change names no host"}
	case ch.Token == "" && (!ch.Adopt || !ch.Want.Empty()):
		return ch, &Error{Code: BadRequest, Message: "the change has no token"}
	case ch.Want.Empty() && ch.Prior.Empty():
		return ch, &Error{Code: BadRequest, Message: "the change wants nothing and had nothing"}
	}
	if err := ch.Want.Validate(); err != nil {
		return ch, &Error{Code: BadRequest, Message: "the change cannot be read: want: " + err.Error()}
	}
	if err := ch.Prior.Validate(); err != nil {
		return ch, &Error{Code: BadRequest, Message: "the change cannot be read: prior: " + err.Error()}
	}
	return ch, nil
}
