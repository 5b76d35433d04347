package placement_test

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

func gpuID(n int) string { return fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", n) }

func share(name string, gpus ...int) *gpu.Share {
	s := &gpu.Share{Name: name, Host: "ml01", Pool: "ml01/team", Label: "a", Count: len(gpus)}
	for _, n := range gpus {
		s.Devices = append(s.Devices, gpu.SharedDevice{GPU: gpuID(n)})
	}
	return s
}

// TestAnExceededQuotaHoldsForMore: the quota of a label was lowered below what its shares
// have. Each of them stays as it is, and none may grow, whatever another one has.
func TestAnExceededQuotaHoldsForMore(t *testing.T) {
	t.Parallel()
	h := &gpu.Host{Name: "ml01", Platform: gpu.Linux}
	var all []string
	for n := range 6 {
		h.GPUs = append(h.GPUs, gpu.GPU{ID: gpuID(n), Model: "NVIDIA L40S", VRAM: 48 * 1024 * gpu.MiB})
		all = append(all, gpuID(n))
	}
	h.Claims = []gpu.Claim{
		{
			Kind: gpu.ClaimPool, ID: "team", Token: "pool", GPUs: all, Want: gpu.Want{
				Pool: &gpu.PoolConfig{ID: "ml01/team", Name: "team", Quotas: map[string]gpu.PoolQuota{"a": {GPUs: new(2.0)}}},
			},
		},
		{Kind: gpu.ClaimShare, ID: "big", Token: "big", Want: gpu.Want{Share: share("big", 0, 1, 2)}},
		{Kind: gpu.ClaimShare, ID: "small", Token: "small", Want: gpu.Want{Share: share("small", 3)}},
	}
	for _, c := range []struct {
		name  string
		s     *gpu.Share
		token string
		fits  bool
	}{
		{"the small one as it is", share("small", 3), "small", true},
		{"the big one as it is", share("big", 0, 1, 2), "big", true},
		{"the big one with less", share("big", 0, 1), "big", true},
		{"the small one with more, though no more than the big one", share("small", 3, 4), "small", false},
		{"the big one with more", share("big", 0, 1, 2, 4), "big", false},
		{"a new one", share("new", 5), "new", false},
		{"one without a claim", share("small", 3), "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at, err := placement.PlaceShare(h, "ml01", c.s, c.token)
			if quota := placement.FaultOf(err) == placement.ShareQuota; c.fits && (err != nil || len(at) != len(c.s.Devices)) ||
				!c.fits && !quota {
				t.Errorf("%v, %v", at, err)
			}
		})
	}
}
