package rules

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// checkPinned asks whether the VMs that this run starts with a partition of a certain GPU find
// it free whichever of the run's VMs comes first. One that is not pinned takes its partition of
// the GPU with the most free ones, and keeps it until it is stopped.
func (r *run) checkPinned(f Finding, slots []slot, seating map[string]seated) {
	asked := false
	for _, v := range seating {
		asked = asked || v.asked != ""
	}
	if !asked {
		return
	}
	pinned := map[string][]string{}
	var loose []string // by id
	for _, id := range sortedKeys(seating) {
		switch v := seating[id]; {
		case !v.planned && !v.moves || !v.running:
		case v.asked == "":
			loose = append(loose, id)
		default:
			for _, s := range slots {
				if gpu.SameID(s.gpu.ID, v.asked) {
					pinned[s.gpu.ID] = append(pinned[s.gpu.ID], quote(v.name))
				}
			}
		}
	}
	free := map[string]int{}
	for _, s := range slots {
		free[s.gpu.ID] = s.count
		for _, part := range s.gpu.Partitionable.Partitions {
			if v, ok := seating[gpu.FoldID(part.VMID)]; ok && !v.planned {
				free[s.gpu.ID]--
			}
		}
	}
	for _, s := range slots {
		wanted, there := pinned[s.gpu.ID], free[s.gpu.ID]
		if len(wanted) == 0 || len(wanted) > there || len(wanted) <= there-takenFirst(s, slots, seating, loose, free, pinned) {
			continue
		}
		var who []string
		for _, id := range loose {
			who = append(who, quote(seating[id].name))
		}
		f.GPU = s.gpu.ID
		f.Title = "An unpinned VM may take a pinned VM's partition"
		f.Found = fmt.Sprintf("%s has %s free, for VMs pinned to it: %s. This run also starts %s, which Hyper-V may give that GPU first.",
			capital(gpuOn(f.Host, s.gpu)), plural(there, "partition"), joinAll(wanted), joinAll(who))
		f.Wanted = ""
		f.Fix = fmt.Sprintf("Pin %s as well, with `partition.gpu_id`, to GPUs that have partitions left, or apply the pinned VMs first, in an apply of their own.", joinAll(who))
		r.report(f, key("pinned seat", f.Host, s.gpu.ID))
	}
}

// takenFirst is how many partitions of a GPU VMs that are not pinned may take before those that
// are pinned to it: at worst all others have come before, and of two GPUs with as many free
// partitions they get this one.
func takenFirst(of slot, slots []slot, seating map[string]seated, loose []string, free map[string]int, pinned map[string][]string) int {
	rest := map[string]int{}
	for id, n := range free {
		if rest[id] = n; id != of.gpu.ID {
			rest[id] -= len(pinned[id])
		}
	}
	for _, id := range loose {
		room := func(s slot) int {
			if s.gpu == of.gpu {
				return 2*rest[s.gpu.ID] + 1
			}
			return 2 * rest[s.gpu.ID]
		}
		best := slices.MaxFunc(mayTake(slots, seating[id]), func(a, b slot) int { return room(a) - room(b) })
		rest[best.gpu.ID]--
	}
	return free[of.gpu.ID] - rest[of.gpu.ID]
}

// mayTake are the slots that a VM's partition may come from: it is pinned to those of its config
// where the host has others.
func mayTake(slots []slot, v seated) []slot {
	own := slices.DeleteFunc(slices.Clone(slots), func(s slot) bool { return s.config == nil || !gpu.SameID(s.config.ID, v.config) })
	if v.clustered || len(own) == 0 {
		return slots
	}
	return own
}
