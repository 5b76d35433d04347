package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// VMName is what people call the VM of a step.
func (s Step) VMName() string {
	if s.Name != "" {
		return s.Name
	}
	return s.VM
}

// String says what the step does, for people.
func (s Step) String() string {
	switch s.Op {
	case OpSetPartitionCount:
		return fmt.Sprintf("set %d partitions on GPU %s", s.Count, s.GPU)
	case OpAddAdapter:
		if s.Adapter.PinnedGPU != "" {
			return fmt.Sprintf("give VM %s a partition of GPU %s", s.VMName(), s.Adapter.PinnedGPU)
		}
		return fmt.Sprintf("give VM %s a GPU partition", s.VMName())
	case OpSetQuotas:
		return fmt.Sprintf("set the partition quotas of VM %s", s.VMName())
	case OpRemoveAdapters:
		return fmt.Sprintf("take the GPU partition from VM %s", s.VMName())
	case OpDismount:
		return fmt.Sprintf("dismount GPU %s from the host", s.GPU)
	case OpMount:
		return fmt.Sprintf("mount GPU %s back to the host", s.GPU)
	case OpCreatePool:
		return fmt.Sprintf("create pool %s", s.Pool)
	case OpDeletePool:
		return fmt.Sprintf("delete pool %s", s.Pool)
	case OpSetPoolMembers:
		if len(s.GPUs) == 0 {
			return fmt.Sprintf("empty pool %s", s.Pool)
		}
		return fmt.Sprintf("put GPUs %s into pool %s", strings.Join(s.GPUs, ", "), s.Pool)
	case OpAddDevice:
		if s.Device.Pool != "" {
			return fmt.Sprintf("give VM %s a GPU of pool %s", s.VMName(), s.Device.Pool)
		}
		return fmt.Sprintf("give VM %s the GPU %s", s.VMName(), s.Device.GPU)
	case OpRemoveDevices:
		return fmt.Sprintf("take the GPUs from VM %s", s.VMName())
	case OpVMSettings:
		return fmt.Sprintf("write the settings of VM %s", s.VMName())
	case OpDrainNode:
		return "drain the cluster node"
	case OpResumeNode:
		return "resume the cluster node"
	case OpStopVM:
		return fmt.Sprintf("shut down VM %s", s.VMName())
	case OpStartVM:
		return fmt.Sprintf("start VM %s", s.VMName())
	case OpSetMIGMode, OpCreateInstance, OpDestroyInstance, OpRefreshDevices, OpStopUnit, OpStartUnit:
		return s.migText()
	case OpSetFunctions, OpSetHeterogeneous, OpCreateVGPU, OpRemoveVGPU:
		return s.vgpuText()
	case OpSetComputeMode, OpSetTimeSlice, OpEnsureDaemon, OpRemoveDaemon, OpWriteShare, OpRemoveShare:
		return s.sharingText()
	case OpPutClaim:
		return "record " + DescribeObject(s.Claim.Kind, s.Claim.ID)
	case OpDropClaim:
		return "forget " + DescribeObject(s.Claim.Kind, s.Claim.ID)
	}
	return string(s.Op)
}

// inverse returns the steps that put a step back on a host that is as given when the
// step begins. The list can be run again from its beginning, and it also fits a step
// that did not run or only in part: adapters and devices get new ids each time, so it
// removes what was not there before rather than what the step is known to have added.
func inverse(host *gpu.Host, s Step) []Step {
	vm, _ := host.VM(s.VM)
	g, _ := host.GPU(s.GPU)
	pool, _ := host.Pool(s.Pool)
	back := Step{VM: s.VM, Name: s.Name, GPU: s.GPU, Pool: s.Pool, Force: s.Force, Power: s.Power}
	one := func(op Op) []Step {
		back.Op = op
		return []Step{back}
	}
	switch s.Op {
	case OpSetPartitionCount:
		if g != nil && g.Partitionable != nil {
			back.Count = g.Partitionable.Count
			return one(OpSetPartitionCount)
		}
	case OpAddAdapter:
		if vm != nil {
			back.Keep = adapterIDs(vm.PartitionAdapters)
			return one(OpRemoveAdapters)
		}
	case OpRemoveAdapters:
		if vm != nil {
			return readdAdapters(back, vm, s.Keep)
		}
	case OpSetQuotas:
		if vm != nil {
			if a := findAdapter(vm, s.Adapter.ID); a != nil {
				was := *a
				back.Adapter = &was
				return one(OpSetQuotas)
			}
		}
	case OpAddDevice:
		if vm != nil {
			back.Keep = deviceIDs(vm.Devices)
			return one(OpRemoveDevices)
		}
	case OpRemoveDevices:
		if vm != nil {
			return readdDevices(back, vm, s.Keep)
		}
	case OpDismount:
		if g != nil && !g.Dismounted {
			return one(OpMount)
		}
	case OpMount:
		if g != nil && g.Dismounted {
			return one(OpDismount)
		}
	case OpCreatePool:
		if pool == nil {
			return one(OpDeletePool)
		}
	case OpDeletePool:
		if pool != nil {
			back.Pool = pool.Name
			members := back
			members.Op, members.GPUs = OpSetPoolMembers, pool.GPUs
			return append(one(OpCreatePool), members)
		}
	case OpSetPoolMembers:
		if pool != nil {
			back.GPUs = pool.GPUs
			return one(OpSetPoolMembers)
		}
	case OpVMSettings:
		if vm != nil {
			was := vm.Settings.Only(*s.Settings)
			back.Settings = &was
			return one(OpVMSettings)
		}
	case OpDrainNode:
		if host.NodeState() == gpu.NodeUp {
			return one(OpResumeNode)
		}
	case OpResumeNode:
		if host.NodeState() != gpu.NodeUp {
			return one(OpDrainNode)
		}
	case OpStopVM:
		if vm != nil && vm.Runs() {
			return one(OpStartVM)
		}
	case OpStartVM:
		if _, owed := host.Owes(s.VM); vm != nil && !vm.Runs() && !owed { // one that is owed a start keeps it
			return one(OpStopVM)
		}
	case OpSetMIGMode, OpCreateInstance, OpDestroyInstance, OpStopUnit, OpStartUnit:
		return inverseMIG(host, s)
	case OpSetFunctions, OpSetHeterogeneous, OpCreateVGPU, OpRemoveVGPU:
		return inverseVGPU(g, s)
	case OpSetComputeMode, OpSetTimeSlice, OpEnsureDaemon, OpRemoveDaemon, OpWriteShare, OpRemoveShare:
		return inverseSharing(host, s)
	case OpPutClaim, OpDropClaim:
		if c := findClaim(host, s.Claim.Kind, s.Claim.ID); c != nil {
			was := *c
			back.Claim = &was
			return one(OpPutClaim)
		}
		back.Claim = s.Claim
		return one(OpDropClaim)
	}
	return nil
}

func readdAdapters(back Step, vm *gpu.VM, keep []string) []Step {
	remove := back
	remove.Op, remove.Keep = OpRemoveAdapters, keep
	out := []Step{remove}
	for _, a := range vm.PartitionAdapters {
		if !hasID(keep, a.ID) {
			add := back
			a.ID = ""
			add.Op, add.Adapter = OpAddAdapter, &a
			out = append(out, add)
		}
	}
	return out
}

func readdDevices(back Step, vm *gpu.VM, keep []string) []Step {
	remove := back
	remove.Op, remove.Keep = OpRemoveDevices, keep
	out := []Step{remove}
	for _, d := range vm.Devices {
		if !hasID(keep, d.ID) {
			add := back
			d.ID = ""
			if d.Pool != "" {
				d.GPU = "" // which GPU of the pool it had is the host's affair
			}
			add.Op, add.Device = OpAddDevice, &d
			out = append(out, add)
		}
	}
	return out
}

func adapterIDs(as []gpu.PartitionAdapter) []string {
	var ids []string
	for _, a := range as {
		if a.ID != "" {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

func deviceIDs(ds []gpu.DeviceAssignment) []string {
	var ids []string
	for _, d := range ds {
		if d.ID != "" {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

func findAdapter(vm *gpu.VM, id string) *gpu.PartitionAdapter {
	i := slices.IndexFunc(vm.PartitionAdapters, func(a gpu.PartitionAdapter) bool { return gpu.SameID(a.ID, id) })
	if i < 0 {
		return nil
	}
	return &vm.PartitionAdapters[i]
}

// IsShown tells whether an inventory shows in full what a step does. What it does not show
// is done once more: nobody has to be off for it.
func (s Step) IsShown() bool {
	return s.Op != OpRefreshDevices && s.Op != OpWriteShare && s.Op != OpRemoveShare
}

// WholeHost stands for what steps are on that are for the host as a whole.
const WholeHost = ""

// Object is what a step is on, for people.
func (s Step) Object() string {
	switch {
	case s.GPU != "":
		return "GPU " + s.GPU
	case s.Daemon != nil:
		return "MPS daemon " + s.Daemon.Name
	case s.Share != nil:
		return DescribeObject(gpu.ClaimShare, s.Share.Name)
	}
	return WholeHost
}

// OnHost are the steps that change the host and not only the claims.
func OnHost(steps []Step) []Step {
	return slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return s.Claim != nil })
}

// Keeps tells whether a removal leaves an adapter or device alone.
func (s Step) Keeps(id string) bool { return hasID(s.Keep, id) }
