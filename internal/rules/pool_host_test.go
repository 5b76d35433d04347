package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
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
		p := gpu.Assignment{
			Kind: gpu.AssignPool, VM: "a", VMID: "ID-a", Pool: &gpu.PoolWant{ID: "hv02/render", Name: "render", Count: 1},
			Power: gpu.Power{AllowShutdown: true},
		}
		found := rules.Check(w, create("t", gpu.Want{Assignment: &p}), nil)
		if !slices.ContainsFunc(found, func(f rules.Finding) bool { return f.Level == rules.Error && f.Host == "hv01" }) {
			t.Errorf("in one cluster %t: %+v", together, found)
		}
	}
}

// What is wrong with a pool that goes under a VM is said once: by the pool, which cannot be
// destroyed while the VM draws from it, and else by what wants a GPU of it.
func TestAPoolGoesUnderItsVM(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		draws, kept       bool
		ofPool, ofTheUser string
	}{
		"VM that draws from it":            {draws: true, ofPool: "capacity"},
		"VM that is to draw from it":       {ofPool: "known-pool", ofTheUser: "known-pool"},
		"VM that draws, pool that is kept": {draws: true, kept: true, ofPool: "known-pool", ofTheUser: "known-pool"},
	} {
		h := host("hv01", vm("a", gpu.VMRunning))
		h.Pools = []gpu.Pool{{Name: "dda", GPUs: []string{gpu0}}}
		h.GPUs[0].Dismounted, h.GPUs[0].Partitionable = true, nil
		if c.draws {
			h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: "d", Pool: "dda"}}
		}
		goes := change.Change{Token: "p", Subject: "gpu_pool.dda", Prior: pool("dda", "hv01")}
		goes.Prior.Pool.MountBack = !c.kept
		h.Claims = []gpu.Claim{{Kind: gpu.ClaimPool, ID: "dda", Token: "p", GPUs: []string{gpu0}, Want: goes.Prior}}
		user := create("a", fromPool("a", "hv01", "hv01/dda", "dda"))
		if c.draws {
			user.Prior = user.Want
			h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimAssignment, ID: "ID-a", Token: "a", Want: user.Want})
		}

		poolFirst, userFirst := world(h), world(h)
		poolFirst.Others.Put("p", goes)
		userFirst.Others.Put("a", user)
		said := append(rules.Check(userFirst, goes, nil), rules.StillUsed(userFirst, goes, nil)...)
		if !slices.ContainsFunc(said, func(f rules.Finding) bool { return f.Rule == c.ofPool && f.Level == rules.Error }) {
			t.Errorf("%s: the pool's plan says %+v", name, said)
		}
		var rest []string
		for _, f := range rules.Check(poolFirst, user, nil) {
			if f.Level == rules.Error {
				rest = append(rest, f.Rule)
			}
		}
		if got := strings.Join(rest, " "); got != c.ofTheUser {
			t.Errorf("%s: after the pool the assignment's plan says %q, want %q", name, got, c.ofTheUser)
		}
	}
}
