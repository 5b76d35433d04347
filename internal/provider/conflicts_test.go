package provider_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const wayOut = "To destroy a configuration that has this conflict, run `terraform destroy -refresh=false`."

func TestTwoAssignmentsForOneVMAreRefusedByName(t *testing.T) {
	t.Parallel()
	both := `Two instances of gpu_vm_assignment for VM "avd-03" both give VM "avd-03" a partition.`
	for name, config := range map[string]string{
		"two resources": assignmentOf("a", "avd-03", anyPartition) + assignmentOf("b", "avd-03", anyPartition),
		"two instances": `
resource "gpu_vm_assignment" "a" {
  for_each  = { x = "avd-03", y = "AVD-03" }
  vm        = lower(each.value)
  partition = {}
}
`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			r.staysUnchanged()
			r.steps(r.rejects(r.block()+config, both, wayOut))
		})
	}
	t.Run("name and id", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, twoNodes())
		r.staysUnchanged()
		config := r.block() + assignmentOf("a", "avd-03", anyPartition) + assignmentOf("b", vmID(3), anyPartition)
		r.steps(r.rejects(config, fmt.Sprintf(`gpu_vm_assignment for VM "%s" and gpu_vm_assignment for VM "avd-03" both give VM "avd-03" a partition.`, vmID(3))))
	})
	t.Run("partition and device", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, standalone(node("edge", off(desktop("vm-1", 1)))))
		r.staysUnchanged()
		device := `device = { host = "edge", gpu_ids = ["` + gpu0 + `"] }`
		r.steps(
			r.rejects(r.block()+assignmentOf("a", "vm-1", anyPartition)+assignmentOf("b", "vm-1", device, wholeGPU(1)), "one gives it a partition, the other whole GPUs."),
			r.rejects(r.block()+assignmentOf("a", "vm-1", device, wholeGPU(1))+assignmentOf("b", "vm-1", device, wholeGPU(1)), `both manage VM "vm-1".`),
		)
	})
}

func TestTwoAssignmentsInTwoModulesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.staysUnchanged()
	c := newProcesses(t, r.block()+`
module "one" {
  source = "./desktop"
}
module "two" {
  source = "./desktop"
}
`)
	r.must(os.Mkdir(filepath.Join(c.dir, "desktop"), 0o700))
	write(t, filepath.Join(c.dir, "desktop", "main.tf"), "terraform {\n  required_providers {\n    gpu = { source = \"gpufleet/gpu\" }\n  }\n}\n"+assignment("avd-03", anyPartition))
	c.ok("get")
	wantSaid(t, c.fails("plan"), `Two instances of gpu_vm_assignment for VM "avd-03" both give VM "avd-03" a partition.`, wayOut)
}

func TestAConfigurationThatConflictsIsDestroyedWithoutRefresh(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+assignmentOf("a", "avd-03", anyPartition))
	c.apply()
	r.wantVM("avd-03", gpu.VMOff, 1)
	c.write(r.block() + assignmentOf("a", "avd-03", anyPartition) + assignmentOf("b", "avd-03", anyPartition))
	wantSaid(t, c.fails("destroy", "-auto-approve"), wayOut)
	r.wantVM("avd-03", gpu.VMOff, 1)
	c.destroy("-refresh=false")
	r.wantVM("avd-03", gpu.VMOff, 0)
	r.wantClaims([]string{"hv01"})
}

func TestAVMThatSomebodyElseGaveAPartitionIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.addForeignAdapter("avd-02")
	r.staysUnchanged()
	config := r.block() + assignment("avd-02", anyPartition, mayStop)
	r.steps(
		r.rejects(config, `VM "avd-02" on host "hv01" has 1 GPU partition adapter that no Terraform resource manages`, "terraform import ADDRESS "+vmID(2)),
	)
}

func TestASecondAdapterOfOthersIsAWarningAndStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	quotas := "partition = { max_partition_decode = 90 }"
	c := newCLI(t, r.block()+assignment("avd-03", quotas))
	c.apply()
	r.addForeignAdapter("avd-03")
	// Whichever of the two the host lists first.
	r.editVM("avd-03", func(v *gpu.VM) {
		v.PartitionAdapters[0], v.PartitionAdapters[1] = v.PartitionAdapters[1], v.PartitionAdapters[0]
	})
	wantSaid(t, c.ok("plan", "-detailed-exitcode"), "Warning: The VM has several partitions", `VM "avd-03" on host "hv01" has 2 GPU partition adapters; only one of them can come from this state.`)
	c.destroy()
	v, _ := r.vm("avd-03")
	if len(v.PartitionAdapters) != 1 || !v.PartitionAdapters[0].Quotas.Empty() {
		t.Errorf("avd-03 has the adapters %+v, want only the one of others", v.PartitionAdapters)
	}
}

func TestAnotherOwnersAssignmentIsRefusedByName(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	theirs := newCLI(t, r.blockOf("vdi-prod")+assignment("avd-03", anyPartition))
	theirs.apply()
	r.staysUnchanged()
	r.steps(
		r.rejects(r.block()+assignment("avd-03", anyPartition), `managed by the Terraform state "vdi-prod"`),
		r.rejects(r.blockOf("")+assignment("avd-03", anyPartition), "Set `owner` on the provider"),
	)
}

// full is one host with two GPUs of one partition each, and VMs that run and that are off.
func full(t *testing.T) (*rig, string) {
	r := newRig(t, standalone(node("edge", desktop("vm-1", 1), desktop("vm-2", 2), desktop("vm-3", 3), off(desktop("vm-4", 4)), off(desktop("vm-5", 5)))))
	for _, id := range []string{gpu0, gpu1} {
		r.must(r.fleet.SetCountOutside(context.Background(), "edge", id, 1))
	}
	return r, r.block("power = { allow_shutdown = true }")
}

func TestTheAssignmentThatOverflowsSaysWhoHoldsThePartitions(t *testing.T) {
	t.Parallel()
	r, provider := full(t)
	first := assignmentOf("one", "vm-1", anyPartition) + assignmentOf("two", "vm-2", anyPartition)
	third := first + assignmentOf("three", "vm-3", anyPartition)
	r.steps(
		// In one run, whichever is planned last.
		r.rejects(provider+third, "(planned in this run)"),
		resource.TestStep{Config: provider + first, Check: then(func() { r.wantVM("vm-1", gpu.VMRunning, 1); r.wantVM("vm-2", gpu.VMRunning, 1) })},
		r.rejects(provider+third, `Host "edge" has 2 partitions, and VMs that run use 2: "vm-1" and "vm-2".`, `gpu_vm_assignment for VM "vm-3" needs one more.`),
		// VMs that are off may be more than there are partitions.
		resource.TestStep{
			Config:           provider + first + assignmentOf("four", "vm-4", anyPartition),
			ConfigPlanChecks: planned("gpu_vm_assignment.four", plancheck.ResourceActionCreate),
			Check:            then(func() { r.wantVM("vm-4", gpu.VMOff, 1) }),
		},
	)
}

func TestMoreVMsThanPartitionsIsAWarning(t *testing.T) {
	t.Parallel()
	r, provider := full(t)
	c := newCLI(t, provider+assignmentOf("one", "vm-1", anyPartition)+assignmentOf("four", "vm-4", anyPartition)+assignmentOf("five", "vm-5", anyPartition))
	wantSaid(t, c.apply(), "Warning: More VMs than partitions", "VMs take their partition when they start, so not all of them can run at the same time.")
	r.wantVM("vm-5", gpu.VMOff, 1)
	c.wantNoChanges()
}

func TestASeatChangesHandsOnAFullHost(t *testing.T) {
	t.Parallel()
	r, provider := full(t)
	two := assignmentOf("two", "vm-2", anyPartition)
	r.steps(
		resource.TestStep{Config: provider + two + assignment("vm-1", anyPartition)},
		// The same resource turns to another VM: what it gives up is free for it.
		resource.TestStep{
			Config:           provider + two + assignment("vm-3", anyPartition),
			ConfigPlanChecks: planned("gpu_vm_assignment.a", plancheck.ResourceActionDestroyBeforeCreate),
			Check: then(func() {
				r.wantVM("vm-1", gpu.VMRunning, 0)
				r.wantVM("vm-2", gpu.VMRunning, 1)
				r.wantVM("vm-3", gpu.VMRunning, 1)
			}),
		},
	)
}

func TestAVMThatCannotBeFoundIsAnErrorAtTheAttribute(t *testing.T) {
	t.Parallel()
	s := twoNodes()
	s.Hosts = append(s.Hosts, node("edge", off(desktop("avd-03", 9))))
	r := newRig(t, s)
	r.steps(
		r.rejects(r.block()+assignment("nosuch", anyPartition), `none of the hosts [edge hv01 hv02] has a VM with the name or id "nosuch".`),
		r.rejects(r.block()+assignment("avd-03", anyPartition), `several VMs are called "avd-03": avd-03 on edge`),
		r.rejects(r.block()+assignment("avd-03", anyPartition, `hosts = ["nosuch"]`), "Unknown host"),
		r.rejects(r.block()+assignment("avd-06", `partition = { config = "nosuch" }`), `Neither this run nor any host knows a partition config "nosuch".`),
		resource.TestStep{
			Config: r.block() + assignmentOf("a", "avd-03", anyPartition, `hosts = ["edge"]`) + assignmentOf("b", "avd-03", anyPartition, `cluster = "azl"`) +
				assignmentOf("c", "{"+strings.ToLower(vmID(6))+"}", anyPartition),
			Check: then(func() {
				for host, id := range map[string]string{"edge": vmID(9), "hv01": vmID(3), "hv02": vmID(6)} {
					if vm, ok := r.host(host).VM(id); !ok || len(vm.PartitionAdapters) != 1 {
						t.Errorf("VM %s on %s has no partition", id, host)
					}
				}
			}),
		},
	)
}

// twoAliases are two providers for one fleet, each with an assignment for one VM.
func twoAliases(r *rig, ownerOfTheSecond string) string {
	return fmt.Sprintf(`
provider "gpu" {
  simulated_fleet = %[1]q
  owner           = "test"
}
provider "gpu" {
  alias           = "second"
  simulated_fleet = %[1]q
  owner           = %[2]q
}
`, r.fleet.Path(), ownerOfTheSecond) + assignmentOf("a", "avd-03", anyPartition)
}

const viaSecond = "provider = gpu.second"

func TestASecondProviderBlockOfAnotherOwnerIsRefusedByTheClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, twoAliases(r, "other")+assignmentOf("b", "avd-03", anyPartition, viaSecond, "depends_on = [gpu_vm_assignment.a]"))
	wantSaid(t, c.fails("apply", "-auto-approve"), `managed by the Terraform state "test"`)
	r.wantVM("avd-03", gpu.VMOff, 1)
	if got := strings.Fields(c.ok("state", "list")); len(got) != 1 || got[0] != "gpu_vm_assignment.a" {
		t.Errorf("the state has %v", got)
	}
}

func TestASecondProviderBlockOfOneOwnerTakesOverAndTheNextPlanSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	config := twoAliases(r, "test") + assignmentOf("b", "avd-03", anyPartition, viaSecond, "depends_on = [gpu_vm_assignment.a]")
	c := newCLI(t, config)
	c.apply()
	r.wantVM("avd-03", gpu.VMOff, 1)
	wantSaid(t, c.ok("plan", "-detailed-exitcode"), "Another resource manages this VM")
	// Removing the one that lost touches nothing; removing the other takes the partition.
	c.write(strings.ReplaceAll(strings.Replace(config, assignmentOf("a", "avd-03", anyPartition), "", 1), "depends_on = [gpu_vm_assignment.a]", ""))
	c.apply()
	r.wantVM("avd-03", gpu.VMOff, 1)
	c.wantNoChanges()
	c.destroy()
	r.wantVM("avd-03", gpu.VMOff, 0)
}
