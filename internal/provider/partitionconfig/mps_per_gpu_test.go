package partitionconfig_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// With a daemon for each GPU what ends one ends no client on another GPU; a share has one GPU.
func TestAccPartitionConfig_ADaemonForEachGPU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Inference(1))
	mps := func(daemons string) string {
		return r.Block() + rig.SharedConfig("mps",
			fmt.Sprintf("mps = { uid = 1000, daemons = %q }\n  max_disruption = \"process_restart\"", daemons), "gpu01")
	}
	on := func(card int) string { return fmt.Sprintf("gpu_ids = [%q]", rig.ShareCard(1, card)) }
	shares := rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, on(0)) + rig.ShareOf("b", rig.OnGPU01, rig.OfMPS, on(1))
	both := rig.ShareOf("both", rig.OnGPU01, rig.OfMPS, "gpu_count = 2")
	one := "user 1000 on " + rig.ShareCard(1, 0) + " " + rig.ShareCard(1, 1)
	each := []string{"user 1000 on " + rig.ShareCard(1, 0), "user 1000 on " + rig.ShareCard(1, 1)}
	daemon := func(card int) gpu.MPSDaemon {
		t.Helper()
		i := slices.IndexFunc(r.Host("gpu01").MPS.Daemons, func(d gpu.MPSDaemon) bool {
			return gpu.SameID(d.Devices[0].GPU, rig.ShareCard(1, card))
		})
		if i < 0 {
			t.Fatalf("no daemon serves GPU %d", card)
		}
		return r.Host("gpu01").MPS.Daemons[i]
	}
	pipes := func(share string) string {
		t.Helper()
		h := r.Host("gpu01")
		handed, ok := h.HandedShare(share)
		if !ok {
			t.Fatalf("share %s is not handed over", share)
		}
		return handed.Environment["CUDA_MPS_PIPE_DIRECTORY"]
	}

	c := rig.NewCLI(t, mps("per_host")+shares+both)
	c.Apply()
	r.WantDaemons("gpu01", one)
	before := r.File()
	c.Write(mps("per_gpu") + shares + both)
	rig.WantSaid(t, c.Fails("plan"), `Share "both" is on `+rig.ShareCard(1, 0), "which no process reaches together",
		"Leave `daemons` of the gpu_partition_config as it is")
	r.WantUntouched(before)

	c.Write(mps("per_host") + shares)
	c.Apply()
	pid, err := r.Fleet.StartInShare(t.Context(), "gpu01", "a", gpu.Process{Name: "trainer"})
	r.Must(err)
	c.Write(mps("per_gpu") + shares)
	rig.WantSaid(t, c.Apply(), "MPS daemon mps is stopped, which terminates its clients: "+fmt.Sprintf("process %d (trainer", pid))
	r.WantDaemons("gpu01", each...)
	c.WantNoChanges()
	for share, card := range map[string]int{"a": 0, "b": 1} {
		if got := pipes(share); got == "" || got != daemon(card).PipeDir {
			t.Errorf("containers of share %s are given the pipes in %q, and the daemon of its GPU has %q", share, got, daemon(card).PipeDir)
		}
	}

	goesOn, err := r.Fleet.StartInShare(t.Context(), "gpu01", "b", gpu.Process{Name: "server"})
	r.Must(err)
	was, other := daemon(0).Name, daemon(1).PID
	r.EditHost("gpu01", func(h *gpu.Host) {
		d, _ := h.Daemon(was)
		d.PID, d.Problem = 0, "it was killed by signal 9"
	})
	rig.WantSaid(t, c.Ok("plan"), "MPS daemon "+was, "it was killed by signal 9")
	c.Apply()
	r.WantDaemons("gpu01", each...)
	if d := daemon(1); d.PID != other || len(d.Clients) != 1 || d.Clients[0].PID != goesOn {
		t.Errorf("the daemon of the other GPU was process %d with client %d, and is %+v", other, goesOn, d)
	}
	c.Write(mps("per_gpu") + shares + both)
	rig.WantSaid(t, c.Fails("plan"), "it wants 2 devices that one process reaches", `is not "per_gpu"`)

	c.Write(mps("per_host") + shares)
	c.Apply()
	r.WantDaemons("gpu01", one)
	if a, b := pipes("a"), pipes("b"); a == "" || a != b {
		t.Errorf("the shares are given the pipes of two daemons, %q and %q", a, b)
	}
	c.WantNoChanges()
	c.Destroy()
	r.WantDaemons("gpu01")
	r.WantSettled()
}
