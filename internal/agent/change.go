package agent

import (
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Change asks a host to make real what one resource wants of it, or to undo it.
// It is a document of the snapshot format.
type Change struct {
	ID      string `json:"id"`      // unique; the same change sent twice is done once
	Subject string `json:"subject"` // the resource, for messages and the journal
	Owner   string `json:"owner,omitempty"`
	// Host is the provider's name for this host, the key in the wants.
	Host string `json:"host"`
	// Token is the resource instance's token. On a create or update the claim gets
	// it; on a delete the claim must have it (or Adopt must be set) or nothing is done.
	Token string `json:"token"`
	// Adopt lets a delete act without a claim: the object was imported and the host
	// never held a claim for it.
	Adopt bool `json:"adopt,omitempty"`
	// Want is what shall be; empty on a delete, or when this host leaves the object.
	Want gpu.Want `json:"want"`
	// Prior is what the resource had; empty on a create.
	Prior gpu.Want `json:"prior"`
	// ClaimOnly writes or drops the claim and touches nothing else.
	ClaimOnly bool `json:"claim_only,omitempty"`
	// Incomplete marks the claim when the resource as a whole did not succeed.
	Incomplete bool `json:"incomplete,omitempty"`
	// Claims are claims for VMs of this host that other hosts hold (a clustered VM's
	// claim stays where it was written until the next write).
	Claims []gpu.Claim `json:"claims,omitempty"`
	// Levels are the rule levels in force for this run.
	Levels rules.Levels `json:"levels,omitempty"`
}

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
	Instance *gpu.MIGPlacement `json:"instance,omitempty"` // of a GPU instance
	VGPU     *gpu.VGPUPlace    `json:"vgpu,omitempty"`
	Unit     string            `json:"unit,omitempty"` // a systemd unit

	ComputeMode gpu.ComputeMode    `json:"compute_mode,omitempty"`
	TimeSlice   gpu.TimeSlice      `json:"time_slice,omitempty"`
	Daemon      *gpu.MPSDaemonSpec `json:"mps_daemon,omitempty"` // of a removal its name only
	Share       *gpu.ShareSpec     `json:"share,omitempty"`      // of a removal its name only
	// Handed is what containers could ask for before, in a step that hands a share over again.
	Handed *gpu.HandedShare `json:"handed_share,omitempty"`
	// GPUs are pool members.
	GPUs     []string              `json:"gpus,omitempty"`
	Adapter  *gpu.PartitionAdapter `json:"adapter,omitempty"`
	Device   *gpu.DeviceAssignment `json:"device,omitempty"`
	Settings *gpu.VMSettings       `json:"settings,omitempty"`
	Power    *gpu.Power            `json:"power,omitempty"`
	Claim    *gpu.Claim            `json:"claim,omitempty"`
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
	OpCreateInstance    Op = "create_gpu_instance" // or complete one that has no compute instance
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

// Prepared is what a host would do for a change, found without touching anything.
type Prepared struct {
	Steps      []Step          `json:"steps"`
	Disruption gpu.Disruption  `json:"disruption"`
	StopsVMs   []string        `json:"stops_vms,omitempty"` // names of running VMs that would be stopped
	Drains     bool            `json:"drains,omitempty"`    // the running VMs move to other nodes meanwhile
	Findings   []rules.Finding `json:"findings,omitempty"`
	// Basis is a digest of what the steps rest on. Apply refuses when it changed.
	Basis string `json:"basis"`
}

// Outcome is how a change ended on one host.
type Outcome struct {
	// Host is the host after the change, with its claims.
	Host gpu.Host `json:"host"`
	// Done are the steps that ran and stand.
	Done []Step `json:"done,omitempty"`
	// RolledBack is true when the change failed and everything was put back.
	RolledBack bool `json:"rolled_back,omitempty"`
	// Stands says, step by step, what a failed rollback left.
	Stands []string `json:"stands,omitempty"`
}

// LeaseRequest asks for the right to change a host.
type LeaseRequest struct {
	Run    string        `json:"run"`
	Owner  string        `json:"owner,omitempty"`
	Holder string        `json:"holder,omitempty"`
	TTL    time.Duration `json:"ttl"`  // how long it outlives its holder
	Wait   time.Duration `json:"wait"` // how long to wait for another holder
	// Cluster asks for the lease of the host's cluster as well, when it is in one.
	Cluster bool `json:"cluster,omitempty"`
}
