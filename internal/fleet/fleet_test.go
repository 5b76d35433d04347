package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// conn is a host that does as a test says and remembers what it was asked.
type conn struct {
	mu    sync.Mutex
	host  gpu.Host
	asked []string

	inventory func() error // runs inside each inventory, after the host is read
	apply     func(agent.Change) (agent.Outcome, error)
	lease     func() error
	settle    func(undo bool) (agent.Outcome, error)
	stops     []string
	// left is what Prepare answers, if it is set.
	left *agent.Prepared
}

func (c *conn) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, what)
}

func (c *conn) times(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, a := range c.asked {
		if a == what {
			n++
		}
	}
	return n
}

func (c *conn) read() gpu.Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

func (c *conn) Inventory(context.Context) (gpu.Host, error) {
	c.note("inventory")
	h := c.read()
	if c.inventory != nil {
		return h, c.inventory()
	}
	return h, nil
}

func (c *conn) AcquireLease(context.Context, agent.LeaseRequest) (int64, error) {
	c.note("lease")
	if c.lease != nil {
		if err := c.lease(); err != nil {
			return 0, err
		}
	}
	return 1, nil
}

func (c *conn) ReleaseLease(context.Context, int64) error { c.note("release"); return nil }

func (c *conn) Prepare(context.Context, agent.Change) (agent.Prepared, error) {
	c.note("prepare")
	if c.left != nil {
		return *c.left, nil
	}
	return agent.Prepared{Steps: []change.Step{{Op: change.OpSetPartitionCount}}, StopsVMs: c.stops}, nil
}

func (c *conn) Apply(_ context.Context, _ int64, ch agent.Change, _ string, _ func(agent.StepProgress)) (agent.Outcome, error) {
	c.note("apply")
	if c.apply != nil {
		return c.apply(ch)
	}
	return agent.Outcome{Host: c.read()}, nil
}

func (c *conn) Settle(_ context.Context, _ int64, _ string, undo bool) (agent.Outcome, error) {
	c.note(fmt.Sprintf("settle undo=%t", undo))
	if c.settle != nil {
		return c.settle(undo)
	}
	return agent.Outcome{Host: c.read(), RolledBack: undo}, nil
}

func (c *conn) Close() error { c.note("close"); return nil }

// connection is one to a host with one partitionable GPU.
func connection(host string) *conn {
	return &conn{host: gpu.Host{
		Name: host, Platform: gpu.HyperV,
		GPUs: []gpu.GPU{
			{ID: "g", Model: "NVIDIA A2", Vendor: "NVIDIA", Partitionable: &gpu.Partitionable{ValidCounts: []int{1, 2, 4}, Count: 4}},
		},
	}}
}

// hosts makes a fleet of connections, one to each host.
func hosts(t *testing.T, opt fleet.Options, names ...string) (*fleet.Fleet, map[string]*conn) {
	t.Helper()
	conns := map[string]*conn{}
	opt.Hosts = map[string]fleet.Endpoint{}
	for _, n := range names {
		c := connection(n)
		conns[n] = c
		opt.Hosts[n] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) { return c, nil }}
	}
	if opt.Patience == 0 {
		opt.Patience = time.Millisecond
	}
	return fleet.New(opt), conns
}

// lookAll is a snapshot of all hosts.
func lookAll(t *testing.T, f *fleet.Fleet) fleet.View {
	t.Helper()
	return f.Snapshot(t.Context(), f.HostNames())
}

func configFor(names ...string) gpu.Want {
	c := &gpu.PartitionConfig{ID: "c", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{}}
	for _, n := range names {
		c.GPUs[n] = []string{"g"}
	}
	return gpu.Want{Config: c}
}

func TestSnapshotIsOneInventoryForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, conns := hosts(t, fleet.Options{}, "a")
		conns["a"].inventory = func() error { time.Sleep(time.Second); return nil }
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if h, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err != nil || h.Name != "a" {
					t.Errorf("got %v, %v", h, err)
				}
			})
		}
		wg.Wait()
		if n := conns["a"].times("inventory"); n != 1 {
			t.Errorf("%d inventories, want 1", n)
		}
	})
}

func TestInventoryThatBeganBeforeAWriteIsNotKept(t *testing.T) {
	f, conns := hosts(t, fleet.Options{}, "a")
	c := conns["a"]
	if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err != nil {
		t.Fatal(err)
	}
	written := gpu.Host{
		Name: "a", Platform: gpu.HyperV, GPUs: []gpu.GPU{{ID: "g", Partitionable: &gpu.Partitionable{ValidCounts: []int{1, 2, 4}, Count: 2}}},
	}
	c.apply = func(agent.Change) (agent.Outcome, error) { return agent.Outcome{Host: written}, nil }
	if _, err := f.Apply(t.Context(), fleet.Request{Change: change.Change{Subject: "c", Token: "t", Want: configFor("a")}}); err != nil {
		t.Fatal(err)
	}
	h, err := f.Snapshot(t.Context(), []string{"a"}).Host("a")
	if err != nil {
		t.Fatal(err)
	}
	if h.GPUs[0].Partitionable.Count != 2 {
		t.Errorf("the snapshot is older than the write: count %d, want 2", h.GPUs[0].Partitionable.Count)
	}
	if n := c.times("inventory"); n != 1 {
		t.Errorf("%d inventories, want 1: the change itself tells what the host is like after it", n)
	}
}

func TestFailedInventoryIsAskedAgain(t *testing.T) {
	var dials atomic.Int32
	c := &conn{host: gpu.Host{Name: "a", Platform: gpu.HyperV}}
	f := fleet.New(fleet.Options{Hosts: map[string]fleet.Endpoint{"a": {Dial: func(context.Context, bool) (fleet.Conn, error) {
		if dials.Add(1) == 1 {
			return nil, errors.New("no route")
		}
		return c, nil
	}}}})
	if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err == nil {
		t.Fatal("the first attempt succeeded")
	}
	if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err != nil {
		t.Errorf("the second attempt: %v", err)
	}
}

func TestLookTellsWhoAnsweredAndWhoDidNot(t *testing.T) {
	f, _ := hosts(t, fleet.Options{}, "a", "b")
	v := f.Snapshot(t.Context(), []string{"a", "gone"})
	var unknown *fleet.UnknownHostError
	if len(v.Hosts) != 1 || v.Complete() || !slices.Equal(v.Silent(), []string{"gone"}) || !errors.As(v.Errors["gone"], &unknown) {
		t.Errorf("got %+v", v)
	}
}

func TestChangeThatFailsOnOneHostIsPutBackOnTheOthers(t *testing.T) {
	for _, test := range []struct {
		name string
		stop bool
		want map[string]fleet.HostEnd
	}{
		{
			"rollback", false, map[string]fleet.HostEnd{
				"a": fleet.EndRolledBack, "b": fleet.EndRolledBack, "c": fleet.EndRolledBack, "d": fleet.EndUntouched,
			},
		},
		{"stop", true, map[string]fleet.HostEnd{"a": fleet.EndApplied, "b": fleet.EndApplied, "c": fleet.EndRolledBack, "d": fleet.EndUntouched}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, conns := hosts(t, fleet.Options{}, "a", "b", "c", "d")
			conns["c"].apply = func(agent.Change) (agent.Outcome, error) {
				return agent.Outcome{}, &agent.Error{Code: agent.StepFailed, Outcome: &agent.Outcome{Host: conns["c"].read(), RolledBack: true}}
			}
			_, err := f.Apply(t.Context(), fleet.Request{
				Change: change.Change{Subject: "c", Token: "t", Want: configFor("a", "b", "c", "d")}, StopOnFailure: test.stop,
			})
			var failure *fleet.Failure
			if !errors.As(err, &failure) || failure.Host != "c" {
				t.Fatalf("got %v", err)
			}
			for n, end := range test.want {
				if failure.Ends[n] != end {
					t.Errorf("host %s: %s, want %s", n, failure.Ends[n], end)
				}
			}
			if failure.Clean() == test.stop {
				t.Errorf("clean: %t", failure.Clean())
			}
			for n, c := range conns {
				if c.times("lease") != 1 || c.times("release") != 1 {
					t.Errorf("host %s: the lease was taken %d times and given back %d times", n, c.times("lease"), c.times("release"))
				}
			}
			if conns["d"].times("apply") != 0 {
				t.Error("host d was begun after the failure")
			}
		})
	}
}

func TestHostHeldByAnotherRunLeavesTheOthersUntouched(t *testing.T) {
	f, conns := hosts(t, fleet.Options{}, "a", "b")
	conns["b"].lease = func() error { return &agent.Error{Code: agent.LeaseHeld} }
	_, err := f.Apply(t.Context(), fleet.Request{Change: change.Change{Subject: "c", Token: "t", Want: configFor("a", "b")}})
	var failure *fleet.Failure
	if !errors.As(err, &failure) || failure.Host != "b" || !failure.Clean() {
		t.Fatalf("got %v", err)
	}
	if conns["a"].times("apply") != 0 || conns["a"].times("release") != 1 {
		t.Errorf("host a was asked %v", conns["a"].asked)
	}
}

// Whose lease a change waits for is said before it waits.
func TestAWaitForAnotherRunIsTold(t *testing.T) {
	f, conns := hosts(t, fleet.Options{LeaseWait: 3 * time.Minute}, "a")
	held := true
	conns["a"].lease = func() error {
		if held {
			return &agent.Error{Code: agent.LeaseHeld, Message: "another run changes the host: root@build7, process 7"}
		}
		return nil
	}
	var told []string
	if _, err := f.Apply(t.Context(), fleet.Request{
		Change:   change.Change{Subject: "c", Token: "t", Want: configFor("a")},
		Progress: func(host, text string) { told, held = append(told, host+": "+text), false }, // it ends
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a: waiting for up to 3m0s: another run changes the host: root@build7, process 7"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestStopsOfAClusterAreLimitedAcrossResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, conns := hosts(t, fleet.Options{MaxConcurrentVMStops: 1}, "a", "b", "c")
		var at, most atomic.Int32
		for _, c := range conns {
			c.host.Cluster = &gpu.Cluster{Name: "clu"}
			c.stops = []string{"vm"}
			c.apply = func(agent.Change) (agent.Outcome, error) {
				most.Store(max(most.Load(), at.Add(1)))
				time.Sleep(time.Second)
				at.Add(-1)
				return agent.Outcome{Host: c.read()}, nil
			}
		}
		f.Snapshot(t.Context(), f.HostNames())
		var wg sync.WaitGroup
		for n := range conns {
			wg.Go(func() {
				if _, err := f.Apply(t.Context(), fleet.Request{Change: change.Change{Subject: n, Token: n, Want: configFor(n)}}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() != 1 {
			t.Errorf("%d changes that stop VMs ran at once, want 1", most.Load())
		}
	})
}

// A rollout and assignments together have no more VMs off than the limit says, except those of
// one host, which is changed alone then.
func TestStopsOfARolloutAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4
		f, conns := hosts(t, fleet.Options{MaxConcurrentVMStops: limit}, "a", "b", "c", "d", "e", "big", "one")
		var mu sync.Mutex
		at, most := map[string]int{}, 0
		for n, c := range conns {
			c.host.Cluster = &gpu.Cluster{Name: "clu"}
			c.stops = map[string][]string{"big": make([]string, 6), "one": make([]string, 1)}[n]
			if c.stops == nil {
				c.stops = make([]string, 3-len(n)%2)
			}
			c.apply = func(agent.Change) (agent.Outcome, error) {
				mu.Lock()
				at[n] = len(c.stops)
				off := 0
				for _, stops := range at {
					off += stops
				}
				if most = max(most, off); off > limit && len(at) > 1 {
					t.Errorf("off at the same time: %v", at)
				}
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				delete(at, n)
				mu.Unlock()
				return agent.Outcome{Host: c.read()}, nil
			}
		}
		f.Snapshot(t.Context(), f.HostNames())
		var wg sync.WaitGroup
		apply := func(token string, names ...string) {
			wg.Go(func() {
				if _, err := f.Apply(t.Context(),
					fleet.Request{MaxUnavailable: 8, Change: change.Change{Subject: token, Token: token, Want: configFor(names...)}}); err != nil {
					t.Error(err)
				}
			})
		}
		apply("rollout", "a", "b", "c", "d", "e", "big")
		apply("alone", "one")
		wg.Wait()
		if most != 6 {
			t.Errorf("%d VMs were off at most, want those of the largest host", most)
		}
	})
}

func TestReadOnlyFleetIsNotAsked(t *testing.T) {
	f, conns := hosts(t, fleet.Options{ReadOnly: "because"}, "a")
	_, err := f.Apply(t.Context(), fleet.Request{Change: change.Change{Subject: "c", Token: "t", Want: configFor("a")}})
	var refused *fleet.ReadOnlyError
	if !errors.As(err, &refused) || len(conns["a"].asked) != 0 {
		t.Errorf("got %v, asked %v", err, conns["a"].asked)
	}
}

func TestLedgerNamesAReplacementOnce(t *testing.T) {
	f, _ := hosts(t, fleet.Options{}, "a")
	first := f.Ledger.Instance("")
	f.Record(first, fleet.View{}, change.Change{Subject: "one", Want: configFor("a")})
	if again := f.Ledger.Instance(first); again != first {
		t.Errorf("the second call is %q, want %q", again, first)
	}
	if other := f.Ledger.Instance("another run/1"); other == first || strings.HasPrefix(other, "another run") {
		t.Errorf("a name of another run was taken for one of this run: %q", other)
	}
	if p, ok := f.Ledger.Config("C"); !ok || p.Subject != "one" {
		t.Errorf("the config is not in the ledger: %v", p)
	}
	f.Ledger.Forget(first)
	if _, ok := f.Ledger.Config("c"); ok {
		t.Error("the config is still in the ledger")
	}
}
