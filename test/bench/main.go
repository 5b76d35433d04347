//go:build unix

// Command bench measures the way to a host: a real OpenSSH server on the loopback
// interface, the real agent, a simulated host. It fails when a target is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/sshd"
)

// Targets.
const (
	maxWarm  = time.Millisecond
	maxAgent = 21_500_000 // bytes, of which the library of CDI and what it brings are two million, HCL and reaching other hosts one each
	calls    = 200
)

func main() {
	path := flag.String("agent", "bin/gpu-agent", "the agent")
	flag.Parse()
	if why := sshd.Missing(); why != "" {
		fmt.Println("SKIPPED: nothing was measured:", why)
		return
	}
	if err := run(*path); err != nil {
		log.Fatal(err)
	}
}

func run(path string) error {
	ctx := context.Background()
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gpu-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fleet := filepath.Join(dir, "fleet.json")
	if _, err := simulated.Create(fleet, gpu.Snapshot{Hosts: []gpu.Host{{Name: "hv01", Platform: gpu.HyperV}}}); err != nil {
		return err
	}
	home := filepath.Join(dir, "sshd")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	server, err := sshd.Start(ctx, sshd.Options{Dir: home, Env: []string{"GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET=" + fleet}})
	if err != nil {
		return err
	}
	defer server.Close()
	way := connect.SSH{
		Address: "127.0.0.1", Port: server.Port, User: server.User, PrivateKeyFile: server.ClientKey(),
		KnownHostsFile: server.KnownHosts(), AgentPath: path,
	}
	var missed []error
	fmt.Printf("agent                                   %.1f MB\n", float64(info.Size())/1e6)
	if info.Size() > maxAgent {
		missed = append(missed, fmt.Errorf("the agent has %d bytes, more than %d", info.Size(), maxAgent))
	}

	const dials = 5
	var first []time.Duration
	for range dials {
		began := time.Now()
		client, err := dial(ctx, way)
		if err != nil {
			return err
		}
		first = append(first, time.Since(began))
		if err := client.Close(); err != nil {
			return err
		}
	}
	fmt.Printf("first call (connect, start, Hello)      p50 %s, of %d\n", median(first), dials)

	before := server.Sessions()
	client, err := dial(ctx, way)
	if err != nil {
		return err
	}
	for _, parallel := range []int{1, 10, 50} {
		took, wall, failed := burst(ctx, client, parallel)
		fmt.Printf("%d warm calls, parallelism %-2d          p50 %s, p99 %s, all in %s, %d failed\n", calls, parallel, median(took), took[len(took)*99/100], wall.Round(time.Millisecond), failed)
		if failed > 0 {
			missed = append(missed, fmt.Errorf("%d of %d calls failed at parallelism %d", failed, calls, parallel))
		}
		if parallel == 1 && median(took) > maxWarm {
			missed = append(missed, fmt.Errorf("a warm call takes %s, more than %s", median(took), maxWarm))
		}
	}
	sessions := server.Sessions() - before
	fmt.Printf("sshd sessions for these %d calls        %d\n", 3*calls, sessions)
	if sessions != 1 {
		missed = append(missed, fmt.Errorf("%d sessions were opened, not 1", sessions))
	}
	return errors.Join(append(missed, client.Close())...)
}

func dial(ctx context.Context, way connect.SSH) (*agent.Client, error) {
	conn, err := connect.DialSSH(ctx, "hv01", way, connect.Options{Version: "bench"})
	if err != nil {
		return nil, err
	}
	return agent.NewClient(conn, "hv01"), nil
}

// burst makes the calls and returns how long each took, in order.
func burst(ctx context.Context, client *agent.Client, parallel int) (took []time.Duration, wall time.Duration, failed int64) {
	took = make([]time.Duration, calls)
	var next, bad atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range parallel {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < calls; i = next.Add(1) - 1 {
				began := time.Now()
				if _, err := client.Hello(ctx); err != nil {
					bad.Add(1)
				}
				took[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	wall = time.Since(start)
	slices.Sort(took)
	return took, wall, bad.Load()
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2].Round(time.Microsecond)
}
