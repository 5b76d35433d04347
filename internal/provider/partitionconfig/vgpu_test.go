package partitionconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccPartitionConfig_VGPULifecycle(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.VGPUOf("desks", rig.FourDesks),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("id"), text("desks")),
				plancheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("isolation"), text("memory")),
				plancheck.ExpectUnknownValue(rig.Desks, rig.Jsonpath("gpus")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("gpus", "kvm01", "gpus", rig.VGPUCard(0), "layout"),
					text("vgpu:4xL40S-12Q")),
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("gpus", "kvm01", "gpus", rig.VGPUCard(1), "instances"), knownvalue.Null()),
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("gpus", "kvm01", "gpus", rig.VGPUCard(1), "vgpus"), knownvalue.ListSizeExact(4)),
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("gpus", "kvm01", "gpus", rig.VGPUCard(1), "vgpus", 3),
					knownvalue.ObjectExact(map[string]knownvalue.Check{
						"type": text("L40S-12Q"), "function": number(3), "address": knownvalue.NotNull(), "uuid": knownvalue.Null(),
					})),
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("partition_vram_mib"), knownvalue.Null()),
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: rig.Then(func() {
				r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@2 L40S-12Q@3", 0, 1)
				r.WantClaims([]string{"kvm01"}, "partition_config desks")
				r.WantSettled()
				r.Holds(1, r.Placed(1, "L40S-12Q", 3), "web-01")
			}),
		},
		resource.TestStep{ // what is held is what stays
			Config:           r.Block() + rig.VGPUOf("desks", rig.TwoDesks),
			ConfigPlanChecks: rig.Planned(rig.Desks, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0)
				r.WantVGPUs("on L40S-12Q@0 L40S-12Q@3", 1)
				r.Must(r.Fleet.ReleaseVGPU(t.Context(), "kvm01", rig.VGPUCard(1), r.Placed(1, "L40S-12Q", 3)))
			}),
		},
		resource.TestStep{ // two sizes switch heterogeneous mode on
			Config: r.Block() + rig.VGPUOf("desks", rig.MixedDesk),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("gpus", "kvm01", "gpus", rig.VGPUCard(0), "layout"),
					text("vgpu:2xL40S-12Q+1xL40S-24Q")),
			},
			Check: rig.Then(func() {
				for n := range 2 {
					if s := r.VGPU(n).State(); !s.Heterogeneous || !cmp.Equal(gpu.VGPUCounts(s.Places), map[string]int{"L40S-24Q": 1, "L40S-12Q": 2}) {
						t.Errorf("%s has %q", rig.VGPUCard(n), r.Vgpus(n))
					}
				}
			}),
		},
		resource.TestStep{
			Config: r.Block() + rig.VGPUOf("desks", `type = "L40S-48Q", heterogeneous = false`),
			Check:  rig.Then(func() { r.WantVGPUs("on L40S-48Q@0", 0, 1) }),
		},
		resource.TestStep{ // no vGPUs
			Config: r.Block() + rig.VGPUOf("desks", `types = {}`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("gpus", "kvm01", "gpus", rig.VGPUCard(0), "layout"),
					text("vgpu:none")),
			},
			Check: rig.Then(func() { r.WantVGPUs("off", 0, 1) }),
		},
		resource.TestStep{Config: r.Block() + rig.VGPUOf("desks", `type = "NVIDIA L40S-24Q"`)},
	)
	r.WantVGPUs("on L40S-24Q@0 L40S-24Q@1", 0, 1) // on_destroy = keep
	r.WantClaims([]string{"kvm01"})
	r.WantSettled()
}

func TestAccPartitionConfig_VGPUsAreMediatedDevicesWhereTheDriverMakesThese(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card         gpu.GPU
		layout, want string
		function     knownvalue.Check
	}{
		"on virtual functions": {rig.L40s(0), rig.TwoDesks, "on L40S-12Q@0 L40S-12Q@1", knownvalue.Int64Exact(1)},
		"on the GPU itself":    {rig.P40(0), `type = "P40-8Q", count = 2`, "off P40-8Q@-1 P40-8Q@-1", knownvalue.Null()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.KVM(test.card))
			r.Mediated(0)
			r.Steps(resource.TestStep{
				Config: r.Block() + rig.VGPUOf("desks", test.layout),
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("gpus", "kvm01", "gpus", rig.VGPUCard(0), "vgpus", 1),
						knownvalue.ObjectPartial(map[string]knownvalue.Check{
							"function": test.function, "uuid": knownvalue.NotNull(),
						})),
				},
				Check: rig.Then(func() { r.WantVGPUs(test.want, 0) }),
			})
		})
	}
}

func TestAccPartitionConfig_VGPUInUseIsInTheWayAtPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.FourDesks))
	c.Apply()
	release := r.Holds(1, r.Placed(1, "L40S-12Q", 2), "web-01")
	c.WantNoChanges() // who holds a vGPU is no difference
	before := r.File()
	c.Write(r.Block() + rig.VGPUOf("desks", `type = "L40S-24Q"`, `max_disruption = "gpu_reset"`))
	rig.WantSaid(t, c.Fails("plan"), "vGPUs in use block the change", rig.VGPUCard(1), "VM web-01", "Rule: vgpu-in-use")
	r.WantUntouched(before)
	// The levels of rules do not lift what the host itself refuses.
	c.Write(r.Block(`rules = { vgpu-in-use = "off" }`) + rig.VGPUOf("desks", `type = "L40S-24Q"`))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "VM web-01")
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@2 L40S-12Q@3", 0, 1)
	r.WantSettled()
	release()
	c.Write(r.Block() + rig.VGPUOf("desks", `type = "L40S-24Q"`))
	c.Apply()
	r.WantVGPUs("on L40S-24Q@0 L40S-24Q@1", 0, 1)
	c.WantNoChanges()
}

// A VM that is off needs its vGPU as one that runs does: libvirt would start it with another one, or not at all.
func TestAccPartitionConfig_VGPUOfAVMThatIsOffStays(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.FourDesks, `on_destroy = "restore"`))
	c.Apply()
	r.Must(r.Fleet.DefineVM(t.Context(), "kvm01", rig.VGPUCard(1), r.Placed(1, "L40S-12Q", 2), "web-01", gpu.VMOff))
	r.Must(r.Fleet.DefineVM(t.Context(), "kvm01", rig.VGPUCard(1), r.Placed(1, "L40S-12Q", 2), "web-02", gpu.VMSaved))
	c.WantNoChanges() // who names a vGPU is no difference
	before := r.File()
	c.Write(r.Block() + rig.VGPUOf("desks", `type = "L40S-24Q"`, `max_disruption = "gpu_reset"`))
	rig.WantSaid(t, c.Fails("plan"), "vGPUs in use block the change", rig.VGPUCard(1),
		"is held by VM web-01 (off), VM web-02 (saved)", "take the vGPUs from their definitions", "Rule: vgpu-in-use")
	r.WantUntouched(before)
	c.Write(r.Block(`rules = { vgpu-in-use = "off" }`) + rig.VGPUOf("desks", `type = "L40S-24Q"`))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "VM web-01 (off)", "take the vGPUs from the definitions of VMs")
	c.Write(r.Block() + rig.VGPUOf("desks", rig.FourDesks, `on_destroy = "restore"`))
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), "VM web-01 (off)", `on_destroy = "keep"`)
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@2 L40S-12Q@3", 0, 1)

	c.Write(r.Block() + rig.VGPUOf("desks", rig.TwoDesks, `on_destroy = "restore"`))
	c.Apply() // what is named is what stays
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@2", 1)
	r.Must(r.Fleet.Reboot(t.Context(), "kvm01"))
	c.Apply() // and what is made again
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@2", 1)
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), "VM web-01 (off)")
	r.Must(r.Fleet.UndefineVM(t.Context(), "kvm01", "web-01"))
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), "VM web-02 (saved)")
	r.Must(r.Fleet.UndefineVM(t.Context(), "kvm01", "web-02"))
	c.Destroy()
	r.WantVGPUs("off", 0, 1)
	r.WantSettled()
}

// A VM that started with managed='yes' has taken its function from NVIDIA's driver, and the vGPU is gone: whoever
// looks for it is told where.
func TestAccPartitionConfig_VGPUWhoseFunctionAVMTook(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.FourDesks))
	c.Apply()
	r.Must(r.Fleet.DefineVM(t.Context(), "kvm01", rig.VGPUCard(1), r.Placed(1, "L40S-12Q", 2), "web-01", gpu.VMRunning))
	r.Must(r.Fleet.TakeFunction(t.Context(), "kvm01", rig.VGPUCard(1), r.Placed(1, "L40S-12Q", 2), "vfio-pci"))
	const told = "virtual function 2 is bound to vfio-pci in place of NVIDIA's driver, by VM web-01 (running)"
	planned, _ := c.Run("plan")
	rig.WantSaid(t, planned, rig.VGPUCard(1), told)
	c.Apply()
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@3 L40S-12Q@4", 1) // not where it cannot be
	c.WantNoChanges()

	r.EditHost("kvm01", func(h *gpu.Host) { h.GPUs[1].VGPU.Functions = 5 })
	r.Must(r.Fleet.TakeFunction(t.Context(), "kvm01", rig.VGPUCard(1), r.Placed(1, "L40S-12Q", 4), "vfio-pci"))
	planned, _ = c.Run("plan") // which is no error: the world has changed, and nothing is asked for that was not there
	rig.WantSaid(t, planned, "Warning: Virtual functions of the GPU are taken", "the GPU has 5, of which "+told, "managed='no'")
	r.Must(r.Fleet.Reboot(t.Context(), "kvm01"))
	c.Apply()
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@3 L40S-12Q@4", 1)
	r.WantSettled()
}

// Where libvirt does not tell which VMs name vGPUs, none is removed, and whatever needs none removed goes on.
func TestAccPartitionConfig_VGPUsWithoutAnAnswerOfLibvirt(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
	unread := func(all ...gpu.Unknown) { r.EditHost("kvm01", func(h *gpu.Host) { h.Unknown = all }) }
	silent := gpu.Unknown{Part: gpu.PartVGPUs, Why: "/run/libvirt/libvirt-sock: connect: permission denied"}
	unread(silent)
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.TwoDesks, `on_destroy = "restore"`))
	c.Apply()
	c.WantNoChanges()
	c.Write(r.Block() + rig.VGPUOf("desks", rig.FourDesks, `on_destroy = "restore"`))
	c.Apply()
	c.WantNoChanges()
	r.Must(r.Fleet.Reboot(t.Context(), "kvm01"))
	c.Apply()
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@2 L40S-12Q@3", 0, 1)

	before := r.File()
	c.Write(r.Block() + rig.VGPUOf("desks", rig.TwoDesks, `on_destroy = "restore"`))
	rig.WantSaid(t, c.Fails("plan"), "which VMs name vGPUs", "libvirt-sock: connect: permission denied", `"kvm01"`)
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), "which VMs name vGPUs", "permission denied")
	r.WantUntouched(before)
	unread()
	c.Apply()
	c.Destroy()
	r.WantVGPUs("off", 0, 1)
	r.WantSettled()
}

func TestAccPartitionConfig_VGPUIsRestoredOnDestroy(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
	r.Must(r.Fleet.SetVirtualFunctionsOutside(t.Context(), "kvm01", rig.VGPUCard(1), true))
	r.Must(r.Fleet.CreateVGPUOutside(t.Context(), "kvm01", rig.VGPUCard(1), gpu.VGPUPlace{Type: "L40S-24Q", Function: 5}))
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.FourDesks, `on_destroy = "restore"`))
	c.Apply()
	release := r.Holds(0, r.Placed(0, "L40S-12Q", 1), "web-01")
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), "VM web-01", `on_destroy = "keep"`)
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1 L40S-12Q@2 L40S-12Q@3", 0)
	c.Write(r.Block() + rig.VGPUOf("desks", rig.FourDesks, `on_destroy = "restore"`, rig.OnCards(1)))
	rig.WantSaid(t, c.Fails("plan"), "Error: The previous layout cannot be restored", rig.VGPUCard(0), "VM web-01")
	release()
	c.Destroy()
	r.WantVGPUs("off", 0)
	r.WantVGPUs("on L40S-24Q@5", 1)
	r.WantClaims([]string{"kvm01"})
	r.WantSettled()
}

func TestAccPartitionConfig_FailedVGPUChangeIsPutBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.TwoDesks))
	c.Apply()
	r.Fail("kvm01", simulated.OpCreateVGPU, "L40S-24Q@1", 1, 1) // on the second GPU
	c.Write(r.Block() + rig.VGPUOf("desks", `type = "L40S-24Q"`))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Injected by the test", "Rolled back: kvm01")
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0, 1)
	r.WantSettled()
	c.Apply()
	r.WantVGPUs("on L40S-24Q@0 L40S-24Q@1", 0, 1)
	c.WantNoChanges()
}

func TestAccPartitionConfig_VirtualFunctionsNeedAnIdleGPU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0)))
	pid, err := r.Fleet.StartProcess(t.Context(), "kvm01", rig.VGPUCard(0), nil, gpu.Process{Name: "python", Holder: "container 3f2a"})
	r.Must(err)
	before := r.File()
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.TwoDesks))
	rig.WantSaid(t, c.Fails("plan"), "Processes use GPUs whose virtual functions change", "python, container 3f2a",
		"`quiesce_units`", "Rule: vgpu-in-use")
	r.WantUntouched(before)
	r.Must(r.Fleet.StopProcess(t.Context(), "kvm01", pid))
	c.Apply()
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0)
}

// A GPU in MIG mode gets vGPUs of any sort in one apply, and instances again: restore frees it.
func TestAccPartitionConfig_GPUChangesBetweenMIGAndVGPUs(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.H100C(0)))
	before := r.Host("kvm01").GPUs[0].Layout()
	config := func(layout string) string {
		return r.Block() + strings.Replace(kindOf(layout), "hgx01", "kvm01", 1) +
			fmt.Sprintf("output \"layout\" {\n  value = gpu_partition_config.ml.gpus[\"kvm01\"].gpus[%q].layout\n}\n", rig.VGPUCard(0))
	}
	mig, plain, backed := "mig = { "+rig.Halves+" }", `vgpu = { type = "H100-40C" }`, `vgpu = { type = "H100-3-40C" }`
	has := map[string]string{
		mig:    "mig:3g.40gb@0+3g.40gb@4",
		plain:  "vgpu:2xH100-40C",
		backed: "vgpu:2xH100-3-40C",
	}
	c := rig.NewCLI(t, config(mig))
	c.Apply()
	for _, next := range []string{plain, mig, backed, mig} {
		c.Write(config(next))
		rig.WantSaid(t, c.Ok("plan"), ": replace", "1 to add, 0 to change, 1 to destroy")
		c.Apply()
		if got := c.Ok("output", "-raw", "layout"); got != has[next] {
			t.Errorf("the GPU has %s, want %s", got, has[next])
		}
		c.WantNoChanges()
	}
	c.Destroy()
	if now := r.Host("kvm01").GPUs[0].Layout(); !cmp.Equal(now, before) {
		t.Errorf("the GPU has %+v, and had %+v", now, before)
	}
	r.WantSettled()
}

// The GPUs of the two kinds need not be the same.
func TestAccPartitionConfig_ChangeFromMIGToVGPUReplacesTheConfig(t *testing.T) {
	t.Parallel()
	s := rig.HGX(rig.H100, 1)
	s.Hosts = append(s.Hosts, rig.KVM(rig.L40s(0)).Hosts...)
	r := rig.New(t, s)
	inPlace := func(body string) string { return strings.ReplaceAll(body, `"desks"`, `"ml"`) }
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.MIGOf("ml", rig.Halves)},
		resource.TestStep{
			Config:           r.Block() + inPlace(rig.VGPUOf("desks", rig.TwoDesks)),
			ConfigPlanChecks: rig.Planned(rig.ML, plancheck.ResourceActionReplace),
			Check: rig.Then(func() {
				r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0)
				r.WantClaims([]string{"kvm01"}, "partition_config ml")
				r.WantClaims([]string{"hgx01"})
			}),
		},
	)
}

// MIG-backed types bring MIG mode and their GPU instances, and take them along.
func TestAccPartitionConfig_MIGBackedVGPULifecycle(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.H100C(0), rig.H100C(1)))
	var before []gpu.Layout
	for n := range 2 {
		g, _ := r.Host("kvm01").GPU(rig.VGPUCard(n))
		before = append(before, g.Layout())
	}
	wantMIG := func(want string, n ...int) {
		t.Helper()
		for _, i := range n {
			if g, _ := r.Host("kvm01").GPU(rig.VGPUCard(i)); g.MIG.State().String() != want {
				t.Errorf("%s has %s, want %s", g.ID, g.MIG.State(), want)
			}
		}
	}
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.VGPUOf("desks", `type = "H100-1-10C"`, `on_destroy = "restore"`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("gpus", "kvm01", "gpus", rig.VGPUCard(1), "layout"),
					knownvalue.StringExact("vgpu:7xH100-1-10C")),
				statecheck.ExpectKnownValue(rig.Desks, rig.Jsonpath("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: rig.Then(func() {
				wantMIG("1g.10gb@0+1g.10gb@1+1g.10gb@2+1g.10gb@3+1g.10gb@4+1g.10gb@5+1g.10gb@6", 0, 1)
				r.WantSettled()
				r.Holds(1, r.Placed(1, "H100-1-10C", 6), "web-01")
			}),
		},
		resource.TestStep{ // two sizes; what is held is what stays
			Config:           r.Block() + rig.VGPUOf("desks", `types = { "H100-1-10C" = 2, "H100-3-40C" = 1 }`, `on_destroy = "restore"`),
			ConfigPlanChecks: rig.Planned(rig.Desks, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				if got := r.Placed(1, "H100-1-10C", 6); got.Type == "" {
					t.Error("the held vGPU is gone")
				}
				r.Must(r.Fleet.ReleaseVGPU(t.Context(), "kvm01", rig.VGPUCard(1), r.Placed(1, "H100-1-10C", 6)))
				r.WantSettled()
			}),
		},
		resource.TestStep{ // what a reboot has taken comes back
			PreConfig: func() {
				r.Must(r.Fleet.Reboot(t.Context(), "kvm01"))
				wantMIG("off", 0, 1)
			},
			Config:           r.Block() + rig.VGPUOf("desks", `types = { "H100-1-10C" = 2, "H100-3-40C" = 1 }`, `on_destroy = "restore"`),
			ConfigPlanChecks: rig.Planned(rig.Desks, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				for n := range 2 {
					g, _ := r.Host("kvm01").GPU(rig.VGPUCard(n))
					if c := gpu.VGPUCounts(g.VGPU.State().Places); !cmp.Equal(c, map[string]int{"H100-1-10C": 2, "H100-3-40C": 1}) ||
						len(g.MIG.Instances) != 3 {
						t.Errorf("%s has %v in %s", g.ID, c, g.MIG.State())
					}
				}
			}),
		},
		resource.TestStep{ // MIG mode goes with the types
			Config: r.Block() + rig.VGPUOf("desks", `type = "H100-40C"`, `on_destroy = "restore"`),
			Check: rig.Then(func() {
				r.WantVGPUs("on H100-40C@0 H100-40C@1", 0, 1)
				wantMIG("off", 0, 1)
			}),
		},
		resource.TestStep{Config: r.Block() + rig.VGPUOf("desks", `type = "H100-3-40C", count = 1`, `on_destroy = "restore"`)},
	)
	for n, was := range before {
		if g, _ := r.Host("kvm01").GPU(rig.VGPUCard(n)); !cmp.Equal(g.Layout(), was) {
			t.Errorf("%s has %+v, and had %+v", g.ID, g.Layout(), was)
		}
	}
	r.WantClaims([]string{"kvm01"})
}

// Modules write zero for what they do not want.
func TestAccPartitionConfig_NoneOfAVGPUType(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0)))
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", `types = { "L40S-12Q" = 2, "L40S-24Q" = 0 }`))
	c.Apply()
	c.WantNoChanges()
	c.Write(r.Block() + rig.VGPUOf("desks", `types = { "L40S-12Q" = 0, "L40S-24Q" = 1 }`))
	c.Apply()
	c.WantNoChanges()
	g, _ := r.Host("kvm01").GPU(rig.VGPUCard(0))
	if v := g.VGPU; len(v.Instances) != 1 || v.Instances[0].Type != "L40S-24Q" || v.Heterogeneous {
		t.Errorf("the GPU has %+v", v)
	}
}

func TestAccPartitionConfig_BadVGPUConfigIsAnErrorAtPlan(t *testing.T) {
	t.Parallel()
	onP40 := func(layout string) string { return rig.VGPUOf("desks", layout, rig.OnCards(2)) }
	onL40S := func(layout string, more ...string) string {
		return rig.VGPUOf("desks", layout, append(more, rig.OnCards(0, 1))...)
	}
	for name, test := range map[string]struct{ config, want string }{
		"no such type": {
			onL40S(`type = "L40-12Q"`), "There is no vGPU type L40-12Q: the GPU offers L40S-2Q, L40S-12C, L40S-12Q, L40S-24Q and L40S-48Q",
		},
		"two sizes, not the mode": {onL40S(rig.MixedDesk + ", heterogeneous = false"), "Rule: vgpu-same-framebuffer"},
		"two sizes, no mode":      {onP40(`types = { "P40-4Q" = 1, "P40-8Q" = 1 }`), "has no heterogeneous mode"},
		"too many":                {onL40S(`type = "L40S-12Q", count = 5`), "Rule: vgpu-capacity"},
		"MIG-backed and not": {
			rig.VGPUOf("desks", `types = { "H100-1-10C" = 1, "H100-40C" = 1 }`, rig.OnCards(3)),
			"H100-1-10C and H100-40C cannot be beside each other",
		},
		"mixed while MIG-backed": {
			rig.VGPUOf("desks", `type = "H100-1-10C", heterogeneous = true`, rig.OnCards(3)), "Heterogeneous mode is not supported",
		},
		"MIG mode":    {rig.VGPUOf("desks", `type = "H100-40C"`, rig.OnCards(3)), "The GPU is in MIG mode"},
		"both ways":   {onL40S(rig.TwoDesks + `, types = { "L40S-12Q" = 2 }`), "2 attributes specified when one (and only one)"},
		"neither way": {onL40S("heterogeneous = true"), "No attribute specified when one (and only one)"},
		"count of types": {
			onL40S(`types = { "L40S-12Q" = 2 }, count = 2`), `Attribute "vgpu.type" must be specified when "vgpu.count" is specified`,
		},
		"count of none": {onL40S(`type = "L40S-12Q", count = 0`), "Attribute vgpu.count value must be between 1 and 1024, got: 0"},
		"fewer types than none": {
			onL40S(`types = { "L40S-12Q" = -1 }`), `Attribute vgpu.types["L40S-12Q"] value must be between 0 and 1024, got: -1`,
		},
		"empty type": {onL40S(`type = ""`), "Attribute vgpu.type string length must be at least 1, got: 0"},
		"two kinds": {
			onL40S(rig.TwoDesks, "mig = { "+rig.Halves+" }"),
			"Exactly one of these attributes must be configured: [gpu_p,mig,vgpu,mps,time_slicing]",
		},
		"Hyper-V":                {strings.Replace(rig.VGPUOf("desks", rig.TwoDesks), "kvm01", "hv01", 1), `Host "hv01" is a Hyper-V host`},
		"no vGPUs":               {strings.Replace(rig.VGPUOf("desks", rig.TwoDesks), "kvm01", "hgx01", 1), "(its driver offers no vGPUs)"},
		"two configs of one GPU": {onL40S(rig.TwoDesks) + rig.VGPUOf("more", rig.TwoDesks, rig.OnCards(1)), "one-config-per-gpu"},
		"two kinds on one GPU": {
			rig.VGPUOf("desks", `type = "H100-40C"`, rig.OnCards(3)) + strings.ReplaceAll(rig.MIGOf("ml", rig.Halves, rig.OnCards(3)),
				"hgx01", "kvm01"), "one-config-per-gpu",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rig.KVM(rig.L40s(0), rig.L40s(1), rig.P40(2))
			both := rig.H100C(3)
			both.MIG.Enabled, both.MIG.Pending = true, true
			s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, both)
			s.Hosts = slices.Concat(s.Hosts, rig.HGX(rig.H100, 1).Hosts, []gpu.Host{rig.Node("hv01")})
			r := rig.New(t, s)
			before := r.File()
			r.Steps(resource.TestStep{Config: r.Block() + test.config, PlanOnly: true, ExpectError: rig.Says(test.want)})
			r.WantUntouched(before)
		})
	}
}
