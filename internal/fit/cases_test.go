package fit_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fit"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Units that differ by a few MiB are not taken for one.
func TestUnitsThatDifferLittle(t *testing.T) {
	t.Parallel()
	hosts, err := fit.Hosts(hostsOf("", 1, 2, "H100 80GB HBM3"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := fit.Solve(hosts, []fit.Demand{
		{Name: "a", Count: 1, Kind: fit.Shares, MemoryMiB: 40_960}, {Name: "b", Count: 1, Kind: fit.Shares, MemoryMiB: 40_961},
	}, fit.Options{})
	if err != nil || got.GPUs != 2 {
		t.Errorf("81,921 MiB go onto %d GPUs of 81,920: %v", got.GPUs, err)
	}
}

// A fleet's GPU that has another layout is changed by being given out whole, and one without any is not.
func TestGivingOutWholeIsAChangeOfALayout(t *testing.T) {
	t.Parallel()
	hosts, err := fit.Hosts(hostsOf("", 1, 1, "H100 80GB HBM3"))
	if err != nil {
		t.Fatal(err)
	}
	hosts[0].Platform = gpu.Linux
	for name, x := range map[string]struct {
		has  func(h *gpu.Host, g *gpu.GPU)
		want int
	}{
		"nothing":  {func(*gpu.Host, *gpu.GPU) {}, 0},
		"MIG mode": {func(_ *gpu.Host, g *gpu.GPU) { g.MIG = &gpu.MIG{Enabled: true} }, 1},
		"a vGPU":   {func(_ *gpu.Host, g *gpu.GPU) { g.VGPU = &gpu.VGPU{Instances: []gpu.VGPUInstance{{}}} }, 1},
		"time-slicing": {func(h *gpu.Host, g *gpu.GPU) {
			c := &gpu.PartitionConfig{ID: "c", Kind: gpu.KindTimeSlicing, TimeSlicing: &gpu.TimeSlicing{Replicas: 2}}
			h.Claims = []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "c", GPUs: []string{g.ID}, Want: gpu.Want{Config: c}}}
		}, 1},
		"a dismounted device": {func(_ *gpu.Host, g *gpu.GPU) { g.Dismounted = true }, 0},
	} {
		h := hosts[0]
		h.GPUs = []gpu.GPU{h.GPUs[0]}
		x.has(&h, &h.GPUs[0])
		got, err := fit.Solve([]gpu.Host{h}, []fit.Demand{{Name: "a", Count: 1, Kind: fit.Whole}}, fit.Options{})
		if err != nil || got.GPUs != 1 || got.Changes != x.want {
			t.Errorf("%s: %d GPUs, %d changes, and %d are wanted: %v", name, got.GPUs, got.Changes, x.want, err)
		}
	}
}

// The loss of each host says what the layouts of the others hold as they are, and what other layouts would.
func TestLosses(t *testing.T) {
	t.Parallel()
	hosts, err := fit.Hosts(hostsOf("", 2, 2, "A30"))
	if err != nil {
		t.Fatal(err)
	}
	demands := []fit.Demand{{Name: "a", Count: 4, Kind: fit.Instances, Profile: "1g.6gb"}, {Name: "b", Count: 1, Kind: fit.Whole}}
	got, err := fit.Solve(hosts, demands, fit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	losses, err := fit.Losses(hosts, demands, &got)
	if err != nil || len(losses) != 1 || losses[0].Host != "h01" || losses[0].Holds || losses[0].Fits == nil || !*losses[0].Fits ||
		losses[0].Changes != 1 {
		t.Errorf("%v: %+v", err, losses)
	}
	demands[1].Count = 3
	if got, err = fit.Solve(hosts, demands, fit.Options{}); err != nil {
		t.Fatal(err)
	}
	losses, err = fit.Losses(hosts, demands, &got)
	if err != nil || len(losses) != 2 || losses[1].Fits == nil || *losses[1].Fits || losses[1].Missing["b"] != 2 {
		t.Errorf("%v: %+v", err, losses)
	}
}
