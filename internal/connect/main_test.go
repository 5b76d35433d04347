package connect_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
)

// patience is how long a test waits for what has to happen. A busy machine takes its
// time.
const patience = time.Minute

// jobVariable tells this test binary what to be when a test starts it again.
const jobVariable = "GPU_CONNECT_TEST_JOB"

// job is a process that a test needs.
type job struct {
	// Says and Complains are written to the standard output and error first.
	Says      string `json:"says,omitempty"`
	Complains string `json:"complains,omitempty"`
	// Environment is a file that gets the process's environment.
	Environment string `json:"environment,omitempty"`
	// Exits ends the process with that status, before the protocol begins. Hangs lets
	// it wait for the end of its input instead.
	Exits *int `json:"exits,omitempty"`
	Hangs bool `json:"hangs,omitempty"`
	// Slow is how long it takes to end, as on a busy host.
	Slow time.Duration `json:"slow,omitempty"`
	// Dir is a host's (see newHost); without it the agent has no host, and speaks
	// Protocol.
	Dir      string `json:"dir,omitempty"`
	Protocol int    `json:"protocol,omitempty"`
	// Client makes the process the client of the agent of Dir instead, to be killed.
	Client bool `json:"client,omitempty"`
	// Changes makes that client change the host.
	Changes bool `json:"changes,omitempty"`
}

func TestMain(m *testing.M) {
	text := os.Getenv(jobVariable)
	if text == "" {
		// They wait for each other and for gRPC's and TLS's shortest times, and need no CPU.
		if err := flag.Set("test.parallel", "16"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// command starts this test binary again.
func (j job) command(t *testing.T) connect.Command {
	t.Helper()
	c, err := j.encode()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (j job) encode() (connect.Command, error) {
	self, err := os.Executable()
	if err != nil {
		return connect.Command{}, err
	}
	text, err := json.Marshal(j)
	return connect.Command{Path: self, Env: []string{jobVariable + "=" + string(text)}}, err
}

func (j job) run(ctx context.Context) error {
	fmt.Fprint(os.Stderr, j.Complains)
	fmt.Print(j.Says)
	if j.Environment != "" {
		if err := os.WriteFile(j.Environment, []byte(strings.Join(os.Environ(), "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}
	switch {
	case j.Exits != nil:
		time.Sleep(j.Slow)
		os.Exit(*j.Exits)
	case j.Hangs:
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case j.Client:
		return j.client(ctx)
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE) // as gpu-agent does: its client may be gone
	g := grpc.NewServer(connect.ServerOptions(connect.DefaultDeadAfter)...)
	if j.Dir == "" {
		agentpb.RegisterAgentServer(g, otherAgent{protocol: j.Protocol})
		return connect.ServeStdio(ctx, os.Stdin, os.Stdout, g)
	}
	alive := flock.New(filepath.Join(j.Dir, "alive"))
	if err := alive.Lock(); err != nil { // the kernel gives it back
		return err
	}
	defer runtime.KeepAlive(alive) // a collected file is closed, and its lock gone
	if err := os.WriteFile(filepath.Join(j.Dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	sim, err := openHost(j.Dir)
	if err != nil {
		return err
	}
	server := agent.NewServer(sim, sim, agent.WithHostName("HV01"), agent.WithVersion("2.0.0"))
	server.Register(g)
	if err := connect.ServeStdio(ctx, os.Stdin, os.Stdout, g); err != nil {
		return err
	}
	return server.Shutdown(ctx)
}

func openHost(dir string) (*simulated.Host, error) {
	fleet, err := others.Open(filepath.Join(dir, "fleet.json"))
	if err != nil {
		return nil, err
	}
	return fleet.Host(host)
}

// otherAgent is an agent of another version.
type otherAgent struct {
	agentpb.UnimplementedAgentServer
	protocol int
}

func (o otherAgent) Hello(context.Context, *agentpb.HelloRequest) (*agentpb.HelloReply, error) {
	if o.protocol == 0 {
		return o.UnimplementedAgentServer.Hello(context.Background(), nil)
	}
	return &agentpb.HelloReply{Protocol: int32(o.protocol), AgentVersion: "9.9.9"}, nil
}
