package provider_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// inWords matches a text in an error however Terraform breaks its lines.
func inWords(texts ...string) *regexp.Regexp {
	var parts []string
	for _, text := range texts {
		var words []string
		for w := range strings.FieldsSeq(text) {
			words = append(words, regexp.QuoteMeta(w))
		}
		parts = append(parts, strings.Join(words, `[\s│]+`))
	}
	return regexp.MustCompile(`(?s)` + strings.Join(parts, ".*"))
}

// then runs assertions after a step was applied.
func then(f func()) resource.TestCheckFunc {
	return func(*terraform.State) error {
		f()
		return nil
	}
}

// steps runs a test case in process on the rig's fleet.
func (r *rig) steps(steps ...resource.TestStep) {
	r.t.Helper()
	resource.UnitTest(r.t, resource.TestCase{ProtoV6ProviderFactories: r.factories(), Steps: steps})
}

// renderPool is a pool called render with more arguments.
func renderPool(more ...string) string {
	return fmt.Sprintf("resource \"gpu_pool\" \"render\" {\n  name = \"render\"\n  %s\n}\n", strings.Join(more, "\n  "))
}

// config4With is config4 with more arguments.
func config4With(more string) string {
	return strings.Replace(config4, "\n}", "\n  "+more+"\n}", 1)
}

// Arguments of pools on twoNodes.
const (
	secondGPUs = `members = { hv01 = ["` + gpu1 + `"], hv02 = ["` + gpu1 + `"] }`
	allGPUs    = `members = { hv01 = ["` + gpu0 + `", "` + gpu1 + `"], hv02 = ["` + gpu0 + `", "` + gpu1 + `"] }`
	mountBack  = `on_destroy = "mount_back"`
	byForce    = `dismount = { force = true }`
)

// wantPool asserts that hosts have a pool with exactly these GPUs, all dismounted.
func (r *rig) wantPool(name string, gpus []string, hosts ...string) {
	r.t.Helper()
	for _, n := range hosts {
		h := r.host(n)
		p, ok := h.Pool(name)
		if !ok {
			r.t.Errorf("host %s has no pool %q", n, name)
			continue
		}
		if got := slices.Sorted(slices.Values(p.GPUs)); !slices.Equal(got, slices.Sorted(slices.Values(gpus))) {
			r.t.Errorf("host %s: pool %q has %v, want %v", n, name, got, gpus)
		}
		for _, id := range gpus {
			if g, ok := h.GPU(id); !ok || !g.Dismounted || !strings.HasPrefix(g.InstancePath, `PCIP\`) {
				r.t.Errorf("host %s: GPU %s is not dismounted", n, id)
			}
		}
	}
}

// wantNoPool asserts that hosts do not have a pool.
func (r *rig) wantNoPool(name string, hosts ...string) {
	r.t.Helper()
	for _, n := range hosts {
		if p, ok := r.host(n).Pool(name); ok {
			r.t.Errorf("host %s still has the pool %q with %v", n, name, p.GPUs)
		}
	}
}

// wantDismounted asserts which GPUs of a host are dismounted.
func (r *rig) wantDismounted(host string, gpus ...string) {
	r.t.Helper()
	got := []string{}
	for _, g := range r.host(host).GPUs {
		if g.Dismounted {
			got = append(got, g.ID)
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(gpus))) {
		r.t.Errorf("host %s has %v dismounted, want %v", host, got, gpus)
	}
}

// wantClaims asserts what is claimed on hosts, as "kind id".
func (r *rig) wantClaims(claims []string, hosts ...string) {
	r.t.Helper()
	for _, h := range hosts {
		if got := r.claims(h); !slices.Equal(got, claims) {
			r.t.Errorf("claims on %s: %v, want %v", h, got, claims)
		}
	}
}

// editHost changes a host as somebody else would.
func (r *rig) editHost(name string, change func(*gpu.Host)) {
	r.t.Helper()
	r.must(r.fleet.Edit(context.Background(), func(s *gpu.Snapshot) error {
		for i := range s.Hosts {
			if s.Hosts[i].Name == name {
				change(&s.Hosts[i])
				return nil
			}
		}
		return fmt.Errorf("no host %q", name)
	}))
}

// setPool makes a pool on a host as somebody else would, and dismounts its GPUs.
func (r *rig) setPool(host, name string, gpus ...string) {
	r.t.Helper()
	h, err := r.fleet.Host(host)
	r.must(err)
	ctx := context.Background()
	for _, g := range gpus {
		r.must(h.DismountDevice(ctx, g, true))
	}
	r.must(h.CreatePool(ctx, name))
	r.must(h.SetPoolMembers(ctx, name, gpus))
}

// draw gives a VM that is off a GPU of a pool as somebody else would.
func (r *rig) draw(vm, pool string) {
	r.t.Helper()
	v, host := r.vm(vm)
	h, err := r.fleet.Host(host)
	r.must(err)
	_, err = h.AddDevice(context.Background(), v.ID, gpu.DeviceAssignment{Pool: pool})
	r.must(err)
}

func hasAddress(action plancheck.ResourceActionType) plancheck.PlanCheck {
	return plancheck.ExpectResourceAction("gpu_pool.render", action)
}

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
				r.wantPool("render", []string{gpu1}, "hv01", "hv02")
				r.wantDismounted("hv01", gpu1)
				r.wantDismounted("hv02", gpu1)
				r.wantClaims([]string{"pool render"}, "hv01", "hv02")
				if g, _ := r.host("hv01").GPU(gpu1); g.Status != gpu.ReadyForDDA || g.Partitionable != nil {
					t.Errorf("GPU in the pool has status %s and partitions %v", g.Status, g.Partitionable)
				}
			}),
		},
		resource.TestStep{
			Config:           r.block() + renderPool(allGPUs, mountBack),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{hasAddress(plancheck.ResourceActionUpdate)}},
			Check:            then(func() { r.wantPool("render", []string{gpu0, gpu1}, "hv01", "hv02") }),
		},
		resource.TestStep{
			Config:           r.block() + renderPool(secondGPUs, mountBack),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{hasAddress(plancheck.ResourceActionUpdate)}},
			Check: then(func() {
				r.wantPool("render", []string{gpu1}, "hv01", "hv02")
				r.wantDismounted("hv02", gpu1) // the GPU that left is back on its host
				if g, _ := r.host("hv02").GPU(gpu0); g.Partitionable == nil || g.Partitionable.Count != 16 {
					t.Errorf("GPU that left the pool: %+v", g.Partitionable)
				}
			}),
		},
	)
	for _, h := range []string{"hv01", "hv02"} {
		r.wantNoPool("render", h)
		r.wantDismounted(h)
		r.wantClaims([]string{}, h)
	}
	r.wantCounts(16, "hv01", "hv02")
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
			Check: then(func() { r.wantPool("render", []string{gpu1}, "hv01", "hv02") }),
		},
		resource.TestStep{ // without ids: every A2 of the cluster
			Config:           r.block() + renderPool(`cluster = "AZL"`, `selector = { models = ["A2"] }`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{hasAddress(plancheck.ResourceActionUpdate)}},
			Check:            then(func() { r.wantPool("render", []string{gpu0, gpu1}, "hv01", "hv02") }),
		},
	)
	// on_destroy = keep
	r.wantNoPool("render", "hv01", "hv02")
	r.wantDismounted("hv01", gpu0, gpu1)
	r.wantDismounted("hv02", gpu0, gpu1)
	r.wantClaims([]string{}, "hv01", "hv02")
}

func TestPoolOfHostsGivesAHostUpThatIsTakenOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(
		resource.TestStep{
			Config: r.block() + renderPool(`hosts = ["hv02", "hv01"]`, `selector = { gpu_ids = { hv01 = ["`+gpu1+`"], hv02 = ["`+gpu1+`"] } }`, mountBack),
			Check:  then(func() { r.wantPool("render", []string{gpu1}, "hv01", "hv02") }),
		},
		resource.TestStep{
			Config:           r.block() + renderPool(`hosts = ["hv01"]`, `selector = { gpu_ids = { hv01 = ["`+gpu1+`"] } }`, mountBack),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{hasAddress(plancheck.ResourceActionUpdate)}},
			Check: then(func() {
				r.wantPool("render", []string{gpu1}, "hv01")
				r.wantNoPool("render", "hv02")
				r.wantDismounted("hv02")
				r.wantClaims([]string{}, "hv02")
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
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{hasAddress(plancheck.ResourceActionReplace)}},
			Check: then(func() {
				r.wantPool("cad", []string{gpu1}, "hv01", "hv02")
				r.wantNoPool("render", "hv01", "hv02")
				r.wantClaims([]string{"pool cad"}, "hv01", "hv02")
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
			ExpectError: inWords("Could not create the pool", "Host: hv02", gpu1, "no mitigation driver", "Rolled back: hv01"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantNoPool("render", "hv01", "hv02")
				r.wantDismounted("hv01")
				r.wantDismounted("hv02")
				r.wantCounts(16, "hv01", "hv02")
				r.wantClaims([]string{}, "hv01", "hv02")
			},
			Config: r.block() + renderPool(secondGPUs, byForce),
			Check:  then(func() { r.wantPool("render", []string{gpu1}, "hv01", "hv02") }),
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
		for _, h := range []string{"hv01", "hv02"} {
			r.wantDismounted(h)
			r.wantNoPool("render", h)
			r.wantClaims([]string{}, h)
			if n := r.counts(h)[gpu1]; n != 8 {
				t.Errorf("host %s: GPU %s has %d partitions after the rollback, want 8", h, gpu1, n)
			}
		}
	}
	r.steps(
		resource.TestStep{
			Config:      r.block() + renderPool(secondGPUs, byForce),
			ExpectError: inWords("Could not create the pool", "Host: hv02", "the bus is stuck", "Rolled back: hv01", "Nothing of this change remains"),
		},
		resource.TestStep{
			PreConfig: untouched,
			Config:    r.block() + renderPool(secondGPUs, byForce),
			Check:     then(func() { r.wantPool("render", []string{gpu1}, "hv01", "hv02") }),
		},
		resource.TestStep{ // the same in an update: the pools are as they were
			PreConfig:   func() { r.must(r.fleet.InjectFault(t.Context(), "hv02", once)) },
			Config:      r.block() + renderPool(allGPUs, byForce),
			ExpectError: inWords("Could not change the pool", "Host: hv02", "Rolled back: hv01"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantPool("render", []string{gpu1}, "hv01", "hv02")
				r.wantDismounted("hv01", gpu1)
				r.wantClaims([]string{"pool render"}, "hv01", "hv02")
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
			ExpectError: inWords("Could not destroy the pool", "Host: hv02", "avd-06", "unassign them first"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantPool("render", []string{gpu1}, "hv01", "hv02")
				r.wantClaims([]string{"pool render"}, "hv01", "hv02")
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
	r.wantNoPool("render", "hv01", "hv02")
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
			ExpectError: inWords("avd-03", "Rule: capacity"),
		},
		resource.TestStep{
			PreConfig: func() {
				r.wantPool("render", []string{gpu1}, "hv01", "hv02")
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
		ExpectError: inWords("The pool exists already", `terraform import ADDRESS hv02/Render`, "Rule: existing-pool"),
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
			config := config4With(order[0])
			r.steps(resource.TestStep{
				Config:      r.block() + config + renderPool(secondGPUs, order[1]),
				ExpectError: inWords(`gpu_partition_config "vdi" and gpu_pool "hv01/render" both want GPU `+gpu1, "Rule: dda-xor-partition"),
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
				ExpectError: inWords(gpu1, "Rule: dda-xor-partition"),
			},
		)
		r.wantDismounted("hv01")
		r.wantCounts(4, "hv01", "hv02")
	})
	t.Run("the pool was there", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, twoNodes())
		named := config4With(`selector = { gpu_ids = { hv01 = ["` + gpu1 + `"], hv02 = ["` + gpu1 + `"] } }`)
		r.steps(
			resource.TestStep{Config: r.block() + renderPool(secondGPUs)},
			resource.TestStep{
				Config:      r.block() + named + renderPool(secondGPUs),
				ExpectError: inWords(gpu1, "Rule: dda-xor-partition"),
			},
			resource.TestStep{ // without names the config takes what the pool leaves
				Config: r.block() + config4 + renderPool(secondGPUs),
				Check: then(func() {
					r.wantPool("render", []string{gpu1}, "hv01", "hv02")
					r.wantCounts(4, "hv01", "hv02")
				}),
			},
		)
	})
	t.Run("another state's config was there", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, twoNodes())
		other := strings.Replace(r.block(), `"test"`, `"other"`, 1)
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
			ExpectError: inWords(gpu1, `partition config "vdi" of the Terraform state "other"`, "Rule: dda-xor-partition"),
		})
		r.wantUnchanged(before)
	})
}

func TestGPUWithPartitionsInUseDoesNotGoIntoAPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	_, err := r.fleet.AddForeignAdapter(t.Context(), "avd-01")
	r.must(err)
	held := ""
	for _, g := range r.host("hv01").GPUs {
		if g.Partitionable != nil && len(g.Partitionable.Partitions) > 0 {
			held = g.ID
		}
	}
	before := r.snapshot()
	r.steps(resource.TestStep{
		Config:      r.block() + renderPool(`members = { hv01 = ["`+held+`"] }`, byForce),
		ExpectError: inWords(held, "avd-01", "Rule: dda-xor-partition"),
	})
	r.wantUnchanged(before)
	r.wantVM("avd-01", gpu.VMRunning, 1)
}

func TestReservedPoolNameIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	r.steps(resource.TestStep{
		Config:      r.block() + strings.Replace(renderPool(secondGPUs), `"render"`+"\n", `"PRIMORDIAL"`+"\n", 1),
		ExpectError: inWords("Attribute name", "primordial"),
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
				hasAddress(plancheck.ResourceActionUpdate),
				plancheck.ExpectUnknownValue("gpu_pool.render", tfjsonpath.New("drift")),
			}},
			Check: then(func() {
				r.wantPool("render", []string{gpu1}, "hv01", "hv02")
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
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{hasAddress(plancheck.ResourceActionUpdate)}},
			Check:            then(func() { r.wantPool("render", []string{gpu1}, "hv01", "hv02") }),
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
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{hasAddress(plancheck.ResourceActionCreate)}},
			Check: then(func() {
				r.wantPool("render", []string{gpu1}, "hv01", "hv02")
				r.wantClaims([]string{"pool render"}, "hv01", "hv02")
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
	c.ok("apply", "-auto-approve")
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
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{hasAddress(plancheck.ResourceActionUpdate)}},
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
	c.ok("apply", "-auto-approve")
	token := r.host("hv01").Claims[0].Token
	c.write(keyed("b"))
	c.ok("apply", "-auto-approve", "-parallelism=1")
	r.wantPool("render", []string{gpu1}, "hv01", "hv02")
	r.wantClaims([]string{"pool render"}, "hv01", "hv02")
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
			ExpectError: inWords("Host does not answer", "Host: hv02"),
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
	hosts := func(names ...string) string {
		var b strings.Builder
		for _, n := range names {
			fmt.Fprintf(&b, "    %s = { simulated = { file = %q } }\n", n, r.fleet.Path())
		}
		return "provider \"gpu\" {\n  owner = \"test\"\n  hosts = {\n" + b.String() + "  }\n}\n"
	}
	c := newCLI(t, hosts("hv01", "hv02")+renderPool(secondGPUs))
	c.ok("apply", "-auto-approve")

	c.write(hosts("hv01") + renderPool(secondGPUs)) // the resource still names it
	out, code := c.run("plan")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	wantSaid(t, out, "Host is not in the provider's configuration", "Host: hv02", "remove it from this resource")

	c.write(hosts("hv01") + renderPool(`members = { hv01 = ["`+gpu1+`"] }`))
	out = c.ok("apply", "-auto-approve")
	wantSaid(t, out, "Host was left as it is", "Host: hv02", "0 added, 1 changed")
	r.wantPool("render", []string{gpu1}, "hv01", "hv02")
	c.wantNoChanges()
	c.ok("destroy", "-auto-approve")
	r.wantNoPool("render", "hv01")
	r.wantClaims([]string{"pool render"}, "hv02") // as it was when it left
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
	out, code := c.run("apply", "-auto-approve")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantSaid(t, out, `"hv01/cad"`, gpu1, "render")
	r.wantPool("render", []string{gpu1}, "hv01")
	r.wantNoPool("cad", "hv01")

	c.write(hcl(`"` + gpu0 + `"`))
	c.ok("apply", "-auto-approve")
	r.wantPool("cad", []string{gpu0}, "hv01")
	c.wantNoChanges()
}

// wantUnchanged asserts that the fleet is what it was.
func (r *rig) wantUnchanged(before gpu.Snapshot) {
	r.t.Helper()
	if diff := cmp.Diff(before, r.snapshot()); diff != "" {
		r.t.Errorf("the fleet has changed (-before +after):\n%s", diff)
	}
}
