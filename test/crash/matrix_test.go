//go:build linux || darwin

package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(agentVariable) != "": // before the client: it starts agents with its own environment
		err = runJob(agentVariable, serveAgent)
	case os.Getenv(clientVariable) != "":
		err = runJob(clientVariable, serveClient)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runJob[T any](name string, run func(T) error) error {
	var job T
	if err := json.Unmarshal([]byte(os.Getenv(name)), &job); err != nil {
		return err
	}
	return run(job)
}

// prepared is a scenario on the point of its change.
type prepared struct {
	scenario
	// before and after are how the host may be found in the end, by what struck it.
	before, after outcome
	writes        []string
}

// outcome is one way in which a change may end.
type outcome struct {
	place place
	bare  place // after a reboot after which no VM starts by itself
	// look and rebooted are what the place shows, and what it shows after a reboot.
	look, rebooted world
}

// prepare brings a scenario to the point of its change, and learns from a run in which
// nothing strikes what the change does.
func (s scenario) prepare(ctx context.Context, root string) (p *prepared, err error) {
	p = &prepared{scenario: s}
	dir, err := newPlace(root)
	if err != nil {
		return nil, err
	}
	hosts := fleet(s.edit)
	switch {
	case s.linux:
		hosts = linuxFleet()
	case s.nodes:
		inCluster(&hosts)
	}
	fleet, err := others.Create(filepath.Join(string(dir), fleetName), hosts)
	if err != nil {
		return nil, err
	}
	for vm, guest := range s.guests {
		if err := fleet.SetGuest(ctx, vm, guest); err != nil {
			return nil, err
		}
	}
	if !s.linux {
		for _, vm := range []string{byPart, byDev} {
			if err := fleet.SetVMState(ctx, vm, gpu.VMRunning); err != nil {
				return nil, err
			}
		}
	}
	for _, ch := range s.before {
		if _, err := runAgent(ctx, dir, ch); err != nil {
			return nil, fmt.Errorf("%s: %w", ch.ID, err)
		}
	}
	if s.linux {
		if _, err := fleet.StartInShare(ctx, host, byShare, gpu.Process{Name: byProcess}); err != nil {
			return nil, err
		}
	}
	if p.before, err = s.newOutcome(ctx, dir); err != nil {
		return nil, err
	}
	if dir, err = dir.copy(); err != nil {
		return nil, err
	}
	if p.writes, err = runAgent(ctx, dir, s.change); err != nil {
		return nil, err
	}
	if p.after, err = s.newOutcome(ctx, dir); err != nil {
		return nil, err
	}
	return p, p.check(ctx)
}

// check makes sure that a scenario is one: its change changes something, and the power of no VM
// but one that it is about, so that a host like before or like after it has lost nothing.
func (p *prepared) check(ctx context.Context) error {
	if len(p.writes) < 2 || p.change.Act != change.ActRestart && p.before.look.same(p.after.look) {
		return errors.New("the change changed nothing")
	}
	return errors.Join(p.after.place.wantPower(ctx, p.before.look, p.powers()...), p.after.place.wantSettled(ctx))
}

func (s scenario) newOutcome(ctx context.Context, dir place) (o outcome, err error) {
	o.place = dir
	if o.look, err = dir.look(ctx, s.concerned, false); err != nil {
		return o, err
	}
	if o.bare, err = dir.copy(); err != nil {
		return o, err
	}
	if err := o.bare.reboot(ctx, true); err != nil {
		return o, err
	}
	again, err := dir.copy()
	if err != nil {
		return o, err
	}
	defer again.remove()
	if err := again.reboot(ctx, false); err != nil {
		return o, err
	}
	if s.linux {
		if err := again.recover(ctx, reconcile); err != nil {
			return o, err
		}
	}
	o.rebooted, err = again.look(ctx, s.concerned, true)
	return o, err
}

// runAgent makes a change that nothing strikes, and returns its writes.
func runAgent(ctx context.Context, dir place, ch agent.Change) ([]string, error) {
	control, err := listen(ctx, dir)
	if err != nil {
		return nil, err
	}
	l, err := startAgent(ctx, agentJob{Dir: string(dir)})
	if err != nil {
		return nil, err
	}
	err = errors.Join(makeChange(ctx, agent.NewClient(l.conn, host), ch), l.end())
	if err != nil {
		return nil, err
	}
	end, err := control.wait()
	if err != nil {
		return nil, err
	}
	return end.Writes, nil
}

// point is one place in one change where one disaster strikes.
type point struct {
	*prepared
	disaster disaster
	at       int
	when     moment
}

func (p point) String() string {
	return fmt.Sprintf("%s: %s %s write %d of %d (%s)", p.name, p.disaster, p.when, p.at, len(p.writes), p.writes[p.at-1])
}

// points are all of a scenario's for one disaster.
func (p *prepared) points(d disaster) []point {
	if (p.linux || p.nodes) && d == rebootedBare {
		return nil // it has no VMs, or a cluster that starts them
	}
	var out []point
	for i, write := range p.writes {
		out = append(out, point{p, d, i + 1, beforeWrite})
		if write == shutDown && len(p.guests) > 0 && d != disksFull && d != recordsFull {
			out = append(out, point{p, d, i + 1, duringWrite})
		}
	}
	return append(out, point{p, d, len(p.writes), afterWrite})
}

// TestMatrix lets each disaster strike at the writes of each change.
func TestMatrix(t *testing.T) {
	every := map[disaster]int{}
	if testing.Short() {
		every = sample
	}
	root := scratch(t)
	var scenes []*prepared
	for _, s := range scenarios() {
		p, err := s.prepare(t.Context(), root)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		scenes = append(scenes, p)
	}
	tried, lost, all := 0, 0, 0
	for i, d := range []disaster{agentKilled, connectionCut, clientKilled, recordsFull, disksFull, rebooted, rebootedBare} {
		var points []point
		for _, p := range scenes {
			points = append(points, p.points(d)...)
		}
		all += len(points)
		points = thin(points, every[d], i)
		started := time.Now()
		failed := tryAll(t, points, 2) // processes wait for each other most of the time
		t.Logf("%-40s points tried: %4d, lost: %d  (%.1f s)", d, len(points), failed, time.Since(started).Seconds())
		tried, lost = tried+len(points), lost+failed
	}
	t.Logf("%-40s points tried: %4d, lost: %d", fmt.Sprintf("in %d changes", len(scenes)), tried, lost)
	if tried < all {
		t.Logf("this was a sample of %d points; `make crash-matrix` tries all", all)
	}
}

// scratch is a directory in memory where there is one: the agents write many thousand
// times. Its name is short, because sockets in it must have short names.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gpu-crash-") //nolint:usetesting // in memory, see above
	if err != nil {
		dir, err = os.MkdirTemp("", "gpu-crash-") //nolint:usetesting // a short name, see above
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// sample says that with -short one of so many points is tried. What shows whether an
// agent puts everything back by itself is tried in full.
var sample = map[disaster]int{recordsFull: 2, disksFull: 3, rebooted: 3, rebootedBare: 3}

func thin[P any](points []P, every, from int) []P {
	if every <= 1 {
		return points
	}
	var out []P
	for i := from % every; i < len(points); i += every {
		out = append(out, points[i])
	}
	return out
}

// tryAll tries points beside each other and returns how many were lost.
func tryAll[P interface {
	fmt.Stringer
	try(context.Context) error
}](t *testing.T, points []P, perCore int) (lost int) {
	t.Helper()
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(perCore * runtime.GOMAXPROCS(0))
	for _, p := range points {
		group.Go(func() error {
			if err := p.try(t.Context()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				lost++
				t.Errorf("%s: %v", p, err)
			}
			return nil
		})
	}
	_ = group.Wait() // each point told its own
	return lost
}

// try lets the disaster strike, and says what was lost by it.
func (p point) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	dir, err := p.before.place.copy()
	if err != nil {
		return err
	}
	defer dir.remove()
	if err := p.strike(ctx, dir); err != nil {
		return err
	}
	switch p.disaster {
	case connectionCut, clientKilled:
		return p.judge(ctx, dir) // nobody has helped
	case rebooted, rebootedBare:
		if err := dir.reboot(ctx, p.disaster == rebootedBare); err != nil {
			return err
		}
	case recordsFull:
		if err := dir.wantPower(ctx, p.before.look, p.powers()...); err != nil {
			return fmt.Errorf("while the disk was full: %w", err)
		}
	}
	for _, way := range ways {
		twin, err := dir.copy()
		if err != nil {
			return err
		}
		defer twin.remove()
		if err := twin.recover(ctx, way.settle); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		if p.linux && p.disaster == rebooted {
			if err := twin.recover(ctx, reconcile); err != nil { // as its boot does sooner or later
				return fmt.Errorf("reconcile after %s: %w", way.name, err)
			}
		}
		if err := p.judge(ctx, twin); err != nil {
			return fmt.Errorf("after %s: %w", way.name, err)
		}
	}
	return nil
}

// ways are how a host comes to rights after a death.
var ways = []struct {
	name   string
	settle func(context.Context, *agent.Server) error
}{
	{"the next run", func(ctx context.Context, s *agent.Server) error {
		conn, err := connect.InProcess(s)
		if err != nil {
			return err
		}
		c := agent.NewClient(conn, host)
		fence, err := c.AcquireLease(ctx, lease("run-2"))
		if err == nil {
			err = c.ReleaseLease(ctx, fence)
		}
		return errors.Join(err, conn.Close())
	}},
	{"reconcile", reconcile},
}

func reconcile(ctx context.Context, s *agent.Server) error {
	settled, err := s.Reconcile(ctx, 0)
	for _, one := range settled {
		if len(one.Stands) > 0 {
			err = errors.Join(err, fmt.Errorf("of %s stands: %q", one.Subject, one.Stands))
		}
	}
	return err
}

// ages is longer after its start than any machine is that runs this test, which began then.
const ages = 100 * 365 * 24 * time.Hour

var began = time.Now()

// recover settles what the dead left, when their lease has expired.
func (p place) recover(ctx context.Context, settle func(context.Context, *agent.Server) error) error {
	return p.as(ctx, settle, agent.WithBootClock(func() time.Duration { return ages + time.Since(began) }))
}

// judge compares what is left with the two ways in which a change may end.
func (p point) judge(ctx context.Context, dir place) error {
	if err := dir.wantSettled(ctx); err != nil {
		return err
	}
	loose := p.disaster == rebooted || p.disaster == rebootedBare
	got, err := dir.look(ctx, p.concerned, loose)
	if err != nil {
		return err
	}
	var wants []world
	for _, o := range []outcome{p.before, p.after} {
		want := o.look
		switch p.disaster {
		case rebooted:
			want = o.rebooted
		case rebootedBare:
			if want, err = o.bare.startedAs(ctx, got, p.concerned); err != nil {
				return err
			}
		}
		if want.same(got) {
			return nil
		}
		wants = append(wants, want)
	}
	return fmt.Errorf("the host is neither as before (-before +now):\n%s\nnor as after the change (-after +now):\n%s",
		wants[0].diff(got), wants[1].diff(got))
}
