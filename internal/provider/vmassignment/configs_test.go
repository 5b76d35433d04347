package vmassignment_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// partOfAny is a partition of one of several configs.
func partOfAny(configs ...string) string {
	for i, name := range configs {
		configs[i] = "gpu_partition_config." + name + ".id"
	}
	return "partition = { configs = [" + strings.Join(configs, ", ") + "] }"
}

// Nodes have GPUs of different models, each with a config of its own. A VM that names both is assigned with them in one apply and may
// fail over, and one that names the config of its own node only is told to name the other one as well.
func TestAccVMAssignment_AVMFailsOverBetweenNodesOfDifferentConfigs(t *testing.T) {
	t.Parallel()
	s := rig.TwoNodes()
	for i := range s.Hosts[1].GPUs {
		s.Hosts[1].GPUs[i] = rig.A16(s.Hosts[1].GPUs[i].ID)
	}
	r := rig.New(t, s)
	configs := configOn("c", 4, map[string][]string{"hv01": {rig.GPU0, rig.GPU1}}) +
		configOn("d", 4, map[string][]string{"hv02": {rig.GPU0, rig.GPU1}})
	c := rig.NewCLI(t, r.Block()+configs+rig.Assignment("avd-01", partOf("c"), rig.MayStop))
	rig.WantSaid(t, c.Fails("plan"), `VM "avd-01" may run on "hv02", where partition config "c" has no GPU`,
		"`partition = { configs = [a, b] }`")

	c.Write(r.Block() + configs + rig.Assignment("avd-01", partOfAny("c", "d"), rig.MayStop))
	c.Apply()
	r.WantVM("avd-01", gpu.VMRunning, 1)
	c.WantNoChanges()
	r.Must(r.Fleet.MoveVM(t.Context(), "avd-01", "hv02"))
	r.WantVM("avd-01", gpu.VMRunning, 1)
	c.WantNoChanges()

	// A config whose GPUs the VM may get is not destroyed under its assignment, and the order of the ids says nothing.
	c.Write(r.Block() + configs + rig.Assignment("avd-01", partOfAny("d", "c"), rig.MayStop))
	c.WantNoChanges()
	c.Destroy()
	r.WantFree(gpu.VMRunning, "avd-01")
	r.WantClaims(rig.Both)
}

// On a host of its own a VM is pinned to a GPU of one of its configs where others are of another size, and goes on as it is as long
// as one of its configs has that GPU.
func TestAccVMAssignment_AVMIsBoundToAnyOfItsConfigs(t *testing.T) {
	t.Parallel()
	node := rig.Node("hv01", rig.Desktop("avd-01", 1))
	third := rig.A16("PCIROOT(C0)#PCI(0000)#PCI(0000)")
	node.GPUs = append(node.GPUs, third)
	r := rig.New(t, rig.Standalone(node))
	configs := func(c, d int) string {
		return r.Block() + configOn("c", c, map[string][]string{"hv01": {rig.GPU0}}) + configOn("d", d, map[string][]string{"hv01": {rig.GPU1}})
	}
	either := rig.Assignment("avd-01", partOfAny("c", "d"), rig.MayStop)
	c := rig.NewCLI(t, configs(8, 2)+either)
	c.Apply()
	on, _ := r.PartitionOf("avd-01")
	if on != rig.GPU0 && on != rig.GPU1 {
		t.Errorf("the partition is of %q, which neither config has", on)
	}
	c.WantNoChanges()

	// One id is as `config`: nothing of the VM changes where that config has its GPU.
	of := map[string]string{rig.GPU0: "c", rig.GPU1: "d"}[on]
	before := r.File()
	for _, partition := range []string{partOfAny(of), partOf(of)} {
		c.Write(configs(8, 2) + rig.Assignment("avd-01", partition, rig.MayStop))
		if said := c.Ok("plan"); strings.Contains(said, "is shut down") {
			t.Errorf("with %s the VM is stopped:\n%s", partition, said)
		}
	}
	r.WantUntouched(before)

	// It changes both.
	r.StopsOnce("hv01", "avd-01")
	c.Write(configs(4, 4) + either)
	c.Apply()
	r.ClearFaults("hv01")
	r.WantVM("avd-01", gpu.VMRunning, 1)
	c.WantNoChanges()
}

// The ids come back with an import, and `configs` is refused beside `config`, empty, and with a config that is not there.
func TestAccVMAssignment_ConfigsAreImportedAndChecked(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
	configs := r.Block() + configOn("c", 4, map[string][]string{"hv01": {rig.GPU0}}) +
		configOn("d", 4, map[string][]string{"hv01": {rig.GPU1}})
	for partition, says := range map[string]string{
		`partition = { config = "c", configs = ["d"] }`:    "partition.config",
		`partition = { configs = [] }`:                     "at least 1",
		`partition = { configs = ["c", "x"] }`:             `partition config "x"`,
		`partition = { configs = [null] }`:                 "null",
		`partition = { configs = ["c"], gpu_id = "none" }`: `GPU none`,
	} {
		c := rig.NewCLI(t, configs+rig.Assignment("avd-01", partition, rig.MayStop))
		if out := c.Fails("plan"); !strings.Contains(rig.Sentence(out), says) {
			t.Errorf("%s: the plan does not say %q:\n%s", partition, says, out)
		}
	}
	assigned := configs + rig.Assignment("avd-01", partOfAny("c", "d"), rig.MayStop)
	r.Steps(
		resource.TestStep{Config: assigned, Check: resource.ComposeTestCheckFunc(
			resource.TestCheckResourceAttr("gpu_vm_assignment.a", "partition.configs.#", "2"),
			resource.TestCheckNoResourceAttr("gpu_vm_assignment.a", "partition.config"))},
		resource.TestStep{
			Config: assigned, ResourceName: "gpu_vm_assignment.a", ImportState: true, ImportStateId: "hv01/avd-01", ImportStateVerify: true,
			ImportStateVerifyIdentifierAttribute: "vm_id", ImportStateVerifyIgnore: []string{"timeouts"},
		},
	)
	if claim := fmt.Sprint(r.Claims("hv01")); claim != "[]" {
		t.Errorf("claims after the destroy: %s", claim)
	}
}
