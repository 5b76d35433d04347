package partitionconfig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A VM names a vGPU by its address or its UUID, so both are what they were.
func TestAccPartitionConfig_RebootLosesVGPUsAndAnApplyPutsThemBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
	r.Mediated(1)
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.MixedDesk))
	c.Apply()
	before := []gpu.VGPUState{r.VGPU(0).State(), r.VGPU(1).State()}
	r.Must(r.Fleet.Reboot(t.Context(), "kvm01"))
	r.WantVGPUs("off", 0, 1)
	rig.WantSaid(t, c.Ok("plan"), "Warning: Partitions differ from the declaration",
		"Host kvm01, GPU "+rig.VGPUCard(0)+
			" (NVIDIA L40S) has no vGPUs, declared is 2 × L40S-12Q, 1 × L40S-24Q; lost by reboot, or removed by others",
		"0 to add, 1 to change, 0 to destroy")
	c.Apply()
	if diff := cmp.Diff(before, []gpu.VGPUState{r.VGPU(0).State(), r.VGPU(1).State()}); diff != "" {
		t.Errorf("what came back differs (-before +after):\n%s", diff)
	}
	c.WantNoChanges()
}

func TestAccPartitionConfig_VGPUsOfAnotherOwnerAreDrift(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
	c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.TwoDesks))
	c.Apply()
	on := func(n int, do func(string, gpu.VGPUPlace) error, function int) {
		r.Must(do(rig.VGPUCard(n), gpu.VGPUPlace{Type: "L40S-12Q", Function: function}))
	}
	create := func(id string, p gpu.VGPUPlace) error { return r.Fleet.CreateVGPUOutside(t.Context(), "kvm01", id, p) }
	remove := func(id string, p gpu.VGPUPlace) error { return r.Fleet.RemoveVGPUOutside(t.Context(), "kvm01", id, p) }
	on(1, create, 7)
	rig.WantSaid(t, c.Ok("plan"),
		"Host kvm01, GPU "+rig.VGPUCard(1)+" (NVIDIA L40S) has 3 × L40S-12Q (L40S-12Q on virtual function 7 is not of this config), declared "+
			"is 2 × L40S-12Q; changed by others")
	c.Apply()
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0, 1)
	c.WantNoChanges()

	on(0, remove, 0)
	rig.WantSaid(t, c.Apply(), "has 1 × L40S-12Q (L40S-12Q on virtual function 0 is gone)")
	r.WantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0, 1)
	c.WantNoChanges()

	on(0, remove, 0) // one that lies elsewhere is as declared
	on(0, create, 9)
	c.WantNoChanges()
}

// vgpuImports are layouts of which each comes back from an import as it was declared.
func vgpuImports() map[string]string {
	return map[string]string{
		"as many as there is room for": rig.VGPUOf("desks", rig.FourDesks),
		"a count":                      rig.VGPUOf("desks", rig.TwoDesks+", heterogeneous = false"),
		"types":                        rig.VGPUOf("desks", rig.MixedDesk),
		"none":                         rig.VGPUOf("desks", "types = {}"),
		"MIG-backed":                   rig.VGPUOf("desks", `types = { "H100-1-10C" = 2, "H100-3-40C" = 1 }`),
		"some GPUs":                    rig.VGPUOf("desks", rig.TwoDesks, rig.OnCards(1)),
	}
}

func TestAccPartitionConfig_ImportOfAVGPUConfigOfThisState(t *testing.T) {
	t.Parallel()
	for name, hcl := range vgpuImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1)))
			if strings.Contains(hcl, "H100") {
				r = rig.New(t, rig.KVM(rig.H100C(0), rig.H100C(1)))
			}
			steps := []resource.TestStep{{Config: r.Block() + hcl}}
			for _, id := range []string{"kvm01", "kvm01:vgpu", "desks@kvm01:vgpu"} {
				steps = append(steps, resource.TestStep{
					ResourceName: rig.Desks, ImportState: true, ImportStateId: id, ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
				})
			}
			r.Steps(append(steps, resource.TestStep{
				Config: r.Block() + hcl, ResourceName: rig.Desks, ImportState: true, ImportStateId: "kvm01:vgpu",
				ImportStateKind: resource.ImportBlockWithID,
				ImportPlanChecks: resource.ImportPlanChecks{
					PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(rig.Desks, plancheck.ResourceActionNoop)},
				},
			})...)
		})
	}
}

func TestAccPartitionConfig_VGPUsThatOthersMadeAreAdopted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		second string
		layout string
	}{
		"of one type":  {"L40S-12Q", `type = "L40S-12Q", count = 2`},
		"of two types": {"L40S-12C", `types = { "L40S-12Q" = 1, "L40S-12C" = 1 }`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.KVM(rig.L40s(0)))
			r.Must(r.Fleet.SetVirtualFunctionsOutside(t.Context(), "kvm01", rig.VGPUCard(0), true))
			r.Must(r.Fleet.CreateVGPUOutside(t.Context(), "kvm01", rig.VGPUCard(0), gpu.VGPUPlace{Type: "L40S-12Q", Function: 4}))
			r.Must(r.Fleet.CreateVGPUOutside(t.Context(), "kvm01", rig.VGPUCard(0), gpu.VGPUPlace{Type: test.second, Function: 6}))
			before := r.VGPU(0).State()
			c := rig.NewCLI(t, r.Block()+"import {\n  to = "+rig.Desks+"\n  id = \"desks@kvm01:vgpu\"\n}\n"+rig.VGPUOf("desks", test.layout))
			rig.WantSaid(t, c.Ok("plan"), "Plan: 1 to import, 0 to add, 1 to change, 0 to destroy")
			c.Apply()
			r.WantClaims([]string{"kvm01"}, "partition_config desks")
			c.WantNoChanges()
			c.Destroy()
			if diff := cmp.Diff(before, r.VGPU(0).State()); diff != "" {
				t.Errorf("adopting changed the vGPUs (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.KVM(rig.L40s(0)))
		c := rig.NewCLI(t, r.Block()+rig.VGPUOf("desks", rig.TwoDesks))
		rig.WantSaid(t, c.Fails("import", rig.Desks, "kvm01:vgpu"), "Nothing to import", "has vGPUs")
	})
}
