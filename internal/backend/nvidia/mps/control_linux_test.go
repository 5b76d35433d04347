package mps_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// TestCommands has what the program hides made errors, with the reason of its log.
func TestCommands(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		h.ensure(mpsconf.Spec{Name: "training", Devices: []string{gpu1}, User: new(0)})
		c, ctx := h.control("training"), t.Context()
		for _, tt := range []struct {
			name  string
			run   func() error
			code  backend.Code
			words string
		}{
			{"no such device", func() error { return c.SetMemoryLimit(ctx, mps.NextServer, 99, gib) }, backend.Failed, "Invalid device ordinal!"},
			{
				"a limit that is cut", func() error { return c.SetMemoryLimit(ctx, mps.NextServer, 0, 1536*gpu.MiB) },
				backend.InvalidParameter, "whole GiB",
			},
			{"a limit in bytes", func() error { return c.SetMemoryLimit(ctx, mps.NextServer, 0, 5) }, backend.InvalidParameter, "whole MiB"},
			{"no percentage", func() error { return c.SetThreads(ctx, mps.NextServer, 0) }, backend.InvalidParameter, "0 is not more than 0"},
			{"too high a percentage", func() error { return c.SetThreads(ctx, mps.NextServer, 101) }, backend.InvalidParameter, "at most 100"},
			{"too fine a percentage", func() error { return c.SetThreads(ctx, mps.NextServer, 33.33) }, backend.InvalidParameter, "one digit"},
			{"no such priority", func() error { return c.SetDefaultPriority(ctx, 5) }, backend.Failed, "5 was wanted, and it stays at 0"},
			{"no such server", func() error { return c.SetThreads(ctx, 1, 50) }, backend.NotFound, "Server 1 not found"},
			{"no such server's clients", func() error { _, err := c.Clients(ctx, 1); return err }, backend.NotFound, "Server 1 not found"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				refused(t, tt.run(), tt.code, "MPS daemon training", tt.words)
			})
		}
		if threads, err := c.Threads(ctx, mps.NextServer); err != nil || threads != 100 {
			t.Errorf("the percentage is %v, %v", threads, err)
		}
		for _, want := range []gpu.Bytes{900 * gpu.MiB, gib, 141 * gib, 0} {
			if err := c.SetMemoryLimit(ctx, mps.NextServer, 0, want); err != nil {
				t.Errorf("limit %v: %v", want, err)
			}
		}
		if servers, err := c.Servers(ctx); err != nil || len(servers) > 0 {
			t.Errorf("servers %v, %v", servers, err)
		}
	})
}

// TestNothingThatADaemonMisreadsIsSent gives daemons random settings: what is taken is what they then have, and
// what is not taken leaves them as they were. They cut "1536M" to 1 GiB, read "1T" as 1 MiB, keep the old
// percentage for one that they do not take, and say none of it.
func TestNothingThatADaemonMisreadsIsSent(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		h.ensure(mpsconf.Spec{Name: "training", Devices: []string{gpu1}, User: new(0)})
		c, ctx := h.control("training"), t.Context()
		random := rand.New(rand.NewPCG(16, 18)) //nolint:gosec // the same in each run
		var taken int
		hold := func(err error, took, kept bool, what any) {
			t.Helper()
			switch {
			case err == nil && !took:
				t.Errorf("%v was taken, and the daemon has something else", what)
			case err != nil && (!kept || !backend.Is(err, backend.InvalidParameter)):
				t.Errorf("%v was not taken, and has changed something or reached the daemon: %v", what, err)
			case err == nil:
				taken++
			}
		}
		threads, limit := 100.0, gpu.Bytes(0)
		for range 25 {
			want := []float64{
				float64(random.IntN(1200)-100) / 10, random.Float64() * 100, math.NaN(), math.Inf(1), 0.04, 1e-9, 1e1, 33.35,
			}[random.IntN(8)]
			err := c.SetThreads(ctx, mps.NextServer, want)
			have, readErr := c.Threads(ctx, mps.NextServer)
			if readErr != nil {
				t.Fatal(readErr)
			}
			hold(err, have == want, have == threads, want)
			threads = have

			bytes := []gpu.Bytes{
				gpu.Bytes(random.IntN(2048)) * gpu.MiB, gpu.Bytes(random.IntN(2000)) * gib, gpu.Bytes(random.Int64N(1 << 42)),
				1 << 62, math.MaxUint64, 1,
			}[random.IntN(6)]
			err = c.SetMemoryLimit(ctx, mps.NextServer, 0, bytes)
			has, readErr := c.MemoryLimit(ctx, mps.NextServer, 0)
			if readErr != nil {
				t.Fatal(readErr)
			}
			hold(err, has == bytes, has == limit, bytes)
			limit = has
		}
		if taken < 10 {
			t.Errorf("%d settings were taken", taken)
		}
	})
}

func TestNoDaemon(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		_, err := h.control("nobody").Threads(t.Context(), mps.NextServer)
		refused(t, err, backend.Unavailable, "no control daemon answers in "+h.PipeDir("nobody"))
	})
}

// TestServersWithAGPU is what no machine without a GPU can show of the real daemon.
func TestServersWithAGPU(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{GPU: true}, nil)
	h.ensure(mpsconf.Spec{Name: "training", Devices: []string{gpu1}, User: new(1000)})
	c := h.control("training")
	client := h.programs.StartClient(h.PipeDir("training"), 1000).Computes(t)
	servers, err := c.Servers(t.Context())
	if err != nil || len(servers) != 1 {
		t.Fatal(servers, err)
	}
	if status, err := c.ServerStatus(t.Context(), servers[0]); err != nil || status != "ACTIVE" {
		t.Errorf("its status is %q, %v", status, err)
	}
	if err := c.SetMemoryLimit(t.Context(), servers[0], 0, 2*gib); err != nil {
		t.Error(err)
	}
	if limit, err := c.MemoryLimit(t.Context(), servers[0], 0); err != nil || limit != 2*gib {
		t.Errorf("its limit is %v, %v", limit, err)
	}
	client.Stop()
	eventually(t, func() bool {
		clients, err := c.Clients(t.Context(), servers[0])
		return err == nil && len(clients) == 0
	})
	if err := c.ShutdownServer(t.Context(), servers[0]); err != nil {
		t.Error(err)
	}
	eventually(t, func() bool {
		servers, err := c.Servers(t.Context())
		return err == nil && len(servers) == 0
	})
}

func TestReadOfNothing(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{}, nil)
	all, err := h.Read(t.Context())
	if err != nil || slices.ContainsFunc(all, func(d mps.Daemon) bool { return d.Name != "" }) {
		t.Errorf("a host without daemons has %+v, %v", all, err)
	}
}
