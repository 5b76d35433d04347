//go:build linux

package crash_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// With these set, leases live for a duration, such as 65s, and one of so many points is
// tried, 1 for all.
const (
	leaseVariable = "GPU_CRASH_LEASE"
	everyVariable = "GPU_CRASH_EVERY"
)

// slowPower is how many milliseconds it takes to stop and to start a VM here, so that the
// agent can be stopped meanwhile.
const slowPower = 150

// deed is what happens to an agent and its records at one write.
type deed struct {
	// stopped has the process stand still for longer than its lease lives.
	stopped bool
	records loss
	then    visitor
	// left has the client go away meanwhile.
	left bool
	// overTLS has the agent listen; it goes on without its client.
	overTLS bool
}

// loss is what happens to the state file, or to the directory that it is in.
type loss string

const (
	kept        loss = ""
	deleted     loss = "state deleted"
	older       loss = "state replaced by an older one"
	dirDeleted  loss = "state directory deleted"
	dirReplaced loss = "state directory replaced by an older one"
)

// visitor is what another run does while the process stands still.
type visitor string

const (
	nobody visitor = "nobody comes"
	leaves visitor = "another run takes the lease and ends"
	stays  visitor = "another run takes the lease and ends later"
)

func (d deed) String() string {
	var is []string
	if d.records != kept {
		is = append(is, string(d.records))
	}
	if d.stopped {
		is = append(is, "stopped", string(d.then))
	}
	if d.left {
		is = append(is, "client gone")
	}
	if d.overTLS {
		is = append(is, "over TLS")
	}
	return strings.Join(is, ", ")
}

// standstill is one deed at one point of a change, or of putting it back.
type standstill struct {
	point
	deed
	failAt int
	old    []byte // the records before the change
	lease  time.Duration
	// identity is the certificate over TLS.
	identity string
	// unsettled counts the hosts that reconcile had something to do on.
	unsettled *atomic.Int32
	// barred counts the other runs that got in only when the process went on.
	barred *atomic.Int32
}

func (c standstill) String() string {
	undone := ""
	if c.failAt > 0 {
		undone = ", put back"
	}
	return fmt.Sprintf("%s%s: %s %s write %d of %d (%s)", c.name, undone, c.deed, c.when, c.at, len(c.writes), c.writes[c.at-1])
}

// TestSIGSTOPPastTheLease stops real agent processes with SIGSTOP for longer than their
// lease lives, at the writes of changes that stop VMs, while they stop and start them, and
// while they are put back.
func TestSIGSTOPPastTheLease(t *testing.T) {
	var deeds []deed
	for _, then := range []visitor{nobody, leaves, stays} {
		deeds = append(deeds, deed{stopped: true, then: then}, deed{stopped: true, then: then, left: true},
			deed{stopped: true, then: then, overTLS: true}, deed{stopped: true, then: then, left: true, overTLS: true})
	}
	meddle(t, deeds, 37)
}

// TestRecordsLostUnderAnAgent takes the records away from real agent processes in the
// middle of a change. Some are stopped meanwhile, so that another run gets in that knows
// nothing of the change.
func TestRecordsLostUnderAnAgent(t *testing.T) {
	var deeds []deed
	for _, records := range []loss{deleted, older, dirDeleted, dirReplaced} {
		deeds = append(deeds, deed{records: records}, deed{records: records, left: true})
		if records != dirDeleted {
			deeds = append(deeds, deed{records: records, stopped: true, then: leaves},
				deed{records: records, stopped: true, then: stays, left: true})
		}
	}
	meddle(t, deeds, 31)
}

// meddle does the deeds at one of so many points of the changes that stop VMs.
func meddle(t *testing.T, deeds []deed, every int) {
	lease := fromEnvironment(t, leaseVariable, time.ParseDuration, 3*time.Second)
	every = fromEnvironment(t, everyVariable, strconv.Atoi, every)
	root := scratch(t)
	identity := filepath.Join(root, "identity.pem")
	if err := identify(identity); err != nil {
		t.Fatal(err)
	}
	unsettled, barred := &atomic.Int32{}, &atomic.Int32{}
	cases := map[deed][]standstill{}
	for _, s := range scenarios() {
		if s.linux || s.nodes || s.change.Act != "" || len(s.concerned) == 0 {
			continue
		}
		p, err := s.prepare(t.Context(), root)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		old, err := os.ReadFile(p.before.place.state())
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		undone, from, failAt, err := p.undone(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		for _, d := range deeds {
			for _, one := range p.moments(0) {
				cases[d] = append(cases[d], standstill{
					point: one, deed: d, old: old, lease: lease, identity: identity, unsettled: unsettled, barred: barred,
				})
			}
			for _, one := range undone.moments(from) {
				cases[d] = append(cases[d], standstill{
					point: one, deed: d, failAt: failAt, old: old, lease: lease, identity: identity, unsettled: unsettled, barred: barred,
				})
			}
		}
	}
	all, tried, lost := 0, 0, 0
	var some []standstill
	for i, d := range deeds {
		all += len(cases[d])
		some = append(some, thin(cases[d], every, i*5)...)
	}
	tried = len(some)
	started := time.Now()
	lost = tryAll(t, some, 12) // they stand still most of the time
	t.Logf("%d of %d points tried with a lease of %s, lost: %d, left to reconcile: %d, other runs barred: %d (%.1f s)",
		tried, all, lease, lost, unsettled.Load(), barred.Load(), time.Since(started).Seconds())
	if tried < all {
		t.Logf("this was a sample; with %s=1 all are tried", everyVariable)
	}
}

// fromEnvironment reads a positive number or duration.
func fromEnvironment[T int | time.Duration](t *testing.T, name string, parse func(string) (T, error), without T) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return without
	}
	value, err := parse(text)
	if err != nil || value <= 0 {
		t.Fatalf("%s: %q: %v", name, text, err)
	}
	return value
}

func (p place) state() string { return filepath.Join(string(p), stateName, "state.json") }

// undone learns what the change writes when its last write to the host fails, and which one
// of those to the host that is. Renewing the lease may add others to the records.
func (p *prepared) undone(ctx context.Context) (_ *prepared, from, failAt int, err error) {
	for i, write := range p.writes {
		if write != record {
			from, failAt = i+1, failAt+1
		}
	}
	dir, err := p.before.place.copy()
	if err != nil {
		return nil, 0, 0, err
	}
	defer dir.remove()
	control, err := listen(ctx, dir)
	if err != nil {
		return nil, 0, 0, err
	}
	l, err := startAgent(ctx, agentJob{Dir: string(dir), FailAt: failAt})
	if err != nil {
		return nil, 0, 0, err
	}
	made := makeChange(ctx, agent.NewClient(l.conn, host), p.change)
	if err := l.end(); err != nil {
		return nil, 0, 0, err
	}
	end, err := control.wait()
	if err != nil {
		return nil, 0, 0, err
	}
	if made == nil {
		return nil, 0, 0, fmt.Errorf("write %d (%s) was to fail", from, p.writes[from-1])
	}
	twin := *p
	twin.writes = end.Writes
	return &twin, from, failAt, dir.wantPower(ctx, p.before.look)
}

// moments are the points of a change after a write. Before the second the agent has done
// nothing, and the last gives the lease back.
func (p *prepared) moments(from int) []point {
	var out []point
	for i, write := range p.writes {
		if i < max(2, from) {
			continue
		}
		out = append(out, point{p, meddled, i + 1, beforeWrite})
		if write == shutDown || write == startUp {
			out = append(out, point{p, meddled, i + 1, duringWrite})
		}
	}
	return append(out, point{p, meddled, len(p.writes), afterWrite})
}

// try does the deed at the point, and says what was lost by it.
func (c standstill) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*patience+2*c.lease)
	defer cancel()
	dir, err := c.before.place.copy()
	if err != nil {
		return err
	}
	defer dir.remove()
	if err := dir.slowDown(ctx); err != nil {
		return err
	}
	control, err := listen(ctx, dir)
	if err != nil {
		return err
	}
	job := agentJob{Dir: string(dir), Disaster: meddled, At: c.at, When: c.when, FailAt: c.failAt}
	start := startAgent
	if c.overTLS {
		job.Identity = c.identity
		start = func(ctx context.Context, job agentJob) (*link, error) { return startListening(ctx, job, control) }
	}
	l, err := start(ctx, job)
	if err != nil {
		return err
	}
	var other *otherRun
	struck := make(chan error, 1)
	control.cut <- func() {
		var err error
		other, err = c.strike(ctx, dir, l)
		struck <- err
	}
	request := lease("run-1")
	request.TTL = c.lease
	made := makeChangeUnder(ctx, agent.NewClient(l.conn, host), request, c.change) // what became of it is judged by the host
	if c.overTLS {
		dir.calm(ctx, c.lease+overTLSWait) // the agent has that long to itself
	}
	left := l.end()
	end, err := control.wait()
	if err != nil {
		return errors.Join(err, left, made)
	}
	if !control.struck {
		return errors.Join(errors.New("the agent did not come to this point"), made)
	}
	if err := <-struck; err != nil {
		return err
	}
	if other != nil {
		if err := <-other.ended; err != nil {
			return err
		}
	}
	if end.Error != "" && c.records == kept {
		return fmt.Errorf("the agent ended with: %s", end.Error)
	}
	late := c.comesLate(end.Writes[c.at-1])
	if err := c.judge(ctx, dir, late); err != nil {
		c.unsettled.Add(1)
	}
	wait := func(ctx context.Context, s *agent.Server) error {
		_, err := s.Reconcile(ctx, patience)
		return err
	}
	if err := dir.as(ctx, wait); err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	if err := c.judge(ctx, dir, late); err != nil {
		return errors.Join(fmt.Errorf("after reconcile: %w", err), made)
	}
	return nil
}

// overTLSWait is how long an agent that listens goes on without its client.
const overTLSWait = 3 * time.Second

// calm waits until nothing is left to settle, or the time is over.
func (p place) calm(ctx context.Context, wait time.Duration) {
	for until := time.Now().Add(wait); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if st, err := p.records(ctx); err == nil && len(st.Journal)+len(st.PendingStarts) == 0 {
			return
		}
	}
}

// identify writes a certificate and key that both ends of a connection use.
func identify(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tester", Organization: []string{connect.OperatorOrganization}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	doc := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	return os.WriteFile(file, doc, 0o600)
}

// comesLate tells whether a write had passed the gate when the agent was stopped, and comes
// to the host after another run has put the change back. Nothing can hold that back; what a
// late stop did is put right, and the next plan shows the rest.
func (c standstill) comesLate(write string) bool {
	return c.stopped && c.then != nobody && c.when == beforeWrite && !slices.Contains([]string{record, shutDown, startUp}, write)
}

// judge compares what is left with the two ways in which a change may end. Claims that were
// deleted when no process knew them any more are gone.
func (c standstill) judge(ctx context.Context, dir place, late bool) error {
	if err := dir.wantPower(ctx, c.before.look); err != nil {
		return err
	}
	if late || c.records != kept {
		return dir.wantSettled(ctx)
	}
	return c.point.judge(ctx, dir)
}

// otherRun is a run that comes while the first one stands still.
type otherRun struct{ ended chan error }

// strike does the deed. The agent goes on when it returns.
func (c standstill) strike(ctx context.Context, dir place, l *link) (_ *otherRun, err error) {
	if c.stopped {
		if err := standStill(l.cmd.Process); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, l.cmd.Process.Signal(syscall.SIGCONT)) }()
	}
	if err := c.lose(dir); err != nil {
		return nil, err
	}
	if c.left {
		l.cut()
	}
	switch {
	case !c.stopped:
		return nil, nil
	case c.then == nobody:
		time.Sleep(c.lease + c.lease/8)
		return nil, nil
	}
	other := &otherRun{ended: make(chan error, 1)}
	hasIt := make(chan error, 1)
	go func() {
		other.ended <- dir.as(ctx, func(ctx context.Context, s *agent.Server) error {
			return c.otherwise(ctx, s, hasIt)
		})
	}()
	return other, <-hasIt
}

// lockedOut is how long the other run tries to get in once the lease is over.
const lockedOut = 15 * time.Second

// otherwise is the other run.
func (c standstill) otherwise(ctx context.Context, s *agent.Server, hasIt chan<- error) error {
	conn, err := connect.InProcess(s)
	if err != nil {
		hasIt <- err
		return err
	}
	client := agent.NewClient(conn, host)
	request := lease("run-2")
	request.Wait = c.lease + patience
	// The process may have been stopped while it renewed its lease, and then has the lock of
	// the records. Nobody gets in before it goes on.
	soon, cancel := context.WithTimeout(ctx, c.lease+lockedOut)
	fence, err := client.AcquireLease(soon, request)
	cancel()
	if err != nil {
		c.barred.Add(1)
		hasIt <- nil
		if fence, err = client.AcquireLease(ctx, request); err != nil {
			return errors.Join(fmt.Errorf("the other run: %w", err), conn.Close())
		}
		return errors.Join(client.ReleaseLease(ctx, fence), conn.Close())
	}
	if c.then == stays {
		hasIt <- nil
		time.Sleep(2 * slowPower * time.Millisecond) // the first one is told meanwhile that it lost its lease
	}
	err = errors.Join(client.ReleaseLease(ctx, fence), conn.Close())
	if c.then == leaves {
		hasIt <- nil
	}
	return err
}

// lose lets the loss happen to the records of a place.
func (c standstill) lose(dir place) error {
	home := filepath.Join(string(dir), stateName)
	replace := func() error {
		if c.old == nil {
			return os.Remove(dir.state())
		}
		return os.WriteFile(dir.state(), c.old, 0o600)
	}
	switch c.records {
	case deleted:
		return os.Remove(dir.state())
	case older:
		return replace()
	case dirDeleted:
		return os.RemoveAll(home)
	case dirReplaced:
		if err := os.Rename(home, home+".away"); err != nil {
			return err
		}
		if err := os.Mkdir(home, 0o700); err != nil || c.old == nil {
			return err
		}
		return replace()
	}
	return nil
}

// standStill stops a process, and returns when it is stopped.
func standStill(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		if err != nil {
			return err
		}
		// The state follows the name, which is in parentheses.
		if i := bytes.LastIndexByte(stat, ')'); slices.Contains([]string{") T", ") t"}, string(stat[i:i+3])) {
			return nil
		}
	}
	return errors.New("the agent process does not stop")
}

// slowDown has stopping and starting VMs take a while.
func (p place) slowDown(ctx context.Context) error {
	fleet, err := p.fleet()
	if err != nil {
		return err
	}
	return fleet.EditSimulation(ctx, host, func(s *simulated.Simulation) {
		s.Latency = map[simulated.Op]int{simulated.OpShutDownVM: slowPower, simulated.OpStartVM: slowPower}
	})
}
