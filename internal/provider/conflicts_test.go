package provider_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const wayOut = "To destroy a configuration that has this conflict, run `terraform destroy -refresh=false`."

func TestTwoAssignmentsForOneVMAreRefusedByName(t *testing.T) {
	t.Parallel()
	both := `Two instances of gpu_vm_assignment for VM "avd-03" both give VM "avd-03" a partition.`
	for name, config := range map[string]string{
		"two resources": rig.AssignmentOf("a", "avd-03", rig.AnyPartition) + rig.AssignmentOf("b", "avd-03", rig.AnyPartition),
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
			r := rig.New(t, rig.TwoNodes())
			r.StaysUnchanged()
			r.Steps(r.Rejects(r.Block()+config, both, wayOut))
		})
	}
	t.Run("name and id", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.TwoNodes())
		r.StaysUnchanged()
		config := r.Block() + rig.AssignmentOf("a", "avd-03", rig.AnyPartition) + rig.AssignmentOf("b", rig.VMID(3), rig.AnyPartition)
		r.Steps(r.Rejects(config,
			fmt.Sprintf(`gpu_vm_assignment for VM "%s" and gpu_vm_assignment for VM "avd-03" both give VM "avd-03" a partition.`, rig.VMID(3))))
	})
	t.Run("partition and device", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.Standalone(rig.Node("edge", rig.Off(rig.Desktop("vm-1", 1)))))
		r.StaysUnchanged()
		device := `device = { host = "edge", gpu_ids = ["` + rig.GPU0 + `"] }`
		r.Steps(
			r.Rejects(r.Block()+rig.AssignmentOf("a", "vm-1", rig.AnyPartition)+rig.AssignmentOf("b", "vm-1", device, rig.WholeGPU(1)),
				"one gives it a partition, the other whole GPUs."),
			r.Rejects(r.Block()+rig.AssignmentOf("a", "vm-1", device, rig.WholeGPU(1))+rig.AssignmentOf("b", "vm-1", device, rig.WholeGPU(1)),
				`both manage VM "vm-1".`),
		)
	})
}

func TestTwoAssignmentsInTwoModulesAreRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.StaysUnchanged()
	c := rig.NewProcesses(t, r.Block()+`
module "one" {
  source = "./desktop"
}
module "two" {
  source = "./desktop"
}
`)
	r.Must(os.Mkdir(filepath.Join(c.Dir, "desktop"), 0o700))
	rig.Write(t, filepath.Join(c.Dir, "desktop", "main.tf"),
		"terraform {\n  required_providers {\n    gpu = { source = \"gpufleet/gpu\" }\n  }\n}\n"+rig.Assignment("avd-03", rig.AnyPartition))
	c.Ok("get")
	rig.WantSaid(t, c.Fails("plan"), `Two instances of gpu_vm_assignment for VM "avd-03" both give VM "avd-03" a partition.`, wayOut)
}

func TestAConfigurationThatConflictsIsDestroyedWithoutRefresh(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.AssignmentOf("a", "avd-03", rig.AnyPartition))
	c.Apply()
	r.WantVM("avd-03", gpu.VMOff, 1)
	c.Write(r.Block() + rig.AssignmentOf("a", "avd-03", rig.AnyPartition) + rig.AssignmentOf("b", "avd-03", rig.AnyPartition))
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), wayOut)
	r.WantVM("avd-03", gpu.VMOff, 1)
	c.Destroy("-refresh=false")
	r.WantVM("avd-03", gpu.VMOff, 0)
	r.WantClaims([]string{"hv01"})
}

func TestAVMThatSomebodyElseGaveAPartitionIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.AddForeignAdapter("avd-02")
	r.StaysUnchanged()
	config := r.Block() + rig.Assignment("avd-02", rig.AnyPartition, rig.MayStop)
	r.Steps(
		r.Rejects(config, `VM "avd-02" on host "hv01" has 1 GPU partition adapter that no Terraform resource manages`,
			"terraform import ADDRESS "+rig.VMID(2)),
	)
}

func TestASecondAdapterOfOthersIsAWarningAndStays(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	quotas := "partition = { max_partition_decode = 90 }"
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-03", quotas))
	c.Apply()
	r.AddForeignAdapter("avd-03")
	// Whichever of the two the host lists first.
	r.EditVM("avd-03", func(v *gpu.VM) {
		v.PartitionAdapters[0], v.PartitionAdapters[1] = v.PartitionAdapters[1], v.PartitionAdapters[0]
	})
	rig.WantSaid(t, c.Ok("plan", "-detailed-exitcode"), "Warning: The VM has several partitions",
		`VM "avd-03" on host "hv01" has 2 GPU partition adapters; only one of them can come from this state.`)
	c.Destroy()
	v, _ := r.VM("avd-03")
	if len(v.PartitionAdapters) != 1 || !v.PartitionAdapters[0].Quotas.Empty() {
		t.Errorf("avd-03 has the adapters %+v, want only the one of others", v.PartitionAdapters)
	}
}

func TestAnotherOwnersAssignmentIsRefusedByName(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	theirs := rig.NewCLI(t, r.BlockOf("vdi-prod")+rig.Assignment("avd-03", rig.AnyPartition))
	theirs.Apply()
	r.StaysUnchanged()
	r.Steps(
		r.Rejects(r.Block()+rig.Assignment("avd-03", rig.AnyPartition), `managed by the Terraform state "vdi-prod"`),
		r.Rejects(r.BlockOf("")+rig.Assignment("avd-03", rig.AnyPartition), "Set `owner` on the provider"),
	)
}

// full is one host with two GPUs of one partition each, and VMs that run and that are off.
func full(t *testing.T) (*rig.Rig, string) {
	r := rig.New(t,
		rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1), rig.Desktop("vm-2", 2), rig.Desktop("vm-3", 3),
			rig.Off(rig.Desktop("vm-4", 4)), rig.Off(rig.Desktop("vm-5", 5)))))
	for _, id := range []string{rig.GPU0, rig.GPU1} {
		r.Must(r.Fleet.SetCountOutside(context.Background(), "edge", id, 1))
	}
	return r, r.Block("power = { allow_shutdown = true }")
}

func TestTheAssignmentThatOverflowsSaysWhoHoldsThePartitions(t *testing.T) {
	t.Parallel()
	r, provider := full(t)
	first := rig.AssignmentOf("one", "vm-1", rig.AnyPartition) + rig.AssignmentOf("two", "vm-2", rig.AnyPartition)
	third := first + rig.AssignmentOf("three", "vm-3", rig.AnyPartition)
	r.Steps(
		// In one run, whichever is planned last.
		r.Rejects(provider+third, "(planned in this run)"),
		resource.TestStep{
			Config: provider + first, Check: rig.Then(func() { r.WantVM("vm-1", gpu.VMRunning, 1); r.WantVM("vm-2", gpu.VMRunning, 1) }),
		},
		r.Rejects(provider+third, `Host "edge" has 2 partitions, and VMs that run use 2: "vm-1" and "vm-2".`,
			`gpu_vm_assignment for VM "vm-3" needs one more.`),
		// VMs that are off may be more than there are partitions.
		resource.TestStep{
			Config:           provider + first + rig.AssignmentOf("four", "vm-4", rig.AnyPartition),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.four", plancheck.ResourceActionCreate),
			Check:            rig.Then(func() { r.WantVM("vm-4", gpu.VMOff, 1) }),
		},
	)
}

func TestMoreVMsThanPartitionsIsAWarning(t *testing.T) {
	t.Parallel()
	r, provider := full(t)
	c := rig.NewCLI(t, provider+rig.AssignmentOf("one", "vm-1", rig.AnyPartition)+rig.AssignmentOf("four", "vm-4", rig.AnyPartition)+
		rig.AssignmentOf("five", "vm-5", rig.AnyPartition))
	rig.WantSaid(t, c.Apply(), "Warning: More VMs than partitions",
		"VMs take their partition when they start, so not all of them can run at the same time.")
	r.WantVM("vm-5", gpu.VMOff, 1)
	c.WantNoChanges()
}

func TestASeatChangesHandsOnAFullHost(t *testing.T) {
	t.Parallel()
	r, provider := full(t)
	two := rig.AssignmentOf("two", "vm-2", rig.AnyPartition)
	r.Steps(
		resource.TestStep{Config: provider + two + rig.Assignment("vm-1", rig.AnyPartition)},
		// The same resource turns to another VM: what it gives up is free for it.
		resource.TestStep{
			Config:           provider + two + rig.Assignment("vm-3", rig.AnyPartition),
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.a", plancheck.ResourceActionDestroyBeforeCreate),
			Check: rig.Then(func() {
				r.WantVM("vm-1", gpu.VMRunning, 0)
				r.WantVM("vm-2", gpu.VMRunning, 1)
				r.WantVM("vm-3", gpu.VMRunning, 1)
			}),
		},
	)
}

func TestAVMThatCannotBeFoundIsAnErrorAtTheAttribute(t *testing.T) {
	t.Parallel()
	s := rig.TwoNodes()
	s.Hosts = append(s.Hosts, rig.Node("edge", rig.Off(rig.Desktop("avd-03", 9))))
	r := rig.New(t, s)
	r.Steps(
		r.Rejects(r.Block()+rig.Assignment("nosuch", rig.AnyPartition),
			`None of the hosts edge, hv01 and hv02 has a VM with the name or id "nosuch".`),
		r.Rejects(r.Block()+rig.Assignment("avd-03", rig.AnyPartition), `Several VMs are called "avd-03": avd-03 on edge`),
		r.Rejects(r.Block()+rig.Assignment("avd-03", rig.AnyPartition, `hosts = ["nosuch"]`), "Unknown host"),
		r.Rejects(r.Block()+rig.Assignment("avd-06", `partition = { config = "nosuch" }`),
			`No host has a partition config "nosuch", and nothing in this run has made one so far.`),
		resource.TestStep{
			Config: r.Block() + rig.AssignmentOf("a", "avd-03", rig.AnyPartition, `hosts = ["edge"]`) +
				rig.AssignmentOf("b", "avd-03", rig.AnyPartition, `cluster = "azl"`) +
				rig.AssignmentOf("c", "{"+strings.ToLower(rig.VMID(6))+"}", rig.AnyPartition),
			Check: rig.Then(func() {
				for host, id := range map[string]string{"edge": rig.VMID(9), "hv01": rig.VMID(3), "hv02": rig.VMID(6)} {
					if vm, ok := r.Host(host).VM(id); !ok || len(vm.PartitionAdapters) != 1 {
						t.Errorf("VM %s on %s has no partition", id, host)
					}
				}
			}),
		},
	)
}

// twoAliases are two providers for one fleet, each with an assignment for one VM.
func twoAliases(r *rig.Rig, ownerOfTheSecond string) string {
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
`, r.Fleet.Path(), ownerOfTheSecond) + rig.AssignmentOf("a", "avd-03", rig.AnyPartition)
}

const viaSecond = "provider = gpu.second"

func TestASecondProviderBlockOfAnotherOwnerIsRefusedByTheClaim(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, twoAliases(r, "other")+rig.AssignmentOf("b", "avd-03", rig.AnyPartition, viaSecond,
		"depends_on = [gpu_vm_assignment.a]"))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), `managed by the Terraform state "test"`)
	r.WantVM("avd-03", gpu.VMOff, 1)
	if got := strings.Fields(c.Ok("state", "list")); len(got) != 1 || got[0] != "gpu_vm_assignment.a" {
		t.Errorf("the state has %v", got)
	}
}

// An id that is written out makes no order: what names a config or a pool waits for it, at plan
// and at apply. One at a time nothing comes meanwhile, and the plan says to refer to it.
func TestAnIDThatIsWrittenOutWaitsForItsObject(t *testing.T) {
	t.Parallel()
	vm := rig.AssignmentOf("a", "avd-01", `partition = { config = "vdi" }`, rig.MayStop)
	whole := "resource \"gpu_pool\" \"p\" {\n  name = \"render\"\n  members = { hv01 = [\"" + rig.GPU1 + "\"] }\n}\n" +
		rig.AssignmentOf("b", "avd-02", `pool = { id = "hv01/render" }`, rig.WholeGPU(1), rig.MayStop)
	config := strings.Replace(rig.ConfigOf(4, []string{"hv01"}), "name  =",
		"selector = { gpu_ids = { hv01 = [\""+rig.GPU0+"\"] } }\n  name  =", 1)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), rig.WithoutWaiting(func(t *testing.T) {
			r := rig.New(t, oneHost())
			c := rig.NewCLI(t, r.Block()+vm+config+whole)
			if c.Terminal != nil {
				c.Terminal.Shuffle = rand.New(rand.NewPCG(seed, 1)).IntN //nolint:gosec // repeatable
			}
			c.Apply()
			r.WantHeld(gpu.VMRunning, "avd-01")
			c.WantNoChanges()
		}))
	}
	t.Run("one at a time", rig.WithoutWaiting(func(t *testing.T) {
		r := rig.New(t, oneHost())
		c := rig.NewCLI(t, r.Block()+vm+config)
		if out, code := c.Run("plan", "-parallelism=1"); code != 0 {
			rig.WantSaid(t, out, "Unknown partition config", "Fix: Refer to the resource", "Rule: known-config")
		}
	}))
}

func TestASecondProviderBlockOfOneOwnerTakesOverAndTheNextPlanSaysSo(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	config := twoAliases(r, "test") + rig.AssignmentOf("b", "avd-03", rig.AnyPartition, viaSecond, "depends_on = [gpu_vm_assignment.a]")
	c := rig.NewCLI(t, config)
	c.Apply()
	r.WantVM("avd-03", gpu.VMOff, 1)
	rig.WantSaid(t, c.Ok("plan", "-detailed-exitcode"), "Another resource manages VM avd-03 (id ")
	// Removing the one that lost touches nothing; removing the other takes the partition.
	c.Write(strings.ReplaceAll(strings.Replace(config, rig.AssignmentOf("a", "avd-03", rig.AnyPartition), "", 1),
		"depends_on = [gpu_vm_assignment.a]", ""))
	c.Apply()
	r.WantVM("avd-03", gpu.VMOff, 1)
	c.WantNoChanges()
	c.Destroy()
	r.WantVM("avd-03", gpu.VMOff, 0)
}
