package rules

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// whose names the state that a claim belongs to.
func whose(c *gpu.Claim) string { return words.State(c.Owner) }

// handOver says how an object changes hands.
func (r *run) handOver(object string) string {
	if r.Owner == "" {
		return "Set `owner` on the provider, so that resources of this state recognise each other; without it a handover between two resources " +
			"takes two applies: " +
			"first destroy the resource that manages " + object + " now, then create this one."
	}
	return "If both are the same state, give both providers the same `owner`. Otherwise destroy the resource that manages " + object +
		" in the other state first; the ownership guide describes how to move an object between states without destroying it."
}
