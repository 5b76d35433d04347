package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// checkOwnPinned asks for an assignment by which the run restarts a VM what checkPinned asks.
func checkOwnPinned(r *run, at whatif.Located) {
	w := r.Plan.Want.Assignment
	if r.Plan.Unchanged || !whatif.RunsAfter(at.VM, w) {
		return
	}
	projected := r.Future().Projected(at.Key, at.Host)
	if w.Partition.PinnedGPU == "" && !whatif.PinsAny(projected) {
		return
	}
	then := r.Future().Forced(*projected, at.Key, r.Plan)
	vm, ok := then.VM(at.VM.ID)
	if !ok || whatif.GoesOn(at.VM, vm) {
		return
	}
	demands := r.Future().Demands(at.Key, at.Host)
	demands[gpu.FoldID(vm.ID)] = whatif.Demand{Name: cmp.Or(vm.Name, vm.ID), VM: vm, Asks: w.Partition}
	checkPinned(r, Finding{Path: "partition", Host: at.Key, VM: at.VM.Name}, r.Future().Slots(at.Key, at.Host), demands)
}

// checkPinned asks whether the VMs that this run starts with a partition of a certain GPU find
// it free whichever of the run's VMs comes first. One that is not pinned takes its partitions of
// the GPU with the most free ones (assumption hyperv-emptier-gpu), and keeps them until it is stopped.
func checkPinned(r *run, f Finding, slots []whatif.Slot, demands map[string]whatif.Demand) {
	starters := map[string]*whatif.Starter{}
	for id, v := range demands {
		if v.VM.Runs() && !whatif.GoesOn(r.Fleet.VMOn(f.Host, id), v.VM) {
			starters[id] = whatif.StartsWith(v, slots)
		}
	}
	free := map[string]int{} // before any of them has started
	for _, s := range slots {
		free[s.GPU.ID] = s.Count
		for _, part := range s.GPU.Partitionable.Partitions {
			id := gpu.FoldID(part.VMID)
			if v := starters[id]; v != nil {
				v.Held[s.GPU.ID]++
			} else if _, stays := demands[id]; stays {
				free[s.GPU.ID]--
			}
		}
	}
	for _, s := range slots {
		var pinned, loose []string
		room := free[s.GPU.ID]
		for _, id := range whatif.SortedKeys(starters) {
			if n := starters[id].Pinned[s.GPU.ID]; n > 0 {
				pinned = append(pinned, id)
				room -= n
			}
		}
		last := slices.IndexFunc(pinned, func(id string) bool { return whatif.TakenFirst(s, id, starters, free) > room })
		if room < 0 || last < 0 {
			continue
		}
		for _, id := range whatif.SortedKeys(starters) {
			if v := starters[id]; len(v.Loose) > 0 && id != pinned[last] {
				loose = append(loose, quote(v.Name))
			}
		}
		if len(loose) == 0 {
			continue // it takes it itself, whichever comes first
		}
		for i, id := range pinned {
			pinned[i] = quote(starters[id].Name)
		}
		f.GPU = s.GPU.ID
		f.Title = "An unpinned VM may take a pinned VM's partition"
		f.Found = fmt.Sprintf("%s has %s free, for VMs pinned to it: %s. This run also starts %s, which Hyper-V may give that GPU first.",
			capital(gpuOn(f.Host, s.GPU)), plural(free[s.GPU.ID], "partition"), joinAll(pinned), joinAll(loose))
		f.Wanted = ""
		f.Fix = fmt.Sprintf("Pin %s as well, with `partition.gpu_id`, to GPUs that have partitions left, or apply the pinned VMs first, in an apply of their own.", joinAll(loose))
		r.report(f, key("pinned seat", f.Host, s.GPU.ID))
	}
}

// checkPinnedRoom asks whether each GPU has a partition for all VMs that run and are pinned to it.
func checkPinnedRoom(r *run, host string, slots []whatif.Slot, demands map[string]whatif.Demand) {
	for _, s := range slots {
		var pinned []string
		need := 0
		for _, id := range whatif.SortedKeys(demands) {
			v := demands[id]
			if n := whatif.StartsWith(v, slots).Pinned[s.GPU.ID]; n > 0 && v.VM.Runs() {
				pinned, need = append(pinned, who(v)), need+n
			}
		}
		if need > s.Count {
			r.report(Finding{
				Path:   "gpu_p.partition_count",
				Title:  "Too few partitions for the VMs pinned to a GPU",
				Host:   host,
				GPU:    s.GPU.ID,
				Found:  fmt.Sprintf("VMs that run are pinned to %s: %s.", gpuOn(host, s.GPU), joinAll(pinned)),
				Wanted: fmt.Sprintf("%s leaves %s there.", r.label(), plural(s.Count, "partition")),
				Fix:    "Choose a larger `partition_count`, or pin some of these VMs to other GPUs.",
			}, overflow("pinned", host+" "+s.GPU.ID, need-s.Count)...)
		}
	}
}
