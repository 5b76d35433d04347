package provider_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var gpuHosts = []string{"gpu01", "gpu02"}

// sharedPool is MPS on both hosts and the pool "ml" of their GPUs.
func sharedPool(more ...string) string {
	return sharedConfig("mps", byMPS, gpuHosts...) + mlPool(gpuHosts, more...)
}

func TestLinuxPoolLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	const ml = "gpu_pool.ml"
	var hosts []gpu.Host
	touched := func() {
		r.t.Helper()
		for i, h := range r.snapshot().Hosts { // nothing but the claims
			h.Claims = nil
			if fmt.Sprintf("%+v", h.GPUs) != fmt.Sprintf("%+v", hosts[i].GPUs) || len(h.Pools) > 0 {
				t.Errorf("%s has changed: %+v", h.Name, h)
			}
		}
	}
	hosts = r.snapshot().Hosts
	r.steps(
		resource.TestStep{
			Config: r.block() + mlPool(gpuHosts, `quotas = { team-a = { gpus = 1.5, memory_mib = 65536, shares = 4 } }`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(ml, jsonpath("id"), knownvalue.StringExact("gpu01/ml")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(ml, jsonpath("gpus", "gpu02", shareCard(2, 1), "vram_mib"), knownvalue.Int64Exact(46068)),
			},
			Check: then(func() {
				r.wantClaims(gpuHosts, "pool ml")
				touched()
			}),
		},
		resource.TestStep{ // quotas are on record on each host
			Config:           r.block() + mlPool(gpuHosts, `quotas = { team-a = { shares = 2 }, team-b = { gpus = 1 } }`),
			ConfigPlanChecks: planned(ml, plancheck.ResourceActionUpdate),
			Check: then(func() {
				for _, host := range gpuHosts {
					q := r.host(host).Claims[0].Want.Pool.Quotas
					if a := q["team-a"]; a.Shares == nil || *a.Shares != 2 || a.GPUs != nil || len(q) != 2 {
						t.Errorf("%s has the quotas %+v", host, q)
					}
				}
			}),
		},
		resource.TestStep{ // a host that leaves, and GPUs by name
			Config: r.block() + fmt.Sprintf("resource \"gpu_pool\" \"ml\" {\n  name = \"ml\"\n  members = { gpu01 = [%q] }\n}\n", shareCard(1, 0)),
			Check: then(func() {
				r.wantClaims([]string{"gpu01"}, "pool ml")
				r.wantClaims([]string{"gpu02"})
			}),
		},
		resource.TestStep{
			ResourceName: ml, ImportState: true, ImportStateId: "gpu01/ml", ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
			ImportStateVerifyIgnore: []string{"timeouts", "on_destroy", "dismount"},
		},
		resource.TestStep{ // a record that is lost is made again
			PreConfig: func() { r.editHost("gpu01", func(h *gpu.Host) { h.Claims = nil }) },
			Config:    r.block() + mlPool([]string{"gpu01"}, `quotas = { team-a = { shares = 2 } }`), ConfigPlanChecks: planned(ml, plancheck.ResourceActionCreate),
			Check: then(func() { r.wantClaims([]string{"gpu01"}, "pool ml") }),
		},
	)
	r.wantClaims(gpuHosts)
	touched()
	r.wantSettled()
}

func TestALinuxPoolIsNotDismounted(t *testing.T) {
	t.Parallel()
	for attribute, hcl := range map[string]string{
		"dismount": `dismount = { force = true }`, "on_destroy": `on_destroy = "mount_back"`,
	} {
		t.Run(attribute, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inference(2))
			r.steps(r.rejects(r.block()+mlPool(gpuHosts, hcl), attribute))
		})
	}
	t.Run("quotas on Hyper-V", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, twoNodes())
		r.steps(r.rejects(r.block()+renderPool(secondGPUs, `quotas = { team-a = { shares = 2 } }`), "quotas"))
	})
}

func TestPoolsOfTwoModesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	r.steps(r.rejects(r.block()+sharedConfig("mps", byMPS, "gpu01")+mlPool(gpuHosts, "depends_on = [gpu_partition_config.mps]"), "Rule: pool-one-mode"))
}

// A share goes to the fullest host with room, and to the next one when that is full.
func TestSharesOfAPoolFillOneHostAfterTheOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	base := sharedPool()
	c := newCLI(t, r.block()+base+shareOf("a", fromPool, half))
	c.apply()
	first := "gpu01"
	r.wantShares(first, "a")
	c.write(r.block() + base + shareOf("a", fromPool, half) + shareOf("b", fromPool, half) + shareOf("c", fromPool, half) + shareOf("d", fromPool, half))
	c.apply()
	r.wantShares("gpu01", "a", "b", "c", "d")
	r.wantShares("gpu02")
	c.write(r.block() + base + shareOf("a", fromPool, half) + shareOf("b", fromPool, half) + shareOf("c", fromPool, half) + shareOf("d", fromPool, half) +
		shareOf("e", fromPool, `memory = { limit_mib = 40000 }`) + shareOf("f", fromPool, `memory = { limit_mib = 40000 }`))
	c.apply()
	r.wantShares("gpu02", "e", "f")
	wantSaid(t, c.ok("state", "show", "gpu_share.e"), `host = "gpu02"`, `cdi_device = "gpufleet.com/share=e"`)
	c.wantNoChanges()
	// There is no room for one more, on any of them.
	c.write(r.block() + base + shareOf("a", fromPool, half) + shareOf("b", fromPool, half) + shareOf("c", fromPool, half) + shareOf("d", fromPool, half) +
		shareOf("e", fromPool, `memory = { limit_mib = 40000 }`) + shareOf("f", fromPool, `memory = { limit_mib = 40000 }`) + shareOf("g", fromPool, quarter))
	wantSaid(t, c.fails("plan"), `gpu_share "g" from pool "gpu01/ml"`, "Rule: share-placement")
	// A share that is placed is never moved, even when another host would be fuller.
	c.write(r.block() + base + shareOf("d", fromPool, half) + shareOf("e", fromPool, `memory = { limit_mib = 4096 }`))
	c.apply()
	r.wantShares("gpu01", "d")
	r.wantShares("gpu02", "e")
	c.destroy()
	for _, host := range gpuHosts {
		r.wantClaims([]string{host})
	}
}

// Shares that are created at once find the room that each leaves the others.
func TestSharesThatAreCreatedAtOnceDoNotTakeTheSameRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	c := newCLI(t, r.block()+sharedPool()+manyShares(8, fromPool, half))
	c.apply("-parallelism=8")
	if a, b := len(r.host("gpu01").Shares), len(r.host("gpu02").Shares); a != 4 || b != 4 {
		t.Errorf("gpu01 has %d shares and gpu02 %d, want 4 each", a, b)
	}
	c.wantNoChanges()
	c.destroy()
}

// A host that cannot make a share does not pass it on: it says why.
func TestAFailureOnTheHostOfAPoolIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	c := newCLI(t, r.block()+sharedPool()+shareOf("a", fromPool, half))
	r.fail("gpu01", simulated.OpWriteShare, "", 0, 1)
	wantSaid(t, c.fails("apply", "-auto-approve"), "Could not create the share", "Host: gpu01", "injected by the test")
	r.wantShares("gpu01")
	r.wantShares("gpu02")
	c.apply()
	r.wantShares("gpu01", "a")
}

func TestQuotasHoldOverAllHosts(t *testing.T) {
	t.Parallel()
	shares := func(n int, more ...string) string { return manyShares(n, append(more, fromPool, teamA)...) }
	for what, test := range map[string]struct{ quota, fits, exceeds string }{
		"shares": {"shares = 3", shares(3), shares(4)},
		"memory": {"memory_mib = 92136", shares(4, half), shares(4, half) + shareOf("more", quarter, fromPool, teamA)},
		"GPUs":   {"gpus = 2", shares(4, half), shares(4, half) + shareOf("more", "active_thread_percentage = 10", fromPool, teamA)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inference(2))
			base := r.block() + sharedPool("quotas = { team-a = { "+test.quota+" } }")
			r.steps(
				r.rejects(base+test.exceeds, "team-a", "Rule: pool-quota"),
				resource.TestStep{Config: base + test.fits},
				r.rejects(base+test.exceeds, "team-a", "Rule: pool-quota"),
				// Another label has its own, and what is not limited is not.
				resource.TestStep{Config: base + test.fits + shareOf("other", fromPool, `owner_label = "team-b"`)},
			)
		})
	}
}

func TestPoolWithSharesIsNotDestroyed(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	c := newCLI(t, r.block()+sharedPool()+shareOf("a", `pool = "gpu01/ml"`, `depends_on = [gpu_pool.ml, gpu_partition_config.mps]`, half))
	c.apply()
	c.ok("state", "rm", shareA) // as if another state had it
	wantSaid(t, c.fails("destroy", "-auto-approve", "-target=gpu_pool.ml"), `"a"`)
	r.wantShares("gpu01", "a")
}

func TestPoolDataSourceOnLinux(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	is := func(want knownvalue.Check, attribute string, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_pool.ml", jsonpath(attribute, steps...), want)
	}
	number, float := knownvalue.Int64Exact, knownvalue.Float64Exact
	quotas := `quotas = { team-a = { gpus = 1.5, shares = 4 }, idle = { memory_mib = 1024 } }`
	for _, host := range gpuHosts {
		r.steps(resource.TestStep{
			Config: r.block() + sharedPool(quotas) + shareOf("a", fromPool, teamA, half) + shareOf("b", fromPool, quarter) + fmt.Sprintf(`
data "gpu_pool" "ml" {
  name       = "ml"
  host       = %q
  depends_on = [gpu_share.a, gpu_share.b]
}
`, host),
			ConfigStateChecks: []statecheck.StateCheck{
				is(knownvalue.StringExact("gpu01/ml"), "id"),
				is(number(1), "available", "gpu01"), is(number(2), "available", "gpu02"),
				is(float(1), "gpus", "gpu02", shareCard(2, 0), "free"), is(knownvalue.ListSizeExact(0), "gpus", "gpu02", shareCard(2, 0), "shares"),
				is(knownvalue.MapExact(map[string]knownvalue.Check{
					"": knownvalue.ObjectExact(map[string]knownvalue.Check{
						"gpus": knownvalue.Null(), "memory_mib": knownvalue.Null(), "shares": knownvalue.Null(),
						"used_gpus": float(0.25), "used_memory_mib": number(11517), "used_shares": number(1),
					}),
					"idle": knownvalue.ObjectExact(map[string]knownvalue.Check{
						"gpus": knownvalue.Null(), "memory_mib": number(1024), "shares": knownvalue.Null(),
						"used_gpus": float(0), "used_memory_mib": number(0), "used_shares": number(0),
					}),
					"team-a": knownvalue.ObjectExact(map[string]knownvalue.Check{
						"gpus": float(1.5), "memory_mib": knownvalue.Null(), "shares": number(4),
						"used_gpus": float(0.5), "used_memory_mib": number(23034), "used_shares": number(1),
					}),
				}), "quotas"),
			},
			Check: then(func() {
				if on := r.placedOn("gpu01", "a"); !slices.Equal(on, r.placedOn("gpu01", "b")) {
					t.Errorf("share a is on %v and b is not", on)
				}
			}),
		})
	}
}

// A share of a pool is destroyed before its pool and its config, by the graph.
func TestSharesGoBeforeTheirPoolAndConfig(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	c := newCLI(t, r.block()+sharedPool()+shareOf("a", fromPool, half))
	c.apply()
	out := c.destroy()
	share, pool, config := strings.Index(out, "gpu_share.a: Destruction complete"), strings.Index(out, "gpu_pool.ml: Destroying"), strings.Index(out, "gpu_partition_config.mps: Destroying")
	if share < 0 || pool < share || config < share {
		t.Errorf("not in this order:\n%s", out)
	}
	for _, host := range gpuHosts {
		r.wantClaims([]string{host})
		if d := r.host(host).MPS.Daemons; len(d) != 0 {
			t.Errorf("%s still has the daemons %+v", host, d)
		}
	}
}
