package pool_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccPool_PoolHasTheSameNameOnBothNodesAndGrowsAndShrinksInPlace(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue("gpu_pool.render", tfjsonpath.New("id"), knownvalue.StringExact("hv01/render")),
				plancheck.ExpectUnknownValue("gpu_pool.render", tfjsonpath.New("gpus")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_pool.render", rig.Jsonpath("gpus", "hv02", "gpus", rig.GPU1, "model"),
					knownvalue.StringExact("NVIDIA A2")),
				statecheck.ExpectKnownValue("gpu_pool.render", rig.Jsonpath("gpus", "hv02", "gpus", rig.GPU1, "vram_mib"),
					knownvalue.Int64Exact(16384)),
				statecheck.ExpectKnownValue("gpu_pool.render", tfjsonpath.New("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: rig.Then(func() {
				r.WantPool("render", []string{rig.GPU1}, rig.Both...)
				r.WantDismounted("hv01", rig.GPU1)
				r.WantDismounted("hv02", rig.GPU1)
				r.WantClaims(rig.Both, "pool render")
				if g, _ := r.Host("hv01").GPU(rig.GPU1); g.Status != gpu.ReadyForDDA || g.Partitionable != nil {
					t.Errorf("GPU in the pool has status %s and partitions %v", g.Status, g.Partitionable)
				}
			}),
		},
		resource.TestStep{
			Config:           r.Block() + rig.RenderPool(rig.AllGPUs, rig.MountBack),
			ConfigPlanChecks: rig.Planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check:            rig.Then(func() { r.WantPool("render", []string{rig.GPU0, rig.GPU1}, rig.Both...) }),
		},
		resource.TestStep{
			Config:           r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack),
			ConfigPlanChecks: rig.Planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				r.WantPool("render", []string{rig.GPU1}, rig.Both...)
				r.WantDismounted("hv02", rig.GPU1) // the GPU that left is back on its host
				if g, _ := r.Host("hv02").GPU(rig.GPU0); g.Partitionable == nil || g.Partitionable.Count != 16 {
					t.Errorf("GPU that left the pool: %+v", g.Partitionable)
				}
			}),
		},
	)
	for _, h := range rig.Both {
		r.WantNoPool("render", h)
		r.WantDismounted(h)
		r.WantClaims([]string{h})
	}
	r.WantCounts(16, rig.Both...)
}

func TestAccPool_PoolOfAClusterTakesWhatItsSelectorFinds(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.RenderPool(`cluster = "AZL"`,
				`selector = { gpu_ids = { hv01 = ["`+rig.GPU1+`"], hv02 = ["`+strings.ToLower(rig.GPU1)+`"] } }`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue("gpu_pool.render", tfjsonpath.New("id"), knownvalue.StringExact("AZL/render")),
			}},
			Check: rig.Then(func() { r.WantPool("render", []string{rig.GPU1}, rig.Both...) }),
		},
		resource.TestStep{ // without ids: every A2 of the cluster
			Config:           r.Block() + rig.RenderPool(`cluster = "AZL"`, `selector = { models = ["A2"] }`),
			ConfigPlanChecks: rig.Planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check:            rig.Then(func() { r.WantPool("render", []string{rig.GPU0, rig.GPU1}, rig.Both...) }),
		},
	)
	// on_destroy = keep
	r.WantNoPool("render", rig.Both...)
	r.WantDismounted("hv01", rig.GPU0, rig.GPU1)
	r.WantDismounted("hv02", rig.GPU0, rig.GPU1)
	r.WantClaims(rig.Both)
}

func TestAccPool_PoolOfHostsGivesAHostUpThatIsTakenOut(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.RenderPool(`hosts = ["hv02", "hv01"]`,
				`selector = { gpu_ids = { hv01 = ["`+rig.GPU1+`"], hv02 = ["`+rig.GPU1+`"] } }`, rig.MountBack),
			Check: rig.Then(func() { r.WantPool("render", []string{rig.GPU1}, rig.Both...) }),
		},
		resource.TestStep{
			Config:           r.Block() + rig.RenderPool(`hosts = ["hv01"]`, `selector = { gpu_ids = { hv01 = ["`+rig.GPU1+`"] } }`, rig.MountBack),
			ConfigPlanChecks: rig.Planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				r.WantPool("render", []string{rig.GPU1}, "hv01")
				r.WantNoPool("render", "hv02")
				r.WantDismounted("hv02")
				r.WantClaims([]string{"hv02"})
			}),
		},
	)
}

func TestAccPool_PoolOfAnotherNameIsAnotherPool(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack)},
		resource.TestStep{
			Config:           r.Block() + strings.Replace(rig.RenderPool(rig.SecondGPUs, rig.MountBack), `"render"`+"\n", `"cad"`+"\n", 1),
			ConfigPlanChecks: rig.Planned("gpu_pool.render", plancheck.ResourceActionReplace),
			Check: rig.Then(func() {
				r.WantPool("cad", []string{rig.GPU1}, rig.Both...)
				r.WantNoPool("render", rig.Both...)
				r.WantClaims(rig.Both, "pool cad")
			}),
		},
	)
}

func TestAccPool_DismountThatNeedsForceFailsOnTheSecondHostAndTheFirstIsPutBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Must(r.Fleet.EditSimulation(t.Context(), "hv02", func(s *simulated.Simulation) {
		s.GPUs = map[string]simulated.Hidden{rig.GPU1: {NeedsForce: true}}
	}))
	r.Steps(
		resource.TestStep{
			Config:      r.Block() + rig.RenderPool(rig.SecondGPUs),
			ExpectError: rig.Says("Could not create the pool", "Host: hv02", rig.GPU1, "no mitigation driver", "Rolled back: hv01"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantNoPool("render", rig.Both...)
				r.WantDismounted("hv01")
				r.WantDismounted("hv02")
				r.WantCounts(16, rig.Both...)
				r.WantClaims(rig.Both)
			},
			Config: r.Block() + rig.RenderPool(rig.SecondGPUs, rig.ByForce),
			Check:  rig.Then(func() { r.WantPool("render", []string{rig.GPU1}, rig.Both...) }),
		},
	)
}

func TestAccPool_FaultOnTheSecondHostRollsThePoolOfTheFirstBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	once := simulated.Fault{Op: simulated.OpSetPoolMembers, Times: 1, Code: backend.Failed, Detail: "the bus is stuck"}
	r.Must(r.Fleet.SetCountOutside(t.Context(), "hv01", rig.GPU1, 8))
	r.Must(r.Fleet.SetCountOutside(t.Context(), "hv02", rig.GPU1, 8))
	r.Must(r.Fleet.InjectFault(t.Context(), "hv02", once))
	untouched := func() {
		t.Helper()
		for _, h := range rig.Both {
			r.WantDismounted(h)
			r.WantNoPool("render", h)
			r.WantClaims([]string{h})
			if n := r.Counts(h)[rig.GPU1]; n != 8 {
				t.Errorf("host %s: GPU %s has %d partitions after the rollback, want 8", h, rig.GPU1, n)
			}
		}
	}
	r.Steps(
		resource.TestStep{
			Config:      r.Block() + rig.RenderPool(rig.SecondGPUs, rig.ByForce),
			ExpectError: rig.Says("Could not create the pool", "Host: hv02", "The bus is stuck", "Rolled back: hv01", "Remove the cause"),
		},
		resource.TestStep{
			PreConfig: untouched,
			Config:    r.Block() + rig.RenderPool(rig.SecondGPUs, rig.ByForce),
			Check:     rig.Then(func() { r.WantPool("render", []string{rig.GPU1}, rig.Both...) }),
		},
		resource.TestStep{ // the same in an update: the pools are as they were
			PreConfig:   func() { r.Must(r.Fleet.InjectFault(t.Context(), "hv02", once)) },
			Config:      r.Block() + rig.RenderPool(rig.AllGPUs, rig.ByForce),
			ExpectError: rig.Says("Could not change the pool", "Host: hv02", "Rolled back: hv01"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantPool("render", []string{rig.GPU1}, rig.Both...)
				r.WantDismounted("hv01", rig.GPU1)
				r.WantClaims(rig.Both, "pool render")
			},
			Config:   r.Block() + rig.RenderPool(rig.SecondGPUs, rig.ByForce),
			PlanOnly: true,
		},
	)
}

func TestAccPool_PoolInUseIsNotDestroyed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack)},
		resource.TestStep{
			PreConfig: func() { r.Draw("avd-06", "render") }, // off, but would not start any more
			Config:    r.Block(),
			ExpectError: rig.Says("The host would refuse the change", `on host "hv02"`, "these VMs use it: \"avd-06\"",
				"delete the pool", "Unassign them in an apply of its own first"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantPool("render", []string{rig.GPU1}, rig.Both...)
				r.WantClaims(rig.Both, "pool render")
			},
			Config:   r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack),
			PlanOnly: true,
		},
		resource.TestStep{
			PreConfig: func() {
				r.EditHost("hv02", func(h *gpu.Host) {
					for i := range h.VMs {
						h.VMs[i].Devices = nil
					}
				})
			},
			Config: r.Block(),
		},
	)
	r.WantNoPool("render", rig.Both...)
	r.WantDismounted("hv02")
}

func TestAccPool_MemberThatARunningVMHasDoesNotLeaveThePool(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.RenderPool(rig.SecondGPUs)},
		resource.TestStep{
			PreConfig: func() {
				r.Draw("avd-03", "render")
				high := 33280 * gpu.MiB
				r.EditHost("hv01", func(h *gpu.Host) { h.VMs[2].Settings.HighMemoryMappedIOSpace = &high })
				r.Must(r.Fleet.SetVMState(t.Context(), "avd-03", gpu.VMRunning))
			},
			Config:      r.Block() + rig.RenderPool(`members = { hv01 = [], hv02 = ["`+rig.GPU1+`"] }`),
			PlanOnly:    true,
			ExpectError: rig.Says("avd-03", "Rule: capacity"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantPool("render", []string{rig.GPU1}, rig.Both...)
				r.Must(r.Fleet.SetVMState(t.Context(), "avd-03", gpu.VMOff))
				r.EditHost("hv01", func(h *gpu.Host) { h.VMs[2].Devices = nil })
			},
			Config: r.Block() + rig.RenderPool(`members = { hv01 = [], hv02 = ["`+rig.GPU1+`"] }`),
			Check: rig.Then(func() {
				r.WantPool("render", nil, "hv01") // the pool stays, empty
				r.WantPool("render", []string{rig.GPU1}, "hv02")
			}),
		},
	)
}

func TestAccPool_PoolThatSomebodyElseMadeIsToBeImported(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.SetPool("hv02", "Render", rig.GPU1)
	before := r.Snapshot()
	r.Steps(resource.TestStep{
		Config:      r.Block() + rig.RenderPool(rig.SecondGPUs),
		ExpectError: rig.Says("The pool already exists", `terraform import ADDRESS hv02/Render`, "Rule: existing-pool"),
	})
	r.WantUnchanged(before)
}

func TestAccPool_PoolAndConfigOfOneRunDoNotShareAGPU(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][2]string{
		"config first": {"", "depends_on = [gpu_partition_config.vdi]"},
		"pool first":   {"depends_on = [gpu_pool.render]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			before := r.Snapshot()
			config := rig.ConfigOf(4, rig.Both, order[0])
			r.Steps(resource.TestStep{
				Config:      r.Block() + config + rig.RenderPool(rig.SecondGPUs, order[1]),
				ExpectError: rig.Says(`gpu_partition_config "vdi" and gpu_pool "hv01/render" both want GPU `+rig.GPU1, "Rule: dda-xor-partition"),
			})
			r.WantUnchanged(before)
		})
	}
}

func TestAccPool_PoolAndConfigOfTwoRunsDoNotShareAGPU(t *testing.T) {
	t.Parallel()
	t.Run("the config was there", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.TwoNodes())
		r.Steps(
			resource.TestStep{Config: r.Block() + rig.Config4},
			resource.TestStep{
				Config:      r.Block() + rig.Config4 + rig.RenderPool(rig.SecondGPUs),
				ExpectError: rig.Says(rig.GPU1, "Rule: dda-xor-partition"),
			},
		)
		r.WantDismounted("hv01")
		r.WantCounts(4, rig.Both...)
	})
	t.Run("the pool was there", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.TwoNodes())
		named := rig.ConfigOf(4, rig.Both, `selector = { gpu_ids = { hv01 = ["`+rig.GPU1+`"], hv02 = ["`+rig.GPU1+`"] } }`)
		r.Steps(
			resource.TestStep{Config: r.Block() + rig.RenderPool(rig.SecondGPUs)},
			resource.TestStep{
				Config:      r.Block() + named + rig.RenderPool(rig.SecondGPUs),
				ExpectError: rig.Says(rig.GPU1, "Rule: dda-xor-partition"),
			},
			resource.TestStep{ // without names the config takes what the pool leaves
				Config: r.Block() + rig.Config4 + rig.RenderPool(rig.SecondGPUs),
				Check: rig.Then(func() {
					r.WantPool("render", []string{rig.GPU1}, rig.Both...)
					r.WantCounts(4, rig.Both...)
				}),
			},
		)
	})
	t.Run("another state's config was there", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.TwoNodes())
		other := r.BlockOf("other")
		r.Steps(resource.TestStep{Config: other + rig.Config4})
		r.EditHost("hv01", func(h *gpu.Host) {
			h.Claims = append(h.Claims, gpu.Claim{
				Kind: gpu.ClaimConfig, ID: "vdi", Token: "t", Owner: "other", GPUs: []string{rig.GPU0, rig.GPU1}, Revision: 1,
				Want: gpu.Want{
					Config: &gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: 4, GPUs: map[string][]string{"hv01": {rig.GPU0, rig.GPU1}}},
				},
			})
		})
		before := r.Snapshot()
		r.Steps(resource.TestStep{
			Config:      r.Block() + rig.RenderPool(rig.SecondGPUs),
			ExpectError: rig.Says(rig.GPU1, `partition config "vdi" of the Terraform state "other"`, "Rule: dda-xor-partition"),
		})
		r.WantUnchanged(before)
	})
}

func TestAccPool_GPUWithPartitionsInUseDoesNotGoIntoAPool(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.AddForeignAdapter("avd-01")
	held := ""
	for _, g := range r.Host("hv01").GPUs {
		if g.Partitionable != nil && len(g.Partitionable.Partitions) > 0 {
			held = g.ID
		}
	}
	before := r.Snapshot()
	r.Steps(resource.TestStep{
		Config:      r.Block() + rig.RenderPool(`members = { hv01 = ["`+held+`"] }`, rig.ByForce),
		ExpectError: rig.Says(held, "avd-01", "Rule: dda-xor-partition"),
	})
	r.WantUnchanged(before)
	r.WantVM("avd-01", gpu.VMRunning, 1)
}

func TestAccPool_ReservedPoolNameIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(resource.TestStep{
		Config:      r.Block() + strings.Replace(rig.RenderPool(rig.SecondGPUs), `"render"`+"\n", `"PRIMORDIAL"`+"\n", 1),
		ExpectError: rig.Says("Attribute name", "primordial"),
	})
}

func TestAccPool_PoolDriftIsSeenAndPutRight(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack)},
		resource.TestStep{ // a member is missing on one host, another host has a foreign one
			PreConfig: func() {
				ctx := t.Context()
				hv01, err := r.Fleet.Host("hv01")
				r.Must(err)
				r.Must(hv01.SetPoolMembers(ctx, "render", nil))
				hv02, err := r.Fleet.Host("hv02")
				r.Must(err)
				r.Must(hv02.DismountDevice(ctx, rig.GPU0, true))
				r.Must(hv02.SetPoolMembers(ctx, "render", []string{rig.GPU0, rig.GPU1}))
			},
			Config: r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("gpu_pool.render", plancheck.ResourceActionUpdate),
				plancheck.ExpectKnownValue("gpu_pool.render", tfjsonpath.New("drift"), knownvalue.ListSizeExact(0)),
			}},
			Check: rig.Then(func() {
				r.WantPool("render", []string{rig.GPU1}, rig.Both...)
				r.WantDismounted("hv02", rig.GPU1)
			}),
		},
		resource.TestStep{ // the whole pool is gone on one host
			PreConfig: func() {
				hv01, err := r.Fleet.Host("hv01")
				r.Must(err)
				r.Must(hv01.DeletePool(t.Context(), "render"))
			},
			Config:           r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack),
			ConfigPlanChecks: rig.Planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check:            rig.Then(func() { r.WantPool("render", []string{rig.GPU1}, rig.Both...) }),
		},
		resource.TestStep{ // gone on all hosts: a new one is made
			PreConfig: func() {
				for _, n := range []string{"hv01", "hv02"} {
					h, err := r.Fleet.Host(n)
					r.Must(err)
					r.Must(h.DeletePool(t.Context(), "render"))
				}
			},
			Config:           r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack),
			ConfigPlanChecks: rig.Planned("gpu_pool.render", plancheck.ResourceActionCreate),
			Check: rig.Then(func() {
				r.WantPool("render", []string{rig.GPU1}, rig.Both...)
				r.WantClaims(rig.Both, "pool render")
			}),
		},
	)
	r.WantDismounted("hv01")
	r.WantDismounted("hv02")
}

func TestAccPool_PoolDriftIsNamed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	c := rig.NewCLI(t, r.Block()+rig.RenderPool(rig.SecondGPUs))
	c.Apply()
	hv01, err := r.Fleet.Host("hv01")
	r.Must(err)
	r.Must(hv01.SetPoolMembers(t.Context(), "render", nil))
	out, code := c.Run("plan", "-detailed-exitcode")
	if code != 2 {
		t.Errorf("exit code %d, want 2 (changes)", code)
	}
	rig.WantSaid(t, out, "Pool differs from the declaration",
		"Host hv01, GPU "+rig.GPU1+` is not in pool "render", declared is a member; changed by others`)
}

// TestAccPool_ReplacedGPUOfAPoolIsDrift puts another card where one of the pool was. On Hyper-V it has
// the id of its slot, on Linux one of its own; a card in another slot is no replacement.
func TestAccPool_ReplacedGPUOfAPoolIsDrift(t *testing.T) {
	t.Parallel()
	swap := func(host, id string, card gpu.GPU) func(*rig.Rig) {
		return func(r *rig.Rig) {
			r.Must(r.Fleet.RemoveGPU(t.Context(), host, id))
			r.Must(r.Fleet.AddGPU(t.Context(), host, card))
		}
	}
	linux := rig.Inference(1)
	l4 := linux.Hosts[0].GPUs[1]
	l4.ID, l4.Model, l4.VRAM = "GPU-90000000-0000-4000-8000-000000000009", "NVIDIA L4", 23034*gpu.MiB
	elsewhere := l4
	elsewhere.Address = "0000:99:00.0"
	was := "is in PCI slot " + l4.Address + ", where GPU " + rig.ShareCard(1, 1) + " was"
	hosts := `hosts = ["hv01", "hv02"]`
	for name, test := range map[string]struct {
		fleet        gpu.Snapshot
		config, pool string
		meddle       func(*rig.Rig)
		host, id     string
		cause        change.Cause
		found, model string
	}{
		"Hyper-V, by members": {
			rig.TwoNodes(), rig.RenderPool(rig.SecondGPUs), "render", swap("hv01", rig.GPU1, rig.A16(rig.GPU1)),
			"hv01", rig.GPU1, change.CauseGPUReplaced, "is where a GPU of model NVIDIA A2 was, and not in pool \"render\" yet", "NVIDIA A16",
		},
		"Hyper-V, by hosts": {
			rig.TwoNodes(), rig.RenderPool(hosts), "render", swap("hv02", rig.GPU0, rig.A16(rig.GPU0)), "hv02",
			rig.GPU0, change.CauseGPUReplaced, "is where a GPU of model NVIDIA A2 was, and not in pool \"render\" yet", "NVIDIA A16",
		},
		"Hyper-V, in the pool already": {rig.TwoNodes(), rig.RenderPool(rig.SecondGPUs), "render", func(r *rig.Rig) {
			r.EditHost("hv01", func(h *gpu.Host) {
				g, _ := h.GPU(rig.GPU1)
				g.Model = "NVIDIA A16"
			})
		}, "hv01", rig.GPU1, change.CauseGPUReplaced, "is where a GPU of model NVIDIA A2 was", "NVIDIA A16"},
		"Hyper-V, the same model": {
			rig.TwoNodes(), rig.RenderPool(rig.SecondGPUs), "render", swap("hv01", rig.GPU1, rig.A2(rig.GPU1)),
			"hv01", rig.GPU1, change.CauseOtherTool, "is not in pool", "NVIDIA A2",
		},
		"Linux": {
			linux, rig.MLPool([]string{"gpu01"}), "ml", swap("gpu01", rig.ShareCard(1, 1), l4), "gpu01",
			l4.ID, change.CauseGPUReplaced, was + ", and not in pool \"ml\" yet", "NVIDIA L4",
		},
		"Linux, in another slot": {
			linux, rig.MLPool([]string{"gpu01"}), "ml", swap("gpu01", rig.ShareCard(1, 1), elsewhere), "gpu01",
			l4.ID, change.CauseGPUAdded, "is not in pool", "NVIDIA L4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, test.fleet)
			c := rig.NewCLI(t, r.Block("rules = { homogeneous-gpus = \"warning\" }")+test.config+
				strings.ReplaceAll("output \"drift\" {\n  value = POOL.drift\n}\noutput \"gpus\" {\n  value = POOL.gpus\n}\n",
					"POOL", "gpu_pool."+test.pool))
			c.Apply()
			test.meddle(r)
			plan := c.Ok("plan")
			rig.WantSaid(t, plan, "Pool differs from the declaration", test.found, "0 to add, 1 to change, 0 to destroy")
			c.Ok("apply", "-refresh-only", "-auto-approve")
			c.Ok("apply", "-refresh-only", "-auto-approve") // the state lists the card by now
			rig.WantSaid(t, c.Ok("plan"), "Pool differs from the declaration", test.found, "0 to add, 1 to change, 0 to destroy")
			var out struct {
				Drift struct {
					Value []struct{ Object, Cause string }
				}
				GPUs struct {
					Value map[string]struct {
						GPUs map[string]struct{ Model string }
					}
				}
			}
			read := func() {
				if err := json.Unmarshal([]byte(c.Ok("output", "-json")), &out); err != nil {
					t.Fatal(err)
				}
			}
			if read(); len(out.Drift.Value) != 1 || out.Drift.Value[0].Cause != string(test.cause) ||
				out.Drift.Value[0].Object != "host "+test.host+", GPU "+test.id {
				t.Errorf("drift is %+v", out.Drift.Value)
			}
			c.Apply()
			if read(); out.GPUs.Value[test.host].GPUs[test.id].Model != test.model {
				t.Errorf("gpus are %+v", out.GPUs.Value)
			}
			h := r.Host(test.host)
			if claim, ok := h.Claim(gpu.ClaimPool, test.pool); !ok || !claim.Covers(test.id) {
				t.Errorf("the claim is %+v", claim)
			}
			if p, ok := h.Pool("render"); h.Platform != gpu.Linux && (!ok || !p.Has(test.id)) {
				t.Errorf("the pool is %+v", p)
			}
			c.WantNoChanges()
		})
	}
}

func TestAccPool_ChangeOfPoolPolicyAloneAsksNoHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.RenderPool(rig.SecondGPUs)},
		resource.TestStep{
			PreConfig:        func() { r.Calls.Take() },
			Config:           r.Block() + rig.RenderPool(rig.SecondGPUs, rig.MountBack, rig.ByForce, `timeouts = { delete = "5m" }`),
			ConfigPlanChecks: rig.Planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				for host, methods := range r.Calls.Take() {
					for m := range methods {
						if !strings.HasSuffix(m, "Inventory") && !strings.HasSuffix(m, "Hello") {
							t.Errorf("host %s was asked for %s", host, m)
						}
					}
				}
			}),
		},
	)
	r.WantDismounted("hv01") // what was applied last counts
	r.WantDismounted("hv02")
}

func TestAccPool_RenamedPoolKeyTakesTheClaimOver(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	keyed := func(key string) string {
		return r.Block() + `
resource "gpu_pool" "render" {
  for_each = toset(["` + key + `"])
  name     = "render"
  ` + rig.SecondGPUs + `
}
`
	}
	c := rig.NewCLI(t, keyed("a"))
	c.Apply()
	token := r.Host("hv01").Claims[0].Token
	c.Write(keyed("b"))
	c.Apply("-parallelism=1")
	r.WantPool("render", []string{rig.GPU1}, rig.Both...)
	r.WantClaims(rig.Both, "pool render")
	if got := r.Host("hv01").Claims[0].Token; got == token {
		t.Error("the claim still has the token of the instance that is gone")
	}
	c.WantNoChanges()
}

func TestAccPool_PoolKeepsItsStateWhileAHostDoesNotAnswer(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.RenderPool(rig.SecondGPUs)},
		resource.TestStep{
			PreConfig:   func() { r.Must(r.Fleet.SetUnreachable(t.Context(), "hv02", true)) },
			Config:      r.Block() + rig.RenderPool(rig.SecondGPUs),
			PlanOnly:    true,
			ExpectError: rig.Says("Host does not answer", "Host: hv02"),
		},
		resource.TestStep{
			Config:   r.Block(`on_unreachable = "keep"`) + rig.RenderPool(rig.SecondGPUs),
			PlanOnly: true, // an empty plan: the state is kept
		},
		resource.TestStep{
			PreConfig: func() { r.Must(r.Fleet.SetUnreachable(t.Context(), "hv02", false)) },
			Config:    r.Block() + rig.RenderPool(rig.SecondGPUs),
			PlanOnly:  true,
		},
	)
}

// A host that is gone for good leaves the pool although nobody can tell it so.
func TestAccPool_DecommissionedHostDoesNotHoldItsPoolHostage(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01"), rig.Node("hv02")))
	c := rig.NewCLI(t, r.BlockFor(rig.Both)+rig.RenderPool(rig.SecondGPUs))
	c.Apply()

	c.Write(r.BlockFor([]string{"hv01"}) + rig.RenderPool(rig.SecondGPUs)) // the resource still names it
	out := c.Ok("plan")
	rig.WantSaid(t, out, "Host is not in the provider's configuration", "Host: hv02", "remove it from this resource")

	c.Write(r.BlockFor([]string{"hv01"}) + rig.RenderPool(`members = { hv01 = ["`+rig.GPU1+`"] }`))
	out = c.Apply()
	rig.WantSaid(t, out, "The host was left unchanged", "Host: hv02", "0 added, 1 changed")
	r.WantPool("render", []string{rig.GPU1}, rig.Both...)
	c.WantNoChanges()
	c.Destroy()
	r.WantNoPool("render", "hv01")
	r.WantClaims([]string{"hv02"}, "pool render") // as it was when it left
}

// Members that are not known at plan are checked at apply, against the other
// resources of the run as well.
func TestAccPool_PoolMembersThatAreUnknownAtPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	hcl := func(second string) string {
		return r.Block() + `
resource "terraform_data" "gpu" {
  input = "` + rig.GPU1 + `"
}
resource "gpu_pool" "cad" {
  name    = "cad"
  members = { hv01 = [` + second + `] }
  depends_on = [gpu_pool.render]
}
` + rig.RenderPool(`members = { hv01 = [terraform_data.gpu.output] }`, rig.MountBack)
	}
	c := rig.NewCLI(t, hcl("terraform_data.gpu.output"))
	rig.WantSaid(t, c.Ok("plan"), "Plan: 3 to add")
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), `"hv01/cad"`, rig.GPU1, "render")
	r.WantPool("render", []string{rig.GPU1}, "hv01")
	r.WantNoPool("cad", "hv01")

	c.Write(hcl(`"` + rig.GPU0 + `"`))
	c.Apply()
	r.WantPool("cad", []string{rig.GPU0}, "hv01")
	c.WantNoChanges()
}

// A GPU that cannot be read is not mounted back, which the plan says of each end that a pool has; nothing else waits for it.
func TestAccPool_AGPUThatCannotBeReadIsNotMountedBack(t *testing.T) {
	t.Parallel()
	says := []string{
		"Warning: The GPU is not mounted back", rig.GPU1, `"hv01"`, "the driver does not answer", "Mount-VMHostAssignableDevice",
	}
	for name, end := range map[string]func(r *rig.Rig, c *rig.CLI){
		"destroy": func(r *rig.Rig, c *rig.CLI) {
			rig.WantSaid(r.T, c.Ok("plan", "-destroy"), says...)
			c.Destroy()
			r.WantClaims(rig.Both)
		},
		"it leaves": func(r *rig.Rig, c *rig.CLI) {
			c.Write(r.Block() + rig.RenderPool(`members = { hv01 = [], hv02 = ["`+rig.GPU1+`"] }`, rig.MountBack))
			rig.WantSaid(r.T, c.Ok("plan"), says...)
			c.Apply()
			r.WantPool("render", []string{rig.GPU1}, "hv02")
			c.WantNoChanges()
		},
		"it is kept": func(r *rig.Rig, c *rig.CLI) {
			c.Write(r.Block() + rig.RenderPool(rig.SecondGPUs))
			c.Apply()
			if out := c.Ok("plan", "-destroy"); strings.Contains(out, says[0]) {
				r.T.Errorf("nothing was to be mounted back:\n%s", out)
			}
		},
	} {
		t.Run(name, rig.WithoutWaiting(func(t *testing.T) {
			r := rig.New(t, rig.TwoNodes())
			c := rig.NewCLI(t, r.Block()+rig.RenderPool(rig.SecondGPUs, rig.MountBack))
			c.Apply()
			r.EditHost("hv01", func(h *gpu.Host) {
				h.Unknown = append(h.Unknown, gpu.Unknown{Part: gpu.PartGPUs, GPU: rig.GPU1, Why: "the driver does not answer"})
			})
			end(r, c)
			r.WantDismounted("hv01", rig.GPU1)
		}))
	}
}
