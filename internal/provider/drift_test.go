package provider_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestDriftOnOneHostIsPutRightThereAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Config4)
	c.Apply()
	r.Must(r.Fleet.SetCountOutside(context.Background(), "hv02", rig.GPU1, 2))
	other := r.Host("hv01")
	r.Fail("hv01", simulated.OpSetPartitionCount, "", 0, 0)
	r.Fail("hv02", simulated.OpSetPartitionCount, rig.GPU0, 0, 0)

	out := c.Ok("plan")
	rig.WantSaid(t, out, "Warning: Partitions differ from the declaration",
		"Host hv02, GPU "+rig.GPU1+" (NVIDIA A2) has 2 partitions, declared is 4 partitions; changed by others",
		"0 to add, 1 to change, 0 to destroy")
	if strings.Contains(rig.Sentence(out), "Host hv01, GPU") {
		t.Errorf("the plan blames hv01:\n%s", out)
	}
	c.Apply()
	r.WantCounts(4, rig.Both...)
	if now := r.Host("hv01"); now.Claims[0].Revision != other.Claims[0].Revision {
		t.Error("the claim on hv01, where nothing differs, was written again")
	}
	c.WantNoChanges()
}

func TestDriftLeavesTheArgumentsAsDeclared(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.Config4},
		resource.TestStep{
			PreConfig:          func() { r.Must(r.Fleet.SetCountOutside(context.Background(), "hv01", rig.GPU0, 8)) },
			RefreshState:       true,
			ExpectNonEmptyPlan: true,
			RefreshPlanChecks: resource.RefreshPlanChecks{
				PostRefresh: []plancheck.PlanCheck{plancheck.ExpectResourceAction(rig.VDI, plancheck.ResourceActionUpdate)},
			},
		},
		resource.TestStep{
			Config: r.Block() + rig.Config4,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("gpu_p").AtMapKey("partition_count"), knownvalue.Int64Exact(4)),
				plancheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("gpus").AtMapKey("hv01").AtMapKey("gpus").AtMapKey(rig.GPU0).AtMapKey("layout"),
					knownvalue.StringExact("gpu_p:4")),
			}},
			Check: rig.Then(func() { r.WantCounts(4, rig.Both...) }),
		},
	)
}

func TestInsertedGPUIsDrift(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]int{"with another count": 16, "with the declared count": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			c := rig.NewCLI(t, r.Block()+rig.Config4)
			c.Apply()
			r.Must(r.Fleet.AddGPU(context.Background(), "hv02", rig.A2(rig.GPU2)))
			r.Must(r.Fleet.SetCountOutside(context.Background(), "hv02", rig.GPU2, count))
			rig.WantSaid(t, c.Ok("plan"), "Warning: Partitions differ from the declaration",
				"Host hv02, GPU "+rig.GPU2+" (NVIDIA A2) is not in the config yet; the GPU is new",
				"0 to add, 1 to change, 0 to destroy")
			c.Apply()
			r.WantCounts(4, rig.Both...)
			if cl := r.Host("hv02").Claims[0]; !cl.Covers(rig.GPU2) || cl.OriginalLayouts.Of(rig.GPU2).
				Partitions != count || cl.OriginalLayouts.Of(rig.GPU0).
				Partitions != 16 {
				t.Errorf("the claim on hv02 is %+v", cl)
			}
			c.WantNoChanges()
		})
	}
}

func TestLostGPUIsAWarningAndNoDiff(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.Config4)
	c.Apply()
	r.Must(r.Fleet.RemoveGPU(context.Background(), "hv02", rig.GPU1))
	rig.WantSaid(t, c.Ok("plan", "-detailed-exitcode"), "Warning: GPU is lost", "Host: hv02", rig.GPU1, "NVIDIA A2")
	c.Apply()
	out := c.Ok("plan", "-detailed-exitcode")
	if strings.Contains(out, "GPU is lost") {
		t.Errorf("the loss is told for ever:\n%s", out)
	}
	r.Must(r.Fleet.AddGPU(context.Background(), "hv02", rig.A2(rig.GPU1))) // repaired, with the driver's own count
	rig.WantSaid(t, c.Apply(), "0 added, 1 changed, 0 destroyed")
	r.WantCounts(4, rig.Both...)
	c.WantNoChanges()
}

func TestLostGPUThatIsNamedStopsNothingElse(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	named := rig.ConfigOf(4, rig.Both, `selector = { gpu_ids = { hv02 = ["`+rig.GPU0+`", "`+rig.GPU1+`"] } }`)
	r.Steps(
		resource.TestStep{Config: r.Block() + named},
		resource.TestStep{
			PreConfig: func() { r.Must(r.Fleet.RemoveGPU(context.Background(), "hv02", rig.GPU1)) },
			Config:    r.Block() + named,
			PlanOnly:  true,
		},
		resource.TestStep{
			Config: r.Block() + rig.ConfigOf(4, rig.Both, `selector = { gpu_ids = { hv02 = ["`+rig.GPU0+`"] } }`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("gpus").AtMapKey("hv02").AtMapKey("gpus"), knownvalue.MapSizeExact(1)),
				statecheck.ExpectKnownValue(rig.VDI, tfjsonpath.New("gpus").AtMapKey("hv01").AtMapKey("gpus"), knownvalue.MapSizeExact(2)),
			},
			Check: rig.Then(func() {
				if cl := r.Host("hv02").Claims[0]; cl.Covers(rig.GPU1) || !cl.Covers(rig.GPU0) {
					t.Errorf("the claim on hv02 covers %v", cl.GPUs)
				}
			}),
		},
	)
}

func TestDriftUnderAHeldPartitionEndsInAnEmptyPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.ConfigOf(4, rig.Both, `max_disruption = "vm_restart"`)+
		rig.Assignment("avd-03", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop)+
		"output \"a\" { value = gpu_vm_assignment.a }\n")
	c.Apply()
	_, host := r.VM("avd-03")
	for _, id := range []string{rig.GPU0, rig.GPU1} {
		r.Must(r.Fleet.SetCountOutside(context.Background(), host, id, 2))
	}
	r.Must(r.Fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning))

	rig.WantSaid(t, c.Apply(), "0 added, 2 changed, 0 destroyed") // the VM gets another partition
	r.WantCounts(4, rig.Both...)
	c.WantNoChanges()
}

// What a plan says of drift holds: what it puts right, the apply puts right, and what it cannot
// put right it says so of, plans no change for, and the apply touches nothing.
func TestDriftIsPutRightOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	mpsShare := rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half)
	linuxPool := rig.MPSOn01 + rig.MLPool([]string{"gpu01"}, "depends_on = [gpu_partition_config.mps]") +
		rig.ShareOf("a", rig.FromPool, rig.Half)
	held := rig.HeldConfig(4)
	for name, test := range map[string]struct {
		fleet   gpu.Snapshot
		config  string
		drift   func(r *rig.Rig)
		refused string // what is said to be in the way, "" when it is put right
	}{
		"compute mode prohibited": {rig.GPUHost(2), rig.MPSOf(rig.HalfEach), func(r *rig.Rig) {
			r.EditCard(1, func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeProhibited })
		}, "GPU " + rig.SharedCard(1) + " on host \"gpu01\": its compute mode is prohibited"},
		"compute mode default": {rig.GPUHost(2), rig.MPSOf(rig.HalfEach), func(r *rig.Rig) {
			r.EditCard(1, func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeDefault })
		}, ""},
		"daemon changed under clients": {rig.GPUHost(2), rig.MPSOf(rig.HalfEach), func(r *rig.Rig) {
			r.Connects("gpu01", "inference", "python")
			r.EditHost("gpu01", func(h *gpu.Host) { h.MPS.Daemons[0].User = new(4711) })
		}, "MPS daemon inference on host \"gpu01\": 1 of its clients would end"},
		"GPU of a share is gone": {rig.Inference(1), mpsShare, func(r *rig.Rig) {
			where := r.PlacedOn("gpu01", "a")[0]
			r.EditHost("gpu01", func(h *gpu.Host) {
				h.GPUs = slices.DeleteFunc(h.GPUs, func(g gpu.GPU) bool { return strings.Contains(where, g.ID) })
			})
		}, ""}, // the config goes on with its other GPU, and the share waits for its own
		"GPU of a pool's share is lost": {rig.Inference(1), linuxPool, func(r *rig.Rig) {
			where := r.PlacedOn("gpu01", "a")[0]
			r.EditHost("gpu01", func(h *gpu.Host) {
				for i := range h.GPUs {
					if strings.Contains(where, h.GPUs[i].ID) {
						h.GPUs[i].Problem = "GPU has fallen off the bus"
					}
				}
			})
		}, ""},
		"count changed under a VM": {rig.TwoNodes(), held, func(r *rig.Rig) {
			r.Must(r.Fleet.SetCountOutside(t.Context(), "hv02", rig.GPU1, 2))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, test.fleet)
			c := rig.NewCLI(t, r.Block()+test.config)
			c.Apply()
			test.drift(r)
			before := r.Snapshot()
			out, code := c.Run("plan")
			if test.refused != "" {
				rig.WantSaid(t, out, "This apply cannot put it right as long as this is so: "+test.refused)
				if strings.Contains(rig.Sentence(out), "This apply puts it right") {
					t.Errorf("and it says that it puts it right:\n%s", out)
				}
				if code != 0 { // for want of a permission
					c.Fails("apply", "-auto-approve")
				} else {
					rig.WantSaid(t, out, "No changes.")
					rig.WantSaid(t, c.Apply(), "0 added, 0 changed, 0 destroyed")
				}
				r.WantUnchanged(before)
				return
			}
			if !strings.Contains(out, "No changes.") { // a pool keeps a GPU that does not work
				rig.WantSaid(t, out, "This apply puts it right.")
			}
			c.Apply()
			c.WantNoChanges()
		})
	}
}
