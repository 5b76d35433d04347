package vmassignment_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// withVMs is a fleet of one Linux host with VMs, whose ids go from 1 on.
func withVMs(f gpu.Snapshot, vms ...gpu.VM) gpu.Snapshot {
	for i := range vms {
		vms[i].ID = rig.VMID(i + 1)
	}
	f.Hosts[0].VMs = vms
	return f
}

// attaches is an assignment that gives a VM a vGPU of config "desks".
func attaches(vm string, more ...string) string {
	return fmt.Sprintf("resource \"gpu_vm_assignment\" %q {\n  vm        = %q\n  partition = { config = gpu_partition_config.desks.id }\n  "+
		"%s\n}\n", vm, vm, strings.Join(more, "\n  "))
}

const mayStop = `power = { allow_shutdown = true }`

// defines is what the definitions of VMs name: "web-01 0000:41:00.4 running".
func defines(r *rig.Rig) string {
	var out []string
	for _, d := range r.Host("kvm01").HostDevices {
		if !strings.HasPrefix(d.Alias, "ua-gpu-") {
			out = append(out, "foreign "+d.Alias)
		}
		out = append(out, fmt.Sprintf("%s %s%s %s", d.VM, d.Address, d.UUID, d.State))
	}
	return strings.Join(out, ", ")
}

// A VM of libvirt's is shut down, given a vGPU and started again, as one of Hyper-V is; in the end it has none, and the vGPU is still
// there.
func TestAccVMAssignment_GivesAVMOfLibvirtAVGPU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withVMs(rig.KVM(rig.L40s(0)), gpu.VM{Name: "web-01", State: gpu.VMRunning}, gpu.VM{Name: "web-02", State: gpu.VMOff}))
	config := r.Block() + rig.VGPUOf("desks", rig.TwoDesks)
	both := config + attaches("web-01", mayStop) + attaches("web-02")
	r.Steps(
		resource.TestStep{
			Config: config + attaches("web-01"), ExpectError: says("The VM must be off", "does not allow to shut it down"),
		},
		resource.TestStep{
			Config: both,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue(web01, rig.Jsonpath("partition_address")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(web01, rig.Jsonpath("vm_id"), knownvalue.StringExact(rig.VMID(1))),
				statecheck.ExpectKnownValue(web01, rig.Jsonpath("partition_address"), knownvalue.NotNull()),
				statecheck.ExpectKnownValue(web01, rig.Jsonpath("partition_vram_mib"), knownvalue.Int64Exact(12*1024)),
			},
			Check: rig.Then(func() {
				if got := defines(r); got != "web-01 0000:41:00.4 running, web-02 0000:41:00.5 off" &&
					got != "web-02 0000:41:00.4 off, web-01 0000:41:00.5 running" {
					t.Errorf("definitions name %s", got)
				}
				r.WantSettled()
			}),
		},
		resource.TestStep{Config: both, PlanOnly: true},
		resource.TestStep{
			ResourceName: web01, ImportState: true, ImportStateId: "kvm01/web-01", ImportStateVerify: true,
			ImportStateVerifyIdentifierAttribute: "vm_id", ImportStateVerifyIgnore: []string{"timeouts"},
		},
		resource.TestStep{ // one is taken back
			Config: r.Block() + rig.VGPUOf("desks", rig.TwoDesks) + attaches("web-01", mayStop),
			Check: rig.Then(func() {
				if vm, _ := r.VM("web-02"); len(vm.Devices) != 0 {
					t.Errorf("web-02 has %+v", vm.Devices)
				}
			}),
		},
		resource.TestStep{Config: config + attaches("web-01")}, // the permission goes
		resource.TestStep{Config: config, ExpectError: says("The VM must be off")},
		resource.TestStep{Config: config + attaches("web-01", mayStop)},
	)
	if got := defines(r); got != "" {
		t.Errorf("after the destroy definitions name %s", got)
	}
	if vm, _ := r.VM("web-01"); vm.State != gpu.VMRunning {
		t.Errorf("web-01 is %s", vm.State)
	}
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0)
	r.WantClaims([]string{"kvm01"})
	r.WantSettled()
}

// A VM that does not start with its vGPU gets back what it had, and runs as before; nothing is on record.
func TestAccVMAssignment_AVMOfLibvirtThatDoesNotStartIsPutBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withVMs(rig.KVM(rig.L40s(0)), gpu.VM{Name: "web-01", State: gpu.VMRunning}))
	config := r.Block() + rig.VGPUOf("desks", rig.TwoDesks)
	r.Steps(
		resource.TestStep{Config: config, Check: rig.Then(func() {
			r.Must(r.Fleet.SetGuest(t.Context(), "web-01", simulated.Guest{StartFails: simulated.StartFailsWithGPU}))
		})},
		resource.TestStep{Config: config + attaches("web-01", mayStop), ExpectError: says("failed to start")},
	)
	if vm, _ := r.VM("web-01"); vm.State != gpu.VMRunning || defines(r) != "" {
		t.Errorf("web-01 is %s, definitions name %q", vm.State, defines(r))
	}
	r.WantClaims([]string{"kvm01"})
	r.WantSettled()
}

// A vGPU that somebody takes out of the definition is drift, and given again; one that waits for the VM's power-off is kept for it.
func TestAccVMAssignment_DriftAndNextOffOfLibvirt(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withVMs(rig.KVM(rig.L40s(0)), gpu.VM{Name: "web-01", State: gpu.VMOff}, gpu.VM{Name: "web-02", State: gpu.VMRunning}))
	config := r.Block() + rig.VGPUOf("desks", rig.TwoDesks)
	both := config + attaches("web-01") + attaches("web-02", `power = { when = "next_off" }`)
	r.Steps(
		resource.TestStep{Config: both, Check: rig.Then(func() {
			if got := defines(r); !strings.HasPrefix(got, "web-01 ") || strings.Contains(got, "web-02") {
				t.Errorf("definitions name %q, want that of web-01 only: web-02 runs", got)
			}
			r.WantClaims([]string{"kvm01"}, "partition_config desks", "vm_assignment "+rig.VMID(1), "vm_assignment "+rig.VMID(2))
		})},
		resource.TestStep{ // both vGPUs are spoken for
			Config: both + reserves("web-03"), ExpectError: says("No free vGPU"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.Must(r.Fleet.UndefineVM(t.Context(), "kvm01", "web-01"))
				r.Must(r.Fleet.SetVMState(t.Context(), "web-02", gpu.VMOff))
			},
			Config: both, ConfigPlanChecks: rig.Planned(web01, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				if got := defines(r); !strings.Contains(got, "web-01 ") || !strings.Contains(got, "web-02 ") {
					t.Errorf("definitions name %q, want both", got)
				}
			}),
		},
		resource.TestStep{Config: both, PlanOnly: true},
	)
	r.WantSettled()
}
