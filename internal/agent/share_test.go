package agent_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func (r *rig) share(name string) (*gpu.Share, *gpu.HandedShare) {
	r.t.Helper()
	h, err := r.sim.Inventory(r.t.Context())
	check(r.t, err)
	handed, _ := h.HandedShare(name)
	c, ok := r.claim(gpu.ClaimShare, name)
	if !ok {
		return nil, handed
	}
	return c.Want.Share, handed
}

// wantPlace checks where a share is, by its claim and by what containers get.
func (r *rig) wantPlace(name string, want ...gpu.SharedDevice) {
	r.t.Helper()
	s, handed := r.share(name)
	if s == nil || handed == nil {
		r.t.Fatalf("share %s is claimed %v, handed over %v", name, s != nil, handed != nil)
	}
	if d := cmp.Diff(want, s.Devices, cmpopts.EquateEmpty()); d != "" {
		r.t.Errorf("share %s (-want +got):\n%s", name, d)
	}
	for _, d := range want {
		uuid := d.GPU
		if d.Instance != nil {
			uuid = r.devices(d.GPU)[*d.Instance]
		}
		if !strings.Contains(handed.Environment["CUDA_VISIBLE_DEVICES"], uuid) {
			r.t.Errorf("share %s leads to %v, want %s", name, handed.Environment, uuid)
		}
	}
}

func on(id string) gpu.SharedDevice { return gpu.SharedDevice{GPU: id} }

func in(id string, place gpu.MIGPlacement) gpu.SharedDevice {
	return gpu.SharedDevice{GPU: id, Instance: &place}
}

// TestSharePlacement places shares by what the layout of their GPUs has room for, and
// leaves them where they are.
func TestSharePlacement(t *testing.T) {
	served := mps("inference", hopper1, noMIG)
	r := newRig(t, onSharing)
	r.done(layout("1", "mps", nil, served))
	out, err := r.apply(shares("a", "a", nil, fraction("a", "inference", 50*gib)))
	check(t, err)
	placed, ok := out.Host.HandedShare("a")
	if !ok || placed.CDIDevice != "gpufleet.com/share=a" || len(out.Host.Claims) != 2 {
		t.Errorf("the outcome does not tell of the share: %+v, %+v", out.Host.Shares, out.Host.Claims)
	}
	_, err = r.Settle(t.Context(), r.fence, "a", false)
	check(t, err)
	r.wantPlace("a", on(noMIG))
	r.done(shares("b", "b", nil, fraction("b", "inference", 50*gib)))
	r.wantPlace("b", on(hopper1))
	r.done(shares("c", "c", nil, fraction("c", "inference", 30*gib)))
	r.wantPlace("c", on(noMIG))
	r.refusedMIG(shares("d", "d", nil, fraction("d", "inference", 40*gib)), backend.Insufficient, "share d", "left beside")

	// It would fit elsewhere better, and stays.
	r.done(shares("e", "a", fraction("a", "inference", 50*gib), nil))
	less := fraction("c", "inference", 10*gib)
	less.ActiveThreadPercentage, less.ClientPriority = 25, new(1)
	r.wantSteps(shares("f", "c", fraction("c", "inference", 30*gib), less), change.OpWriteShare, change.OpPutClaim)
	r.done(shares("f", "c", fraction("c", "inference", 30*gib), less))
	r.wantPlace("c", on(noMIG))
	r.wantSteps(shares("g", "c", less, less))
	if _, handed := r.share("c"); handed.Environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] != "25" ||
		handed.Environment["CUDA_MPS_CLIENT_PRIORITY"] != "1" {
		t.Errorf("containers get %v", handed.Environment)
	}
	label := *less
	label.Label = "red"
	r.wantSteps(shares("h", "c", less, &label), change.OpPutClaim)
}

func TestShareOfAnInstance(t *testing.T) {
	r := newRig(t, onSharing)
	wanted := mig("train", map[string]int{g1: 2, g3: 1}, hopper1)
	r.done(layout("1", "mig", nil, wanted))
	large := &gpu.Share{Name: "large", Host: host, Count: 1, Profile: g3}
	r.done(shares("2", "large", nil, large), shares("3", "small", nil, &gpu.Share{Name: "small", Host: host, Config: "train", Count: 1}))
	r.wantPlace("large", in(hopper1, at(g3, 4)))
	small, _ := r.share("small")
	kept := r.devices(hopper1)[*small.Devices[0].Instance]

	// Its instance stays, and none that is wanted goes for another layout.
	fewer := mig("train", map[string]int{g1: 1, g3: 1, g2: 1}, hopper1)
	r.done(layout("4", "mig", wanted, fewer))
	if r.devices(hopper1)[*small.Devices[0].Instance] != kept {
		t.Error("the instance under the share was made again")
	}
	r.wantPlace("large", in(hopper1, at(g3, 4)))
	r.refusedMIG(layout("x", "mig", fewer, mig("train", map[string]int{g1: 7}, hopper1)), backend.InUse, hopper1, "large")
}

// TestLayoutUnderShares takes from under shares what they are on: that is refused, and the
// shares are named.
func TestLayoutUnderShares(t *testing.T) {
	served := mps("inference", hopper1, noMIG)
	for _, tt := range []struct {
		name  string
		made  *gpu.PartitionConfig
		share *gpu.Share
		ch    agent.Change
		says  []string
	}{
		{"the config goes", served, fraction("team-a", "inference", gib), layout("x", "1", served, nil), []string{"team-a", "destroy"}},
		{
			"its GPU leaves", served, fraction("team-a", "inference", gib), layout("x", "1", served, mps("inference", hopper1)),
			[]string{"team-a", noMIG},
		},
		{
			"its GPU is shared in another way", served, fraction("team-a", "inference", gib), layout("x", "other", nil, turns("t", "", 4, noMIG)),
			[]string{"team-a", "mode mps", "time_slicing"},
		},
		{
			"its GPU is to be shared at all", nil, &gpu.Share{Name: "team-a", Host: host, Count: 1, GPUIDs: []string{noMIG}},
			layout("x", "1", nil, served),
			[]string{"team-a", "whole_gpu", "mode would be mps"},
		},
		{
			"its instance is shared in another way", mig("train", map[string]int{g1: 1}, hopper1), fraction("team-a", "train", gib),
			layout("x", "1", mig("train", map[string]int{g1: 1}, hopper1), migWithMPS("train", map[string]int{g1: 1}, hopper1)),
			[]string{"team-a", g1},
		},
		{
			"fewer replicas", turns("t", "", 2, noMIG), fraction("team-a", "t", gib),
			layout("x", "1", turns("t", "", 2, noMIG), func() *gpu.PartitionConfig {
				c := turns("t", "", 2, noMIG)
				c.TimeSlicing.Replicas = 0
				return c
			}()),
			[]string{"team-a", "replica"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, onSharing)
			if tt.made != nil {
				r.done(layout("1", "1", nil, tt.made))
			}
			r.done(shares("2", "share", nil, tt.share))
			r.refusedMIG(tt.ch, backend.InUse, tt.says...)
			forget := tt.ch
			forget.ID, forget.ClaimOnly = "y", true
			if forget.Want.Empty() {
				r.done(forget)
			}
		})
	}
}

// TestShareEnds takes shares back, but not from under processes.
func TestShareEnds(t *testing.T) {
	a := fraction("a", "inference", gib)
	r := newRig(t, onSharing)
	r.done(layout("1", "mps", nil, mps("inference", noMIG)), shares("2", "token", nil, a))
	pid, err := r.fleet.StartInShare(t.Context(), host, "a", gpu.Process{Name: "trainer"})
	check(t, err)
	r.refusedMIG(shares("x", "token", a, nil), backend.InUse, "share a", "trainer")

	before := r.look()
	r.done(shares("3", "stranger", a, nil)) // whose share is not of that instance
	wantSame(t, before, r.look())
	claimOnly := shares("4", "token", a, nil)
	claimOnly.ClaimOnly = true
	r.wantSteps(claimOnly, change.OpDropClaim)

	check(t, r.fleet.StopProcess(t.Context(), host, pid))
	r.done(shares("5", "token", a, nil))
	if s, handed := r.share("a"); s != nil || handed != nil {
		t.Errorf("share a is left: claimed %v, handed over %v", s != nil, handed != nil)
	}
}

// TestShareTakeOver has another instance of the same state find what one left.
func TestShareTakeOver(t *testing.T) {
	a := fraction("a", "inference", 30*gib)
	made := func(t *testing.T) *rig {
		t.Helper()
		r := newRig(t, onSharing)
		r.done(layout("1", "mps", nil, mps("inference", hopper1, noMIG)), shares("2", "old", nil, a),
			shares("3", "other", nil, fraction("b", "inference", 50*gib)))
		r.wantPlace("a", on(noMIG))
		return r
	}
	t.Run("it stays where it is", func(t *testing.T) {
		r := made(t)
		r.wantSteps(shares("x", "new", nil, a), change.OpPutClaim)
		r.done(shares("x", "new", nil, a))
		r.wantPlace("a", on(noMIG))
		if c, _ := r.claim(gpu.ClaimShare, "a"); c.Token != "new" {
			t.Errorf("claim %+v", c)
		}
	})
	t.Run("of another shape", func(t *testing.T) {
		r := made(t)
		pinned := fraction("a", "", 10*gib)
		pinned.GPUIDs = []string{hopper1}
		pid, err := r.fleet.StartInShare(t.Context(), host, "a", gpu.Process{Name: "trainer"})
		check(t, err)
		r.refusedMIG(shares("x", "new", nil, pinned), backend.InUse, "share a", "trainer")
		check(t, r.fleet.StopProcess(t.Context(), host, pid))
		r.done(shares("x", "new", nil, pinned))
		r.wantPlace("a", on(hopper1))
	})
	t.Run("of another state", func(t *testing.T) {
		r := made(t)
		ch := shares("x", "new", nil, a)
		ch.Owner, ch.Levels = "somebody", rulesOff()
		_, err := r.apply(ch)
		wantCode(t, err, agent.NotOwner)
	})
	t.Run("imported without a claim", func(t *testing.T) {
		r := made(t)
		check(t, r.ForgetClaim(t.Context(), r.fence, gpu.ClaimShare, "a"))
		known := *a
		known.Devices = []gpu.SharedDevice{on(hopper1)}
		ch := shares("x", "new", nil, &known)
		ch.ClaimOnly = true
		r.done(ch)
		if s, _ := r.share("a"); s == nil || !gpu.SameDevices(s.Devices, known.Devices) {
			t.Errorf("claim of %+v", s)
		}
	})
}

// TestSharePlaceChangesMeanwhile has another run take the place that was prepared.
func TestSharePlaceChangesMeanwhile(t *testing.T) {
	r := newRig(t, onSharing)
	r.done(layout("1", "mps", nil, mps("inference", hopper1, noMIG)))
	ch := shares("x", "a", nil, fraction("a", "inference", 50*gib))
	p, err := r.Prepare(t.Context(), ch)
	check(t, err)
	r.done(shares("2", "b", nil, fraction("b", "inference", 50*gib)))
	_, err = r.Client.Apply(t.Context(), r.fence, ch, p.Basis, nil)
	if e := codeOf(t, err, agent.HostChanged); !strings.Contains(e.Message, "the place of share a was GPU "+noMIG+" and is GPU "+hopper1) {
		t.Errorf("it says %q", e.Message)
	}
	if s, handed := r.share("a"); s != nil || handed != nil {
		t.Error("the share was placed")
	}
}

func TestLinuxPool(t *testing.T) {
	r := newRig(t, onSharing)
	both, one := linuxPool("team", hopper1, hopper2), linuxPool("team", hopper1)
	r.wantSteps(pools("1", "pool", nil, both), change.OpPutClaim)
	before := r.look()
	r.done(pools("1", "pool", nil, both))
	after := r.look()
	if len(after.Claims) != 1 || len(after.Claims[0].GPUs) != 2 {
		t.Errorf("claims are %+v", after.Claims)
	}
	after.Claims = nil
	wantSame(t, before, after)
	r.wantSteps(pools("2", "pool", both, both))

	drawn := &gpu.Share{Name: "a", Host: host, Pool: both.ID, Count: 2}
	r.done(shares("3", "a", nil, drawn))
	r.refusedMIG(pools("x", "pool", both, one), backend.InUse, hopper2, "shares of the pool are on it: a")
	r.refusedMIG(pools("x", "pool", both, nil), backend.InUse, "shares of the pool are on it: a")
	r.done(shares("4", "a", drawn, nil), pools("5", "pool", both, one), pools("6", "pool", one, nil))
	wantSame(t, before, r.look())

	mounts := linuxPool("team", hopper1)
	mounts.MountBack = true
	r.refusedMIG(pools("x", "pool", nil, mounts), backend.NotSupported, "on_destroy")
	mounts.MountBack, mounts.Force = false, true
	r.refusedMIG(pools("x", "pool", nil, mounts), backend.NotSupported, "dismount")
	r.refusedMIG(pools("x", "pool", nil, linuxPool("team", "GPU-gone")), backend.NotFound, "GPU-gone")
	r.done(pools("7", "pool", nil, one))
	r.refusedMIG(pools("x", "second", nil, linuxPool("second", hopper1)), backend.InUse, hopper1, "team")
}
