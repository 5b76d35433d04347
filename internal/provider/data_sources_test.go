package provider_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestInventoryShowsTheStatusesOfWindowsAdminCenterAndWhoHoldsWhat(t *testing.T) {
	t.Parallel()
	s := twoNodes()
	paravirtual := a2("PCIROOT(C0)#PCI(0300)#PCI(0000)")
	paravirtual.Partitionable.Paravirtual, paravirtual.Status = true, gpu.Paravirtualization
	t4 := unpartitionable("PCIROOT(D0)#PCI(0300)#PCI(0000)")
	s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, paravirtual, console())
	s.Hosts[1].GPUs = append(s.Hosts[1].GPUs, t4)
	r := newRig(t, s)
	r.addForeignAdapter("avd-01")
	r.setPool("hv02", "render", gpu1)
	h, err := r.fleet.Host("hv02")
	r.must(err)
	r.must(h.DismountDevice(t.Context(), t4.ID, true))
	_, err = h.AddDevice(t.Context(), vmID(6), gpu.DeviceAssignment{GPU: t4.ID})
	r.must(err)
	_, err = h.AddDevice(t.Context(), vmID(6), gpu.DeviceAssignment{Pool: "render"})
	r.must(err)
	held := map[bool]string{true: gpu0, false: gpu1}[len(r.host("hv01").GPUs[0].Partitionable.Partitions) == 1]
	free := map[string]string{gpu0: gpu1, gpu1: gpu0}[held]

	const all = "data.gpu_inventory.all"
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue(all, jsonpath("inventory", steps...), want)
	}
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	r.steps(resource.TestStep{
		Config: r.block() + `
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
			is(knownvalue.ListExact([]knownvalue.Check{number(1), number(2), number(4), number(8), number(16)}), "hv01", "gpus", held, "valid_partition_counts"),
			is(text("paravirtualization"), "hv01", "gpus", paravirtual.ID, "status"),
			is(text("not_assignable"), "hv01", "gpus", console().ID, "status"),
			is(knownvalue.Null(), "hv01", "gpus", console().ID, "partition_count"),
			is(text("ready_for_dda"), "hv02", "gpus", gpu1, "status"),
			is(knownvalue.Bool(true), "hv02", "gpus", gpu1, "dismounted"),
			is(text("render"), "hv02", "gpus", gpu1, "pool"),
			is(text("assigned"), "hv02", "gpus", t4.ID, "status"),
			is(text("azl"), "hv01", "cluster"),
			is(text("up"), "hv01", "node_state"),
			is(number(26100), "hv01", "os_build"),
			is(text("running"), "hv01", "vms", vmID(2), "state"),
			is(knownvalue.MapExact(map[string]knownvalue.Check{"render": knownvalue.ListExact([]knownvalue.Check{text(gpu1)})}), "hv02", "pools"),
			statecheck.ExpectKnownValue(all, jsonpath("holders"), knownvalue.ListExact([]knownvalue.Check{
				holder("hv01", "avd-01", 1, "partition", held, 0, "", ""),
				holder("hv01", "avd-03", 3, "partition", "", -1, "", "test"),
				holder("hv02", "avd-06", 6, "device", t4.ID, -1, "", ""),
				holder("hv02", "avd-06", 6, "pool", "", -1, "render", ""),
			})),
			statecheck.ExpectKnownValue(all, jsonpath("json"), knownvalue.Null()),
			statecheck.ExpectKnownValue(all, jsonpath("unreachable_hosts"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue("data.gpu_inventory.one", jsonpath("inventory"), knownvalue.MapSizeExact(1)),
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
		"host": text(host), "vm": text(vm), "vm_id": text(vmID(n)), "kind": text(kind), "gpu_id": text(gpuID),
		"partition_id": number, "pool": text(pool), "owner": text(owner),
	}
	if partition >= 0 {
		out["partition_id"] = knownvalue.Int64Exact(int64(partition))
	}
	return knownvalue.ObjectExact(out)
}

func TestInventoryLeavesAHostOutOnlyWhenToldToKeep(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.must(r.fleet.SetUnreachable(t.Context(), "hv02", true))
	const data = `data "gpu_inventory" "all" {}`
	r.steps(
		resource.TestStep{Config: r.block() + data, ExpectError: says("Host does not answer", "Host: hv02")},
		resource.TestStep{
			Config: r.block(`on_unreachable = "keep"`) + data,
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("data.gpu_inventory.all", jsonpath("unreachable_hosts"), knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("hv02")})),
				statecheck.ExpectKnownValue("data.gpu_inventory.all", jsonpath("inventory"), knownvalue.MapSizeExact(1)),
			},
		},
	)
}

func TestInventoryAsJSONIsAFleetToTryThingsOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.addForeignAdapter("avd-01")
	copied := filepath.Join(t.TempDir(), "copy.json")
	on := func(argument string) string {
		return fmt.Sprintf("provider \"gpu\" {\n  %s = %q\n  owner = \"test\"\n}\n", argument, copied)
	}
	before := r.snapshot()
	r.steps(
		resource.TestStep{
			Config: r.block() + "data \"gpu_inventory\" \"all\" {\n  include_json = true\n}\n",
			Check: func(s *terraform.State) error {
				text := s.RootModule().Resources["data.gpu_inventory.all"].Primary.Attributes["json"]
				got, err := gpu.ParseSnapshot([]byte(text))
				if err != nil {
					return err
				}
				if diff := cmp.Diff(before, got); diff != "" {
					t.Errorf("the JSON is not what the hosts have (-hosts +json):\n%s", diff)
				}
				return os.WriteFile(copied, []byte(text), 0o600)
			},
		},
		resource.TestStep{ // recorded: the plan is the same, an apply is refused
			Config:             on("inventory_snapshot") + config4,
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
			ExpectError:        says(`avd-01`, "Rule: partition-in-use"),
		},
		resource.TestStep{ // a twin: what is applied to it does not reach the hosts
			Config: on("simulated_fleet") + configOf(16, both),
			Check: then(func() {
				twin, err := simulated.Open(copied)
				r.must(err)
				s, err := twin.Snapshot(t.Context())
				r.must(err)
				if len(s.Hosts[0].Claims) != 1 {
					t.Errorf("claims on the twin: %+v", s.Hosts[0].Claims)
				}
			}),
		},
	)
	r.wantUnchanged(before)
}

func TestRecordedInventoryIsPlannedAgainstAndNeverApplied(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	before := r.file()
	block := fmt.Sprintf("provider \"gpu\" {\n  inventory_snapshot = %q\n  owner = \"test\"\n}\n", r.fleet.Path())
	r.steps(
		resource.TestStep{
			Config:             block + config4,
			PlanOnly:           true,
			ExpectNonEmptyPlan: true,
		},
		resource.TestStep{
			Config:      block + config4,
			ExpectError: says("Could not create the partition config", "recorded inventory", "nothing can be changed"),
		},
	)
	r.wantUntouched(before)
}

func TestPartitionOptionsListEachValidCountWithItsMemory(t *testing.T) {
	t.Parallel()
	s := standalone(node("hv01"))
	small := a2("PCIROOT(C0)#PCI(0300)#PCI(0000)")
	small.Partitionable.ValidCounts = []int{8, 4, 2}
	s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, small, console())
	r := newRig(t, s)
	r.must(r.fleet.SetCountOutside(t.Context(), "hv01", gpu0, 4))
	option := func(count, mib int64, estimated bool) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{
			"partition_count": knownvalue.Int64Exact(count), "partition_vram_mib": knownvalue.Int64Exact(mib), "estimated": knownvalue.Bool(estimated),
		})
	}
	numbers := func(n ...int64) knownvalue.Check {
		var out []knownvalue.Check
		for _, v := range n {
			out = append(out, knownvalue.Int64Exact(v))
		}
		return knownvalue.ListExact(out)
	}
	const all, one = "data.gpu_partition_options.all", "data.gpu_partition_options.one"
	r.steps(
		resource.TestStep{
			Config: r.block() + fmt.Sprintf(`
data "gpu_partition_options" "all" {
  host = "hv01"
}
data "gpu_partition_options" "one" {
  host   = "hv01"
  gpu_id = %q
}
# The values are known in the plan.
resource "terraform_data" "largest" {
  count = max(data.gpu_partition_options.all.common_partition_counts...)
}
`, strings.ToLower(gpu0)),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("terraform_data.largest[7]", plancheck.ResourceActionCreate),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(all, jsonpath("common_partition_counts"), numbers(2, 4, 8)),
				statecheck.ExpectKnownValue(all, jsonpath("gpus"), knownvalue.MapSizeExact(3)),
				statecheck.ExpectKnownValue(all, jsonpath("gpus", gpu0, "partition_count"), knownvalue.Int64Exact(4)),
				statecheck.ExpectKnownValue(all, jsonpath("gpus", gpu0, "options"), knownvalue.ListExact([]knownvalue.Check{
					option(1, 15168, true), option(2, 7584, true), option(4, 3792, false), option(8, 1896, true), option(16, 948, true),
				})),
				statecheck.ExpectKnownValue(one, jsonpath("common_partition_counts"), numbers(1, 2, 4, 8, 16)),
				statecheck.ExpectKnownValue(one, jsonpath("gpus"), knownvalue.MapSizeExact(1)),
			},
		},
		resource.TestStep{
			Config:      r.block() + "data \"gpu_partition_options\" \"x\" {\n  host = \"hv09\"\n}\n",
			ExpectError: says("Unknown host", `host = "hv09"`, "hv01"),
		},
		resource.TestStep{
			Config:      r.block() + "data \"gpu_partition_options\" \"x\" {\n  host = \"hv01\"\n  gpu_id = \"" + console().ID + "\"\n}\n",
			ExpectError: says("GPU cannot be partitioned", "gpu_id", console().ID),
		},
	)
}

const forecast4 = `
data "gpu_change_forecast" "four" {
  hosts = ["hv01", "hv02"]
  gpu_p = { partition_count = 4 }
}
# The values are known in the plan, so that a policy can judge them.
resource "terraform_data" "allowed" {
  count = data.gpu_change_forecast.four.feasible && data.gpu_change_forecast.four.disruption == "none" ? 1 : 0
}
resource "terraform_data" "refused" {
  count = length([for vm in data.gpu_change_forecast.four.stops_vms : vm if vm.vm == "avd-01" && !vm.allowed])
}
`

func TestForecastOfAnIdleFleetDisturbsNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	before := r.snapshot()
	const four = "data.gpu_change_forecast.four"
	r.steps(resource.TestStep{
		Config: r.block() + forecast4,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction("terraform_data.allowed[0]", plancheck.ResourceActionCreate),
		}},
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(four, jsonpath("disruption"), knownvalue.StringExact("none")),
			statecheck.ExpectKnownValue(four, jsonpath("feasible"), knownvalue.Bool(true)),
			statecheck.ExpectKnownValue(four, jsonpath("stops_vms"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue(four, jsonpath("gpus"), knownvalue.ListSizeExact(4)),
			statecheck.ExpectKnownValue(four, jsonpath("gpus", 0), knownvalue.ObjectExact(map[string]knownvalue.Check{
				"host": knownvalue.StringExact("hv01"), "gpu_id": knownvalue.StringExact(gpu0), "model": knownvalue.StringExact("NVIDIA A2"),
				"from_partition_count": knownvalue.Int64Exact(16), "to_partition_count": knownvalue.Int64Exact(4),
				"partition_vram_mib": knownvalue.Int64Exact(3792), "holders": knownvalue.ListSizeExact(0),
				"mig": knownvalue.Null(), "vgpu": knownvalue.Null(), "sharing": knownvalue.Null(),
			})),
		},
	})
	r.wantUnchanged(before)
}

func TestForecastNamesTheVMsThatAChangeStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.addForeignAdapter("avd-01")
	before := r.snapshot()
	const four = "data.gpu_change_forecast.four"
	r.steps(resource.TestStep{
		Config: r.block() + forecast4,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction("terraform_data.refused[0]", plancheck.ResourceActionCreate),
		}},
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(four, jsonpath("disruption"), knownvalue.StringExact("vm_restart")),
			statecheck.ExpectKnownValue(four, jsonpath("feasible"), knownvalue.Bool(false)),
			statecheck.ExpectKnownValue(four, jsonpath("stops_vms", 0, "vm"), knownvalue.StringExact("avd-01")),
			statecheck.ExpectKnownValue(four, jsonpath("stops_vms", 0, "vm_id"), knownvalue.StringExact(vmID(1))),
			statecheck.ExpectKnownValue(four, jsonpath("stops_vms", 0, "host"), knownvalue.StringExact("hv01")),
			statecheck.ExpectKnownValue(four, jsonpath("stops_vms", 0, "allowed"), knownvalue.Bool(false)),
			statecheck.ExpectKnownValue(four, jsonpath("violations", 0, "rule"), knownvalue.StringExact("partition-in-use")),
			statecheck.ExpectKnownValue(four, jsonpath("violations", 0, "level"), knownvalue.StringExact("error")),
		},
	})
	r.wantUnchanged(before)
}

func TestForecastOfAnImpossibleLayoutSaysWhy(t *testing.T) {
	t.Parallel()
	s := twoNodes()
	s.Hosts[1].GPUs[1] = a16(gpu1)
	r := newRig(t, s)
	const three = "data.gpu_change_forecast.three"
	r.steps(
		resource.TestStep{
			Config: r.block() + `
data "gpu_change_forecast" "three" {
  cluster = "azl"
  gpu_p   = { partition_count = 3 }
}
data "gpu_change_forecast" "a2" {
  cluster  = "azl"
  selector = { models = ["NVIDIA A2"] }
  gpu_p    = { partition_count = 8 }
}
output "rules" {
  value = jsonencode(sort(distinct(data.gpu_change_forecast.three.violations[*].rule)))
}
`,
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(three, jsonpath("feasible"), knownvalue.Bool(false)),
				statecheck.ExpectKnownValue("data.gpu_change_forecast.a2", jsonpath("gpus"), knownvalue.ListSizeExact(3)),
			},
			Check: func(s *terraform.State) error {
				var got []string
				if err := json.Unmarshal([]byte(fmt.Sprint(s.RootModule().Outputs["rules"].Value)), &got); err != nil {
					return err
				}
				for _, want := range []string{"homogeneous-gpus", "valid-partition-count"} {
					if !strings.Contains(strings.Join(got, " "), want) {
						t.Errorf("violations %v lack %s", got, want)
					}
				}
				return nil
			},
		},
		resource.TestStep{
			Config:      r.block() + "data \"gpu_change_forecast\" \"x\" {\n  cluster = \"nowhere\"\n  gpu_p = { partition_count = 3 }\n}\n",
			ExpectError: says("Unknown cluster", `cluster = "nowhere"`),
		},
	)
}

func TestForecastCoversTheGPUsOfThisStatesOwnConfig(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + config4},
		resource.TestStep{
			Config: r.block() + config4 + strings.ReplaceAll(strings.ReplaceAll(forecast4, "count = 4", "count = 8"), "four", "eight"),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("data.gpu_change_forecast.eight", jsonpath("gpus"), knownvalue.ListSizeExact(4)),
				statecheck.ExpectKnownValue("data.gpu_change_forecast.eight", jsonpath("feasible"), knownvalue.Bool(true)),
			},
		},
	)
}

func TestPoolDataSourceShowsWhatIsFree(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.setPool("hv01", "render", gpu0, gpu1)
	r.setPool("hv02", "render", gpu1)
	high := 65 * 1024 * gpu.MiB
	r.editHost("hv02", func(h *gpu.Host) { h.VMs[2].Settings.HighMemoryMappedIOSpace = &high })
	r.draw("avd-06", "render")
	r.must(r.fleet.SetVMState(t.Context(), "avd-06", gpu.VMRunning))
	const render = "data.gpu_pool.render"
	r.steps(
		resource.TestStep{
			Config: r.block() + "data \"gpu_pool\" \"render\" {\n  name = \"Render\"\n  cluster = \"azl\"\n}\n",
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(render, jsonpath("id"), knownvalue.StringExact("azl/Render")),
				statecheck.ExpectKnownValue(render, jsonpath("available"), knownvalue.MapExact(map[string]knownvalue.Check{
					"hv01": knownvalue.Int64Exact(2), "hv02": knownvalue.Int64Exact(0),
				})),
				statecheck.ExpectKnownValue(render, jsonpath("gpus", "hv02", gpu1, "vm"), knownvalue.StringExact("avd-06")),
				statecheck.ExpectKnownValue(render, jsonpath("gpus", "hv02", gpu1, "status"), knownvalue.StringExact("assigned")),
				statecheck.ExpectKnownValue(render, jsonpath("gpus", "hv01", gpu1, "vm"), knownvalue.Null()),
			},
		},
		resource.TestStep{
			Config:      r.block() + "data \"gpu_pool\" \"render\" {\n  name = \"cad\"\n  host = \"hv01\"\n}\n",
			ExpectError: says("Pool does not exist", "cad"),
		},
		resource.TestStep{
			Config:      r.block() + "data \"gpu_pool\" \"render\" {\n  name = \"render\"\n  host = \"hv09\"\n}\n",
			ExpectError: says("Unknown host", "hv09"),
		},
	)
}
