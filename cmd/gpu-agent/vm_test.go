package main_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A VM whose change waits for its next power-off gets it now, and runs again; it is shut down and
// started as its assignment allows, and the claim stays as it was declared.
func TestVMActs(t *testing.T) {
	t.Parallel()
	h := host()
	h.Claims[0].Want.Pool = &gpu.PoolConfig{ID: "hv01/render", Name: "render", Members: map[string][]string{"hv01": {gpu2}}}
	want := &gpu.Assignment{
		Kind: gpu.AssignPartition, VM: "avd-01", VMID: vm1, VMName: "avd-01", Host: "hv01", Partition: &gpu.PartitionWant{},
		Power: gpu.Power{AllowShutdown: true, NextOff: true},
	}
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: vm1, Token: "t2", Owner: "vdi-prod", Pending: true, Want: gpu.Want{Assignment: want}, Revision: 1,
	})
	r := newRig(t, h)
	state := func() (vm gpu.VM, c gpu.Claim) {
		s, err := r.fleet.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c = range s.Hosts[0].Claims {
			if c.Kind == gpu.ClaimAssignment {
				break
			}
		}
		return s.Hosts[0].VMs[0], c
	}
	before := r.file()
	got, _ := r.run(0, "vm", "apply-pending", "avd-01")
	wantSaid(t, got, "shut down VM avd-01", "start VM avd-01", "nothing was changed; --yes does it")
	if r.file() != before {
		t.Error("without --yes it changed the host")
	}
	_, said := r.run(1, "vm", "--role", "reader", "stop", "avd-01", "--yes")
	wantSaid(t, said, "vm changes the host, and the role is reader")

	got, _ = r.run(0, "vm", "apply-pending", "avd-01", "--yes")
	wantSaid(t, got, "done")
	if vm, c := state(); vm.State != gpu.VMRunning || len(vm.PartitionAdapters) != 1 || c.Pending ||
		!c.Want.Assignment.Power.NextOff || c.Token != "t2" {
		t.Errorf("the VM is %+v, and its claim %+v", vm, c)
	}
	got, _ = r.run(0, "vm", "apply-pending", "avd-01", "--yes")
	wantSaid(t, got, "nothing to do")

	r.run(0, "vm", "stop", "avd-01", "--yes")
	got, _ = r.run(0, "reconcile") // it is owed no start
	wantSaid(t, got, "nothing to settle")
	if vm, _ := state(); vm.State != gpu.VMOff || len(vm.PartitionAdapters) != 1 {
		t.Errorf("it is %s with %d partitions", vm.State, len(vm.PartitionAdapters))
	}
	r.run(0, "vm", "start", vm1, "--yes")
	if vm, c := state(); vm.State != gpu.VMRunning || c.Want.Assignment.Power.StayOff {
		t.Errorf("it is %s, and its claim %+v", vm.State, c)
	}

	_, said = r.run(1, "vm", "stop", "avd-77")
	wantSaid(t, said, "this host has no VM avd-77")
	r.run(64, "vm", "reboot", "avd-01")
}

// What the assignment does not allow is refused, and so is a VM without one.
func TestVMActsKeepToThePowerPolicy(t *testing.T) {
	t.Parallel()
	h := host()
	r := newRig(t, h)
	_, said := r.run(1, "vm", "stop", "avd-01", "--yes")
	wantSaid(t, said, "VM avd-01 has no assignment that this host knows of")
	want := &gpu.Assignment{
		Kind: gpu.AssignPartition, VM: "avd-01", VMID: vm1, VMName: "avd-01", Host: "hv01", Partition: &gpu.PartitionWant{},
	}
	h.Claims = append(h.Claims, gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: vm1, Token: "t2", Pending: true, Want: gpu.Want{Assignment: want}, Revision: 1,
	})
	r = newRig(t, h)
	for act, says := range map[string]string{"stop": "does not allow a shutdown", "apply-pending": "does not allow to shut it down"} {
		_, said = r.run(1, "vm", act, "avd-01", "--yes")
		wantSaid(t, said, says)
		if s, err := r.fleet.Snapshot(t.Context()); err != nil || s.Hosts[0].VMs[0].State != gpu.VMRunning ||
			len(s.Hosts[0].VMs[0].PartitionAdapters) > 0 {
			t.Errorf("%s: %v, %+v", act, err, s.Hosts[0].VMs[0])
		}
	}
}
