//go:build linux && cgo

package mig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const sick = 5

// served is a host with eight idle GPUs and its agent.
type served struct {
	machine *fakenvml.Machine
	server  *agent.Server
	client  *agent.Client
	changes int
	bin     string // programs of the host
}

// tool writes a program of the host.
func (s *served) tool(name, body string) {
	if err := os.WriteFile(filepath.Join(s.bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		panic(err)
	}
}

func eightIdle(t *testing.T) *served {
	t.Helper()
	s := &served{machine: machine(t), bin: t.TempDir()}
	for i := range gpus {
		for n := range 7 {
			s.machine.StopProcess(1000*(i+1) + n)
		}
	}
	store, err := statedir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	backend := nvidia.New(nvidia.Options{
		Library: s.machine.Library(), SMI: s.machine.SMI(), Root: fakenvml.NewProcTree(t).Root(), Systemctl: filepath.Join(s.bin, "systemctl"),
	})
	s.server = agent.NewServer(backend, store, agent.WithHostName(host))
	conn, err := connect.InProcess(s.server)
	if err != nil {
		t.Fatal(err)
	}
	s.client = agent.NewClient(conn, host)
	t.Cleanup(func() {
		for _, end := range []func() error{s.client.Close, conn.Close, backend.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// config makes a config of some GPUs be so, as one apply does.
func (s *served) config(t *testing.T, id string, profiles map[string]int, of ...int) error {
	t.Helper()
	s.changes++
	var ids []string
	for _, n := range of {
		ids = append(ids, uuid(n))
	}
	run := fmt.Sprintf("run-%d", s.changes)
	fence, err := s.client.AcquireLease(t.Context(), agent.LeaseRequest{Run: run, Owner: "o", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ch := agent.Change{ID: run, Host: host, Change: change.Change{
		Subject: "gpu_partition_config." + id, Owner: "o", Token: id,
		Want: gpu.Want{
			Config: &gpu.PartitionConfig{
				ID: id, Kind: gpu.KindMIG, Name: id, MIG: &gpu.MIGLayout{Profiles: profiles}, GPUs: map[string][]string{host: ids},
			},
		},
	}}
	_, failed := s.client.Apply(t.Context(), fence, ch, "", nil)
	if failed == nil {
		if _, err := s.client.Settle(t.Context(), fence, ch.ID, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.client.ReleaseLease(t.Context(), fence); err != nil {
		t.Fatal(err)
	}
	return failed
}

func (s *served) has(n int) []string {
	var out []string
	for _, in := range s.machine.GPU(n).Instances {
		out = append(out, in.Profile)
	}
	slices.Sort(out)
	return out
}

var (
	halves  = map[string]int{"3g.40gb": 2}
	quarter = map[string]int{"2g.20gb": 3}
)

// TestOneSickGPU: whatever it answers, the others are changed and restored, and what it has
// is left alone until it can be read.
func TestOneSickGPU(t *testing.T) {
	others := []int{0, 1, 2, 3, 4, 6, 7}
	for _, code := range []int{15, 16, 10, 999} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s := eightIdle(t)
			if err := s.config(t, "all", halves, 0, 1, 2, 3, 4, 5, 6, 7); err != nil {
				t.Fatal(err)
			}
			s.machine.Sicken(sick, code)

			err := s.config(t, "all", quarter, 0, 1, 2, 3, 4, 5, 6, 7)
			for _, text := range []string{uuid(sick), "nvmlDevice", fmt.Sprintf("(%d)", code)} {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("a change of the sick GPU does not say %s: %v", text, err)
				}
			}
			for n := range gpus {
				if got := s.has(n); !slices.Equal(got, []string{"3g.40gb", "3g.40gb"}) {
					t.Errorf("refused, and GPU %d has %v", n, got)
				}
			}

			// Somebody takes an instance away, and the config as it is declared puts it back.
			s.machine.DestroyInstance(1, 0)
			if err := s.config(t, "all", halves, 0, 1, 2, 3, 4, 5, 6, 7); err != nil {
				t.Errorf("a change that leaves the sick GPU alone: %v", err)
			}
			if got := s.has(1); len(got) != 2 {
				t.Errorf("the GPU beside it has %v", got)
			}

			// A boot loses all instances, and the seven have theirs again.
			s.machine.Reboot()
			_, _ = s.client.Inventory(t.Context()) // the agent of a host that boots is a new one
			settled, err := s.server.Reconcile(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range others {
				if got := s.has(n); len(got) != 2 {
					t.Errorf("reconciled, GPU %d has %v", n, got)
				}
			}
			var stands string
			for _, end := range settled {
				stands += strings.Join(end.Stands, "\n")
			}
			if !strings.Contains(stands, uuid(sick)) || !strings.Contains(stands, fmt.Sprintf("(%d)", code)) || len(s.has(sick)) > 0 {
				t.Errorf("of the sick GPU it says %q, and it has %v", stands, s.has(sick))
			}

			s.machine.Sicken(sick, 0)
			if _, err := s.server.Reconcile(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			if got := s.has(sick); len(got) != 2 {
				t.Errorf("healed, it has %v", got)
			}
		})
	}
}

// TestDerivedFilesUndoNothing: a specification that cannot be written leaves the layout as it
// was wanted, is told of, and follows with the next reconcile. MIG mode without instances,
// for which the toolkit fails, is a layout like any other.
func TestDerivedFilesUndoNothing(t *testing.T) {
	s := eightIdle(t)
	s.tool("systemctl",
		`case $1 in show) echo loaded;; restart) [ -e "$(dirname "$0")/mended" ] || { echo "Job for $2 failed." >&2; exit 1; };; esac`)
	if err := s.config(t, "all", quarter, 0); err != nil {
		t.Fatal(err)
	}
	if got := s.has(0); !slices.Equal(got, []string{"2g.20gb", "2g.20gb", "2g.20gb"}) {
		t.Errorf("the GPU has %v", got)
	}
	destroyed := s.machine.Calls().Count("nvmlGpuInstanceDestroy")
	if destroyed != 7 {
		t.Errorf("%d instances were destroyed, of 7", destroyed)
	}
	stale := func() string {
		h, err := s.client.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(h.Stale, "\n")
	}
	if said := stale(); !strings.Contains(said, "nvidia-cdi-refresh.service failed") {
		t.Errorf("it says %q", said)
	}
	s.tool("mended", "")
	if _, err := s.server.Reconcile(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if said := stale(); said != "" {
		t.Errorf("mended, it says %q", said)
	}

	if err := os.Remove(filepath.Join(s.bin, "mended")); err != nil {
		t.Fatal(err)
	}
	if err := s.config(t, "all", map[string]int{}, 0); err != nil {
		t.Fatal(err)
	}
	if got := s.has(0); len(got) > 0 || !s.machine.GPU(0).MIG || stale() != "" {
		t.Errorf("MIG mode without instances: it has %v and says %q", got, stale())
	}
}
