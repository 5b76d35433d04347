package share_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A reboot without reconcile loses what is handed to containers: that is drift, which the
// next apply mends where the share was.
func TestAccShare_ShareThatIsNotHandedOverAnyMoreIsMended(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half))
	c.Apply()
	before := r.Share("gpu01", "a").Want.Share
	handed := slices.Clone(r.Host("gpu01").Shares)
	r.EditHost("gpu01", func(h *gpu.Host) { h.Shares = nil })
	rig.WantSaid(t, c.Ok("plan"), "share a is not handed to containers any more", "`gpu-agent reconcile`",
		"This apply puts it right", "0 to add, 1 to change, 0 to destroy")
	c.Apply()
	if diff := cmp.Diff(handed, r.Host("gpu01").Shares); diff != "" {
		t.Errorf("the share is handed over otherwise (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, r.Share("gpu01", "a").Want.Share); diff != "" {
		t.Errorf("the share's record is another one (-before +after):\n%s", diff)
	}
	c.WantNoChanges()
}

// A specification that is not what would be written now is drift: edited by hand, or older than
// the driver and the toolkit. The next apply writes it again, under the processes of the share.
func TestAccShare_ShareThatIsHandedOverOtherwiseIsWrittenAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit        func(*gpu.Host)
		says        string
		enforcement string
	}{
		"edited by hand": {func(h *gpu.Host) {
			h.Shares[0].Environment["CUDA_VISIBLE_DEVICES"] = rig.ShareCard(1, 1)
		}, "its CDI specification leads elsewhere", "advisory"},
		"toolkit and driver are newer": {func(h *gpu.Host) {
			h.ContainerToolkit = "1.20.1"
			for i := range h.GPUs {
				h.GPUs[i].Driver.Version = "615.43.02"
			}
		}, "its CDI specification was written for another driver or container toolkit", "per_container"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Inference(1))
			c := rig.NewCLI(t, r.Block()+rig.MPSOn01+rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half, "gpu_ids = [\""+rig.ShareCard(1, 0)+"\"]")+
				"output \"held\" {\n  value = gpu_share.a.enforcement\n}\n")
			c.Apply()
			where := r.PlacedOn("gpu01", "a")
			_, err := r.Fleet.StartInShare(t.Context(), "gpu01", "a", gpu.Process{Name: "trainer"})
			r.Must(err)
			before := r.Host("gpu01").MPS.Daemons
			r.EditHost("gpu01", test.edit)
			rig.WantSaid(t, c.Ok("plan"), test.says, "This apply puts it right", "0 to add, 1 to change, 0 to destroy")
			c.Apply()
			if got := c.Ok("output", "-raw", "held"); got != test.enforcement {
				t.Errorf("enforcement is %q, want %q", got, test.enforcement)
			}
			if diff := cmp.Diff(before, r.Host("gpu01").MPS.Daemons); diff != "" {
				t.Errorf("the daemon or its clients are others (-before +after):\n%s", diff)
			}
			if now := r.PlacedOn("gpu01", "a"); !slices.Equal(now, where) {
				t.Errorf("the share was on %v and is on %v", where, now)
			}
			c.WantNoChanges()
		})
	}
}

func TestAccShare_ShareIsMendedAfterAReboot(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half))
	c.Apply()
	where := r.PlacedOn("gpu01", "a")
	r.Must(r.Fleet.Reboot(t.Context(), "gpu01"))
	c.Apply()
	r.WantShares("gpu01", "a")
	if now := r.PlacedOn("gpu01", "a"); !slices.Equal(now, where) {
		t.Errorf("the share was on %v and is on %v", where, now)
	}
	c.WantNoChanges()
}

// The UUID of a MIG device is an output alone: another one is no difference.
func TestAccShare_AnotherUUIDOfAMIGDeviceOnlyRefreshesOutputs(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.SevenSmall)+rig.ShareOf("a", `host = "hgx01"`, "config = gpu_partition_config.ml.id")+
		"output \"uuid\" {\n  value = gpu_share.a.devices[0].uuid\n}\n")
	c.Apply()
	r.EditHost("hgx01", func(h *gpu.Host) {
		for i := range h.GPUs[0].MIG.Instances {
			h.GPUs[0].MIG.Instances[i].Compute[0].UUID = "MIG-00000000-0000-4000-8000-00000000000" + string(rune('0'+i))
		}
	})
	rig.WantSaid(t, fmt.Sprint(c.Planned().OutputChanges["uuid"].After), "MIG-00000000-0000-4000-8000-00000000000")
	c.Apply()
	rig.WantSaid(t, c.Output("uuid"), "MIG-00000000-0000-4000-8000-00000000000")
	c.WantNoChanges()
}

// State is dropped only when the host has said that it has neither record nor share.
func TestAccShare_ShareThatIsGoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	hcl := r.Block() + rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half)
	lose := func(what func(*gpu.Host)) func() { return func() { r.EditHost("gpu01", what) } }
	noClaim := func(h *gpu.Host) {
		h.Claims = slices.DeleteFunc(h.Claims, func(c gpu.Claim) bool { return c.Kind == gpu.ClaimShare })
	}
	r.Steps(
		resource.TestStep{Config: hcl},
		resource.TestStep{ // the record alone: the share is still there
			PreConfig: lose(noClaim), Config: hcl, ConfigPlanChecks: rig.Planned(shareA, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() { r.WantShares("gpu01", "a") }),
		},
		resource.TestStep{
			PreConfig: lose(func(h *gpu.Host) { noClaim(h); h.Shares = nil }), Config: hcl,
			ConfigPlanChecks: rig.Planned(shareA, plancheck.ResourceActionCreate), Check: rig.Then(func() { r.WantShares("gpu01", "a") }),
		},
		resource.TestStep{ // a host that does not answer has lost nothing
			PreConfig: func() { r.Silent(true, "gpu01") }, RefreshState: true, ExpectError: rig.Says("Host does not answer", "gpu01"),
		},
		resource.TestStep{
			PreConfig: func() { r.Silent(false, "gpu01") }, Config: hcl, ConfigPlanChecks: rig.Planned(shareA, plancheck.ResourceActionNoop),
		},
	)
	r.WantShares("gpu01")
}

func TestAccShare_ShareOfASilentHostIsKept(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	hcl := rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half)
	c := rig.NewCLI(t, r.Block(`on_unreachable = "keep"`)+hcl)
	c.Apply()
	r.Silent(true, "gpu01")
	rig.WantSaid(t, c.Ok("plan", "-detailed-exitcode"), "Host does not answer", "No changes.")
	r.Silent(false, "gpu01")
	r.WantShares("gpu01", "a")
}

// With on_unreachable = "keep" a plan passes what its apply can do and nothing else: a share is not
// changed on a host that does not answer, and none goes there.
func TestAccShare_NoShareIsPlannedOnASilentHost(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(2))
	block := r.Block(`on_unreachable = "keep"`) + rig.SharedConfig("mps", rig.ByMPS, "gpu01", "gpu02") +
		rig.MLPool([]string{"gpu01", "gpu02"}, "depends_on = [gpu_partition_config.mps]")
	var all string
	for i := range 4 { // which fill one of the two
		all += rig.ShareOf(fmt.Sprintf("s%d", i), rig.FromPool, rig.Half)
	}
	c := rig.NewCLI(t, block+all)
	c.Apply()
	full, empty := "gpu01", "gpu02"
	if len(r.Host(full).Shares) == 0 {
		full, empty = empty, full
	}
	if n := len(r.Host(full).Shares); n != 4 {
		t.Fatalf("%s has %d shares, want 4", full, n)
	}
	for _, tt := range []struct{ silent, config, says string }{
		{full, strings.Replace(all, rig.Half, rig.Quarter, 1), "A share cannot change while its host does not answer"},
		{empty, all + rig.ShareOf("t", rig.FromPool, rig.Half), "does not fit"},
	} {
		r.Silent(true, tt.silent)
		before := r.Snapshot()
		c.Write(block + tt.config)
		rig.WantSaid(t, c.Fails("plan"), tt.says, tt.silent)
		rig.WantSaid(t, c.Fails("apply", "-auto-approve"), tt.says)
		r.WantUnchanged(before)
		r.Silent(false, tt.silent)
	}
	c.Write(block + all)
	c.WantNoChanges()

	alone := rig.New(t, rig.Inference(2))
	single := alone.Block(`on_unreachable = "keep"`) + rig.MPSOn01
	c = rig.NewCLI(t, single)
	c.Apply()
	alone.Silent(true, "gpu01")
	c.Write(single + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half))
	rig.WantSaid(t, c.Fails("plan"), "A share cannot change while its host does not answer", "gpu01")
}

func TestAccShare_ShareThatProcessesRunInIsNotDestroyed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half))
	c.Apply()
	pid := r.Computes("gpu01", r.PlacedOn("gpu01", "a")[0], nil, "a", "python")
	c.Write(r.Block() + rig.MPSOn01)
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "python", "container 3f2a")
	r.WantShares("gpu01", "a")
	r.WantSettled()
	r.Must(r.Fleet.StopProcess(t.Context(), "gpu01", pid))
	c.Apply()
	r.WantShares("gpu01")
}

// Failures at apply say what is wrong, leave nothing, and the next apply goes on.
func TestAccShare_SharesAreRetriedAfterAFailure(t *testing.T) {
	t.Parallel()
	full := simulated.Fault{Op: simulated.OpWriteShare, Detail: "write /run/cdi/gpufleet.com-share_a.json: no space left on device"}
	r := rig.New(t, rig.Inference(1))
	hcl := r.Block() + rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half)
	c := rig.NewCLI(t, hcl)
	r.Must(r.Fleet.InjectFault(t.Context(), "gpu01", full))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Could not create the share", "Host: gpu01",
		"no space left on device", "Remove the cause and apply again")
	r.WantClaims([]string{"gpu01"}, "partition_config mps")
	r.WantShares("gpu01")
	r.WantSettled()
	r.ClearFaults("gpu01")
	c.Apply()
	r.WantShares("gpu01", "a")
	before := r.Share("gpu01", "a").Want.Share

	c.Write(r.Block() + rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Quarter))
	full.Times = 1
	r.Must(r.Fleet.InjectFault(t.Context(), "gpu01", full))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Could not change the share", "no space left on device")
	if diff := cmp.Diff(before, r.Share("gpu01", "a").Want.Share); diff != "" {
		t.Errorf("the share has changed (-before +after):\n%s", diff)
	}
	rig.WantSaid(t, c.Ok("plan"), "0 to add, 1 to change, 0 to destroy")
	c.Apply()
	if s := r.Share("gpu01", "a").Want.Share; s.MemoryLimit != 11517*gpu.MiB {
		t.Errorf("the host has %+v", s)
	}
	c.WantNoChanges()
}

// A daemon that dies is the config's to mend; the shares that it serves stay.
func TestAccShare_SharesStayWhileADaemonIsMended(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	c := rig.NewCLI(t, r.Block()+rig.MPSOn01+rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half))
	c.Apply()
	r.EditHost("gpu01", func(h *gpu.Host) { h.MPS.Daemons[0].PID, h.MPS.Daemons[0].Problem = 0, "it was killed by signal 9" })
	rig.WantSaid(t, c.Ok("plan"), "it was killed by signal 9", "0 to add, 1 to change, 0 to destroy")
	r.Fail("gpu01", simulated.OpEnsureDaemon, "", 0, 1)
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Host: gpu01", "Injected by the test")
	r.WantShares("gpu01", "a")
	c.Apply()
	if d := r.Host("gpu01").MPS.Daemons; len(d) != 1 || d[0].PID == 0 || d[0].Problem != "" {
		t.Errorf("the daemons are %+v", d)
	}
	r.WantShares("gpu01", "a")
	c.WantNoChanges()
}

// Clients of MPS end with their share where it allows that, by their daemon, as the plan has said.
// The daemon and the clients of other shares go on.
func TestAccShare_ClientsEndWithTheirShareWhereItAllowsThat(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	pinned := fmt.Sprintf("gpu_ids = [%q]", rig.ShareCard(1, 0))
	base := r.Block() + rig.SharedConfig("mps", `mps = { uid = 1000, compute_mode = "default" }`, "gpu01")
	b := rig.ShareOf("b", rig.OnGPU01, rig.OfMPS, pinned)
	of := func(most string) string { return rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, pinned, most) }
	c := rig.NewCLI(t, base+b+of(""))
	c.Apply()
	starts := func(share, name string) int {
		pid, err := r.Fleet.StartInShare(t.Context(), "gpu01", share, gpu.Process{Name: name})
		r.Must(err)
		return pid
	}
	daemon := func() gpu.MPSDaemon { return r.Host("gpu01").MPS.Daemons[0] }
	was := daemon().PID
	trainer, other := starts("a", "trainer"), starts("b", "other")
	goesOn := func(want ...int) {
		t.Helper()
		var pids []int
		for _, p := range daemon().Clients {
			pids = append(pids, p.PID)
		}
		if !slices.Equal(pids, want) || daemon().PID != was {
			t.Errorf("the daemon is process %d with clients %v, want %d with %v", daemon().PID, pids, was, want)
		}
	}

	c.Write(base + b)
	rig.WantSaid(t, c.Fails("plan"), "trainer", `max_disruption = "process_restart"`)
	c.Write(base + b + of(`max_disruption = "process_restart"`))
	before := r.File()
	c.Ok("apply", "-auto-approve")
	r.WantUntouched(before)
	c.Write(base + b)
	rig.WantSaid(t, c.Ok("plan", "-out=tfplan"), "trainer")
	late := starts("a", "late")
	rig.WantSaid(t, c.Fails("apply", "tfplan"), "late")
	goesOn(trainer, other, late)
	r.WantShares("gpu01", "a", "b")
	alone := r.Computes("gpu01", rig.ShareCard(1, 0), nil, "a", "alone")
	rig.WantSaid(t, c.Fails("plan"), "alone", "Stop them first")
	r.Must(r.Fleet.StopProcess(t.Context(), "gpu01", alone))
	c.Ok("apply", "-auto-approve")
	goesOn(other)
	r.WantShares("gpu01", "b")
	r.WantSettled()
}
