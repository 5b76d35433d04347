package provider_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// twoHosts stand alone, hv01 with VM avd-01, zz with a VM of its own.
func twoHosts() gpu.Snapshot {
	return rig.Standalone(rig.Node("hv01", rig.Off(rig.Desktop("avd-01", 1))), rig.Node("zz", rig.Off(rig.Desktop("own", 9))))
}

// copied shows a VM of another host on zz as well.
func copied(r *rig.Rig, name string, edit func(*gpu.VM)) {
	vm, _ := r.VM(name)
	vm.State = gpu.VMOff
	if edit != nil {
		edit(&vm)
	}
	r.EditHost("zz", func(h *gpu.Host) { h.VMs = append(h.VMs, vm) })
}

// A VM is stopped, or belongs to somebody, by what its own host has on record, whatever another host of
// the same config says of it.
func TestAClaimOfAnotherHostSaysNothingOfAVM(t *testing.T) {
	t.Parallel()
	forgeries := map[string]func(*gpu.Claim){
		"may be stopped":  func(c *gpu.Claim) { c.Want.Assignment.Power = gpu.Power{AllowShutdown: true} },
		"may be left off": func(c *gpu.Claim) { c.Want.Assignment.Power = gpu.Power{AllowShutdown: true, StayOff: true} },
		"may be cut off":  func(c *gpu.Claim) { c.Want.Assignment.Power = gpu.Power{AllowShutdown: true, AllowTurnOff: true} },
		"is another's":    func(c *gpu.Claim) { c.Owner, c.Token = "evil", "made up" },
	}
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, twoHosts())
			config := func(count int) string {
				return r.Block() + rig.ConfigOf(count, []string{"hv01", "zz"}, `max_disruption = "vm_restart"`)
			}
			layout, vms := rig.NewCLI(t, config(16)), rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", `partition = { config = "vdi" }`))
			layout.Apply()
			vms.Apply()
			r.Must(r.Fleet.SetVMState(t.Context(), "avd-01", gpu.VMRunning))
			layout.Write(config(8))
			before := rig.Sentence(layout.Fails("plan"))

			claim := *must(r.Host("hv01").Claim(gpu.ClaimAssignment, rig.VMID(1)))
			want := *claim.Want.Assignment
			claim.Want.Assignment, claim.Revision = &want, 999
			forge(&claim)
			r.EditHost("zz", func(h *gpu.Host) { h.Claims = append(h.Claims, claim) })
			untouched := r.File()
			rig.WantSaid(t, before, "Running VMs hold the partitions", `"avd-01" (its assignment does not allow a shutdown`)
			if diff := cmp.Diff(before, rig.Sentence(layout.Fails("plan"))); diff != "" {
				t.Errorf("the plan says something else (-before +with the forged claim):\n%s", diff)
			}
			layout.Fails("apply", "-auto-approve")
			r.WantUntouched(untouched)
			vms.WantNoChanges()
			r.Must(r.Fleet.SetVMState(t.Context(), "avd-01", gpu.VMOff))
			vms.Destroy()
			layout.Apply()
			r.WantCounts(8, "hv01", "zz")
		})
	}
}

// One id on two hosts that are not nodes of one cluster: which is meant nobody can tell, and the plan
// names both. `hosts` says it.
func TestOneVMIDOnTwoHostsIsAnErrorThatNamesBoth(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{rig.VMID(1), "avd-01"} {
		r := rig.New(t, twoHosts())
		copied(r, "avd-01", nil)
		before := r.File()
		c := rig.NewCLI(t, r.Block()+rig.Assignment(ref, rig.AnyPartition))
		for _, command := range [][]string{{"plan"}, {"apply", "-auto-approve"}} {
			out := rig.Sentence(c.Fails(command...))
			rig.WantSaid(t, out, "Several hosts show this VM", "avd-01 on hv01", "avd-01 on zz", "Say with hosts which one is meant")
			if strings.Contains(out, "Write the VM's id") {
				t.Errorf("the fix leads nowhere, since the id is the same:\n%s", out)
			}
		}
		r.WantUntouched(before)
		c.Write(r.Block() + rig.Assignment(ref, rig.AnyPartition, `hosts = ["hv01"]`))
		rig.WantSaid(t, rig.Sentence(c.Fails("import", "gpu_vm_assignment.a", rig.VMID(1))), "Several VMs fit the import id",
			"such as hv01/"+rig.VMID(1))
		c.Apply()
		c.Ok("state", "rm", "gpu_vm_assignment.a")
		c.Ok("import", "gpu_vm_assignment.a", "hv01/"+rig.VMID(1))
		c.Apply()
		c.WantNoChanges()
		wantAssigned(t, r, "hv01", true)
		wantAssigned(t, r, "zz", false)
		c.Destroy()
		wantAssigned(t, r, "hv01", false)
	}
}

func wantAssigned(t *testing.T, r *rig.Rig, host string, yes bool) {
	t.Helper()
	vm, ok := r.Host(host).VM(rig.VMID(1))
	if _, claimed := r.Host(host).Claim(gpu.ClaimAssignment, rig.VMID(1)); !ok || claimed != yes || (len(vm.PartitionAdapters) == 1) != yes {
		t.Errorf("on %s: assigned and claimed: want %t, is %+v, claimed %t", host, yes, vm, claimed)
	}
}

// A host that shows the id of a VM later takes nothing of it: changes go on where the VM is on record.
func TestAVMThatAnotherHostShowsTooStaysWhereItIs(t *testing.T) {
	t.Parallel()
	all := "\ndata \"gpu_inventory\" \"all\" {}\n" // so that every plan has looked at both hosts
	for _, config := range []string{rig.AnyPartition, `partition = { config = gpu_partition_config.vdi.id }`} {
		r := rig.New(t, twoHosts())
		hcl := func(power string) string {
			return r.Block() + all + rig.ConfigOf(4, []string{"hv01"}) + rig.Assignment("avd-01", config, power)
		}
		c := rig.NewCLI(t, hcl(""))
		c.Apply()
		r.Must(r.Fleet.SetVMState(t.Context(), "avd-01", gpu.VMRunning))
		copied(r, "avd-01", func(vm *gpu.VM) { vm.PartitionAdapters = nil })
		zz := r.Host("zz")
		c.WantNoChanges()
		for _, power := range []string{rig.MayStop, rig.MayStop + "\n  automatic_stop_action = \"turn_off\"", ""} {
			c.Write(hcl(power))
			c.Apply()
			c.WantNoChanges()
			wantAssigned(t, r, "hv01", true)
			if diff := cmp.Diff(zz, r.Host("zz")); diff != "" {
				t.Fatalf("zz was changed (-before +after):\n%s", diff)
			}
		}
		c.Write(hcl(rig.MayStop))
		c.Apply()
		c.Destroy()
		wantAssigned(t, r, "hv01", false)
		if diff := cmp.Diff(zz, r.Host("zz")); diff != "" {
			t.Errorf("zz was changed (-before +after):\n%s", diff)
		}
	}
}

// A copy that Hyper-V Replica keeps is no place to assign to, and no second VM.
func TestAReplicaIsNoPlaceToAssignTo(t *testing.T) {
	t.Parallel()
	r := rig.New(t, twoHosts())
	copied(r, "avd-01", func(vm *gpu.VM) { vm.Replica = true })
	zz := r.Host("zz")
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition))
	c.Apply()
	c.WantNoChanges()
	wantAssigned(t, r, "hv01", true)
	// The host of the VM loses it, with all that was there.
	r.EditHost("hv01", func(h *gpu.Host) { h.VMs, h.Claims = nil, nil })
	rig.WantSaid(t, c.Ok("plan"), "Warning: The VM's host is not known", "only a copy of it that Hyper-V Replica keeps on zz")
	other := rig.NewCLI(t, r.Block()+rig.Assignment(rig.VMID(1), rig.AnyPartition))
	rig.WantSaid(t, rig.Sentence(other.Fails("plan")), "Only a replica of the VM was found", "on zz", "fail the VM over")
	if diff := cmp.Diff(zz, r.Host("zz")); diff != "" {
		t.Errorf("the replica was changed (-before +after):\n%s", diff)
	}
	// After a failover the replica runs, and is the VM.
	r.EditHost("zz", func(h *gpu.Host) { must(h.VM(rig.VMID(1))).State = gpu.VMRunning })
	other.Write(r.Block() + rig.Assignment(rig.VMID(1), rig.AnyPartition, rig.MayStop))
	other.Apply()
	wantAssigned(t, r, "zz", true)
}

// A record of a VM that is gone says with its id of which VM it is: what else it says may be another
// host's VM.
func TestARecordOfAVMThatIsGoneTakesNoOtherRecordAlong(t *testing.T) {
	rig.WithoutWaiting(func(t *testing.T) {
		r := rig.New(t, twoHosts())
		c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition))
		c.Apply()
		claim := *must(r.Host("hv01").Claim(gpu.ClaimAssignment, rig.VMID(1)))
		claim.ID = rig.VMID(77)
		r.EditHost("zz", func(h *gpu.Host) { h.Claims = append(h.Claims, claim) })
		c.Write(r.Block() + rig.Assignment("avd-01", rig.AnyPartition) + rig.AssignmentOf("b", "own", rig.AnyPartition))
		c.Apply()
		wantAssigned(t, r, "hv01", true)
		if claims := r.Claims("zz"); !slices.Equal(claims, []string{"vm_assignment " + rig.VMID(9)}) {
			t.Errorf("zz has the claims %v", claims)
		}
		c.WantNoChanges()
	})(t)
}

func must[T any](v T, ok bool) T {
	if !ok {
		panic("it is not there")
	}
	return v
}
