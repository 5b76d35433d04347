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
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/sshd"
)

// Targets.
const (
	maxWarm  = time.Millisecond
	maxAgent = 24_000_000 // bytes, of which the library of CDI and what it brings are two million, HCL and reaching other hosts one each
	calls    = 200
	hosts    = 64 // connected at once; one server stands for all of them
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
	server, err := sshd.Start(ctx, sshd.Options{
		Dir: home, Lines: []string{fmt.Sprint("MaxStartups ", 4*hosts)}, Env: []string{"GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET=" + fleet},
	})
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
		fmt.Printf("%d warm calls, parallelism %-2d          p50 %s, p99 %s, all in %s, %d failed\n",
			calls, parallel, median(took), took[len(took)*99/100], wall.Round(time.Millisecond), failed)
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
	if err := client.Close(); err != nil {
		return err
	}
	if err := started(ctx, path, fleet); err != nil {
		return err
	}
	return errors.Join(append(missed, atOnce(ctx, way))...)
}

// started prints how long an agent takes from its start to its first answer, and its memory then.
func started(ctx context.Context, path, fleet string) error {
	const starts = 9
	var took []time.Duration
	var memory, own int // KiB
	for range starts {
		began := time.Now()
		conn, err := connect.Process(ctx, "hv01",
			connect.Command{
				Path: path, Args: []string{"serve", "--stdio"}, Env: []string{"GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET=" + fleet},
			}, connect.Options{Version: "bench"})
		if err != nil {
			return err
		}
		took = append(took, time.Since(began))
		memory, own = max(memory, memoryOfChild("VmRSS:")), max(own, memoryOfChild("RssAnon:"))
		if err := conn.Close(); err != nil {
			return err
		}
	}
	fmt.Printf("start of an agent to its first answer   p50 %s, of %d; it then has %.1f MiB, %.1f of them its own\n",
		median(took), starts, float64(memory)/1024, float64(own)/1024)
	return nil
}

// atOnce prints how long it takes to reach many hosts in parallel, beside OpenSSH's client that runs
// true on each.
func atOnce(ctx context.Context, way connect.SSH) error {
	reach := func() error {
		client, err := dial(ctx, way)
		if err != nil {
			return err
		}
		_, err = client.Hello(ctx)
		return errors.Join(err, client.Close())
	}
	floor := func() error {
		return exec.CommandContext(ctx, "ssh", "-F", "none", "-i", way.PrivateKeyFile, "-o", "BatchMode=yes",
			"-o", "UserKnownHostsFile="+way.KnownHostsFile,
			"-p", strconv.Itoa(way.Port), way.User+"@"+way.Address, "true").Run()
	}
	var took [2][]time.Duration
	for range 3 {
		for i, call := range []func() error{reach, floor} {
			began := time.Now()
			var all errgroup.Group
			for range hosts {
				all.Go(call)
			}
			if err := all.Wait(); err != nil {
				return fmt.Errorf("%d at once: %w", hosts, err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	ours, least := median(took[0]), median(took[1])
	fmt.Printf("%d hosts at once (connect to Hello)     p50 %s; `ssh host true` %s; ratio %.1f\n",
		hosts, ours, least, ours.Seconds()/least.Seconds())
	return nil
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

// memoryOfChild is a figure of the process that this one has started, in KiB; 0 where there is no /proc.
func memoryOfChild(figure string) (kib int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for pid := range strings.FieldsSeq(string(pids)) {
			status, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
			if name, _ := os.Readlink(filepath.Join("/proc", pid, "exe")); !strings.Contains(filepath.Base(name), "agent") {
				continue // the server
			}
			for line := range strings.Lines(string(status)) {
				if fields := strings.Fields(line); len(fields) > 1 && fields[0] == figure {
					n, _ := strconv.Atoi(fields[1])
					kib = max(kib, n)
				}
			}
		}
	}
	return kib
}
