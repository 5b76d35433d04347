package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// line is a way to one host that counts how often it is taken.
type line struct {
	mu sync.Mutex
	// install is what each dial was told about installing an agent.
	install []bool
	dial    func(ctx context.Context, nth int, mayInstall bool) (fleet.Conn, error)
}

func (l *line) endpoint() fleet.Endpoint {
	return fleet.Endpoint{Dial: func(ctx context.Context, mayInstall bool) (fleet.Conn, error) {
		l.mu.Lock()
		l.install = append(l.install, mayInstall)
		nth := len(l.install)
		l.mu.Unlock()
		return l.dial(ctx, nth, mayInstall)
	}}
}

func (l *line) dials() []bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.install)
}

// successive gives one connection after the other, and an error when none is left.
func successive(conns ...*conn) *line {
	return &line{dial: func(_ context.Context, nth int, _ bool) (fleet.Conn, error) {
		if nth > len(conns) {
			return nil, &connect.Error{Host: "a", Code: connect.Unreachable, Found: "nothing answers"}
		}
		return conns[nth-1], nil
	}}
}

// ended is a connection over which no call comes through any more.
type ended struct{}

func (ended) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Unavailable, "the other end has hung up")
}

func (ended) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unavailable, "the other end has hung up")
}

// hungUp is the error of a call over such a connection.
func hungUp() error { return agent.NewClient(ended{}, "a").ReleaseLease(context.Background(), 1) }

func alone(l *line, opt fleet.Options) *fleet.Fleet {
	opt.Hosts = map[string]fleet.Endpoint{"a": l.endpoint()}
	return fleet.New(opt)
}

func request(names ...string) fleet.Request {
	return fleet.Request{Change: change.Change{Subject: "c", Token: "t", Want: configFor(names...)}, HostTimeout: 10 * time.Minute}
}

func TestConnectionThatHasEndedIsOpenedOnceAgain(t *testing.T) {
	refused := &agent.Error{Code: agent.Denied, Message: "role reader"}
	for name, test := range map[string]struct {
		lease []error // of the first connection, the second and so on
		dials int
		fails bool
	}{
		"it works again":          {[]error{hungUp(), nil}, 2, false},
		"it ends again":           {[]error{hungUp(), hungUp(), nil}, 2, true},
		"the host itself refuses": {[]error{refused, nil}, 1, true},
		"it has not ended":        {[]error{nil}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var conns []*conn
				for _, err := range test.lease {
					c := connection("a")
					if err != nil {
						c.lease = func() error { return err }
					}
					conns = append(conns, c)
				}
				l := successive(conns...)
				f := alone(l, fleet.Options{})
				if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err != nil {
					t.Fatal(err)
				}
				_, err := f.Apply(t.Context(), request("a"))
				if (err != nil) != test.fails {
					t.Errorf("got %v", err)
				}
				if n := len(l.dials()); n != test.dials {
					t.Errorf("the host was dialled %d times, want %d", n, test.dials)
				}
				synctest.Wait()
				for i, c := range conns[:test.dials] {
					if gone := i < test.dials-1; (c.times("close") == 1) != gone {
						t.Errorf("connection %d was closed %d times", i+1, c.times("close"))
					}
				}
			})
		})
	}
}

// plansOnly is a connection that an apply does not use.
type plansOnly struct{ *conn }

func (plansOnly) ForPlans() {}

func TestApplyDialsAnewWhereAConnectionServesPlansOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, own := connection("a"), connection("a")
		l := &line{dial: func(_ context.Context, _ int, mayInstall bool) (fleet.Conn, error) {
			if !mayInstall {
				return plansOnly{old}, nil
			}
			return own, nil
		}}
		f := alone(l, fleet.Options{})
		for range 2 {
			if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err != nil {
				t.Fatal(err)
			}
		}
		f.Applying()
		if _, err := f.Apply(t.Context(), request("a")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := l.dials(); !slices.Equal(got, []bool{false, true}) {
			t.Errorf("dialled with mayInstall = %v", got)
		}
		if old.times("close") != 1 || old.times("lease") != 0 || own.times("apply") == 0 {
			t.Errorf("the old connection was closed %d times and took %d leases, the new one applied %d times",
				old.times("close"), old.times("lease"), own.times("apply"))
		}
	})
}

func TestPlanInstallsNothingAndAnApplyMay(t *testing.T) {
	l := &line{dial: func(_ context.Context, _ int, mayInstall bool) (fleet.Conn, error) {
		if !mayInstall {
			return nil, &fleet.NotYetKnownError{Host: "a", Reason: "host a has no gpu-agent yet"}
		}
		return connection("a"), nil
	}}
	f := alone(l, fleet.Options{})
	for range 50 {
		view := f.Snapshot(t.Context(), f.HostNames())
		var notYet *fleet.NotYetKnownError
		if !errors.As(view.Errors["a"], &notYet) || notYet.Error() != "host a has no gpu-agent yet" {
			t.Fatalf("a plan got %v", view.Errors["a"])
		}
	}
	if got := l.dials(); !slices.Equal(got, []bool{false}) {
		t.Errorf("the plan dialled %v, want once and without installing", got)
	}
	f.Applying()
	if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err != nil {
		t.Errorf("the apply got %v", err)
	}
	if got := l.dials(); !slices.Equal(got, []bool{false, true}) {
		t.Errorf("the apply dialled %v, want once more and with leave to install", got[1:])
	}
}

// Terraform plans one resource again while it applies another one.
func TestApplyIsNotToldWhatAPlanFailedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{dial: func(_ context.Context, _ int, mayInstall bool) (fleet.Conn, error) {
			time.Sleep(time.Second)
			if !mayInstall {
				return nil, &fleet.NotYetKnownError{Host: "a"}
			}
			return connection("a"), nil
		}}
		f := alone(l, fleet.Options{})
		go func() { _, _ = f.Snapshot(t.Context(), []string{"a"}).Host("a") }()
		synctest.Wait() // the plan dials
		f.Applying()
		if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err != nil {
			t.Errorf("the apply got %v", err)
		}
	})
}

func TestHostThatTakesLongToFailHoldsUpARunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(10 * time.Minute)
		l := &line{dial: func(context.Context, int, bool) (fleet.Conn, error) {
			if time.Now().Before(back) {
				time.Sleep(30 * time.Second)
				return nil, &connect.Error{Host: "a", Code: connect.Unreachable}
			}
			return connection("a"), nil
		}}
		f := alone(l, fleet.Options{})
		start := time.Now()
		for range 1000 {
			var ce *connect.Error
			if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); !errors.As(err, &ce) {
				t.Fatalf("got %v", err)
			}
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("1,000 resources waited %s for a host that does not answer", took)
		}
		time.Sleep(time.Until(back))
		if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err != nil {
			t.Errorf("the host is back, but: %v", err)
		}
	})
}

func TestCallerThatIsCancelledNeitherWaitsNorFailsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{dial: func(ctx context.Context, _ int, _ bool) (fleet.Conn, error) {
			time.Sleep(20 * time.Second)
			return connection("a"), ctx.Err()
		}}
		f := alone(l, fleet.Options{})
		first, interrupt := context.WithTimeout(t.Context(), time.Second)
		defer interrupt()
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() {
			_, err := f.Snapshot(first, []string{"a"}).Host("a")
			if ae, ok := errors.AsType[*agent.Error](err); !ok || ae.Code != agent.Cancelled || ae.Host != "a" {
				t.Errorf("the caller that was cancelled got %v", err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("it was let go after %s", took)
			}
		})
		synctest.Wait()
		if _, err := f.Snapshot(t.Context(), []string{"a"}).Host("a"); err != nil {
			t.Errorf("the other caller got %v", err)
		}
		wg.Wait()
		if n := len(l.dials()); n != 1 {
			t.Errorf("the host was dialled %d times, want 1", n)
		}
	})
}

func TestWaitingForItsTurnIsNotHeldAgainstAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, conns := hosts(t, fleet.Options{MaxParallelHosts: 1}, "a", "b", "c", "d")
		for _, c := range conns {
			c.inventory = func() error { time.Sleep(time.Minute + 50*time.Second); return nil }
		}
		if v := f.Snapshot(t.Context(), f.HostNames()); !v.Complete() {
			t.Errorf("some hosts failed: %v", v.Errors)
		}
	})
}

// From the first byte to the last inventory a fleet takes as many rounds as max_parallel_hosts leaves,
// and never has more hosts at work. Each takes a second to be connected and one to answer.
func TestAFleetIsReadInRounds(t *testing.T) {
	const all = 1000
	for _, bound := range []int{1, 32, 300, 2 * all} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			busy, most := 0, 0
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				busy += n
				most = max(most, busy)
			}
			opt := fleet.Options{MaxParallelHosts: bound, Hosts: map[string]fleet.Endpoint{}}
			for n := range all {
				c := connection(fmt.Sprintf("hv%04d", n))
				c.inventory = func() error {
					time.Sleep(time.Second)
					count(-1)
					return nil
				}
				opt.Hosts[c.host.Name] = fleet.Endpoint{Dial: func(context.Context, bool) (fleet.Conn, error) {
					count(1)
					time.Sleep(time.Second)
					return c, nil
				}}
			}
			began := time.Now()
			if v := lookAll(t, fleet.New(opt)); !v.Complete() {
				t.Fatalf("some hosts failed: %v", v.Errors)
			}
			rounds := (all + bound - 1) / bound
			if took := time.Since(began); took != time.Duration(2*rounds)*time.Second {
				t.Errorf("with %d hosts at a time it took %v, want %d rounds of 2s", bound, took, rounds)
			}
			if most != min(bound, all) {
				t.Errorf("%d hosts were at work at a time, want %d", most, min(bound, all))
			}
		})
	}
}

// TestRunNeedsOneConnectionAndOneInventoryOfEachHost plans and applies as Terraform does.
func TestRunNeedsOneConnectionAndOneInventoryOfEachHost(t *testing.T) {
	const hosts, resources = 20, 50
	opt := fleet.Options{Hosts: map[string]fleet.Endpoint{}}
	lines, conns := map[string]*line{}, map[string]*conn{}
	for i := range hosts {
		n := fmt.Sprintf("hv%02d", i)
		conns[n] = connection(n)
		lines[n] = successive(conns[n], connection(n))
		opt.Hosts[n] = lines[n].endpoint()
	}
	f := fleet.New(opt)
	names := f.HostNames()
	var wg sync.WaitGroup
	for i := range resources {
		wg.Go(func() {
			if v := f.Snapshot(t.Context(), f.HostNames()); !v.Complete() {
				t.Errorf("some hosts failed: %v", v.Errors)
			}
			f.Applying()
			on := []string{names[i%hosts], names[(i+7)%hosts]}
			if _, err := f.Apply(t.Context(),
				fleet.Request{Change: change.Change{Subject: fmt.Sprint(i), Token: fmt.Sprint(i), Want: configFor(on...)}}); err != nil {
				t.Error(err)
			}
			f.Snapshot(t.Context(), f.HostNames())
		})
	}
	wg.Wait()
	for _, n := range names {
		if d, i := len(lines[n].dials()), conns[n].times("inventory"); d != 1 || i != 1 {
			t.Errorf("host %s: %d connections and %d inventories, want 1 and 1", n, d, i)
		}
	}
}

func TestNeedsHand(t *testing.T) {
	for code, want := range map[connect.Code]bool{
		connect.Settings: true, connect.WrongCluster: true, connect.HostKey: true, connect.Certificate: true,
		connect.Authentication: true, connect.NoAgent: true, connect.Blocked: true, connect.WrongPlatform: true,
		connect.Garbage: true, connect.Version: true,
		connect.Unreachable: false, connect.Ended: false,
	} {
		err := fmt.Errorf("host a: %w", &connect.Error{Host: "a", Code: code})
		if got := fleet.NeedsHand(err); got != want {
			t.Errorf("%s: %t, want %t", code, got, want)
		}
	}
	if fleet.NeedsHand(errors.New("something")) || fleet.NeedsHand(&agent.Error{Code: agent.Unavailable}) {
		t.Error("an error that is not of a connection")
	}
	if !fleet.NeedsHand(fmt.Errorf("host a: %w", &agent.Error{Code: agent.Internal})) {
		t.Error("an agent that answers without its platform")
	}
}

func TestWhatIsToldOnceIsToldOnce(t *testing.T) {
	f, _ := hosts(t, fleet.Options{}, "a", "b")
	var mu sync.Mutex
	told := map[string]int{}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			what := []string{"no agent on a", "no agent on b"}[i%2]
			if f.Once(what) {
				mu.Lock()
				defer mu.Unlock()
				told[what]++
			}
		})
	}
	wg.Wait()
	if told["no agent on a"] != 1 || told["no agent on b"] != 1 {
		t.Errorf("told %v", told)
	}
	other := fleet.New(fleet.Options{})
	if !other.Once("no agent on a") {
		t.Error("another run is not told")
	}
}

func TestHostsAreEnteredInSortedOrder(t *testing.T) {
	f, conns := hosts(t, fleet.Options{}, "a", "b", "c")
	var mu sync.Mutex
	var order []string
	for n, c := range conns {
		c.lease = func() error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, n)
			return nil
		}
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if _, err := f.Apply(t.Context(),
				fleet.Request{Change: change.Change{Subject: fmt.Sprint(i), Token: fmt.Sprint(i), Want: configFor("c", "a", "b")}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// Changes that all begin with the same host overtake each other nowhere.
	if got, want := strings.Join(order, ""), strings.Repeat("abc", 10); got != want {
		t.Errorf("the hosts were entered as %s, want %s", got, want)
	}
}

// Whoever gives up waiting may have been left the lease.
func TestLeaseGoesBackWhenAWaitingChangeGivesUp(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			f, conns := hosts(t, fleet.Options{}, "a")
			c := conns["a"]
			ctx, giveUp := context.WithCancel(t.Context())
			begun := make(chan struct{})
			c.apply = func(agent.Change) (agent.Outcome, error) {
				close(begun)
				synctest.Wait() // the other change comes to wait
				giveUp()
				return agent.Outcome{Host: c.read()}, nil
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := f.Apply(t.Context(), request("a")); err != nil {
					t.Error(err)
				}
			})
			<-begun
			_, err := f.Apply(ctx, fleet.Request{
				Change: change.Change{
					Subject: "waits", Token: "w", Want: gpu.Want{
						Config: &gpu.PartitionConfig{ID: "w", Kind: gpu.KindGPUP, Count: 2, GPUs: map[string][]string{"a": {"h"}}},
					},
				},
			})
			wg.Wait()
			if ae, ok := errors.AsType[*agent.Error](err); !ok || ae.Code != agent.Cancelled && ae.Code != agent.RuleViolation {
				t.Fatalf("the change that gave up got %v", err)
			}
			if last := c.asked[len(c.asked)-1]; last != "release" {
				t.Fatalf("the lease was not given back: %v", c.asked)
			}
		})
	}
}

func TestCloseHangsUpOnEveryHostOnce(t *testing.T) {
	f, conns := hosts(t, fleet.Options{}, "a", "b", "c")
	if seen := f.Snapshot(t.Context(), []string{"a", "b"}); len(seen.Errors) > 0 {
		t.Fatal(seen.Errors)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int{"a": 1, "b": 1, "c": 0} {
		if got := conns[name].times("close"); got != want {
			t.Errorf("the connection to host %s was closed %d times, want %d", name, got, want)
		}
	}
}
