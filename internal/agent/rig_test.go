package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	host  = "hv01"
	owner = "vdi-prod"
	// patience is how long a test waits for what has to happen. A busy machine takes
	// its time.
	patience = time.Minute
	// startPatience is how long an undo tries to start a VM, seven times.
	startPatience = 64 * time.Millisecond
)

// booted is when the machines of the tests have started.
var booted = time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)

// rig is one simulated host with an agent and a client that reaches it over gRPC.
type rig struct {
	t     *testing.T
	fleet *others.Fleet
	sim   *simulated.Host
	on    backend.HyperV // nil for sim
	clock *clock
	boot  func() time.Duration // nil for one that goes as the clock does
	// stepTime is how long a step may take, if that is more than patience.
	stepTime time.Duration
	*agentUnderTest
}

// agentUnderTest is one process of the agent. A rig may have several, one after
// another.
type agentUnderTest struct {
	*agent.Client
	breaker *breaker
	ending  *ending
	fence   int64
}

func newRig(t *testing.T, edit func(*gpu.Host)) *rig {
	t.Helper()
	h := testHost()
	if edit != nil {
		edit(&h)
	}
	fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{h}})
	check(t, err)
	return rigOn(t, fleet)
}

// copyOf makes a rig on a copy of a fleet as another rig left it.
func copyOf(t *testing.T, left *others.Fleet) *rig {
	t.Helper()
	return rigOn(t, copyFleet(t, left))
}

func copyFleet(t *testing.T, of *others.Fleet) *others.Fleet {
	t.Helper()
	fleet, err := of.Copy(t.Context())
	check(t, err)
	return fleet
}

func rigOn(t *testing.T, fleet *others.Fleet) *rig {
	t.Helper()
	sim, err := fleet.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, fleet: fleet, sim: sim, clock: &clock{now: time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)}}
	r.restart("run-1")
	return r
}

// restart starts another agent process on the host, as one that knows nothing of the
// one before, and takes the lease for a run.
func (r *rig) restart(run string) {
	r.t.Helper()
	r.start()
	r.acquire(run)
}

func (r *rig) start() {
	r.t.Helper()
	hyperv := r.on
	if hyperv == nil {
		hyperv = r.sim
	}
	b := &breaker{HyperV: hyperv, MIG: r.sim, VGPU: r.sim, Sharing: r.sim, Meter: r.sim, store: r.sim, platform: r.sim.Platform}
	server := agent.NewServer(b, b, r.options()...)
	e := &ending{server: server, heard: make(chan struct{})}
	conn, err := connect.InProcess(e)
	if err != nil {
		r.t.Fatal(err)
	}
	client := agent.NewClient(conn, host)
	r.agentUnderTest = &agentUnderTest{Client: client, breaker: b, ending: e}
	r.t.Cleanup(func() { _ = client.Close() }) // ends the renewal of its lease too
}

// options are those of any agent on the host.
func (r *rig) options() []agent.Option {
	boot := r.boot
	if boot == nil {
		up := r.clock
		boot = func() time.Duration { return up.Now().Sub(booted) }
	}
	return []agent.Option{
		agent.WithHostName("HV01"), agent.WithClock(r.clock.Now), agent.WithBootClock(boot),
		agent.WithTimeouts(max(patience, r.stepTime), 2*max(patience, r.stepTime)), agent.WithStartPatience(startPatience),
	}
}

func (r *rig) acquire(run string) {
	r.t.Helper()
	req := inCluster(run)
	req.Wait = patience // a process that lost its lease may just be settling what it left
	fence, err := r.AcquireLease(r.t.Context(), req)
	if err != nil {
		r.t.Fatalf("acquire the lease: %v", err)
	}
	r.fence = fence
}

func lease(run string) agent.LeaseRequest {
	return agent.LeaseRequest{Run: run, Owner: owner, Holder: "tester", TTL: time.Minute}
}

// apply makes a change with the preparation that a provider would do.
func (r *rig) apply(ch agent.Change) (agent.Outcome, error) {
	r.t.Helper()
	p, err := r.Prepare(r.t.Context(), ch)
	if err != nil {
		return agent.Outcome{}, err
	}
	return r.Client.Apply(r.t.Context(), r.fence, ch, p.Basis, nil)
}

// done applies and settles changes that have to succeed.
func (r *rig) done(changes ...agent.Change) {
	r.t.Helper()
	for _, ch := range changes {
		if _, err := r.apply(ch); err != nil {
			r.t.Fatalf("%s: %v", ch.ID, err)
		}
		if _, err := r.Settle(r.t.Context(), r.fence, ch.ID, false); err != nil {
			r.t.Fatalf("settle %s: %v", ch.ID, err)
		}
	}
}

// look is the host as it is, without what differs from one start of a VM to the next, or
// when a GPU instance is made again.
func (r *rig) look() gpu.Host {
	r.t.Helper()
	h, err := r.sim.Inventory(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	h.Claims = r.state().Claims
	return anonymized(r.t, h)
}

// anonymized is a copy of a host without what differs from one start of a VM to the next,
// or when a GPU instance is made again.
func anonymized(t *testing.T, h gpu.Host) gpu.Host {
	t.Helper()
	doc, err := json.Marshal(h)
	check(t, err)
	var out gpu.Host
	check(t, json.Unmarshal(doc, &out))
	for i := range out.GPUs {
		if v := out.GPUs[i].VGPU; v != nil {
			for j := range v.Instances {
				v.Instances[j].GPUInstance, v.Instances[j].Address = nil, "" // the driver chooses
			}
		}
		if p := out.GPUs[i].Partitionable; p != nil {
			for j := range p.Partitions {
				p.Partitions[j].ID, p.Partitions[j].VFLUID = 0, ""
			}
			slices.SortFunc(p.Partitions, func(a, b gpu.Partition) int { return strings.Compare(a.VMID, b.VMID) })
		}
	}
	for i := range out.GPUs {
		if m := out.GPUs[i].MIG; m != nil {
			anonymous(m.Instances)
		}
	}
	if out.MPS != nil {
		for i := range out.MPS.Daemons {
			if d := &out.MPS.Daemons[i]; d.PID != 0 {
				d.PID = anyPID
			}
			out.MPS.Daemons[i].PipeDir = ""
		}
	}
	for i := range out.Shares { // which tell UUIDs of instances
		out.Shares[i].Environment = withoutDevices(out.Shares[i].Environment)
	}
	for i := range out.VMs {
		for j := range out.VMs[i].PartitionAdapters {
			out.VMs[i].PartitionAdapters[j].ID = ""
		}
		for j := range out.VMs[i].Devices {
			out.VMs[i].Devices[j].ID = ""
		}
	}
	slices.Sort(out.Units)
	slices.SortFunc(out.Claims, func(a, b gpu.Claim) int { return strings.Compare(string(a.Kind)+a.ID, string(b.Kind)+b.ID) })
	return out
}

func (r *rig) state() backend.State {
	r.t.Helper()
	state, err := r.sim.Load(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return state
}

func (r *rig) wantJournal(entries int) {
	r.t.Helper()
	if n := len(r.state().Journal); n != entries {
		r.t.Errorf("the journal has %d entries, want %d", n, entries)
	}
}

func (r *rig) vm(name string) gpu.VM {
	r.t.Helper()
	for _, vm := range r.look().VMs {
		if vm.Name == name {
			return vm
		}
	}
	r.t.Fatalf("no VM %s", name)
	return gpu.VM{}
}

func (r *rig) count(id string) int {
	r.t.Helper()
	h := r.look()
	g, ok := h.GPU(id)
	if !ok || g.Partitionable == nil {
		r.t.Fatalf("no partitionable GPU %s", id)
	}
	return g.Partitionable.Count
}

func (r *rig) claim(kind gpu.ClaimKind, id string) (gpu.Claim, bool) {
	r.t.Helper()
	for _, c := range r.state().Claims {
		if c.Is(kind, id) {
			return c, true
		}
	}
	return gpu.Claim{}, false
}

func wantSame(t *testing.T, before, after gpu.Host) {
	t.Helper()
	if d := cmp.Diff(before, after, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(gpu.Host{}, "Boot")); d != "" {
		t.Errorf("the host is not as it was (-before +after):\n%s", d)
	}
}

func wantCode(t *testing.T, err error, code agent.Code) {
	t.Helper()
	_ = codeOf(t, err, code)
}

// kindOf checks the kind of an error and returns it.
func codeOf(t *testing.T, err error, code agent.Code) *agent.Error {
	t.Helper()
	var ae *agent.Error
	if !errors.As(err, &ae) {
		t.Fatalf("error %v is not of the contract", err)
	}
	if ae.Code != code {
		t.Fatalf("error is %s (%v), want %s", ae.Code, ae, code)
	}
	if ae.Host != host {
		t.Errorf("error names host %q, want %q", ae.Host, host)
	}
	return ae
}

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
