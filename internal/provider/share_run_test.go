package provider_test

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// An apply plans each share again while others are being made. Those that are made by then
// count once, by their claims, whether or not the state has an owner's name.
func TestSharesThatFillAPoolAreAllMade(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]string{"owner": "test", "no owner": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inference(2))
			const shares = 30
			c := newCLI(t, r.blockOf(owner)+sharedPool(fmt.Sprintf(`quotas = { team-a = { shares = %d, memory_mib = %d } }`, shares, shares*5758))+
				manyShares(shares, fromPool, teamA, `memory = { limit_mib = 5758 }`)) // eight to a GPU
			c.apply()
			on := map[string]gpu.Bytes{}
			made := 0
			for _, host := range gpuHosts {
				for _, claim := range r.host(host).Claims {
					if s := claim.Want.Share; s != nil {
						made++
						on[s.Devices[0].GPU] += s.MemoryRequest
					}
				}
			}
			if made != shares {
				t.Errorf("there are %d shares, want %d", made, shares)
			}
			for id, memory := range on {
				if memory > 46068*gpu.MiB {
					t.Errorf("the shares on GPU %s want %s of it", id, memory)
				}
			}
			c.wantNoChanges()
			c.destroy()
		})
	}
}

// The ratio is told of shares that are all new, too.
func TestOversubscriptionByNewSharesIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	limits := `memory = { request_mib = 1024, limit_mib = 30000 }`
	c := newCLI(t, r.block()+sharedConfig("mps", `mps = { uid = 1000, oversubscription = 1.5 }`, "gpu01")+
		shareOf("a", onGPU01, ofMPS, limits, `gpu_count = 2`)+shareOf("b", onGPU01, ofMPS, limits))
	wantSaid(t, c.ok("plan"), "The device is oversubscribed", "(1.3 times)", "allows 1.5 times", "Rule: share-oversubscription")
}

// A quota that is lowered refuses new shares and more of it, and leaves those that are placed.
func TestAQuotaBelowItsUseLeavesShares(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	shares := func(n int, memory string) string { return manyShares(n, fromPool, teamA, memory) }
	c := newCLI(t, r.block()+sharedPool()+shares(3, half))
	c.apply()
	lowered := r.block() + sharedPool(`quotas = { team-a = { shares = 1, memory_mib = 1024 } }`)
	c.write(lowered + shares(3, half))
	wantSaid(t, c.apply(), "A label has more than its quota", "Shares that are placed stay", "0 added, 1 changed, 0 destroyed")
	c.wantNoChanges()
	c.write(lowered + shares(3, quarter)) // less of it
	wantSaid(t, c.apply(), "0 added, 3 changed, 0 destroyed")
	c.wantNoChanges()
	for _, more := range []string{shares(4, quarter), shares(3, half)} {
		c.write(lowered + more)
		wantSaid(t, c.fails("plan"), "The quota of the pool is used up", "Rule: pool-quota")
	}
	r.wantShares("gpu01", "s0", "s1", "s2")
}

// A pool that leaves the GPUs of its shares behind is refused at plan.
func TestAPoolDoesNotLeaveItsSharesBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	c := newCLI(t, r.block()+sharedPool()+shareOf("a", fromPool, half))
	c.apply()
	c.write(r.block() + sharedConfig("mps", byMPS, gpuHosts...) + mlPool([]string{"gpu02"}) + shareOf("a", `pool = "gpu01/ml"`, ofMPS, half, "depends_on = [gpu_pool.ml]"))
	wantSaid(t, c.fails("plan"), "The GPU leaves the pool under the share", `takes out of pool "ml"`, "Rule: share-placement")
	r.wantShares("gpu01", "a")
}

// What GPU instances have nothing like is an error inside of mig, and not left out.
func TestSettingsOfWholeGPUsAreRefusedInsideOfMIG(t *testing.T) {
	t.Parallel()
	for at, settings := range map[string]string{
		"mig.time_slicing.interval": `time_slicing = { replicas = 2, interval = "long" }`,
		"mig.mps.compute_mode":      `mps = { uid = 1000, compute_mode = "default" }`,
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withMPS(hgx(h100, 1)))
			r.steps(r.rejects(r.block()+migOf("ml", sevenSmall+"\n  "+settings), "Setting of whole GPUs", at))
		})
	}
}

// Errors of two attributes name both as they are written.
func TestAttributesThatExcludeEachOtherAreNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMPS(hgx(h100, 1)))
	for config, names := range map[string]string{
		sharedConfig("mps", `mps = { }`, "hgx01"):                             "[mps.uid,mps.multi_user]",
		migOf("ml", sevenSmall+"\n  mps = { uid = 1000, multi_user = true }"): "[mig.mps.uid,mig.mps.multi_user]",
		shareOf("a", `host = "hgx01"`, "memory = { }"):                        "[memory.request_mib,memory.limit_mib]",
	} {
		r.steps(r.rejects(r.block()+config, names))
	}
}
