package provider_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
)

// migPartedFile is a file of mig-parted's as HCL has it.
const migPartedFile = `
locals {
  file = <<-EOT
    version: v1
    mig-configs:
      all-disabled:
      - devices: all
        mig-enabled: false
      all-balanced:
      - device-filter: ["0x20B010DE", "0x20F110DE", "0xFFFF10DE"]
        devices: all
        mig-enabled: true
        mig-devices: {"3g.20gb": 1, "1g.5gb": 2}
      - devices: [1, 3]
        mig-enabled: true
        mig-devices: {}
      shared:
      - devices: all
        mig-enabled: true
        mig-devices: {"1c.3g.20gb": 3}
  EOT
}
`

func entryValue(models, filter, devices knownvalue.Check, on bool, profiles map[string]knownvalue.Check) knownvalue.Check {
	return knownvalue.ObjectExact(map[string]knownvalue.Check{
		"models": models, "device_filter": filter, "devices": devices,
		"mig_enabled": knownvalue.Bool(on), "profiles": knownvalue.MapExact(profiles),
	})
}

func textList(texts ...string) knownvalue.Check {
	var out []knownvalue.Check
	for _, s := range texts {
		out = append(out, knownvalue.StringExact(s))
	}
	return knownvalue.ListExact(out)
}

func TestFromMIGParted(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	number := knownvalue.Int64Exact
	r.steps(resource.TestStep{
		Config: migPartedFile + `
output "balanced" { value = provider::gpu::from_mig_parted(local.file, "all-balanced") }
output "off"      { value = provider::gpu::from_mig_parted(local.file, "all-disabled") }
output "again" {
  value = provider::gpu::mig_parted_config({ all-balanced = provider::gpu::from_mig_parted(local.file, "all-balanced") })
}`,
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownOutputValue("balanced", knownvalue.ListExact([]knownvalue.Check{
				entryValue(textList("NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB"), textList("0x20B010DE", "0x20F110DE", "0xFFFF10DE"), knownvalue.Null(), true,
					map[string]knownvalue.Check{"3g.20gb": number(1), "1g.5gb": number(2)}),
				entryValue(knownvalue.Null(), knownvalue.Null(), knownvalue.ListExact([]knownvalue.Check{number(1), number(3)}), true, nil),
			})),
			statecheck.ExpectKnownOutputValue("off", knownvalue.ListExact([]knownvalue.Check{
				entryValue(knownvalue.Null(), knownvalue.Null(), knownvalue.Null(), false, nil),
			})),
			statecheck.ExpectKnownOutputValue("again", knownvalue.StringExact(`version: v1
mig-configs:
  all-balanced:
    - device-filter: ["0x20B010DE", "0x20F110DE", "0xFFFF10DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.5gb": 2
        "3g.20gb": 1
    - devices: [1, 3]
      mig-enabled: true
      mig-devices: {}
`)),
		},
	})
}

func TestFunctionsRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	tests := map[string]string{
		`provider::gpu::from_mig_parted("a: b", "x")`:                                                    `field a not found`,
		`provider::gpu::from_mig_parted(local.file, "all-9g")`:                                           `There is no label "all-9g"; there are all-balanced, all-disabled, shared`,
		`provider::gpu::from_mig_parted(local.file, "shared")`:                                           `write the profile of the GPU instance, as in "3g.20gb"`,
		`provider::gpu::mig_parted_config("x")`:                                                          `Labels: an object is wanted`,
		`provider::gpu::mig_parted_config({})`:                                                           `at least one label`,
		`provider::gpu::mig_parted_config({ x = [] })`:                                                   `Label "x" has no entry`,
		`provider::gpu::mig_parted_config({ x = null })`:                                                 `Label "x": an object is wanted`,
		`provider::gpu::mig_parted_config({ x = ["all"] })`:                                              `Label "x": entry 1: an object is wanted`,
		`provider::gpu::mig_parted_config({ x = { half = 1 } })`:                                         `"half", which is not a MIG profile`,
		`provider::gpu::mig_parted_config({ x = { "1g.5gb" = 1.5 } })`:                                   `"1g.5gb": 1.5 is not a whole number`,
		`provider::gpu::mig_parted_config({ x = { "1g.5gb" = "many" } })`:                                `"1g.5gb": a number is wanted`,
		`provider::gpu::mig_parted_config({ x = { "1g.5gb" = 0 } })`:                                     `0 of "1g.5gb", but at least 1`,
		`provider::gpu::mig_parted_config({ x = { profiles = {}, mode = 1 } })`:                          `there is no attribute "mode", but device_filter, devices`,
		`provider::gpu::mig_parted_config({ x = { models = ["Voodoo 2"] } })`:                            `models: the catalog knows no GPU model "Voodoo 2"`,
		`provider::gpu::mig_parted_config({ x = { models = "A30" } })`:                                   `models: a list is wanted`,
		`provider::gpu::mig_parted_config({ x = { device_filter = ["A30"] } })`:                          `device_filter: "A30" is not a PCI device id`,
		`provider::gpu::mig_parted_config({ x = { devices = ["all"] } })`:                                `devices: a number is wanted`,
		`provider::gpu::mig_parted_config({ x = { devices = [-1] } })`:                                   `the index -1`,
		`provider::gpu::mig_parted_config({ x = { mig_enabled = "on" } })`:                               `mig_enabled: true or false is wanted`,
		`provider::gpu::mig_parted_config({ x = { mig_enabled = false, profiles = { "1g.5gb" = 1 } } })`: `mig-enabled is false`,
	}
	var steps []resource.TestStep
	for call, says := range tests {
		// Terraform breaks lines as it likes.
		pattern := strings.ReplaceAll(regexp.QuoteMeta(says), " ", `\s+`)
		steps = append(steps, resource.TestStep{Config: migPartedFile + "output \"o\" { value = " + call + " }", ExpectError: regexp.MustCompile(pattern)})
	}
	r.steps(steps...)
}

// A value inside the argument that is known only after the apply makes the text so.
func TestMIGPartedConfigOfSomethingUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(resource.TestStep{
		Config: `
resource "terraform_data" "n" { input = 7 }
output "config" {
  value = provider::gpu::mig_parted_config({ x = { "1g.5gb" = terraform_data.n.output } })
}`,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectUnknownOutputValue("config")}},
		ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownOutputValue("config",
			knownvalue.StringRegexp(regexp.MustCompile(`"1g.5gb": 7`)))},
	})
}

func TestFunctionExamples(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"from_mig_parted": `{"layouts": [
			{"models": ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"], "profiles": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
			{"models": ["NVIDIA A30"], "profiles": {"1g.6gb": 2, "2g.12gb": 1}}
		]}`,
		"mig_parted_config": `{"config": "version: v1\nmig-configs:\n` +
			`  balanced:\n` +
			`    - device-filter: [\"0x233010DE\", \"0x20B210DE\"]\n      devices: all\n      mig-enabled: true\n` +
			`      mig-devices:\n        \"1g.10gb\": 2\n        \"2g.20gb\": 1\n        \"3g.40gb\": 1\n` +
			`    - device-filter: [\"0x20B710DE\"]\n      devices: all\n      mig-enabled: true\n` +
			`      mig-devices:\n        \"1g.6gb\": 2\n        \"2g.12gb\": 1\n` +
			`  inference:\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n        \"1g.10gb\": 7\n` +
			`  training:\n    - devices: [0]\n      mig-enabled: false\n    - devices: [1]\n      mig-enabled: true\n` +
			`      mig-devices:\n        \"3g.40gb\": 2\n"}`,
		"device_plugin_config": `{
			"mps": "version: v1\nsharing:\n  mps:\n    resources:\n      - name: nvidia.com/gpu\n        replicas: 10\n",
			"time_slicing": "version: v1\nflags:\n  migStrategy: mixed\nsharing:\n  timeSlicing:\n` +
			`    renameByDefault: true\n    failRequestsGreaterThanOne: true\n    resources:\n` +
			`      - name: nvidia.com/gpu\n        replicas: 4\n      - name: nvidia.com/mig-1g.10gb\n        replicas: 2\n"}`,
		"slurm_gres": `{
			"gres_conf": "NodeName=gpu[01-02] Name=gpu Type=a100 File=/dev/nvidia0 Cores=0-31\n` +
			`NodeName=gpu[01-02] Name=gpu Type=a100 File=/dev/nvidia1 Cores=32-63\n` +
			`NodeName=gpu[01-02] Name=gpu Type=t4 File=/dev/nvidia2\n` +
			`NodeName=gpu[01-02] Name=mps Count=100 File=/dev/nvidia1\n` +
			`NodeName=gpu[01-02] Name=shard Count=4 File=/dev/nvidia2\n` +
			`NodeName=gpu03 AutoDetect=off Name=gpu Type=3g.40gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22\n` +
			`NodeName=gpu03 AutoDetect=off Name=gpu Type=3g.40gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap30,/dev/nvidia-caps/nvidia-cap31\n",
			"slurm_conf": ["GresTypes=gpu,mps,shard", "NodeName=gpu03 Gres=gpu:3g.40gb:2", "NodeName=gpu[01-02] Gres=gpu:a100:2,gpu:t4:1,mps:100,shard:4"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := copyExample(t, vdiFleet, filepath.Join(examplesDir, "functions", name, "function.tf"))
			e.apply()
			var outputs map[string]struct{ Value any }
			if err := json.Unmarshal([]byte(e.ok("output", "-json")), &outputs); err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			for output, o := range outputs {
				got[output] = o.Value
			}
			var wanted map[string]any
			if err := json.Unmarshal([]byte(want), &wanted); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			e.wantNoChanges()
		})
	}
	wantFolders(t, "functions", "device_plugin_config", "from_mig_parted", "mig_parted_config", "slurm_gres")
}
