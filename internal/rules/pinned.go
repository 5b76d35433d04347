package rules

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// starter is a VM that a run starts with partitions.
type starter struct {
	name   string
	held   map[string]int // those that it has now, by GPU
	pinned map[string]int // those of GPUs that people pinned it to
	loose  [][]slot       // for each of the others the GPUs that the platform may take it from
}

// checkOwnPinned asks for an assignment by which the run restarts a VM what checkPinned asks.
func (r *run) checkOwnPinned(at located) {
	w := r.plan.Want.Assignment
	if r.plan.Unchanged || !seatedAfter(at.vm, w) {
		return
	}
	projected := r.projected(at.key, at.host)
	if w.Partition.PinnedGPU == "" && !pinsAny(projected) {
		return
	}
	then := r.forced(*projected, at.key, r.plan)
	vm, ok := then.VM(at.vm.ID)
	if !ok || goesOn(at.vm, vm) {
		return
	}
	seating := r.seating(at.key, at.host)
	seating[gpu.FoldID(vm.ID)] = seated{name: cmp.Or(vm.Name, vm.ID), vm: vm, config: w.Partition.Config, asked: w.Partition.PinnedGPU}
	r.checkPinned(Finding{Path: "partition", Host: at.key, VM: at.vm.Name}, r.slots(at.key, at.host), seating)
}

// pinsAny tells whether an assignment on a host pins its VM to a GPU.
func pinsAny(h *gpu.Host) bool {
	for c := range h.ClaimsOf(gpu.ClaimAssignment) {
		if a := c.Want.Assignment; a != nil && a.Partition != nil && a.Partition.PinnedGPU != "" {
			return true
		}
	}
	return false
}

// checkPinned asks whether the VMs that this run starts with a partition of a certain GPU find
// it free whichever of the run's VMs comes first. One that is not pinned takes its partitions of
// the GPU with the most free ones (assumption hyperv-emptier-gpu), and keeps them until it is stopped.
func (r *run) checkPinned(f Finding, slots []slot, seating map[string]seated) {
	starters := map[string]*starter{}
	for id, v := range seating {
		if v.vm.Runs() && !goesOn(r.fleet.vmOn(f.Host, id), v.vm) {
			starters[id] = startsWith(v, slots)
		}
	}
	free := map[string]int{} // before any of them has started
	for _, s := range slots {
		free[s.gpu.ID] = s.count
		for _, part := range s.gpu.Partitionable.Partitions {
			id := gpu.FoldID(part.VMID)
			if v := starters[id]; v != nil {
				v.held[s.gpu.ID]++
			} else if _, stays := seating[id]; stays {
				free[s.gpu.ID]--
			}
		}
	}
	for _, s := range slots {
		var pinned, loose []string
		room := free[s.gpu.ID]
		for _, id := range sortedKeys(starters) {
			if n := starters[id].pinned[s.gpu.ID]; n > 0 {
				pinned = append(pinned, id)
				room -= n
			}
		}
		last := slices.IndexFunc(pinned, func(id string) bool { return takenFirst(s, id, starters, free) > room })
		if room < 0 || last < 0 {
			continue
		}
		for _, id := range sortedKeys(starters) {
			if v := starters[id]; len(v.loose) > 0 && id != pinned[last] {
				loose = append(loose, quote(v.name))
			}
		}
		if len(loose) == 0 {
			continue // it takes it itself, whichever comes first
		}
		for i, id := range pinned {
			pinned[i] = quote(starters[id].name)
		}
		f.GPU = s.gpu.ID
		f.Title = "An unpinned VM may take a pinned VM's partition"
		f.Found = fmt.Sprintf("%s has %s free, for VMs pinned to it: %s. This run also starts %s, which Hyper-V may give that GPU first.",
			capital(gpuOn(f.Host, s.gpu)), plural(free[s.gpu.ID], "partition"), joinAll(pinned), joinAll(loose))
		f.Wanted = ""
		f.Fix = fmt.Sprintf("Pin %s as well, with `partition.gpu_id`, to GPUs that have partitions left, or apply the pinned VMs first, in an apply of their own.", joinAll(loose))
		r.report(f, key("pinned seat", f.Host, s.gpu.ID))
	}
}

// checkPinnedSeats asks whether each GPU has a partition for all VMs that run and are pinned to it.
func (r *run) checkPinnedSeats(host string, slots []slot, seating map[string]seated) {
	for _, s := range slots {
		var pinned []string
		need := 0
		for _, id := range sortedKeys(seating) {
			v := seating[id]
			if n := startsWith(v, slots).pinned[s.gpu.ID]; n > 0 && v.vm.Runs() {
				pinned, need = append(pinned, v.who()), need+n
			}
		}
		if need > s.count {
			r.report(Finding{
				Path:   "gpu_p.partition_count",
				Title:  "Too few partitions for the VMs pinned to a GPU",
				Host:   host,
				GPU:    s.gpu.ID,
				Found:  fmt.Sprintf("VMs that run are pinned to %s: %s.", gpuOn(host, s.gpu), joinAll(pinned)),
				Wanted: fmt.Sprintf("%s leaves %s there.", r.label(), plural(s.count, "partition")),
				Fix:    "Choose a larger `partition_count`, or pin some of these VMs to other GPUs.",
			}, overflow("pinned", host+" "+s.gpu.ID, need-s.count)...)
		}
	}
}

// goesOn tells whether a VM that runs need not be stopped to become as it will be.
func goesOn(now, then *gpu.VM) bool {
	return now != nil && now.Runs() && reflect.DeepEqual(now.PartitionAdapters, then.PartitionAdapters) && reflect.DeepEqual(now.Devices, then.Devices) &&
		!now.Settings.Differs(then.Settings).NeedOff()
}

// startsWith is what a VM takes at its start. For its config it is pinned to one of the config's
// GPUs, which is chosen only then.
func startsWith(v seated, slots []slot) *starter {
	out := &starter{name: v.name, held: map[string]int{}, pinned: map[string]int{}}
	own := slices.DeleteFunc(slices.Clone(slots), func(s slot) bool { return s.config == nil || !gpu.SameID(s.config.ID, v.config) })
	for _, a := range v.vm.PartitionAdapters {
		at := slices.IndexFunc(slots, func(s slot) bool { return gpu.SameID(s.gpu.ID, a.PinnedGPU) })
		switch {
		case a.PinnedGPU == "":
			out.loose = append(out.loose, slots)
		case !gpu.SameID(a.PinnedGPU, v.asked) && len(own) > 0:
			out.loose = append(out.loose, own)
		case at >= 0:
			out.pinned[slots[at].gpu.ID]++
		}
	}
	return out
}

// takenFirst is how many partitions of a GPU VMs that are not pinned to it may take before one that
// is gets its own: at worst all others have come before, what that one has of others has too, and of
// two GPUs with as many free partitions they get this one.
func takenFirst(of slot, last string, starters map[string]*starter, free map[string]int) int {
	pinned := func(v *starter, id string) int {
		if id == of.gpu.ID {
			return 0 // else it has come before
		}
		return v.pinned[id]
	}
	room := map[string]int{}
	for id, n := range free {
		room[id] = n
		for _, v := range starters {
			room[id] -= max(v.held[id], pinned(v, id))
		}
	}
	taken := 0
	order := slices.DeleteFunc(sortedKeys(starters), func(id string) bool { return id == last })
	for _, id := range append(order, last) {
		v := starters[id]
		for id, n := range v.held { // it is stopped first
			room[id] += max(0, n-pinned(v, id))
		}
		for _, from := range v.loose {
			points := func(s slot) int {
				switch left := room[s.gpu.ID] - v.pinned[s.gpu.ID]; {
				case s.gpu != of.gpu:
					return 2 * room[s.gpu.ID]
				case left <= 0:
					return 2 * left // it would not find its own there
				}
				return 2*room[s.gpu.ID] + 1
			}
			best := slices.MaxFunc(from, func(a, b slot) int { return points(a) - points(b) })
			if room[best.gpu.ID]--; best.gpu == of.gpu {
				taken++
			}
		}
	}
	return taken
}
