package pool

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// onHost is a pool as a host has it: Hyper-V has an object of that name, and a Linux host
// the claim alone.
func onHost(h *gpu.Host, name string) (*gpu.Pool, bool) {
	if h.Platform != gpu.Linux {
		return h.Pool(name)
	}
	c, ok := h.Claim(gpu.ClaimPool, name)
	if !ok {
		return nil, false
	}
	return &gpu.Pool{Name: c.ID, GPUs: present(h, c.GPUs)}, true
}

// present are the GPUs of a list that the host still has.
func present(h *gpu.Host, ids []string) []string {
	out := []string{}
	for _, id := range ids {
		if _, ok := h.GPU(id); ok {
			out = append(out, id)
		}
	}
	return out
}
