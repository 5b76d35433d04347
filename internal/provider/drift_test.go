package provider_test

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestDriftOnOneHostIsPutRightThereAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+config4)
	c.apply()
	r.must(r.fleet.SetCountOutside(context.Background(), "hv02", gpu1, 2))
	other := r.host("hv01")
	r.fail("hv01", simulated.OpSetPartitionCount, "", 0, 0)
	r.fail("hv02", simulated.OpSetPartitionCount, gpu0, 0, 0)

	out := c.ok("plan")
	wantSaid(t, out, "Warning: Partitions differ from the declaration", "host hv02, GPU "+gpu1+" (NVIDIA A2): has 2 partitions, declared are 4",
		"hv02, GPU "+gpu1+" (NVIDIA A2): 2 → 4 partitions", "0 to add, 1 to change, 0 to destroy")
	if strings.Contains(sentence(out), "host hv01, GPU") {
		t.Errorf("the plan blames hv01:\n%s", out)
	}
	c.apply()
	r.wantCounts(4, both...)
	if now := r.host("hv01"); now.Claims[0].Revision != other.Claims[0].Revision {
		t.Error("the claim on hv01, where nothing differs, was written again")
	}
	c.wantNoChanges()
}

func TestDriftLeavesTheArgumentsAsDeclared(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + config4},
		resource.TestStep{
			PreConfig:          func() { r.must(r.fleet.SetCountOutside(context.Background(), "hv01", gpu0, 8)) },
			RefreshState:       true,
			ExpectNonEmptyPlan: true,
			RefreshPlanChecks:  resource.RefreshPlanChecks{PostRefresh: []plancheck.PlanCheck{plancheck.ExpectResourceAction(vdi, plancheck.ResourceActionUpdate)}},
		},
		resource.TestStep{
			Config: r.block() + config4,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(vdi, tfjsonpath.New("gpu_p").AtMapKey("partition_count"), knownvalue.Int64Exact(4)),
				plancheck.ExpectUnknownValue(vdi, tfjsonpath.New("gpus")),
			}},
			Check: then(func() { r.wantCounts(4, both...) }),
		},
	)
}

func TestInsertedGPUIsDrift(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]int{"with another count": 16, "with the declared count": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			c := newCLI(t, r.block()+config4)
			c.apply()
			r.must(r.fleet.AddGPU(context.Background(), "hv02", a2(gpu2)))
			r.must(r.fleet.SetCountOutside(context.Background(), "hv02", gpu2, count))
			wantSaid(t, c.ok("plan"), "Warning: Partitions differ from the declaration", "host hv02, GPU "+gpu2+" (NVIDIA A2): is new and not in the config yet",
				"0 to add, 1 to change, 0 to destroy")
			c.apply()
			r.wantCounts(4, both...)
			if cl := r.host("hv02").Claims[0]; !cl.Covers(gpu2) || cl.LayoutBefore[gpu2] != count || cl.LayoutBefore[gpu0] != 16 {
				t.Errorf("the claim on hv02 is %+v", cl)
			}
			c.wantNoChanges()
		})
	}
}

func TestLostGPUIsAWarningAndNoDiff(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+config4)
	c.apply()
	r.must(r.fleet.RemoveGPU(context.Background(), "hv02", gpu1))
	wantSaid(t, c.ok("plan", "-detailed-exitcode"), "Warning: GPU is lost", "Host: hv02", gpu1, "NVIDIA A2")
	c.apply()
	out := c.ok("plan", "-detailed-exitcode")
	if strings.Contains(out, "GPU is lost") {
		t.Errorf("the loss is told for ever:\n%s", out)
	}
	r.must(r.fleet.AddGPU(context.Background(), "hv02", a2(gpu1))) // repaired, with the driver's own count
	wantSaid(t, c.apply(), "0 added, 1 changed, 0 destroyed")
	r.wantCounts(4, both...)
	c.wantNoChanges()
}

func TestLostGPUThatIsNamedStopsNothingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	named := configOf(4, both, `selector = { gpu_ids = { hv02 = ["`+gpu0+`", "`+gpu1+`"] } }`)
	r.steps(
		resource.TestStep{Config: r.block() + named},
		resource.TestStep{
			PreConfig: func() { r.must(r.fleet.RemoveGPU(context.Background(), "hv02", gpu1)) },
			Config:    r.block() + named,
			PlanOnly:  true,
		},
		resource.TestStep{
			Config: r.block() + configOf(4, both, `selector = { gpu_ids = { hv02 = ["`+gpu0+`"] } }`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(vdi, tfjsonpath.New("gpus").AtMapKey("hv02"), knownvalue.MapSizeExact(1)),
				statecheck.ExpectKnownValue(vdi, tfjsonpath.New("gpus").AtMapKey("hv01"), knownvalue.MapSizeExact(2)),
			},
			Check: then(func() {
				if cl := r.host("hv02").Claims[0]; cl.Covers(gpu1) || !cl.Covers(gpu0) {
					t.Errorf("the claim on hv02 covers %v", cl.GPUs)
				}
			}),
		},
	)
}

func TestDriftUnderAHeldPartitionEndsInAnEmptyPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+configOf(4, both, `max_disruption = "vm_restart"`)+
		assignment("avd-03", "partition = { config = gpu_partition_config.vdi.id }", mayStop)+"output \"a\" { value = gpu_vm_assignment.a }\n")
	c.apply()
	_, host := r.vm("avd-03")
	for _, id := range []string{gpu0, gpu1} {
		r.must(r.fleet.SetCountOutside(context.Background(), host, id, 2))
	}
	r.must(r.fleet.SetVMState(context.Background(), "avd-03", gpu.VMRunning))

	wantSaid(t, c.apply(), "0 added, 2 changed, 0 destroyed") // the VM gets another partition
	r.wantCounts(4, both...)
	c.wantNoChanges()
}
