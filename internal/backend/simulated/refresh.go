package simulated

import (
	"context"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// refreshPart is how much of the time of an inventory a Refresh takes, in percent: of the 25 calls that an inventory of a
// Hyper-V host makes it makes 13.
const refreshPart = 52

// manyVMs is how many VMs Hyper-V's backend reads by their ids.
const manyVMs = 8

var _ backend.Refresher = (*Host)(nil)

// Refresh implements backend.Refresher, for VMs as the backend for Hyper-V does: read again is what is asked for, VMs that hold
// other partitions or devices than before, and all that is not a VM's. Whether another VM runs may be old.
func (h *Host) Refresh(ctx context.Context, before gpu.Host, of backend.Objects) (gpu.Host, bool, error) {
	if len(of.GPUs) > 0 || before.Platform != gpu.HyperV || len(before.Unknown) > 0 || len(of.VMs) > manyVMs {
		return gpu.Host{}, false, nil
	}
	now, err := h.inventory(ctx, call{op: OpRefresh})
	if err != nil || len(now.Unknown) > 0 || !sameGPUs(&before, &now) || !sameCluster(&before, &now) {
		return gpu.Host{}, false, err
	}
	again := slices.Clone(of.VMs)
	for _, pair := range [][2]*gpu.Host{{&now, &before}, {&before, &now}} {
		for i := range pair[0].VMs {
			if vm := &pair[0].VMs[i]; !contains(again, vm.ID) && !slices.Equal(holdings(pair[0], vm.ID), holdings(pair[1], vm.ID)) {
				again = append(again, vm.ID)
			}
		}
	}
	if len(again) > manyVMs {
		return gpu.Host{}, false, nil
	}
	fresh := now.VMs
	now.VMs = slices.DeleteFunc(slices.Clone(before.VMs), func(vm gpu.VM) bool { return contains(again, vm.ID) })
	for _, vm := range fresh {
		if contains(again, vm.ID) {
			now.VMs = append(now.VMs, vm)
		}
	}
	place := func(vm gpu.VM) int { // as an inventory has them
		return slices.IndexFunc(fresh, func(o gpu.VM) bool { return gpu.SameID(o.ID, vm.ID) })
	}
	slices.SortStableFunc(now.VMs, func(a, b gpu.VM) int { return place(a) - place(b) })
	return now, true, nil
}

func contains(ids []string, id string) bool {
	return slices.ContainsFunc(ids, func(other string) bool { return gpu.SameID(other, id) })
}

// sameGPUs tells whether a host has the GPUs that it had, none dismounted or mounted since.
func sameGPUs(before, now *gpu.Host) bool {
	return len(before.GPUs) == len(now.GPUs) && !slices.ContainsFunc(now.GPUs, func(g gpu.GPU) bool {
		was, ok := before.GPU(g.ID)
		return !ok || !gpu.SameID(was.InstancePath, g.InstancePath)
	})
}

// sameCluster tells whether a host is in the cluster that it was in, and has no VM that may have come from another node.
func sameCluster(before, now *gpu.Host) bool {
	if now.Cluster == nil || before.Cluster == nil {
		return now.Cluster == before.Cluster
	}
	return now.ClusterName() == before.ClusterName() && !slices.ContainsFunc(now.VMs, func(vm gpu.VM) bool {
		_, known := before.VM(vm.ID)
		return !known && len(holdings(now, vm.ID)) > 0
	})
}

// holdings are the partitions and devices that a VM holds, as rows of their own tell.
func holdings(h *gpu.Host, vm string) (out []string) {
	for i := range h.GPUs {
		if p := h.GPUs[i].Partitionable; p != nil {
			for _, part := range p.Partitions {
				if gpu.SameID(part.VMID, vm) {
					out = append(out, h.GPUs[i].ID)
				}
			}
		}
	}
	if v, ok := h.VM(vm); ok {
		for _, d := range v.Devices {
			if d.GPU != "" {
				out = append(out, d.GPU)
			}
		}
	}
	return out
}
