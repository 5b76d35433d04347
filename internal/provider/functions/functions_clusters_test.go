package functions_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestClusterFunctionsRefuse(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	var steps []resource.TestStep
	for call, says := range map[string]string{
		`device_plugin_config("x")`:  `Config: an object is wanted`,
		`device_plugin_config(null)`: `argument must not be null`,
		`device_plugin_config({ mig = "mixed" })`: `There is no attribute "mig", ` +
			`but flags, gpus, mig_strategy, mps, time_slicing`,
		`device_plugin_config({ flags = { mig = "none" } })`: `flags: there is no attribute "mig", but device_discovery_strategy`,
		`device_plugin_config({ flags = { plugin = { device_list_strategy = 1 } } })`: `flags: plugin: device_list_strategy: a string or a ` +
			`list of strings is wanted`,
		`device_plugin_config({ flags = { plugin = { shared_devices_allocation_policy = "spread" } } })`: `flags: plugin: ` +
			`shared_devices_allocation_policy is "spread", but distributed, packed is wanted`,
		`device_plugin_config({ mig_strategy = 1 })`: `Mig_strategy: a string is ` +
			`wanted`,
		`device_plugin_config({ mig_strategy = "all" })`: `"all", but none, single, ` +
			`mixed is wanted`,
		`device_plugin_config({ mps = 4 })`: `Mps: an object is wanted`,
		`device_plugin_config({ mps = { replicas = 4 } })`: `Mps: there is no attribute ` +
			`"replicas"`,
		`device_plugin_config({ mps = { resources = { gpu = "4x" } } })`: `Mps: resources: "gpu": a ` +
			`number is wanted`,
		`device_plugin_config({ mps = { resources = { gpu = 1 } } })`: `MPS: "gpu" has 1 replicas, ` +
			`but at least 2`,
		`device_plugin_config({ mps = { resources = { "mig-1g.5gb" = 2 } } })`: `MIG devices, which the ` +
			`plugin does not share by MPS`,
		`device_plugin_config({ time_slicing = { resources = { gpu = 2 }, rename_by_default = 1 } })`: `rename_by_default: true or ` +
			`false is wanted`,
		`dra_resources("x")`:             `Devices: an object is wanted`,
		`dra_resources({ name = "ml" })`: `There is no device`,
		`dra_resources({ name = "ml", gpu = 1 })`: `There is no attribute "gpu", ` +
			`but gpus, name, namespace`,
		`dra_resources({ name = "ml", gpus = { h = 1 } })`:  `Gpus: "h": an object is wanted`,
		`dra_resources({ name = "ml", gpus = { h = {} } })`: `Gpus: "h": gpus: an object is wanted`,
		`dra_resources({ name = "ml", gpus = { h = { gpus = { g = { layout = "mig:1g.10gb@0", instances = [{}] } } } } })`: `instances: ` +
			`entry 1: profile: a string is wanted`,
		`dra_resources({ name = "ml", gpus = { h = { gpus = { GPU-1 = { layout = "mps:default" } } } } })`: `the layout "mps:default", by ` +
			`which its host shares it`,
		`slurm_gres({})`:                         `Nodes: a list is wanted`,
		`slurm_gres([])`:                         `There is no node`,
		`slurm_gres(["gpu01"])`:                  `Nodes: entry 1: an object is wanted`,
		`slurm_gres([{ name = "n", gpu = [] }])`: `entry 1: there is no attribute "gpu"`,
		`slurm_gres([{ name = "n", gpus = [{ type = "a100" }] }])`:                           `entry 1: gpus: entry 1: device is missing`,
		`slurm_gres([{ name = "n", gpus = [{ device = 0, shards = "2x" }] }])`:               `shards: a number is wanted`,
		`slurm_gres([{ name = "n", gpus = [{ device = 0, mig = [{ type = "1g.5gb" }] }] }])`: `0 capability devices, but two are wanted`,
		`slurm_gres([{ name = "n", gpus = [{ device = 0, mps = 100, shards = 2 }] }])`:       `by MPS and in shards`,
		`slurm_gres([{ name = "n", auto_detect = "nvml" }])`:                                 `it has no GPU: list them in gpus`,
		`slurm_gres([{ name = "n", gpus = [{ device = 0, type = "1g" }] }])`: `"1g" is not a type such as "a100": Slurm (seen with ` +
			`22.05 and 24.11) reads it as how many GPUs a job asks for`,
	} {
		pattern := `(?i)` + strings.ReplaceAll(regexp.QuoteMeta(says), " ", `\s+`)
		steps = append(steps, resource.TestStep{
			Config: "output \"o\" { value = provider::gpu::" + call + " }", ExpectError: regexp.MustCompile(pattern),
		})
	}
	r.Steps(steps...)
}

// The plugin's flags are written as its file has them.
func TestDevicePluginConfigFlags(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(resource.TestStep{
		Config: `
output "o" {
  value = provider::gpu::device_plugin_config({
    mig_strategy = "none"
    flags = {
      fail_on_init_error = false
      nvidia_driver_root = null
      plugin             = { device_list_strategy = ["cdi-cri"], shared_devices_allocation_policy = "packed" }
    }
    mps = { resources = { gpu = 4 } }
  })
}`,
		ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownOutputValue("o", knownvalue.StringExact(`version: v1
flags:
  migStrategy: none
  failOnInitError: false
  plugin:
    deviceListStrategy: cdi-cri
    sharedDevicesAllocationPolicy: packed
sharing:
  mps:
    resources:
      - name: nvidia.com/gpu
        replicas: 4
`))},
	})
}

// A value inside the argument that is known only after the apply makes the result so.
func TestClusterFunctionsOfSomethingUnknown(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(resource.TestStep{
		Config: `
resource "terraform_data" "n" { input = 7 }
output "config" {
  value = provider::gpu::device_plugin_config({ mps = { resources = { gpu = terraform_data.n.output } } })
}
output "slurm" {
  value = provider::gpu::slurm_gres([{ name = "n", gpus = [{ device = 0, mps = terraform_data.n.output, cores = null }] }])
}`,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectUnknownOutputValue("config"), plancheck.ExpectUnknownOutputValue("slurm"),
		}},
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownOutputValue("config", knownvalue.StringRegexp(regexp.MustCompile(`replicas: 7`))),
			statecheck.ExpectKnownOutputValue("slurm", knownvalue.ObjectExact(map[string]knownvalue.Check{
				"conf":        knownvalue.StringExact("NodeName=n Name=gpu File=/dev/nvidia0\nNodeName=n Name=mps Count=7 File=/dev/nvidia0\n"),
				"gres_types":  knownvalue.StringExact("gpu,mps"),
				"gres":        knownvalue.MapExact(map[string]knownvalue.Check{"n": knownvalue.StringExact("gpu:1,mps:7")}),
				"cgroup_conf": knownvalue.StringExact("ConstrainDevices=yes\n"),
			})),
		},
	})
}

// The gpus of a config are what it is for: known once the config is applied.
func TestDRAResourcesOfAConfig(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	const output = "output \"o\" { value = provider::gpu::dra_resources({ name = \"ml\", gpus = gpu_partition_config.ml.gpus }) }\n"
	says := func(parts ...string) statecheck.StateCheck {
		for i, p := range parts {
			parts[i] = regexp.QuoteMeta(p)
		}
		return statecheck.ExpectKnownOutputValue("o", knownvalue.StringRegexp(regexp.MustCompile(`(?s)^`+strings.Join(parts, ".*")+`.*$`)))
	}
	both := `in ["` + rig.MIGGPU(0) + `", "` + rig.MIGGPU(1) + `"]`
	r.Steps(
		resource.TestStep{
			Config:           r.Block() + rig.MIGOf("ml", rig.Balanced) + output,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectUnknownOutputValue("o")}},
			ConfigStateChecks: []statecheck.StateCheck{
				says("apiVersion: resource.k8s.io/v1", "name: ml-1g.10gb", `profile == "1g.10gb"`, both, "name: ml-2g.20gb",
					"name: ml-3g.40gb", "kind: ResourceClaimTemplate", "deviceClassName: ml-3g.40gb"),
			},
		},
		resource.TestStep{
			Config: r.Block() + rig.MIGOf("ml", "enabled = false") + output,
			ConfigStateChecks: []statecheck.StateCheck{
				says("apiVersion: resource.k8s.io/v1\nkind: DeviceClass", "name: ml-gpu", `type == "gpu"`, "uuid "+both, "deviceClassName: ml-gpu"),
			},
		},
	)
}
