package partitionconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// kindOf is the config "ml" of one kind on hgx01.
func kindOf(layout string) string {
	return fmt.Sprintf("resource \"gpu_partition_config\" \"ml\" {\n  name = \"ml\"\n  hosts = [\"hgx01\"]\n  %s\n  on_destroy = \"restore\"\n}\n", layout)
}

// A GPU gets another kind of layout in one apply: the plan sees it as the old config leaves it.
func TestGPUChangesItsKindInOneApply(t *testing.T) {
	t.Parallel()
	const (
		mig   = "mig = { " + rig.Halves + " }"
		mps   = "mps = { " + rig.HalfEach + " }"
		turns = "time_slicing = { " + rig.FourTurns + " }"
	)
	s := rig.WithMPS(rig.HGX(rig.H100, 2))
	r := rig.New(t, s)
	has := map[string]func(){
		mig: func() { r.WantLayout("3g.40gb@0 3g.40gb@4", 0, 1); r.WantDaemons("hgx01") },
		mps: func() {
			r.WantLayout("off", 0, 1)
			r.WantDaemons("hgx01", "user 1000, 50 % on "+rig.MIGGPU(0)+" "+rig.MIGGPU(1))
		},
		turns: func() { r.WantLayout("off", 0, 1); r.WantDaemons("hgx01") },
	}
	c := rig.NewCLI(t, r.Block()+kindOf(mig))
	c.Apply()
	for _, next := range []string{mps, mig, turns, mig, mps, turns} {
		c.Write(r.Block() + kindOf(next))
		rig.WantSaid(t, c.Ok("plan"), "must be replaced", "1 to add, 0 to change, 1 to destroy")
		c.Apply()
		has[next]()
		r.WantClaims([]string{"hgx01"}, "partition_config ml")
		c.WantNoChanges()
	}
	c.Destroy()
	r.WantLayout("off", 0, 1)
	for i := range 2 {
		if g := r.Host("hgx01").GPUs[i]; g.ComputeMode != gpu.ComputeDefault || g.TimeSlice != gpu.TimeSliceDefault {
			t.Errorf("GPU %d has compute mode %s and time slice %s, want those of before", i, g.ComputeMode, g.TimeSlice)
		}
	}
	r.WantSettled()
}

// What keeps the old layout is the one error of the replacement, and nothing is touched.
func TestChangeOfKindThatTheOldLayoutRefuses(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithMPS(rig.HGX(rig.A100, 1)))
	allowed := "max_disruption = \"gpu_reset\"\n"
	c := rig.NewCLI(t, r.Block()+kindOf(allowed+"mig = { "+rig.Halves+" }"))
	c.Apply()
	at := rig.At("3g.40gb", 4)
	pid := r.Runs(0, &at, "train")
	before := r.File()
	c.Write(r.Block() + kindOf(allowed+"mps = { "+rig.HalfEach+" }"))
	said := c.Fails("plan")
	rig.WantSaid(t, said, fmt.Sprintf("process %d (train", pid))
	if strings.Contains(said, "No GPU is selected") {
		t.Errorf("the plan complains of the GPU that the old layout keeps:\n%s", said)
	}
	r.WantUntouched(before)
	r.EditHost("hgx01", func(h *gpu.Host) { h.GPUs[0].Processes = nil })
	rig.WantSaid(t, c.Ok("plan"), "resets GPU "+rig.MIGGPU(0))
	c.Apply()
	r.WantLayout("off", 0)
	r.WantDaemons("hgx01", "user 1000, 50 % on "+rig.MIGGPU(0))
	c.WantNoChanges()
}
