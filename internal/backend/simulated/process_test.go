package simulated_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The test binary runs itself with these to be a second process on the same fleet.
const (
	fleetVariable  = "GPU_TEST_SIMULATED_FLEET"
	workerVariable = "GPU_TEST_SIMULATED_WORKER"
)

// rounds is what each worker does to the fleet.
const rounds = 15

func TestMain(m *testing.M) {
	if path := os.Getenv(fleetVariable); path != "" {
		worker, err := strconv.Atoi(os.Getenv(workerVariable))
		if err == nil {
			err = work(context.Background(), path, worker)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// work adds adapters to the worker's own VM and claims to the host that all share.
func work(ctx context.Context, path string, worker int) error {
	fleet, err := others.Open(path)
	if err != nil {
		return err
	}
	host, err := fleet.Host("hv01")
	if err != nil {
		return err
	}
	for round := range rounds {
		if _, err := host.AddPartitionAdapter(ctx, vmID(worker), gpu.PartitionAdapter{}); err != nil {
			return err
		}
		err := host.Update(ctx, func(s *backend.State) error {
			s.Fence++
			s.Claims = append(s.Claims, gpu.Claim{Kind: gpu.ClaimAssignment, ID: fmt.Sprintf("%d-%d", worker, round), Token: "t"})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func TestProcessesAndGoroutinesLoseNothing(t *testing.T) {
	const workers = 6
	fleet := newFleet(t, workers)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	var done atomic.Bool
	for worker := 1; worker <= workers; worker++ {
		group.Go(func() error {
			if worker%2 == 0 { // half of them in this process
				return work(t.Context(), fleet.Path(), worker)
			}
			cmd := exec.CommandContext(t.Context(), binary)
			cmd.Env = append(os.Environ(), fleetVariable+"="+fleet.Path(), fmt.Sprintf("%s=%d", workerVariable, worker))
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("worker %d: %w\n%s", worker, err, out)
			}
			return nil
		})
	}
	// A reader that takes no lock at all still never sees half a file.
	reader := make(chan error, 1)
	go func() {
		for !done.Load() {
			data, err := os.ReadFile(fleet.Path())
			if err == nil && !json.Valid(data) {
				err = fmt.Errorf("the file is torn: %d bytes", len(data))
			}
			if err != nil {
				reader <- err
				return
			}
		}
		reader <- nil
	}()
	err = group.Wait()
	done.Store(true)
	run(t, err, <-reader)

	host := inventory(t, fleet, "hv01")
	for worker := 1; worker <= workers; worker++ {
		vm, _ := host.VM(vmID(worker))
		if got := len(vm.PartitionAdapters); got != rounds {
			t.Errorf("VM %s has %d adapters, want %d", vm.Name, got, rounds)
		}
	}
	s, err := hostOf(t, fleet, "hv01").Load(t.Context())
	if err != nil || len(s.Claims) != workers*rounds || s.Fence != workers*rounds {
		t.Errorf("%d claims and fence %d, want %d of both; error %v", len(s.Claims), s.Fence, workers*rounds, err)
	}
}

func TestLockedFileMakesTheCallerWait(t *testing.T) {
	fleet := newFleet(t, 1)
	entered, leave := make(chan struct{}), make(chan struct{})
	other, err := others.Open(fleet.Path())
	if err != nil {
		t.Fatal(err)
	}
	busy, waiting := hostOf(t, other, "hv01"), hostOf(t, fleet, "hv01")
	var group errgroup.Group
	group.Go(func() error {
		return busy.Update(t.Context(), func(*backend.State) error {
			close(entered)
			<-leave
			return nil
		})
	})
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantCode(t, waiting.StartVM(ctx, vmID(1)), backend.Timeout)
	close(leave)
	run(t, group.Wait(), waiting.StartVM(t.Context(), vmID(1)))
}

func TestReaderInsideAnUpdateIsNotBlocked(t *testing.T) {
	fleet := newFleet(t, 1)
	host := hostOf(t, fleet, "hv01")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := host.Update(ctx, func(s *backend.State) error {
		h, err := host.Inventory(ctx)
		s.Fence = int64(len(h.VMs))
		return err
	})
	run(t, err)
	if s, err := host.Load(ctx); err != nil || s.Fence != 1 {
		t.Errorf("the fence is %d, error %v", s.Fence, err)
	}
}
