package inventory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccInventory_InventoryShowsTheStatusesOfWindowsAdminCenterAndWhoHoldsWhat(t *testing.T) {
	t.Parallel()
	s := rig.TwoNodes()
	paravirtual := rig.A2("PCIROOT(C0)#PCI(0300)#PCI(0000)")
	paravirtual.Partitionable.Paravirtual, paravirtual.Status = true, gpu.Paravirtualization
	t4 := rig.Unpartitionable("PCIROOT(D0)#PCI(0300)#PCI(0000)")
	s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, paravirtual, rig.Console())
	s.Hosts[1].GPUs = append(s.Hosts[1].GPUs, t4)
	for i := range s.Hosts[0].VMs {
		if vm := &s.Hosts[0].VMs[i]; vm.State == gpu.VMRunning && vm.ID == rig.VMID(2) {
			vm.Guest = "Windows 11 Enterprise"
		}
	}
	r := rig.New(t, s)
	r.AddForeignAdapter("avd-01")
	r.SetPool("hv02", "render", rig.GPU1)
	h, err := r.Fleet.Host("hv02")
	r.Must(err)
	r.Must(h.DismountDevice(t.Context(), t4.ID, true))
	_, err = h.AddDevice(t.Context(), rig.VMID(6), gpu.DeviceAssignment{GPU: t4.ID})
	r.Must(err)
	_, err = h.AddDevice(t.Context(), rig.VMID(6), gpu.DeviceAssignment{Pool: "render"})
	r.Must(err)
	held := map[bool]string{true: rig.GPU0, false: rig.GPU1}[len(r.Host("hv01").GPUs[0].Partitionable.Partitions) == 1]
	free := map[string]string{rig.GPU0: rig.GPU1, rig.GPU1: rig.GPU0}[held]

	const all = "data.gpu_inventory.all"
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue(all, rig.Jsonpath("inventory", steps...), want)
	}
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	r.Steps(resource.TestStep{
		Config: r.Block() + `
resource "gpu_vm_assignment" "ours" {
  vm        = "avd-03"
  partition = {}
}
data "gpu_inventory" "all" {
  depends_on = [gpu_vm_assignment.ours]
}
data "gpu_inventory" "one" {
  hosts = ["hv02"]
}
`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(text("partitioned"), "hv01", "gpus", held, "status"),
			is(number(16), "hv01", "gpus", held, "partition_count"),
			is(number(15), "hv01", "gpus", held, "free_partitions"),
			is(number(16), "hv01", "gpus", free, "free_partitions"),
			is(number(948), "hv01", "gpus", held, "partition_vram_mib"),
			is(knownvalue.ListExact([]knownvalue.Check{number(1), number(2), number(4), number(8), number(16)}),
				"hv01", "gpus", held, "valid_partition_counts"),
			is(text("paravirtualization"), "hv01", "gpus", paravirtual.ID, "status"),
			is(text("not_assignable"), "hv01", "gpus", rig.Console().ID, "status"),
			is(knownvalue.Null(), "hv01", "gpus", rig.Console().ID, "partition_count"),
			is(text("ready_for_dda"), "hv02", "gpus", rig.GPU1, "status"),
			is(knownvalue.Bool(true), "hv02", "gpus", rig.GPU1, "dismounted"),
			is(text("render"), "hv02", "gpus", rig.GPU1, "pool"),
			is(text("assigned"), "hv02", "gpus", t4.ID, "status"),
			is(text("azl"), "hv01", "cluster"),
			is(text("up"), "hv01", "node_state"),
			is(number(26100), "hv01", "os_build"),
			is(text("running"), "hv01", "vms", rig.VMID(2), "state"),
			is(text("Windows 11 Enterprise"), "hv01", "vms", rig.VMID(2), "guest"),
			is(knownvalue.Null(), "hv01", "vms", rig.VMID(1), "guest"),
			is(knownvalue.MapExact(map[string]knownvalue.Check{"render": knownvalue.ListExact([]knownvalue.Check{text(rig.GPU1)})}),
				"hv02", "pools"),
			statecheck.ExpectKnownValue(all, rig.Jsonpath("holders"), knownvalue.ListExact([]knownvalue.Check{
				holder("hv01", "avd-01", 1, "partition", held, 0, "", ""),
				holder("hv01", "avd-03", 3, "partition", "", -1, "", "test"),
				holder("hv02", "avd-06", 6, "device", t4.ID, -1, "", ""),
				holder("hv02", "avd-06", 6, "pool", "", -1, "render", ""),
			})),
			statecheck.ExpectKnownValue(all, rig.Jsonpath("json"), knownvalue.Null()),
			statecheck.ExpectKnownValue(all, rig.Jsonpath("unreachable_hosts"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue("data.gpu_inventory.one", rig.Jsonpath("inventory"), knownvalue.MapSizeExact(1)),
		},
	})
}

// holder is an entry of gpu_inventory's list of holders; "" and -1 stand for null.
func holder(host, vm string, n int, kind, gpuID string, partition int, pool, owner string) knownvalue.Check {
	text := func(s string) knownvalue.Check {
		if s == "" {
			return knownvalue.Null()
		}
		return knownvalue.StringExact(s)
	}
	number := knownvalue.Null()
	out := map[string]knownvalue.Check{
		"host": text(host), "vm": text(vm), "vm_id": text(rig.VMID(n)), "kind": text(kind), "gpu_id": text(gpuID),
		"partition_id": number, "pool": text(pool), "owner": text(owner),
	}
	if partition >= 0 {
		out["partition_id"] = knownvalue.Int64Exact(int64(partition))
	}
	return knownvalue.ObjectExact(out)
}

func TestAccInventory_InventoryLeavesAHostOutOnlyWhenToldToKeep(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Must(r.Fleet.SetUnreachable(t.Context(), "hv02", true))
	const data = `data "gpu_inventory" "all" {}`
	r.Steps(
		resource.TestStep{Config: r.Block() + data, ExpectError: rig.Says("Host does not answer", "Host: hv02")},
		resource.TestStep{
			Config: r.Block(`on_unreachable = "keep"`) + data,
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("data.gpu_inventory.all", rig.Jsonpath("unreachable_hosts"),
					knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("hv02")})),
				statecheck.ExpectKnownValue("data.gpu_inventory.all", rig.Jsonpath("inventory"), knownvalue.MapSizeExact(1)),
			},
		},
	)
}

func TestAccInventory_InventoryAsJSONIsAFleetToTryThingsOn(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.AddForeignAdapter("avd-01")
	copied := filepath.Join(t.TempDir(), "copy.json")
	on := func(argument string) string {
		return fmt.Sprintf("provider \"gpu\" {\n  %s = %q\n  owner = \"test\"\n}\n", argument, copied)
	}
	before := r.Snapshot()
	r.Steps(
		resource.TestStep{
			Config: r.Block() + "data \"gpu_inventory\" \"all\" {\n  include_json = true\n}\n",
			Check: func(s *terraform.State) error {
				text := s.RootModule().Resources["data.gpu_inventory.all"].Primary.Attributes["json"]
				got, err := gpu.ParseSnapshot([]byte(text))
				if err != nil {
					return err
				}
				for i := range got.Hosts { // which its agent adds
					if c := got.Hosts[i].Cluster; c != nil && c.Records {
						c.Records = false
					} else {
						t.Errorf("host %s does not say that its cluster keeps records", got.Hosts[i].Name)
					}
				}
				if diff := cmp.Diff(before, got); diff != "" {
					t.Errorf("the JSON is not what the hosts have (-hosts +json):\n%s", diff)
				}
				return os.WriteFile(copied, []byte(text), 0o600)
			},
		},
		resource.TestStep{ // recorded: the plan is the same, an apply is refused
			Config:             on("inventory_snapshot") + rig.Config4,
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
			ExpectError:        rig.Says(`avd-01`, "Rule: partition-in-use"),
		},
		resource.TestStep{ // a twin: what is applied to it does not reach the hosts
			Config: on("simulated_fleet") + rig.ConfigOf(16, rig.Both),
			Check: rig.Then(func() {
				twin, err := others.Open(copied)
				r.Must(err)
				s, err := twin.Snapshot(t.Context())
				r.Must(err)
				if len(s.Hosts[0].Claims) != 1 {
					t.Errorf("claims on the twin: %+v", s.Hosts[0].Claims)
				}
			}),
		},
	)
	r.WantUnchanged(before)
}

func TestAccInventory_RecordedInventoryIsPlannedAgainstAndNeverApplied(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	before := r.File()
	block := fmt.Sprintf("provider \"gpu\" {\n  inventory_snapshot = %q\n  owner = \"test\"\n}\n", r.Fleet.Path())
	r.Steps(
		resource.TestStep{
			Config:             block + rig.Config4,
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
		},
		resource.TestStep{
			Config:      block + rig.Config4,
			ExpectError: rig.Says("Could not create the partition config", "recorded inventory", "nothing can be changed"),
		},
	)
	r.WantUntouched(before)
}
