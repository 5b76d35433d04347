package runs_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// twoConfigs are two configs, each of one GPU of gpu01, with shares of each, and a pool on gpu02 with shares.
type twoConfigs struct {
	names  [2]string
	kinds  [2]string
	gpus   [2]string
	pinned bool // the shares name their GPUs
	shares [2]int
	pool   string
	drawn  int
}

func (l twoConfigs) config(block string) (text string, shares []string) {
	text = block
	for i := range 2 {
		text += fmt.Sprintf(
			"resource \"gpu_partition_config\" \"c%d\" {\n  name = %q\n  hosts = [\"gpu01\"]\n  selector = { gpu_ids = { gpu01 = "+
				"[%q] } }\n  %s\n  max_disruption = \"process_restart\"\n}\n", i, l.names[i], l.gpus[i], l.kinds[i])
		pin := ""
		if l.pinned {
			pin = fmt.Sprintf("  gpu_ids = [%q]\n", l.gpus[i])
		}
		text += fmt.Sprintf("resource \"gpu_share\" \"c%d\" {\n  count = %d\n  name = \"s%d-${count.index}\"\n  host = \"gpu01\"\n  config = "+
			"gpu_partition_config.c%d.id\n%s}\n", i, l.shares[i], i, i, pin)
		for n := range l.shares[i] {
			shares = append(shares, fmt.Sprintf("s%d-%d", i, n))
		}
	}
	text += "resource \"gpu_partition_config\" \"turns\" {\n  name = \"turns\"\n  hosts = [\"gpu02\"]\n  time_slicing = { replicas = 4 }\n}\n"
	text += fmt.Sprintf("resource \"gpu_pool\" \"p\" {\n  name = %q\n  hosts = [\"gpu02\"]\n}\n", l.pool)
	text += fmt.Sprintf("resource \"gpu_share\" \"p\" {\n  count = %d\n  name = \"p-${count.index}\"\n  pool = gpu_pool.p.id\n  config = "+
		"gpu_partition_config.turns.id\n}\n", l.drawn)
	return text, shares
}

// Names, kinds and GPUs of configs and pools change in one run, with all that is drawn from them: such a plan is
// allowed, its apply does it, and nothing is left to change.
func TestNamesKindsAndGPUsChangeTogether(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), rig.WithoutWaiting(func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // repeatable
			r := rig.New(t, rig.Inference(2))
			gpus := []string{r.Host("gpu01").GPUs[0].ID, r.Host("gpu01").GPUs[1].ID}
			pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
			next := func(l twoConfigs) twoConfigs {
				for i := range 2 {
					if rnd.IntN(2) == 0 {
						l.names[i] = pick("a", "b", "c") + fmt.Sprint(i)
					}
					if rnd.IntN(2) == 0 {
						l.kinds[i] = pick(rig.ByMPS, rig.ByTurns)
					}
				}
				if rnd.IntN(2) == 0 {
					slices.Reverse(l.gpus[:])
				}
				if rnd.IntN(2) == 0 {
					l.pool = pick("x", "y", "z")
				}
				return l
			}
			l := next(twoConfigs{
				names: [2]string{"a0", "a1"}, kinds: [2]string{rig.ByMPS, rig.ByTurns}, gpus: [2]string(gpus), pinned: rnd.IntN(2) == 0,
				shares: [2]int{1 + rnd.IntN(3), 1 + rnd.IntN(3)}, pool: "x", drawn: 1 + rnd.IntN(4),
			})
			text, shares := l.config(r.Block())
			c := rig.NewCLI(t, text)
			if c.Terminal != nil {
				c.Terminal.Shuffle = rnd.IntN
			}
			c.Apply()
			for range 3 {
				l = next(l)
				text, _ = l.config(r.Block())
				c.Write(text)
				parallel := "-parallelism=" + pick("1", "10", "30")
				c.Ok("plan", parallel, "-out=plan.out")
				if out, code := c.Run("apply", parallel, "plan.out"); code != 0 {
					if parallel != "-parallelism=1" {
						t.Fatalf("the apply fails:\n%s", out)
					}
					rig.WantSaid(t, out, "No host was changed.", "as with -parallelism=1, only apply again.")
					c.Apply()
				}
				c.WantNoChanges()
				r.WantShares("gpu01", shares...)
				for i, kind := range l.kinds {
					h := r.Host("gpu01")
					claim, ok := h.Claim(gpu.ClaimConfig, l.names[i])
					if !ok || !claim.Covers(l.gpus[i]) || (claim.Want.Config.Kind == gpu.KindMPS) != (kind == rig.ByMPS) {
						t.Errorf("config %s is not on GPU %s as %s", l.names[i], l.gpus[i], kind)
					}
				}
				for _, s := range r.Host("gpu02").Claims {
					if s.Kind == gpu.ClaimShare && !strings.HasSuffix(s.Want.Share.Pool, "/"+l.pool) {
						t.Errorf("share %s is drawn from pool %s, and the pool is %s", s.ID, s.Want.Share.Pool, l.pool)
					}
				}
			}
			c.Ok("destroy", "-auto-approve")
			r.WantShares("gpu01")
			r.WantSettled()
		}))
	}
}

// A pool on Hyper-V gets another name under the VMs that draw from it: each gives its GPU back before the pool goes.
func TestAPoolOfVMsIsRenamed(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 10} {
		t.Run(fmt.Sprint(at), rig.WithoutWaiting(func(t *testing.T) {
			r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Desktop("avd-02", 2))))
			config := func(pool string) string {
				text := r.Block() + fmt.Sprintf("resource \"gpu_pool\" \"p\" {\n  name = %q\n  hosts = [\"hv01\"]\n  dismount = { force = true }\n"+
					"  on_destroy = \"mount_back\"\n}\n", pool)
				for _, vm := range []string{"avd-01", "avd-02"} {
					text += rig.AssignmentOf(vm, vm, "pool = { id = gpu_pool.p.id }", rig.MayStop, rig.WholeGPU(1))
				}
				return text
			}
			c := rig.NewCLI(t, config("old"))
			c.Apply()
			c.Write(config("new"))
			parallel := fmt.Sprintf("-parallelism=%d", at)
			plan := c.Ok("plan", parallel, "-out=plan.out")
			rig.WantSaid(t, plan, "avd-01", "avd-02")
			c.Ok("apply", parallel, "plan.out")
			for _, name := range []string{"avd-01", "avd-02"} {
				v, _ := r.VM(name)
				pools := []string{}
				for _, d := range v.Devices {
					pools = append(pools, d.Pool)
				}
				if diff := cmp.Diff([]string{"new"}, pools); diff != "" || !v.Runs() {
					t.Errorf("%s is %s, and draws from %v", name, v.State, pools)
				}
			}
			c.WantNoChanges()
			c.Ok("destroy", "-auto-approve")
			r.WantSettled()
		}))
	}
}

// A config that restores the layout gets another name under its VMs: each gives its partition back before the old one
// goes. A config that keeps the layout is handed over, and no VM is stopped.
func TestAConfigOfVMsIsRenamed(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"restore", "keep"} {
		t.Run(end, rig.WithoutWaiting(func(t *testing.T) {
			r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1), rig.Desktop("avd-02", 2))))
			config := func(name string) string {
				text := r.Block() + fmt.Sprintf("resource \"gpu_partition_config\" \"c\" {\n  name = %q\n  hosts = [\"hv01\"]\n  gpu_p = { "+
					"partition_count = 4 }\n  on_destroy = %q\n}\n", name, end)
				for _, vm := range []string{"avd-01", "avd-02"} {
					text += rig.AssignmentOf(vm, vm, "partition = { config = gpu_partition_config.c.id }", rig.MayStop)
				}
				return text
			}
			c := rig.NewCLI(t, config("old"))
			c.Apply()
			if end == "keep" {
				r.NeverStops("avd-01", "hv01")
			}
			c.Write(config("new"))
			c.Ok("plan", "-out=plan.out")
			c.Ok("apply", "plan.out")
			r.WantHeld(gpu.VMRunning, "avd-01", "avd-02")
			r.WantCounts(4, "hv01")
			c.WantNoChanges()
			if end == "restore" { // with "keep", the VM that must not stop would have to
				c.Ok("destroy", "-auto-approve")
				r.WantSettled()
			}
		}))
	}
}
