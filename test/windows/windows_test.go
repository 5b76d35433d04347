//go:build linux

package windows_test

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
)

const (
	config = `
resource "gpu_partition_config" "vdi" {
  name           = "vdi"
  hosts          = ["hv01"]
  selector       = { models = ["NVIDIA A2"] }
  gpu_p          = { partition_count = 8 }
  max_disruption = "vm_restart"
  on_destroy     = "restore"
}
`
	pool = `
resource "gpu_pool" "render" {
  name       = "render"
  members    = { hv01 = ["` + gpuT + `"] }
  on_destroy = "mount_back"
}
`
	avd = `
resource "gpu_vm_assignment" "avd" {
  vm        = "avd-01"
  partition = { config = gpu_partition_config.vdi.id }
  power     = { allow_shutdown = true }
}
`
	render = `
resource "gpu_vm_assignment" "render" {
  vm    = "render"
  pool  = { id = gpu_pool.render.id }
  power = { allow_shutdown = true }
}
`
)

// TestPlanToDestroy manages everything that a Hyper-V host has, from the first plan to
// the end.
func TestPlanToDestroy(t *testing.T) {
	t.Parallel()
	r := newRig(t, hyperV())
	r.Write(config + pool + avd + render)
	before, ran := r.host(), r.running()

	cli.WantSays(t, r.OK("plan"), "4 to add")
	if n := r.server.Sessions(); n != 1 {
		t.Errorf("a plan opened %d sessions, want 1", n)
	}
	if diff := cmp.Diff(before, r.host(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("a plan changed the host (-before +after):\n%s", diff)
	}

	cli.WantSays(t, r.OK("apply", "-auto-approve"), "Apply complete! Resources: 4 added")
	r.wantCounts(8)
	r.wantRunning(ran)
	r.wantPartition("avd-01")
	if vm := r.vm("render"); len(vm.Devices) != 1 || vm.Devices[0].Pool != "render" {
		t.Errorf("render has the devices %+v, want one of the pool", vm.Devices)
	}
	r.WantNoChanges()
	r.wantQuiet()

	t.Run("import", func(t *testing.T) {
		r := r.in(t)
		r.OK("state", "rm", "gpu_partition_config.vdi", "gpu_pool.render", "gpu_vm_assignment.avd", "gpu_vm_assignment.render")
		imports := ""
		for address, id := range map[string]string{
			"gpu_partition_config.vdi": "vdi@hv01", "gpu_pool.render": "hv01/render",
			"gpu_vm_assignment.avd": "hv01/avd-01", "gpu_vm_assignment.render": vmID(3),
		} {
			imports += fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", address, id)
		}
		r.Write(config + pool + avd + render + imports)
		cli.WantSays(t, r.OK("apply", "-auto-approve"), "4 imported, 0 added", "0 destroyed")
		r.WantNoChanges()
	})
	t.Run("count under a running VM", func(t *testing.T) {
		r := r.in(t)
		r.Write(strings.Replace(config, "partition_count = 8", "partition_count = 2", 1) + pool + avd + render)
		r.OK("apply", "-auto-approve")
		r.wantCounts(2)
		r.wantRunning(ran)
		r.wantPartition("avd-01")
		r.WantNoChanges()
	})
	t.Run("pool in use", func(t *testing.T) {
		r := r.in(t)
		r.Write(strings.Replace(config, "partition_count = 8", "partition_count = 2", 1) + avd +
			strings.Replace(render, "gpu_pool.render.id", `"hv01/render"`, 1))
		// Whichever of the two Terraform plans last is told.
		out := r.Fails("", "apply", "-auto-approve")
		if !strings.Contains(out, "What it uses is destroyed in the same run") &&
			!strings.Contains(out, "The pool would have fewer GPUs than its VMs use") {
			t.Errorf("the VM that uses the pool is not in the way of its end:\n%s", out)
		}
		cli.WantSays(t, out, `host "hv01"`, `"render"`)
	})

	r.Write(strings.Replace(config, "partition_count = 8", "partition_count = 2", 1) + pool + avd + render)
	cli.WantSays(t, r.OK("destroy", "-auto-approve"), "Destroy complete! Resources: 4 destroyed")
	after := r.host()
	if diff := cmp.Diff(before.VMs, after.VMs, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("VMs (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before.GPUs, after.GPUs, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("GPUs (-before +after):\n%s", diff)
	}
	if len(after.Pools) > 0 || len(r.state().Claims) > 0 {
		t.Errorf("pools %+v, claims %+v are left", after.Pools, r.state().Claims)
	}
	r.wantQuiet()
	if r.server.Sessions() != r.server.Connections() {
		t.Errorf("%d sessions on %d connections", r.server.Sessions(), r.server.Connections())
	}
}

// in is the rig for a subtest.
func (r *rig) in(t *testing.T) *rig {
	folder, other := *r.Folder, *r
	folder.T, other.Folder = t, &folder
	return &other
}

// wantPartition asserts that a VM has one adapter, and the partition that it asks for.
func (r *rig) wantPartition(vm string) {
	r.T.Helper()
	has := r.vm(vm)
	held := 0
	for _, g := range r.host().GPUs {
		if g.Partitionable == nil {
			continue
		}
		for _, p := range g.Partitionable.Partitions {
			if gpu.SameID(p.VMID, has.ID) {
				held++
			}
		}
	}
	if len(has.PartitionAdapters) != 1 || held != 1 {
		r.T.Errorf("VM %s has %d adapters and holds %d partitions, want one of each", vm, len(has.PartitionAdapters), held)
	}
}

// wantCounts asserts how many partitions each GPU has that can have any.
func (r *rig) wantCounts(want int) {
	r.T.Helper()
	for _, g := range r.host().GPUs {
		if g.Partitionable != nil && g.Partitionable.Count != want {
			r.T.Errorf("GPU %s has %d partitions, want %d", g.ID, g.Partitionable.Count, want)
		}
	}
}

func (r *rig) wantRunning(want map[string]bool) {
	r.T.Helper()
	if got := r.running(); !maps.Equal(got, want) {
		r.T.Errorf("the VMs %v run, want %v", got, want)
	}
}

// TestBadInput has one clear error for each thing that Hyper-V cannot do, and nothing is
// changed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, resources string
		host            func(*gpu.Host)
		texts           []string
	}{
		{
			name: "count that the driver does not offer", resources: strings.Replace(config, "8", "3", 1),
			texts: []string{"valid-partition-count", "1 (about 14.6 GiB each), 2"},
		},
		{
			name: "VM of generation 1", resources: `resource "gpu_vm_assignment" "x" {
  vm        = "old"
  partition = {}
}`,
			texts: []string{"generation-2", "old"},
		},
		{
			name: "VM whose name two have", resources: `resource "gpu_vm_assignment" "x" {
  vm        = "twin"
  partition = {}
}`,
			texts: []string{"twin", vmID(4), vmID(5)},
		},
		{
			name: "policy that wants certified devices", resources: pool + `resource "gpu_vm_assignment" "x" {
  vm   = "avd-02"
  pool = { id = gpu_pool.render.id }
}`,
			host:  func(h *gpu.Host) { h.Policies.RequireSecureDeviceAssignment = new(true) },
			texts: []string{"policy-gate", "RequireSecureDeviceAssignment"},
		},
		{
			name:      "cluster that the host is in none of",
			resources: strings.Replace(pool, "members    = { hv01 = [\""+gpuT+"\"] }", "cluster    = \"azl\"", 1),
			texts:     []string{"azl"},
		},
		{
			name: "VM that is saved", resources: `resource "gpu_vm_assignment" "x" {
  vm        = "avd-02"
  partition = {}
}`,
			host:  func(h *gpu.Host) { h.VMs[1].State = gpu.VMSaved },
			texts: []string{"avd-02", "saved"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host := hyperV()
			if c.host != nil {
				c.host(&host)
			}
			r := newRig(t, host)
			r.Write(c.resources)
			before := r.host()
			cli.WantSays(t, r.Fails("", "plan"), c.texts...)
			if diff := cmp.Diff(before, r.host(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the host changed (-before +after):\n%s", diff)
			}
		})
	}
}

// single is an assignment whose VM has to be stopped.
const single = `
resource "gpu_vm_assignment" "avd" {
  vm        = "avd-01"
  partition = {}
  power     = { allow_shutdown = true }
}
`

// wantPutBack waits until nothing is left of a change.
func (r *rig) wantPutBack(ran map[string]bool) {
	r.T.Helper()
	cli.Eventually(r.T, "everything that ran runs, no change is open and nobody holds the lease", func() bool {
		s := r.state()
		return maps.Equal(ran, r.running()) && len(s.Journal) == 0 && s.Lease == nil
	})
	r.wantQuiet()
	if n := len(r.vm("avd-01").PartitionAdapters); n != 0 {
		r.T.Errorf("the VM keeps %d adapters", n)
	}
}

// TestCutInTheMiddle cuts the connection, or kills Terraform, while a VM is off for a
// change. The agent for Windows puts everything back without either.
func TestCutInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(r *rig, terraform int) error{
		"sshd of the connection killed":     func(r *rig, _ int) error { return r.server.Cut() },
		"Terraform and the provider killed": func(_ *rig, pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, hyperV())
			r.simulate(func(s *simulated.Simulation) {
				s.Latency = map[simulated.Op]int{simulated.OpShutDownVM: 1500, simulated.OpStartVM: 500}
			})
			ran := r.running()
			r.Write(single)
			apply := r.Command("apply", "-auto-approve")
			apply.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var out strings.Builder
			apply.Stdout, apply.Stderr = &out, &out
			if err := apply.Start(); err != nil {
				t.Fatal(err)
			}
			cli.Eventually(t, "the VM is being stopped", func() bool { return len(r.state().Journal) > 0 })
			if err := cut(r, apply.Process.Pid); err != nil {
				t.Error(err)
			}
			if err := apply.Wait(); err == nil {
				t.Errorf("the apply succeeded:\n%s", out.String())
			}
			r.wantPutBack(ran)
			r.simulate(func(s *simulated.Simulation) { s.Latency = nil })
			cli.WantSays(t, r.OK("apply", "-auto-approve", "-lock=false"), "Apply complete")
			r.WantNoChanges()
			r.wantRunning(ran)
		})
	}
}
