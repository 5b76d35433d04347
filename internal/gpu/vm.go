package gpu

// VM is one virtual machine on its owner host.
type VM struct {
	ID         string  `json:"id"` // GUID, upper case as Hyper-V prints it
	Name       string  `json:"name"`
	State      VMState `json:"state"`
	Generation int     `json:"generation"`
	Clustered  bool    `json:"clustered,omitempty"`
	// Transient is true for a VM of libvirt's that has no stored definition: it is gone when it is off.
	Transient bool `json:"transient,omitempty"`
	// Replica is true for a copy that Hyper-V Replica keeps of a VM of another host, under the same
	// id (ReplicationMode "Replica" or "Extended Replica").
	Replica bool `json:"replica,omitempty"`
	// PossibleOwners are the nodes that may run a clustered VM; empty means all.
	PossibleOwners []string   `json:"possible_owners,omitempty"`
	Settings       VMSettings `json:"settings"`
	DynamicMemory  bool       `json:"dynamic_memory,omitempty"`
	// Guest is the guest's operating system as it says itself, "Windows 11 Pro"; known only
	// while it runs with integration services.
	Guest string `json:"guest,omitempty"`
	// Checkpoints is the VM's checkpoint type (UserSnapshotType).
	Checkpoints CheckpointType `json:"checkpoints,omitempty"`
	// PartitionAdapters are configured adapters (Msvm_GpuPartitionSettingData). They
	// want a partition; which one is known only while the VM runs.
	PartitionAdapters []PartitionAdapter `json:"partition_adapters,omitempty"`
	// Devices are whole GPUs given to the VM (Msvm_PciExpressSettingData).
	Devices []DeviceAssignment `json:"devices,omitempty"`
}

// VMState is a VM's state. Hyper-V has more; those that are neither of the named
// ones are transitional or critical and read as VMOther.
type VMState string

// VM states.
const (
	VMRunning  VMState = "running"
	VMOff      VMState = "off"
	VMSaved    VMState = "saved"
	VMPaused   VMState = "paused"
	VMStarting VMState = "starting"
	VMStopping VMState = "stopping"
	VMOther    VMState = "other"
)

// CheckpointType is Hyper-V's UserSnapshotType.
type CheckpointType string

// Checkpoint types.
const (
	CheckpointsDisabled       CheckpointType = "disabled"
	CheckpointsProduction     CheckpointType = "production"
	CheckpointsProductionOnly CheckpointType = "production_only"
	CheckpointsStandard       CheckpointType = "standard"
)

// StopAction is what happens to a VM when its host shuts down (AutomaticShutdownAction).
type StopAction string

// Automatic stop actions.
const (
	StopTurnOff  StopAction = "turn_off"
	StopSave     StopAction = "save"
	StopShutDown StopAction = "shut_down"
)

// OfflineAction is what the cluster does with a VM whose resource goes offline
// (values 0 to 3 of the cluster resource's OfflineAction).
type OfflineAction string

// Offline actions.
const (
	OfflineTurnOff        OfflineAction = "turn_off"
	OfflineSave           OfflineAction = "save"
	OfflineShutDown       OfflineAction = "shut_down"
	OfflineForcedShutdown OfflineAction = "force_shutdown"
)

// VMSettings are the settings of a VM that matter to a GPU. In an inventory every
// setting that the VM has is filled in; in a change only what is to be written.
type VMSettings struct {
	LowMemoryMappedIOSpace  *Bytes      `json:"low_memory_mapped_io_space,omitempty"`
	HighMemoryMappedIOSpace *Bytes      `json:"high_memory_mapped_io_space,omitempty"`
	GuestControlledCache    *bool       `json:"guest_controlled_cache_types,omitempty"`
	AutomaticStopAction     *StopAction `json:"automatic_stop_action,omitempty"`
	// OfflineAction is nil for a VM that is not clustered.
	OfflineAction *OfflineAction `json:"offline_action,omitempty"`
}

// Empty tells whether nothing is set.
func (s VMSettings) Empty() bool { return s == VMSettings{} }

// Overlay returns s with the settings that o has.
func (s VMSettings) Overlay(o VMSettings) VMSettings {
	if o.LowMemoryMappedIOSpace != nil {
		s.LowMemoryMappedIOSpace = o.LowMemoryMappedIOSpace
	}
	if o.HighMemoryMappedIOSpace != nil {
		s.HighMemoryMappedIOSpace = o.HighMemoryMappedIOSpace
	}
	if o.GuestControlledCache != nil {
		s.GuestControlledCache = o.GuestControlledCache
	}
	if o.AutomaticStopAction != nil {
		s.AutomaticStopAction = o.AutomaticStopAction
	}
	if o.OfflineAction != nil {
		s.OfflineAction = o.OfflineAction
	}
	return s
}

// Only returns the settings of s that are also set in mask.
func (s VMSettings) Only(mask VMSettings) VMSettings {
	var out VMSettings
	if mask.LowMemoryMappedIOSpace != nil {
		out.LowMemoryMappedIOSpace = s.LowMemoryMappedIOSpace
	}
	if mask.HighMemoryMappedIOSpace != nil {
		out.HighMemoryMappedIOSpace = s.HighMemoryMappedIOSpace
	}
	if mask.GuestControlledCache != nil {
		out.GuestControlledCache = s.GuestControlledCache
	}
	if mask.AutomaticStopAction != nil {
		out.AutomaticStopAction = s.AutomaticStopAction
	}
	if mask.OfflineAction != nil {
		out.OfflineAction = s.OfflineAction
	}
	return out
}

// Without returns the settings of s that are not set in mask.
func (s VMSettings) Without(mask VMSettings) VMSettings {
	out := s
	if mask.LowMemoryMappedIOSpace != nil {
		out.LowMemoryMappedIOSpace = nil
	}
	if mask.HighMemoryMappedIOSpace != nil {
		out.HighMemoryMappedIOSpace = nil
	}
	if mask.GuestControlledCache != nil {
		out.GuestControlledCache = nil
	}
	if mask.AutomaticStopAction != nil {
		out.AutomaticStopAction = nil
	}
	if mask.OfflineAction != nil {
		out.OfflineAction = nil
	}
	return out
}

// Differs returns the settings of want that s has otherwise or does not have.
func (s VMSettings) Differs(want VMSettings) VMSettings {
	var out VMSettings
	if differs(s.LowMemoryMappedIOSpace, want.LowMemoryMappedIOSpace) {
		out.LowMemoryMappedIOSpace = want.LowMemoryMappedIOSpace
	}
	if differs(s.HighMemoryMappedIOSpace, want.HighMemoryMappedIOSpace) {
		out.HighMemoryMappedIOSpace = want.HighMemoryMappedIOSpace
	}
	if differs(s.GuestControlledCache, want.GuestControlledCache) {
		out.GuestControlledCache = want.GuestControlledCache
	}
	if differs(s.AutomaticStopAction, want.AutomaticStopAction) {
		out.AutomaticStopAction = want.AutomaticStopAction
	}
	if differs(s.OfflineAction, want.OfflineAction) {
		out.OfflineAction = want.OfflineAction
	}
	return out
}

// NeedOff tells whether any of the settings can be written only while the VM is
// off. The stop action and the offline action can be changed at any time.
func (s VMSettings) NeedOff() bool {
	return s.LowMemoryMappedIOSpace != nil || s.HighMemoryMappedIOSpace != nil || s.GuestControlledCache != nil
}

func differs[T comparable](have, want *T) bool {
	return want != nil && (have == nil || *have != *want)
}

// PartitionAdapter is a VM's GPU partition adapter.
type PartitionAdapter struct {
	ID string `json:"id"` // GUID of the adapter; "" before it is added
	// PinnedGPU is the GPU that the partition must come from; "" lets Hyper-V choose.
	PinnedGPU string `json:"pinned_gpu,omitempty"`
	Quotas    Quotas `json:"quotas"`
}

// PinnedFirst are a VM's adapters in the order in which they find a partition (assumption hyperv-emptier-gpu).
func (v *VM) PinnedFirst() []PartitionAdapter {
	if len(v.PartitionAdapters) < 2 {
		return v.PartitionAdapters
	}
	var pinned, others []PartitionAdapter
	for _, a := range v.PartitionAdapters {
		if a.PinnedGPU != "" {
			pinned = append(pinned, a)
		} else {
			others = append(others, a)
		}
	}
	return append(pinned, others...)
}

// Quotas are an adapter's minimum, maximum and optimal shares. Nil leaves a value
// to the host; 2^64-1 means "no limit" for everything but VRAM. VRAM is bytes,
// the rest driver units.
type Quotas struct {
	VRAM    Quota `json:"vram"`
	Encode  Quota `json:"encode"`
	Decode  Quota `json:"decode"`
	Compute Quota `json:"compute"`
}

// Quota is one resource's share.
type Quota struct {
	Min     *uint64 `json:"min,omitempty"`
	Max     *uint64 `json:"max,omitempty"`
	Optimal *uint64 `json:"optimal,omitempty"`
}

// Empty tells whether no quota is set.
func (q Quotas) Empty() bool { return q == Quotas{} }

// Equal compares two sets of quotas by value.
func (q Quotas) Equal(o Quotas) bool {
	return q.VRAM.equal(o.VRAM) && q.Encode.equal(o.Encode) && q.Decode.equal(o.Decode) && q.Compute.equal(o.Compute)
}

func (q Quota) equal(o Quota) bool {
	return equalPtr(q.Min, o.Min) && equalPtr(q.Max, o.Max) && equalPtr(q.Optimal, o.Optimal)
}

func equalPtr[T comparable](a, b *T) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}

// DeviceAssignment is a whole GPU for a VM, from a pool or by its id, or a vGPU. Exactly one
// of Pool and GPU is configured; a running VM's pool assignment also has the GPU
// that it got.
type DeviceAssignment struct {
	ID   string `json:"id"` // id of the setting; "" before it is added
	Pool string `json:"pool,omitempty"`
	GPU  string `json:"gpu,omitempty"`
	// VGPU is the vGPU of that GPU which a VM of a Linux host has in place of the whole GPU; nil for the whole.
	VGPU *VGPUPlace `json:"vgpu,omitempty"`
}

// IsVGPU reports whether it is a certain vGPU of a GPU, whichever type that has by now.
func (d *DeviceAssignment) IsVGPU(gpuID string, p VGPUPlace) bool {
	return d != nil && d.VGPU != nil && SameID(d.GPU, gpuID) && d.VGPU.Function == p.Function &&
		(d.VGPU.UUID == "" || p.UUID == "" || SameID(d.VGPU.UUID, p.UUID))
}

// IsCopy reports whether this is a replica that nobody has failed over to: the VM itself is on
// another host.
func (v *VM) IsCopy() bool { return v.Replica && !v.Runs() }

// Started reports whether a VM that was off has been started since, and may have been paused or saved then.
func (v *VM) Started() bool { return v.Runs() || v.State == VMPaused || v.State == VMSaved }

// Runs tells whether the VM executes or is about to.
func (v *VM) Runs() bool { return v.State == VMRunning || v.State == VMStarting }

// SameMiB reports whether two amounts of memory are one in whole MiB, in which configurations declare
// them: hosts may have bytes that no number of MiB is.
func SameMiB(a, b uint64) bool { return Bytes(a).MiB() == Bytes(b).MiB() }

// Has tells whether q has every quota that want sets.
func (q Quotas) Has(want Quotas) bool {
	return q.VRAM.Declared(want.VRAM).has(want.VRAM) && q.Encode.has(want.Encode) && q.Decode.has(want.Decode) && q.Compute.has(want.Compute)
}

// Declared is a quota of memory in the figures of another one where these are the same in whole MiB.
func (q Quota) Declared(as Quota) Quota {
	one := func(have, as *uint64) *uint64 {
		if have != nil && as != nil && SameMiB(*have, *as) {
			return as
		}
		return have
	}
	return Quota{Min: one(q.Min, as.Min), Max: one(q.Max, as.Max), Optimal: one(q.Optimal, as.Optimal)}
}

func (q Quota) has(want Quota) bool {
	return !differs(q.Min, want.Min) && !differs(q.Max, want.Max) && !differs(q.Optimal, want.Optimal)
}

// Lacks tells whether a figure that the other quotas have is not set.
func (q Quotas) Lacks(other Quotas) bool {
	lacks := func(q, o Quota) bool {
		return q.Min == nil && o.Min != nil || q.Max == nil && o.Max != nil || q.Optimal == nil && o.Optimal != nil
	}
	return lacks(q.VRAM, other.VRAM) || lacks(q.Encode, other.Encode) || lacks(q.Decode, other.Decode) || lacks(q.Compute, other.Compute)
}

// AdapterFor is the adapter that an assignment made, or nil. Hyper-V marks adapters
// with nothing of ours, and a change of the partition count makes new ones: the one
// most like what is wanted is it.
func (v *VM) AdapterFor(w *PartitionWant) *PartitionAdapter {
	var best *PartitionAdapter
	likeness := 0
	for i := range v.PartitionAdapters {
		a := &v.PartitionAdapters[i]
		n := 0
		switch pinned := SameID(a.PinnedGPU, w.PinnedGPU); {
		case pinned && a.Quotas.Equal(w.Quotas):
			n = 3
		case pinned && a.Quotas.Has(w.Quotas):
			n = 2
		case pinned || len(v.PartitionAdapters) == 1:
			n = 1
		}
		if n > likeness {
			best, likeness = a, n
		}
	}
	return best
}
