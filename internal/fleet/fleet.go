// Package fleet makes many hosts one: a snapshot of each host per run, the ledger
// of what this run plans, and changes across hosts that either stand everywhere or
// are put back.
package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Conn is a connection to one host's agent.
type Conn interface {
	Inventory(ctx context.Context) (gpu.Host, error)
	AcquireLease(ctx context.Context, req agent.LeaseRequest) (fence int64, err error)
	ReleaseLease(ctx context.Context, fence int64) error
	Prepare(ctx context.Context, ch agent.Change) (agent.Prepared, error)
	Apply(ctx context.Context, fence int64, ch agent.Change, basis string, progress func(agent.StepProgress)) (agent.Outcome, error)
	Settle(ctx context.Context, fence int64, changeID string, undo bool) (agent.Outcome, error)
	Close() error
}

// Dial opens the connection to a host. It is called once per host and run, and again
// when it failed or the connection has broken. mayInstall tells that this run changes
// hosts, so that an agent may be brought to one that has none: never in a plan.
type Dial func(ctx context.Context, mayInstall bool) (Conn, error)

// ForPlans is a connection that serves a plan only, such as to an agent that an earlier
// version of the provider has brought. A run that changes the host dials anew.
type ForPlans interface {
	Conn
	ForPlans()
}

// Endpoint is how a host is reached.
type Endpoint struct {
	Dial Dial
	// Cluster is the cluster that the configuration says the host is in; "" when it
	// does not say. The host's own answer wins.
	Cluster string
}

// Options configure a fleet for one run.
type Options struct {
	// Owner names this Terraform state in claims.
	Owner string
	// Hosts are the hosts in reach, by the name that the configuration gives them.
	Hosts map[string]Endpoint
	// Levels override the levels of rules.
	Levels rules.Levels
	// ReadOnly, when not empty, is the reason why nothing may be written.
	ReadOnly string
	// Recorded is true for a recorded inventory: that it cannot be changed needs no saying.
	Recorded bool
	// KeepUnreachable keeps what is known of a host that does not answer, with a
	// warning, instead of failing.
	KeepUnreachable bool
	// MaxParallelHosts limits how many hosts are asked or changed at once; 0 means
	// DefaultMaxParallelHosts.
	MaxParallelHosts int
	// MaxConcurrentVMStops limits, per cluster, how many VMs are stopped at once; 0
	// means 1.
	MaxConcurrentVMStops int
	// Power is what assignments fall back to.
	Power gpu.Power
	// PowerUnknown is true when that is known only after apply.
	PowerUnknown bool
	// Window is when changes may disturb what runs; nil means always. Now is the clock
	// that it goes by; nil means time.Now.
	Window *rules.Window
	Now    func() time.Time
	// Unknown is true when which hosts there are is known only after apply.
	Unknown bool
	// LeaseWait is how long a change waits for another run that holds a host; 0
	// means DefaultLeaseWait.
	LeaseWait time.Duration
	// Report keeps what Fleet.Report tells of.
	Report bool
	// Patience is how long resources of the run wait for each other; 0 means DefaultPatience.
	Patience time.Duration
}

// Defaults.
const (
	DefaultMaxParallelHosts = 32
	// DefaultLeaseWait is longer than a lease lives: a run that was killed does not
	// fail the next one.
	DefaultLeaseWait = 3 * time.Minute
	leaseTTL         = time.Minute
)

// Fleet is the hosts of one provider configuration during one run.
type Fleet struct {
	// Ledger records what the resources of this run mean to hold.
	Ledger *Ledger

	opt      Options
	run      string
	holder   string
	hosts    map[string]*host
	parallel *semaphore.Weighted
	waits    *waits
	// placing is held by a share of a pool from its choice of a host until it is there.
	placing sync.RWMutex

	// applying is true once this run changes something.
	applying atomic.Bool
	// refreshing is true once this run has read a resource, which a run that applies a plan does not.
	refreshing atomic.Bool
	// replanning is true once Terraform has planned as it does right before it applies.
	replanning atomic.Bool
	// dropped is true once this run has dropped the orphaned claims that it found.
	dropped atomic.Bool
	// seen are the hosts as this run knows them, to find VMs by.
	seen *whatif.Fleet
	// names are the hosts in sorted order, byName by folded name, and declared by the folded
	// cluster that the configuration says they are in.
	names    []string
	byName   map[string][]string
	declared map[string][]string
	lists    gpu.HostLists // of claims that were seen

	mu      sync.Mutex
	told    map[string]bool                // what was told once
	stops   map[string]*semaphore.Weighted // by stopDomain
	drains  map[string]*semaphore.Weighted // by stopDomain
	indexed map[string]View                // the last one of some hosts
	saw     View                           // what Seen shows, as it was when seen had so many changes
	sawAt   int
}

// New makes a fleet. It contacts nobody.
func New(opt Options) *Fleet {
	if opt.MaxParallelHosts <= 0 {
		opt.MaxParallelHosts = DefaultMaxParallelHosts
	}
	if opt.MaxConcurrentVMStops <= 0 {
		opt.MaxConcurrentVMStops = 1
	}
	if opt.LeaseWait <= 0 {
		opt.LeaseWait = DefaultLeaseWait
	}
	if opt.Patience <= 0 {
		opt.Patience = DefaultPatience
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	f := &Fleet{
		Ledger:   newLedger(opt.Patience),
		opt:      opt,
		run:      rand.Text(),
		holder:   whoAmI(),
		hosts:    make(map[string]*host, len(opt.Hosts)),
		parallel: semaphore.NewWeighted(int64(opt.MaxParallelHosts)),
		stops:    map[string]*semaphore.Weighted{},
		drains:   map[string]*semaphore.Weighted{},
		told:     map[string]bool{},
		waits:    newWaits(opt.Patience),
		seen:     whatif.NewFleet(nil),
		saw:      View{index: whatif.NewFleet(nil)},
		indexed:  map[string]View{},
		names:    slices.Sorted(maps.Keys(opt.Hosts)),
		byName:   map[string][]string{},
		declared: map[string][]string{},
	}
	f.Ledger.reported.wanted = opt.Report
	for _, key := range f.names {
		ep := opt.Hosts[key]
		f.hosts[key] = newHost(key, ep, &f.applying, f.see)
		f.byName[gpu.FoldID(key)] = append(f.byName[gpu.FoldID(key)], key)
		if ep.Cluster != "" {
			f.declared[gpu.FoldID(ep.Cluster)] = append(f.declared[gpu.FoldID(ep.Cluster)], key)
		}
	}
	return f
}

// see is what is seen of a host now, nil for nothing.
func (f *Fleet) see(name string, h *gpu.Host) {
	if h != nil {
		h.Claims = f.lists.Share(h.Claims)
	}
	f.seen.Put(name, h)
}

// Close hangs up on all hosts, and waits for what agents in this process still do.
func (f *Fleet) Close() error {
	var errs []error
	for _, h := range f.hosts {
		h.mu.Lock()
		conn := h.conn
		h.conn = nil
		h.mu.Unlock()
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}

// whoAmI says to people on other machines who holds a lease.
func whoAmI() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	machine, err := os.Hostname()
	if err != nil {
		machine = "unknown"
	}
	return fmt.Sprintf("%s@%s, process %d", name, machine, os.Getpid())
}

// Applying says that this run changes hosts: that it is no plan.
func (f *Fleet) Applying() { f.applying.Store(true) }

// Applies reports whether this run is known to change hosts. Until it has begun to, an apply
// looks like a plan.
func (f *Fleet) Applies() bool { return f.applying.Load() }

// Replanning says that this run plans once more what it is about to apply. Terraform lets a
// provider know it by what it permits then; OpenTofu does not.
func (f *Fleet) Replanning() { f.replanning.Store(true) }

// Refreshing says that this run reads a resource: that it plans.
func (f *Fleet) Refreshing() { f.refreshing.Store(true) }

// Refreshes reports whether this run has read a resource.
func (f *Fleet) Refreshes() bool { return f.refreshing.Load() }

// Owner is the name of this state in claims.
func (f *Fleet) Owner() string { return f.opt.Owner }

// Power is the provider's power policy.
func (f *Fleet) Power() gpu.Power { return f.opt.Power }

// PowerUnknown tells whether the provider's power policy is known only after apply.
func (f *Fleet) PowerUnknown() bool { return f.opt.PowerUnknown }

// KeepUnreachable tells whether the state of a host that does not answer is kept.
func (f *Fleet) KeepUnreachable() bool { return f.opt.KeepUnreachable }

// HostNames lists the hosts of the configuration, sorted.
func (f *Fleet) HostNames() []string { return slices.Clone(f.names) }

// Has tells whether the configuration names a host.
func (f *Fleet) Has(name string) bool { return f.hosts[name] != nil }

// Holds tells whether this run has the lease of a host.
func (f *Fleet) Holds(h *gpu.Host) bool { return h.HeldBy != nil && h.HeldBy.Run == f.run }

// Once reports whether something is said for the first time in the run.
func (f *Fleet) Once(what string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.told[what]
	f.told[what] = true
	return first
}

// NeedsHand tells whether a host was not read for another reason than that it cannot be
// reached: a setting, trust, or an agent that answers without the platform that it is for.
// The host is there, so that nothing may be taken for lost with it.
func NeedsHand(err error) bool {
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		return ce.Code != connect.Unreachable && ce.Code != connect.Ended
	}
	ae, ok := errors.AsType[*agent.Error](err)
	return ok && ae.Code != agent.Unavailable && ae.Code != agent.Cancelled
}

// Check runs the rules on a plan against a view and everything that this run plans.
func (f *Fleet) Check(v View, p change.Change) []rules.Finding {
	return rules.Check(f.world(v), p, f.opt.Levels)
}

// CheckPolicy finds what an assignment's power policy takes back while a partition config
// of this run still goes by it.
func (f *Fleet) CheckPolicy(v View, p whatif.Policy) []rules.Finding {
	return rules.CheckPolicy(f.world(v), p)
}

// CheckOpen is the same for a partition config whose plan is not known yet.
func (f *Fleet) CheckOpen(v View, config change.Change) []rules.Finding {
	return rules.CheckOpen(f.world(v), config)
}

func (f *Fleet) world(v View) rules.World { return f.worldOf(v, f.index(v)) }

func (f *Fleet) worldOf(v View, index *whatif.Fleet) rules.World {
	return rules.World{
		World:    whatif.World{Fleet: index, Owner: f.opt.Owner, Others: f.Ledger.book, Silent: f.without},
		Complete: v.Complete() && len(v.Hosts) == len(f.hosts),
		Window:   f.opt.Window,
		Now:      f.opt.Now(),
		Agents:   f,
	}
}

// without tells whether a host did not answer this run, which goes on without it.
func (f *Fleet) without(host string) bool {
	h, ok := f.hosts[host]
	return ok && f.GoesWithout(h.silence())
}

// GoesWithout tells whether the run goes on without a host, for why it does not answer.
func (f *Fleet) GoesWithout(err error) bool {
	_, notYet := errors.AsType[*NotYetKnownError](err)
	return err != nil && f.opt.KeepUnreachable && !notYet && !NeedsHand(err)
}

// StopsAtOnce is how many VMs of a cluster the run has off at the same time, but for those of
// one host.
func (f *Fleet) StopsAtOnce() int { return f.opt.MaxConcurrentVMStops }

// Asks implements rules.Agents.
func (f *Fleet) Asks(ch change.Change) []string {
	if ch.Want.Empty() { // the apply of a destroy says what its plan has announced
		ch.Approved = &change.Approved{Keys: []string{}}
	}
	return agent.Asks(agent.Change{Change: ch})
}

// Lacks implements rules.Agents.
func (f *Fleet) Lacks(name string) (fields []string, version string) {
	h, ok := f.hosts[name]
	if !ok {
		return nil, ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lacks, h.version
}

// UnknownHostError is a host that the provider's configuration does not name.
type UnknownHostError struct {
	Host  string
	Known []string
}

func (e *UnknownHostError) Error() string {
	return fmt.Sprintf("the provider knows no host %q; it knows %s", e.Host, words.Some(e.Host, e.Known))
}

// NotYetKnownError is a host that only an apply can ask: its address is not known
// before, or it has no agent yet.
type NotYetKnownError struct {
	Host string
	// Reason is why, when it is not the address.
	Reason string
	// Err is what that means for a host of which the state has something: it cannot be
	// asked, like any that does not answer. Nil when it is the address.
	Err error
}

func (e *NotYetKnownError) Error() string {
	if e.Reason != "" {
		return e.Reason
	}
	return fmt.Sprintf("how to reach host %q is known only after apply", e.Host)
}

// Unknown tells whether there is nobody to ask: the hosts are known only after apply, or there are none.
func (f *Fleet) Unknown() bool { return f.opt.Unknown || f.NoHosts() }

// NoHosts tells whether the provider is configured without hosts. Functions need none.
func (f *Fleet) NoHosts() bool { return f != nil && !f.opt.Unknown && len(f.hosts) == 0 }
