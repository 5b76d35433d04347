package statedir_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// The test binary runs itself with these to be another agent on the same directory.
const (
	dirVariable  = "GPU_TEST_STATEDIR"
	taskVariable = "GPU_TEST_STATEDIR_TASK"
)

// tasks are what the other process does.
var tasks = map[string]func(context.Context, *statedir.Dir) error{
	"claim":    claimSome,
	"claim on": claimOn,
	"hang":     hang,
}

func TestMain(m *testing.M) {
	dir, task := os.Getenv(dirVariable), os.Getenv(taskVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	d, err := statedir.Open(dir)
	if err == nil {
		err = tasks[task](context.Background(), d)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rounds is how many claims each process makes.
const rounds = 20

func claimSome(ctx context.Context, d *statedir.Dir) error {
	for range rounds {
		if err := d.Update(ctx, claimOnce); err != nil {
			return err
		}
	}
	return nil
}

// claimOnce keeps one claim for each fence, so that a lost or a doubled update shows.
func claimOnce(s *backend.State) error {
	s.Fence++
	s.Claims = append(s.Claims, claimOf(s.Fence))
	return nil
}

// claimOn claims until it is killed, and prints each fence that it was told is stored.
func claimOn(ctx context.Context, d *statedir.Dir) error {
	for {
		var fence int64
		err := d.Update(ctx, func(s *backend.State) error {
			fence = s.Fence + 1
			return claimOnce(s)
		})
		if err != nil {
			return err
		}
		fmt.Println(fence)
	}
}

// hang stays in the middle of an update.
func hang(ctx context.Context, d *statedir.Dir) error {
	return d.Update(ctx, func(s *backend.State) error {
		s.Fence = 99
		fmt.Println("in the middle")
		select {}
	})
}

func process(t *testing.T, dir, task string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), dirVariable+"="+dir, taskVariable+"="+task)
	return cmd
}

func TestProcessesAndGoroutinesLoseNothing(t *testing.T) {
	const processes = 8
	dir := newDir(t)
	d := open(t, dir)
	var group errgroup.Group
	for range processes {
		group.Go(func() error { return claimSome(t.Context(), d) })
		cmd := process(t, dir, "claim")
		group.Go(func() error {
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		})
	}
	stop, reader := make(chan struct{}), make(chan error, 1)
	go func() { reader <- readAlong(t.Context(), d, stop) }()
	err := group.Wait()
	close(stop)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-reader; err != nil {
		t.Errorf("a reader saw: %v", err)
	}
	wantWhole(t, d, 2*processes*rounds)
}

func readAlong(ctx context.Context, d *statedir.Dir, stop chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		state, err := d.Load(ctx)
		if err != nil {
			return err
		}
		if int64(len(state.Claims)) != state.Fence {
			return fmt.Errorf("half an update: %d claims at fence %d", len(state.Claims), state.Fence)
		}
	}
}

func wantWhole(t *testing.T, d *statedir.Dir, fence int64) {
	t.Helper()
	state := load(t, d)
	if state.Fence != fence || int64(len(state.Claims)) != fence {
		t.Errorf("%d claims at fence %d, want %d of both", len(state.Claims), state.Fence, fence)
	}
}

// TestKilledInTheMiddleOfAnUpdate kills an agent that holds the lock.
func TestKilledInTheMiddleOfAnUpdate(t *testing.T) {
	dir := newDir(t)
	d := open(t, dir)
	if err := d.Update(t.Context(), claimOnce); err != nil {
		t.Fatal(err)
	}
	cmd := process(t, dir, "hang")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	kill(t, cmd)
	wantWhole(t, d, 1)
	if err := d.Update(t.Context(), claimOnce); err != nil {
		t.Fatalf("the lock of a dead process stands: %v", err)
	}
	wantWhole(t, d, 2)
}

// TestKilledAtAnyMoment kills an agent that does nothing but write, again and again.
// What it was told is stored is there, the file is whole, and nothing piles up.
func TestKilledAtAnyMoment(t *testing.T) {
	dir := newDir(t)
	d := open(t, dir)
	const deaths = 25
	leftovers := 0
	for range deaths {
		cmd := process(t, dir, "claim on")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if _, err := lines.Peek(1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond) // a process that writes is killed at any moment
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		told, err := io.ReadAll(lines)
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed

		state := load(t, d)
		if last := lastFence(t, string(told)); state.Fence < last || state.Fence > last+1 {
			t.Fatalf("the fence is %d after the agent was told that %d is stored", state.Fence, last)
		}
		leftovers += len(files(t, dir)) - 2
		if err := d.Update(t.Context(), claimOnce); err != nil {
			t.Fatal(err)
		}
		wantWhole(t, d, state.Fence+1)
		if left := files(t, dir); len(left) != 2 {
			t.Fatalf("the directory holds %v, want the state and its lock", left)
		}
	}
	t.Logf("%d deaths, %d of them between a new file and its name", deaths, leftovers)
}

func lastFence(t *testing.T, told string) int64 {
	t.Helper()
	whole := told[:strings.LastIndexByte(told, '\n')+1] // the last line may be cut off
	lines := strings.Fields(whole)
	if len(lines) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}
