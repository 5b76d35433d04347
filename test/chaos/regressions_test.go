//go:build linux

package chaos_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What chaos has found, each as short as it can be.

// regression is a harness in its first phase.
func regression(t *testing.T) (*harness, *generator) {
	t.Helper()
	h := newHarness(t, t.TempDir())
	h.beginPhase(1)
	t.Cleanup(func() {
		for _, p := range processes(h.bin) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // of a test that failed
		}
		for _, v := range h.violations {
			t.Errorf("violation: %s", v)
		}
	})
	return h, &generator{model: h.model, rng: rand.New(rand.NewPCG(1, 0))}
}

// assign has a state give VMs a partition of the first GPU of the lone host.
func (g *generator) assign(s *state, vms ...string) *object {
	c := &object{
		typ: typeConfig, label: "c", name: "c", kind: "gpu_p", layout: "partition_count = 4", site: g.at(lone)[0],
		args: map[string]string{"max_disruption": `"vm_restart"`, "on_destroy": `"restore"`},
	}
	s.objects = append(s.objects, c)
	g.held[c.site].by = s
	for _, vm := range vms {
		s.objects = append(s.objects, &object{
			typ: typeVM, label: vm, name: vm, kind: "partition", site: c.site, on: c, args: map[string]string{},
		})
		g.vms[vm].by = s
	}
	return c
}

// eventually waits until something has come about.
func (h *harness) eventually(what string, holds func() bool) {
	h.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("it did not come about: %s", what)
		}
	}
}

// TestProviderWhoseTerraformIsKilledEnds kills the CLI alone while its provider has nothing
// to do, which nothing tells it.
func TestProviderWhoseTerraformIsKilledEnds(t *testing.T) {
	h, g := regression(t)
	s := g.states[0]
	c := g.assign(s)
	h.configure(s, s.hcl()+`
resource "terraform_data" "slow" {
  depends_on = [`+c.address()+`]
  provisioner "local-exec" {
    command = "touch begun && sleep 600"
  }
}
resource "gpu_partition_config" "later" {
  depends_on = [terraform_data.slow]
  hosts      = ["`+mpsHost+`"]
  mps        = { uid = 1000 }
}
`)
	cmd := s.folder.Command(apply...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.must(cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // what sleeps
	h.eventually("the first config is applied", func() bool {
		_, err := os.Stat(filepath.Join(s.folder.Dir, "begun"))
		return err == nil
	})
	h.must(syscall.Kill(cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait() // killed, as it should be
	h.eventually("the provider and the agents end", func() bool { return len(processes(h.bin)) == 0 })
	h.settle()
}

// TestProviderWhoseTerraformIsKilledLeavesNoVMOff kills the CLI alone in the middle of a change.
func TestProviderWhoseTerraformIsKilledLeavesNoVMOff(t *testing.T) {
	h, g := regression(t)
	s := g.states[0]
	g.assign(s, "vm01")
	h.configure(s, s.hcl())
	h.must(h.fleet.EditSimulation(h.ctx, lone, func(sim *simulated.Simulation) {
		sim.Latency = map[simulated.Op]int{simulated.OpStartVM: 1500}
	}))
	cmd := s.folder.Command(apply...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.must(cmd.Start())
	h.eventually("VM vm01 is shut down", func() bool { vm, _ := h.vm("vm01"); return vm.State == gpu.VMOff })
	h.must(syscall.Kill(cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait() // killed, as it should be
	h.eventually("the provider and the agents end", func() bool { return len(processes(h.bin)) == 0 })
	if vm, _ := h.vm("vm01"); !vm.Runs() {
		t.Errorf("VM vm01 is %s, want it running: put back, or with its partition", vm.State)
	}
	h.settle()
}

// TestImportedConfigOfANewAddress is what seed 201 found, and no violation: the destroy of the
// old address goes by an import, which knows no on_destroy.
func TestImportedConfigOfANewAddress(t *testing.T) {
	h, g := regression(t)
	s := g.states[1]
	c := &object{
		typ: typeConfig, label: "c", name: "c", kind: "mig", layout: `profiles = { "3g.40gb" = 2 }`, site: g.at(migHost)[0],
		args: map[string]string{"on_destroy": `"restore"`}, touched: true,
	}
	s.objects = append(s.objects, c)
	g.held[c.site].by = s
	do := func(op *operation) {
		t.Helper()
		g.number++
		op.number, op.by, op.hcl = g.number, s, s.hcl()
		h.operate(op, g.rng)
	}
	do(&operation{what: "create", commands: [][]string{apply}})
	c.imported = true
	do(&operation{what: "state rm and import", commands: [][]string{{"state", "rm", c.address()}, {"import", c.address(), c.importID()}}})
	renamed := g.relabel(s)
	renamed.commands = [][]string{apply}
	do(renamed)
	h.settle()
	g.endPhase()

	h.beginPhase(2)
	gone := g.dropSite(s)
	gone.commands = [][]string{apply}
	do(gone)
	h.settle()
}
