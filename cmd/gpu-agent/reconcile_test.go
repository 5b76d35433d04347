package main_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestReconcileRestoresMIG boots a host that has lost a MIG layout, with somebody else's
// instance in the way on one of its GPUs.
func TestReconcileRestoresMIG(t *testing.T) {
	t.Parallel()
	const free, taken = "GPU-00000000-0000-4000-8000-000000000001", "GPU-00000000-0000-4000-8000-000000000002"
	hopper := func(id string) gpu.GPU {
		return gpu.GPU{ID: id, Model: "NVIDIA H100 80GB HBM3", Vendor: "NVIDIA", VRAM: 80 << 30, MIG: &gpu.MIG{Profiles: []gpu.MIGProfile{
			{ID: 9, Name: "3g.40gb", Slices: 3, Memory: 40 << 30, Max: 2, Size: 4, Starts: []int{0, 4}},
		}}}
	}
	layout := gpu.Layout{MIG: &gpu.MIGState{Enabled: true, Placements: []gpu.MIGPlacement{{Profile: "3g.40gb", Start: 4}}}}
	claim := gpu.Claim{
		Kind: gpu.ClaimConfig, ID: "train", Token: "t1", Revision: 1, GPUs: []string{free, taken},
		AppliedLayouts: gpu.Layouts{free: layout, taken: layout},
	}
	claim.Want.Config = &gpu.PartitionConfig{ID: "train", Kind: gpu.KindMIG, MIG: &gpu.MIGLayout{Profiles: map[string]int{"3g.40gb": 1}}}
	r := newRig(t, gpu.Host{
		Name: "hv01", Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS"},
		GPUs: []gpu.GPU{hopper(free), hopper(taken)}, Claims: []gpu.Claim{claim},
	})
	pid, err := r.fleet.StartProcess(t.Context(), "hv01", taken, nil, gpu.Process{Name: "python"})
	if err != nil {
		t.Fatal(err)
	}

	got, _ := r.run(1, "reconcile")
	wantSaid(t, got, `the MIG layout of partition config "train": restored`, "  GPU "+free+": MIG mode, 3g.40gb at 4",
		"not everything could be put back", "  GPU "+taken+" has MIG mode off, declared is 1 × 3g.40gb; lost by reboot", "python")
	if err := r.fleet.StopProcess(t.Context(), "hv01", pid); err != nil {
		t.Fatal(err)
	}
	got, _ = r.run(0, "reconcile")
	wantSaid(t, got, "  GPU "+taken+": MIG mode, 3g.40gb at 4")
	if strings.Contains(got, free) {
		t.Errorf("what is there already is restored again:\n%s", got)
	}
	got, _ = r.run(0, "reconcile")
	wantSaid(t, got, "nothing to settle")
}

// TestReconcileWaits: at boot the platform may answer later than the command begins. One that
// never does is said when time is up.
func TestReconcileWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	unreachable := func(is bool) {
		if err := r.fleet.SetUnreachable(context.Background(), "hv01", is); err != nil {
			t.Error(err)
		}
	}
	unreachable(true)
	_, said := r.run(1, "reconcile", "--timeout", "1500ms")
	wantSaid(t, said, "hv01")
	time.AfterFunc(1500*time.Millisecond, func() { unreachable(false) })
	got, _ := r.run(0, "reconcile", "--timeout", "1m")
	wantSaid(t, got, "nothing to settle")
}
