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

// What resources tell goes into functions as it is, alone, beside others, and one host of it.
func TestFunctionsTakeWhatResourcesGive(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 3))
	out := statecheck.ExpectKnownOutputValue
	text := knownvalue.StringExact
	const mig0 = "NodeName=hgx01 Name=gpu Type=3g.40gb MultipleFiles=/dev/nvidia0," +
		"/dev/nvidia-caps/nvidia-cap12,/dev/nvidia-caps/nvidia-cap13 Cores=0-15\n"
	const mig1 = "NodeName=hgx01 Name=gpu Type=3g.40gb MultipleFiles=/dev/nvidia1," +
		"/dev/nvidia-caps/nvidia-cap147,/dev/nvidia-caps/nvidia-cap148 Cores=16-31\n"
	const whole = "NodeName=hgx01 Name=gpu Type=nvidia_h100_80gb_hbm3 File=/dev/nvidia2 Cores=32-47\n"
	r.Steps(resource.TestStep{
		Config: r.Block() + rig.MIGOf("ml", `placements = [{ profile = "3g.40gb", start = 4 }]`,
			`selector = { gpu_ids = { hgx01 = ["`+rig.MIGGPU(0)+`", "`+rig.MIGGPU(1)+`"] } }`) + `
data "gpu_inventory" "all" { depends_on = [gpu_partition_config.ml] }
locals { gpus = gpu_partition_config.ml.gpus }
output "config"    { value = provider::gpu::slurm_gres(local.gpus).conf }
output "inventory" { value = provider::gpu::slurm_gres(data.gpu_inventory.all.inventory).conf }
output "both"      { value = provider::gpu::slurm_gres([local.gpus, data.gpu_inventory.all.inventory]).conf }
output "named" {
  value = provider::gpu::slurm_gres([for host, on in data.gpu_inventory.all.inventory :
    { name = "gpu-${host}", type = "h100", gpus = values(on.gpus) }])
}
output "mig_parted" { value = provider::gpu::mig_parted_config({ ml = local.gpus }) }
output "one_host"   { value = provider::gpu::mig_parted_config({ ml = local.gpus["hgx01"] }) }
output "plugin" {
  value = provider::gpu::device_plugin_config({ gpus = local.gpus, time_slicing = { resources = { "mig-3g.40gb" = 4 } } })
}
output "dra" {
  value = provider::gpu::dra_resources({ name = "ml", gpus = local.gpus }) == provider::gpu::dra_resources({
    name = "ml"
    gpus = [local.gpus, { for host, on in data.gpu_inventory.all.inventory : host => {
      gpus = { for id, g in on.gpus : id => g if g.mig_enabled }
    } }]
  })
}`,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectUnknownOutputValue("config"), plancheck.ExpectUnknownOutputValue("mig_parted"),
			plancheck.ExpectUnknownOutputValue("plugin"),
		}},
		ConfigStateChecks: []statecheck.StateCheck{
			out("config", text(mig0+mig1)), out("inventory", text(mig0+mig1+whole)), out("both", text(mig0+mig1+whole)),
			out("named", knownvalue.ObjectPartial(map[string]knownvalue.Check{
				"gres": knownvalue.MapExact(map[string]knownvalue.Check{"gpu-hgx01": text("gpu:3g.40gb:2,gpu:h100:1")}),
			})),
			out("mig_parted", text(`version: v1
mig-configs:
  "ml":
    - device-filter: ["0x233010DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "3g.40gb": 1
`)),
			out("one_host", knownvalue.StringRegexp(regexp.MustCompile(`"3g.40gb": 1\n$`))),
			out("plugin", text(`version: v1
flags:
  migStrategy: mixed
sharing:
  timeSlicing:
    resources:
      - name: nvidia.com/mig-3g.40gb
        replicas: 4
`)),
			out("dra", knownvalue.Bool(true)),
		},
	})
}

// A mistake beside what a plan does not know yet is told by the plan, before a GPU is touched.
func TestAMistakeIsToldBeforeTheHardwareChanges(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 2))
	config := r.Block() + rig.MIGOf("ml", rig.Balanced)
	for call, says := range map[string]string{
		`slurm_gres([{ name = "gpu 01", gpus = gpu_partition_config.ml.gpus["hgx01"].gpus }])`:      `it is not the name of a node`,
		`slurm_gres([{ name = "gpu01", autodetect = "off", gpus = gpu_partition_config.ml.gpus }])`: `there is no attribute "autodetect"`,
		`mig_parted_config({ ml = { model = ["A100"], profiles = gpu_partition_config.ml.gpus } })`: `there is no attribute "model"`,
		`device_plugin_config({ mig_strategy = "mixd", gpus = gpu_partition_config.ml.gpus })`:      `mig_strategy is "mixd"`,
		`dra_resources({ name = "ML", gpus = gpu_partition_config.ml.gpus })`:                       `"ML" is not a name`,
	} {
		pattern := `(?i)` + strings.ReplaceAll(regexp.QuoteMeta(says), " ", `\s+`)
		r.Steps(resource.TestStep{
			Config:      config + "output \"o\" { value = provider::gpu::" + call + " }",
			ExpectError: regexp.MustCompile(pattern), PlanOnly: true,
		})
	}
	r.WantLayout("off", 0, 1)
	r.WantClaims([]string{"hgx01"})
}

// What another program would refuse on the nodes, or misread, is refused with its reason.
func TestMixesThatOtherProgramsRefuse(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	const locals = `
locals {
  one = [{ profile = "3g.40gb", capabilities = [12, 13] }]
  mixed = { n1 = { gpus = {
    GPU-1 = { model = "H100 80GB HBM3", device_minor = 0, layout = "mig:3g.40gb@0", instances = local.one }
    GPU-2 = { model = "H100 80GB HBM3", device_minor = 1, layout = "mig:off", instances = [] }
  } } }
  empty = { n1 = { gpus = { GPU-1 = { model = "H100 80GB HBM3", device_minor = 0, layout = "mig:none", instances = [] } } } }
  two = [{ profile = "3g.40gb", capabilities = null }]
  dark = { n1 = { gpus = {
    GPU-1 = { model = "H100 80GB HBM3", device_minor = null, layout = "mig:off", instances = [] }
    GPU-2 = { model = "H100 80GB HBM3", device_minor = 1, layout = "mig:3g.40gb@0", instances = local.two }
  } } }
  vm = { n1 = { platform = "linux", gpus = {
    GPU-1 = { model = "L40S", device_minor = 0, mig_enabled = null, vgpus = [{ type = "L40S-12Q" }] }
  } } }
  hv = { hv01 = { platform = "hyperv", gpus = {} } }
  uneven = { n1 = { gpus = {
    GPU-1 = { model = "H100 80GB HBM3", layout = "mig:3g.40gb@0+1g.10gb@4", instances = [{ profile = "3g.40gb" }, { profile = "1g.10gb" }] }
  } } }
}
`
	var steps []resource.TestStep
	for call, says := range map[string]string{
		`device_plugin_config({ gpus = local.mixed, mig_strategy = "single" })`:  `of GPU GPU-1 and GPU GPU-2 on node "n1" one is in MIG mode`,
		`device_plugin_config({ gpus = local.mixed, mig_strategy = "none" })`:    `the plugin would offer it as a whole GPU`,
		`device_plugin_config({ gpus = local.empty, mig_strategy = "single" })`:  `is in MIG mode without an instance`,
		`device_plugin_config({ gpus = local.uneven, mig_strategy = "single" })`: `node "n1" has MIG devices of 3g.40gb and of 1g.10gb`,
		`device_plugin_config({ gpus = local.mixed, mig_strategy = "none", mps = { resources = { gpu = 2 } } })`: `the plugin does not ` +
			`start on the node`,
		`device_plugin_config({ gpus = local.mixed, time_slicing = { resources = { "mig-1g.10gb" = 2 } } })`: `no GPU in gpus is offered as ` +
			`"mig-1g.10gb", but as nvidia.com/gpu, nvidia.com/mig-3g.40gb`,
		`slurm_gres(local.empty)`: `it has no GPU`,
		`slurm_gres({ n1 = { gpus = { GPU-1 = local.dark.n1.gpus["GPU-1"] } } })`: `device_minor is null`,
		`slurm_gres({ n1 = { gpus = { GPU-2 = local.dark.n1.gpus["GPU-2"] } } })`: `the capabilities of its instance 3g.40gb are null`,
		`slurm_gres(local.vm)`:                            `has the layout "vgpu", by which its host shares it; Slurm would`,
		`slurm_gres(local.hv)`:                            `it is a host of platform hyperv, whose GPUs have no device nodes`,
		`mig_parted_config({ x = local.mixed })`:          `are of the model "H100 80GB HBM3" and have unlike layouts`,
		`mig_parted_config({ x = [local.vm] })`:           `mig-parted would give it out a second time`,
		`slurm_gres({ n1 = { name = "n2", gpus = [] } })`: `name is the key already`,
	} {
		pattern := `(?i)` + strings.ReplaceAll(regexp.QuoteMeta(says), " ", `\s+`)
		steps = append(steps, resource.TestStep{
			Config: locals + "output \"o\" { value = provider::gpu::" + call + " }", ExpectError: regexp.MustCompile(pattern),
		})
	}
	r.Steps(steps...)
}

// A file of the device plugin that somebody wrote, read and written again, says the same.
func TestDevicePluginConfigThereAndBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	const file = `
locals {
  file = <<-EOT
    version: v1
    flags:
      migStrategy: mixed
      failOnInitError: no
      plugin:
        deviceListStrategy: [cdi-cri, envvar]
    sharing:
      timeSlicing:
        renameByDefault: true
        resources:
        - {name: nvidia.com/mig-1g.10gb, replicas: 4}
        - {name: gpu, replicas: 2}
  EOT
}
`
	steps := []resource.TestStep{{
		Config: file + `
output "read"  { value = provider::gpu::from_device_plugin_config(local.file) }
output "again" { value = provider::gpu::device_plugin_config(provider::gpu::from_device_plugin_config(local.file)) }
output "same" {
  value = provider::gpu::from_device_plugin_config(local.file) == provider::gpu::from_device_plugin_config(
    provider::gpu::device_plugin_config(provider::gpu::from_device_plugin_config(local.file)))
}`,
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownOutputValue("read", knownvalue.ObjectPartial(map[string]knownvalue.Check{
				"mig_strategy": knownvalue.StringExact("mixed"), "mps": knownvalue.Null(),
				"flags": knownvalue.ObjectPartial(map[string]knownvalue.Check{"fail_on_init_error": knownvalue.Bool(false)}),
			})),
			statecheck.ExpectKnownOutputValue("same", knownvalue.Bool(true)),
			statecheck.ExpectKnownOutputValue("again", knownvalue.StringExact(`version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  plugin:
    deviceListStrategy:
      - cdi-cri
      - envvar
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
      - name: nvidia.com/gpu
        replicas: 2
      - name: nvidia.com/mig-1g.10gb
        replicas: 4
`)),
		},
	}}
	for text, says := range map[string]string{
		`version: v2`:                           `the version is "v2", but v1 is wanted`,
		`{flags: {gfd: {oneshot: true}}}`:       `unknown field "gfd"`,
		`{sharing: {mps: {resources: []}}}`:     `it has no resource to share`,
		`{flags: {migStrategy: both}}`:          `mig_strategy is "both"`,
		`a: 1\n---\nb: 2`:                       `more than one YAML document`,
		`{flags: {failOnInitError: \"maybe\"}}`: `cannot unmarshal string`,
		`{sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 3}]}}}`: `is there twice`,
		`{sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0]}]}}}`:                        `unknown field "devices"`,
	} {
		pattern := `(?i)` + strings.ReplaceAll(regexp.QuoteMeta(says), " ", `\s+`)
		steps = append(steps, resource.TestStep{
			Config: `output "o" { value = provider::gpu::from_device_plugin_config("` + text + `") }`, ExpectError: regexp.MustCompile(pattern),
		})
	}
	r.Steps(steps...)
}
