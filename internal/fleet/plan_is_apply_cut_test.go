package fleet_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// fuse lets all agents of a world, and the run that they serve, die at a write to their
// records: nothing passes the gate to a host after it.
type fuse struct {
	mu     sync.Mutex
	left   int // writes until then; 0 for never
	dead   bool
	before bool   // what it dies at is not written any more
	strike func() // has nothing reach the hosts any more
}

var errDead = errors.New("the agent is dead")

func (f *fuse) alive() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return errDead
	}
	return nil
}

func (f *fuse) die() {
	f.mu.Lock()
	f.dead = true
	f.mu.Unlock()
	f.strike()
}

func (f *fuse) write(do func() error) error {
	f.mu.Lock()
	if f.dead {
		f.mu.Unlock()
		return errDead
	}
	dies := f.left == 1
	f.left = max(0, f.left-1)
	f.mu.Unlock()
	if dies && f.before {
		f.die()
		return errDead
	}
	err := do()
	if dies {
		f.die()
	}
	return err
}

// records are those of a host, or of a cluster, behind a fuse.
type records struct {
	backend.Store
	*fuse
}

func (r records) Load(ctx context.Context) (backend.State, error) {
	if err := r.alive(); err != nil {
		return backend.State{}, err
	}
	return r.Store.Load(ctx)
}

func (r records) Update(ctx context.Context, f func(*backend.State) error) error {
	return r.write(func() error { return r.Store.Update(ctx, f) })
}

// Cluster is the cluster of a host, whose records are behind the fuse too.
func (w watched) Cluster(ctx context.Context) (*backend.Cluster, error) {
	c, err := w.Host.Cluster(ctx)
	if err != nil || c == nil {
		return c, err
	}
	c.Store = records{c.Store, w.fuse}
	return c, nil
}

// AcquireLease puts back what others left. What that stops is no part of the change. The lease
// of a dead run is looked at for as long as it lives, in no time.
func (k kept) AcquireLease(ctx context.Context, req agent.LeaseRequest) (int64, error) {
	k.seen.settle(1)
	defer k.seen.settle(-1)
	look := req
	look.Wait = 0
	fence, err := k.Client.AcquireLease(ctx, look)
	if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.LeaseHeld {
		return fence, err
	}
	k.up.Add(int64(2 * req.TTL))
	return k.Client.AcquireLease(ctx, req)
}

// serve starts new agents, an hour later.
func (w *world) serve() {
	for _, c := range w.closers {
		_ = c()
	}
	w.closers, w.fuse = nil, &fuse{strike: func() {
		w.faults(simulated.Fault{Op: simulated.OpAny, Code: backend.Failed, Detail: "the agent is dead"})
	}}
	w.faults()
	w.hours++
	now := func() time.Time { return time.Now().Add(time.Duration(w.hours) * time.Hour) }
	up := &atomic.Int64{}
	up.Store(int64(w.hours) * int64(time.Hour))
	for _, name := range w.sim.Hosts() {
		host, err := w.sim.Host(name)
		if err != nil {
			w.fatal("host %s: %v", name, err)
		}
		conn, err := connect.InProcess(agent.NewServer(watched{host, w.seen, w.fuse, w.sim}, records{host, w.fuse},
			agent.WithHostName(name), agent.WithClock(now), agent.WithBootClock(func() time.Duration { return time.Duration(up.Load()) }),
			agent.WithStartPatience(time.Millisecond)))
		if err != nil {
			w.fatal("connect: %v", err)
		}
		client := agent.NewClient(conn, name)
		w.closers = append(w.closers, client.Close)
		endpoints := w.endpoints
		if w.cluster != nil && w.cluster.removed[name].Dial != nil {
			endpoints = w.cluster.removed
		}
		endpoints[name] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) { return kept{client, w.seen, up}, nil }}
	}
}

// shown are the hosts as a plan sees them.
func (w *world) shown() map[string]*gpu.Host {
	return lookAll(w.t, w.run(nil)).Hosts
}

// cut has a run make a change and die on its way, or fail to start what it has stopped. It
// tells whether the next run has to make it again, because what is left is not what the
// state says.
func (w *world) cut(r *resource, p change.Change) bool {
	says := w.plan(p)
	if len(says.errors) > 0 {
		return false
	}
	kills := len(says.stops) == 0 || w.chance(60)
	if kills {
		w.fuse.left = 3 + w.rng.IntN(12)
		w.fuse.before = w.fuse.left%2 == 0
		w.note("%s: %s -> %s, and the run dies at write %d", r.label, wantText(p.Prior), wantText(p.Want), w.fuse.left)
	} else {
		w.note("%s: %s -> %s, and no VM starts", r.label, wantText(p.Prior), wantText(p.Want))
		w.faults(simulated.Fault{Op: simulated.OpStartVM, Code: backend.Insufficient, Detail: "0x800705AA"})
	}
	err := w.applyLinux(w.run(nil), fleet.Request{
		Change: change.Change{Subject: p.Subject, Token: p.Token, Adopt: p.Token == "", Want: p.Want, Prior: p.Prior}, MaxUnavailable: 2,
	})
	if w.faults(); kills {
		w.serve()
	}
	if err == nil {
		w.made(r, p)
		return false
	}
	w.cutOff = true
	w.note("  %v", err)
	for name, h := range w.shown() {
		w.note("  %s: unfinished %q, owed %v", name, h.Unfinished, h.PendingStarts)
		w.counts["unfinished"] += len(h.Unfinished)
		w.counts["owed"] += len(h.PendingStarts)
	}
	return !w.isAs(p.Token, p.Prior)
}

// faults sets what fails on all hosts.
func (w *world) faults(of ...simulated.Fault) {
	for _, name := range w.sim.Hosts() {
		if err := w.sim.EditSimulation(context.Background(), name, func(s *simulated.Simulation) { s.Faults = of }); err != nil {
			panic(err)
		}
	}
}

// isAs tells whether the hosts, as they are shown, are as a resource's state says.
func (w *world) isAs(token string, has gpu.Want) bool {
	for name, h := range w.shown() {
		if has.Empty() {
			if slices.ContainsFunc(h.Claims, func(c gpu.Claim) bool { return c.Token == token }) {
				return false
			}
			continue
		}
		steps, err := change.Plan(*h, name, change.Change{Subject: "it", Owner: randomOwner, Token: token, Want: has, Prior: has})
		if err != nil || len(steps) > 0 {
			return false
		}
	}
	return true
}

// settle notes that a run begins or ends to put back what others left.
func (s *witness) settle(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settling += n
}
