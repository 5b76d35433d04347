package provider_test

import (
	"fmt"
	"slices"
	"strconv"
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
	rig.WantSaid(t, first.Ok("plan"), "No changes", `Warning: Another resource manages partition config "vdi"`,
		"Warning: Another resource manages VM avd-01 (id "+rig.VMID(1)+")", "Warning: Another resource manages VM avd-02 (id "+rig.VMID(2)+")")
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
	wantNotSaid(t, first.Ok("plan"), "is taken over")
	first.Write(r.Block() + desktops("avd-01", "avd-02"))
	wantNotSaid(t, first.Ok("plan", "-replace=gpu_vm_assignment.avd-01"), "is taken over")
	config := rig.ConfigOf(4, []string{"hv01"})
	r = rig.New(t, oneHost())
	alone := rig.NewCLI(t, r.Block()+config)
	alone.Apply()
	for _, label := range []string{"a", "b", "c", "d"} { // in either order
		alone.Write(r.Block() + strings.Replace(config, `"gpu_partition_config" "vdi"`, `"gpu_partition_config" "`+label+`"`, 1))
		alone.Ok("plan", "-out=saved", "-parallelism=1")
		wantNotSaid(t, alone.Ok("apply", "-parallelism=1", "saved"), "is taken over")
	}
}

// wantOrphans compares the output with the claims that are orphaned.
func wantOrphans(t *testing.T, c *rig.CLI, want string) {
	t.Helper()
	if got := c.Output("orphans"); got != strconv.Quote(want) {
		t.Errorf("orphaned claims: got %s, want %q", got, want)
	}
}

// orphans asks for the orphaned claims, beside all that a configuration has.
const orphans = `
data "gpu_inventory" "all" {}
output "orphans" { value = data.gpu_inventory.all.orphaned_claims == null ? "not told" : join(" and ", [
  for c in data.gpu_inventory.all.orphaned_claims : "${c.vm} ${c.id} of ${c.owner} on ${c.host} in ${c.cluster == null ? "no cluster" : ` +
	`c.cluster}: ${c.kind}, ${c.reason}"
]) }
`

func orphan(vm string, n int, host, cluster string) string {
	return fmt.Sprintf("%s %s of test on %s in %s: vm_assignment, no host has the VM any more", vm, rig.VMID(n), host, cluster)
}

// What was destroyed with keep while its host was away comes back with its claims. No plan says of them
// that nothing has them, since only a state knows that; what they keep from others the apply says, and what to do then helps.
func TestAClaimWhoseVMIsThereIsNoOrphan(t *testing.T) {
	rig.WithoutWaiting(aClaimWhoseVMIsThereIsNoOrphan)(t)
}

func aClaimWhoseVMIsThereIsNoOrphan(t *testing.T) {
	r := rig.New(t, oneHost())
	whole := func(vm, id string) string {
		return rig.AssignmentOf(vm, vm, `device = { host = "hv01", gpu_ids = ["`+id+`"] }`, rig.MayStop, rig.WholeGPU(1))
	}
	keep := r.Block(`on_unreachable = "keep"`) + orphans
	c := rig.NewCLI(t, keep+whole("avd-01", rig.GPU0))
	c.Apply()
	r.Silent(true, "hv01")
	c.Destroy("-target=gpu_vm_assignment.avd-01")
	c.Ok("apply", "-refresh-only", "-auto-approve")
	wantOrphans(t, c, "not told")
	r.Silent(false, "hv01")
	c.Write(keep + whole("avd-02", rig.GPU0) + whole("avd-03", rig.GPU1))
	for _, at := range []string{"1", "10"} {
		wantNotSaid(t, c.Ok("plan", "-parallelism="+at), "Claims on", "avd-01")
		c.Ok("apply", "-refresh-only", "-auto-approve", "-parallelism="+at)
		wantOrphans(t, c, "")
	}
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "The GPU belongs to another VM")
	if vm, _ := r.VM("avd-01"); !vm.Runs() || len(vm.Devices) != 1 {
		t.Errorf("avd-01: %+v", vm)
	}
	c.Write(keep + whole("avd-01", rig.GPU0))
	c.Apply()
	c.Write(keep + whole("avd-02", rig.GPU0) + whole("avd-03", rig.GPU1))
	c.Apply()
	if vm, _ := r.VM("avd-02"); !vm.Runs() || len(vm.Devices) != 1 {
		t.Errorf("avd-02: %+v", vm)
	}
}

// The claim of a VM that no host has any more is shown, with one operation at a time as with ten, and goes with the
// next change.
func TestClaimsOfVMsThatAreGoneAreShownAndDropped(t *testing.T) {
	rig.WithoutWaiting(claimsOfVMsThatAreGoneAreShownAndDropped)(t)
}

func claimsOfVMsThatAreGoneAreShownAndDropped(t *testing.T) {
	r := rig.New(t, oneHost())
	keep := r.Block() + orphans
	c := rig.NewCLI(t, keep+desktops("avd-01", "avd-02"))
	c.Apply()
	wantOrphans(t, c, "")
	r.EditHost("hv01", func(h *gpu.Host) { h.VMs = h.VMs[1:] })
	c.Write(keep + desktops("avd-02"))
	c.Apply() // the state has let go of it
	for _, at := range []string{"1", "10"} {
		before := r.File()
		c.Ok("apply", "-refresh-only", "-auto-approve", "-parallelism="+at)
		rig.WantSaid(t, c.Ok("output"), orphan("avd-01", 1, "hv01", "no cluster"))
		r.WantUntouched(before)
	}
	c.Write(keep + desktops("avd-02", "avd-03"))
	c.Apply()
	r.WantClaims([]string{"hv01"}, "partition_config vdi", "vm_assignment "+rig.VMID(2), "vm_assignment "+rig.VMID(3))
	c.Apply()
	wantOrphans(t, c, "")
	c.WantNoChanges()
}

// What the nodes of a cluster keep in common each of them shows: it is listed once; and not at all while a node of the
// cluster, which may have the VM, is no host of the provider.
func TestAnOrphanedClaimOfAClusterIsListedOnce(t *testing.T) {
	rig.WithoutWaiting(anOrphanedClaimOfAClusterIsListedOnce)(t)
}

func anOrphanedClaimOfAClusterIsListedOnce(t *testing.T) {
	r := rig.New(t, rig.TwoNodes())
	keep := r.Block() + orphans + rig.Config4 + rig.Assign("avd-02", "allow_shutdown = true")
	c := rig.NewCLI(t, keep+rig.Assign("avd-01", "allow_shutdown = true"))
	c.Apply()
	_, on := r.VM("avd-01")
	r.EditHost(on, func(h *gpu.Host) {
		h.VMs = slices.DeleteFunc(h.VMs, func(vm gpu.VM) bool { return vm.Name == "avd-01" })
	})
	c.Write(keep)
	c.Apply() // the state has let go of it
	wantOrphans(t, c, orphan("avd-01", 1, "hv01", "azl"))
	one := strings.Replace(keep, "data \"gpu_inventory\" \"all\" {", "data \"gpu_inventory\" \"all\" {\n  hosts = [\"hv01\"]\n", 1)
	c.Write(one)
	c.Apply()
	wantOrphans(t, c, "not told")
	c.Write(keep + rig.Assign("avd-03", "allow_shutdown = true"))
	c.Apply()
	c.Apply()
	wantOrphans(t, c, "")
}

func wantNotSaid(t *testing.T, out string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(rig.Sentence(out), text) {
			t.Errorf("it says %q:\n%s", text, out)
		}
	}
}
