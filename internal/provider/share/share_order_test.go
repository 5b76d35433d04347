package share_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// sized are shares of a config "mps" on gpu01, with limits in MiB.
func sized(limits map[string]int, more ...string) string {
	var b strings.Builder
	for name, mib := range limits {
		b.WriteString(rig.ShareOf(name, append([]string{rig.OnGPU01, rig.OfMPS, fmt.Sprintf("memory = { limit_mib = %d }", mib)}, more...)...))
	}
	return b.String()
}

// A plan that finds one packing of shares would promise too much: they are placed one by
// one. It is refused, with GPUs that work; and these do, whatever comes first.
func TestAccShare_SharesThatFitInSomeOrdersOnlyAreRefusedWithPins(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	limits := map[string]int{"a": 20000, "b": 20000, "c": 26000, "d": 26000}
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+sized(limits))
	var out string
	for range 4 {
		out = c.Fails("plan")
		rig.WantSaid(t, out, "The shares of this run fit in some orders only", "Pin them", "Rule: share-placement")
	}
	pins := map[string]string{}
	for _, m := range regexp.MustCompile("share \"([a-d])\" `gpu_ids = \\[(\"[^\"]+\")\\]`").FindAllStringSubmatch(rig.Sentence(out), -1) {
		pins[m[1]] = m[2]
	}
	if len(pins) != len(limits) {
		t.Fatalf("pins of %v:\n%s", pins, out)
	}
	for _, parallel := range []string{"1", "10"} {
		var pinned strings.Builder
		for name, mib := range limits {
			pinned.WriteString(sized(map[string]int{name: mib}, "gpu_ids = ["+pins[name]+"]"))
		}
		c.Write(r.Block() + rig.MPSOn01 + pinned.String())
		c.Apply("-parallelism=" + parallel)
		c.WantNoChanges()
		r.WantShares("gpu01", "a", "b", "c", "d")
		c.Destroy()
	}
}

// What one share gives up another one takes in the same run: the plan says so in every
// order, and what is raised waits for what is lowered.
func TestAccShare_ARaiseWaitsForTheCut(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	at := fmt.Sprintf("gpu_ids = [%q]", rig.ShareCard(1, 0))
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+sized(map[string]int{"a": 15000, "b": 15000, "c": 15000}, at))
	c.Apply()
	for i, limits := range []map[string]int{
		{"a": 22000, "b": 15000, "c": 8000}, {"a": 8000, "b": 22000, "c": 15000}, {"a": 23000, "c": 22000},
	} {
		c.Write(r.Block() + rig.MPSOn01 + sized(limits, at))
		for range 3 {
			rig.WantSaid(t, c.Ok("plan"), "Plan: 0 to add")
		}
		if i == 0 {
			if out, code := c.Run("apply", "-auto-approve", "-parallelism=1"); code != 0 { // what cannot wait there fails untouched
				rig.WantSaid(t, out, "No host was changed.", "as with -parallelism=1, only apply again.")
			}
		}
		c.Apply()
		c.WantNoChanges()
		for name, mib := range limits {
			if got := r.Share("gpu01", name).Want.Share.MemoryLimit.MiB(); got != int64(mib) {
				t.Errorf("share %s has %d MiB, want %d", name, got, mib)
			}
		}
	}
	c.Write(r.Block() + rig.MPSOn01 + sized(map[string]int{"a": 23000, "c": 23100}, at))
	for range 4 {
		rig.WantSaid(t, c.Fails("plan"), "Rule: share-placement")
	}
}

// A share that no reference ties to the config of its host may be made before it, on the
// GPU that the config then finds taken.
func TestAccShare_AShareBesideAConfigOfTheRunSaysWhereItGoes(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	config := rig.SharedConfig("mps", rig.ByMPS+fmt.Sprintf("\n  selector = { gpu_ids = { gpu01 = [%q] } }", rig.ShareCard(1, 0)), "gpu01")
	c := rig.NewCLI(t, r.Block()+config+rig.ShareOf("a", rig.OnGPU01))
	for range 4 {
		rig.WantSaid(t, c.Fails("plan"), "The share may be made before the GPU's layout", "Refer to the config", "Rule: share-placement")
	}
	for _, where := range []string{rig.OfMPS, fmt.Sprintf("gpu_ids = [%q]", rig.ShareCard(1, 1))} {
		c.Write(r.Block() + config + rig.ShareOf("a", rig.OnGPU01, where))
		c.Apply()
		c.WantNoChanges()
		r.WantShares("gpu01", "a")
		c.Destroy()
	}
}
