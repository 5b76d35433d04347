//go:build linux && cgo

package mig_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
	"github.com/gpufleet/terraform-provider-gpu/test/sshd"
)

// site is a Linux host with two GPUs behind an OpenSSH server, and a folder in which the
// CLI runs.
type site struct {
	*cli.Folder
	machine *fakenvml.Machine
	agent   string
	env     []string
	host    string // the provider's block for the host
}

func newSite(t *testing.T) *site {
	t.Helper()
	if why := sshd.Missing(); why != "" {
		t.Skip(why)
	}
	if cli.Path() == "" {
		t.Skip("there is no terraform and no tofu: make test-nvml builds OpenTofu")
	}
	bin := t.TempDir()
	for out, pkg := range map[string]string{"terraform-provider-gpu": ".", "gpu-agent": "./cmd/gpu-agent"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, out), pkg)
		cmd.Dir = "../.."
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", pkg, err, said)
		}
	}
	model, ok := catalog.ByPCI(gpu.PCIID{Vendor: "10DE", Device: "2330"})
	if !ok || model.MIG == nil {
		t.Fatal("the catalog has no H100")
	}
	var o fakenvml.Options
	for i := range 2 {
		o.GPUs = append(o.GPUs, fakenvml.GPU{
			Model: "NVIDIA H100 80GB HBM3", UUID: uuid(i), DeviceID: 0x233010de, Memory: 80 * 1024 * gpu.MiB,
			Arch: fakenvml.Hopper, Profiles: model.MIG.Profiles,
		})
	}
	s := &site{Folder: cli.New(t, bin, "mig-tests"), machine: fakenvml.New(t, o), agent: filepath.Join(bin, "gpu-agent")}
	s.env = append(s.machine.Environ(), "GPU_AGENT_STATE_DIR="+filepath.Join(t.TempDir(), "state"))
	server, err := sshd.Start(t.Context(), sshd.Options{Dir: t.TempDir(), Env: s.env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sshd:\n%s", server.Log())
		}
		server.Close()
	})
	s.host = fmt.Sprintf("gpu01 = { ssh = { address = \"127.0.0.1\", port = %d, user = %q, private_key_file = %q, known_hosts_file = %q, "+
		"agent_path = %q } }",
		server.Port, server.User, server.ClientKey(), server.KnownHosts(), s.agent)
	return s
}

// wants writes a configuration of both GPUs.
func (s *site) wants(mig string) {
	s.T.Helper()
	s.Write([]string{s.host},
		fmt.Sprintf("resource \"gpu_partition_config\" \"mig\" {\n  name = \"mig\"\n  hosts = [\"gpu01\"]\n  mig = %s\n  on_destroy = "+
			"\"restore\"\n}\n", mig))
}

// has checks the mode and the profiles of a GPU's instances, and returns their devices
// by profile and start.
func (s *site) has(index int, on bool, want ...string) map[string]string {
	s.T.Helper()
	g, out := s.machine.GPU(index), map[string]string{}
	var have []string
	for _, in := range g.Instances {
		name := fmt.Sprintf("%s@%d", in.Profile, in.Start)
		have = append(have, in.Profile)
		if len(in.Compute) != 1 {
			s.T.Errorf("GPU %d: %s has %d compute instances", index, name, len(in.Compute))
			continue
		}
		out[name] = in.Compute[0].UUID
	}
	slices.Sort(have)
	slices.Sort(want)
	if g.MIG != on || !slices.Equal(have, want) {
		s.T.Errorf("GPU %d: MIG mode is %t with %v, and %t with %v was wanted", index, g.MIG, have, on, want)
	}
	return out
}

func (s *site) reconcile() {
	s.T.Helper()
	cmd := exec.CommandContext(s.T.Context(), s.agent, "reconcile")
	cmd.Env = append(os.Environ(), s.env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		s.T.Fatalf("reconcile: %v: %s", err, said)
	}
}

// TestTerraform takes a layout from plan to destroy: the real CLI, OpenSSH and agent,
// and go-nvml.
func TestTerraform(t *testing.T) {
	s := newSite(t)
	s.wants(`{ profiles = { "3g.40gb" = 1, "1g.10gb" = 2 } }`)
	s.OK("apply", "-auto-approve")
	first := s.has(0, true, "3g.40gb", "1g.10gb", "1g.10gb")
	s.has(1, true, "3g.40gb", "1g.10gb", "1g.10gb")
	s.WantNoChanges()

	s.wants(`{ profiles = { "3g.40gb" = 1, "1g.10gb" = 1, "2g.20gb" = 1 } }`)
	s.OK("apply", "-auto-approve")
	wanted := []string{"3g.40gb", "1g.10gb", "2g.20gb"}
	second := s.has(0, true, wanted...)
	kept := 0
	for name, id := range second {
		if first[name] == id {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("of %v only %d are in %v; the 3g and a 1g could stay", first, kept, second)
	}
	s.WantNoChanges()

	// What is in use is named at plan and stays.
	in := s.machine.GPU(1).Instances[0]
	const pid = 3999999 // no process of this machine
	s.machine.StartProcess(1, fakenvml.Compute, gpu.Process{
		PID: pid, Name: "train", GPUInstance: new(in.ID), ComputeInstance: new(in.Compute[0].ID),
	})
	before := s.has(1, true, wanted...)
	s.wants(`{ profiles = { "7g.80gb" = 1 } }`)
	said, code := s.Run("plan")
	if code == 0 {
		t.Error("the plan succeeded")
	}
	cli.WantSays(t, said, fmt.Sprint("process ", pid), uuid(1), "mig-placement")
	if after := s.has(1, true, wanted...); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("GPU 1 had %v and has %v", before, after)
	}
	s.machine.StopProcess(pid)

	// A reboot takes mode and instances. The agent puts both back at boot.
	s.wants(`{ profiles = { "3g.40gb" = 1, "1g.10gb" = 1, "2g.20gb" = 1 } }`)
	s.WantNoChanges()
	s.machine.Reboot()
	s.has(0, false)
	cli.WantSays(t, s.OK("plan"), "has MIG mode off") // of the host's real boot, which is not a new one
	s.reconcile()
	for name := range s.has(0, true, wanted...) {
		if _, same := second[name]; !same {
			t.Errorf("%s was not put back where it was: %v", name, second)
		}
	}
	s.WantNoChanges()

	s.OK("destroy", "-auto-approve")
	s.has(0, false)
	s.has(1, false)
}
