package rules

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// who names the VM for a list of holders.
func who(s whatif.Demand) string {
	if s.Planned {
		return quote(s.Name) + " (planned in this run)"
	}
	return quote(s.Name)
}

// names lists who they are.
func names(demands map[string]whatif.Demand) []string {
	var out []string
	for _, s := range demands {
		out = append(out, who(s))
	}
	slices.Sort(out)
	return out
}

// vmNames names VMs by id as a host knows them.
func vmNames(h *gpu.Host, ids []string) []string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		if vm, ok := h.VM(id); ok {
			names = append(names, quote(cmp.Or(vm.Name, vm.ID)))
		} else {
			names = append(names, quote(id))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
