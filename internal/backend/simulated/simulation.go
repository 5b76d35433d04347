package simulated

import (
	"fmt"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Simulation is a host's "simulation" section: how the simulated host behaves, and
// what a real host would know but a snapshot does not tell.
type Simulation struct {
	// Unreachable makes every call fail, as if the host were switched off.
	Unreachable bool `json:"unreachable,omitempty"`
	// Latency is how many milliseconds an operation takes. The key "any" counts for
	// every operation that is not named.
	Latency map[Op]int `json:"latency_ms,omitempty"`
	// Faults are failures to come, in order. One that has fired as often as it
	// should is removed from the file, so that faults work across processes.
	Faults []Fault `json:"faults,omitempty"`
	// Guests is the behaviour of guest operating systems by VM id.
	Guests map[string]Guest `json:"guests,omitempty"`
	// GPUs is what the host knows of a GPU beyond the snapshot, by GPU id.
	GPUs map[string]Hidden `json:"gpus,omitempty"`
	// Units are systemd units of a Linux host by name, "nvidia-dcgm.service": those that
	// do not run, and those of which there is something to say.
	Units map[string]Unit `json:"units,omitempty"`
	// MPS is what the host knows of the Multi-Process Service beyond the snapshot.
	MPS MPS `json:"mps,omitzero"`
	// ForeignSpecs are the shares in whose place somebody else has written a CDI
	// specification.
	ForeignSpecs []string `json:"foreign_specs,omitempty"`
	// Load is how busy GPUs and GPU instances are; those that are not named are idle.
	Load []Load `json:"load,omitempty"`
	// Drained are the VMs, by id, that a drain has moved away and that come back when the
	// node is resumed.
	Drained []string `json:"drained,omitempty"`
	// ClusterLagMS is how many milliseconds the cluster takes a VM of the node for running after
	// it has gone off. Until then nothing starts it.
	ClusterLagMS int `json:"cluster_lag_ms,omitempty"`
	// LastPID is the id of the process that was started last.
	LastPID int `json:"last_pid,omitempty"`
}

// Op names an operation of the backend, in latencies and faults.
type Op string

// Operations.
const (
	OpInventory              Op = "inventory"
	OpRefresh                Op = "refresh"
	OpSetPartitionCount      Op = "set_partition_count"
	OpAddPartitionAdapter    Op = "add_partition_adapter"
	OpSetPartitionQuotas     Op = "set_partition_quotas"
	OpRemovePartitionAdapter Op = "remove_partition_adapter"
	OpDismountDevice         Op = "dismount_device"
	OpMountDevice            Op = "mount_device"
	OpCreatePool             Op = "create_pool"
	OpSetPoolMembers         Op = "set_pool_members"
	OpDeletePool             Op = "delete_pool"
	OpAddDevice              Op = "add_device"
	OpRemoveDevice           Op = "remove_device"
	OpApplyVMSettings        Op = "apply_vm_settings"
	OpShutDownVM             Op = "shut_down_vm"
	OpDrainNode              Op = "drain_node"
	OpResumeNode             Op = "resume_node"
	OpTurnOffVM              Op = "turn_off_vm"
	OpStartVM                Op = "start_vm"
	OpSetMIGMode             Op = "set_mig_mode"
	OpCreateInstance         Op = "create_gpu_instance"
	OpDestroyInstance        Op = "destroy_gpu_instance"
	OpRefreshDevices         Op = "refresh_devices"
	OpStopUnit               Op = "stop_unit"
	OpStartUnit              Op = "start_unit"
	OpSetFunctions           Op = "set_virtual_functions"
	OpSetHeterogeneous       Op = "set_heterogeneous"
	OpCreateVGPU             Op = "create_vgpu"
	OpRemoveVGPU             Op = "remove_vgpu"
	OpSetComputeMode         Op = "set_compute_mode"
	OpSetTimeSlice           Op = "set_time_slice"
	OpEnsureDaemon           Op = "ensure_mps_daemon"
	OpRemoveDaemon           Op = "remove_mps_daemon"
	OpWriteShare             Op = "write_share"
	OpRemoveShare            Op = "remove_share"
	OpMeasure                Op = "measure"
	OpLoadState              Op = "load_state"
	OpUpdateState            Op = "update_state"

	// OpAny stands for every operation that is not named.
	OpAny Op = "any"
)

// phrases say in an error what was tried.
var phrases = map[Op]string{
	OpInventory:              "read the inventory",
	OpRefresh:                "read what may have changed",
	OpSetPartitionCount:      "set the partition count",
	OpAddPartitionAdapter:    "add a GPU partition adapter",
	OpSetPartitionQuotas:     "set the quotas of a GPU partition adapter",
	OpRemovePartitionAdapter: "remove a GPU partition adapter",
	OpDismountDevice:         "dismount the device",
	OpMountDevice:            "mount the device",
	OpCreatePool:             "create the pool",
	OpSetPoolMembers:         "set the members of the pool",
	OpDeletePool:             "delete the pool",
	OpAddDevice:              "assign a device",
	OpRemoveDevice:           "remove a device",
	OpApplyVMSettings:        "change the settings",
	OpShutDownVM:             "shut down",
	OpDrainNode:              "drain",
	OpResumeNode:             "resume",
	OpTurnOffVM:              "turn off",
	OpStartVM:                "start",
	OpSetMIGMode:             "set the MIG mode",
	OpCreateInstance:         "create the GPU instance",
	OpDestroyInstance:        "destroy the GPU instance",
	OpRefreshDevices:         "refresh the device nodes",
	OpStopUnit:               "stop",
	OpStartUnit:              "start",
	OpSetFunctions:           "set the virtual functions",
	OpSetHeterogeneous:       "set the mode of mixed vGPU sizes",
	OpCreateVGPU:             "create the vGPU",
	OpRemoveVGPU:             "remove the vGPU",
	OpSetComputeMode:         "set the compute mode",
	OpSetTimeSlice:           "set the time slice",
	OpEnsureDaemon:           "start or configure it",
	OpRemoveDaemon:           "remove it",
	OpWriteShare:             "hand it to containers",
	OpRemoveShare:            "take it back from containers",
	OpMeasure:                "measure how busy the GPUs are",
	OpLoadState:              "read the agent's records",
	OpUpdateState:            "write the agent's records",
}

// Fault is a failure to come.
type Fault struct {
	// Op is the operation that fails.
	Op Op `json:"op"`
	// Object is the GPU id, the GPU instance ("3g.40gb@4") or vGPU ("L40S-12Q@0", with
	// the UUID where it is on no function), the VM's id or name, the pool, the unit, the MPS
	// daemon or the share that it fails for. Empty means any.
	Object string `json:"object,omitempty"`
	// After lets that many calls pass first.
	After int `json:"after,omitempty"`
	// Times is how often it fails; 0 means for ever.
	Times int `json:"times,omitempty"`
	// Code and Detail are what the caller gets. No code means "failed".
	Code   backend.Code `json:"code"`
	Detail string       `json:"detail,omitempty"`
	// Moment is before_effect (the default), after_effect: the host does as it was
	// told, or refuses on its own account, and the answer is lost; or half_way, for
	// what the host does in two steps: a GPU instance is left without its compute
	// instance, a MIG mode waits for the reset, an MPS daemon that had to start or end is
	// left declared and does not run.
	Moment Moment `json:"moment,omitempty"`
}

// Moment is when a fault strikes.
type Moment string

// Moments.
const (
	BeforeEffect Moment = "before_effect"
	AfterEffect  Moment = "after_effect"
	HalfWay      Moment = "half_way"
)

// Guest is how a VM's operating system behaves.
type Guest struct {
	// Locked guests refuse to shut down unless forced: somebody is at work there.
	Locked bool `json:"locked,omitempty"`
	// NoIntegration guests have no integration services and never hear the request.
	NoIntegration bool `json:"no_integration,omitempty"`
	// ShutdownMS is how many milliseconds the guest needs to shut down.
	ShutdownMS int `json:"shutdown_ms,omitempty"`
	// StartFails makes the VM fail to start: "always", or only "with_gpu".
	StartFails StartFailure `json:"start_fails,omitempty"`
	// OffAt is when the shutdown that is under way ends. The simulator writes it, so
	// that a guest goes on shutting down when nobody waits for it any more.
	OffAt *time.Time `json:"off_at,omitempty"`
	// KnownOffAt is when the cluster learns that the VM is off. The simulator writes it.
	KnownOffAt *time.Time `json:"known_off_at,omitempty"`
}

// StartFailure says when a VM fails to start.
type StartFailure string

// Start failures.
const (
	StartFailsAlways  StartFailure = "always"
	StartFailsWithGPU StartFailure = "with_gpu"
)

// Hidden is what a host knows of a GPU beyond the snapshot.
type Hidden struct {
	// NeedsForce makes a dismount without force fail: no ACS support on the way to
	// the device, or no mitigation driver for it.
	NeedsForce bool `json:"needs_force,omitempty"`
	// CountAfterReboot is the partition count that the driver comes up with; 0 keeps
	// the count (assumption hyperv-count-restart).
	CountAfterReboot int `json:"count_after_reboot,omitempty"`
	// Mediated makes the vGPUs on virtual functions mediated devices with a UUID, as
	// kernels before 6.8 do. Those on the GPU itself always are.
	Mediated bool `json:"mediated,omitempty"`
	// Partitionable is the GPU-P face of a dismounted GPU, which comes back with
	// its partition count when the device is mounted.
	Partitionable *gpu.Partitionable `json:"partitionable,omitempty"`
	// Whole is what all partitions have together. It is kept from the first change
	// of the count on, so that rounding does not add up over changes.
	Whole *Whole `json:"whole,omitempty"`
}

// takeFault uses up one call against the host's faults and returns the fault that
// strikes it, if any.
func (s *Simulation) takeFault(c call, names []string) *Fault {
	var struck *Fault
	kept := s.Faults[:0]
	for _, f := range s.Faults {
		if !f.strikes(c.op, names) || struck != nil {
			kept = append(kept, f)
			continue
		}
		if f.After > 0 {
			f.After--
			kept = append(kept, f)
			continue
		}
		hit := f
		struck = &hit
		switch f.Times {
		case 0:
			kept = append(kept, f)
		case 1:
			// That was the last time.
		default:
			f.Times--
			kept = append(kept, f)
		}
	}
	s.Faults = kept
	return struck
}

// awaits tells whether a call would be counted by a fault.
func (s *Simulation) awaits(c call, names []string) bool {
	for _, f := range s.Faults {
		if f.strikes(c.op, names) {
			return true
		}
	}
	return false
}

func (f Fault) strikes(op Op, names []string) bool {
	if f.Op != op && f.Op != OpAny {
		return false
	}
	if f.Object == "" {
		return true
	}
	for _, n := range names {
		if gpu.SameID(n, f.Object) {
			return true
		}
	}
	return false
}

func (f Fault) err() error {
	code := f.Code
	if code == "" {
		code = backend.Failed
	}
	return &backend.Error{Code: code, Detail: f.Detail}
}

// latency is how long an operation takes.
func (s *Simulation) latency(op Op) time.Duration {
	ms, ok := s.Latency[op]
	if !ok && op == OpRefresh {
		return s.latency(OpInventory) * refreshPart / 100
	}
	if !ok {
		ms = s.Latency[OpAny]
	}
	return time.Duration(ms) * time.Millisecond
}

// guest returns a VM's guest; a VM without an entry has a well-behaved one.
func (s *Simulation) guest(vmID string) Guest {
	_, g := lookup(s.Guests, vmID)
	return g
}

func (s *Simulation) setGuest(vmID string, g Guest) {
	put(&s.Guests, vmID, g)
}

func (s *Simulation) hidden(gpuID string) Hidden {
	_, h := lookup(s.GPUs, gpuID)
	return h
}

func (s *Simulation) setHidden(gpuID string, h Hidden) {
	put(&s.GPUs, gpuID, h)
}

// lookup finds an entry by id without case and returns the key it stands under.
func lookup[V any](m map[string]V, id string) (string, V) {
	if v, ok := m[id]; ok {
		return id, v
	}
	for k, v := range m {
		if gpu.SameID(k, id) {
			return k, v
		}
	}
	var none V
	return id, none
}

// put writes an entry under the key that stands for the id already, if one does. A
// zero value is removed.
func put[V comparable](m *map[string]V, id string, v V) {
	key, _ := lookup(*m, id)
	var none V
	if v == none {
		delete(*m, key)
		if len(*m) == 0 {
			*m = nil
		}
		return
	}
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

// check finds mistakes in a section that a person wrote.
func (s *Simulation) check() error {
	for op := range s.Latency {
		if !op.known() {
			return fmt.Errorf("latency_ms: there is no operation %q", op)
		}
	}
	for _, f := range s.Faults {
		if !f.Op.known() {
			return fmt.Errorf("faults: there is no operation %q", f.Op)
		}
		switch f.Moment {
		case "", BeforeEffect, AfterEffect:
		case HalfWay:
			if !f.Op.inTwoSteps() {
				return fmt.Errorf("faults: %q has no step at which it could fail %q", f.Op, HalfWay)
			}
		default:
			return fmt.Errorf("faults: the moment is %q, but must be %q, %q or %q", f.Moment, BeforeEffect, AfterEffect, HalfWay)
		}
	}
	for id, g := range s.Guests {
		if g.StartFails != "" && g.StartFails != StartFailsAlways && g.StartFails != StartFailsWithGPU {
			return fmt.Errorf("guests: %s: start_fails is %q, but must be %q or %q", id, g.StartFails, StartFailsAlways, StartFailsWithGPU)
		}
	}
	return nil
}

func (op Op) known() bool {
	_, ok := phrases[op]
	return ok || op == OpAny
}

// inTwoSteps tells whether a host can fail half way.
func (op Op) inTwoSteps() bool {
	switch op {
	case OpSetMIGMode, OpCreateInstance, OpDestroyInstance, OpEnsureDaemon, OpRemoveDaemon:
		return true
	}
	return false
}

// offeredBy refuses what hosts of a platform cannot do.
func (op Op) offeredBy(p gpu.Platform) error {
	switch op {
	case OpInventory, OpRefresh, OpLoadState, OpUpdateState:
		return nil
	case OpSetMIGMode, OpCreateInstance, OpDestroyInstance, OpRefreshDevices, OpStopUnit, OpStartUnit,
		OpSetFunctions, OpSetHeterogeneous, OpCreateVGPU, OpRemoveVGPU,
		OpSetComputeMode, OpSetTimeSlice, OpEnsureDaemon, OpRemoveDaemon, OpWriteShare, OpRemoveShare, OpMeasure:
		if p != gpu.Linux {
			return refuse(backend.NotSupported, "the host does not run Linux")
		}
	case OpAddDevice, OpRemoveDevice, OpShutDownVM, OpTurnOffVM, OpStartVM:
	default:
		if p != gpu.HyperV {
			return refuse(backend.NotSupported, "the host does not run Hyper-V")
		}
	}
	return nil
}
