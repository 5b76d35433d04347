package rig

import (
	"fmt"
	"strings"
)

// Block is a provider block for the rig's fleet, owner "test", with more arguments.
func (r *Rig) Block(more ...string) string { return r.BlockOf("test", more...) }

// BlockOf is a provider block for the rig's fleet and an owner, or for none if it is "".
func (r *Rig) BlockOf(owner string, more ...string) string {
	if owner != "" {
		more = append([]string{fmt.Sprintf("owner = %q", owner)}, more...)
	}
	return fmt.Sprintf("provider \"gpu\" {\n  simulated_fleet = %q\n  %s\n}\n", r.Fleet.Path(), strings.Join(more, "\n  "))
}

// LateBlock is a provider block that goes by terraform_data.fleet.output, the path of the rig's fleet,
// which is known only at apply: of each generation anew.
func (r *Rig) LateBlock(generation int, where string) string {
	return fmt.Sprintf("resource \"terraform_data\" \"fleet\" {\n  input            = %q\n  triggers_replace = %d\n}\nprovider \"gpu\" {\n  "+
		"%s\n  owner = \"test\"\n}\n",
		r.Fleet.Path(), generation, where)
}

// BlockFor is a provider block that names some hosts of the rig's fleet one by one.
func (r *Rig) BlockFor(hosts []string, more ...string) string {
	var b strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&b, "    %s = { simulated = { file = %q } }\n", h, r.Fleet.Path())
	}
	return fmt.Sprintf("provider \"gpu\" {\n  owner = \"test\"\n  hosts = {\n%s  }\n  %s\n}\n", b.String(), strings.Join(more, "\n  "))
}

// VDI is the address of the partition config that configOf makes.
const VDI = "gpu_partition_config.vdi"

// ConfigOf is a partition config "vdi" of so many partitions on hosts, with more
// arguments.
func ConfigOf(count int, hosts []string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_partition_config\" \"vdi\" {\n  name  = \"vdi\"\n  hosts = [\"%s\"]\n  gpu_p = { partition_count = "+
		"%d }\n  %s\n}\n",
		strings.Join(hosts, `", "`), count, strings.Join(more, "\n  "))
}

// Config4 is a partition config of four partitions on both nodes of twoNodes.
var Config4 = ConfigOf(4, Both)

// AssignAll gives each of the VMs, which may be shut down, a partition of any config.
func AssignAll(names []string, more string) string {
	return fmt.Sprintf("resource \"gpu_vm_assignment\" \"avd\" {\n  for_each  = toset([\"%s\"])\n  vm        = each.key\n  partition = {}\n "+
		" power     = { allow_shutdown = true }\n%s}\n",
		strings.Join(names, `", "`), more)
}

// AssignmentOf is an assignment with a name in the configuration.
func AssignmentOf(name, vm string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_vm_assignment\" %q {\n  vm = %q\n  %s\n}\n", name, vm, strings.Join(more, "\n  "))
}

// Assignment is an assignment called a.
func Assignment(vm string, more ...string) string { return AssignmentOf("a", vm, more...) }

// Assign gives a VM a partition of config "vdi".
func Assign(vm, power string, more ...string) string {
	return AssignmentOf(vm, vm, "partition = {\n    config = gpu_partition_config.vdi.id\n    "+strings.Join(more, "\n    ")+"\n  }",
		Power(power))
}

// Power is the power policy of an assignment, if it has one.
func Power(power string) string {
	if power == "" {
		return ""
	}
	return "power = { " + power + " }"
}

// Arguments of assignments.
const (
	AnyPartition = "partition = {}"
	MayStop      = "power = { allow_shutdown = true }"
)

// WholeGPU is what a VM needs for n whole A2.
func WholeGPU(n int) string {
	return `automatic_stop_action = "turn_off"` + "\n" + `low_memory_mapped_io_space_mib = 512` + "\n" +
		`high_memory_mapped_io_space_mib = ` + map[int]string{1: "16928", 2: "33344"}[n]
}

// RenderPool is a pool called render with more arguments.
func RenderPool(more ...string) string {
	return fmt.Sprintf("resource \"gpu_pool\" \"render\" {\n  name = \"render\"\n  %s\n}\n", strings.Join(more, "\n  "))
}

// Arguments of pools on twoNodes.
const (
	SecondGPUs = `members = { hv01 = ["` + GPU1 + `"], hv02 = ["` + GPU1 + `"] }`
	AllGPUs    = `members = { hv01 = ["` + GPU0 + `", "` + GPU1 + `"], hv02 = ["` + GPU0 + `", "` + GPU1 + `"] }`
	MountBack  = `on_destroy = "mount_back"`
	ByForce    = `dismount = { force = true }`
)

// HeldConfig is a config and two VMs on hv01 that hold partitions of it.
func HeldConfig(count int, more ...string) string {
	return ConfigOf(count, Both, more...) + Assign("avd-01", "allow_shutdown = true") + Assign("avd-02", "allow_shutdown = true") + `
output "all" {
  value = [gpu_partition_config.vdi, gpu_vm_assignment.avd-01, gpu_vm_assignment.avd-02]
}
`
}

// What a rollout does when it fails.
const (
	Undo   = `rollout = { on_failure = "rollback" }`
	GoNoOn = `rollout = { on_failure = "stop" }`
)
