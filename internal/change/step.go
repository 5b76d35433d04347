package change

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Step is one action on a host, small enough to be undone. Which fields count
// depends on Op. It is journaled before it runs, with its inverse.
type Step struct {
	Op    Op     `json:"op"`
	GPU   string `json:"gpu,omitempty"`
	VM    string `json:"vm,omitempty"`      // VM id
	Name  string `json:"vm_name,omitempty"` // VM name, for people
	Pool  string `json:"pool,omitempty"`
	Count int    `json:"count,omitempty"`
	// Force skips checks of a dismount, allows a GPU's reset for its MIG mode, and allows to
	// end the clients of an MPS daemon.
	Force bool `json:"force,omitempty"`
	// Enable is the mode to set: MIG, virtual functions, or mixed sizes of vGPUs.
	Enable   bool              `json:"enable,omitempty"`
	Instance *gpu.MIGPlacement `json:"instance,omitempty"` // Of a GPU instance
	VGPU     *gpu.VGPUPlace    `json:"vgpu,omitempty"`
	Unit     string            `json:"unit,omitempty"` // a systemd unit

	ComputeMode gpu.ComputeMode    `json:"compute_mode,omitempty"`
	TimeSlice   gpu.TimeSlice      `json:"time_slice,omitempty"`
	Daemon      *gpu.MPSDaemonSpec `json:"mps_daemon,omitempty"` // Of a removal its name only
	Share       *gpu.ShareSpec     `json:"share,omitempty"`      // Of a removal its name only
	// Handed is what containers could ask for before, in a step that hands a share over again.
	Handed *gpu.HandedShare `json:"handed_share,omitempty"`
	// GPUs are pool members.
	GPUs     []string              `json:"gpus,omitempty"`
	Adapter  *gpu.PartitionAdapter `json:"adapter,omitempty"`
	Device   *gpu.DeviceAssignment `json:"device,omitempty"`
	Settings *gpu.VMSettings       `json:"settings,omitempty"`
	Power    *gpu.Power            `json:"power,omitempty"`
	Claim    *gpu.Claim            `json:"claim,omitempty"`
	// VMs are those, by id, that a resumed node gets back from others.
	VMs []string `json:"vms,omitempty"`
	// Keep lists the ids of adapters or devices that a removal leaves alone: those
	// that were there before the step that it undoes.
	Keep []string `json:"keep,omitempty"`
}

// Op is what a step does.
type Op string

// Ops.
const (
	OpSetPartitionCount Op = "set_partition_count"
	OpAddAdapter        Op = "add_partition_adapter"
	OpSetQuotas         Op = "set_partition_quotas"
	OpRemoveAdapters    Op = "remove_partition_adapters" // all of the VM's but Keep
	OpDismount          Op = "dismount_device"
	OpMount             Op = "mount_device"
	OpCreatePool        Op = "create_pool"
	OpDeletePool        Op = "delete_pool"
	OpSetPoolMembers    Op = "set_pool_members"
	OpAddDevice         Op = "add_device"
	OpRemoveDevices     Op = "remove_devices" // all of the VM's but Keep
	OpVMSettings        Op = "set_vm_settings"
	OpDrainNode         Op = "drain_node"
	OpResumeNode        Op = "resume_node"
	OpStopVM            Op = "stop_vm"
	OpStartVM           Op = "start_vm"
	OpSetMIGMode        Op = "set_mig_mode"
	OpCreateInstance    Op = "create_gpu_instance" // or have one compute instance fill one that is there
	OpDestroyInstance   Op = "destroy_gpu_instance"
	OpSetFunctions      Op = "set_virtual_functions"
	OpSetHeterogeneous  Op = "set_heterogeneous"
	OpCreateVGPU        Op = "create_vgpu"
	OpRemoveVGPU        Op = "remove_vgpu"
	OpRefreshDevices    Op = "refresh_devices"
	OpSetComputeMode    Op = "set_compute_mode"
	OpSetTimeSlice      Op = "set_time_slice"
	OpEnsureDaemon      Op = "ensure_mps_daemon"
	OpRemoveDaemon      Op = "remove_mps_daemon"
	OpWriteShare        Op = "write_share"
	OpRemoveShare       Op = "remove_share"
	OpStopUnit          Op = "stop_unit"
	OpStartUnit         Op = "start_unit"
	OpPutClaim          Op = "put_claim"
	OpDropClaim         Op = "drop_claim"
)

// WholeHost stands for what steps are on that are for the host as a whole.
const WholeHost = ""

// VMName is what people call the VM of a step.
func (s Step) VMName() string {
	if s.Name != "" {
		return s.Name
	}
	return s.VM
}

// IsShown tells whether an inventory shows in full what a step does. What it does not show
// is done once more: nobody has to be off for it.
func (s Step) IsShown() bool {
	return s.Op != OpRefreshDevices && s.Op != OpWriteShare && s.Op != OpRemoveShare
}

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
func (s Step) Keeps(id string) bool { return gpu.HasID(s.Keep, id) }
