package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// runner runs steps on a host.
type runner struct {
	host backend.HyperV
	// claims changes the claims under the lease.
	claims  func(context.Context, func([]gpu.Claim) []gpu.Claim) error
	timeout time.Duration
}

// run makes one step. Each step may be repeated.
func (r *runner) run(ctx context.Context, s Step) error {
	if s.Op == OpStopVM {
		return r.stop(ctx, s)
	}
	limit := r.timeout
	if s.Op == OpDrainNode {
		limit *= drainTimes
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch s.Op {
	case OpDrainNode:
		return r.host.DrainNode(ctx)
	case OpResumeNode:
		return r.host.ResumeNode(ctx)
	case OpSetPartitionCount:
		return r.host.SetPartitionCount(ctx, s.GPU, s.Count)
	case OpAddAdapter:
		_, err := r.host.AddPartitionAdapter(ctx, s.VM, *s.Adapter)
		return err
	case OpSetQuotas:
		return r.host.SetPartitionQuotas(ctx, s.VM, s.Adapter.ID, s.Adapter.Quotas)
	case OpRemoveAdapters:
		return r.removeAdapters(ctx, s)
	case OpDismount:
		return r.host.DismountDevice(ctx, s.GPU, s.Force)
	case OpMount:
		return r.host.MountDevice(ctx, s.GPU)
	case OpCreatePool:
		return r.host.CreatePool(ctx, s.Pool)
	case OpDeletePool:
		return r.host.DeletePool(ctx, s.Pool)
	case OpSetPoolMembers:
		return r.host.SetPoolMembers(ctx, s.Pool, s.GPUs)
	case OpAddDevice:
		_, err := r.host.AddDevice(ctx, s.VM, *s.Device)
		return err
	case OpRemoveDevices:
		return r.removeDevices(ctx, s)
	case OpVMSettings:
		return r.host.ApplyVMSettings(ctx, s.VM, *s.Settings)
	case OpStartVM:
		return r.start(ctx, s)
	case OpPutClaim:
		return r.claims(ctx, func(claims []gpu.Claim) []gpu.Claim { return putClaim(claims, *s.Claim) })
	case OpDropClaim:
		return r.claims(ctx, func(claims []gpu.Claim) []gpu.Claim { return dropClaim(claims, s.Claim.Kind, s.Claim.ID) })
	}
	return &Error{Kind: BadRequest, Message: fmt.Sprintf("there is no step %q", s.Op)}
}

// drainTimes is how many steps' time a drain may take: it moves the memory of all VMs of
// a node over the network.
const drainTimes = 6

// stop asks the guest first. The power is cut only where that is allowed, and never
// for a guest that answers that somebody is working in it.
func (r *runner) stop(ctx context.Context, s Step) error {
	power := gpu.Power{}
	if s.Power != nil {
		power = *s.Power
	}
	asked, cancel := context.WithTimeout(ctx, power.Timeout())
	defer cancel()
	err := r.host.ShutDownVM(asked, s.VM, power.ForceShutdown)
	var be *backend.Error
	switch {
	case err == nil || !power.AllowTurnOff:
		return err
	case errors.As(err, &be) && (be.Code == backend.Locked || be.Code == backend.AccessDenied || be.Code == backend.NotFound):
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.host.TurnOffVM(ctx, s.VM)
}

// startPoll is how often a VM that is still shutting down is looked at.
const startPoll = 500 * time.Millisecond

// start starts a VM. One that is still shutting down, because its guest took longer
// than it was given, is waited for: it would go off later and stay off.
func (r *runner) start(ctx context.Context, s Step) error {
	for {
		err := r.host.StartVM(ctx, s.VM)
		var be *backend.Error
		if !errors.As(err, &be) || be.Code != backend.InvalidState {
			return err
		}
		host, readErr := r.host.Inventory(ctx)
		if readErr != nil {
			return err
		}
		if vm, ok := host.VM(s.VM); !ok || vm.State != gpu.VMStopping {
			return err
		}
		select {
		case <-time.After(startPoll):
		case <-ctx.Done():
			return err
		}
	}
}

func (r *runner) removeAdapters(ctx context.Context, s Step) error {
	host, err := r.host.Inventory(ctx)
	if err != nil {
		return err
	}
	vm, ok := host.VM(s.VM)
	if !ok {
		return vmGone("remove its partition adapters", s)
	}
	for _, a := range vm.PartitionAdapters {
		if hasID(s.Keep, a.ID) {
			continue
		}
		if err := r.host.RemovePartitionAdapter(ctx, vm.ID, a.ID); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) removeDevices(ctx context.Context, s Step) error {
	host, err := r.host.Inventory(ctx)
	if err != nil {
		return err
	}
	vm, ok := host.VM(s.VM)
	if !ok {
		return vmGone("remove its devices", s)
	}
	for _, d := range vm.Devices {
		if hasID(s.Keep, d.ID) {
			continue
		}
		if err := r.host.RemoveDevice(ctx, vm.ID, d.ID); err != nil {
			return err
		}
	}
	return nil
}

func vmGone(op string, s Step) error {
	return &backend.Error{Code: backend.NotFound, Op: op, Object: "VM " + s.vmName(), Detail: "the VM is no longer on this host"}
}

func (s Step) vmName() string {
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
			return fmt.Sprintf("give VM %s a partition of GPU %s", s.vmName(), s.Adapter.PinnedGPU)
		}
		return fmt.Sprintf("give VM %s a GPU partition", s.vmName())
	case OpSetQuotas:
		return fmt.Sprintf("set the partition quotas of VM %s", s.vmName())
	case OpRemoveAdapters:
		return fmt.Sprintf("take the GPU partition from VM %s", s.vmName())
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
			return fmt.Sprintf("give VM %s a GPU of pool %s", s.vmName(), s.Device.Pool)
		}
		return fmt.Sprintf("give VM %s the GPU %s", s.vmName(), s.Device.GPU)
	case OpRemoveDevices:
		return fmt.Sprintf("take the GPUs from VM %s", s.vmName())
	case OpVMSettings:
		return fmt.Sprintf("write the settings of VM %s", s.vmName())
	case OpDrainNode:
		return "drain the cluster node"
	case OpResumeNode:
		return "resume the cluster node"
	case OpStopVM:
		return fmt.Sprintf("shut down VM %s", s.vmName())
	case OpStartVM:
		return fmt.Sprintf("start VM %s", s.vmName())
	case OpPutClaim:
		return "record " + describeObject(s.Claim.Kind, s.Claim.ID)
	case OpDropClaim:
		return "forget " + describeObject(s.Claim.Kind, s.Claim.ID)
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
		if vm != nil && !vm.Runs() {
			return one(OpStopVM)
		}
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
