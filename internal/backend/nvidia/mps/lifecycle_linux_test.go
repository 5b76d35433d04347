package mps_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// TestLifecycle starts, configures, reads back, restarts and stops a daemon.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		spec := training()
		h.planned(spec, mps.Start)
		h.ensure(spec)
		h.settled(spec)
		first := h.daemon("training")
		want := mpsconf.Settings{ActiveThreadPercentage: 25, PinnedMemory: map[string]gpu.Bytes{gpu2: 4 * gib}}
		if first.PID == 0 || first.Problem != "" || first.Systemd || !slices.Equal(first.Devices, spec.Devices) ||
			!reflect.DeepEqual(first.Settings, &want) {
			t.Fatalf("read back: %+v with %+v", first, first.Settings)
		}

		// Settings change while it runs.
		spec.Settings = mpsconf.Settings{ActiveThreadPercentage: 33.3, ClientPriority: 1, PinnedMemory: map[string]gpu.Bytes{gpu1: 512 * gpu.MiB}}
		h.planned(spec, mps.Configure)
		h.ensure(spec)
		h.settled(spec)
		if got := h.daemon("training"); got.PID != first.PID || !reflect.DeepEqual(*got.Settings, spec.Settings) {
			t.Errorf("configured: %+v with %+v", got, got.Settings)
		}

		// And back to none.
		spec.Settings = mpsconf.Settings{}
		h.ensure(spec)
		h.settled(spec)
		if got := h.daemon("training").Settings; got.ActiveThreadPercentage != 100 || got.ClientPriority != 0 || len(got.PinnedMemory) > 0 {
			t.Errorf("without settings it has %+v", got)
		}

		// Devices need a restart. Limits go with the device, not with its number.
		spec.Devices, spec.PinnedMemory = []string{gpu2}, map[string]gpu.Bytes{gpu2: 2 * gib}
		h.planned(spec, mps.Restart)
		h.ensure(spec)
		h.settled(spec)
		if limit, err := h.control("training").MemoryLimit(t.Context(), mps.NextServer, 0); err != nil || limit != 2*gib {
			t.Errorf("device 0 has limit %v, %v", limit, err)
		}
		if got := h.daemon("training"); got.PID == first.PID || !slices.Equal(got.Devices, []string{gpu2}) {
			t.Errorf("restarted: %+v", got)
		}

		if found, err := h.Remove(t.Context(), "training", mps.KeepClients); err != nil || !found {
			t.Fatal(found, err)
		}
		h.nothingLeft("training")
		if found, err := h.Remove(t.Context(), "training", mps.KeepClients); err != nil || found {
			t.Errorf("removed again: %v, %v", found, err)
		}
	})
}

func TestTwoDaemons(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		one := mpsconf.Spec{Name: "one", Devices: []string{gpu1}, User: new(0), Settings: mpsconf.Settings{ActiveThreadPercentage: 10}}
		two := mpsconf.Spec{Name: "two", Devices: []string{mig1}, User: new(0), Settings: mpsconf.Settings{ActiveThreadPercentage: 20}}
		h.ensure(one)
		h.ensure(two)
		h.settled(one)
		h.settled(two)
		if a, b := h.daemon("one"), h.daemon("two"); a.PID == b.PID || a.Settings.ActiveThreadPercentage != 10 ||
			b.Settings.ActiveThreadPercentage != 20 {
			t.Errorf("they are %+v and %+v", a, b)
		}
		if _, err := h.Remove(t.Context(), "one", mps.KeepClients); err != nil {
			t.Fatal(err)
		}
		h.nothingLeft("one")
		h.settled(two)
		if got := h.names(); !slices.Equal(got, []string{"two"}) {
			t.Errorf("left are %v", got)
		}
	})
}

// TestKilledDaemon has a daemon that dies seen, and brought back with its settings.
func TestKilledDaemon(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		spec := training()
		h.ensure(spec)
		h.kill("training")
		if d := h.daemon("training"); d.PID != 0 || !strings.Contains(d.Problem, "it was killed") || d.Spec == nil {
			t.Errorf("a killed daemon is %+v", d)
		}
		if e := h.planned(spec, mps.Start); !strings.Contains(e.Why, "it was killed") {
			t.Errorf("the reason to start is %q", e.Why)
		}
		h.ensure(spec)
		h.settled(spec)
		h.kill("training")
		if found, err := h.Remove(t.Context(), "training", mps.KeepClients); err != nil || !found {
			t.Fatal(found, err)
		}
		h.nothingLeft("training")
	})
}

// TestLostSocket has a daemon whose sockets somebody removed: it runs, its clients do not
// reach it, and it lets no second one start.
func TestLostSocket(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		spec := training()
		h.ensure(spec)
		for _, lost := range [][]string{{"control"}, {"control", "control_privileged"}} {
			before := h.daemon("training").PID
			for _, name := range lost {
				if err := os.Remove(filepath.Join(h.PipeDir("training"), name)); err != nil {
					t.Fatal(err)
				}
			}
			if d := h.daemon("training"); d.PID != before || !strings.Contains(d.Problem, "it runs and does not answer: ") {
				t.Errorf("without %v it is %+v", lost, d)
			}
			h.planned(spec, mps.Restart)
			h.ensure(spec)
			h.settled(spec)
			if d := h.daemon("training"); d.PID == before {
				t.Errorf("after its restart without %v it is %+v", lost, d)
			}
		}
	})
}

// TestSomebodyElseSets has settings changed past the agent: they are seen and put back.
func TestSomebodyElseSets(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		spec := training()
		h.ensure(spec)
		c := h.control("training")
		if err := c.SetThreads(t.Context(), mps.NextServer, 90); err != nil {
			t.Fatal(err)
		}
		if err := c.SetMemoryLimit(t.Context(), mps.NextServer, 1, 0); err != nil {
			t.Fatal(err)
		}
		h.planned(spec, mps.Configure)
		h.ensure(spec)
		h.settled(spec)
	})
}

// TestLaterAgent finds a daemon again, even when the agent that started it was killed
// before it noted the process.
func TestLaterAgent(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		spec := training()
		h.ensure(spec)
		before := h.daemon("training").PID
		h.Host = mps.New(h.opt)
		h.settled(spec)
		if err := os.Remove(filepath.Join(h.opt.RunDir, "training", "daemon.json")); err != nil {
			t.Fatal(err)
		}
		h.planned(spec, mps.Configure)
		h.ensure(spec)
		h.settled(spec)
		if after := h.daemon("training").PID; after != before {
			t.Errorf("it is process %d, and was %d", after, before)
		}
	})
}

// TestDirectories has nobody but root change what a daemon uses, and nobody but its user
// reach it.
func TestDirectories(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		if os.Geteuid() != 0 {
			t.Skip("only root may let one other user in: run this test as root")
		}
		spec := training()
		spec.User = new(1000)
		h.ensure(spec)
		modes := map[string]os.FileMode{
			h.opt.RunDir: 0o755, filepath.Join(h.opt.RunDir, "training"): 0o710, h.PipeDir("training"): 0o755,
			h.opt.LogDir: 0o755, filepath.Join(h.opt.LogDir, "training"): 0o755,
		}
		for dir, want := range modes {
			info, err := os.Stat(dir)
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("%s has mode %v, %v, and %v was wanted", dir, info.Mode(), err, want)
			}
		}
		for user, want := range map[uint32]bool{1000: true, 1001: false} {
			if got := h.reaches(user, "training"); got != want {
				t.Errorf("user %d reaches the daemon: %v", user, got)
			}
		}
		// Another user's daemon is another daemon.
		spec.User = new(1001)
		h.planned(spec, mps.Restart)
		h.ensure(spec)
		h.settled(spec)
		if h.reaches(1000, "training") || !h.reaches(1001, "training") {
			t.Error("the user from before is still let in, or the new one is not")
		}
	})
}

// TestDaemonOfProtocol3 has a daemon in the place of ours that was started with the protocol which
// takes other commands: it is to be started anew.
func TestDaemonOfProtocol3(t *testing.T) {
	t.Parallel()
	for name, third := range map[string]struct{ arg, env string }{
		"by a variable": {env: "CUDA_MPS_PROTOCOL_VERSION=3"},
		"by an option":  {arg: "3"},
		"not at all":    {arg: "2", env: "CUDA_MPS_PROTOCOL_VERSION=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := fakenvml.NewProcTree(t)
			h := newFake(t, fakemps.Behaviour{ProcDir: tree.Proc()}, func(o *mps.Options) { o.ProcDir = tree.Proc() })
			spec := training()
			h.ensure(spec)
			h.settled(spec)
			pid := h.daemon("training").PID
			p := fakenvml.Proc{PID: pid, Args: []string{h.opt.Program, "-d"}, Env: []string{
				"CUDA_MPS_PIPE_DIRECTORY=" + h.PipeDir("training"), "CUDA_VISIBLE_DEVICES=" + strings.Join(spec.Devices, ","), third.env,
			}}
			if third.arg != "" {
				p.Args = append(p.Args, "-p", third.arg)
			}
			tree.Add(p)
			if name == "not at all" {
				h.planned(spec, mps.Configure) // it is another process than was noted
				return
			}
			if why := h.planned(spec, mps.Restart).Why; why != "it was started with protocol 3 of MPS" {
				t.Errorf("it is started anew, because %s", why)
			}
		})
	}
}
