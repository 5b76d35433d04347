package connect_test

import (
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestStrangersShedTheirOwn opens more connections than an agent holds of clients that have
// shown no certificate: the first of them are hung up on, and a client that has stays, as
// does one that comes later.
func TestStrangersShedTheirOwn(t *testing.T) {
	t.Parallel()
	const most, strangers = 64, 70
	ca := newAuthority(t, "the fleet's authority")
	l := listenOn(t, connect.Shed(newListener(t)), ca, ca.issue(nil))
	known := dialed(t, l.client(ca, ca.issue(nil)))
	asks := func(who string, c *connect.Conn) {
		t.Helper()
		if _, err := agent.NewClient(c, host).Inventory(t.Context()); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	asks("a client", known)
	var conns []net.Conn
	for range strangers {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c)
	}
	for i, c := range conns[:strangers-most] {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || isTimeout(err) {
			t.Errorf("stranger %d is not hung up on: %d bytes, %v", i, n, err)
		}
	}
	last := conns[strangers-1]
	if err := last.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("the last stranger is hung up on: %v", err)
	}
	asks("the client that was there", known)
	asks("a client that comes later", dialed(t, l.client(ca, ca.issue(nil))))
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// TestShedGivesPlacesBack opens and closes far more connections than an agent holds.
func TestShedGivesPlacesBack(t *testing.T) {
	t.Parallel()
	l := connect.Shed(newListener(t))
	t.Cleanup(func() { _ = l.Close() })
	for i := range 300 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := held.Write([]byte{byte(i)}); err != nil {
			t.Errorf("connection %d is not held: %v", i, err)
		}
		_ = held.Close()
		_ = held.Close() // counts once
		_ = c.Close()
	}
}

// TestRecordedHost looks at a recording, and is refused every change.
func TestRecordedHost(t *testing.T) {
	t.Parallel()
	r := connect.Recorded{Host: gpu.Host{Name: "hv01", GPUs: []gpu.GPU{{ID: "g"}}}}
	if h, err := r.Inventory(t.Context()); err != nil || h.Name != "hv01" || len(h.GPUs) != 1 {
		t.Errorf("inventory %+v, %v", h, err)
	}
	_, lease := r.AcquireLease(t.Context(), agent.LeaseRequest{})
	_, prepare := r.Prepare(t.Context(), agent.Change{})
	_, apply := r.Apply(t.Context(), 1, agent.Change{}, "", nil)
	_, settle := r.Settle(t.Context(), 1, "x", true)
	for doing, err := range map[string]error{"lease": lease, "prepare": prepare, "apply": apply, "settle": settle} {
		if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.BadRequest || e.Host != "hv01" {
			t.Errorf("%s: %v", doing, err)
		}
	}
	if err := errors.Join(r.ReleaseLease(t.Context(), 1), r.Close()); err != nil {
		t.Error(err)
	}
}

// TestObservedConnection hears of each call, of both sorts, and closes what is underneath.
func TestObservedConnection(t *testing.T) {
	t.Parallel()
	sim, err := openHost(newHost(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := connect.InProcess(agent.NewServer(sim, sim, agent.WithHostName("HV01")))
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu    sync.Mutex
		calls []string
	)
	observed := connect.Observed{ClientConnInterface: conn, Call: func(method string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, method)
	}}
	if _, err := agent.NewClient(observed, host).Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := changeCount(t.Context(), observed, func() {}); err != nil {
		t.Fatal(err)
	}
	if err := observed.Close(); err != nil {
		t.Error(err)
	}
	if _, err := agent.NewClient(observed, host).Inventory(t.Context()); err == nil {
		t.Error("a call of a closed connection is answered")
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Contains(calls, "Inventory") || !slices.Contains(calls, "Apply") {
		t.Errorf("calls %v", calls)
	}
}
