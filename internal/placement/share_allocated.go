package placement

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// Allocated is the part of a GPU, or of a GPU instance, that shares have by the host's
// claims: 0.5 is half, more than 1 oversubscribes it.
func Allocated(h *gpu.Host, at gpu.SharedDevice) float64 {
	d := PlacedDevice(h, at)
	sum := 0.0
	for _, s := range ClaimedShares(h) {
		for _, has := range s.Devices {
			if has.Same(at) {
				sum += d.Portion(s)
			}
		}
	}
	return sum
}

// ClaimedShares are the shares of a host by its claims.
func ClaimedShares(h *gpu.Host) []*gpu.Share {
	var out []*gpu.Share
	for c := range h.ClaimsOf(gpu.ClaimShare) {
		if c.Want.Share != nil {
			out = append(out, c.Want.Share)
		}
	}
	return out
}
