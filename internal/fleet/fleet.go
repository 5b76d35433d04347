// Package fleet makes many hosts one: a snapshot of each host per run, the ledger
// of what this run plans, and changes across hosts that either stand everywhere or
// are put back.
package fleet

import (
	"cmp"
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

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
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
	// swept is true once this run has looked for orphaned claims.
	swept atomic.Bool
	// seen are the hosts as this run knows them, to find VMs by.
	seen *rules.Fleet
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
		seen:     rules.NewFleet(nil),
		saw:      View{index: rules.NewFleet(nil)},
		indexed:  map[string]View{},
		names:    slices.Sorted(maps.Keys(opt.Hosts)),
		byName:   map[string][]string{},
		declared: map[string][]string{},
	}
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

// Snapshot is one host as this run knows it: one inventory call per host and run,
// shared by all who ask. The host is not to be changed by the caller.
func (f *Fleet) Snapshot(ctx context.Context, name string) (*gpu.Host, error) {
	h, ok := f.hosts[name]
	if !ok {
		return nil, &UnknownHostError{Host: name, Known: f.HostNames()}
	}
	return h.snapshot(ctx, f.parallel)
}

// View is what a set of hosts answered.
type View struct {
	// Hosts that answered, by the provider's name.
	Hosts map[string]*gpu.Host
	// Errors of those that did not.
	Errors map[string]error

	index *rules.Fleet // of the same hosts, nil for none
	owner string       // of the state that looks
}

// Complete tells whether every host answered.
func (v View) Complete() bool { return len(v.Errors) == 0 }

// Recorded tells whether every host answered with all claims that it holds: only then is
// an object without one not there.
func (v View) Recorded() bool {
	for _, h := range v.Hosts {
		if len(h.Unreadable) > 0 {
			return false
		}
	}
	return v.Complete()
}

// Silent lists the hosts that did not answer, sorted.
func (v View) Silent() []string { return slices.Sorted(maps.Keys(v.Errors)) }

// With adds what other hosts answered to the view. Those that did not answer are left
// out: nothing is wanted of them.
func (v View) With(other View) View {
	out := View{Hosts: maps.Clone(v.Hosts), Errors: v.Errors, owner: v.owner}
	maps.Copy(out.Hosts, other.Hosts)
	return out
}

// Begun adds to a view the hosts, of the same clusters, to which a run that ended early has given
// an object, and whose state does not know it: they hold a claim of its token.
func (f *Fleet) Begun(ctx context.Context, v View, kind gpu.ClaimKind, id, token string) (more []string, with View) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(v.Errors)), maps.Keys(v.Hosts))
	seen := f.Look(ctx, f.Peers(v, names)).Hosts
	maps.DeleteFunc(seen, func(name string, h *gpu.Host) bool {
		c, ok := h.Claim(kind, id)
		return !ok || token == "" || c.Token != token || slices.Contains(names, name)
	})
	return slices.Sorted(maps.Keys(seen)), v.With(View{Hosts: seen})
}

// Holds tells whether this run has the lease of a host.
func (f *Fleet) Holds(h *gpu.Host) bool { return h.HeldBy != nil && h.HeldBy.Run == f.run }

// TellOnce tells whether something is to be said now: once per run.
func (f *Fleet) TellOnce(what string) bool {
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

// Look takes the snapshots of some hosts, in parallel.
func (f *Fleet) Look(ctx context.Context, names []string) View {
	v := View{Hosts: make(map[string]*gpu.Host, len(names)), Errors: map[string]error{}, owner: f.opt.Owner}
	var mu sync.Mutex
	var g errgroup.Group
	for _, name := range names {
		if host := f.hosts[name]; host != nil {
			if h, err := host.known(); h != nil && err == nil {
				mu.Lock()
				v.Hosts[name] = h
				mu.Unlock()
				continue
			}
		}
		g.Go(func() error {
			h, err := f.Snapshot(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				v.Errors[name] = err
			} else {
				v.Hosts[name] = h
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in the view
	v.doubtStrangers()
	v.agree()
	v.failBack()
	return v
}

// doubtStrangers takes a host that shows itself in a cluster as one that cannot read its cluster,
// where another host is the node that it says it is, or more of the nodes that it lists deny it than
// list it: it has been evicted and does not know it, or what it says is not so.
func (v View) doubtStrangers() {
	var in map[string][]string
	for name, h := range v.Hosts {
		if h.Cluster != nil {
			if in == nil {
				in = map[string][]string{}
			}
			in[gpu.FoldID(h.Cluster.Name)] = append(in[gpu.FoldID(h.Cluster.Name)], name)
		}
	}
	for _, names := range in {
		if v.listEachOther(names) {
			continue
		}
		slices.Sort(names)
		for _, why := range []func(string, []string) string{v.twin, v.denied} {
			doubts := map[string]string{}
			for _, name := range names {
				if reason := why(name, names); reason != "" {
					doubts[name] = reason
				}
			}
			for name, reason := range doubts {
				is := *v.Hosts[name]
				is.Cluster, is.Unknown = nil, append(slices.Clone(is.Unknown), gpu.Unknown{Part: gpu.PartCluster, Why: reason})
				v.Hosts[name] = &is
			}
			names = slices.DeleteFunc(names, func(name string) bool { return doubts[name] != "" })
		}
	}
}

// listEachOther reports whether hosts list the same nodes, and each of them is another one of these: as
// a rule they do.
func (v View) listEachOther(names []string) bool {
	nodes := v.Hosts[names[0]].Cluster.Nodes
	if len(names) > len(nodes) {
		return false
	}
	is := make([]bool, len(nodes))
	for _, name := range names {
		h := v.Hosts[name]
		if !slices.EqualFunc(nodes, h.Cluster.Nodes, func(a, b gpu.Node) bool { return a.Name == b.Name }) {
			return false
		}
		i := slices.IndexFunc(nodes, func(n gpu.Node) bool { return gpu.SameID(n.Name, h.Name) })
		if i < 0 || is[i] {
			return false
		}
		is[i] = true
	}
	return true
}

// twin is why a host is not the node that it says it is: another one says so too, and the
// configuration does not call this one by the node's name.
func (v View) twin(name string, nodes []string) string {
	h := v.Hosts[name]
	i := slices.IndexFunc(nodes, func(other string) bool { return other != name && gpu.SameID(v.Hosts[other].Name, h.Name) })
	if i < 0 || gpu.SameID(name, h.Name) {
		return ""
	}
	return fmt.Sprintf("it says that it is node %s of cluster %s, and so does %s", h.Name, h.Cluster.Name, nodes[i])
}

// denied is why a host is none of the nodes of its cluster.
func (v View) denied(name string, nodes []string) string {
	h, listing := v.Hosts[name], 0
	var denying []string
	for _, other := range nodes {
		switch o := v.Hosts[other]; {
		case other == name || !h.Lists(o.Name):
		case o.Lists(h.Name):
			listing++
		default:
			denying = append(denying, other)
		}
	}
	if len(denying) <= listing {
		return ""
	}
	return fmt.Sprintf("it shows itself as a node of cluster %s, whose node %s does not list it: it has been evicted, or has not joined yet", h.Cluster.Name, denying[0])
}

// agree has the nodes of a cluster see each other as each sees itself: a change that one puts back
// may have paused it, or has resumed it since the other was read.
func (v View) agree() {
	itself := map[[2]string]gpu.NodeState{}
	for _, h := range v.Hosts {
		if h.Cluster != nil {
			itself[[2]string{h.ClusterName(), gpu.FoldID(h.Name)}] = h.NodeState()
		}
	}
	for name, h := range v.Hosts {
		for i := 0; h.Cluster != nil && i < len(h.Cluster.Nodes); i++ {
			n := h.Cluster.Nodes[i]
			state := itself[[2]string{h.ClusterName(), gpu.FoldID(n.Name)}]
			if state == "" || state == n.State {
				continue
			}
			is, cluster := *h, *h.Cluster
			cluster.Nodes = slices.Clone(cluster.Nodes)
			cluster.Nodes[i].State, is.Cluster = state, &cluster
			h, v.Hosts[name] = &is, &is
		}
	}
}

// failBack has VMs be where they are once the changes are put back for which a node was drained.
func (v View) failBack() {
	for _, name := range slices.Sorted(maps.Keys(v.Hosts)) {
		for _, id := range v.Hosts[name].Returning {
			if at, err := FindVM(v, id); err == nil && at.Host != name && v.Hosts[at.Host].SharesCluster(v.Hosts[name]) {
				home, away := change.FailBack(*v.Hosts[name], *v.Hosts[at.Host], id)
				v.Hosts[name], v.Hosts[at.Host] = &home, &away
			}
		}
	}
}

// doubt has a host count as one that does not answer, since it could not read what matters.
func (v View) doubt(host string, u gpu.Unknown) {
	if v.Errors != nil && v.Errors[host] == nil {
		v.Errors[host] = &UnreadablePartError{Host: host, Unknown: u}
	}
}

// Answered tells whether every host answered, those among them that could not read a part.
func (v View) Answered() bool {
	for _, err := range v.Errors {
		if unread := (*UnreadablePartError)(nil); !errors.As(err, &unread) {
			return false
		}
	}
	return true
}

// Except is the view in which hosts count as not answering that could not read what matters.
func (v View) Except(lacks func(h *gpu.Host) (gpu.Unknown, bool)) View {
	out := View{Hosts: map[string]*gpu.Host{}, Errors: maps.Clone(v.Errors), owner: v.owner}
	if out.Errors == nil {
		out.Errors = map[string]error{}
	}
	for name, h := range v.Hosts {
		if u, unknown := lacks(h); unknown {
			out.doubt(name, u)
			continue
		}
		out.Hosts[name] = h
	}
	return out
}

// UnreadablePartError is a host that answers and could not read what was asked for.
type UnreadablePartError struct {
	Host    string
	Unknown gpu.Unknown
}

func (e *UnreadablePartError) Error() string {
	return fmt.Sprintf("of host %s this cannot be read: %s", e.Host, e.Unknown)
}

// LookAll takes the snapshots of every host.
func (f *Fleet) LookAll(ctx context.Context) View { return f.Look(ctx, f.HostNames()) }

// ClusterHosts are the provider's names of a cluster's hosts, sorted. Hosts whose
// cluster is neither configured nor answered count as members that do not answer.
func (f *Fleet) ClusterHosts(v View, cluster string) (members, unknown []string) {
	for _, name := range f.HostNames() {
		if h, ok := v.Hosts[name]; ok {
			if gpu.SameID(h.ClusterName(), cluster) {
				members = append(members, name)
			}
			u, dark := h.UnknownPart(gpu.PartCluster)
			if !dark || h.Cluster != nil {
				continue
			}
			v.doubt(name, u)
		}
		ce, ok := errors.AsType[*connect.Error](v.Errors[name])
		if c := f.hosts[name].endpoint.Cluster; c == "" || gpu.SameID(c, cluster) || ok && ce.Code == connect.WrongCluster {
			unknown = append(unknown, name)
		}
	}
	return members, unknown
}

// Check runs the rules on a plan against a view and everything that this run plans.
func (f *Fleet) Check(v View, p change.Change) []rules.Finding {
	return rules.Check(f.world(v), p, f.opt.Levels)
}

// CheckPolicy finds what an assignment's power policy takes back while a partition config
// of this run still goes by it.
func (f *Fleet) CheckPolicy(v View, p rules.Policy) []rules.Finding {
	return rules.CheckPolicy(f.world(v), p)
}

// CheckOpen is the same for a partition config whose plan is not known yet.
func (f *Fleet) CheckOpen(v View, config change.Change) []rules.Finding {
	return rules.CheckOpen(f.world(v), config)
}

func (f *Fleet) world(v View) rules.World { return f.worldOf(v, f.index(v)) }

func (f *Fleet) worldOf(v View, index *rules.Fleet) rules.World {
	return rules.World{
		Fleet:    index,
		Owner:    f.opt.Owner,
		Others:   f.Ledger.book,
		Complete: v.Complete() && len(v.Hosts) == len(f.hosts),
		Silent:   f.without,
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

// index gives the rules' index of a view. Resources look at the same hosts in turn, those of
// their cluster, so the last one of each is kept.
func (f *Fleet) index(v View) *rules.Fleet {
	if v.index != nil || len(v.Hosts) == 0 {
		return cmp.Or(v.index, rules.NewFleet(nil))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("%d %s", len(v.Hosts), slices.Min(slices.Collect(maps.Keys(v.Hosts))))
	last := f.indexed[id]
	switch same := func(*gpu.Host, *gpu.Host) bool { return true }; {
	case maps.Equal(last.Hosts, v.Hosts):
		return last.index
	case maps.EqualFunc(last.Hosts, v.Hosts, same):
		last.index = last.index.With(v.Hosts)
	default:
		last.index = rules.NewFleet(v.Hosts)
	}
	last.Hosts = maps.Clone(v.Hosts)
	f.indexed[id] = last
	return last.index
}

// UnknownHostError is a host that the provider's configuration does not name.
type UnknownHostError struct {
	Host  string
	Known []string
}

func (e *UnknownHostError) Error() string {
	return fmt.Sprintf("the provider knows no host %q; it knows %s", e.Host, words.Join(e.Known))
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

// Seen is a view of the hosts that this run has looked at already. It asks nobody. Its hosts are
// shared, and indexed.
func (f *Fleet) Seen() View {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sawAt != f.seen.Changes() {
		var hosts map[string]*gpu.Host
		hosts, f.sawAt = f.seen.Hosts()
		for name, h := range hosts {
			if f.saw.Hosts[name] != h {
				f.saw.index.Put(name, h)
			}
		}
		f.saw.Hosts = hosts
	}
	return View{Hosts: f.saw.Hosts, Errors: map[string]error{}, index: f.saw.index, owner: f.opt.Owner}
}

func (f *Fleet) looked(names []string) View {
	v := View{Hosts: map[string]*gpu.Host{}, Errors: map[string]error{}}
	for _, name := range names {
		h := f.hosts[name]
		if h == nil {
			continue
		}
		h.mu.Lock()
		if h.seen != nil {
			v.Hosts[name] = h.seen
		}
		h.mu.Unlock()
	}
	return v
}

// withNeighbours adds the hosts that pools of this run join to those of a view: what is
// planned on one may be wrong by what is planned on another. It asks nobody: whoever
// planned the pool has looked at them.
func (f *Fleet) withNeighbours(v View) View {
	if v.index != nil { // it has all that were looked at
		return v
	}
	for from := slices.Collect(maps.Keys(v.Hosts)); len(from) > 0; {
		more := f.looked(slices.DeleteFunc(f.Ledger.book.InPoolsWith(from), func(name string) bool { return v.Hosts[name] != nil || v.Errors[name] != nil }))
		if len(more.Hosts) == 0 {
			return v
		}
		v, from = v.With(more), slices.Collect(maps.Keys(more.Hosts))
	}
	return v
}

// Unknown tells whether there is nobody to ask: the hosts are known only after apply, or there are none.
func (f *Fleet) Unknown() bool { return f.opt.Unknown || f.NoHosts() }

// NoHosts tells whether the provider is configured without hosts. Functions need none.
func (f *Fleet) NoHosts() bool { return f != nil && !f.opt.Unknown && len(f.hosts) == 0 }
