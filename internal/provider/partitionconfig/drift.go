package partitionconfig

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// migDrift says how a GPU came to have another MIG layout than the declared one, as far
// as the claim tells: it holds where the config placed the instances.
func migDrift(c gpu.PartitionConfig, claim *gpu.Claim, g *gpu.GPU) string {
	made, ours := placedBy(claim, g.ID)
	now := g.MIG.State()
	foreign := without(now.Placements, made)
	gone := without(made, now.Placements)
	why := ""
	switch {
	case !ours:
	case !now.Enabled, len(made) > 0 && len(now.Placements) == 0:
		why = "lost by reboot, or removed by others: it "
	case len(foreign) > 0:
		why = fmt.Sprintf("changed by another owner, %s is not of this config: it ", text(foreign))
	case len(gone) > 0:
		why = fmt.Sprintf("changed by another owner, %s is gone: it ", text(gone))
	}
	words := why + layoutWords(c, g)
	for i := range g.MIG.Instances {
		if in := &g.MIG.Instances[i]; len(in.Compute) == 0 {
			words += fmt.Sprintf("; %s has no compute instance", text([]gpu.MIGPlacement{in.Placement()}))
		}
	}
	if now.Enabled && !g.MIG.Pending {
		words += "; the next reset of the GPU switches MIG mode off"
	}
	return words
}

// placedBy is where a config placed the instances of a GPU.
func placedBy(claim *gpu.Claim, id string) ([]gpu.MIGPlacement, bool) {
	if claim == nil {
		return nil, false
	}
	if given := claim.Given.Of(id); given.MIG != nil {
		return given.MIG.Placements, true
	}
	return nil, false
}

func without(list, others []gpu.MIGPlacement) []gpu.MIGPlacement {
	return slices.DeleteFunc(slices.Clone(list), func(p gpu.MIGPlacement) bool { return slices.Contains(others, p) })
}

func text(list []gpu.MIGPlacement) string {
	return gpu.MIGState{Enabled: true, Placements: list}.String()
}
