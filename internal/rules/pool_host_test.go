package rules_test

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// A pool that another host has is none for a VM: nothing is stopped for it.
func TestAPoolIsOnTheHostOfTheVM(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{false, true} {
		a, b := host("hv01", vm("a", gpu.VMRunning)), host("hv02")
		b.Pools = []gpu.Pool{{Name: "render", GPUs: []string{gpu1}}}
		b.GPUs[1].Dismounted, b.GPUs[1].Partitionable = true, nil
		pool := gpu.PoolConfig{ID: "hv02/render", Name: "render", Members: map[string][]string{"hv02": {gpu1}}}
		b.Claims = []gpu.Claim{{Kind: gpu.ClaimPool, ID: "render", Token: "p", Owner: "vdi", GPUs: []string{gpu1}, Want: gpu.Want{Pool: &pool}}}
		w := world(a, b)
		if together {
			a.VMs[0].Clustered = true
			w = clustered(a, b)
		}
		p := gpu.Assignment{VM: "a", VMID: "ID-a", Pool: &gpu.PoolWant{ID: "hv02/render", Name: "render", Count: 1}, Power: gpu.Power{AllowShutdown: true}}
		found := rules.Check(w, create("t", gpu.Want{Assignment: &p}), nil)
		if !slices.ContainsFunc(found, func(f rules.Finding) bool { return f.Level == rules.Error && f.Host == "hv01" }) {
			t.Errorf("in one cluster %t: %+v", together, found)
		}
	}
}
