package provider_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A VM names a vGPU by its address or its UUID, so both are what they were.
func TestRebootLosesVGPUsAndAnApplyPutsThemBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, kvm(l40s(0), l40s(1)))
	r.mediated(1)
	c := newCLI(t, r.block()+vgpuOf("desks", mixedDesk))
	c.apply()
	before := []gpu.VGPUState{r.vgpu(0).State(), r.vgpu(1).State()}
	r.must(r.fleet.Reboot(t.Context(), "kvm01"))
	r.wantVGPUs("off", 0, 1)
	wantSaid(t, c.ok("plan"), "Warning: Partitions differ from the declaration",
		"host kvm01, GPU "+vgpuCard(0)+" (NVIDIA L40S): lost by reboot, or removed by others: it has no vGPUs, declared is 2 × L40S-12Q, 1 × L40S-24Q",
		"0 to add, 1 to change, 0 to destroy")
	c.apply()
	if diff := cmp.Diff(before, []gpu.VGPUState{r.vgpu(0).State(), r.vgpu(1).State()}); diff != "" {
		t.Errorf("what came back differs (-before +after):\n%s", diff)
	}
	c.wantNoChanges()
}

func TestVGPUsOfAnotherOwnerAreDrift(t *testing.T) {
	t.Parallel()
	r := newRig(t, kvm(l40s(0), l40s(1)))
	c := newCLI(t, r.block()+vgpuOf("desks", twoDesks))
	c.apply()
	on := func(n int, do func(string, gpu.VGPUPlace) error, function int) {
		r.must(do(vgpuCard(n), gpu.VGPUPlace{Type: "L40S-12Q", Function: function}))
	}
	create := func(id string, p gpu.VGPUPlace) error { return r.fleet.CreateVGPUOutside(t.Context(), "kvm01", id, p) }
	remove := func(id string, p gpu.VGPUPlace) error { return r.fleet.RemoveVGPUOutside(t.Context(), "kvm01", id, p) }
	on(1, create, 7)
	wantSaid(t, c.ok("plan"), "host kvm01, GPU "+vgpuCard(1)+" (NVIDIA L40S): changed by another owner, L40S-12Q@7 is not of this config: it has 3 × L40S-12Q, declared is 2 × L40S-12Q")
	c.apply()
	r.wantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0, 1)
	c.wantNoChanges()

	on(0, remove, 0)
	wantSaid(t, c.apply(), "changed by another owner, L40S-12Q@0 is gone: it has 1 × L40S-12Q")
	r.wantVGPUs("on L40S-12Q@0 L40S-12Q@1", 0, 1)
	c.wantNoChanges()

	on(0, remove, 0) // one that lies elsewhere is as declared
	on(0, create, 9)
	c.wantNoChanges()
}

// vgpuImports are layouts of which each comes back from an import as it was declared.
func vgpuImports() map[string]string {
	return map[string]string{
		"as many as there is room for": vgpuOf("desks", fourDesks),
		"a count":                      vgpuOf("desks", twoDesks+", heterogeneous = false"),
		"types":                        vgpuOf("desks", mixedDesk),
		"none":                         vgpuOf("desks", "types = {}"),
		"some GPUs":                    vgpuOf("desks", twoDesks, onCards(1)),
	}
}

func TestImportOfAVGPUConfigOfThisState(t *testing.T) {
	t.Parallel()
	for name, hcl := range vgpuImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, kvm(l40s(0), l40s(1)))
			steps := []resource.TestStep{{Config: r.block() + hcl}}
			for _, id := range []string{"kvm01", "kvm01:vgpu", "desks@kvm01:vgpu"} {
				steps = append(steps, resource.TestStep{
					ResourceName: desks, ImportState: true, ImportStateId: id, ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
				})
			}
			r.steps(append(steps, resource.TestStep{
				Config: r.block() + hcl, ResourceName: desks, ImportState: true, ImportStateId: "kvm01:vgpu", ImportStateKind: resource.ImportBlockWithID,
				ImportPlanChecks: resource.ImportPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(desks, plancheck.ResourceActionNoop)}},
			})...)
		})
	}
}

func TestVGPUsThatOthersMadeAreAdopted(t *testing.T) {
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
			r := newRig(t, kvm(l40s(0)))
			r.must(r.fleet.SetVirtualFunctionsOutside(t.Context(), "kvm01", vgpuCard(0), true))
			r.must(r.fleet.CreateVGPUOutside(t.Context(), "kvm01", vgpuCard(0), gpu.VGPUPlace{Type: "L40S-12Q", Function: 4}))
			r.must(r.fleet.CreateVGPUOutside(t.Context(), "kvm01", vgpuCard(0), gpu.VGPUPlace{Type: test.second, Function: 6}))
			before := r.vgpu(0).State()
			c := newCLI(t, r.block()+"import {\n  to = "+desks+"\n  id = \"desks@kvm01:vgpu\"\n}\n"+vgpuOf("desks", test.layout))
			wantSaid(t, c.ok("plan"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy")
			c.apply()
			c.wantNoChanges()
			c.destroy()
			if diff := cmp.Diff(before, r.vgpu(0).State()); diff != "" {
				t.Errorf("adopting changed the vGPUs (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, kvm(l40s(0)))
		c := newCLI(t, r.block()+vgpuOf("desks", twoDesks))
		wantSaid(t, c.fails("import", desks, "kvm01:vgpu"), "Nothing to import", "has vGPUs")
	})
}
