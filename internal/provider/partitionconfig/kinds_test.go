package partitionconfig_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// kindOf is the config "ml" of one kind on hgx01.
func kindOf(layout string) string {
	return fmt.Sprintf("resource \"gpu_partition_config\" \"ml\" {\n  name = \"ml\"\n  hosts = [\"hgx01\"]\n  %s\n  on_destroy = "+
		"\"restore\"\n}\n", layout)
}

// A GPU gets another kind of layout in one apply: the plan sees it as the old config leaves it.
func TestAccPartitionConfig_GPUChangesItsKindInOneApply(t *testing.T) {
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
		rig.WantSaid(t, c.Ok("plan"), ": replace", "1 to add, 0 to change, 1 to destroy")
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
func TestAccPartitionConfig_ChangeOfKindThatTheOldLayoutRefuses(t *testing.T) {
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

// MIG mode is switched off by a layout that says so: with what others made in it, as far as
// nobody uses it, put back when the config ends, and drift when it comes on again.
func TestAccPartitionConfig_MIGModeIsSwitchedOff(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithMPS(rig.HGX(rig.A100, 2)))
	at := rig.At("3g.40gb", 4)
	for i := range 2 {
		r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(i), true))
		r.Must(r.Fleet.ResetGPU(t.Context(), "hgx01", rig.MIGGPU(i)))
		r.CreateOutside(i, at)
	}
	const off = "mig = { enabled = false }"
	pid, before := r.Runs(1, &at, "train"), r.File()
	c := rig.NewCLI(t, r.Block()+kindOf(off))
	rig.WantSaid(t, c.Fails("plan"), fmt.Sprintf("process %d (train", pid), "Rule: mig-placement")
	r.WantUntouched(before)
	r.EditHost("hgx01", func(h *gpu.Host) { h.GPUs[1].Processes = nil })
	before = r.File()
	rig.WantSaid(t, c.Fails("plan"), "switches MIG mode off", "`max_disruption` allows \"none\" only")
	r.WantUntouched(before)

	c.Write(r.Block() + kindOf(off+"\nmax_disruption = \"gpu_reset\""))
	rig.WantSaid(t, c.Ok("plan"), "MIG mode is switched off, which resets this GPU; removes 3g.40gb@4")
	r.Fail("hgx01", simulated.OpSetMIGMode, rig.MIGGPU(1), 0, 1)
	c.Fails("apply", "-auto-approve")
	r.WantLayout("3g.40gb@4", 0, 1)
	r.WantClaims([]string{"hgx01"})
	c.Apply()
	r.WantLayout("off", 0, 1)
	c.WantNoChanges()

	r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(0), true))
	rig.WantSaid(t, c.Ok("plan"),
		"has MIG mode off; the next reset of the GPU switches MIG mode on, declared is no MIG mode; changed by others")
	r.Must(r.Fleet.ResetGPU(t.Context(), "hgx01", rig.MIGGPU(0)))
	rig.WantSaid(t, c.Ok("plan"), "has MIG mode without instances, declared is no MIG mode; changed by others")
	c.Apply()
	r.WantLayout("off", 0, 1)
	c.WantNoChanges()
	c.Destroy()
	r.WantLayout("3g.40gb@4", 0, 1)
	r.WantSettled()
}

// A share has the whole of a GPU that is kept out of MIG mode. Where its config makes instances of
// the GPU, it ends before that, and another share is placed in one of them.
func TestAccPartitionConfig_ShareOnAGPUWithoutMIGMode(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithMPS(rig.HGX(rig.H100, 1)))
	const share = "resource \"gpu_share\" \"s\" {\n  name = \"s\"\n  host = \"hgx01\"\n  config = gpu_partition_config.ml.id\n}\n"
	c := rig.NewCLI(t, r.Block()+kindOf("mig = { enabled = false }")+share)
	c.Apply()
	c.WantNoChanges()
	if at := r.PlacedOn("hgx01", "s"); len(at) != 1 || at[0] != rig.MIGGPU(0) {
		t.Errorf("the share is on %v, want the GPU as a whole", at)
	}
	c.Write(r.Block() + kindOf("mig = { "+rig.Halves+" }") + share)
	rig.WantSaid(t, c.Ok("plan"), "gpu_share.s: replace", "The share is replaced")
	c.Apply()
	h := r.Host("hgx01")
	if claim, ok := h.Claim(gpu.ClaimShare, "s"); !ok || claim.Want.Share.Devices[0].Instance == nil {
		t.Errorf("the share is %+v, want one on an instance of the GPU", claim)
	}
	c.WantNoChanges()
}

// What a config left in MIG mode gets out of it, and then another kind, by its own config.
func TestAccPartitionConfig_KindAfterMIGModeThatWasKept(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithMPS(rig.HGX(rig.H100, 1)))
	kept := func(layout string) string {
		return r.Block() + strings.Replace(kindOf(layout), `"restore"`, `"keep"`, 1)
	}
	c := rig.NewCLI(t, kept("mig = { "+rig.Halves+" }"))
	c.Apply()
	before := r.File()
	c.Write(kept("mps = { " + rig.HalfEach + " }"))
	rig.WantSaid(t, c.Fails("plan"), "No GPU is selected", "a config of `mig = { enabled = false }` switches off")
	r.WantUntouched(before)
	for _, next := range []string{"mig = { enabled = false }", "mps = { " + rig.HalfEach + " }"} {
		c.Write(kept(next))
		c.Apply()
		r.WantLayout("off", 0)
		c.WantNoChanges()
	}
	r.WantDaemons("hgx01", "user 1000, 50 % on "+rig.MIGGPU(0))
	r.WantClaims([]string{"hgx01"}, "partition_config ml")
}

// A share on an instance is replaced with its config, or goes before it, in the same apply.
func TestAccPartitionConfig_ChangeOfKindUnderAShare(t *testing.T) {
	t.Parallel()
	const share = "resource \"gpu_share\" \"s\" {\n  name = \"s\"\n  host = \"hgx01\"\n  config = gpu_partition_config.ml.id\n}\n"
	for name, test := range map[string]struct {
		share  string
		plan   string
		claims []string
	}{
		"replaced": {share, "2 to add, 0 to change, 2 to destroy", []string{"partition_config ml", "share s"}},
		"gone":     {"", "1 to add, 0 to change, 2 to destroy", []string{"partition_config ml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.WithMPS(rig.HGX(rig.H100, 1)))
			c := rig.NewCLI(t, r.Block()+kindOf("mig = { "+rig.Halves+" }")+share)
			c.Apply()
			c.Write(r.Block() + kindOf("mps = { "+rig.HalfEach+" }") + test.share)
			rig.WantSaid(t, c.Ok("plan"), test.plan)
			c.Apply()
			r.WantLayout("off", 0)
			r.WantDaemons("hgx01", "user 1000, 50 % on "+rig.MIGGPU(0))
			r.WantClaims([]string{"hgx01"}, test.claims...)
			c.WantNoChanges()
		})
	}
}

// What a GPU had before is in the record of the config alone. When the host has lost that, the plan of
// a destroy says of each GPU what it keeps, whatever the kind; and so it does once an update has
// written a new record, which knows no more.
func TestAccPartitionConfig_WhatCannotBePutBackIsToldForEachKind(t *testing.T) {
	t.Parallel()
	const restore = `on_destroy = "restore"`
	for kind, test := range map[string]struct {
		fleet  gpu.Snapshot
		config string
		keeps  string
	}{
		"gpu_p":        {rig.TwoNodes(), rig.ConfigOf(4, []string{"hv01"}, restore), "with 4 partitions"},
		"mig":          {rig.HGX(rig.H100, 1), rig.MIGOf("ml", rig.Halves, restore), "with 3g.40gb@0+3g.40gb@4"},
		"vgpu":         {rig.KVM(rig.L40s(0)), rig.VGPUOf("desks", rig.TwoDesks, restore), "with 2 × L40S-12Q"},
		"mps":          {rig.GPUHost(1), rig.MPSOf(rig.HalfEach, restore), "with compute mode exclusive_process"},
		"time_slicing": {rig.GPUHost(1), rig.TurnsOf(`interval = "long", replicas = 2`, restore), "and time slice long"},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", kind, again), func(t *testing.T) {
				t.Parallel()
				r := rig.New(t, test.fleet)
				c := rig.NewCLI(t, r.Block()+test.config)
				c.Apply()
				const title = "The previous layout is not recorded"
				if out := c.Ok("plan", "-destroy"); strings.Contains(out, title) {
					t.Fatalf("it is recorded still:\n%s", out)
				}
				host := test.fleet.Hosts[0].Name
				layouts := func() (out []gpu.Layout) {
					for _, g := range r.Host(host).GPUs {
						out = append(out, g.Layout())
					}
					return out
				}
				given := layouts()
				r.EditHost(host, func(h *gpu.Host) { h.Claims = nil })
				if again {
					c.Apply()
				}
				said := c.Ok("plan", "-destroy")
				rig.WantSaid(t, said, "Warning: "+title, test.keeps)
				c.Destroy()
				if now := layouts(); !reflect.DeepEqual(now, given) {
					t.Errorf("the GPUs have %+v, and had %+v", now, given)
				}
				r.WantClaims([]string{host})
			})
		}
	}
}
