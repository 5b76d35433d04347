package placement

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// The faults of a layout of MIG, of one of vGPUs, and of a share. Of several that a layout has, the
// first one here decides what to do; of what devices lack for a share, the last one is nearest to a fit.
const (
	MIGUnknownProfile gpu.Fault = iota + 1 // the GPU does not offer the profile
	MIGInUse                               // instances in use stand where others are wanted, or are not wanted at all
	MIGTooMany                             // more instances of a profile than an empty GPU takes
	MIGStart                               // a placement where its profile may not begin
	MIGOverlap                             // two placements that want the same memory slice
	MIGNoRoom                              // an empty GPU has not the slices or media engines, or not where the profiles may begin

	VGPUUnsupported   // the GPU's driver makes no vGPUs
	VGPUUnknownType   // the GPU does not offer the type
	VGPUBeside        // two types that no GPU has beside each other
	VGPUProfile       // a MIG-backed type of which nobody tells the GPU instance profile
	VGPUInMIGMode     // the GPU is in MIG mode, in which it only has MIG-backed vGPUs
	VGPUNoMode        // heterogeneous mode is wanted, and there is none
	VGPUSizes         // frame buffer sizes differ, and there is no heterogeneous mode
	VGPUSizesMode     // frame buffer sizes differ, which requires heterogeneous mode
	VGPUUntold        // nobody tells how many the GPU takes
	VGPUCapacity      // more than an empty GPU takes
	VGPUCount         // a number below zero
	VGPUFunction      // a function that the GPU has not, or that another vGPU is on
	VGPUTaken         // virtual functions that NVIDIA's driver has not are wanted
	VGPUHeld          // vGPUs that would have to be removed, and are held
	VGPUInstancesHeld // GPU instances in use that would have to go for those of vGPUs
	VGPUReset         // MIG mode changes with a reset, which is not allowed
	VGPUBusy          // processes use a GPU whose functions or MIG mode are switched

	LackMissing  // the device is not there
	LackPool     // it is a pool's
	LackConfig   // it is not the config's
	LackForVMs   // VMs have it, or are to have it
	LackLayout   // it cannot be used as it is
	LackProfile  // it is not of the MIG profile
	LackApart    // one process cannot reach it beside others
	LackMode     // its mode has no such limit
	LackFigure   // its memory is not known, and the share has a part of that
	LackSize     // it is too small, even when nobody else is on it
	LackTaken    // another share has it for itself
	LackClients  // too many MPS clients
	LackReplicas // time-slicing has no more replicas
	LackMemory   // requests do not fit
	LackLimit    // memory limits would be oversubscribed too much
	LackThreads  // thread percentages would be

	ShareNoRoom      // devices lack different things, or are too few
	ShareQuota       // its label would have more of a pool than its quota
	ShareUnplaced    // it is to be handed over, and was not placed
	ShareNotInPool   // its host has nothing of its pool
	ShareNotInConfig // its host has not its partition config
	ShareApart       // no process reaches its devices together
	ShareApartDaemon // two MPS daemons serve its devices
	ShareNamesake    // the host has another share of its name
	ShareName        // CDI takes no device of its name
	ShareAmount      // an amount that no device could give
	ShareMemory      // a part of a memory that is not known
)

// codes are those of the faults for which a layout is not merely a wrong one.
var codes = map[gpu.Fault]gpu.Code{
	MIGInUse: gpu.InUse, VGPUHeld: gpu.InUse, VGPUBusy: gpu.InUse, VGPUReset: gpu.InvalidState, VGPUInMIGMode: gpu.InvalidState,
	VGPUUnsupported: gpu.NotSupported, VGPUCapacity: gpu.Insufficient, VGPUUntold: gpu.Insufficient, VGPUTaken: gpu.Insufficient,
}

// FaultOf is the fault of an error, 0 if a solver did not make it.
func FaultOf(err error) gpu.Fault {
	if r := gpu.RefusalOf(err); r != nil {
		return r.Fault
	}
	return 0
}
