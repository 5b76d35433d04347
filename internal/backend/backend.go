// Package backend is the seam between the agent and a platform. A backend does
// what its platform does and nothing more: it knows none of our rules, and a
// simulated one accepts whatever the real API accepts.
package backend

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// Backend is what every host can do.
type Backend interface {
	// Inventory reads the whole host in one pass. Claims are left out: they are the
	// agent's, in the Store.
	Inventory(ctx context.Context) (gpu.Host, error)
}

// Refresher is a backend that can read a host again without reading all of its VMs and GPUs.
type Refresher interface {
	// Refresh is the host as it is now, from what Inventory or Refresh answered before. Read
	// again is all but what lasts while the host runs, and what only concerns other objects: the
	// settings of VMs that hold no other partitions and devices than before, or how other GPUs
	// are divided and who uses them. It is not done where only an Inventory can tell.
	Refresh(ctx context.Context, before gpu.Host, of Objects) (host gpu.Host, done bool, err error)
}

// Objects are VMs and GPUs of a host, by their ids.
type Objects struct{ VMs, GPUs []string }

// Within tells whether all of these objects are among others.
func (o Objects) Within(others Objects) bool {
	in := func(ids, list []string) bool {
		return !slices.ContainsFunc(ids, func(id string) bool {
			return !slices.ContainsFunc(list, func(other string) bool { return gpu.SameID(id, other) })
		})
	}
	return in(o.VMs, others.VMs) && in(o.GPUs, others.GPUs)
}

// Empty tells whether there are none.
func (o Objects) Empty() bool { return len(o.VMs)+len(o.GPUs) == 0 }

// HyperV is what a Hyper-V host can be told to do. Every method re-reads first and
// succeeds when the host already is as asked, so that a step may be repeated after
// a crash. Methods return only when the host shows the result, and report failures
// as *Error. Ids are compared without case.
type HyperV interface {
	VMs

	// SetPartitionCount sets Msvm_PartitionableGpu.PartitionCount. InUse while a
	// running VM holds a partition of the GPU; InvalidParameter for a count that is
	// not in the valid list.
	SetPartitionCount(ctx context.Context, gpuID string, count int) error

	// AddPartitionAdapter gives the VM one more adapter and returns its id.
	// InvalidState unless the VM is off.
	AddPartitionAdapter(ctx context.Context, vmID string, a gpu.PartitionAdapter) (string, error)
	// SetPartitionQuotas replaces an adapter's quotas. InvalidState unless the VM is off.
	SetPartitionQuotas(ctx context.Context, vmID, adapterID string, q gpu.Quotas) error
	// RemovePartitionAdapter succeeds when there is no such adapter.
	RemovePartitionAdapter(ctx context.Context, vmID, adapterID string) error

	// DismountDevice takes a GPU from the host so that a VM can hold it whole.
	// Force skips the platform's checks (ACS, device mitigations).
	DismountDevice(ctx context.Context, gpuID string, force bool) error
	// MountDevice gives it back to the host. InUse while a VM has it.
	MountDevice(ctx context.Context, gpuID string) error

	// CreatePool makes an empty PciExpress pool; it succeeds when there is one.
	CreatePool(ctx context.Context, name string) error
	// SetPoolMembers replaces the members of a pool. Each must be dismounted. InUse
	// when a member that leaves is held by a VM.
	SetPoolMembers(ctx context.Context, name string, gpuIDs []string) error
	// DeletePool succeeds when there is no such pool. InUse while a VM draws from it.
	DeletePool(ctx context.Context, name string) error

	// ApplyVMSettings writes the settings that are not nil. Memory-mapped IO space
	// and cache types need the VM off (InvalidState); an offline action needs a
	// clustered VM (NotSupported).
	ApplyVMSettings(ctx context.Context, vmID string, s gpu.VMSettings) error

	// DrainNode pauses the node that the host is in its cluster and waits until the
	// cluster has moved its running VMs to other nodes. InUse when some stay: the node is
	// paused then all the same. NotSupported on a host that is in no cluster.
	DrainNode(ctx context.Context) error
	// ResumeNode lets the cluster place VMs on the node again. Those that were moved away
	// stay where they are.
	ResumeNode(ctx context.Context) error
}

// VMs is what a host that runs VMs can be told to do about one of them: Hyper-V, or a Linux host with libvirt.
// Every method re-reads first, succeeds when the VM already is as asked, and returns only when the host shows
// the result.
type VMs interface {
	Backend

	// ReadVM is one VM as Inventory shows it. NotFound when the host has no such VM.
	ReadVM(ctx context.Context, vmID string) (gpu.VM, error)

	// AddDevice gives a VM a GPU of a pool, a named dismounted GPU or, on Linux, a vGPU, and returns the
	// setting's id. InvalidState unless the VM is off. On Linux the id is given, an alias; InUse when the
	// VM has another device of that alias, NotFound without the vGPU.
	AddDevice(ctx context.Context, vmID string, d gpu.DeviceAssignment) (string, error)
	// RemoveDevice succeeds when there is no such device setting.
	RemoveDevice(ctx context.Context, vmID, deviceID string) error

	// ShutDownVM asks the guest to shut down and waits until the VM is off or ctx
	// ends (Timeout). Locked when the guest says that it is in use, unless force.
	ShutDownVM(ctx context.Context, vmID string, force bool) error
	// TurnOffVM cuts the power.
	TurnOffVM(ctx context.Context, vmID string) error
	// StartVM starts the VM and waits until it runs. Insufficient when no GPU has a
	// free partition or the pool no free GPU.
	StartVM(ctx context.Context, vmID string) error
}

// MIG is what a Linux host with NVIDIA GPUs can be told to do about Multi-Instance GPU.
// GPUs are named by their UUID, and instances by profile and start. As with HyperV, every
// method re-reads first, succeeds when the host already is as asked, and returns only
// when the host shows the result.
type MIG interface {
	Backend

	// SetMIGMode turns MIG mode on or off. Where that takes a reset of the GPU, it is
	// reset alone and only if reset is true; else InvalidState, and no mode is pending
	// then. InUse while processes use the GPU or it has instances, naming them.
	SetMIGMode(ctx context.Context, gpuID string, on, reset bool) error
	// CreateInstance makes a GPU instance at its start with one compute instance that
	// fills it, and completes one that has none. InvalidState without MIG mode;
	// InvalidParameter for a profile or a start that the GPU does not offer; Insufficient
	// when the place is taken.
	CreateInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error
	// DestroyInstance removes a GPU instance and the compute instances in it. It succeeds
	// when there is none. InUse while processes run in it, naming them.
	DestroyInstance(ctx context.Context, gpuID string, p gpu.MIGPlacement) error
	// RefreshDevices has device nodes and CDI specifications follow the instances. What could
	// not follow is in the inventory until it does.
	RefreshDevices(ctx context.Context) error

	// StopUnit stops a systemd unit, and StartUnit starts it. NotFound when the host has
	// no such unit; stopping one that does not run succeeds.
	StopUnit(ctx context.Context, name string) error
	StartUnit(ctx context.Context, name string) error
}

// VGPU is what a Linux KVM host with NVIDIA's vGPU driver can be told to do about vGPUs.
// As with MIG, every method re-reads first, succeeds when the host already is as asked,
// and returns only when the host shows the result.
type VGPU interface {
	Backend

	// SetVirtualFunctions turns a GPU's virtual functions on or off. InUse while processes
	// use the GPU or, off, while there are vGPUs; NotSupported on a GPU without SR-IOV.
	SetVirtualFunctions(ctx context.Context, gpuID string, on bool) error
	// SetHeterogeneous turns the mode of mixed frame buffer sizes on or off. InUse while
	// the GPU has vGPUs; NotSupported where the GPU or driver has no such mode.
	SetHeterogeneous(ctx context.Context, gpuID string, on bool) error
	// CreateVGPU makes a vGPU at its place. InvalidParameter for a type that the GPU does
	// not offer; InvalidState while its functions are off; InUse when the function has
	// another vGPU; Insufficient when the GPU has no room for it.
	CreateVGPU(ctx context.Context, gpuID string, p gpu.VGPUPlace) error
	// RemoveVGPU succeeds when there is none. InUse while a VM holds it, naming it, and
	// when the place has one of another type.
	RemoveVGPU(ctx context.Context, gpuID string, p gpu.VGPUPlace) error
}

// Sharing is what a Linux host with NVIDIA GPUs can be told to do about processes and
// containers that share a GPU. As with MIG, every method re-reads first, succeeds when the
// host already is as asked, and returns only when the host shows the result.
type Sharing interface {
	Backend

	// SetComputeMode says how many processes may use a GPU. NotSupported in MIG mode.
	SetComputeMode(ctx context.Context, gpuID string, mode gpu.ComputeMode) error
	// SetTimeSlice sets the length of a process's time slice. NotSupported where the driver has no
	// such setting.
	SetTimeSlice(ctx context.Context, gpuID string, t gpu.TimeSlice) error

	// EnsureDaemon brings an MPS control daemon to what is wanted, and starts one that does
	// not run. Where that takes a restart its clients end, and unless endClients is true that
	// is InUse, naming them. NotFound for a device that the host has not; NotSupported
	// without nvidia-cuda-mps-control, and for a GPU in MIG mode as a whole; a first start
	// that fails leaves nothing behind.
	EnsureDaemon(ctx context.Context, d gpu.MPSDaemonSpec, endClients bool) error
	// RemoveDaemon ends a daemon and takes away all that is on the host for it. It succeeds
	// when there is none. InUse as with EnsureDaemon.
	RemoveDaemon(ctx context.Context, name string, endClients bool) error

	// WriteShare hands a share to containers, or brings what is handed over up to date.
	// NotFound for a device or a daemon that the host has not; InvalidParameter for a name
	// that CDI does not take; NotSupported for a GPU in MIG mode as a whole; InUse where
	// somebody else's specification is in its place.
	WriteShare(ctx context.Context, s gpu.ShareSpec) error
	// OutdatedShares compares what is handed over with what WriteShare would write now: by
	// name, how it differs, as the end of "its CDI specification …". One that is not there, or
	// could not be written, is left out.
	OutdatedShares(ctx context.Context, shares []gpu.ShareSpec) (map[string]string, error)
	// RemoveShare takes it back, and with endClients has the daemons that serve its processes end
	// what those compute; others go on. It succeeds when there is none. InUse as with WriteShare,
	// and when a process goes on that was to end.
	RemoveShare(ctx context.Context, name string, endClients bool) error
}

// Meter is a backend that can tell how busy GPUs are.
type Meter interface {
	// Measure reads every GPU and GPU instance twice, a window apart. Allocated is left out:
	// the agent knows the claims.
	Measure(ctx context.Context, window time.Duration) ([]utilization.GPU, utilization.Window, error)
}

// Clustered is a backend whose host may be a node of a cluster. Some things belong to
// the cluster and not to one node: who owns a VM, its offline action, pools of one
// name.
type Clustered interface {
	// Cluster is the cluster that the host is a node of now, nil when it is in none.
	Cluster(ctx context.Context) (*Cluster, error)
}

// Cluster is a node's part in its cluster.
type Cluster struct {
	Name string
	// Node is what the cluster calls the host.
	Node string
	// Store is what all nodes share.
	Store Store
	// HasVM tells whether the cluster runs a VM, on whichever node.
	HasVM func(id string) bool
}

// Store keeps what the agent itself must remember on the host. Update runs f on
// the current state under an exclusive lock across processes and saves what f made
// of it, atomically, unless f fails.
//
// Of a state that cannot be read in full Load returns what it could read, with an
// *UnreadableError. Update fails with it and does not call f. Most stores are a Repairer.
type Store interface {
	Load(ctx context.Context) (State, error)
	Update(ctx context.Context, f func(*State) error) error
}

// State is the agent's memory of one host. Encode and DecodeState say how it is written.
type State struct {
	Claims []gpu.Claim
	Lease  *Lease
	// Fence is the last fencing token given out; it only rises.
	Fence int64
	// Journal holds the changes that are not settled yet. Only the agent reads it.
	Journal []json.RawMessage
	// Agent is the version of the agent that wrote the state.
	Agent string
	// Unreadable are the records that could not be read.
	Unreadable []Unreadable
	// PendingStarts are the VMs that changes stopped and that have not been seen to run since.
	PendingStarts []gpu.PendingStart
}

// Lease says who may change the host now.
type Lease struct {
	Run     string    `json:"run"`              // id of the Terraform run
	Owner   string    `json:"owner,omitempty"`  // provider attribute owner
	Holder  string    `json:"holder,omitempty"` // user@machine, pid
	Fence   int64     `json:"fence"`
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires"`
	// Ends is when the lease ends by the time since boot of the machine that wrote it last, which
	// Clock names. Expires says so to people: it goes by a clock that can be set.
	Ends  time.Duration `json:"ends,omitempty"` // nanoseconds
	Clock string        `json:"clock,omitempty"`
	// TTL is how long each write renews the lease for.
	TTL time.Duration `json:"ttl,omitempty"` // nanoseconds
	// Worker is the agent process that last took the lease for the run.
	Worker string `json:"worker,omitempty"`
	// ClusterFence is the fencing token of the cluster's lease that goes with a host's;
	// 0 for none.
	ClusterFence int64 `json:"cluster_fence,omitempty"`
	// Hosts are the agents, as node/worker, for which the run holds a cluster's lease.
	Hosts []string `json:"hosts,omitempty"`
}

// SelfTester is a backend that can tell, by reading only, how this host answers what
// its platform's documentation leaves open.
type SelfTester interface {
	SelfTest(ctx context.Context) []Answer
}

// ChangeTester is a backend that can also find out what only a change shows: it takes a GPU,
// and where it has VMs one VM, through all that the agent does with them, and puts both
// back as they were, whatever fails on the way. VM is a name or an id, "" where none was
// named. The answers without an assumption are the steps of that.
type ChangeTester interface {
	SelfTestChange(ctx context.Context, vm, gpuID string) []Answer
}

// Answer is what one host shows of one assumption.
type Answer struct {
	// Assumption is its id in package assumptions.
	Assumption string
	// Step is what was done, of an answer about none.
	Step string
	// Found is what the host showed.
	Found string
	// Holds is whether that is as assumed, nil when there was nothing to see it by.
	Holds *bool
	// Err is set when the question could not be asked.
	Err error
}
