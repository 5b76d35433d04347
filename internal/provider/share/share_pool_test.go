package share_test

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
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var gpuHosts = []string{"gpu01", "gpu02"}

// sharedPool is MPS on both hosts and the pool "ml" of their GPUs.
func sharedPool(more ...string) string {
	return rig.SharedConfig("mps", rig.ByMPS, gpuHosts...) + rig.MLPool(gpuHosts, more...)
}

func TestAccShare_LinuxPoolLifecycle(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	const ml = "gpu_pool.ml"
	var hosts []gpu.Host
	touched := func() {
		r.T.Helper()
		for i, h := range r.Snapshot().Hosts { // nothing but the claims
			h.Claims = nil
			if fmt.Sprintf("%+v", h.GPUs) != fmt.Sprintf("%+v", hosts[i].GPUs) || len(h.Pools) > 0 {
				t.Errorf("%s has changed: %+v", h.Name, h)
			}
		}
	}
	hosts = r.Snapshot().Hosts
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.MLPool(gpuHosts, `quotas = { team-a = { gpus = 1.5, memory_mib = 65536, shares = 4 } }`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(ml, rig.Jsonpath("id"), knownvalue.StringExact("gpu01/ml")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(ml, rig.Jsonpath("gpus", "gpu02", "gpus", rig.ShareCard(2, 1), "vram_mib"), knownvalue.Int64Exact(46068)),
			},
			Check: rig.Then(func() {
				r.WantClaims(gpuHosts, "pool ml")
				touched()
			}),
		},
		resource.TestStep{ // quotas are on record on each host
			Config:           r.Block() + rig.MLPool(gpuHosts, `quotas = { team-a = { shares = 2 }, team-b = { gpus = 1 } }`),
			ConfigPlanChecks: rig.Planned(ml, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				for _, host := range gpuHosts {
					q := r.Host(host).Claims[0].Want.Pool.Quotas
					if a := q["team-a"]; a.Shares == nil || *a.Shares != 2 || a.GPUs != nil || len(q) != 2 {
						t.Errorf("%s has the quotas %+v", host, q)
					}
				}
			}),
		},
		resource.TestStep{ // a host that leaves, and GPUs by name
			Config: r.Block() + fmt.Sprintf("resource \"gpu_pool\" \"ml\" {\n  name = \"ml\"\n  members = { gpu01 = [%q] }\n}\n",
				rig.ShareCard(1, 0)),
			Check: rig.Then(func() {
				r.WantClaims([]string{"gpu01"}, "pool ml")
				r.WantClaims([]string{"gpu02"})
			}),
		},
		resource.TestStep{
			ResourceName: ml, ImportState: true, ImportStateId: "gpu01/ml", ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
			ImportStateVerifyIgnore: []string{"timeouts"},
		},
		resource.TestStep{ // a record that is lost is made again
			PreConfig:        func() { r.EditHost("gpu01", func(h *gpu.Host) { h.Claims = nil }) },
			Config:           r.Block() + rig.MLPool([]string{"gpu01"}, `quotas = { team-a = { shares = 2 } }`),
			ConfigPlanChecks: rig.Planned(ml, plancheck.ResourceActionCreate),
			Check:            rig.Then(func() { r.WantClaims([]string{"gpu01"}, "pool ml") }),
		},
	)
	r.WantClaims(gpuHosts)
	touched()
	r.WantSettled()
}

func TestAccShare_ALinuxPoolIsNotDismounted(t *testing.T) {
	t.Parallel()
	for attribute, hcl := range map[string]string{
		"dismount": `dismount = { force = true }`, "on_destroy": `on_destroy = "mount_back"`,
	} {
		t.Run(attribute, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Inference(2))
			r.Steps(r.Rejects(r.Block()+rig.MLPool(gpuHosts, hcl), attribute))
		})
	}
	t.Run("quotas on Hyper-V", func(t *testing.T) {
		t.Parallel()
		r := rig.New(t, rig.TwoNodes())
		r.Steps(r.Rejects(r.Block()+rig.RenderPool(rig.SecondGPUs, `quotas = { team-a = { shares = 2 } }`), "quotas"))
	})
}

func TestAccShare_PoolsOfTwoModesAreRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	r.Steps(r.Rejects(r.Block()+rig.SharedConfig("mps", rig.ByMPS, "gpu01")+rig.SharedConfig("turns", rig.ByTurns, "gpu02")+
		rig.MLPool(gpuHosts), "Rule: pool-one-mode"))
}

// A config and a pool grow together, whichever Terraform plans and applies first.
func TestAccShare_AHostJoinsAPoolWhoseGPUsAConfigShares(t *testing.T) {
	t.Parallel()
	for i, first := range []string{"depends_on = [gpu_partition_config.mps]", "", "depends_on = [gpu_pool.ml]"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Inference(2))
			of := func(hosts ...string) string {
				config, pool := rig.SharedConfig("mps", rig.ByMPS, hosts...), rig.MLPool(hosts)
				switch i {
				case 0:
					pool = rig.MLPool(hosts, first)
				case 2:
					config = rig.SharedConfig("mps", rig.ByMPS+"\n  "+first, hosts...)
				}
				return r.Block() + config + pool
			}
			c := rig.NewCLI(t, of("gpu01"))
			c.Apply()
			c.Write(of(gpuHosts...))
			c.Apply()
			c.WantNoChanges()
			r.WantClaims([]string{"gpu02"}, "partition_config mps", "pool ml")
		})
	}
}

// A share goes to the fullest host with room, and to the next one when that is full.
func TestAccShare_SharesOfAPoolFillOneHostAfterTheOther(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	base := sharedPool()
	c := rig.NewCLI(t, r.Block()+base+rig.ShareOf("a", rig.FromPool, rig.Half))
	c.Apply()
	first := "gpu01"
	r.WantShares(first, "a")
	c.Write(r.Block() + base + rig.ShareOf("a", rig.FromPool, rig.Half) + rig.ShareOf("b", rig.FromPool, rig.Half) +
		rig.ShareOf("c", rig.FromPool, rig.Half) + rig.ShareOf("d", rig.FromPool, rig.Half))
	c.Apply()
	r.WantShares("gpu01", "a", "b", "c", "d")
	r.WantShares("gpu02")
	c.Write(r.Block() + base + rig.ShareOf("a", rig.FromPool, rig.Half) + rig.ShareOf("b", rig.FromPool, rig.Half) +
		rig.ShareOf("c", rig.FromPool, rig.Half) + rig.ShareOf("d", rig.FromPool, rig.Half) +
		rig.ShareOf("e", rig.FromPool, `memory = { limit_mib = 40000 }`) + rig.ShareOf("f", rig.FromPool, `memory = { limit_mib = 40000 }`))
	c.Apply()
	r.WantShares("gpu02", "e", "f")
	if e := c.Attributes("gpu_share.e"); e["host"] != "gpu02" || e["cdi_device"] != "gpufleet.com/share=e" {
		t.Errorf("share e is %v", e)
	}
	c.WantNoChanges()
	// There is no room for one more, on any of them.
	c.Write(r.Block() + base + rig.ShareOf("a", rig.FromPool, rig.Half) + rig.ShareOf("b", rig.FromPool, rig.Half) +
		rig.ShareOf("c", rig.FromPool, rig.Half) + rig.ShareOf("d", rig.FromPool, rig.Half) +
		rig.ShareOf("e", rig.FromPool, `memory = { limit_mib = 40000 }`) + rig.ShareOf("f", rig.FromPool, `memory = { limit_mib = 40000 }`) +
		rig.ShareOf("g", rig.FromPool, rig.Quarter))
	rig.WantSaid(t, c.Fails("plan"), `gpu_share "g" from pool "gpu01/ml"`, "Rule: share-placement")
	// A share that is placed is never moved, even when another host would be fuller.
	c.Write(r.Block() + base + rig.ShareOf("d", rig.FromPool, rig.Half) + rig.ShareOf("e", rig.FromPool, `memory = { limit_mib = 4096 }`))
	c.Apply()
	r.WantShares("gpu01", "d")
	r.WantShares("gpu02", "e")
	c.Destroy()
	for _, host := range gpuHosts {
		r.WantClaims([]string{host})
	}
}

// Shares that are created at once find the room that each leaves the others.
func TestAccShare_SharesThatAreCreatedAtOnceDoNotTakeTheSameRoom(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	c := rig.NewCLI(t, r.Block()+sharedPool()+manyShares(8, rig.FromPool, rig.Half))
	c.Apply("-parallelism=8")
	if a, b := len(r.Host("gpu01").Shares), len(r.Host("gpu02").Shares); a != 4 || b != 4 {
		t.Errorf("gpu01 has %d shares and gpu02 %d, want 4 each", a, b)
	}
	c.WantNoChanges()
	c.Destroy()
}

// A host that cannot make a share does not pass it on: it says why.
func TestAccShare_AFailureOnTheHostOfAPoolIsAnError(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	c := rig.NewCLI(t, r.Block()+sharedPool()+rig.ShareOf("a", rig.FromPool, rig.Half))
	r.Fail("gpu01", simulated.OpWriteShare, "", 0, 1)
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Could not create the share", "Host: gpu01", "Injected by the test")
	r.WantShares("gpu01")
	r.WantShares("gpu02")
	c.Apply()
	r.WantShares("gpu01", "a")
}

func TestAccShare_QuotasHoldOverAllHosts(t *testing.T) {
	t.Parallel()
	shares := func(n int, more ...string) string { return manyShares(n, append(more, rig.FromPool, rig.TeamA)...) }
	for what, test := range map[string]struct{ quota, fits, exceeds string }{
		"shares": {"shares = 3", shares(3), shares(4)},
		"memory": {"memory_mib = 92136", shares(4, rig.Half), shares(4, rig.Half) + rig.ShareOf("more", rig.Quarter, rig.FromPool, rig.TeamA)},
		"GPUs": {
			"gpus = 2", shares(4, rig.Half), shares(4, rig.Half) + rig.ShareOf("more", "active_thread_percentage = 10", rig.FromPool, rig.TeamA),
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Inference(2))
			base := r.Block() + sharedPool("quotas = { team-a = { "+test.quota+" } }")
			r.Steps(
				r.Rejects(base+test.exceeds, "team-a", "Rule: pool-quota"),
				resource.TestStep{Config: base + test.fits},
				r.Rejects(base+test.exceeds, "team-a", "Rule: pool-quota"),
				// Another label has its own, and what is not limited is not.
				resource.TestStep{Config: base + test.fits + rig.ShareOf("other", rig.FromPool, `owner_label = "team-b"`)},
			)
		})
	}
}

func TestAccShare_PoolWithSharesIsNotDestroyed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	c := rig.NewCLI(t, r.Block()+sharedPool()+rig.ShareOf("a", `pool = "gpu01/ml"`, `config = "mps"`,
		`depends_on = [gpu_pool.ml, gpu_partition_config.mps]`, rig.Half))
	c.Apply()
	c.Ok("state", "rm", shareA) // as if another state had it
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve", "-target=gpu_pool.ml"), `"a"`)
	r.WantShares("gpu01", "a")
}

func TestAccShare_PoolDataSourceOnLinux(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	is := func(want knownvalue.Check, attribute string, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_pool.ml", rig.Jsonpath(attribute, steps...), want)
	}
	number, float := knownvalue.Int64Exact, knownvalue.Float64Exact
	quotas := `quotas = { team-a = { gpus = 1.5, shares = 4 }, idle = { memory_mib = 1024 } }`
	for _, host := range gpuHosts {
		r.Steps(resource.TestStep{
			Config: r.Block() + sharedPool(quotas) + rig.ShareOf("a", rig.FromPool, rig.TeamA, rig.Half) +
				rig.ShareOf("b", rig.FromPool, rig.Quarter) + fmt.Sprintf(`
data "gpu_pool" "ml" {
  name       = "ml"
  host       = %q
  depends_on = [gpu_share.a, gpu_share.b]
}
`, host),
			ConfigStateChecks: []statecheck.StateCheck{
				is(knownvalue.StringExact("gpu01/ml"), "id"),
				is(number(1), "available", "gpu01"), is(number(2), "available", "gpu02"),
				is(float(1), "gpus", "gpu02", "gpus", rig.ShareCard(2, 0), "free"),
				is(knownvalue.ListSizeExact(0), "gpus", "gpu02", "gpus", rig.ShareCard(2, 0), "shares"),
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
			Check: rig.Then(func() {
				if on := r.PlacedOn("gpu01", "a"); !slices.Equal(on, r.PlacedOn("gpu01", "b")) {
					t.Errorf("share a is on %v and b is not", on)
				}
			}),
		})
	}
}

// A share of a pool is destroyed before its pool and its config, by the graph.
func TestAccShare_SharesGoBeforeTheirPoolAndConfig(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	c := rig.NewCLI(t, r.Block()+sharedPool()+rig.ShareOf("a", rig.FromPool, rig.Half))
	c.Apply()
	out := c.Destroy()
	share, pool, config := strings.Index(out, "gpu_share.a: delete is done"), strings.Index(out, "gpu_pool.ml: delete begins"),
		strings.Index(out, "gpu_partition_config.mps: delete begins")
	if share < 0 || pool < share || config < share {
		t.Errorf("not in this order:\n%s", out)
	}
	for _, host := range gpuHosts {
		r.WantClaims([]string{host})
		if d := r.Host(host).MPS.Daemons; len(d) != 0 {
			t.Errorf("%s still has the daemons %+v", host, d)
		}
	}
}
