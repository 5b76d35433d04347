package provider_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A reboot without reconcile loses what is handed to containers: that is drift, which the
// next apply mends where the share was.
func TestShareThatIsNotHandedOverAnyMoreIsMended(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	c := newCLI(t, r.block()+mpsOn01+shareOf("a", onGPU01, ofMPS, half))
	c.apply()
	before := r.share("gpu01", "a").Want.Share
	handed := slices.Clone(r.host("gpu01").Shares)
	r.editHost("gpu01", func(h *gpu.Host) { h.Shares = nil })
	wantSaid(t, c.ok("plan"), "does not hand share a to containers any more", "`gpu-agent reconcile`", "This apply puts it right", "0 to add, 1 to change, 0 to destroy")
	c.apply()
	if diff := cmp.Diff(handed, r.host("gpu01").Shares); diff != "" {
		t.Errorf("the share is handed over otherwise (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, r.share("gpu01", "a").Want.Share); diff != "" {
		t.Errorf("the share's record is another one (-before +after):\n%s", diff)
	}
	c.wantNoChanges()
}

func TestShareIsMendedAfterAReboot(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	c := newCLI(t, r.block()+mpsOn01+shareOf("a", onGPU01, ofMPS, half))
	c.apply()
	where := r.placedOn("gpu01", "a")
	r.must(r.fleet.Reboot(t.Context(), "gpu01"))
	c.apply()
	r.wantShares("gpu01", "a")
	if now := r.placedOn("gpu01", "a"); !slices.Equal(now, where) {
		t.Errorf("the share was on %v and is on %v", where, now)
	}
	c.wantNoChanges()
}

// The UUID of a MIG device is an output alone: another one is no difference.
func TestAnotherUUIDOfAMIGDeviceOnlyRefreshesOutputs(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 1))
	c := newCLI(t, r.block()+migOf("ml", sevenSmall)+shareOf("a", `host = "hgx01"`, "config = gpu_partition_config.ml.id")+
		"output \"uuid\" {\n  value = gpu_share.a.devices[0].uuid\n}\n")
	c.apply()
	r.editHost("hgx01", func(h *gpu.Host) {
		for i := range h.GPUs[0].MIG.Instances {
			h.GPUs[0].MIG.Instances[i].Compute[0].UUID = "MIG-00000000-0000-4000-8000-00000000000" + string(rune('0'+i))
		}
	})
	out := c.ok("plan")
	wantSaid(t, out, "MIG-00000000-0000-4000-8000-00000000000")
	c.apply()
	wantSaid(t, c.ok("output"), "MIG-00000000-0000-4000-8000-00000000000")
	c.wantNoChanges()
}

// State is dropped only when the host has said that it has neither record nor share.
func TestShareThatIsGoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	hcl := r.block() + mpsOn01 + shareOf("a", onGPU01, ofMPS, half)
	lose := func(what func(*gpu.Host)) func() { return func() { r.editHost("gpu01", what) } }
	noClaim := func(h *gpu.Host) {
		h.Claims = slices.DeleteFunc(h.Claims, func(c gpu.Claim) bool { return c.Kind == gpu.ClaimShare })
	}
	r.steps(
		resource.TestStep{Config: hcl},
		resource.TestStep{ // the record alone: the share is still there
			PreConfig: lose(noClaim), Config: hcl, ConfigPlanChecks: planned(shareA, plancheck.ResourceActionUpdate),
			Check: then(func() { r.wantShares("gpu01", "a") }),
		},
		resource.TestStep{
			PreConfig: lose(func(h *gpu.Host) { noClaim(h); h.Shares = nil }), Config: hcl,
			ConfigPlanChecks: planned(shareA, plancheck.ResourceActionCreate), Check: then(func() { r.wantShares("gpu01", "a") }),
		},
		resource.TestStep{ // a host that does not answer has lost nothing
			PreConfig: func() { r.silent(true, "gpu01") }, RefreshState: true, ExpectError: says("Host does not answer", "gpu01"),
		},
		resource.TestStep{PreConfig: func() { r.silent(false, "gpu01") }, Config: hcl, ConfigPlanChecks: planned(shareA, plancheck.ResourceActionNoop)},
	)
	r.wantShares("gpu01")
}

func TestShareOfASilentHostIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(2))
	hcl := mpsOn01 + shareOf("a", onGPU01, ofMPS, half)
	c := newCLI(t, r.block(`on_unreachable = "keep"`)+hcl)
	c.apply()
	r.silent(true, "gpu01")
	wantSaid(t, c.ok("plan", "-detailed-exitcode"), "Host does not answer", "No changes.")
	r.silent(false, "gpu01")
	r.wantShares("gpu01", "a")
}

func TestShareThatProcessesRunInIsNotDestroyed(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	c := newCLI(t, r.block()+mpsOn01+shareOf("a", onGPU01, ofMPS, half))
	c.apply()
	pid := r.computes("gpu01", r.placedOn("gpu01", "a")[0], nil, "a", "python")
	c.write(r.block() + mpsOn01)
	wantSaid(t, c.fails("apply", "-auto-approve"), "python", "container 3f2a")
	r.wantShares("gpu01", "a")
	r.wantSettled()
	r.must(r.fleet.StopProcess(t.Context(), "gpu01", pid))
	c.apply()
	r.wantShares("gpu01")
}

// Failures at apply say what is wrong, leave nothing, and the next apply goes on.
func TestSharesAreRetriedAfterAFailure(t *testing.T) {
	t.Parallel()
	full := simulated.Fault{Op: simulated.OpWriteShare, Detail: "write /run/cdi/gpufleet.com-share_a.json: no space left on device"}
	r := newRig(t, inference(1))
	hcl := r.block() + mpsOn01 + shareOf("a", onGPU01, ofMPS, half)
	c := newCLI(t, hcl)
	r.must(r.fleet.InjectFault(t.Context(), "gpu01", full))
	wantSaid(t, c.fails("apply", "-auto-approve"), "Could not create the share", "Host: gpu01", "no space left on device", "Nothing of this change remains on any host")
	r.wantClaims([]string{"gpu01"}, "partition_config mps")
	r.wantShares("gpu01")
	r.wantSettled()
	r.clearFaults("gpu01")
	c.apply()
	r.wantShares("gpu01", "a")
	before := r.share("gpu01", "a").Want.Share

	c.write(r.block() + mpsOn01 + shareOf("a", onGPU01, ofMPS, quarter))
	full.Times = 1
	r.must(r.fleet.InjectFault(t.Context(), "gpu01", full))
	wantSaid(t, c.fails("apply", "-auto-approve"), "Could not change the share", "no space left on device")
	if diff := cmp.Diff(before, r.share("gpu01", "a").Want.Share); diff != "" {
		t.Errorf("the share has changed (-before +after):\n%s", diff)
	}
	wantSaid(t, c.ok("plan"), "0 to add, 1 to change, 0 to destroy")
	c.apply()
	if s := r.share("gpu01", "a").Want.Share; s.MemoryLimit != 11517*gpu.MiB {
		t.Errorf("the host has %+v", s)
	}
	c.wantNoChanges()
}

// A daemon that dies is the config's to mend; the shares that it serves stay.
func TestSharesStayWhileADaemonIsMended(t *testing.T) {
	t.Parallel()
	r := newRig(t, inference(1))
	c := newCLI(t, r.block()+mpsOn01+shareOf("a", onGPU01, ofMPS, half))
	c.apply()
	r.editHost("gpu01", func(h *gpu.Host) { h.MPS.Daemons[0].PID, h.MPS.Daemons[0].Problem = 0, "it was killed by signal 9" })
	wantSaid(t, c.ok("plan"), "it was killed by signal 9", "0 to add, 1 to change, 0 to destroy")
	r.fail("gpu01", simulated.OpEnsureDaemon, "", 0, 1)
	wantSaid(t, c.fails("apply", "-auto-approve"), "Host: gpu01", "injected by the test")
	r.wantShares("gpu01", "a")
	c.apply()
	if d := r.host("gpu01").MPS.Daemons; len(d) != 1 || d[0].PID == 0 || d[0].Problem != "" {
		t.Errorf("the daemons are %+v", d)
	}
	r.wantShares("gpu01", "a")
	c.wantNoChanges()
}
