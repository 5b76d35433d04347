package mps_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// TestClientsAreAsked has clients named, and ended only when that is allowed.
func TestClientsAreAsked(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{GPU: true}, nil)
	spec := training()
	h.ensure(spec)
	client := h.programs.StartClient(h.PipeDir("training"), 0).Computes(t)
	d := h.daemon("training")
	if len(d.Servers) != 1 || len(d.Clients) != 1 || d.Clients[0].PID != client.PID || d.Clients[0].Name != "cuda-client" ||
		d.Clients[0].Server != d.Servers[0] {
		t.Fatalf("seen: %+v", d)
	}
	if status, err := h.control("training").ServerStatus(t.Context(), d.Servers[0]); err != nil || status != "ACTIVE" {
		t.Errorf("its server is %q, %v", status, err)
	}

	spec.Devices, spec.PinnedMemory = []string{gpu1}, nil
	if e := h.planned(spec, mps.Restart); len(e.Clients) != 1 || e.Clients[0].PID != client.PID {
		t.Errorf("planned: %+v", e)
	}
	changed, err := h.Ensure(t.Context(), spec, mps.KeepClients)
	refused(t, err, backend.InUse, "1 clients would end", "cuda-client (process ", "its devices are "+gpu1+", "+gpu2)
	if _, err := h.Remove(t.Context(), "training", mps.KeepClients); changed || err == nil {
		t.Errorf("changed %v, removed: %v", changed, err)
	}
	if now := h.daemon("training"); now.PID != d.PID || len(now.Clients) != 1 {
		t.Fatalf("a refused change has left %+v", now)
	}

	if changed, err := h.Ensure(t.Context(), spec, mps.EndClients); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if !client.Ended() {
		t.Error("the client computes on, past the daemon")
	}
	log, err := os.ReadFile(filepath.Join(h.opt.LogDir, "training", "control.log"))
	told := strings.Index(string(log), fmt.Sprintf("Cmd:terminate_client %d %d\n", d.Servers[0], client.PID))
	if quit := strings.Index(string(log), "Cmd:quit"); err != nil || told < 0 || quit < told {
		t.Errorf("the client is terminated at %d, and the daemon ended at %d, %v:\n%s", told, quit, err, log)
	}
	h.settled(spec)
	if now := h.daemon("training"); now.PID == d.PID || len(now.Clients) != 0 {
		t.Errorf("restarted: %+v", now)
	}
}

// TestClientThatStays after it was terminated is named: nothing may be taken from under it.
func TestClientThatStays(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{GPU: true, Clings: true}, func(o *mps.Options) { o.StopTimeout = 100 * time.Millisecond })
	h.ensure(training())
	client := h.programs.StartClient(h.PipeDir("training"), 0).Computes(t)
	err := h.EndClients(t.Context(), func(c mps.Client) bool { return c.PID == client.PID })
	refused(t, err, backend.InUse, fmt.Sprintf("cuda-client (process %d) is still a client", client.PID), "stop it")
	if err := h.EndClients(t.Context(), func(mps.Client) bool { return false }); err != nil {
		t.Error(err)
	}
}

// TestServerWithFault has a server that is of no use any more reported, and its daemon started
// anew as soon as that ends nobody.
func TestServerWithFault(t *testing.T) {
	t.Parallel()
	b := fakemps.Behaviour{Driver: 550, GPU: true, Faults: true}
	h := newFake(t, b, nil)
	spec := training()
	h.ensure(spec)
	if d := h.daemon("training"); d.Problem != "" {
		t.Errorf("without a server it is %+v", d)
	}
	client := h.programs.StartClient(h.PipeDir("training"), 0).Computes(t)
	d := h.daemon("training")
	if len(d.Servers) != 1 || !strings.Contains(d.Problem, fmt.Sprintf("its server %d has had a fault", d.Servers[0])) {
		t.Fatalf("seen: %+v", d)
	}
	_, err := h.Ensure(t.Context(), spec, mps.KeepClients)
	refused(t, err, backend.InUse, "has had a fault", "cuda-client (process ")
	client.Stop()
	eventually(t, func() bool { return len(h.daemon("training").Clients) == 0 })
	b.Faults = false
	h.programs.Behave(b)
	if changed, err := h.Ensure(t.Context(), spec, mps.KeepClients); err != nil || !changed {
		t.Fatal(changed, err)
	}
	h.settled(spec)
	h.programs.StartClient(h.PipeDir("training"), 0).Computes(t)
	if now := h.daemon("training"); now.Problem != "" || now.PID == d.PID {
		t.Errorf("now it is %+v", now)
	}
}

// TestSettingsReachServers has a change of settings reach the servers that run, for their
// next clients, and end none.
func TestSettingsReachServers(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{GPU: true}, nil)
	spec := training()
	h.ensure(spec)
	client := h.programs.StartClient(h.PipeDir("training"), 0).Computes(t)
	server := h.daemon("training").Servers[0]
	spec.Settings = mpsconf.Settings{ActiveThreadPercentage: 50, PinnedMemory: map[string]gpu.Bytes{gpu1: gib}}
	h.planned(spec, mps.Configure)
	h.ensure(spec)
	h.settled(spec)
	c := h.control("training")
	threads, err := c.Threads(t.Context(), server)
	if err != nil || threads != 50 {
		t.Errorf("the server's percentage is %v, %v", threads, err)
	}
	for ordinal, want := range []gpu.Bytes{gib, 0} {
		if limit, err := c.MemoryLimit(t.Context(), server, ordinal); err != nil || limit != want {
			t.Errorf("the server's limit on device %d is %v, %v", ordinal, limit, err)
		}
	}
	if got := h.daemon("training").Clients; len(got) != 1 || got[0].PID != client.PID {
		t.Errorf("clients are %+v", got)
	}

	// A server without clients ends instead: the next one has all settings.
	client.Stop()
	eventually(t, func() bool { return len(h.daemon("training").Clients) == 0 })
	spec.ActiveThreadPercentage = 60
	h.ensure(spec)
	eventually(t, func() bool { return len(h.daemon("training").Servers) == 0 })
	h.settled(spec)
}

// TestServerThatGivesMore than is declared is seen, since its clients are held to no less, and is
// put right.
func TestServerThatGivesMore(t *testing.T) {
	t.Parallel()
	for name, lift := range map[string]func(*testing.T, *mps.Control, int) error{
		"of the threads": func(t *testing.T, c *mps.Control, server int) error { return c.SetThreads(t.Context(), server, 90) },
		"of the memory": func(t *testing.T, c *mps.Control, server int) error {
			return c.SetMemoryLimit(t.Context(), server, 1, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFake(t, fakemps.Behaviour{GPU: true}, nil)
			spec := training()
			h.ensure(spec)
			h.programs.StartClient(h.PipeDir("training"), 0).Computes(t)
			if err := lift(t, h.control("training"), h.daemon("training").Servers[0]); err != nil {
				t.Fatal(err)
			}
			if d := h.daemon("training"); d.Settings.Equal(spec.Settings) {
				t.Errorf("the daemon shows %+v, as if its server held to it", d.Settings)
			}
			h.planned(spec, mps.Configure)
			h.ensure(spec)
			h.settled(spec)
			if d := h.daemon("training"); !d.Settings.Equal(spec.Settings) || len(d.Clients) != 1 {
				t.Errorf("put right, it shows %+v with %d clients", d.Settings, len(d.Clients))
			}
		})
	}
}

// TestAnotherUserWaits has the processes of a second user wait for a daemon
// until those of the first have ended.
func TestAnotherUserWaits(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{GPU: true}, nil)
	spec := training()
	h.ensure(spec)
	first := h.programs.StartClient(h.PipeDir("training"), 1000).Computes(t)
	second := h.programs.StartClient(h.PipeDir("training"), 1001)
	if !second.Waits() {
		t.Fatal("the second user's client computes beside the first's")
	}
	if got := h.daemon("training").Clients; len(got) != 1 || got[0].PID != first.PID {
		t.Errorf("clients are %+v", got)
	}
	first.Stop()
	second.Computes(t)
	if got := h.daemon("training").Clients; len(got) != 1 || got[0].PID != second.PID {
		t.Errorf("clients are %+v", got)
	}
}

func TestUsersTogether(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{GPU: true, MultiUser: true}, nil)
	spec := training()
	spec.User, spec.MultiUser = nil, true
	h.ensure(spec)
	h.settled(spec)
	first := h.programs.StartClient(h.PipeDir("training"), 1000).Computes(t)
	second := h.programs.StartClient(h.PipeDir("training"), 1001).Computes(t)
	var pids []int
	for _, c := range h.daemon("training").Clients {
		pids = append(pids, c.PID)
	}
	slices.Sort(pids)
	want := []int{first.PID, second.PID}
	slices.Sort(want)
	if !slices.Equal(pids, want) || !h.daemon("training").MultiUser {
		t.Errorf("clients are %v, and %v were wanted", pids, want)
	}
	spec.User, spec.MultiUser = new(0), false
	h.planned(spec, mps.Restart)
}

// TestOrphanedServer has a server that has lost its daemon end before the next one starts:
// with clients only when that is allowed, and without any as it is.
func TestOrphanedServer(t *testing.T) {
	t.Parallel()
	h, computing := withDriver(t)
	spec := training()
	h.ensure(spec)
	client := h.programs.StartClient(h.PipeDir("training"), 0).Computes(t)
	computing(mps.Client{PID: client.PID, Name: "cuda-client"})
	server := h.daemon("training").Servers[0]
	h.kill("training")
	if d := h.daemon("training"); len(d.Servers) != 1 || d.Servers[0] != server || len(d.Clients) != 1 || d.Clients[0].PID != client.PID {
		t.Fatalf("after its end: %+v", d)
	}
	if e := h.planned(spec, mps.Start); len(e.Clients) != 1 || e.Clients[0].PID != client.PID {
		t.Errorf("planned: %+v", e)
	}
	changed, err := h.Ensure(t.Context(), spec, mps.KeepClients)
	refused(t, err, backend.InUse, "servers that have outlived their control daemon", "1 clients would end: cuda-client (process ")
	if changed {
		t.Error("a refused start has changed something")
	}
	_, err = h.Remove(t.Context(), "training", mps.KeepClients)
	refused(t, err, backend.InUse, "cuda-client (process ")
	if d := h.daemon("training"); d.PID != 0 || len(d.Servers) != 1 || d.Servers[0] != server {
		t.Fatalf("refused changes have left %+v", d)
	}

	if changed, err := h.Ensure(t.Context(), spec, mps.EndClients); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if !client.Ended() {
		t.Error("the client computes on, past its server")
	}
	computing()
	if d := h.daemon("training"); len(d.Servers) != 0 || d.PID == 0 {
		t.Errorf("started again: %+v", d)
	}
	h.settled(spec)

	// The server of a client that has ended is in nobody's use.
	h.programs.StartClient(h.PipeDir("training"), 0).Computes(t).Stop()
	h.kill("training")
	if d := h.daemon("training"); len(d.Servers) != 1 || len(d.Clients) != 0 {
		t.Fatalf("after its end: %+v", d)
	}
	h.ensure(spec)
	h.settled(spec)
}

// TestOrphanedServerWithoutDriver has a server kept whose clients nobody can tell.
func TestOrphanedServerWithoutDriver(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{GPU: true}, nil)
	spec := training()
	h.ensure(spec)
	client := h.programs.StartClient(h.PipeDir("training"), 0).Computes(t)
	h.kill("training")
	_, err := h.Ensure(t.Context(), spec, mps.KeepClients)
	refused(t, err, backend.InUse, "an MPS server whose clients cannot be counted (process ")
	if found, err := h.Remove(t.Context(), "training", mps.EndClients); err != nil || !found {
		t.Fatal(found, err)
	}
	if !client.Ended() {
		t.Error("the client computes on, past its server")
	}
	h.nothingLeft("training")
}

// withDriver is a host whose driver tells who computes, which the test says.
func withDriver(t *testing.T) (h *host, computing func(...mps.Client)) {
	t.Helper()
	var clients []mps.Client
	h = newFake(t, fakemps.Behaviour{GPU: true}, func(o *mps.Options) {
		o.Computing = func(devices []string) ([]mps.Client, bool) {
			if !slices.Equal(devices, training().Devices) {
				t.Errorf("the driver is asked for %v", devices)
			}
			return clients, true
		}
	})
	return h, func(now ...mps.Client) { clients = now }
}

// patience is how long a test waits for what other processes do: a busy machine takes its time.
const patience = time.Minute

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatal("it does not come about")
}
