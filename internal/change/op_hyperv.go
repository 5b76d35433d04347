package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// hypervRows are the operations on Hyper-V hosts.
var hypervRows = map[Op]row{
	OpSetPartitionCount: {
		by: ByHyperV, needs: []string{"gpu"}, depends: []gpu.Part{gpu.PartPartitions, gpu.PartVMs}, disrupts: nobody,
		shows: ofGPU("the partition count", countOf),
		text:  func(s Step) string { return fmt.Sprintf("set %d partitions on GPU %s", s.Count, s.GPU) },
		inverse: onGPU(func(g *gpu.GPU, _ Step, back Step) []Step {
			if g.Partitionable == nil {
				return nil
			}
			back.Op, back.Count = OpSetPartitionCount, g.Partitionable.Count
			return []Step{back}
		}),
		project: eachGPU(func(g *gpu.GPU, s Step) {
			if g.Partitionable != nil {
				g.Partitionable = divided(*g.Partitionable, s.Count)
			}
		}),
		hinders: whileHeld(setCount), notes: noteCount,
		takenSince: func(h *gpu.Host, s Step) bool {
			g, ok := h.GPU(s.GPU)
			return ok && g.Partitionable != nil && g.Partitionable.Count != s.Count && len(g.Partitionable.Partitions) > 0
		},
	},
	OpAddAdapter: {
		by: ByHyperV, needs: []string{"vm", "adapter"}, depends: []gpu.Part{gpu.PartVMs}, disrupts: nobody,
		shows: ofVM("the GPU partition", partitionOf),
		text: func(s Step) string {
			if s.Adapter.PinnedGPU != "" {
				return fmt.Sprintf("give VM %s a partition of GPU %s", words.Name(s.VMName()), s.Adapter.PinnedGPU)
			}
			return fmt.Sprintf("give VM %s a GPU partition", words.Name(s.VMName()))
		},
		inverse: onVM(func(vm *gpu.VM, _ Step, back Step) []Step {
			back.Op, back.Keep = OpRemoveAdapters, adapterIDs(vm.PartitionAdapters)
			return []Step{back}
		}),
		project: eachVM(func(_ *gpu.Host, vm *gpu.VM, s Step) {
			vm.PartitionAdapters = append(slices.Clone(vm.PartitionAdapters), *s.Adapter)
		}),
		hinders: pinnedToNothing,
		whyOff: func(_ Step, does func(Op) bool) string {
			if does(OpRemoveAdapters) {
				return "the partition comes from another GPU"
			}
			return "a partition is added"
		},
	},
	OpSetQuotas: {
		by: ByHyperV, needs: []string{"vm", "adapter"}, depends: []gpu.Part{gpu.PartVMs}, disrupts: nobody,
		shows: ofVM("the GPU partition", partitionOf),
		text:  func(s Step) string { return "set the partition quotas of VM " + words.Name(s.VMName()) },
		inverse: onVM(func(vm *gpu.VM, s, back Step) []Step {
			a := findAdapter(vm, s.Adapter.ID)
			if a == nil {
				return nil
			}
			was := *a
			if was.Quotas.Lacks(s.Adapter.Quotas) { // a figure that was written goes with its adapter only
				s.Keep = slices.DeleteFunc(adapterIDs(vm.PartitionAdapters), func(id string) bool { return gpu.SameID(id, a.ID) })
				return readdAdapters(vm, s, back)
			}
			back.Op, back.Adapter = OpSetQuotas, &was
			return []Step{back}
		}),
		project: eachVM(func(_ *gpu.Host, vm *gpu.VM, s Step) {
			vm.PartitionAdapters = slices.Clone(vm.PartitionAdapters)
			if a := findAdapter(vm, s.Adapter.ID); a != nil {
				a.Quotas = s.Adapter.Quotas
			}
		}),
		whyOff: func(Step, func(Op) bool) string { return "quotas change" },
	},
	OpRemoveAdapters: {
		by: ByHyperV, needs: []string{"vm"}, depends: []gpu.Part{gpu.PartVMs}, disrupts: nobody, shows: ofVM("the GPU partition", partitionOf),
		text:    func(s Step) string { return "take the GPU partition from VM " + words.Name(s.VMName()) },
		inverse: onVM(readdAdapters),
		project: eachVM(func(_ *gpu.Host, vm *gpu.VM, s Step) {
			vm.PartitionAdapters = slices.DeleteFunc(slices.Clone(vm.PartitionAdapters), func(a gpu.PartitionAdapter) bool { return !s.Keeps(a.ID) })
		}),
		whyOff: func(_ Step, does func(Op) bool) string {
			return textUnless(does(OpAddAdapter), "its partition is removed")
		},
	},
	OpDismount: {
		by: ByHyperV, needs: []string{"gpu"}, depends: []gpu.Part{gpu.PartPartitions, gpu.PartDevices, gpu.PartPolicies},
		disrupts: nobody, shows: ofGPU("", mountOf),
		text: func(s Step) string { return fmt.Sprintf("dismount GPU %s from the host", s.GPU) },
		inverse: onGPU(func(g *gpu.GPU, _ Step, back Step) []Step {
			back.Op = OpMount
			return unless(g.Dismounted, back)
		}),
		project: eachGPU(func(g *gpu.GPU, _ Step) {
			g.Dismounted, g.Status = true, gpu.ReadyForDDA
			if rest, ok := strings.CutPrefix(g.InstancePath, mountedPrefix); ok {
				g.InstancePath = dismountedPrefix + rest
			}
		}),
		hinders: whileHeld("dismount the GPU"),
	},
	OpMount: {
		by: ByHyperV, needs: []string{"gpu"}, depends: []gpu.Part{gpu.PartDevices, gpu.PartPools}, disrupts: nobody, shows: ofGPU("", mountOf),
		text: func(s Step) string { return fmt.Sprintf("mount GPU %s back to the host", s.GPU) },
		inverse: onGPU(func(g *gpu.GPU, _ Step, back Step) []Step {
			back.Op = OpDismount
			return unless(!g.Dismounted, back)
		}),
		project: eachGPU(func(g *gpu.GPU, _ Step) {
			g.Dismounted = false
			if g.Partitionable != nil {
				g.Status = gpu.Partitioned
			}
			if rest, ok := strings.CutPrefix(g.InstancePath, dismountedPrefix); ok {
				g.InstancePath = mountedPrefix + rest
			}
		}),
		hinders: whileAssigned,
		takenSince: func(h *gpu.Host, s Step) bool {
			g, ok := h.GPU(s.GPU)
			return ok && (slices.ContainsFunc(h.Pools, func(p gpu.Pool) bool { return p.Has(g.ID) }) ||
				anyDevice(h, func(vm *gpu.VM, d gpu.DeviceAssignment) bool { return vm.Started() && gpu.SameID(d.GPU, g.ID) }))
		},
	},
	OpCreatePool: {
		by: ByHyperV, needs: []string{"pool"}, depends: []gpu.Part{gpu.PartPools}, disrupts: nobody, shows: ofPool,
		text: func(s Step) string { return "create pool " + words.Name(s.Pool) },
		inverse: func(h *gpu.Host, s Step) []Step {
			_, there := h.Pool(s.Pool)
			return unless(there, s.back(OpDeletePool))
		},
		project: eachPool(func(pools []gpu.Pool, at int, s Step) []gpu.Pool {
			if at < 0 {
				pools = append(pools, gpu.Pool{Name: s.Pool})
			}
			return pools
		}),
	},
	OpDeletePool: {
		by: ByHyperV, needs: []string{"pool"}, depends: []gpu.Part{gpu.PartPools, gpu.PartDevices}, disrupts: nobody, shows: ofPool,
		text: func(s Step) string { return "delete pool " + words.Name(s.Pool) },
		inverse: func(h *gpu.Host, s Step) []Step {
			pool, ok := h.Pool(s.Pool)
			if !ok {
				return nil
			}
			create, members := s.back(OpCreatePool), s.back(OpSetPoolMembers)
			create.Pool, members.Pool, members.GPUs = pool.Name, pool.Name, pool.GPUs
			return []Step{create, members}
		},
		project: eachPool(func(pools []gpu.Pool, at int, _ Step) []gpu.Pool {
			if at < 0 {
				return pools
			}
			return slices.Delete(pools, at, at+1)
		}),
		takenSince: func(h *gpu.Host, s Step) bool {
			pool, ok := h.Pool(s.Pool)
			return ok && anyDevice(h, func(_ *gpu.VM, d gpu.DeviceAssignment) bool { return gpu.SameID(d.Pool, pool.Name) })
		},
	},
	OpSetPoolMembers: {
		by: ByHyperV, needs: []string{"pool"}, depends: []gpu.Part{gpu.PartPools, gpu.PartDevices}, disrupts: nobody, shows: ofPool,
		text: func(s Step) string {
			if len(s.GPUs) == 0 {
				return "empty pool " + words.Name(s.Pool)
			}
			return fmt.Sprintf("put GPUs %s into pool %s", strings.Join(s.GPUs, ", "), words.Name(s.Pool))
		},
		inverse: func(h *gpu.Host, s Step) []Step {
			pool, ok := h.Pool(s.Pool)
			if !ok {
				return nil
			}
			back := s.back(OpSetPoolMembers)
			back.GPUs = pool.GPUs
			return []Step{back}
		},
		project: eachPool(func(pools []gpu.Pool, at int, s Step) []gpu.Pool {
			if at >= 0 {
				pools[at].GPUs = s.GPUs
			}
			return pools
		}),
		hinders: changesPool,
		takenSince: func(h *gpu.Host, s Step) bool {
			pool, ok := h.Pool(s.Pool)
			return ok && anyDevice(h, func(vm *gpu.VM, d gpu.DeviceAssignment) bool {
				return vm.Started() && d.GPU != "" && pool.Has(d.GPU) && !(&gpu.Pool{GPUs: s.GPUs}).Has(d.GPU)
			})
		},
	},
	OpAddDevice: {
		by: ByVMs, needs: []string{"vm", "device"}, depends: []gpu.Part{gpu.PartDevices, gpu.PartPools, gpu.PartPolicies},
		disrupts: nobody, shows: ofVM("the GPUs", gpusOf),
		text: func(s Step) string {
			switch {
			case s.Device.Pool != "":
				return fmt.Sprintf("give VM %s a GPU of pool %s", words.Name(s.VMName()), words.Name(s.Device.Pool))
			case s.Device.VGPU != nil:
				return fmt.Sprintf("give VM %s the vGPU %s of GPU %s", words.Name(s.VMName()), placeText(*s.Device.VGPU), s.Device.GPU)
			}
			return fmt.Sprintf("give VM %s the GPU %s", words.Name(s.VMName()), s.Device.GPU)
		},
		inverse: onVM(func(vm *gpu.VM, _ Step, back Step) []Step {
			back.Op, back.Keep = OpRemoveDevices, deviceIDs(vm.Devices)
			return []Step{back}
		}),
		project: eachVM(func(h *gpu.Host, vm *gpu.VM, s Step) {
			vm.Devices = append(slices.Clone(vm.Devices), *s.Device)
			nameDevices(h, vm)
		}),
		hinders: takesDevice,
		whyOff: func(s Step, _ func(Op) bool) string {
			switch {
			case s.Device.Pool != "":
				return "GPUs of pool \"" + s.Device.Pool + "\" are added or removed"
			case s.Device.VGPU != nil:
				return "a vGPU is added or removed"
			}
			return "GPUs are added or removed"
		},
	},
	OpRemoveDevices: {
		by: ByVMs, needs: []string{"vm"}, depends: []gpu.Part{gpu.PartDevices}, disrupts: nobody, shows: ofVM("the GPUs", gpusOf),
		text: func(s Step) string { return "take the GPUs from VM " + words.Name(s.VMName()) },
		inverse: func(h *gpu.Host, s Step) []Step {
			return onVM(func(vm *gpu.VM, s, back Step) []Step { return readdDevices(h, vm, s, back) })(h, s)
		},
		project: eachVM(func(h *gpu.Host, vm *gpu.VM, s Step) {
			vm.Devices = slices.DeleteFunc(slices.Clone(vm.Devices), func(d gpu.DeviceAssignment) bool { return !s.Keeps(d.ID) })
			nameDevices(h, vm)
		}),
		whyOff: func(_ Step, does func(Op) bool) string {
			return textUnless(does(OpAddDevice), "its GPUs are removed")
		},
	},
	OpVMSettings: {
		by: ByHyperV, needs: []string{"vm", "settings"}, disrupts: nobody, shows: ofVM("the settings", writtenOf),
		text: func(s Step) string { return "write the settings of VM " + words.Name(s.VMName()) },
		inverse: onVM(func(vm *gpu.VM, s, back Step) []Step {
			was := vm.Settings.Only(*s.Settings)
			back.Op, back.Settings = OpVMSettings, &was
			return []Step{back}
		}),
		project: eachVM(func(_ *gpu.Host, vm *gpu.VM, s Step) { vm.Settings = vm.Settings.Overlay(*s.Settings) }),
		whyOff: func(s Step, does func(Op) bool) string {
			switch gives := does(OpAddAdapter) || does(OpAddDevice); {
			case !s.Settings.NeedOff():
				return ""
			case gives, !does(OpRemoveAdapters) && !does(OpRemoveDevices):
				return "memory-mapped IO space or cache types change"
			}
			return "memory-mapped IO space or cache types are put back"
		},
	},
	OpDrainNode: {
		by: ByHyperV, depends: []gpu.Part{gpu.PartCluster}, disrupts: nobody, shows: ofNode,
		text: func(Step) string { return "drain the cluster node" },
		inverse: func(h *gpu.Host, s Step) []Step {
			back := s.back(OpResumeNode)
			for i := range h.VMs {
				if mayMove(&h.VMs[i]) {
					back.VMs = append(back.VMs, h.VMs[i].ID)
				}
			}
			return unless(h.NodeState() != gpu.NodeUp, back)
		},
		project: func(h *draft, _ Step) { *h = draft{Host: drained(h.Host)} },
	},
	OpResumeNode: {
		by: ByHyperV, disrupts: nobody, shows: ofNode,
		text:    func(Step) string { return "resume the cluster node" },
		inverse: func(h *gpu.Host, s Step) []Step { return unless(h.NodeState() == gpu.NodeUp, s.back(OpDrainNode)) },
		project: func(h *draft, s Step) {
			if h.NodeState() != gpu.NodeUp {
				h.Returning = s.VMs
			}
			h.Cluster = inState(h.Host, gpu.NodeUp)
		},
	},
	OpStopVM: {
		by: ByVMs, needs: []string{"vm"}, depends: []gpu.Part{gpu.PartCluster}, disrupts: its(gpu.DisruptVMRestart),
		shows:   ofVM("the power state", powerOf),
		text:    func(s Step) string { return "shut down VM " + words.Name(s.VMName()) },
		inverse: onVM(func(vm *gpu.VM, s, _ Step) []Step { return unless(!vm.Runs(), s.back(OpStartVM)) }),
		project: eachVM(func(h *gpu.Host, vm *gpu.VM, _ Step) {
			vm.State = gpu.VMOff
			vacate(h, func(p gpu.Partition) bool { return gpu.SameID(p.VMID, vm.ID) })
			unresolve(vm)
			nameDevices(h, vm)
		}),
		takenSince: func(h *gpu.Host, s Step) bool {
			vm, here := h.VM(s.VM)
			return here && vm.Started() && !vm.Runs()
		},
	},
	OpStartVM: {
		by: ByVMs, needs: []string{"vm"}, depends: []gpu.Part{gpu.PartCluster}, disrupts: nobody, shows: ofVM("the power state", powerOf),
		text: func(s Step) string { return "start VM " + words.Name(s.VMName()) },
		inverse: func(h *gpu.Host, s Step) []Step {
			vm, ok := h.VM(s.VM)
			_, owed := h.Owes(s.VM) // one that is owed a start keeps it
			return unless(!ok || vm.Runs() || owed, s.back(OpStopVM))
		},
		project: eachVM(func(h *gpu.Host, vm *gpu.VM, _ Step) {
			if !vm.Runs() {
				h.GPUs = slices.Clone(h.GPUs)
				occupy(h, vm)
				resolve(h, vm)
			}
			vm.State = gpu.VMRunning
			nameDevices(h, vm)
		}),
		hinders: noRoom,
		takenSince: func(h *gpu.Host, s Step) bool {
			vm, here := h.VM(s.VM)
			return here && vm.Started()
		},
	},
}

// back is a step that undoes another one on the same object.
func (s Step) back(op Op) Step {
	return Step{Op: op, VM: s.VM, Name: s.Name, GPU: s.GPU, Pool: s.Pool, Force: s.Force, Power: s.Power}
}

// unless is one step, or none.
func unless(not bool, s Step) []Step {
	if not {
		return nil
	}
	return []Step{s}
}

func textUnless(not bool, text string) string {
	if not {
		return ""
	}
	return text
}

// onVM is the inverse of a step on a VM, none when there is no such VM.
func onVM(inverse func(vm *gpu.VM, s, back Step) []Step) func(*gpu.Host, Step) []Step {
	return func(h *gpu.Host, s Step) []Step {
		vm, ok := h.VM(s.VM)
		if !ok {
			return nil
		}
		return inverse(vm, s, s.back(""))
	}
}

// onGPU is the inverse of a step on a GPU, none when there is no such GPU.
func onGPU(inverse func(g *gpu.GPU, s, back Step) []Step) func(*gpu.Host, Step) []Step {
	return func(h *gpu.Host, s Step) []Step {
		g, ok := h.GPU(s.GPU)
		if !ok {
			return nil
		}
		return inverse(g, s, s.back(""))
	}
}

// eachGPU, eachVM and eachPool make of a part of the host what a step should make of it.
func eachGPU(become func(*gpu.GPU, Step)) func(*draft, Step) {
	return func(h *draft, s Step) {
		h.GPUs = slices.Clone(h.GPUs)
		if g, ok := h.GPU(s.GPU); ok {
			become(g, s)
		}
	}
}

func eachVM(become func(*gpu.Host, *gpu.VM, Step)) func(*draft, Step) {
	return func(h *draft, s Step) {
		if !h.ownVMs {
			h.VMs, h.ownVMs = slices.Clone(h.VMs), true
		}
		if vm, ok := h.VM(s.VM); ok {
			become(&h.Host, vm, s)
			assigned(&h.Host)
		}
	}
}

func eachPool(become func(pools []gpu.Pool, at int, s Step) []gpu.Pool) func(*draft, Step) {
	return func(h *draft, s Step) {
		pools := slices.Clone(h.Pools)
		h.Pools = become(pools, slices.IndexFunc(pools, func(p gpu.Pool) bool { return gpu.SameID(p.Name, s.Pool) }), s)
	}
}

func readdAdapters(vm *gpu.VM, s, back Step) []Step {
	remove := back
	remove.Op, remove.Keep = OpRemoveAdapters, s.Keep
	out := []Step{remove}
	for _, a := range vm.PartitionAdapters {
		if !s.Keeps(a.ID) {
			add := back
			a.ID = ""
			add.Op, add.Adapter = OpAddAdapter, &a
			out = append(out, add)
		}
	}
	return out
}

// readdDevices gives a VM its GPUs again. One that moved here with the setting of a GPU that it
// had on another node cannot be given that one: no host would take the setting.
func readdDevices(h *gpu.Host, vm *gpu.VM, s, back Step) []Step {
	remove := back
	remove.Op, remove.Keep = OpRemoveDevices, s.Keep
	out := []Step{remove}
	for _, d := range vm.Devices {
		if !s.Keeps(d.ID) && isHere(h, vm, d) {
			add := back
			if d.VGPU == nil { // else it is an alias, which stays
				d.ID = ""
			}
			if d.Pool != "" {
				d.GPU = "" // which GPU of the pool it had is the host's affair
			}
			add.Op, add.Device = OpAddDevice, &d
			out = append(out, add)
		}
	}
	return out
}

// isHere tells whether what a VM is set to have is this host's to give.
func isHere(h *gpu.Host, vm *gpu.VM, d gpu.DeviceAssignment) bool {
	if d.Pool != "" {
		_, ok := h.Pool(d.Pool)
		return ok
	}
	if d.VGPU != nil {
		_, there := h.VGPUOf(&d)
		return there
	}
	g, ok := h.GPU(d.GPU)
	return ok && g.Dismounted && !slices.ContainsFunc(h.VMs, func(o gpu.VM) bool {
		return !gpu.SameID(o.ID, vm.ID) && slices.ContainsFunc(o.Devices, func(x gpu.DeviceAssignment) bool {
			return x.Pool == "" && gpu.SameID(x.GPU, d.GPU)
		})
	})
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

// anyDevice reports whether a VM of a host has a device of some sort.
func anyDevice(h *gpu.Host, is func(*gpu.VM, gpu.DeviceAssignment) bool) bool {
	for i := range h.VMs {
		vm := &h.VMs[i]
		if slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return is(vm, d) }) {
			return true
		}
	}
	return false
}
