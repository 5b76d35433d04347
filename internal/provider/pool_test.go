package provider_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestPoolHasTheSameNameOnBothNodesAndGrowsAndShrinksInPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{
			Config: r.block() + renderPool(secondGPUs, mountBack),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue("gpu_pool.render", tfjsonpath.New("id"), knownvalue.StringExact("hv01/render")),
				plancheck.ExpectUnknownValue("gpu_pool.render", tfjsonpath.New("gpus")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("gpu_pool.render", tfjsonpath.New("gpus").AtMapKey("hv02").AtMapKey(gpu1).AtMapKey("model"), knownvalue.StringExact("NVIDIA A2")),
				statecheck.ExpectKnownValue("gpu_pool.render", tfjsonpath.New("gpus").AtMapKey("hv02").AtMapKey(gpu1).AtMapKey("vram_mib"), knownvalue.Int64Exact(16384)),
				statecheck.ExpectKnownValue("gpu_pool.render", tfjsonpath.New("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: then(func() {
				r.wantPool("render", []string{gpu1}, both...)
				r.wantDismounted("hv01", gpu1)
				r.wantDismounted("hv02", gpu1)
				r.wantClaims(both, "pool render")
				if g, _ := r.host("hv01").GPU(gpu1); g.Status != gpu.ReadyForDDA || g.Partitionable != nil {
					t.Errorf("GPU in the pool has status %s and partitions %v", g.Status, g.Partitionable)
				}
			}),
		},
		resource.TestStep{
			Config:           r.block() + renderPool(allGPUs, mountBack),
			ConfigPlanChecks: planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check:            then(func() { r.wantPool("render", []string{gpu0, gpu1}, both...) }),
		},
		resource.TestStep{
			Config:           r.block() + renderPool(secondGPUs, mountBack),
			ConfigPlanChecks: planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check: then(func() {
				r.wantPool("render", []string{gpu1}, both...)
				r.wantDismounted("hv02", gpu1) // the GPU that left is back on its host
				if g, _ := r.host("hv02").GPU(gpu0); g.Partitionable == nil || g.Partitionable.Count != 16 {
					t.Errorf("GPU that left the pool: %+v", g.Partitionable)
				}
			}),
		},
	)
	for _, h := range both {
		r.wantNoPool("render", h)
		r.wantDismounted(h)
		r.wantClaims([]string{h})
	}
	r.wantCounts(16, both...)
}

func TestPoolOfAClusterTakesWhatItsSelectorFinds(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{
			Config: r.block() + renderPool(`cluster = "AZL"`, `selector = { gpu_ids = { hv01 = ["`+gpu1+`"], hv02 = ["`+strings.ToLower(gpu1)+`"] } }`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue("gpu_pool.render", tfjsonpath.New("id"), knownvalue.StringExact("AZL/render")),
			}},
			Check: then(func() { r.wantPool("render", []string{gpu1}, both...) }),
		},
		resource.TestStep{ // without ids: every A2 of the cluster
			Config:           r.block() + renderPool(`cluster = "AZL"`, `selector = { models = ["A2"] }`),
			ConfigPlanChecks: planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check:            then(func() { r.wantPool("render", []string{gpu0, gpu1}, both...) }),
		},
	)
	// on_destroy = keep
	r.wantNoPool("render", both...)
	r.wantDismounted("hv01", gpu0, gpu1)
	r.wantDismounted("hv02", gpu0, gpu1)
	r.wantClaims(both)
}

func TestPoolOfHostsGivesAHostUpThatIsTakenOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{
			Config: r.block() + renderPool(`hosts = ["hv02", "hv01"]`, `selector = { gpu_ids = { hv01 = ["`+gpu1+`"], hv02 = ["`+gpu1+`"] } }`, mountBack),
			Check:  then(func() { r.wantPool("render", []string{gpu1}, both...) }),
		},
		resource.TestStep{
			Config:           r.block() + renderPool(`hosts = ["hv01"]`, `selector = { gpu_ids = { hv01 = ["`+gpu1+`"] } }`, mountBack),
			ConfigPlanChecks: planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check: then(func() {
				r.wantPool("render", []string{gpu1}, "hv01")
				r.wantNoPool("render", "hv02")
				r.wantDismounted("hv02")
				r.wantClaims([]string{"hv02"})
			}),
		},
	)
}

func TestPoolOfAnotherNameIsAnotherPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + renderPool(secondGPUs, mountBack)},
		resource.TestStep{
			Config:           r.block() + strings.Replace(renderPool(secondGPUs, mountBack), `"render"`+"\n", `"cad"`+"\n", 1),
			ConfigPlanChecks: planned("gpu_pool.render", plancheck.ResourceActionReplace),
			Check: then(func() {
				r.wantPool("cad", []string{gpu1}, both...)
				r.wantNoPool("render", both...)
				r.wantClaims(both, "pool cad")
			}),
		},
	)
}

func TestDismountThatNeedsForceFailsOnTheSecondHostAndTheFirstIsPutBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.must(r.fleet.EditSimulation(t.Context(), "hv02", func(s *simulated.Simulation) {
		s.GPUs = map[string]simulated.Hidden{gpu1: {NeedsForce: true}}
	}))
	r.steps(
		resource.TestStep{
			Config:      r.block() + renderPool(secondGPUs),
			ExpectError: says("Could not create the pool", "Host: hv02", gpu1, "no mitigation driver", "Rolled back: hv01"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantNoPool("render", both...)
				r.wantDismounted("hv01")
				r.wantDismounted("hv02")
				r.wantCounts(16, both...)
				r.wantClaims(both)
			},
			Config: r.block() + renderPool(secondGPUs, byForce),
			Check:  then(func() { r.wantPool("render", []string{gpu1}, both...) }),
		},
	)
}

func TestFaultOnTheSecondHostRollsThePoolOfTheFirstBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	once := simulated.Fault{Op: simulated.OpSetPoolMembers, Times: 1, Code: backend.Failed, Detail: "the bus is stuck"}
	r.must(r.fleet.SetCountOutside(t.Context(), "hv01", gpu1, 8))
	r.must(r.fleet.SetCountOutside(t.Context(), "hv02", gpu1, 8))
	r.must(r.fleet.InjectFault(t.Context(), "hv02", once))
	untouched := func() {
		t.Helper()
		for _, h := range both {
			r.wantDismounted(h)
			r.wantNoPool("render", h)
			r.wantClaims([]string{h})
			if n := r.counts(h)[gpu1]; n != 8 {
				t.Errorf("host %s: GPU %s has %d partitions after the rollback, want 8", h, gpu1, n)
			}
		}
	}
	r.steps(
		resource.TestStep{
			Config:      r.block() + renderPool(secondGPUs, byForce),
			ExpectError: says("Could not create the pool", "Host: hv02", "the bus is stuck", "Rolled back: hv01", "Nothing of this change remains"),
		},
		resource.TestStep{
			PreConfig: untouched,
			Config:    r.block() + renderPool(secondGPUs, byForce),
			Check:     then(func() { r.wantPool("render", []string{gpu1}, both...) }),
		},
		resource.TestStep{ // the same in an update: the pools are as they were
			PreConfig:   func() { r.must(r.fleet.InjectFault(t.Context(), "hv02", once)) },
			Config:      r.block() + renderPool(allGPUs, byForce),
			ExpectError: says("Could not change the pool", "Host: hv02", "Rolled back: hv01"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantPool("render", []string{gpu1}, both...)
				r.wantDismounted("hv01", gpu1)
				r.wantClaims(both, "pool render")
			},
			Config:   r.block() + renderPool(secondGPUs, byForce),
			PlanOnly: true,
		},
	)
}

func TestPoolInUseIsNotDestroyed(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + renderPool(secondGPUs, mountBack)},
		resource.TestStep{
			PreConfig:   func() { r.draw("avd-06", "render") }, // off, but would not start any more
			Config:      r.block(),
			ExpectError: says("Could not destroy the pool", "Host: hv02", "avd-06", "unassign them first"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantPool("render", []string{gpu1}, both...)
				r.wantClaims(both, "pool render")
			},
			Config:   r.block() + renderPool(secondGPUs, mountBack),
			PlanOnly: true,
		},
		resource.TestStep{
			PreConfig: func() {
				r.editHost("hv02", func(h *gpu.Host) {
					for i := range h.VMs {
						h.VMs[i].Devices = nil
					}
				})
			},
			Config: r.block(),
		},
	)
	r.wantNoPool("render", both...)
	r.wantDismounted("hv02")
}

func TestMemberThatARunningVMHasDoesNotLeaveThePool(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + renderPool(secondGPUs)},
		resource.TestStep{
			PreConfig: func() {
				r.draw("avd-03", "render")
				high := 33280 * gpu.MiB
				r.editHost("hv01", func(h *gpu.Host) { h.VMs[2].Settings.HighMemoryMappedIOSpace = &high })
				r.must(r.fleet.SetVMState(t.Context(), "avd-03", gpu.VMRunning))
			},
			Config:      r.block() + renderPool(`members = { hv01 = [], hv02 = ["`+gpu1+`"] }`),
			PlanOnly:    true,
			ExpectError: says("avd-03", "Rule: capacity"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantPool("render", []string{gpu1}, both...)
				r.must(r.fleet.SetVMState(t.Context(), "avd-03", gpu.VMOff))
				r.editHost("hv01", func(h *gpu.Host) { h.VMs[2].Devices = nil })
			},
			Config: r.block() + renderPool(`members = { hv01 = [], hv02 = ["`+gpu1+`"] }`),
			Check: then(func() {
				r.wantPool("render", nil, "hv01") // the pool stays, empty
				r.wantPool("render", []string{gpu1}, "hv02")
			}),
		},
	)
}

func TestPoolThatSomebodyElseMadeIsToBeImported(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.setPool("hv02", "Render", gpu1)
	before := r.snapshot()
	r.steps(resource.TestStep{
		Config:      r.block() + renderPool(secondGPUs),
		ExpectError: says("The pool exists already", `terraform import ADDRESS hv02/Render`, "Rule: existing-pool"),
	})
	r.wantUnchanged(before)
}

func TestPoolAndConfigOfOneRunDoNotShareAGPU(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][2]string{
		"config first": {"", "depends_on = [gpu_partition_config.vdi]"},
		"pool first":   {"depends_on = [gpu_pool.render]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, twoNodes())
			before := r.snapshot()
			config := configOf(4, both, order[0])
			r.steps(resource.TestStep{
				Config:      r.block() + config + renderPool(secondGPUs, order[1]),
				ExpectError: says(`gpu_partition_config "vdi" and gpu_pool "hv01/render" both want GPU `+gpu1, "Rule: dda-xor-partition"),
			})
			r.wantUnchanged(before)
		})
	}
}

func TestPoolAndConfigOfTwoRunsDoNotShareAGPU(t *testing.T) {
	t.Parallel()
	t.Run("the config was there", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, twoNodes())
		r.steps(
			resource.TestStep{Config: r.block() + config4},
			resource.TestStep{
				Config:      r.block() + config4 + renderPool(secondGPUs),
				ExpectError: says(gpu1, "Rule: dda-xor-partition"),
			},
		)
		r.wantDismounted("hv01")
		r.wantCounts(4, both...)
	})
	t.Run("the pool was there", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, twoNodes())
		named := configOf(4, both, `selector = { gpu_ids = { hv01 = ["`+gpu1+`"], hv02 = ["`+gpu1+`"] } }`)
		r.steps(
			resource.TestStep{Config: r.block() + renderPool(secondGPUs)},
			resource.TestStep{
				Config:      r.block() + named + renderPool(secondGPUs),
				ExpectError: says(gpu1, "Rule: dda-xor-partition"),
			},
			resource.TestStep{ // without names the config takes what the pool leaves
				Config: r.block() + config4 + renderPool(secondGPUs),
				Check: then(func() {
					r.wantPool("render", []string{gpu1}, both...)
					r.wantCounts(4, both...)
				}),
			},
		)
	})
	t.Run("another state's config was there", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, twoNodes())
		other := r.blockOf("other")
		r.steps(resource.TestStep{Config: other + config4})
		r.editHost("hv01", func(h *gpu.Host) {
			h.Claims = append(h.Claims, gpu.Claim{
				Kind: gpu.ClaimConfig, ID: "vdi", Token: "t", Owner: "other", GPUs: []string{gpu0, gpu1}, Revision: 1,
				Want: gpu.Want{Config: &gpu.PartitionConfig{ID: "vdi", Count: 4, GPUs: map[string][]string{"hv01": {gpu0, gpu1}}}},
			})
		})
		before := r.snapshot()
		r.steps(resource.TestStep{
			Config:      r.block() + renderPool(secondGPUs),
			ExpectError: says(gpu1, `partition config "vdi" of the Terraform state "other"`, "Rule: dda-xor-partition"),
		})
		r.wantUnchanged(before)
	})
}

func TestGPUWithPartitionsInUseDoesNotGoIntoAPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.addForeignAdapter("avd-01")
	held := ""
	for _, g := range r.host("hv01").GPUs {
		if g.Partitionable != nil && len(g.Partitionable.Partitions) > 0 {
			held = g.ID
		}
	}
	before := r.snapshot()
	r.steps(resource.TestStep{
		Config:      r.block() + renderPool(`members = { hv01 = ["`+held+`"] }`, byForce),
		ExpectError: says(held, "avd-01", "Rule: dda-xor-partition"),
	})
	r.wantUnchanged(before)
	r.wantVM("avd-01", gpu.VMRunning, 1)
}

func TestReservedPoolNameIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(resource.TestStep{
		Config:      r.block() + strings.Replace(renderPool(secondGPUs), `"render"`+"\n", `"PRIMORDIAL"`+"\n", 1),
		ExpectError: says("Attribute name", "primordial"),
	})
}

func TestPoolDriftIsSeenAndPutRight(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + renderPool(secondGPUs, mountBack)},
		resource.TestStep{ // a member is missing on one host, another host has a foreign one
			PreConfig: func() {
				ctx := t.Context()
				hv01, err := r.fleet.Host("hv01")
				r.must(err)
				r.must(hv01.SetPoolMembers(ctx, "render", nil))
				hv02, err := r.fleet.Host("hv02")
				r.must(err)
				r.must(hv02.DismountDevice(ctx, gpu0, true))
				r.must(hv02.SetPoolMembers(ctx, "render", []string{gpu0, gpu1}))
			},
			Config: r.block() + renderPool(secondGPUs, mountBack),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("gpu_pool.render", plancheck.ResourceActionUpdate),
				plancheck.ExpectUnknownValue("gpu_pool.render", tfjsonpath.New("drift")),
			}},
			Check: then(func() {
				r.wantPool("render", []string{gpu1}, both...)
				r.wantDismounted("hv02", gpu1)
			}),
		},
		resource.TestStep{ // the whole pool is gone on one host
			PreConfig: func() {
				hv01, err := r.fleet.Host("hv01")
				r.must(err)
				r.must(hv01.DeletePool(t.Context(), "render"))
			},
			Config:           r.block() + renderPool(secondGPUs, mountBack),
			ConfigPlanChecks: planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check:            then(func() { r.wantPool("render", []string{gpu1}, both...) }),
		},
		resource.TestStep{ // gone on all hosts: a new one is made
			PreConfig: func() {
				for _, n := range []string{"hv01", "hv02"} {
					h, err := r.fleet.Host(n)
					r.must(err)
					r.must(h.DeletePool(t.Context(), "render"))
				}
			},
			Config:           r.block() + renderPool(secondGPUs, mountBack),
			ConfigPlanChecks: planned("gpu_pool.render", plancheck.ResourceActionCreate),
			Check: then(func() {
				r.wantPool("render", []string{gpu1}, both...)
				r.wantClaims(both, "pool render")
			}),
		},
	)
	r.wantDismounted("hv01")
	r.wantDismounted("hv02")
}

func TestPoolDriftIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	c := newCLI(t, r.block()+renderPool(secondGPUs))
	c.apply()
	hv01, err := r.fleet.Host("hv01")
	r.must(err)
	r.must(hv01.SetPoolMembers(t.Context(), "render", nil))
	out, code := c.run("plan", "-detailed-exitcode")
	if code != 2 {
		t.Errorf("exit code %d, want 2 (changes)", code)
	}
	wantSaid(t, out, "Pool differs from the declaration", "host hv01: GPU "+gpu1+` is not in pool "render"`)
}

func TestChangeOfPoolPolicyAloneAsksNoHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + renderPool(secondGPUs)},
		resource.TestStep{
			PreConfig:        func() { r.calls.take() },
			Config:           r.block() + renderPool(secondGPUs, mountBack, byForce, `timeouts = { delete = "5m" }`),
			ConfigPlanChecks: planned("gpu_pool.render", plancheck.ResourceActionUpdate),
			Check: then(func() {
				for host, methods := range r.calls.take() {
					for m := range methods {
						if !strings.HasSuffix(m, "Inventory") && !strings.HasSuffix(m, "Hello") {
							t.Errorf("host %s was asked for %s", host, m)
						}
					}
				}
			}),
		},
	)
	r.wantDismounted("hv01") // what was applied last counts
	r.wantDismounted("hv02")
}

func TestRenamedPoolKeyTakesTheClaimOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	keyed := func(key string) string {
		return r.block() + `
resource "gpu_pool" "render" {
  for_each = toset(["` + key + `"])
  name     = "render"
  ` + secondGPUs + `
}
`
	}
	c := newCLI(t, keyed("a"))
	c.apply()
	token := r.host("hv01").Claims[0].Token
	c.write(keyed("b"))
	c.apply("-parallelism=1")
	r.wantPool("render", []string{gpu1}, both...)
	r.wantClaims(both, "pool render")
	if got := r.host("hv01").Claims[0].Token; got == token {
		t.Error("the claim still has the token of the instance that is gone")
	}
	c.wantNoChanges()
}

func TestPoolKeepsItsStateWhileAHostDoesNotAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{Config: r.block() + renderPool(secondGPUs)},
		resource.TestStep{
			PreConfig:   func() { r.must(r.fleet.SetUnreachable(t.Context(), "hv02", true)) },
			Config:      r.block() + renderPool(secondGPUs),
			PlanOnly:    true,
			ExpectError: says("Host does not answer", "Host: hv02"),
		},
		resource.TestStep{
			Config:   r.block(`on_unreachable = "keep"`) + renderPool(secondGPUs),
			PlanOnly: true, // an empty plan: the state is kept
		},
		resource.TestStep{
			PreConfig: func() { r.must(r.fleet.SetUnreachable(t.Context(), "hv02", false)) },
			Config:    r.block() + renderPool(secondGPUs),
			PlanOnly:  true,
		},
	)
}

// A host that is gone for good leaves the pool although nobody can tell it so.
func TestDecommissionedHostDoesNotHoldItsPoolHostage(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("hv01"), node("hv02")))
	c := newCLI(t, r.blockFor(both)+renderPool(secondGPUs))
	c.apply()

	c.write(r.blockFor([]string{"hv01"}) + renderPool(secondGPUs)) // the resource still names it
	out := c.ok("plan")
	wantSaid(t, out, "Host is not in the provider's configuration", "Host: hv02", "remove it from this resource")

	c.write(r.blockFor([]string{"hv01"}) + renderPool(`members = { hv01 = ["`+gpu1+`"] }`))
	out = c.apply()
	wantSaid(t, out, "Host was left as it is", "Host: hv02", "0 added, 1 changed")
	r.wantPool("render", []string{gpu1}, both...)
	c.wantNoChanges()
	c.destroy()
	r.wantNoPool("render", "hv01")
	r.wantClaims([]string{"hv02"}, "pool render") // as it was when it left
}

// Members that are not known at plan are checked at apply, against the other
// resources of the run as well.
func TestPoolMembersThatAreUnknownAtPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	hcl := func(second string) string {
		return r.block() + `
resource "terraform_data" "gpu" {
  input = "` + gpu1 + `"
}
resource "gpu_pool" "cad" {
  name    = "cad"
  members = { hv01 = [` + second + `] }
  depends_on = [gpu_pool.render]
}
` + renderPool(`members = { hv01 = [terraform_data.gpu.output] }`, mountBack)
	}
	c := newCLI(t, hcl("terraform_data.gpu.output"))
	wantSaid(t, c.ok("plan"), "Plan: 3 to add")
	wantSaid(t, c.fails("apply", "-auto-approve"), `"hv01/cad"`, gpu1, "render")
	r.wantPool("render", []string{gpu1}, "hv01")
	r.wantNoPool("cad", "hv01")

	c.write(hcl(`"` + gpu0 + `"`))
	c.apply()
	r.wantPool("cad", []string{gpu0}, "hv01")
	c.wantNoChanges()
}
