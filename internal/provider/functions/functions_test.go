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
	r := rig.New(t, rig.TwoNodes())
	number := knownvalue.Int64Exact
	r.Steps(resource.TestStep{
		Config: migPartedFile + `
output "balanced" { value = provider::gpu::from_mig_parted(local.file, "all-balanced") }
output "off"      { value = provider::gpu::from_mig_parted(local.file, "all-disabled") }
output "again" {
  value = provider::gpu::mig_parted_config({ all-balanced = provider::gpu::from_mig_parted(local.file, "all-balanced") })
}`,
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownOutputValue("balanced", knownvalue.ListExact([]knownvalue.Check{
				entryValue(textList("NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB"), textList("0x20B010DE", "0x20F110DE", "0xFFFF10DE"),
					knownvalue.Null(), true,
					map[string]knownvalue.Check{"3g.20gb": number(1), "1g.5gb": number(2)}),
				entryValue(knownvalue.Null(), knownvalue.Null(), knownvalue.ListExact([]knownvalue.Check{number(1), number(3)}), true, nil),
			})),
			statecheck.ExpectKnownOutputValue("off", knownvalue.ListExact([]knownvalue.Check{
				entryValue(knownvalue.Null(), knownvalue.Null(), knownvalue.Null(), false, nil),
			})),
			statecheck.ExpectKnownOutputValue("again", knownvalue.StringExact(`version: v1
mig-configs:
  "all-balanced":
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

// What one of the two takes the other one takes, from a ConfigMap too, and a module's counts of 0 are none.
func TestMIGPartedConfigMapThereAndBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(resource.TestStep{
		Config: `
locals {
  labels = {
    off = [{ mig_enabled = false, devices = [] }]
    on = [
      { models = ["A100-PCIE-40GB"], profiles = { "1g.5gb+me" = 1, "1g.10gb-me" = 2, "1g.10gb+gfx" = 0 } },
      { devices = [0], profiles = {} },
    ]
  }
  text = provider::gpu::mig_parted_config(local.labels)
  map  = jsonencode({ apiVersion = "v1", kind = "ConfigMap", metadata = { name = "mig" }, data = { "config.yaml" = local.text } })
}
output "same" {
  value = local.text == provider::gpu::mig_parted_config({ for l, _ in local.labels : l => provider::gpu::from_mig_parted(local.map, l) })
}
output "text" { value = local.text }`,
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownOutputValue("same", knownvalue.Bool(true)),
			statecheck.ExpectKnownOutputValue("text", knownvalue.StringExact(`version: v1
mig-configs:
  "off":
    - devices: []
      mig-enabled: false
  "on":
    - device-filter: ["0x20B110DE", "0x20F110DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb-me": 2
        "1g.5gb+me": 1
    - devices: [0]
      mig-enabled: true
      mig-devices: {}
`)),
		},
	})
}

func TestFunctionsRefuse(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	tests := map[string]string{
		`provider::gpu::from_mig_parted("a: b", "x")`: `field a not found`,
		`provider::gpu::from_mig_parted(local.file, "all-9g")`: `There is no label "all-9g"; there ` +
			`are all-balanced, all-disabled, shared`,
		`provider::gpu::from_mig_parted(local.file, "shared")`: `write the profile of the GPU ` +
			`instance, as in "3g.20gb"`,
		`provider::gpu::mig_parted_config("x")`:          `labels: an object is wanted`,
		`provider::gpu::mig_parted_config({})`:           `at least one label`,
		`provider::gpu::mig_parted_config({ x = [] })`:   `Label "x" has no entry`,
		`provider::gpu::mig_parted_config({ x = null })`: `Label "x": an object is wanted`,
		`provider::gpu::mig_parted_config({ x = ["all"] })`: `Label "x": entry 1: an object is ` +
			`wanted`,
		`provider::gpu::mig_parted_config({ x = { half = 1 } })`:          `"half", which is not a MIG profile`,
		`provider::gpu::mig_parted_config({ x = { "1g.5gb" = 1.5 } })`:    `"1g.5gb": 1.5 is not a whole number`,
		`provider::gpu::mig_parted_config({ x = { "1g.5gb" = "many" } })`: `"1g.5gb": a number is wanted`,
		`provider::gpu::mig_parted_config({ x = { "1g.5gb" = 0 } })`:      `Label "x": profiles has 0 of "1g.5gb", but at least 1`,
		`provider::gpu::mig_parted_config({ x = { profiles = {}, mode = 1 } })`: `there is no attribute "mode", but ` +
			`device_filter, devices`,
		`provider::gpu::mig_parted_config({ x = { models = ["Voodoo 2"] } })`: `models: the catalog knows no GPU ` +
			`model "Voodoo 2"`,
		`provider::gpu::mig_parted_config({ x = { models = "A30" } })`: `models: a list is wanted`,
		`provider::gpu::mig_parted_config({ x = { models = ["A30"], profiles = { "1g.10gb" = 2 } } })`: `profiles: GPU ` +
			`model "A30" has no "1g.10gb", but 1g.6gb`,
		`provider::gpu::slurm_gres([{ name = "n1", gpus = [{ device = 0, shards = 0 }] }])`: `shards is 0`,
		`provider::gpu::slurm_gres([{ name = "n1", gpus = [{ device = 0, mig = [] }] }])`:   `mig is an empty list`,
		`provider::gpu::slurm_gres([{ name = "n[1-2]", gpus = [{ device = 0 }] }, { name = "n2", gpus = [{ device = 0 }] }])`: `Node "n2" is ` +
			`there twice`,
		`provider::gpu::mig_parted_config({ x = { models = [] } })`: "models: an empty list would stand for every GPU",
		`provider::gpu::mig_parted_config({ x = { device_filter = ["A30"] } })`: `device_filter: "A30" is not a PCI ` +
			`device id`,
		`provider::gpu::mig_parted_config({ x = { devices = ["all"] } })`:  `devices: a number is wanted`,
		`provider::gpu::mig_parted_config({ x = { devices = [-1] } })`:     `the index -1`,
		`provider::gpu::mig_parted_config({ x = { mig_enabled = "on" } })`: `mig_enabled: true or false is wanted`,
		`provider::gpu::mig_parted_config({ x = { mig_enabled = false, profiles = { "1g.5gb" = 1 } } })`: `Label "x": profiles are given, but ` +
			`mig_enabled is false`,
	}
	// One full stop, which Terraform writes, and the name of an argument as it is.
	steps := []resource.TestStep{{
		Config:      `output "o" { value = provider::gpu::mig_parted_config("x") }`,
		ExpectError: regexp.MustCompile(`: labels:\s+an\s+object\s+is\s+wanted\.\s`),
	}}
	for call, says := range tests {
		// Terraform breaks lines as it likes.
		pattern := strings.ReplaceAll(regexp.QuoteMeta(says), " ", `\s+`)
		steps = append(steps, resource.TestStep{
			Config: migPartedFile + "output \"o\" { value = " + call + " }", ExpectError: regexp.MustCompile(pattern),
		})
	}
	r.Steps(steps...)
}

// A value inside the argument that is known only after the apply makes the text so.
func TestMIGPartedConfigOfSomethingUnknown(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(resource.TestStep{
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
