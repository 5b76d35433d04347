package share_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// An apply plans each share again while others are being made. Those that are made by then
// count once, by their claims, whether or not the state has an owner's name.
func TestAccShare_SharesThatFillAPoolAreAllMade(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]string{"owner": "test", "no owner": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Inference(2))
			const shares = 30
			c := rig.NewCLI(t,
				r.BlockOf(owner)+sharedPool(fmt.Sprintf(`quotas = { team-a = { shares = %d, memory_mib = %d } }`, shares, shares*5758))+
					manyShares(shares, rig.FromPool, rig.TeamA, `memory = { limit_mib = 5758 }`)) // eight to a GPU
			c.Apply()
			on := map[string]gpu.Bytes{}
			made := 0
			for _, host := range gpuHosts {
				for _, claim := range r.Host(host).Claims {
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
			c.WantNoChanges()
			c.Destroy()
		})
	}
}

// The ratio is told of shares that are all new, too.
func TestAccShare_OversubscriptionByNewSharesIsTold(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	limits := `memory = { request_mib = 1024, limit_mib = 30000 }`
	c := rig.NewCLI(t, r.Block()+rig.SharedConfig("mps", `mps = { uid = 1000, oversubscription = 1.5 }`, "gpu01")+
		rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, limits, `gpu_count = 2`)+rig.ShareOf("b", rig.OnGPU01, rig.OfMPS, limits))
	rig.WantSaid(t, c.Ok("plan"), "The device is oversubscribed", "(1.3 times)", "allows 1.5 times", "Rule: share-oversubscription")
}

// A quota that is lowered refuses new shares and more of it, and leaves those that are placed.
func TestAccShare_AQuotaBelowItsUseLeavesShares(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	shares := func(n int, memory string) string { return manyShares(n, rig.FromPool, rig.TeamA, memory) }
	c := rig.NewCLI(t, r.Block()+sharedPool()+shares(3, rig.Half))
	c.Apply()
	lowered := r.Block() + sharedPool(`quotas = { team-a = { shares = 1, memory_mib = 1024 } }`)
	c.Write(lowered + shares(3, rig.Half))
	rig.WantSaid(t, c.Apply(), "A label exceeds its quota", "Shares that are placed stay", "0 added, 1 changed, 0 destroyed")
	c.WantNoChanges()
	c.Write(lowered + shares(3, rig.Quarter)) // less of it
	rig.WantSaid(t, c.Apply(), "0 added, 3 changed, 0 destroyed")
	c.WantNoChanges()
	for _, more := range []string{shares(4, rig.Quarter), shares(3, rig.Half)} {
		c.Write(lowered + more)
		rig.WantSaid(t, c.Fails("plan"), "The quota of the pool is used up", "Rule: pool-quota")
	}
	r.WantShares("gpu01", "s0", "s1", "s2")
}

// A share that a pool leaves behind on its GPUs is replaced by one of the pool as it becomes.
func TestAccShare_APoolDoesNotLeaveItsSharesBehind(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	c := rig.NewCLI(t, r.Block()+sharedPool()+rig.ShareOf("a", rig.FromPool, rig.Half))
	c.Apply()
	c.Write(r.Block() + rig.SharedConfig("mps", rig.ByMPS, gpuHosts...) + rig.MLPool([]string{"gpu02"}) +
		rig.ShareOf("a", `pool = "gpu01/ml"`, rig.OfMPS, rig.Half, "depends_on = [gpu_pool.ml]"))
	rig.WantSaid(t, c.Ok("plan"), "gpu_share.a: replace", "The share is replaced", `gpu_pool "gpu01/ml" takes its device away`)
	r.WantShares("gpu01", "a")
	c.Apply()
	r.WantShares("gpu01")
	r.WantShares("gpu02", "a")
	c.WantNoChanges()
}

// What GPU instances have nothing like is an error inside of mig, and not left out.
func TestAccShare_SettingsOfWholeGPUsAreRefusedInsideOfMIG(t *testing.T) {
	t.Parallel()
	for at, settings := range map[string]string{
		"mig.time_slicing.interval": `time_slicing = { replicas = 2, interval = "long" }`,
		"mig.mps.compute_mode":      `mps = { uid = 1000, compute_mode = "default" }`,
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.WithMPS(rig.HGX(rig.H100, 1)))
			r.Steps(r.Rejects(r.Block()+rig.MIGOf("ml", rig.SevenSmall+"\n  "+settings), "Not supported inside mig", at))
		})
	}
}

// Errors of two attributes name both as they are written.
func TestAccShare_AttributesThatExcludeEachOtherAreNamed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithMPS(rig.HGX(rig.H100, 1)))
	for config, names := range map[string]string{
		rig.SharedConfig("mps", `mps = { uid = 1000, multi_user = true }`, "hgx01"):   "[mps.uid,mps.multi_user]",
		rig.MIGOf("ml", rig.SevenSmall+"\n  mps = { uid = 1000, multi_user = true }"): "[mig.mps.uid,mig.mps.multi_user]",
	} {
		r.Steps(r.Rejects(r.Block()+config, names))
	}
}

// How many GPUs a share has part in may be known only at apply. A share that may become
// another is planned as a replacement, since it is never moved.
func TestAccShare_ACountThatIsKnownOnlyAtApplyReplacesTheShare(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	counted := func(n int) string {
		return r.Block() + fmt.Sprintf("resource \"terraform_data\" \"count\" {\n  input = %d\n}\n", n) +
			rig.ShareOf("a", rig.OnGPU01, "gpu_count = terraform_data.count.output")
	}
	c := rig.NewCLI(t, counted(1))
	c.Apply()
	c.WantNoChanges()
	c.Write(counted(2))
	rig.WantSaid(t, c.Ok("plan"), "gpu_share.a: replace")
	c.Apply()
	if on := r.PlacedOn("gpu01", "a"); len(on) != 2 {
		t.Errorf("the share is on %v, want 2 GPUs", on)
	}
	c.WantNoChanges()
}

// TestAccShare_ManySharesThatDoNotFitAreSaidOnce has 60 shares refused by one error for a set of devices, and
// not by one for each share.
func TestAccShare_ManySharesThatDoNotFitAreSaidOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	c := rig.NewCLI(t, r.Block()+sharedPool()+manyShares(60, rig.FromPool, rig.Half))
	_, said, _ := strings.Cut(c.Fails("plan"), "Error: ")
	if lines := strings.Count(said, "\n"); strings.Contains(said, "Error: ") || lines > 60 {
		t.Errorf("%d lines:\n%s", lines, said)
	}
	rig.WantSaid(t, said, "do not fit together", "Rule: share-placement")
}

// Nor are 300 that ask for no memory, of which each device takes some.
func TestAccShare_ManySharesWithoutASeatAreSaidOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	turns := rig.SharedConfig("turns", "time_slicing = { replicas = 24 }", gpuHosts...) + rig.MLPool(gpuHosts)
	c := rig.NewCLI(t, r.Block()+turns+manyShares(300, "pool = gpu_pool.ml.id", "config = gpu_partition_config.turns.id"))
	_, said, _ := strings.Cut(c.Fails("plan"), "Error: ")
	if lines := strings.Count(said, "\n"); strings.Contains(said, "Error: ") || lines > 60 {
		t.Errorf("%d lines:\n%.3000s", lines, said)
	}
	rig.WantSaid(t, said, "Rule: share-placement")
}

// A share that is replaced by one of two GPUs takes another seat: that it and a new share do not fit
// both is said at plan, and not only by the apply that comes to it last.
func TestAccShare_AShareThatIsReplacedByALargerOneTakesMoreSeats(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	config := r.Block() + "resource \"gpu_partition_config\" \"turns\" {\n  name = \"turns\"\n  hosts = [\"gpu01\"]\n  time_slicing = { " +
		"replicas = 2 }\n}\n"
	share := func(name string, more ...string) string {
		return rig.ShareOf(name, append(more, rig.OnGPU01, "config = gpu_partition_config.turns.id")...)
	}
	on := func(n int) string { return fmt.Sprintf("gpu_ids = [%q]", rig.ShareCard(1, n)) }
	stay := share("a", on(0)) + share("b", on(1))
	c := rig.NewCLI(t, config+stay+share("c"))
	c.Apply()
	c.Write(config + stay + share("c", "gpu_count = 2") + share("d"))
	for range 4 {
		rig.WantSaid(t, c.Fails("plan"), "The shares of this run do not fit together", `"c"`, `"d"`)
	}
	c.Write(config + stay + share("c", "gpu_count = 2"))
	c.Apply()
	c.WantNoChanges()
}

// Of a GPU that is gone nobody knows how it was shared: a share on it is told as it was, and not as one that has a GPU
// for itself.
func TestAccShare_AShareOnAGPUThatIsGoneIsToldAsItWas(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half)+
		"output \"a\" { value = [gpu_share.a.mode, gpu_share.a.isolation, gpu_share.a.enforcement, gpu_share.a.fraction] }\n")
	c.Apply()
	at := r.PlacedOn("gpu01", "a")[0]
	r.EditHost("gpu01", func(h *gpu.Host) {
		h.GPUs = slices.DeleteFunc(h.GPUs, func(g gpu.GPU) bool { return g.ID == at })
	})
	if out := c.Apply(); strings.Contains(out, "hardware") {
		t.Errorf("it says that hardware keeps the share apart:\n%s", out)
	}
	c.WantNoChanges()
}
