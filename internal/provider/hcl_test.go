package provider_test

import (
	"fmt"
	"strings"
)

// block is a provider block for the rig's fleet, owner "test", with more arguments.
func (r *rig) block(more ...string) string { return r.blockOf("test", more...) }

// blockOf is a provider block for the rig's fleet and an owner, or for none if it is "".
func (r *rig) blockOf(owner string, more ...string) string {
	if owner != "" {
		more = append([]string{fmt.Sprintf("owner = %q", owner)}, more...)
	}
	return fmt.Sprintf("provider \"gpu\" {\n  simulated_fleet = %q\n  %s\n}\n", r.fleet.Path(), strings.Join(more, "\n  "))
}

// blockFor is a provider block that names some hosts of the rig's fleet one by one.
func (r *rig) blockFor(hosts []string, more ...string) string {
	var b strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&b, "    %s = { simulated = { file = %q } }\n", h, r.fleet.Path())
	}
	return fmt.Sprintf("provider \"gpu\" {\n  owner = \"test\"\n  hosts = {\n%s  }\n  %s\n}\n", b.String(), strings.Join(more, "\n  "))
}

// vdi is the address of the partition config that configOf makes.
const vdi = "gpu_partition_config.vdi"

// configOf is a partition config "vdi" of so many partitions on hosts, with more
// arguments.
func configOf(count int, hosts []string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_partition_config\" \"vdi\" {\n  name  = \"vdi\"\n  hosts = [\"%s\"]\n  gpu_p = { partition_count = %d }\n  %s\n}\n",
		strings.Join(hosts, `", "`), count, strings.Join(more, "\n  "))
}

// config4 is a partition config of four partitions on both nodes of twoNodes.
var config4 = configOf(4, both)

// assignmentOf is an assignment with a name in the configuration.
func assignmentOf(name, vm string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_vm_assignment\" %q {\n  vm = %q\n  %s\n}\n", name, vm, strings.Join(more, "\n  "))
}

// assignment is an assignment called a.
func assignment(vm string, more ...string) string { return assignmentOf("a", vm, more...) }

// assign gives a VM a partition of config "vdi".
func assign(vm, power string, more ...string) string {
	return assignmentOf(vm, vm, "partition = {\n    config = gpu_partition_config.vdi.id\n    "+strings.Join(more, "\n    ")+"\n  }", "power = { "+power+" }")
}

// Arguments of assignments.
const (
	anyPartition = "partition = {}"
	mayStop      = "power = { allow_shutdown = true }"
)

// wholeGPU is what a VM needs for n whole A2.
func wholeGPU(n int) string {
	return `automatic_stop_action = "turn_off"` + "\n" + `low_memory_mapped_io_space_mib = 512` + "\n" +
		`high_memory_mapped_io_space_mib = ` + map[int]string{1: "16928", 2: "33344"}[n]
}

// renderPool is a pool called render with more arguments.
func renderPool(more ...string) string {
	return fmt.Sprintf("resource \"gpu_pool\" \"render\" {\n  name = \"render\"\n  %s\n}\n", strings.Join(more, "\n  "))
}

// Arguments of pools on twoNodes.
const (
	secondGPUs = `members = { hv01 = ["` + gpu1 + `"], hv02 = ["` + gpu1 + `"] }`
	allGPUs    = `members = { hv01 = ["` + gpu0 + `", "` + gpu1 + `"], hv02 = ["` + gpu0 + `", "` + gpu1 + `"] }`
	mountBack  = `on_destroy = "mount_back"`
	byForce    = `dismount = { force = true }`
)
