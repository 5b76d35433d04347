package change

import (
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Doer is what a host has to be to do a step.
type Doer string

// Doers.
const (
	ByAgent   Doer = "agent"   // a claim: its agent is enough
	ByHyperV  Doer = "hyperv"  // a Hyper-V host
	ByMIG     Doer = "mig"     // a Linux host with NVIDIA GPUs
	ByVGPU    Doer = "vgpu"    // with NVIDIA's vGPU driver
	BySharing Doer = "sharing" // whose processes and containers share GPUs
)

// row is what there is to say of an operation whatever the step. What depends on the step is
// in String, inverse and Project, and what the agent does in its runners; a test goes through
// these for every row.
type row struct {
	by Doer
	// disrupts is what it disturbs.
	disrupts func(Step) gpu.Disruption
	// shows is what an inventory shows of it; nil for nothing.
	shows func(*gpu.Host, Step) Fact
	// needs are the fields that a step needs, by their names in a document.
	needs []string
}

var rows = map[Op]row{
	OpSetPartitionCount: {ByHyperV, nobody, ofGPU("the partition count", countOf), []string{"gpu"}},
	OpAddAdapter:        {ByHyperV, nobody, ofVM("the GPU partition", partitionOf), []string{"vm", "adapter"}},
	OpSetQuotas:         {ByHyperV, nobody, ofVM("the GPU partition", partitionOf), []string{"vm", "adapter"}},
	OpRemoveAdapters:    {ByHyperV, nobody, ofVM("the GPU partition", partitionOf), []string{"vm"}},
	OpDismount:          {ByHyperV, nobody, ofGPU("", mountOf), []string{"gpu"}},
	OpMount:             {ByHyperV, nobody, ofGPU("", mountOf), []string{"gpu"}},
	OpCreatePool:        {ByHyperV, nobody, ofPool, []string{"pool"}},
	OpDeletePool:        {ByHyperV, nobody, ofPool, []string{"pool"}},
	OpSetPoolMembers:    {ByHyperV, nobody, ofPool, []string{"pool"}},
	OpAddDevice:         {ByHyperV, nobody, ofVM("the GPUs", gpusOf), []string{"vm", "device"}},
	OpRemoveDevices:     {ByHyperV, nobody, ofVM("the GPUs", gpusOf), []string{"vm"}},
	OpVMSettings:        {ByHyperV, nobody, ofVM("the settings", writtenOf), []string{"vm", "settings"}},
	OpDrainNode:         {ByHyperV, nobody, ofNode, nil},
	OpResumeNode:        {ByHyperV, nobody, ofNode, nil},
	OpStopVM:            {ByHyperV, its(gpu.DisruptVMRestart), ofVM("the power state", powerOf), []string{"vm"}},
	OpStartVM:           {ByHyperV, nobody, ofVM("the power state", powerOf), []string{"vm"}},

	OpSetMIGMode:      {ByMIG, forced(gpu.DisruptGPUReset), ofGPU("the MIG mode", modeOf), []string{"gpu"}},
	OpCreateInstance:  {ByMIG, nobody, ofGPU("the MIG layout", instancesOf), []string{"gpu", "instance"}},
	OpDestroyInstance: {ByMIG, nobody, ofGPU("the MIG layout", instancesOf), []string{"gpu", "instance"}},
	OpRefreshDevices:  {ByMIG, nobody, nil, nil},
	OpStopUnit:        {ByMIG, nobody, ofUnit, []string{"unit"}},
	OpStartUnit:       {ByMIG, nobody, ofUnit, []string{"unit"}},

	OpSetFunctions:     {ByVGPU, nobody, ofGPU("the virtual functions", functionsOf), []string{"gpu"}},
	OpSetHeterogeneous: {ByVGPU, nobody, ofGPU("the heterogeneous vGPU mode", heterogeneousOf), []string{"gpu"}},
	OpCreateVGPU:       {ByVGPU, nobody, ofGPU("the vGPUs", vgpusOf), []string{"gpu", "vgpu"}},
	OpRemoveVGPU:       {ByVGPU, nobody, ofGPU("the vGPUs", vgpusOf), []string{"gpu", "vgpu"}},

	OpSetComputeMode: {BySharing, nobody, ofGPU("the compute mode", computeModeOf), []string{"gpu", "compute_mode"}},
	OpSetTimeSlice:   {BySharing, nobody, ofGPU("the time slice", timeSliceOf), []string{"gpu", "time_slice"}},
	OpEnsureDaemon:   {BySharing, forced(gpu.DisruptProcessRestart), ofDaemon, []string{"mps_daemon"}},
	OpRemoveDaemon:   {BySharing, forced(gpu.DisruptProcessRestart), ofDaemon, []string{"mps_daemon"}},
	OpWriteShare:     {BySharing, nobody, ofShare, []string{"share"}},
	OpRemoveShare:    {BySharing, nobody, ofShare, []string{"share"}},

	OpPutClaim:  {ByAgent, nobody, ofClaim, []string{"claim"}},
	OpDropClaim: {ByAgent, nobody, ofClaim, []string{"claim"}},
}

// Ops lists the operations, sorted.
func Ops() []Op { return slices.Sorted(maps.Keys(rows)) }

// By is what a host has to be to do a step.
func (o Op) By() Doer { return rows[o].by }

// Disrupts is how much a step disturbs what runs; of an operation that there is none of, the
// worst.
func (s Step) Disrupts() gpu.Disruption {
	if of, ok := rows[s.Op]; ok {
		return of.disrupts(s)
	}
	return gpu.DisruptGPUReset
}

func its(d gpu.Disruption) func(Step) gpu.Disruption {
	return func(Step) gpu.Disruption { return d }
}

var nobody = its(gpu.DisruptNone)

// forced is what a step disturbs that may do so.
func forced(d gpu.Disruption) func(Step) gpu.Disruption {
	return func(s Step) gpu.Disruption {
		if s.Force {
			return d
		}
		return gpu.DisruptNone
	}
}

func ofGPU(what string, read func(*gpu.Host, string) string) func(*gpu.Host, Step) Fact {
	if what != "" {
		what += " of "
	}
	return func(h *gpu.Host, s Step) Fact { return Fact{what + "GPU " + s.GPU, read(h, s.GPU)} }
}

func ofVM(what string, read func(*gpu.VM, Step) string) func(*gpu.Host, Step) Fact {
	return func(h *gpu.Host, s Step) Fact {
		vm, ok := h.VM(s.VM)
		if !ok {
			return Fact{"VM " + s.VMName(), "missing"}
		}
		return Fact{what + " of VM " + vm.Name, read(vm, s)}
	}
}

func partitionOf(vm *gpu.VM, _ Step) string { return adaptersOf(vm) }
func gpusOf(vm *gpu.VM, _ Step) string      { return devicesOf(vm) }
func powerOf(vm *gpu.VM, _ Step) string     { return PowerOf(vm) }
func writtenOf(vm *gpu.VM, s Step) string   { return settingsOf(vm.Settings.Only(*s.Settings)) }

func ofPool(h *gpu.Host, s Step) Fact { return Fact{"pool " + s.Pool, membersOf(h, s.Pool)} }

func ofNode(h *gpu.Host, _ Step) Fact {
	return Fact{"the state of node " + h.Name, string(h.NodeState())}
}

func ofUnit(h *gpu.Host, s Step) Fact { return Fact{"unit " + s.Unit, unitOf(h, s.Unit)} }

func ofDaemon(h *gpu.Host, s Step) Fact {
	return Fact{"MPS daemon " + s.Daemon.Name, daemonOf(h, s.Daemon.Name)}
}

func ofShare(h *gpu.Host, s Step) Fact {
	return Fact{"share " + s.Share.Name, handedOf(h, s.Share.Name)}
}

func ofClaim(h *gpu.Host, s Step) Fact {
	return Fact{"the record of " + DescribeObject(s.Claim.Kind, s.Claim.ID), holderOf(h, s.Claim)}
}
