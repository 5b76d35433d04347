package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

func checkGeneration2(r *run) {
	a := r.Plan.Want.Assignment
	if a == nil || a.Partition == nil {
		return
	}
	if at, ok := r.Locate(a); ok && at.VM.Generation == 1 {
		r.reportVM(at, Finding{
			Path:   "vm",
			Title:  "The VM is a generation 1 VM",
			Found:  fmt.Sprintf("%s on %s is of generation 1.", vmText(at.VM), hostText(at.Key)),
			Wanted: fmt.Sprintf("%s gives it a GPU partition, for which the VM must be of generation 2.", r.label()),
			Fix:    "Create the VM as generation 2; a VM cannot be converted in place. Whole GPUs (`pool`, `device`) work with both generations.",
		})
	}
}

// Memory-mapped IO space that a VM needs besides its GPUs: what it has by default.
const (
	baseLowMMIO  = 128 * gpu.MiB
	baseHighMMIO = 512 * gpu.MiB
)

func checkVMSettings(r *run) {
	a := r.Plan.Want.Assignment
	at, ok := r.Locate(a)
	if !ok {
		return
	}
	whole := a.Partition == nil
	checkCheckpoints(r, at)
	checkDynamicMemory(r, at, whole)
	settings := at.VM.Settings.Overlay(a.Settings)
	if !whole {
		return
	}
	checkMMIO(r, at, settings)
	if stop := settings.AutomaticStopAction; stop != nil && *stop == gpu.StopSave {
		r.reportVM(at, Finding{
			Path:   "automatic_stop_action",
			Title:  "The VM would be saved when its host stops",
			Found:  fmt.Sprintf("%s on %s has the automatic stop action \"save\".", vmText(at.VM), hostText(at.Key)),
			Wanted: fmt.Sprintf("%s gives it whole GPUs, and a VM with a passed-through device cannot be saved.", r.label()),
			Fix:    "Write `automatic_stop_action = \"turn_off\"` or `\"shut_down\"`.",
		})
	}
}

func checkCheckpoints(r *run, at whatif.Located) {
	c := at.VM.Checkpoints
	if c != gpu.CheckpointsProduction && c != gpu.CheckpointsStandard {
		return
	}
	r.reportVM(at, Finding{
		Level: Warning,
		Path:  "vm",
		Title: "The VM allows standard checkpoints",
		Found: fmt.Sprintf("%s on %s has checkpoints of type %q.", vmText(at.VM), hostText(at.Key), c),
		Wanted: fmt.Sprintf(
			"%s gives it a GPU. Hyper-V refuses standard checkpoints of such a VM, and a production checkpoint falls back to one.", r.label()),
		Fix: "Set the VM's checkpoint type to `Disabled` or `ProductionOnly` where the VM is managed.",
	}, key("checkpoints", at.VM.ID))
}

func checkDynamicMemory(r *run, at whatif.Located, whole bool) {
	if !at.VM.DynamicMemory {
		return
	}
	f := Finding{
		Path:  "vm",
		Title: "The VM has dynamic memory",
		Found: fmt.Sprintf("%s on %s has dynamic memory.", vmText(at.VM), hostText(at.Key)),
		Fix:   "Give the VM static memory where the VM is managed.",
	}
	if whole {
		f.Wanted = fmt.Sprintf("%s gives it whole GPUs, which Hyper-V does not allow together with dynamic memory.", r.label())
	} else {
		f.Level = Warning
		f.Wanted = fmt.Sprintf(
			"%s gives it a partition; its memory then cannot change, and the VM starts only when start and minimum memory are equal.", r.label())
	}
	r.reportVM(at, f, key("memory", at.VM.ID))
}

// checkMMIO compares the memory-mapped IO space that the VM will have with what its
// whole GPUs need. What a partition needs is documented nowhere; it starts with what
// a VM has by default.
func checkMMIO(r *run, at whatif.Located, settings gpu.VMSettings) {
	need, from := r.mmioNeed(at)
	if need == (gpu.MMIO{}) {
		return
	}
	for _, space := range []struct {
		path, name string
		have       *gpu.Bytes
		need       gpu.Bytes
	}{
		{"low_memory_mapped_io_space_mib", "low", settings.LowMemoryMappedIOSpace, need.Low + baseLowMMIO},
		{"high_memory_mapped_io_space_mib", "high", settings.HighMemoryMappedIOSpace, need.High + baseHighMMIO},
	} {
		if space.have == nil || *space.have >= space.need {
			continue
		}
		r.reportVM(at, Finding{
			Path:   space.path,
			Title:  "Too little memory-mapped IO space",
			GPU:    from.ID,
			Found:  fmt.Sprintf("%s will have %d MiB of %s memory-mapped IO space.", vmText(at.VM), space.have.MiB(), space.name),
			Wanted: fmt.Sprintf("With %s it needs %d MiB, its own share included.", gpuOn(at.Key, from), space.need.MiB()),
			Fix:    fmt.Sprintf("Write `%s = %d`.", space.path, space.need.MiB()),
		}, key("mmio "+space.name, at.VM.ID))
	}
}

// mmioNeed is the space for the GPUs that the VM may get, and the largest of them.
// From a pool it may get any, so the largest counts.
func (r *run) mmioNeed(at whatif.Located) (gpu.MMIO, *gpu.GPU) {
	a := r.Plan.Want.Assignment
	var largest *gpu.GPU
	consider := func(g *gpu.GPU) {
		if largest == nil || g.MMIO.Low+g.MMIO.High > largest.MMIO.Low+largest.MMIO.High {
			largest = g
		}
	}
	times := gpu.Bytes(1)
	switch {
	case a.Pool != nil:
		times = gpu.Bytes(whatif.PoolCount(a.Pool))
		members, _ := r.PoolMembers(at, a.Pool)
		for g := range whatif.Selected(at.Host, members) {
			consider(g)
		}
	case a.Device != nil:
		var sum gpu.MMIO
		for g := range whatif.Selected(at.Host, a.Device.GPUIDs) {
			consider(g)
			sum.Low += g.MMIO.Low
			sum.High += g.MMIO.High
		}
		return sum, largest
	}
	if largest == nil {
		return gpu.MMIO{}, nil
	}
	return gpu.MMIO{Low: largest.MMIO.Low * times, High: largest.MMIO.High * times}, largest
}
