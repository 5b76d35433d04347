package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect" //nolint:depguard // the tests speak through a real connection
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// crash is a host on which an agent died in the middle of a change: a VM is off, and the
// state file holds claims, a lease that has expired and a change to be put back.
type crash struct {
	t            *testing.T
	fleet, state []byte
	host         gpu.Host // when all is put back
}

func newCrash(t *testing.T) *crash {
	t.Helper()
	dir := scratch(t)
	fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{testHost()}})
	check(t, err)
	r := rigOn(t, fleet)
	r.done(assign("c", "vm3", nil, partitionOf(off1, nil)), assign("d", "vm4", nil, partitionOf(off2, nil)))
	before := r.look()
	r.killedAt("add adapter")
	if vm := r.vm("run-1"); vm.Runs() {
		t.Fatal("the VM runs")
	}
	snap, err := fleet.Snapshot(t.Context())
	check(t, err)
	snap.Hosts[0].Claims = nil // they are in the directory
	c := &crash{t: t, host: before}
	c.fleet, err = json.Marshal(snap)
	check(t, err)
	state := r.state()
	store, err := statedir.Open(filepath.Join(dir, "state"))
	check(t, err)
	check(t, store.Update(t.Context(), func(st *backend.State) error {
		*st = state
		return nil
	}))
	c.state, err = os.ReadFile(filepath.Join(dir, "state", "state.json"))
	check(t, err)
	return c
}

// wreck is a copy of the crashed host.
type wreck struct {
	t     *testing.T
	fleet *others.Fleet
	sim   *simulated.Host
	path  string
	*agent.Server
	*agent.Client
}

// later is how long after its start a machine is looked at on which an agent died.
const later = 24 * time.Hour

// with puts the host together with a state file.
func (c *crash) with(t *testing.T, dir string, state []byte) *wreck {
	t.Helper()
	var snap gpu.Snapshot
	check(t, json.Unmarshal(c.fleet, &snap))
	fleet, err := others.InMemory(snap)
	check(t, err)
	sim, err := fleet.Host(host)
	check(t, err)
	store, err := statedir.Open(dir)
	check(t, err)
	w := &wreck{t: t, fleet: fleet, sim: sim, path: filepath.Join(dir, "state.json")}
	check(t, os.WriteFile(w.path, state, 0o600))
	w.Server = agent.NewServer(sim, store, agent.WithHostName("HV01"), agent.WithVersion("1.3.0"),
		agent.WithClock(func() time.Time { return booted.Add(later) }), agent.WithBootClock(func() time.Duration { return later }))
	conn, err := connect.InProcess(w.Server)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	w.Client = agent.NewClient(conn, host)
	return w
}

// look is the host with the claims that its agent shows.
func (w *wreck) look() gpu.Host {
	w.t.Helper()
	h, err := w.sim.Inventory(context.Background())
	check(w.t, err)
	if h.Claims, err = w.Claims(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	return anonymized(w.t, h)
}

// TestDamagedStateIsNeverObeyed damages the state file of a crashed host in 2,000 ways.
// Either what it said is done all the same, or the agent says what it cannot read, touches
// nothing, and keeps every byte. It never panics, and never takes a change or a claim for
// one that was not there.
func TestDamagedStateIsNeverObeyed(t *testing.T) {
	cases := 2000
	if testing.Short() {
		cases = 200
	}
	c := newCrash(t)
	random := rand.New(rand.NewPCG(1, 2))
	dir := filepath.Join(scratch(t), "state")
	read, told := 0, 0
	for n := range cases {
		damaged, how := c.state, "none"
		switch {
		case n == 0:
		case n%4 == 1:
			damaged = c.state[:random.IntN(len(c.state))]
			how = "cut to " + string(damaged[max(0, len(damaged)-20):])
		default:
			damaged = bytes.Clone(c.state)
			for range 1 + random.IntN(2) {
				at := random.IntN(len(damaged))
				damaged[at] ^= 1 << random.IntN(8)
				how = "at " + string(damaged[max(0, at-20):min(len(damaged), at+20)])
			}
		}
		w := c.with(t, dir, damaged)
		crashed := w.look()
		_, err := w.Reconcile(t.Context(), 0)
		if err == nil {
			read++
			wantSame(t, c.host, w.look())
			if j, err := w.Journal(t.Context()); err != nil || len(j.Changes)+len(j.Unreadable) > 0 {
				t.Errorf("the journal is %+v, %v", j, err)
			}
		} else {
			told++
			var e *agent.Error
			if !errors.As(err, &e) || e.Code != agent.Unreadable || !strings.Contains(e.Message, w.path) ||
				!strings.Contains(e.Message, "gpu-agent records") {
				t.Errorf("error %v", err)
			}
			if after, err := os.ReadFile(w.path); err != nil || !bytes.Equal(after, damaged) {
				t.Errorf("the file was changed, error %v", err)
			}
			h, err := w.Inventory(t.Context())
			if err != nil || len(h.Unreadable) == 0 || len(h.VMs) != len(c.host.VMs) {
				t.Errorf("inventory: %v, %+v", err, h.Unreadable)
			}
			wantSame(t, crashed, w.look())
			if _, err := w.AcquireLease(t.Context(), lease("run-2")); err == nil || !strings.Contains(err.Error(), w.path) {
				t.Errorf("lease: %v", err)
			}
		}
		if t.Failed() {
			t.Fatalf("case %d, %s", n, how)
		}
	}
	if read == 0 || told < cases/2 {
		t.Errorf("%d states were read, %d refused", read, told)
	}
	t.Logf("%d states were read, %d refused", read, told)
}

// TestEntryIsCheckedWhenItIsRead writes journal entries that are whole, with a checksum
// that fits, but could not be gone on with, under an agent that has read the right ones.
func TestEntryIsCheckedWhenItIsRead(t *testing.T) {
	c := newCrash(t)
	original := backend.DecodeState(c.state)
	for _, bad := range []struct {
		name  string
		edit  func(entry map[string]any)
		say   string
		newer bool
	}{
		{"begun beyond the steps", func(e map[string]any) { e["begun"] = 99 }, "begun is 99 of", false},
		{"begun below none", func(e map[string]any) { e["begun"] = -1 }, "begun is -1", false},
		{"undo too short", func(e map[string]any) {
			e["undo"] = e["undo"].([]any)[:1] //nolint:forcetypeassert // our own document
		}, "undo has 1 lists", false},
		{
			"a step without its object", func(e map[string]any) { delete(step(e, "add_partition_adapter"), "adapter") },
			"adapter is missing, which add_partition_adapter needs", false,
		},
		{"a step without its VM", func(e map[string]any) { delete(step(e, "stop_vm"), "vm") }, "steps[0].vm is missing", false},
		{"an undo without its claim", func(e map[string]any) { delete(undo(e, "drop_claim"), "claim") }, "claim is missing", false},
		{"another agent's op", func(e map[string]any) { step(e, "stop_vm")["op"] = "hibernate_vm" }, `steps[0].op is "hibernate_vm"`, true},
		{"another agent's undo", func(e map[string]any) { undo(e, "start_vm")["op"] = "wake_vm" }, `undo[0][0].op is "wake_vm"`, true},
		{"another agent's field", func(e map[string]any) { e["deadline"] = "noon" }, `unknown field "deadline"`, true},
		{
			"another agent's field of a step", func(e map[string]any) { step(e, "stop_vm")["reason"] = "x" },
			`unknown field "steps[0].reason"`, true,
		},
		{"another agent's status", func(e map[string]any) { e["status"] = "paused" }, `status is "paused"`, true},
		{"a field of another type", func(e map[string]any) { e["steps"] = "all" }, "steps", false},
		{"no id", func(e map[string]any) { e["id"] = "" }, "id is empty", false},
	} {
		t.Run(bad.name, func(t *testing.T) {
			var entry map[string]any
			check(t, json.Unmarshal(original.Journal[0], &entry))
			bad.edit(entry)
			doc, err := json.Marshal(entry)
			check(t, err)
			st := original
			st.Agent, st.Journal = "1.4.0", []json.RawMessage{doc}
			written, err := st.Encode()
			check(t, err)

			w := c.with(t, filepath.Join(scratch(t), "state"), c.state)
			if j, err := w.Journal(t.Context()); err != nil || len(j.Changes) != 1 {
				t.Fatalf("the journal before is %+v, %v", j, err)
			}
			check(t, os.WriteFile(w.path, written, 0o600)) // what the agent has read counts no more
			for range 5 {                                  // more often than a change is tried
				_, err := w.Reconcile(t.Context(), 0)
				e := &agent.Error{}
				if !errors.As(err, &e) || e.Code != agent.Unreadable {
					t.Fatalf("error %v", err)
				}
				for _, say := range []string{bad.say, "change 1", "test a", w.path, "written by agent 1.4.0"} {
					if !strings.Contains(e.Message, say) {
						t.Errorf("the error does not say %q: %v", say, e)
					}
				}
				if strings.Contains(e.Message, "install agent 1.4.0") != bad.newer {
					t.Errorf("newer is %t: %v", bad.newer, e)
				}
			}
			if after, err := os.ReadFile(w.path); err != nil || !bytes.Equal(after, written) {
				t.Errorf("the file was changed, error %v", err)
			}
			j, err := w.Journal(t.Context())
			if err != nil || len(j.Unreadable) != 1 || j.Unreadable[0].Newer != bad.newer {
				t.Fatalf("journal %+v, %v", j, err)
			}
			if claims, err := w.Claims(t.Context()); err != nil || len(claims) != 2 {
				t.Errorf("claims %+v, %v", claims, err)
			}
			if all, err := w.UnreadableRecords(t.Context()); err != nil || len(all) != 1 || !bytes.Equal(all[0].Raw, doc) ||
				all[0].ID != j.Unreadable[0].ID {
				t.Errorf("records %+v, %v", all, err)
			}

			// A person decides to give it up: what the change made stays, the rest is kept, and
			// the VM that it stopped is owed its start all the same.
			if _, err := w.DropRecord(t.Context(), "none", 0); err == nil {
				t.Error("a record that there is none of was dropped")
			}
			dropped, err := w.DropRecord(t.Context(), j.Unreadable[0].ID, 0)
			if err != nil || !bytes.Equal(dropped.Raw, doc) {
				t.Fatalf("dropped %s, %v", dropped.Raw, err)
			}
			if settled, err := w.Reconcile(t.Context(), 0); err != nil || len(settled) != 1 || !slices.Equal(settled[0].Started, []string{"run-1"}) {
				t.Errorf("settled %+v, %v", settled, err)
			}
			h, err := w.Inventory(t.Context())
			if vm, ok := h.VM(run1); err != nil || len(h.PendingStarts) > 0 || !ok || vm.State != gpu.VMRunning {
				t.Errorf("%+v, owed %+v, %v", vm, h.PendingStarts, err)
			}
			fence, err := w.AcquireLease(t.Context(), lease("run-2"))
			if err != nil || fence <= original.Fence {
				t.Errorf("fence %d after %d, %v", fence, original.Fence, err)
			}
			if claims, err := w.Claims(t.Context()); err != nil || len(claims) != 2 {
				t.Errorf("claims %+v, %v", claims, err)
			}
		})
	}
}

// step finds a step of an entry by its op.
func step(entry map[string]any, op string) map[string]any {
	for _, s := range entry["steps"].([]any) { //nolint:forcetypeassert // our own document
		if s := s.(map[string]any); s["op"] == op { //nolint:forcetypeassert // our own document
			return s
		}
	}
	return nil
}

func undo(entry map[string]any, op string) map[string]any {
	for _, list := range entry["undo"].([]any) { //nolint:forcetypeassert // our own document
		if list == nil {
			continue
		}
		if s := step(map[string]any{"steps": list}, op); s != nil {
			return s
		}
	}
	return nil
}

// TestLiveLeaseIsNotDropped refuses to give up a record while a run is at work.
func TestLiveLeaseIsNotDropped(t *testing.T) {
	c := newCrash(t)
	st := backend.DecodeState(c.state)
	st.Journal = []json.RawMessage{json.RawMessage(`{}`)}
	st.Lease.Ends = later + st.Lease.TTL/2
	written, err := st.Encode()
	check(t, err)
	w := c.with(t, filepath.Join(scratch(t), "state"), written)
	j, err := w.Journal(t.Context())
	if err != nil || len(j.Unreadable) != 1 {
		t.Fatalf("%+v, %v", j, err)
	}
	if _, err := w.DropRecord(t.Context(), j.Unreadable[0].ID, 0); err == nil || !strings.Contains(err.Error(), "run-1") {
		t.Errorf("error %v", err)
	}
}

// TestPanicIsAnError has the host's platform panic: in a step the change is put back, and
// in a call the next one is answered.
func TestPanicIsAnError(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	before := r.look()
	r.breaker.hook = func(write string) {
		if write == "add adapter" {
			panic("nothing there")
		}
	}
	_, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil)))
	e := &agent.Error{}
	if !errors.As(err, &e) || !strings.Contains(e.Message, "nothing there") || e.Outcome == nil || !e.Outcome.RolledBack {
		t.Errorf("error %v", err)
	}
	wantSame(t, before, r.look())
	r.wantJournal(0)
	r.breaker.hook = nil
	r.done(assign("b", "vm1", nil, partitionOf(run1, nil)))
}

// scratch is a folder in memory where there is one: the tests write the state a thousand
// times, and each write is synced.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gpu-agent-test-") //nolint:usetesting // in memory, see above
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestRecordOfTheClusterIsGivenUpOnAnyNode has a record in what the nodes of a cluster share
// that none of them can read: each lists it, nothing is changed, and one node gives it up for all.
func TestRecordOfTheClusterIsGivenUpOnAnyNode(t *testing.T) {
	n := newNodes(t)
	cluster, err := n.sim.Cluster(t.Context())
	check(t, err)
	raw := []byte(`{"kind":"tape","id":"t1"}`)
	repairer := cluster.Store.(backend.Repairer) //nolint:forcetypeassert // the simulator's is one
	check(t, repairer.Repair(t.Context(), func(st *backend.State) error {
		st.Unreadable = append(st.Unreadable, backend.NewUnreadable("claim 1", raw, true, "its kind is %q", "tape"))
		return nil
	}))
	before := n.look()
	var id string
	for _, node := range []*rig{n.rig, n.other} {
		all, err := node.anotherAgent().UnreadableRecords(t.Context())
		if err != nil || len(all) != 1 || !bytes.Equal(all[0].Raw, raw) {
			t.Fatalf("records %+v, %v", all, err)
		}
		id = all[0].ID
		if j, err := node.Journal(t.Context()); err != nil || len(j.Unreadable) != 1 || j.Unreadable[0].ID != id {
			t.Errorf("journal %+v, %v", j, err)
		}
		var e *agent.Error
		if _, err := node.AcquireLease(t.Context(), inCluster("run-1")); !errors.As(err, &e) || e.Code != agent.Unreadable {
			t.Errorf("a lease of the cluster: %v", err)
		}
	}
	wantSame(t, before, n.look())
	if dropped, err := n.other.anotherAgent().DropRecord(t.Context(), id, 0); err != nil || !bytes.Equal(dropped.Raw, raw) {
		t.Fatalf("dropped %+v, %v", dropped, err)
	}
	for _, node := range []*rig{n.rig, n.other} {
		if all, err := node.anotherAgent().UnreadableRecords(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("records afterwards %+v, %v", all, err)
		}
	}
	n.enters("run-1")
}
