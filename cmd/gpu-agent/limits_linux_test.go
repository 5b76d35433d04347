package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// memory is what a process uses now and has used at most, in MiB.
func memory(t *testing.T, p *os.Process) (now, peak int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid))
	if err != nil {
		t.Fatal(err)
	}
	value := func(field string) int {
		m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(data)
		if m == nil {
			t.Fatalf("there is no %s in\n%s", field, data)
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n >> 10
	}
	return value("VmRSS"), value("VmHWM")
}

// A reader can make the agent work, and not use much memory.
const mostAboveIdle = 64 // MiB

func list(element string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

// worst are requests that become as much as possible for their size: at the limits of what is
// accepted, and beyond.
func worst() map[string]string {
	document := func(field, value string) string {
		return fmt.Sprintf(
			`{"id":"c","host":"hv01","token":"t","want":{"vm_assignment":{"kind":"partition","vm":"avd-01","partition":{}}},%q:%s}`, field, value)
	}
	claim := func(inner string) string { return `{"kind":"vm_assignment","id":"` + vm1 + `",` + inner + `}` }
	assignment := `{"vm_assignment":{"kind":"partition","partition":{"quotas":{"vram":{"min":1,"max":1}}},` +
		`"settings":{"guest_controlled_cache":true}}}`
	// Few bytes for many structures: 1.6 million empty claims took 2.3 GiB.
	return map[string]string{
		"claims":                document("claims", list("{}", 2000)),
		"claims, many":          document("claims", list("{}", 350_000)),
		"claims of assignments": document("claims", list(claim(`"want":`+assignment+`,"holds":{"pool":{}}`), 1900)),
		"claims of instances":   document("claims", list(claim(`"want":{"partition_config":{"mig":{"placements":`+list("{}", 30)+`}}}`), 1900)),
		"instances":             document("claims", list(claim(`"want":{"partition_config":{"mig":{"placements":`+list("{}", 1990)+`}}}`), 29)),
		"maps":                  document("claims", list(claim(`"mig_before":{"a":{},"b":{},"c":{},"d":{},"e":{},"f":{},"g":{},"h":{}}`), 1900)),
		"strings":               document("prior", `{"vm_assignment":{"vm":"`+strings.Repeat(`\u00e9`, 170_000)+`"}}`),
		"unknown fields":        document("x", list(list("1", 1999), 29)),
		"depth":                 document("x", strings.Repeat("[", 500_000)),
		"a count": `{"id":"c","host":"hv01","token":"t","want":{"vm_assignment":{"kind":"pool","vm":"avd-01",` +
			`"pool":{"id":"render","name":"render","count":1024}}}}`,
		"a large count": `{"id":"c","host":"hv01","token":"t","want":{"vm_assignment":{"kind":"pool","vm":"avd-01",` +
			`"pool":{"id":"render","name":"render","count":2000000000}}}}`,
		"no JSON": strings.Repeat("x", 1<<20),
		"8 MB":    document("claims", list("{}", 2_700_000)),
	}
}

// TestAReaderCannotUseUpTheMemory sends the worst requests of a reader, one by one and then
// all at once and again, to an agent over TLS and to one over stdio.
func TestAReaderCannotUseUpTheMemory(t *testing.T) {
	ca := newCA(t)
	t.Run("TLS", func(t *testing.T) {
		r := newRig(t)
		address, process := r.listen(ca)
		dial := func(organization string) func() grpc.ClientConnInterface {
			cert, key := ca.issue(organization)
			return func() grpc.ClientConnInterface {
				conn, err := connect.DialTLS(t.Context(), "hv01", connect.TLS{Address: address, CA: ca.pem, Cert: cert, Key: key},
					connect.Options{Version: "test"})
				if err != nil {
					t.Fatal(err)
				}
				return conn
			}
		}
		// What the reader does must not keep an operator out.
		operator := agentpb.NewAgentClient(dial("gpu-operator")())
		ended := make(chan struct{})
		served := make(chan error, 1)
		go func() {
			var failed error
			for failed == nil {
				select {
				case <-ended:
					served <- nil
					return
				default:
					_, failed = operator.Inventory(context.Background(), &agentpb.InventoryRequest{})
				}
			}
			served <- failed
		}()
		flood(t, process, 4, dial("gpu-reader"))
		close(ended)
		if err := <-served; err != nil {
			t.Errorf("an operator is not answered meanwhile: %v", err)
		}
	})
	t.Run("stdio", func(t *testing.T) {
		r := newRig(t)
		cmd := r.command("serve", "--stdio", "--role", "reader")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		greeting := make([]byte, len(connect.Preamble))
		if _, err := io.ReadFull(out, greeting); err != nil || string(greeting) != connect.Preamble {
			t.Fatalf("the agent greets with %q, %v", greeting, err)
		}
		conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return connect.Pipe(out, in), nil }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		flood(t, cmd.Process, 1, func() grpc.ClientConnInterface { return conn })
	})
}

// flood sends the requests over some connections.
func flood(t *testing.T, process *os.Process, connections int, dial func() grpc.ClientConnInterface) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	first := agentpb.NewAgentClient(dial())
	for range 3 { // what an idle agent has in use
		if _, err := first.Inventory(ctx, &agentpb.InventoryRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	idle, _ := memory(t, process)
	for name, doc := range worst() {
		_, err := first.Prepare(ctx, &agentpb.PrepareRequest{Change: []byte(doc)})
		if c := status.Code(err); c == codes.Unavailable || c == codes.DeadlineExceeded {
			t.Fatalf("%s: %v", name, err)
		}
		if _, peak := memory(t, process); peak-idle >= mostAboveIdle {
			t.Fatalf("%s: %d MiB when idle and %d MiB at most", name, idle, peak)
		}
	}
	_, alone := memory(t, process)
	var clients []agentpb.AgentClient
	for range connections {
		clients = append(clients, agentpb.NewAgentClient(dial()))
	}
	var calls sync.WaitGroup
	for _, client := range clients {
		for range 3 {
			for _, doc := range worst() {
				calls.Go(func() { _, _ = client.Prepare(ctx, &agentpb.PrepareRequest{Change: []byte(doc)}) }) // most are refused
			}
			for range 50 {
				calls.Go(func() { _, _ = client.Inventory(ctx, &agentpb.InventoryRequest{}) })
				calls.Go(func() { _, _ = client.Utilization(ctx, &agentpb.UtilizationRequest{WindowMs: 100}) })
			}
		}
	}
	calls.Wait()
	_, peak := memory(t, process)
	t.Logf("%d MiB when idle, %d MiB at most by one request, %d MiB by many", idle, alone, peak)
	if peak-idle >= 2*mostAboveIdle {
		t.Errorf("%d MiB when idle and %d MiB at most", idle, peak)
	}
	if _, err := first.Inventory(ctx, &agentpb.InventoryRequest{}); err != nil {
		t.Errorf("the agent does not answer any more: %v", err)
	}
}

// TestIdleConnectionsAreShed opens 3,000 connections that say nothing. All but a few are hung
// up on, and a client with a certificate gets through.
func TestIdleConnectionsAreShed(t *testing.T) {
	ca := newCA(t)
	r := newRig(t)
	address, process := r.listen(ca)
	cert, key := ca.issue("gpu-reader")
	dial := func() *connect.Conn {
		conn, err := connect.DialTLS(t.Context(), "hv01", connect.TLS{Address: address, CA: ca.pem, Cert: cert, Key: key},
			connect.Options{Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	before := agentpb.NewAgentClient(dial())
	if _, err := before.Inventory(t.Context(), &agentpb.InventoryRequest{}); err != nil {
		t.Fatal(err)
	}
	idle, _ := memory(t, process)
	const many = 3000
	var open []net.Conn
	for range many {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("after %d: %v", len(open), err)
		}
		open = append(open, c)
	}
	t.Cleanup(func() {
		for _, c := range open {
			_ = c.Close()
		}
	})
	for _, client := range []agentpb.AgentClient{before, agentpb.NewAgentClient(dial())} {
		if _, err := client.Inventory(t.Context(), &agentpb.InventoryRequest{}); err != nil {
			t.Errorf("the agent does not answer: %v", err)
		}
	}
	const most, soon = 64, 10 * time.Second // half of the time for a handshake
	held := 0
	for i, c := range open {
		wait := time.Millisecond
		if i < many-most { // word of it may come late on a busy machine
			wait = soon
		}
		_ = c.SetReadDeadline(time.Now().Add(wait))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			held++
		} else if err == nil || !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
			t.Fatalf("a connection ends with %v", err)
		}
	}
	_, peak := memory(t, process)
	t.Logf("%d of %d connections are held; %d MiB when idle, %d MiB at most", held, many, idle, peak)
	if held > most || peak-idle >= mostAboveIdle {
		t.Errorf("%d of %d connections are held; %d MiB when idle, %d MiB at most", held, many, idle, peak)
	}
	if testing.Short() { // what follows waits for a clock
		return
	}
	// The others have their time for a handshake, and no more.
	eventually(t, "the last ones are hung up on", func() bool {
		for _, c := range open[many-held:] {
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				return false
			}
		}
		return true
	})
}
