package connect_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var options = connect.Options{Version: "1.2.3"}

// TestProcess checks that a child process serves the contract, says who it is, and has
// ended when its connection is closed.
func TestProcess(t *testing.T) {
	dir := newHost(t, 0)
	conn, err := connect.Process(t.Context(), host, job{Dir: dir}.command(t), options)
	if err != nil {
		t.Fatal(err)
	}
	want := agent.Hello{Protocol: agent.Protocol, AgentVersion: "2.0.0", Platform: string(gpu.HyperV), HostName: "HV01", Role: agent.Operator}
	if d := cmp.Diff(want, conn.Hello, cmpopts.IgnoreFields(agent.Hello{}, "Capabilities")); d != "" || len(conn.Hello.Capabilities) == 0 {
		t.Errorf("the agent says %+v, want %+v", conn.Hello, want)
	}
	got, err := agent.NewClient(conn, host).Inventory(t.Context())
	if err != nil || len(got.GPUs) != 1 {
		t.Errorf("inventory: %d GPUs, %v", len(got.GPUs), err)
	}
	select {
	case <-conn.Done():
		t.Error("the connection has ended by itself")
	default:
	}
	for range 2 {
		if err := conn.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if !hasEnded(t, dir, 0) {
		t.Error("the agent still runs after its connection was closed")
	}
	select {
	case <-conn.Done():
	default:
		t.Error("the connection is closed and not done")
	}
	_, err = agent.NewClient(conn, host).Inventory(t.Context())
	if err == nil {
		t.Error("a closed connection answers")
	}
}

// TestProcessGetsNoKeys gives every variable of this process a mark, and looks at what an agent gets of them: what is
// started may be a pull request's idea.
func TestProcessGetsNoKeys(t *testing.T) {
	const mark = "hunter2"
	for _, name := range []string{
		"GPU_SSH_PRIVATE_KEY", "GPU_SSH_PASSWORD", "GPU_SSH_USER", "GPU_PROMETHEUS_TOKEN", "GPU_OPERATOR_KEY", "GPU_READER_KEY", "SSH_AUTH_SOCK",
		"AWS_SECRET_ACCESS_KEY", "TF_TOKEN_app_terraform_io", "TF_VAR_password", "GITHUB_TOKEN", "ATLANTIS_GH_TOKEN", "PGPASSWORD", "A",
	} {
		t.Setenv(name, mark)
	}
	t.Setenv("GPU_AGENT_HOST", "hv07")
	seen := filepath.Join(t.TempDir(), "environment")
	if conn, err := connect.Process(t.Context(), host, job{Environment: seen, Exits: new(1)}.command(t), options); err == nil {
		_ = conn.Close() // the test has failed
		t.Fatal("it is taken for an agent")
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), mark) {
		t.Errorf("the agent has a secret:\n%s", text)
	}
	for _, want := range []string{"GPU_AGENT_HOST=hv07\n", "PATH=" + os.Getenv("PATH") + "\n"} {
		if !strings.Contains(strings.Replace(string(text), "Path=", "PATH=", 1), want) {
			t.Errorf("the agent has no %s", want)
		}
	}
}

// TestProcessThatDies checks that a connection whose agent is killed is done, that calls
// say so, and that no second agent is started.
func TestProcessThatDies(t *testing.T) {
	dir := newHost(t, 0)
	conn, err := connect.Process(t.Context(), host, job{Dir: dir}.command(t), options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // it has ended
	killAgent(t, dir)
	select {
	case <-conn.Done():
	case <-time.After(patience):
		t.Fatal("the connection does not notice that its agent is dead")
	}
	for range 3 {
		_, err := agent.NewClient(conn, host).Inventory(t.Context())
		if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.Unavailable {
			t.Errorf("a call after the end: %v, want an agent.Error of kind unavailable", err)
		}
	}
	if !hasEnded(t, dir, 0) {
		t.Error("an agent runs again")
	}
}

// TestProcessThatIsNoAgent checks the error for everything else that can be at the other
// end. How a process says that it could not run is the subject of TestEndings.
func TestProcessThatIsNoAgent(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "gpu-agent")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	quick := options.WithPatience(time.Second)
	for _, test := range []struct {
		name    string
		command connect.Command
		options connect.Options
		code    connect.Code
		says    []string
		quiet   string // what may not be in the message
	}{
		{"not there", connect.Command{Path: empty + "-2"}, options, connect.NoAgent, []string{empty + "-2", "agent_path"}, ""},
		{"not in the path", connect.Command{Path: "gpu-agent-that-nobody-has"}, options, connect.NoAgent, []string{"agent_path"}, ""},
		{
			"a banner", job{Says: "Welcome to \x1b[1mHV01\x1b[0m\nAuthorized use only\n"}.command(t), options,
			connect.Garbage,
			[]string{`\x1b[1mHV01\x1b[0m\nAuthorized use only\n" before`, "Subsystem gpu-agent"},
			"\x1b",
		},
		{
			"a long text", job{Says: strings.Repeat("ä", 500), Hangs: true}.command(t), options, connect.Garbage,
			[]string{strings.Repeat("ä", 200) + `" (cut)`},
			strings.Repeat("ä", 201),
		},
		{"characters that nobody sees", job{Says: "\x00\u202e"}.command(t), options, connect.Garbage, []string{`\x00\u202e`}, "\u202e"},
		{
			"a text and an end", job{Says: "This account is currently not available.\n", Exits: new(1)}.command(t),
			options, connect.Garbage,
			[]string{"currently not available"},
			"",
		},
		{
			"a shell's complaint where the agent's answer should be", job{Says: "sh: gpu-agent: not found\n", Exits: new(127)}.command(t),
			options, connect.NoAgent,
			[]string{"not found", "127"},
			"",
		},
		{
			"the same on a busy host", job{Says: "sh: gpu-agent: not found\n", Exits: new(127), Slow: 500 * time.Millisecond}.command(t),
			options, connect.NoAgent,
			[]string{"not found", "127"},
			"",
		},
		{
			"a banner before the agent", job{Says: "hello\n", Protocol: agent.Protocol}.command(t), options,
			connect.Garbage,
			[]string{`"hello\n" before`},
			"",
		},
		{
			"half a preamble", job{Says: connect.Preamble[:5], Complains: "no space left on device", Exits: new(3)}.command(t),
			options, connect.Ended,
			[]string{"no space left on device", "status 3"},
			"",
		},
		{
			"the end after the preamble", job{Says: connect.Preamble, Complains: "the state directory is not ours", Exits: new(1)}.command(t),
			options, connect.Ended,
			[]string{"the state directory is not ours", "status 1"},
			"",
		},
		{"silence", job{Complains: "Password:", Hangs: true}.command(t), quick, connect.Unreachable, []string{"1s", "Password:"}, ""},
		{
			"silence after the preamble", job{Says: connect.Preamble, Hangs: true}.command(t), quick, connect.Unreachable,
			[]string{"1s", "first call"},
			"",
		},
		{"a newer agent", job{Protocol: agent.Protocol + 1}.command(t), options, connect.Version, []string{"1.2.3", "9.9.9"}, ""},
		{"an agent without Hello", job{}.command(t), options, connect.Version, []string{"too old"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn, err := connect.Process(t.Context(), host, test.command, test.options)
			if err == nil {
				_ = conn.Close() // the test has failed
				t.Fatal("it is taken for an agent")
			}
			e, ok := errors.AsType[*connect.Error](err)
			if !ok || e.Code != test.code || e.Host != host {
				t.Fatalf("%#v, want a connect.Error with code %s for %s", err, test.code, host)
			}
			if e.Fix == "" {
				t.Errorf("no fix: %v", err)
			}
			for _, text := range append(test.says, host) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v\ndoes not say %q", err, text)
				}
			}
			if test.quiet != "" && strings.Contains(err.Error(), test.quiet) {
				t.Errorf("%v\nholds %q", err, test.quiet)
			}
		})
	}
}

// TestProcessNotAllowed checks files that the operating system does not start.
func TestProcessNotAllowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows knows no execute permission; run this on Linux or macOS")
	}
	for _, test := range []struct {
		name string
		mode os.FileMode
		code connect.Code
	}{
		{"no execute permission", 0o600, connect.Blocked},
		{"no program of this platform", 0o700, connect.WrongPlatform},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gpu-agent")
			if err := os.WriteFile(path, []byte("\x7fELF of another machine"), test.mode); err != nil {
				t.Fatal(err)
			}
			_, err := connect.Process(t.Context(), host, connect.Command{Path: path}, options)
			if e, ok := errors.AsType[*connect.Error](err); !ok || e.Code != test.code {
				t.Errorf("%v, want a connect.Error with code %s", err, test.code)
			}
		})
	}
}

// TestProcessGivenUp checks that a cancelled call ends at once and leaves no process.
func TestProcessGivenUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := connect.Process(ctx, host, job{Hangs: true}.command(t), options)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("it took %s", took)
	}
}

// TestClose checks that closing with a change in flight waits until the agent has put it
// back.
func TestClose(t *testing.T) {
	dir := newHost(t, 500)
	conn, err := connect.Process(t.Context(), host, job{Dir: dir}.command(t), options)
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	answer := make(chan error, 1)
	go func() { answer <- changeCount(t.Context(), conn, func() { close(begun) }) }()
	<-begun
	if err := conn.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-answer; err == nil {
		t.Error("the change succeeded although its connection was closed")
	}
	wasPutBack(t, dir)
}

// TestClientKilled kills a client: no agent stays, except to put a change back.
func TestClientKilled(t *testing.T) {
	for _, changes := range []bool{false, true} {
		t.Run(fmt.Sprintf("change in flight %t", changes), func(t *testing.T) {
			t.Parallel()
			dir := newHost(t, 1000)
			command := job{Dir: dir, Client: true, Changes: changes}.command(t)
			client := exec.CommandContext(t.Context(), command.Path)
			client.Env = append(os.Environ(), command.Env...)
			client.Stderr = os.Stderr
			out, err := client.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatalf("the client said %q: %v", line, err)
			}
			if err := client.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = client.Wait() // it was killed
			if changes && hasEnded(t, dir, 0) {
				t.Error("the agent ended with a change in flight")
			}
			if !hasEnded(t, dir, patience) {
				t.Fatal("the agent outlives its client")
			}
			wasPutBack(t, dir)
		})
	}
}

// client connects, says so, and waits to be killed.
func (j job) client(ctx context.Context) error {
	command, err := job{Dir: j.Dir}.encode()
	if err != nil {
		return err
	}
	conn, err := connect.Process(ctx, host, command, options)
	if err != nil {
		return err
	}
	ready := func() { fmt.Println("ready") }
	if j.Changes {
		return changeCount(ctx, conn, ready)
	}
	ready()
	_, err = io.Copy(io.Discard, os.Stdin)
	<-time.After(patience)
	return err
}

// changeCount changes the partition count of the host's GPU. begun is called when the
// first step begins.
func changeCount(ctx context.Context, conn grpc.ClientConnInterface, begun func()) error {
	c := agent.NewClient(conn, host)
	fence, err := c.AcquireLease(ctx, agent.LeaseRequest{Run: "run-1", Owner: "vdi-prod", Holder: "tester", TTL: time.Minute})
	if err != nil {
		return err
	}
	config := &gpu.PartitionConfig{
		ID: "vdi", Kind: gpu.KindGPUP, Name: "vdi", Count: newCount, GPUs: map[string][]string{host: {theGPU}}, MaxDisruption: gpu.DisruptNone,
	}
	ch := agent.Change{
		ID: "change-1", Host: host, Change: change.Change{Subject: "test", Owner: "vdi-prod", Token: "token", Want: gpu.Want{Config: config}},
	}
	prepared, err := c.Prepare(ctx, ch)
	if err != nil {
		return err
	}
	_, err = c.Apply(ctx, fence, ch, prepared.Basis, func(p agent.StepProgress) {
		if p.Index == 1 && !p.Undo {
			begun()
		}
	})
	return err
}

// wasPutBack checks that a host is as it was, with nothing left to settle.
func wasPutBack(t *testing.T, dir string) {
	t.Helper()
	sim, err := openHost(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := sim.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := h.GPUs[0].Partitionable.Count; got != oldCount {
		t.Errorf("the GPU has %d partitions, want %d as before", got, oldCount)
	}
	state, err := sim.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Journal) != 0 || len(state.Claims) != 0 || state.Lease != nil {
		t.Errorf("left on the host: %d journal entries, %d claims, lease %v", len(state.Journal), len(state.Claims), state.Lease)
	}
}

// killAgent ends a host's agent process without warning.
func killAgent(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lastWords is a stream that ends as soon as its first words are read.
type lastWords struct {
	net.Conn
	end func() error
}

func (l lastWords) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	return n, errors.Join(err, l.end())
}

// TestAgentThatEndsWithItsGreeting has a process end between its preamble and the first call.
func TestAgentThatEndsWithItsGreeting(t *testing.T) {
	near, far := net.Pipe()
	go func() { _, _ = io.WriteString(far, connect.Preamble) }() // it is read
	err := connect.AwaitPreamble(t.Context(), host, lastWords{near, far.Close}, "out of memory", 2)
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e.Code != connect.Ended || e.Host != host || !strings.Contains(e.Found, "exit status 2") ||
		!strings.Contains(e.Found, "out of memory") {
		t.Errorf("%v, want a connect.Error with code %s for %s", err, connect.Ended, host)
	}
}

// hasEnded tells whether no agent process runs for a host, waiting so long for its end.
func hasEnded(t *testing.T, dir string, wait time.Duration) bool {
	t.Helper()
	lock := flock.New(filepath.Join(dir, "alive"))
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	got, err := lock.TryLock() // once in any case, however short the time
	if err == nil && !got {
		got, err = lock.TryLockContext(ctx, 20*time.Millisecond)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if got {
		_ = lock.Unlock() // it is closed with the process
	}
	return got
}
