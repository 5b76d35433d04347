package hyperv

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func (r *reader) operatingSystem(ctx context.Context) error {
	rows, err := r.wmi.Query(ctx, CIMv2, "SELECT * FROM Win32_OperatingSystem", "Caption", "BuildNumber", "CSName", "LastBootUpTime")
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return errors.New("the host does not tell its operating system")
	}
	build, _ := strconv.Atoi(rows[0].String("BuildNumber"))
	r.host.OS = gpu.OS{
		Name:  strings.TrimSpace(strings.TrimPrefix(rows[0].String("Caption"), "Microsoft ")),
		Build: build,
	}
	r.host.Name = rows[0].String("CSName")
	r.host.Boot = boot(rows[0].String("LastBootUpTime"))
	return nil
}

// boot reads a time of WMI, as yyyymmddHHMMSS.mmmmmm and the offset to UTC in minutes; nil for
// what is none. Windows has no other name for a boot.
// https://learn.microsoft.com/en-us/windows/win32/wmisdk/cim-datetime
func boot(s string) *gpu.Boot {
	at := strings.LastIndexAny(s, "+-")
	if at < 0 {
		return nil
	}
	local, err := time.Parse("20060102150405.000000", s[:at])
	minutes, errOffset := strconv.Atoi(s[at:])
	if err != nil || errOffset != nil {
		return nil
	}
	return &gpu.Boot{ID: s, At: local.Add(-time.Duration(minutes) * time.Minute)}
}

func (r *reader) osVersion(ctx context.Context) error {
	version, err := r.registry(ctx, "GetStringValue", `SOFTWARE\Microsoft\Windows NT\CurrentVersion`, "DisplayVersion")
	if err != nil {
		return err
	}
	r.host.OS.Version, _ = version["sValue"].(string)
	return nil
}

// policyKey holds the values that forbid devices which are not certified.
const policyKey = `SOFTWARE\Policies\Microsoft\Windows\HyperV`

func (r *reader) policies(ctx context.Context) error {
	var failed error
	for name, value := range map[string]**bool{
		"RequireSecureDeviceAssignment":    &r.host.Policies.RequireSecureDeviceAssignment,
		"RequireSupportedDeviceAssignment": &r.host.Policies.RequireSupportedDeviceAssignment,
	} {
		out, err := r.registry(ctx, "GetDWORDValue", policyKey, name)
		failed = cmp.Or(failed, err)
		if n, ok := number(out["uValue"]); ok {
			*value = new(n != 0)
		}
	}
	return failed
}

// localMachine is HKEY_LOCAL_MACHINE, 0x80000002 as a signed number.
const localMachine int32 = -0x7ffffffe

// registry reads a value; there are no out parameters when there is none.
func (r *reader) registry(ctx context.Context, method, key, value string) (map[string]any, error) {
	res, err := r.wmi.Invoke(ctx, Registry, "StdRegProv", method, map[string]any{
		"hDefKey": localMachine, "sSubKeyName": key, "sValueName": value,
	})
	if err != nil {
		return nil, err
	}
	switch res.ReturnValue {
	case completed:
		return res.Out, nil
	case winFileNotFound, otherType, uint32(typeMismatch):
		return nil, nil
	default:
		return nil, refusedByWindows("read registry value "+key+`\`+value, res.ReturnValue, policyRight)
	}
}

// otherType is what StdRegProv answers for a value of another type, where it does not
// answer WBEM_E_TYPE_MISMATCH.
const otherType = 1

// Values of Msvm_ComputerSystem.EnabledState that do not pass by themselves, and the
// two that tell where a VM is going.
var vmStates = map[uint64]gpu.VMState{
	2: gpu.VMRunning, 3: gpu.VMOff, 4: gpu.VMStopping, 6: gpu.VMSaved, 9: gpu.VMPaused, 10: gpu.VMStarting,
}

// replicas are the values of Msvm_ComputerSystem.ReplicationMode of the copies that Hyper-V Replica
// keeps of a VM, under its id: replica and extended replica (assumption hyperv-replica-id). A test
// replica is a VM of its own.
var replicas = map[uint64]bool{2: true, 4: true}

func vmState(enabled uint64) gpu.VMState {
	if s, ok := vmStates[enabled]; ok {
		return s
	}
	return gpu.VMOther
}

// computers reads the host's own row and those of its VMs. A VM's row is known by its
// name, which is a GUID; captions are in the host's language.
func (r *reader) computers(ctx context.Context) error {
	alone := len(r.only) > 0
	if alone && !slices.ContainsFunc(r.only, guid.MatchString) {
		return nil // no VM has such an id
	}
	named := r.ofVMs(func(id string) string { return "Name=" + literal(id) })
	rows, err := r.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_ComputerSystem"+named, "Name",
		"ElementName", "EnabledState", "ReplicationMode")
	if err != nil {
		return err
	}
	if len(rows) == 0 && alone {
		// Hyper-V shows nothing to an account without rights, and no VM is then no answer.
		if _, err := r.nodeName(ctx); err != nil {
			return &noHyperV{err}
		}
	}
	shown := alone
	for _, row := range rows {
		id := row.String("Name")
		if !guid.MatchString(id) {
			if alone {
				continue
			}
			r.host.Name, shown = row.String("ElementName"), true
			continue
		}
		r.host.VMs = append(r.host.VMs, gpu.VM{
			ID: strings.ToUpper(id), Name: row.String("ElementName"), State: vmState(row.Uint("EnabledState")),
			Replica: replicas[row.Uint("ReplicationMode")],
		})
		if row.value("EnabledState") == nil {
			r.lacks(ctx, gpu.Unknown{Part: gpu.PartVMs, VM: strings.ToUpper(id)}, isNull("Msvm_ComputerSystem", "EnabledState"))
		}
		r.machines[gpu.FoldID(id)] = &machine{path: row.Path, adapters: map[string]string{}, devices: map[string]string{}}
	}
	if !shown {
		return &noHyperV{r.nothingShown(ctx)}
	}
	slices.SortFunc(r.host.VMs, func(a, b gpu.VM) int {
		return strings.Compare(gpu.FoldID(a.Name)+"\x00"+a.ID, gpu.FoldID(b.Name)+"\x00"+b.ID)
	})
	return nil
}

// noHyperV is why there is nothing of Hyper-V to read.
type noHyperV struct{ error }

func (e *noHyperV) Is(target error) bool { return target == errNoHyperV }

func (e *noHyperV) Unwrap() error { return e.error }

// nothingShown is why Hyper-V shows not even the host itself. It does not deny access to
// accounts without rights, it shows them nothing.
func (b *Backend) nothingShown(ctx context.Context) error {
	rows, err := b.wmi.Query(ctx, CIMv2, "SELECT * FROM Win32_Service WHERE Name='vmms'", "Name", "State")
	switch {
	case err != nil:
		return err
	case len(rows) == 0:
		return refuse(backend.NotSupported, "the host has no Hyper-V: there is no service vmms")
	case rows[0].String("State") != serviceRunning:
		return refuse(backend.Unavailable, "the service of Hyper-V is %s: Start-Service vmms", rows[0].String("State"))
	default:
		return refuse(backend.AccessDenied, "Hyper-V runs and shows nothing in Msvm_ComputerSystem of %s: %s", Virtualization, hypervRight)
	}
}

const (
	realized    = "Microsoft:Hyper-V:System:Realized"
	generation2 = "Microsoft:Hyper-V:SubType:2"
)

var (
	stopActions     = map[uint64]gpu.StopAction{2: gpu.StopTurnOff, 3: gpu.StopSave, 4: gpu.StopShutDown}
	checkpointTypes = map[uint64]gpu.CheckpointType{
		2: gpu.CheckpointsDisabled, 3: gpu.CheckpointsProduction, 4: gpu.CheckpointsProductionOnly, 5: gpu.CheckpointsStandard,
	}
	offlineActions = map[uint64]gpu.OfflineAction{
		0: gpu.OfflineTurnOff, 1: gpu.OfflineSave, 2: gpu.OfflineShutDown, 3: gpu.OfflineForcedShutdown,
	}
)

// settings reads the settings of VMs. A checkpoint has a row of its own, of another
// type.
func (r *reader) settings(ctx context.Context) error {
	properties := append([]string{"VirtualSystemIdentifier", "VirtualSystemSubType", "UserSnapshotType"}, settingProperties...)
	var rows []Row
	var err error
	if len(r.only) == 0 {
		rows, err = r.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_VirtualSystemSettingData WHERE VirtualSystemType="+literal(realized),
			properties...)
	}
	for _, id := range r.only {
		vm, ok := r.host.VM(id)
		if !ok {
			continue
		}
		id = instancePrefix + keyOf(r.machine(vm).path, "Name")
		row, failed := r.wmi.Get(ctx, Virtualization, `Msvm_VirtualSystemSettingData.InstanceID="`+id+`"`, properties...)
		if failed == nil {
			rows = append(rows, row)
		} else if !errors.Is(failed, NotFound) {
			err = cmp.Or(err, failed)
		}
	}
	if err != nil {
		return err
	}
	for _, row := range rows {
		vm, ok := r.host.VM(row.String("VirtualSystemIdentifier"))
		if !ok {
			continue // the VM was created after the rows of the VMs were read
		}
		r.machine(vm).settings = row.Path
		switch row.String("VirtualSystemSubType") {
		case "": // not known
		case generation2:
			vm.Generation = 2
		default:
			vm.Generation = 1
		}
		vm.Checkpoints = checkpointTypes[row.Uint("UserSnapshotType")]
		vm.Settings = settingsOf(row)
	}
	return nil
}

// settingProperties are those of a VM's settings that matter to a GPU.
var settingProperties = []string{"LowMmioGapSize", "HighMmioGapSize", "GuestControlledCacheTypes", "AutomaticShutdownAction"}

func settingsOf(row Row) gpu.VMSettings {
	out := gpu.VMSettings{
		LowMemoryMappedIOSpace:  megabytes(row.UintPtr("LowMmioGapSize")),
		HighMemoryMappedIOSpace: megabytes(row.UintPtr("HighMmioGapSize")),
		GuestControlledCache:    row.BoolPtr("GuestControlledCacheTypes"),
	}
	if action, ok := stopActions[row.Uint("AutomaticShutdownAction")]; ok {
		out.AutomaticStopAction = &action
	}
	return out
}

func megabytes(n *uint64) *gpu.Bytes {
	if n == nil {
		return nil
	}
	return new(gpu.Bytes(*n) * gpu.MiB)
}

// memory reads which VMs have dynamic memory.
func (r *reader) memory(ctx context.Context) error {
	rows, err := r.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_MemorySettingData"+r.ofVMs(settingsOfVM),
		"InstanceID", "DynamicMemoryEnabled")
	if err != nil {
		return err
	}
	for _, row := range rows {
		if id, _, ok := settingID(row.String("InstanceID")); ok {
			if vm, ok := r.host.VM(id); ok {
				vm.DynamicMemory = row.Bool("DynamicMemoryEnabled")
			}
		}
	}
	return nil
}

// finish brings what was read in a lasting order and derives the statuses.
func (r *reader) finish() {
	for i := range r.host.GPUs {
		r.host.GPUs[i].Status = r.status(&r.host.GPUs[i])
	}
	slices.SortFunc(r.host.GPUs, func(a, b gpu.GPU) int { return strings.Compare(gpu.FoldID(a.ID), gpu.FoldID(b.ID)) })
	slices.SortFunc(r.host.Pools, func(a, b gpu.Pool) int { return strings.Compare(gpu.FoldID(a.Name), gpu.FoldID(b.Name)) })
}

// status is the assigned status, in the order in which Windows Admin Center asks.
func (r *reader) status(g *gpu.GPU) gpu.Status {
	for i := range r.host.VMs {
		for _, d := range r.host.VMs[i].Devices {
			if gpu.SameID(d.GPU, g.ID) {
				return gpu.Assigned
			}
		}
	}
	switch {
	case g.Dismounted:
		return gpu.ReadyForDDA
	case g.Partitionable != nil && g.Partitionable.Paravirtual:
		return gpu.Paravirtualization
	case g.Partitionable != nil:
		return gpu.Partitioned
	case g.Status == gpu.NotAssignable:
		return gpu.NotAssignable
	default:
		return gpu.ReadyForDDA
	}
}
