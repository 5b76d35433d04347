package provider_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func desktops(vms ...string) string {
	hcl := rig.ConfigOf(4, []string{"hv01"})
	for _, vm := range vms {
		hcl += rig.Assign(vm, "allow_shutdown = true")
	}
	return hcl
}

func oneHost() gpu.Snapshot {
	h := rig.Node("hv01")
	for n := range 4 {
		h.VMs = append(h.VMs, rig.Desktop([]string{"avd-01", "avd-02", "avd-03", "avd-04"}[n], n+1))
	}
	return rig.Standalone(h)
}

// A second workspace with the same owner takes everything over: its plan says so, of every
// object, and how to give each an owner.
func TestTakingOverFromAnotherWorkspaceIsSaid(t *testing.T) {
	rig.WithoutWaiting(takingOverFromAnotherWorkspaceIsSaid)(t)
}

func takingOverFromAnotherWorkspaceIsSaid(t *testing.T) {
	r := rig.New(t, oneHost())
	first := rig.NewCLI(t, r.Block()+desktops("avd-01", "avd-02"))
	wantNotSaid(t, first.Apply(), "is taken over")
	second := rig.NewCLI(t, r.Block()+desktops("avd-01", "avd-02"))
	before := r.Snapshot()
	rig.WantSaid(t, second.Ok("plan"), `Warning: Partition config "vdi" is taken over`, `owner = "vdi-${terraform.workspace}"`)
	rig.WantSaid(t, second.Ok("plan"), "Warning: VM avd-01 (id "+rig.VMID(1)+") is taken over")
	rig.WantSaid(t, second.Ok("plan"), "Warning: VM avd-02 (id "+rig.VMID(2)+") is taken over",
		"On hv01 a resource of owner \"test\" manages it")
	r.WantUnchanged(before)
	second.Apply()
	out := first.Ok("plan")
	rig.WantSaid(t, out, "No changes", `Warning: Another resource manages partition config "vdi"`,
		"Warning: Another resource manages VM avd-01 (id "+rig.VMID(1)+")", "Warning: Another resource manages VM avd-02 (id "+rig.VMID(2)+")")
	wantNotSaid(t, out, "no resource of this run has") // it has them, and lost them
	second.Destroy("-target=gpu_vm_assignment.avd-01", "-target=gpu_vm_assignment.avd-02")
	first.Write(r.Block() + strings.Replace(desktops("avd-01", "avd-02"), "partition_count = 4", "partition_count = 8", 1))
	if out, code := first.Run("plan"); code == 0 ||
		!strings.Contains(rig.Sentence(out), `Error: Another resource manages partition config "vdi"`) {
		t.Errorf("what another state has is changed:\n%s", out)
	}
}

// A key that is renamed, and a replacement, are handed over in one run.
func TestWhatIsHandedOverIsNotTakenOver(t *testing.T) {
	rig.WithoutWaiting(whatIsHandedOverIsNotTakenOver)(t)
}

func whatIsHandedOverIsNotTakenOver(t *testing.T) {
	r := rig.New(t, oneHost())
	first := rig.NewCLI(t, r.Block()+desktops("avd-01", "avd-02"))
	first.Apply()
	renamed := strings.ReplaceAll(desktops("avd-01", "avd-02"), `"gpu_vm_assignment" "avd-0`, `"gpu_vm_assignment" "new-0`)
	first.Write(r.Block() + renamed)
	wantNotSaid(t, first.Ok("plan"), "is taken over", "no resource of this run has")
	first.Write(r.Block() + desktops("avd-01", "avd-02"))
	wantNotSaid(t, first.Ok("plan", "-replace=gpu_vm_assignment.avd-01"), "is taken over", "no resource of this run has")
	config := rig.ConfigOf(4, []string{"hv01"})
	r = rig.New(t, oneHost())
	alone := rig.NewCLI(t, r.Block()+config)
	alone.Apply()
	for _, label := range []string{"a", "b", "c", "d"} { // in either order
		alone.Write(r.Block() + strings.Replace(config, `"gpu_partition_config" "vdi"`, `"gpu_partition_config" "`+label+`"`, 1))
		alone.Ok("plan", "-out=saved", "-parallelism=1")
		wantNotSaid(t, alone.Ok("apply", "-parallelism=1", "saved"), "is taken over", "no resource of this run has")
	}
}

// What was destroyed with keep while its host was away comes back with its claims: the next
// plan names them, once for the host.
func TestClaimsThatNothingHasAreNamed(t *testing.T) {
	rig.WithoutWaiting(claimsThatNothingHasAreNamed)(t)
}

func claimsThatNothingHasAreNamed(t *testing.T) {
	r := rig.New(t, oneHost())
	keep := r.Block(`on_unreachable = "keep"`)
	c := rig.NewCLI(t, keep+desktops("avd-01", "avd-02", "avd-03"))
	c.Apply()
	wantNotSaid(t, c.Ok("plan"), "no resource of this run has")
	r.Silent(true, "hv01")
	c.Destroy("-target=gpu_vm_assignment.avd-01")
	r.Silent(false, "hv01")
	c.Write(keep + desktops("avd-02", "avd-03"))
	out := c.Ok("plan")
	rig.WantSaid(t, out, "Warning: Claims on hv01 that no resource of this run has", "VM avd-01 (id "+rig.VMID(1)+")",
		"run on hv01 `gpu-agent claims forget vm_assignment "+rig.VMID(1)+" --yes`")
	if strings.Count(out, "Claims on hv01") != 1 || strings.Contains(out, "VM avd-02 (id") {
		t.Errorf("said more than once, or of what the run has:\n%s", out)
	}
	rig.WantSaid(t, out, "No changes")
	r.WantClaims([]string{"hv01"}, "partition_config vdi", "vm_assignment "+rig.VMID(1), "vm_assignment "+rig.VMID(2),
		"vm_assignment "+rig.VMID(3))
}

// What the nodes of a cluster keep in common each of them shows: it is named once, and forgotten on
// any of them.
func TestAClaimOfAClusterThatNothingHasIsNamedOnce(t *testing.T) {
	rig.WithoutWaiting(aClaimOfAClusterThatNothingHasIsNamedOnce)(t)
}

func aClaimOfAClusterThatNothingHasIsNamedOnce(t *testing.T) {
	r := rig.New(t, rig.TwoNodes())
	keep := r.Block(`on_unreachable = "keep"`) + rig.Config4 + rig.Assign("avd-02", "allow_shutdown = true") +
		rig.Assign("avd-03", "allow_shutdown = true")
	c := rig.NewCLI(t, keep+rig.Assign("avd-01", "allow_shutdown = true"))
	c.Apply()
	r.Silent(true, rig.Both...)
	c.Destroy("-target=gpu_vm_assignment.avd-01")
	r.Silent(false, rig.Both...)
	c.Write(keep)
	out := c.Ok("plan")
	rig.WantSaid(t, out, "No changes", "that no resource of this run has", "`gpu-agent claims forget vm_assignment "+rig.VMID(1)+" --yes`")
	if n := strings.Count(rig.Sentence(out), "claims forget vm_assignment"); n != 1 {
		t.Errorf("said %d times:\n%s", n, out)
	}
}

// What such a claim has keeps a new resource from it: the plan says so, also where it has nothing
// but new resources, and what to do, which then helps.
func TestWhatAStrayClaimHasIsInTheWay(t *testing.T) {
	rig.WithoutWaiting(whatAStrayClaimHasIsInTheWay)(t)
}

func whatAStrayClaimHasIsInTheWay(t *testing.T) {
	r := rig.New(t, oneHost())
	whole := func(vm, id string) string {
		return rig.AssignmentOf(vm, vm, `device = { host = "hv01", gpu_ids = ["`+id+`"] }`, rig.MayStop, rig.WholeGPU(1))
	}
	keep := r.Block(`on_unreachable = "keep"`)
	c := rig.NewCLI(t, keep+whole("avd-01", rig.GPU0))
	c.Apply()
	r.Silent(true, "hv01")
	c.Destroy()
	r.Silent(false, "hv01")
	c.Write(keep + whole("avd-02", rig.GPU0) + whole("avd-03", rig.GPU1))
	rig.WantSaid(t, c.Ok("plan"), "Warning: Claims on hv01 that no resource of this run has",
		"claims forget vm_assignment "+rig.VMID(1)+" --yes",
		`Warning: The GPU belongs to another VM`,
		`is assigned to VM "avd-01". No resource of this run lets go of it, so that its apply is refused.`)
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "The GPU belongs to another VM")
	if vm, _ := r.VM("avd-01"); !vm.Runs() || len(vm.Devices) != 1 {
		t.Errorf("avd-01: %+v", vm)
	}
	c.Write(keep + whole("avd-01", rig.GPU0))
	c.Apply()
	c.Write(keep + whole("avd-02", rig.GPU0) + whole("avd-03", rig.GPU1))
	wantNotSaid(t, c.Ok("plan"), "no resource of this run has", "No resource of this run")
	c.Apply()
	if vm, _ := r.VM("avd-02"); !vm.Runs() || len(vm.Devices) != 1 {
		t.Errorf("avd-02: %+v", vm)
	}
}

// The claim of a VM that no host has any more goes with the next change.
func TestClaimsOfVMsThatAreGoneAreDropped(t *testing.T) {
	rig.WithoutWaiting(claimsOfVMsThatAreGoneAreDropped)(t)
}

func claimsOfVMsThatAreGoneAreDropped(t *testing.T) {
	r := rig.New(t, oneHost())
	c := rig.NewCLI(t, r.Block()+desktops("avd-01", "avd-02"))
	c.Apply()
	r.EditHost("hv01", func(h *gpu.Host) { h.VMs = h.VMs[1:] })
	c.Write(r.Block() + desktops("avd-02"))
	c.Apply()                                // the state has let go of it
	for _, at := range []string{"1", "10"} { // where one VM comes after one config nothing else can come
		rig.WantSaid(t, c.Ok("plan", "-parallelism="+at), "Warning: Claims on hv01 that no resource of this run has",
			"VM avd-01 (id "+rig.VMID(1)+"), which no host has any more", "No changes")
	}
	c.Write(r.Block() + desktops("avd-02", "avd-03"))
	c.Apply()
	r.WantClaims([]string{"hv01"}, "partition_config vdi", "vm_assignment "+rig.VMID(2), "vm_assignment "+rig.VMID(3))
	c.WantNoChanges()
}

func wantNotSaid(t *testing.T, out string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(rig.Sentence(out), text) {
			t.Errorf("it says %q:\n%s", text, out)
		}
	}
}
