package partitionconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestAccPartitionConfig_StaticPartitions: each share has multiprocessors of its own, which never overlap, and gets
// others when its daemon is started anew; the plan after each apply is empty.
func TestAccPartitionConfig_StaticPartitions(t *testing.T) {
	t.Parallel()
	s := rig.Inference(1)
	for i := range s.Hosts[0].GPUs {
		g := &s.Hosts[0].GPUs[i]
		g.Driver.Version, g.ComputeCapability = "590.44.01", "8.9"
	}
	r := rig.New(t, s)
	mps := func(more string) string {
		return r.Block() + rig.SharedConfig("mps",
			fmt.Sprintf("mps = { uid = 1000, daemons = \"per_gpu\", oversubscription = 2%s }\n  max_disruption = \"process_restart\"", more),
			"gpu01")
	}
	const static = ", static_partitions = true"
	share := func(name string, more ...string) string {
		return rig.ShareOf(name, append([]string{rig.OnGPU01, rig.OfMPS, fmt.Sprintf("gpu_ids = [%q]", rig.ShareCard(1, 0))}, more...)...)
	}
	percent := func(p int) string { return fmt.Sprintf("active_thread_percentage = %d", p) }
	partition := func(name string) string {
		t.Helper()
		h := r.Host("gpu01")
		handed, ok := h.HandedShare(name)
		if !ok || (handed.Environment["CUDA_MPS_SM_PARTITION"] == "") != (handed.Environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] != "") {
			t.Fatalf("share %s: %v, %+v", name, ok, handed)
		}
		return handed.Environment["CUDA_MPS_SM_PARTITION"]
	}

	c := rig.NewCLI(t, mps("")+share("a", percent(50))+share("b", percent(25))+share("c"))
	c.Apply()
	before := r.File()
	// What has no size, and what adds up to more than there is, has no partition.
	c.Write(mps(static) + share("a", percent(50)) + share("b", percent(25)) + share("c"))
	rig.WantSaid(t, c.Fails("plan"), `"c"`, "has static partitions of its multiprocessors", "Write `active_thread_percentage`")
	c.Write(mps(static) + share("a", percent(50)) + share("b", percent(60)))
	rig.WantSaid(t, c.Fails("plan"), "static partitions never overlap")
	r.WantUntouched(before)

	c.Write(mps("") + share("a", percent(50)) + share("b", percent(25)))
	c.Apply()
	if partition("a") != "" {
		t.Error("a daemon without static partitions has one")
	}
	pid, err := r.Fleet.StartInShare(t.Context(), "gpu01", "a", gpu.Process{Name: "trainer"})
	r.Must(err)
	c.Write(mps(static) + share("a", percent(50)) + share("b", percent(25)))
	rig.WantSaid(t, c.Apply(), "which terminates its clients: "+fmt.Sprintf("process %d (trainer", pid))
	c.WantNoChanges()
	a, b := partition("a"), partition("b")
	if a == "" || a == b {
		t.Fatalf("the partitions are %q and %q", a, b)
	}

	h := r.Host("gpu01")
	for _, d := range h.MPS.Daemons {
		if gpu.SameID(d.Devices[0].GPU, rig.ShareCard(1, 0)) {
			r.Must(r.Fleet.KillDaemon(t.Context(), "gpu01", d.Name))
		}
	}
	rig.WantSaid(t, c.Ok("plan"), "static partitions", "3 to change")
	c.Apply()
	if now := partition("a"); now == a || !strings.HasPrefix(now, "GPU-") {
		t.Errorf("after its daemon it is %q, and was %q", now, a)
	}
	c.WantNoChanges()

	c.Write(mps(static) + share("a", percent(75)) + share("b", percent(25)))
	c.Apply()
	c.WantNoChanges()
	c.Destroy()
	r.WantClaims([]string{"gpu01"})
}

// TestAccPartitionConfig_StaticPartitionsAreRefusedAtPlan where the host or the config cannot have them.
func TestAccPartitionConfig_StaticPartitionsAreRefusedAtPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(1)) // driver 580
	c := rig.NewCLI(t, r.Block()+rig.MPSOf(`uid = 1000, daemons = "per_gpu", static_partitions = true`))
	rig.WantSaid(t, c.Fails("plan"), "The GPU has no static partitions", rig.SharedCard(0), "R590")
	c.Write(r.Block() + rig.MPSOf(`uid = 1000, static_partitions = true`))
	rig.WantSaid(t, c.Fails("plan"), "`static_partitions` takes `daemons = \"per_gpu\"`")
	c.Write(r.Block() + rig.SharingOf("mig", `profiles = {}, mps = { uid = 1000, static_partitions = true }`))
	rig.WantSaid(t, c.Fails("plan"), "Not supported inside mig")
}
