package vmassignment_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/compare"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// reserves is an assignment that reserves a vGPU of config "desks" for a VM of its name.
func reserves(vm string, more ...string) string {
	also := ""
	for _, m := range more {
		also += ", " + m
	}
	return fmt.Sprintf("resource \"gpu_vm_assignment\" %q {\n  vm        = %q\n  partition = { config = gpu_partition_config.desks.id, "+
		"attach = \"none\"%s }\n}\n", vm, vm, also)
}

// says is an error that says some things one after the other, however the CLI breaks its lines.
func says(what ...string) *regexp.Regexp {
	return regexp.MustCompile("(?s)" + strings.ReplaceAll(strings.Join(what, ".*"), " ", `\s+`))
}

const web01 = "gpu_vm_assignment.web-01"

func address(of, want string) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(of, rig.Jsonpath("partition_address"), knownvalue.StringExact(want))
}

// A vGPU is reserved for a VM that is still to come, stays reserved while the VM comes and goes, and is given up in the end. No VM is
// touched, and no vGPU is given twice.
func TestAccVMAssignment_ReservesAVGPU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0)))
	config := r.Block() + rig.VGPUOf("desks", rig.TwoDesks)
	both := config + reserves("web-01") + reserves("web-02")
	r.Steps(
		resource.TestStep{
			Config: both,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue(web01, rig.Jsonpath("partition_address")),
				plancheck.ExpectUnknownValue(web01, rig.Jsonpath("gpu_ids")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(web01, rig.Jsonpath("vm_id"), knownvalue.StringExact("web-01")),
				statecheck.ExpectKnownValue(web01, rig.Jsonpath("owner_host"), knownvalue.StringExact("kvm01")),
				statecheck.ExpectKnownValue(web01, rig.Jsonpath("partition_uuid"), knownvalue.Null()),
				statecheck.ExpectKnownValue(web01, rig.Jsonpath("partition_vram_mib"), knownvalue.Int64Exact(12*1024)),
				statecheck.ExpectKnownValue(web01, rig.Jsonpath("gpu_ids"), knownvalue.SetExact([]knownvalue.Check{
					knownvalue.StringExact(rig.VGPUCard(0)),
				})),
				statecheck.CompareValuePairs(web01, rig.Jsonpath("partition_address"), "gpu_vm_assignment.web-02", rig.Jsonpath("partition_address"),
					compare.ValuesDiffer()),
			},
			Check: rig.Then(func() {
				r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0)
				r.WantClaims([]string{"kvm01"}, "partition_config desks", "vm_assignment web-01", "vm_assignment web-02")
				r.WantSettled()
			}),
		},
		resource.TestStep{Config: both, PlanOnly: true},
		resource.TestStep{ // there are two
			Config:      both + reserves("web-03"),
			ExpectError: says("No free vGPU", "2 vGPUs of partition config desks there are taken, by the assignment of VM web-01 and"),
		},
		resource.TestStep{ // what is reserved is not removed
			Config:      r.Block() + rig.VGPUOf("desks", `type = "L40S-12Q", count = 1`) + reserves("web-01") + reserves("web-02"),
			ExpectError: says("vGPUs in use block the change", "the assignment of VM web-0[12]"),
		},
		resource.TestStep{Config: config + reserves("web-01"), Check: rig.Then(func() {
			r.WantClaims([]string{"kvm01"}, "partition_config desks", "vm_assignment web-01")
		})},
		resource.TestStep{
			ResourceName: web01, ImportState: true, ImportStateId: "kvm01/web-01", ImportStateVerify: true,
			ImportStateVerifyIdentifierAttribute: "vm_id",
		},
		resource.TestStep{
			ResourceName: web01, ImportState: true, ImportStateId: "web-01", ImportStateVerify: true,
			ImportStateVerifyIdentifierAttribute: "vm_id",
		},
		resource.TestStep{Config: config},
	)
	r.WantClaims([]string{"kvm01"})
	r.WantSettled()
}

// The reservation follows its VM where that names another vGPU that is free, and says so; it does not follow one that is another's.
func TestAccVMAssignment_ReservationFollowsItsVM(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0)))
	config := r.Block() + rig.VGPUOf("desks", rig.FourDesks) + reserves("web-01")
	place := func(function int) gpu.VGPUPlace { return r.Placed(0, "L40S-12Q", function) }
	r.Steps(
		resource.TestStep{
			Config: config, ConfigStateChecks: []statecheck.StateCheck{address(web01, "0000:41:00.4")},
			Check: rig.Then(func() { r.Must(r.Fleet.DefineVM(t.Context(), "kvm01", rig.VGPUCard(0), place(0), "web-01", gpu.VMOff)) }),
		},
		resource.TestStep{Config: config, PlanOnly: true}, // it names what is reserved
		resource.TestStep{PreConfig: func() {
			r.Must(r.Fleet.UndefineVM(t.Context(), "kvm01", "web-01"))
			r.Must(r.Fleet.DefineVM(t.Context(), "kvm01", rig.VGPUCard(0), place(2), "web-01", gpu.VMRunning))
		}, RefreshState: true, ExpectNonEmptyPlan: true},
		resource.TestStep{
			Config: config, ConfigPlanChecks: rig.Planned(web01, plancheck.ResourceActionUpdate),
			ConfigStateChecks: []statecheck.StateCheck{address(web01, "0000:41:00.6")},
			Check: rig.Then(func() {
				if vm := r.Host("kvm01").HostDevices; len(vm) != 1 || vm[0].State != gpu.VMRunning {
					t.Errorf("the VM is touched: %+v", vm)
				}
			}),
		},
		resource.TestStep{PreConfig: func() { // another VM's
			r.Must(r.Fleet.UndefineVM(t.Context(), "kvm01", "web-01"))
			r.Must(r.Fleet.DefineVM(t.Context(), "kvm01", rig.VGPUCard(0), place(3), "web-09", gpu.VMOff))
			r.Must(r.Fleet.DefineVM(t.Context(), "kvm01", rig.VGPUCard(0), place(3), "web-01", gpu.VMOff))
		}, Config: config, PlanOnly: true},
	)
	r.WantSettled()
}
