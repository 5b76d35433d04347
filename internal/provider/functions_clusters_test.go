package provider_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"go.yaml.in/yaml/v3"
)

func TestClusterFunctionsRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	var steps []resource.TestStep
	for call, says := range map[string]string{
		`device_plugin_config("x")`:                                                                   `Config: an object is wanted`,
		`device_plugin_config(null)`:                                                                  `argument must not be null`,
		`device_plugin_config({ mig = "mixed" })`:                                                     `There is no attribute "mig", but mig_strategy, mps, time_slicing`,
		`device_plugin_config({ mig_strategy = 1 })`:                                                  `Mig_strategy: a string is wanted`,
		`device_plugin_config({ mig_strategy = "all" })`:                                              `"all", but none, single, mixed is wanted`,
		`device_plugin_config({ mps = 4 })`:                                                           `Mps: an object is wanted`,
		`device_plugin_config({ mps = { replicas = 4 } })`:                                            `Mps: there is no attribute "replicas"`,
		`device_plugin_config({ mps = { resources = { gpu = "4x" } } })`:                              `Mps: resources: "gpu": a number is wanted`,
		`device_plugin_config({ mps = { resources = { gpu = 1 } } })`:                                 `MPS: "gpu" has 1 replicas, but at least 2`,
		`device_plugin_config({ mps = { resources = { "mig-1g.5gb" = 2 } } })`:                        `MIG devices, which the plugin does not share by MPS`,
		`device_plugin_config({ time_slicing = { resources = { gpu = 2 }, rename_by_default = 1 } })`: `rename_by_default: true or false is wanted`,
		`slurm_gres({})`:                         `Nodes: a list is wanted`,
		`slurm_gres([])`:                         `There is no node`,
		`slurm_gres(["gpu01"])`:                  `Nodes: entry 1: an object is wanted`,
		`slurm_gres([{ name = "n", gpu = [] }])`: `entry 1: there is no attribute "gpu"`,
		`slurm_gres([{ name = "n", gpus = [{ type = "a100" }] }])`:                           `entry 1: gpus: entry 1: device is missing`,
		`slurm_gres([{ name = "n", gpus = [{ device = 0, shards = "2x" }] }])`:               `shards: a number is wanted`,
		`slurm_gres([{ name = "n", gpus = [{ device = 0, mig = [{ type = "1g.5gb" }] }] }])`: `0 capability devices, but two are wanted`,
		`slurm_gres([{ name = "n", gpus = [{ device = 0, mps = 100, shards = 2 }] }])`:       `by MPS and in shards`,
	} {
		pattern := `(?i)` + strings.ReplaceAll(regexp.QuoteMeta(says), " ", `\s+`)
		steps = append(steps, resource.TestStep{Config: "output \"o\" { value = provider::gpu::" + call + " }", ExpectError: regexp.MustCompile(pattern)})
	}
	r.steps(steps...)
}

// A value inside the argument that is known only after the apply makes the result so.
func TestClusterFunctionsOfSomethingUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(resource.TestStep{
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
				"conf":       knownvalue.StringExact("NodeName=n Name=gpu File=/dev/nvidia0\nNodeName=n Name=mps Count=7 File=/dev/nvidia0\n"),
				"gres_types": knownvalue.StringExact("gpu,mps"),
				"gres":       knownvalue.MapExact(map[string]knownvalue.Check{"n": knownvalue.StringExact("gpu:1,mps:7")}),
			})),
		},
	})
}

// The example's configurations and labels are what the Kubernetes provider's resources take.
func TestKubernetesProviderExample(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(examplesDir, "kubernetes-device-plugin")
	e := copyExample(t, vdiFleet, filepath.Join(dir, "kubernetes-provider", "main.tf"))
	e.edit("main.tf", `"../"`, `"./module"`)
	module, err := os.ReadFile(filepath.Join(dir, "main.tf"))
	e.fleet.must(err)
	e.fleet.must(os.Mkdir(filepath.Join(e.dir, "module"), 0o700))
	write(t, filepath.Join(e.dir, "module", "main.tf"), string(module))
	e.withKubernetes()
	e.ok("get")
	e.apply()
	out := e.ok("state", "show", "kubernetes_config_map_v1.device_plugin")
	if !says(`"inference" = <<-EOT`, "mps: resources: - name: nvidia.com/gpu replicas: 10", `"whole"`, `namespace = "gpu-operator"`).MatchString(out) {
		t.Errorf("the ConfigMap is\n%s", out)
	}
	out = e.ok("state", "show", `kubernetes_labels.gpu_node["gpu-node-02"]`)
	wantSaid(t, out, `"nvidia.com/device-plugin.config" = "notebooks"`, `"Node"`, `"gpu-node-02"`)
	e.wantNoChanges()
}

// The example's manifest is what the device plugin reads through Kubernetes.
func TestKubernetesDevicePluginExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, vdiFleet, filepath.Join(examplesDir, "kubernetes-device-plugin", "main.tf"))
	e.apply()
	var manifest struct {
		Kind string
		Data map[string]string
	}
	if err := yaml.Unmarshal([]byte(e.ok("output", "-raw", "manifest")), &manifest); err != nil {
		t.Fatal(err)
	}
	got := map[string]any{"kind": manifest.Kind}
	for name, text := range manifest.Data {
		var config any
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
		got[name] = config
	}
	flags := map[string]any{"migStrategy": "none"}
	shared := func(replicas int) []any {
		return []any{map[string]any{"name": "nvidia.com/gpu", "replicas": replicas}}
	}
	want := map[string]any{
		"kind":      "ConfigMap",
		"whole":     map[string]any{"version": "v1", "flags": flags},
		"inference": map[string]any{"version": "v1", "flags": flags, "sharing": map[string]any{"mps": map[string]any{"resources": shared(10)}}},
		"notebooks": map[string]any{"version": "v1", "flags": flags, "sharing": map[string]any{"timeSlicing": map[string]any{
			"renameByDefault": true, "failRequestsGreaterThanOne": true, "resources": shared(4),
		}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	wantSaid(t, e.ok("output", "labels"), `"nvidia.com/device-plugin.config" = "notebooks"`)
	e.wantNoChanges()
}
