package changeforecast_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

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

func TestAccChangeForecast_ForecastOfAnIdleFleetDisturbsNobody(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	before := r.Snapshot()
	const four = "data.gpu_change_forecast.four"
	r.Steps(resource.TestStep{
		Config: r.Block() + forecast4,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction("terraform_data.allowed[0]", plancheck.ResourceActionCreate),
		}},
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(four, rig.Jsonpath("disruption"), knownvalue.StringExact("none")),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("feasible"), knownvalue.Bool(true)),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("stops_vms"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("gpus"), knownvalue.ListSizeExact(4)),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("gpus", 0), knownvalue.ObjectExact(map[string]knownvalue.Check{
				"host": knownvalue.StringExact("hv01"), "gpu_id": knownvalue.StringExact(rig.GPU0), "model": knownvalue.StringExact("NVIDIA A2"),
				"from_partition_count": knownvalue.Int64Exact(16), "to_partition_count": knownvalue.Int64Exact(4),
				"partition_vram_mib": knownvalue.Int64Exact(3792), "holders": knownvalue.ListSizeExact(0),
				"mig": knownvalue.Null(), "vgpu": knownvalue.Null(), "sharing": knownvalue.Null(),
			})),
		},
	})
	r.WantUnchanged(before)
}

func TestAccChangeForecast_ForecastNamesTheVMsThatAChangeStops(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.AddForeignAdapter("avd-01")
	before := r.Snapshot()
	const four = "data.gpu_change_forecast.four"
	r.Steps(resource.TestStep{
		Config: r.Block() + forecast4,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction("terraform_data.refused[0]", plancheck.ResourceActionCreate),
		}},
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(four, rig.Jsonpath("disruption"), knownvalue.StringExact("vm_restart")),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("feasible"), knownvalue.Bool(false)),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("stops_vms", 0, "vm"), knownvalue.StringExact("avd-01")),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("stops_vms", 0, "vm_id"), knownvalue.StringExact(rig.VMID(1))),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("stops_vms", 0, "host"), knownvalue.StringExact("hv01")),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("stops_vms", 0, "allowed"), knownvalue.Bool(false)),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("violations", 0, "rule"), knownvalue.StringExact("partition-in-use")),
			statecheck.ExpectKnownValue(four, rig.Jsonpath("violations", 0, "level"), knownvalue.StringExact("error")),
		},
	})
	r.WantUnchanged(before)
}

func TestAccChangeForecast_ForecastOfAnImpossibleLayoutSaysWhy(t *testing.T) {
	t.Parallel()
	s := rig.TwoNodes()
	s.Hosts[1].GPUs[1] = rig.A16(rig.GPU1)
	r := rig.New(t, s)
	const three = "data.gpu_change_forecast.three"
	r.Steps(
		resource.TestStep{
			Config: r.Block() + `
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
				statecheck.ExpectKnownValue(three, rig.Jsonpath("feasible"), knownvalue.Bool(false)),
				statecheck.ExpectKnownValue("data.gpu_change_forecast.a2", rig.Jsonpath("gpus"), knownvalue.ListSizeExact(3)),
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
			Config:      r.Block() + "data \"gpu_change_forecast\" \"x\" {\n  cluster = \"nowhere\"\n  gpu_p = { partition_count = 3 }\n}\n",
			ExpectError: rig.SaysAt("cluster", "Unknown cluster", `"nowhere"`),
		},
	)
}

func TestAccChangeForecast_ForecastCoversTheGPUsOfThisStatesOwnConfig(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.Config4},
		resource.TestStep{
			Config: r.Block() + rig.Config4 + strings.ReplaceAll(strings.ReplaceAll(forecast4, "count = 4", "count = 8"), "four", "eight"),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("data.gpu_change_forecast.eight", rig.Jsonpath("gpus"), knownvalue.ListSizeExact(4)),
				statecheck.ExpectKnownValue("data.gpu_change_forecast.eight", rig.Jsonpath("feasible"), knownvalue.Bool(true)),
			},
		},
	)
}
