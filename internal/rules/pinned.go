package rules

import (
	"cmp"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
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
	then := r.Future().MadeAnyway(*projected, at.Key, r.Plan)
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
	for _, c := range r.Future().PinnedContests(f.Host, slots, demands) {
		loose := joinAll(quoteAll(c.Loose))
		f.GPU = c.GPU.ID
		f.Title = "An unpinned VM may take a pinned VM's partition"
		f.Found = fmt.Sprintf("%s has %s free, for VMs pinned to it: %s. This run also starts %s, which Hyper-V may give that GPU first.",
			capital(gpuOn(f.Host, c.GPU)), plural(c.Free, "partition"), joinAll(quoteAll(c.Pinned)), loose)
		f.Wanted = ""
		f.Fix = fmt.Sprintf("Pin %s as well, with `partition.gpu_id`, to GPUs that have partitions left, or apply the pinned VMs first, in an "+
			"apply of their own.", loose)
		r.report(f, key("pinned seat", f.Host, c.GPU.ID))
	}
}

// checkPinnedRoom asks whether each GPU has a partition for all VMs that run and are pinned to it.
func checkPinnedRoom(r *run, host string, slots []whatif.Slot, demands map[string]whatif.Demand) {
	for _, s := range slots {
		pinned, need := whatif.PinnedTo(s, slots, demands)
		if need > s.Count {
			r.report(Finding{
				Path:   "gpu_p.partition_count",
				Title:  "Too few partitions for the VMs pinned to a GPU",
				Host:   host,
				GPU:    s.GPU.ID,
				Found:  fmt.Sprintf("VMs that run are pinned to %s: %s.", gpuOn(host, s.GPU), joinAll(words.Each(pinned, who))),
				Wanted: fmt.Sprintf("%s leaves %s there.", r.label(), plural(s.Count, "partition")),
				Fix:    "Choose a larger `partition_count`, or pin some of these VMs to other GPUs.",
			}, overflow("pinned", host+" "+s.GPU.ID, need-s.Count)...)
		}
	}
}
