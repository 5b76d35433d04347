package fakewmi

import (
	"html"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// enabledStates are values of EnabledState. A state that a fleet knows no name for is
// shown as saving, one of those that pass.
var enabledStates = map[gpu.VMState]int{
	gpu.VMRunning: 2, gpu.VMOff: 3, gpu.VMStopping: 4, gpu.VMSaved: 6, gpu.VMPaused: 9, gpu.VMStarting: 10, gpu.VMOther: 32773,
}

// datetime is a time as CIM writes it.
func datetime(t time.Time) string { return t.UTC().Format("20060102150405.000000") + "+000" }

func vmGUID(vm *gpu.VM) string { return strings.ToUpper(vm.ID) }

// computers are the host and its VMs.
func (v *view) computers() []*Object {
	const class = "Msvm_ComputerSystem"
	out := []*Object{v.make(class, fields{
		"CreationClassName": class, "Name": v.host.Name, "ElementName": v.host.Name,
		"Caption": "Hosting Computer System", "Description": "Microsoft Hosting Computer System",
		"EnabledState": 2, "RequestedState": 12, "HealthState": 5, "OperationalStatus": []any{2},
	})}
	for i := range v.host.VMs {
		vm := &v.host.VMs[i]
		f := fields{
			"CreationClassName": class, "Name": vmGUID(vm), "ElementName": vm.Name,
			"Caption": "Virtual Machine", "Description": "Microsoft Virtual Machine",
			"EnabledState": enabledStates[vm.State], "RequestedState": 12, "HealthState": 5, "OperationalStatus": []any{2},
			"OnTimeInMilliseconds": 0, "ReplicationMode": 0,
		}
		if vm.Replica {
			f["ReplicationMode"] = 2
		}
		if holdsMemory(vm) {
			f["ProcessID"], f["OnTimeInMilliseconds"] = 4000+4*i, 60000
		}
		out = append(out, v.make(class, f))
	}
	return out
}

func holdsMemory(vm *gpu.VM) bool { return vm.State != gpu.VMOff && vm.State != gpu.VMSaved }

const (
	realizedSystem   = "Microsoft:Hyper-V:System:Realized"
	realizedSnapshot = "Microsoft:Hyper-V:Snapshot:Realized"
)

var (
	stopActions     = map[gpu.StopAction]int{gpu.StopTurnOff: 2, gpu.StopSave: 3, gpu.StopShutDown: 4}
	checkpointTypes = map[gpu.CheckpointType]int{
		gpu.CheckpointsDisabled: 2, gpu.CheckpointsProduction: 3, gpu.CheckpointsProductionOnly: 4, gpu.CheckpointsStandard: 5,
	}
)

// What a VM has that nobody configured.
const (
	defaultLowMMIO  = 128 // MB
	defaultHighMMIO = 512 // MB
	defaultStop     = 3   // save
	defaultSnapshot = 3   // production, standard where that fails
)

func systemID(guid string) string { return "Microsoft:" + guid }

// snapshotOf is the id of the one checkpoint of a VM that has any.
func snapshotOf(vm *gpu.VM) (string, bool) {
	return derivedGUID("snapshot", vm.ID), vm.Checkpoints != "" && vm.Checkpoints != gpu.CheckpointsDisabled
}

// systemSettings are the settings of each VM, and those of its checkpoint.
func (v *view) systemSettings() []*Object {
	var out []*Object
	for i := range v.host.VMs {
		vm := &v.host.VMs[i]
		out = append(out, v.systemSetting(vm, vmGUID(vm), realizedSystem))
		if id, ok := snapshotOf(vm); ok {
			out = append(out, v.systemSetting(vm, id, realizedSnapshot))
		}
	}
	return out
}

func (v *view) systemSetting(vm *gpu.VM, guid, kind string) *Object {
	s := vm.Settings
	f := fields{
		"InstanceID": systemID(guid), "ElementName": vm.Name, "Caption": "Virtual Machine Settings",
		"VirtualSystemIdentifier": vmGUID(vm), "VirtualSystemType": kind,
		"VirtualSystemSubType": "Microsoft:Hyper-V:SubType:2", "Version": "12.0", "Notes": []any{},
		"ConfigurationID": guid, "CreationTime": "20260105080000.000000-000",
		"ConfigurationDataRoot": `C:\ProgramData\Microsoft\Windows\Hyper-V`,
		"LowMmioGapSize":        defaultLowMMIO, "HighMmioGapSize": defaultHighMMIO, "HighMmioGapBase": 65024,
		"GuestControlledCacheTypes": false, "AutomaticShutdownAction": defaultStop, "AutomaticStartupAction": 3,
		"AutomaticRecoveryAction": 3, "UserSnapshotType": defaultSnapshot, "IsSaved": vm.State == gpu.VMSaved,
		"VirtualNumaEnabled": true, "SecureBootEnabled": true,
	}
	if vm.Generation == 1 {
		f["VirtualSystemSubType"], f["SecureBootEnabled"] = "Microsoft:Hyper-V:SubType:1", false
	}
	if vm.Clustered {
		f["ConfigurationDataRoot"] = `C:\ClusterStorage\Volume1\` + vm.Name
	}
	if n, ok := checkpointTypes[vm.Checkpoints]; ok {
		f["UserSnapshotType"] = n
	}
	if s.LowMemoryMappedIOSpace != nil {
		f["LowMmioGapSize"] = uint64(*s.LowMemoryMappedIOSpace / gpu.MiB)
	}
	if s.HighMemoryMappedIOSpace != nil {
		f["HighMmioGapSize"] = uint64(*s.HighMemoryMappedIOSpace / gpu.MiB)
	}
	if s.GuestControlledCache != nil {
		f["GuestControlledCacheTypes"] = *s.GuestControlledCache
	}
	if s.AutomaticStopAction != nil {
		f["AutomaticShutdownAction"] = stopActions[*s.AutomaticStopAction]
	}
	return v.make("Msvm_VirtualSystemSettingData", f)
}

func memoryID(owner string) string { return settingID(owner, "4764334D-E001-4176-82EE-5594EC9B530E") }

// memorySettings are the memory of each VM, and the templates.
func (v *view) memorySettings() []*Object {
	var out []*Object
	for i := range v.host.VMs {
		vm := &v.host.VMs[i]
		out = append(out, v.setting(memoryResource, memoryID(vmGUID(vm)), fields{
			"DynamicMemoryEnabled": vm.DynamicMemory, "VirtualQuantity": 4096, "Limit": 1 << 20, "Reservation": 4096, "TargetMemoryBuffer": 20,
		}))
	}
	for _, t := range v.templates(memoryResource) {
		t.values["dynamicmemoryenabled"] = false
		out = append(out, t)
	}
	return out
}

// shutdownComponents are there for guests that run and have the integration service.
func (v *view) shutdownComponents() []*Object {
	guests, err := v.guests()
	if err != nil {
		v.err = err
		return nil
	}
	const class = "Msvm_ShutdownComponent"
	var out []*Object
	for i := range v.host.VMs {
		vm := &v.host.VMs[i]
		if vm.State != gpu.VMRunning || guests[gpu.FoldID(vm.ID)].NoIntegration {
			continue
		}
		out = append(out, v.make(class, fields{
			"SystemCreationClassName": "Msvm_ComputerSystem", "SystemName": vmGUID(vm), "CreationClassName": class,
			"DeviceID": settingID(vmGUID(vm), "9F8233AC-BE49-4C79-8EE3-E7E1985B2077"), "ElementName": "Shutdown", "EnabledState": 2,
			"OperationalStatus": []any{2},
		}))
	}
	return out
}

// exchangeComponents are what the guests tell of themselves, of VMs that run.
func (v *view) exchangeComponents() []*Object {
	guests, err := v.guests()
	if err != nil {
		v.err = err
		return nil
	}
	const class = "Msvm_KvpExchangeComponent"
	var out []*Object
	for i := range v.host.VMs {
		vm := &v.host.VMs[i]
		var items []any
		if vm.Guest != "" && vm.State == gpu.VMRunning && !guests[gpu.FoldID(vm.ID)].NoIntegration {
			for _, item := range [][2]string{{"OSName", vm.Guest}, {"ProcessorArchitecture", "9"}} {
				items = append(items, `<INSTANCE CLASSNAME="Msvm_KvpExchangeDataItem"><PROPERTY NAME="Caption" TYPE="string"></PROPERTY>`+
					`<PROPERTY NAME="Data" TYPE="string"><VALUE>`+html.EscapeString(item[1])+`</VALUE></PROPERTY>`+
					`<PROPERTY NAME="Name" TYPE="string"><VALUE>`+item[0]+`</VALUE></PROPERTY><PROPERTY NAME="Source" `+
					`TYPE="uint16"><VALUE>2</VALUE></PROPERTY></INSTANCE>`)
			}
		}
		out = append(out, v.make(class, fields{
			"SystemCreationClassName": "Msvm_ComputerSystem", "SystemName": vmGUID(vm), "CreationClassName": class,
			"DeviceID": settingID(vmGUID(vm), "2A34B1C2-FD73-4043-8A5B-DD2159BC743F"), "ElementName": "Key-Value Pair Exchange",
			"GuestIntrinsicExchangeItems": items,
		}))
	}
	return out
}

// guests are how the host's guests behave, by folded id of their VM.
func (v *view) guests() (map[string]simulated.Guest, error) {
	out := map[string]simulated.Guest{}
	err := v.machine.fleet.EditSimulation(v.ctx, v.host.Name, func(s *simulated.Simulation) {
		for id, g := range s.Guests {
			out[gpu.FoldID(id)] = g
		}
	})
	return out, err
}
