package fakewmi_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Return values and error codes of jobs.
const (
	done             = 0
	notSupported     = 32770
	invalidParameter = 32773
	inUse            = 32774
	invalidState     = 32775
	outOfMemory      = 32778
	locked           = 32781
	shuttingDown     = 32782
	objectExists     = 32788
)

const (
	partitionSettings = "Msvm_GpuPartitionSettingData"
	deviceSettings    = "Msvm_PciExpressSettingData"
)

// In parameters are checked before anything is done.
func TestParametersThatAreRefused(t *testing.T) {
	r := newRig(t)
	management := r.service("Msvm_VirtualSystemManagementService")
	_, err := r.wmi.Invoke(t.Context(), hyperv.Virtualization, management, "AddResourceSetting", nil)
	wantFault(t, "a method that is not there", err, hyperv.InvalidMethod)
	_, err = r.wmi.Invoke(t.Context(), hyperv.Virtualization, management, "AddResourceSettings", map[string]any{"Affected": "x"})
	wantFault(t, "a parameter that is not there", err, hyperv.InvalidParameter)
	_, err = r.wmi.Invoke(t.Context(), hyperv.Virtualization, management, "AddResourceSettings", map[string]any{"ResourceSettings": "x"})
	wantFault(t, "a string for an array", err, 0x80041005)
	_, err = r.wmi.Invoke(t.Context(), hyperv.Virtualization, management, "AddResourceSettings", map[string]any{"ResourceSettings": []int{1}})
	wantFault(t, "what is no value of automation", err, hyperv.InvalidParameter)
	_, err = r.wmi.Invoke(t.Context(), hyperv.Virtualization, strings.Replace(management, "vmms", "x", 1), "AddResourceSettings", nil)
	wantFault(t, "an instance that is not there", err, hyperv.NotFound)
	_, err = r.wmi.Invoke(t.Context(), hyperv.Virtualization, "Msvm_VirtualSystemManagementService", "AddResourceSettings", nil)
	wantFault(t, "a method of an instance on its class", err, 0x8004102F)

	// What is missing is an answer of Hyper-V, and a fault elsewhere.
	r.returns(invalidParameter, management, "AddResourceSettings", map[string]any{"AffectedConfiguration": r.settings(alpha)})
	_, err = r.wmi.Invoke(t.Context(), hyperv.Registry, "StdRegProv", "GetDWORDValue", nil)
	wantFault(t, "a missing parameter", err, 0x8004102F)

	// The same through the repository: parameters of another method, or of other types.
	n, err := r.machine.Open(hyperv.Virtualization)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := class(t, r, "Msvm_VirtualSystemManagementService").Method("ModifySystemSettings")
	in := other.Parameters()
	r.run(in.Set("SystemSettings", "x"))
	_, err = n.Call(t.Context(), management, "AddResourceSettings", in)
	wantFault(t, "the parameters of another method", err, 0x8004102F)
}

func TestAddingAndRemovingAdapters(t *testing.T) {
	r := newRig(t)
	management := r.service("Msvm_VirtualSystemManagementService")
	text := r.template(partitionSettings)
	face := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu WHERE PartitionCount=4").Path
	add := func(vm string, settings ...string) map[string]any {
		return map[string]any{"AffectedConfiguration": r.settings(vm), "ResourceSettings": settings}
	}
	before := r.host()
	for name, in := range map[string]map[string]any{
		"no settings":               add(alpha),
		"no XML":                    add(alpha, "instance of Msvm_GpuPartitionSettingData {};"),
		"two instances":             add(alpha, text+text),
		"a class that is not there": add(alpha, strings.Replace(text, partitionSettings, "Msvm_Gpu", 1)),
		"a class of no resource":    add(alpha, `<INSTANCE CLASSNAME="Msvm_ResourcePoolSettingData"></INSTANCE>`),
		"a property that is not there": add(alpha,
			strings.Replace(text, "</INSTANCE>", `<PROPERTY NAME="X" TYPE="string"></PROPERTY></INSTANCE>`, 1)),
		"a property of another type":        add(alpha, strings.Replace(text, `TYPE="uint16"`, `TYPE="uint32"`, 1)),
		"a value of another type":           add(alpha, patch(t, text, "Weight", "<VALUE>heavy</VALUE>")),
		"an array as a value":               add(alpha, patch(t, text, "ResourceType", array("32770"))),
		"a bare instance":                   add(alpha, `<INSTANCE CLASSNAME="Msvm_GpuPartitionSettingData"></INSTANCE>`),
		"another resource type":             add(alpha, patch(t, text, "ResourceType", "<VALUE>32769</VALUE>")),
		"another subtype":                   add(alpha, patch(t, text, "ResourceSubType", "<VALUE>Microsoft:Hyper-V:Memory</VALUE>")),
		"a pool of partitions":              add(alpha, patch(t, text, "PoolID", "<VALUE>vdi</VALUE>")),
		"quotas with the addition":          add(alpha, patch(t, text, "MinPartitionVRAM", "<VALUE>1</VALUE>")),
		"a GPU's name as its host resource": add(alpha, patch(t, text, "HostResource", array(nameA))),
		"a GPU that has gone":               add(alpha, patch(t, text, "HostResource", array(strings.Replace(face, "18416dc3", "0", 1)))),
		"a GPU of another host":             add(alpha, patch(t, text, "HostResource", array(strings.Replace(face, "HV01", "HV02", 1)))),
		"two GPUs":                          add(alpha, patch(t, text, "HostResource", array(face, face))),
		"a generation 1 VM":                 add(beta, text),
		"one that is good, one that is not": add(alpha, text, patch(t, text, "PoolID", "<VALUE>vdi</VALUE>")),
		"a VM instead of its settings": {
			"AffectedConfiguration": r.one(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='"+alpha+"'").Path,
			"ResourceSettings":      []string{text},
		},
		"a checkpoint's settings": {
			"AffectedConfiguration": r.one(hyperv.Virtualization,
				"SELECT * FROM Msvm_VirtualSystemSettingData WHERE VirtualSystemType LIKE '%Snapshot%'").Path,
			"ResourceSettings": []string{text},
		},
	} {
		if r.returns(invalidParameter, management, "AddResourceSettings", in); r.Failed() {
			t.Fatal(name)
		}
	}
	if after := r.host(); !reflect.DeepEqual(before, after) {
		t.Error("what was refused changed the host")
	}

	r.returns(done, management, "AddResourceSettings", add(alpha, patch(t, text, "HostResource", array(face))))
	adapters := r.vm(alpha).PartitionAdapters
	if len(adapters) != 1 || adapters[0].PinnedGPU != gpuA {
		t.Fatalf("the adapters are %+v", adapters)
	}
	adapter := r.one(hyperv.Virtualization, `SELECT * FROM Msvm_GpuPartitionSettingData WHERE NOT InstanceID LIKE '%Definition%'`,
		"InstanceID", "HostResource")
	if want := `Microsoft:` + alpha + `\` + adapters[0].ID; adapter.String("InstanceID") != want ||
		adapter.Strings("HostResource")[0] != face {
		t.Errorf("the setting is %+v, want %s", adapter, want)
	}

	modified, err := r.wmi.Text(t.Context(), hyperv.Virtualization, adapter.Path)
	r.run(err)
	modify := func(text string) map[string]any { return map[string]any{"ResourceSettings": []string{text}} }
	r.returns(invalidParameter, management, "ModifyResourceSettings", modify(text)) // a template
	r.returns(invalidParameter, management, "ModifyResourceSettings", modify(patch(t, modified, "ResourceSubType", "<VALUE>x</VALUE>")))
	r.returns(invalidParameter, management, "ModifyResourceSettings",
		modify(patch(t, modified, "MinPartitionVRAM", "<VALUE>18446744073709551615</VALUE>")))
	r.returns(done, management, "ModifyResourceSettings", modify(patch(t, modified, "MinPartitionVRAM", "<VALUE>4000</VALUE>")))
	if q := r.vm(alpha).PartitionAdapters[0].Quotas.VRAM.Min; q == nil || *q != 4000 {
		t.Errorf("the quota is %v", q)
	}

	remove := map[string]any{"ResourceSettings": []string{adapter.Path}}
	r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning))
	r.returns(invalidState, management, "AddResourceSettings", add(alpha, text))
	r.returns(invalidState, management, "ModifyResourceSettings", modify(modified))
	r.returns(invalidState, management, "RemoveResourceSettings", remove)
	r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMOff))
	r.returns(done, management, "RemoveResourceSettings", remove)
	r.returns(invalidParameter, management, "RemoveResourceSettings", remove) // gone
	if n := len(r.vm(alpha).PartitionAdapters); n != 0 {
		t.Errorf("%d adapters are left", n)
	}
}

func TestWritingSystemSettings(t *testing.T) {
	r := newRig(t)
	management := r.service("Msvm_VirtualSystemManagementService")
	text, err := r.wmi.Text(t.Context(), hyperv.Virtualization, r.settings(alpha))
	r.run(err)
	modify := func(text string) map[string]any { return map[string]any{"SystemSettings": text} }
	r.returns(done, management, "ModifySystemSettings", modify(text)) // as it is
	r.returns(invalidParameter, management, "ModifySystemSettings", modify(patch(t, text, "InstanceID", "<VALUE>Microsoft:"+gpuA+"</VALUE>")))
	r.returns(invalidParameter, management, "ModifySystemSettings", modify(patch(t, text, "AutomaticShutdownAction", "<VALUE>9</VALUE>")))
	r.returns(invalidParameter, management, "ModifySystemSettings", modify(patch(t, text, "Version", "<VALUE>9.0</VALUE>")))
	r.returns(invalidParameter, management, "ModifySystemSettings", modify(r.template(partitionSettings)))
	changed := patch(t, patch(t, patch(t, text, "LowMmioGapSize", "<VALUE>3072</VALUE>"), "GuestControlledCacheTypes", "<VALUE>TRUE</VALUE>"),
		"AutomaticShutdownAction", "<VALUE>2</VALUE>")
	r.returns(done, management, "ModifySystemSettings", modify(changed))
	s := r.vm(alpha).Settings
	if *s.LowMemoryMappedIOSpace != 3072*gpu.MiB || !*s.GuestControlledCache || *s.AutomaticStopAction != gpu.StopTurnOff ||
		s.HighMemoryMappedIOSpace != nil {
		t.Errorf("the settings are %+v", s)
	}
	r.run(r.fleet.SetVMState(t.Context(), alpha, gpu.VMRunning))
	r.returns(invalidState, management, "ModifySystemSettings", modify(text))
	r.returns(done, management, "ModifySystemSettings", modify(patch(t, changed, "AutomaticShutdownAction", "<VALUE>4</VALUE>")))
}

func TestPoolsAndDevices(t *testing.T) {
	r := newRig(t)
	service, management := r.service("Msvm_ResourcePoolConfigurationService"), r.service("Msvm_VirtualSystemManagementService")
	pool := func(name string) string {
		return r.one(hyperv.Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE ResourceType=32769 AND PoolID='"+name+"'").Path
	}
	primordial := pool("")
	settings, err := r.wmi.Text(t.Context(), hyperv.Virtualization,
		r.one(hyperv.Virtualization, "ASSOCIATORS OF {"+primordial+"} WHERE ResultClass=Msvm_ResourcePoolSettingData").Path)
	r.run(err)
	device := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_PciExpress", "SystemName", "DeviceInstancePath", "LocationPath")
	if device.String("SystemName") != "hv01" || device.String("DeviceInstancePath") != instanceC || device.String("LocationPath") != gpuC {
		t.Errorf("the device is %+v", device)
	}
	allocation := r.template(deviceSettings)
	named := func(name string) string { return patch(t, settings, "PoolID", "<VALUE>"+name+"</VALUE>") }
	create := func(settings string, parents []string, allocations ...string) map[string]any {
		return map[string]any{"PoolSettings": settings, "ParentPools": parents, "AllocationSettings": allocations}
	}
	one := []string{primordial}
	for name, in := range map[string]map[string]any{
		"no name":                    create(settings, one, allocation),
		"a reserved name":            create(named("primordial"), one, allocation),
		"no parent":                  create(named("new"), []string{}),
		"a parent too few":           create(named("new"), one, allocation, allocation),
		"a parent that is not there": create(named("new"), []string{strings.Replace(primordial, "Microsoft:", "x", 1)}, allocation),
		"a pool below a pool":        create(named("new"), []string{pool("vdi")}, allocation),
		"an allocation of memory":    create(named("new"), one, patch(t, allocation, "ResourceType", "<VALUE>4</VALUE>")),
		"an allocation of some pool": create(named("new"), one, patch(t, allocation, "PoolID", "<VALUE>vdi</VALUE>")),
		"a member that is not there": create(named("new"), one,
			patch(t, allocation, "HostResource", array(strings.Replace(device.Path, "PCIP", "PCI", 1)))),
		"settings that are no pool's": create(allocation, one, allocation),
		"a member that is a partition": create(named("new"), one,
			patch(t, allocation, "HostResource", array(r.query(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu")[0].Path))),
	} {
		if r.returns(invalidParameter, service, "CreatePool", in); r.Failed() {
			t.Fatal(name)
		}
	}
	r.returns(objectExists, service, "CreatePool", create(named("VDI"), one, allocation))
	r.returns(notSupported, service, "CreatePool", create(patch(t, named("new"), "ResourceType", "<VALUE>4</VALUE>"), one, allocation))
	r.returns(done, service, "CreatePool", create(named("new"), one, patch(t, allocation, "HostResource", array(device.Path))))
	if host := r.host(); len(host.Pools) != 2 || !host.Pools[1].Has(gpuC) {
		t.Fatalf("the pools are %+v", host.Pools)
	}

	modify := func(pool string, members ...string) map[string]any {
		return map[string]any{
			"ChildPool": pool, "ParentPools": one, "AllocationSettings": []string{patch(t, allocation, "HostResource", array(members...))},
		}
	}
	r.returns(invalidParameter, service, "ModifyPoolResources", modify(primordial))
	r.returns(inUse, service, "ModifyPoolResources", modify(pool("vdi"), device.Path)) // of another pool
	r.returns(notSupported, service, "ModifyPoolSettings", map[string]any{"ChildPool": pool("new"), "PoolSettings": named("other")})

	// A VM draws from the pool, or has the device by its path, but not both.
	add := func(text string) map[string]any {
		return map[string]any{"AffectedConfiguration": r.settings(beta), "ResourceSettings": []string{text}}
	}
	r.returns(invalidParameter, management, "AddResourceSettings", add(allocation))
	r.returns(invalidParameter, management, "AddResourceSettings",
		add(patch(t, patch(t, allocation, "PoolID", "<VALUE>new</VALUE>"), "HostResource", array(device.Path))))
	r.returns(invalidParameter, management, "AddResourceSettings", add(patch(t, allocation, "HostResource", array(gpuC))))
	r.returns(done, management, "AddResourceSettings", add(patch(t, allocation, "PoolID", "<VALUE>new</VALUE>")))
	r.returns(inUse, service, "DeletePool", map[string]any{"Pool": pool("new")})
	r.run(r.fleet.SetVMState(t.Context(), beta, gpu.VMRunning))
	r.returns(inUse, service, "ModifyPoolResources", modify(pool("new")))
	rows := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_PciExpress WHERE LocationPath='"+gpuC+"'", "SystemName")
	if len(rows) != 2 || rows[1].String("SystemName") != beta {
		t.Errorf("a running VM's device has no row of its own: %+v", rows)
	}
	r.run(r.fleet.SetVMState(t.Context(), beta, gpu.VMOff))
	assigned := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_PciExpressSettingData WHERE PoolID='new' AND InstanceID LIKE 'Microsoft:"+
		beta+"%'")
	r.returns(done, management, "RemoveResourceSettings", map[string]any{"ResourceSettings": []string{assigned.Path}})
	r.returns(done, service, "ModifyPoolResources", modify(pool("new")))
	r.returns(done, service, "DeletePool", map[string]any{"Pool": pool("new")})
	r.returns(invalidParameter, service, "DeletePool", map[string]any{"Pool": primordial})

	// Some hosts want the pool's own name in its allocation setting.
	r.machine.ChildPoolID()
	r.returns(invalidParameter, service, "CreatePool", create(named("new"), one, allocation))
	own := patch(t, allocation, "PoolID", "<VALUE>new</VALUE>")
	r.returns(invalidParameter, service, "CreatePool", create(named("new"), one, own))
	for _, figure := range []string{"Reservation", "Limit", "VirtualQuantity"} {
		own = patch(t, own, figure, "<VALUE>0</VALUE>")
	}
	r.returns(done, service, "CreatePool", create(named("new"), one, own))
}

// A device is disabled, given up, given back and enabled. Each step shows.
func TestGivingADeviceUpAndBack(t *testing.T) {
	r := newRig(t)
	service := r.service("Msvm_AssignableDeviceService")
	entity := func(like string) hyperv.Row {
		return r.one(hyperv.CIMv2, "SELECT * FROM Win32_PnPEntity WHERE DeviceID LIKE '"+like+"18416dc3%'",
			"DeviceID", "PNPClass", "ConfigManagerErrorCode", "CompatibleID", "Service")
	}
	dismount := func(acs, mitigations, instance, location string) map[string]any {
		text := `<INSTANCE CLASSNAME="Msvm_AssignableDeviceDismountSettingData">`
		for name, value := range map[string]string{"RequireAcsSupport": acs, "RequireDeviceMitigations": mitigations} {
			text += `<PROPERTY NAME="` + name + `" TYPE="boolean"><VALUE>` + value + `</VALUE></PROPERTY>`
		}
		for name, value := range map[string]string{"DeviceInstancePath": instance, "DeviceLocationPath": location} {
			if value != "" {
				text += `<PROPERTY NAME="` + name + `" TYPE="string"><VALUE>` + strings.ReplaceAll(value, "&", "&amp;") + `</VALUE></PROPERTY>`
			}
		}
		return map[string]any{"DismountSettingData": text + `</INSTANCE>`}
	}
	r.run(r.fleet.EditSimulation(t.Context(), "hv01", func(s *simulated.Simulation) {
		s.GPUs = map[string]simulated.Hidden{gpuA: {NeedsForce: true}}
	}))
	r.returns(invalidState, service, "DismountAssignableDevice", dismount("FALSE", "FALSE", instanceA, gpuA)) // the host uses it
	res := r.invoke(hyperv.CIMv2, entity("PCI%").Path, "Disable", nil)
	if res.ReturnValue != done || res.Out["rebootNeeded"] != false || entity("PCI%").Uint("ConfigManagerErrorCode") != 22 {
		t.Errorf("disabled it is %+v", res)
	}
	if rows := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_PartitionableGpu"); len(rows) != 1 {
		t.Errorf("a disabled GPU can be partitioned: %d rows", len(rows))
	}
	r.returns(invalidParameter, service, "DismountAssignableDevice", dismount("FALSE", "FALSE", "", ""))
	r.returns(32779, service, "DismountAssignableDevice", dismount("FALSE", "FALSE", instanceA, gpuB))
	r.returns(notSupported, service, "DismountAssignableDevice", dismount("TRUE", "FALSE", instanceA, gpuA))
	r.machine.Synchronous("DismountAssignableDevice")
	res = r.invoke(hyperv.Virtualization, service, "DismountAssignableDevice", dismount("FALSE", "FALSE", "", gpuA))
	given := strings.Replace(instanceA, "PCI", "PCIP", 1)
	if res.ReturnValue != done || res.Out["DismountedDeviceInstancePath"] != given || res.Out["Job"] != nil {
		t.Fatalf("dismounted it is %+v", res)
	}
	row := entity("PCIP%")
	if row.String("DeviceID") != given || row.String("PNPClass") == "Display" || row.Uint("ConfigManagerErrorCode") != 0 {
		t.Errorf("dismounted it is %+v", row)
	}
	r.returns(invalidState, service, "MountAssignableDevice", map[string]any{"DeviceLocationPath": gpuB})
	r.returns(done, service, "MountAssignableDevice", map[string]any{"DeviceInstancePath": given, "DeviceLocationPath": gpuA})
	if entity(`PCI\\%`).Uint("ConfigManagerErrorCode") != 22 {
		t.Error("a device comes back enabled")
	}
	r.invoke(hyperv.CIMv2, entity(`PCI\\%`).Path, "Enable", nil)
	if host := r.host(); host.GPUs[0].Problem != "" || host.GPUs[0].Dismounted || host.GPUs[0].InstancePath != instanceA {
		t.Errorf("in the end the GPU is %+v", host.GPUs[0])
	}

	// What something uses is disabled at the next reboot, unless it is enabled again.
	r.machine.Busy(gpuA)
	if res := r.invoke(hyperv.CIMv2, entity(`PCI\\%`).Path, "Disable", nil); res.Out["rebootNeeded"] != true {
		t.Errorf("a device in use is disabled at once: %+v", res)
	}
	r.returns(invalidState, service, "DismountAssignableDevice", dismount("FALSE", "FALSE", instanceA, ""))
	r.invoke(hyperv.CIMv2, entity(`PCI\\%`).Path, "Enable", nil)
	if problem := r.host().GPUs[0].Problem; problem != "" {
		t.Errorf("enabled again it has %s", problem)
	}
}

func TestDeviceProperties(t *testing.T) {
	r := newRig(t)
	entity := r.one(hyperv.CIMv2, "SELECT * FROM Win32_PnPEntity WHERE DeviceID LIKE '%18416dc3%'").Path
	res := r.invoke(hyperv.CIMv2, entity, "GetDeviceProperties", map[string]any{"devicePropertyKeys": []string{
		"DEVPKEY_Device_LocationPaths", "DEVPKEY_Device_DriverVersion", "DEVPKEY_PciDevice_DeviceType",
		"DEVPKEY_Device_ProblemCode", "DEVPKEY_Unknown",
	}})
	rows := hyperv.Row{Values: res.Out}.Rows("deviceProperties")
	if len(rows) != 4 {
		t.Fatalf("%d properties", len(rows))
	}
	if paths := rows[0].Strings("Data"); len(paths) != 2 || paths[0] != gpuA {
		t.Errorf("the location paths are %v", paths)
	}
	if rows[1].String("Data") != "32.0.15.7339" || rows[2].Uint("Data") != 2 || rows[3].Has("Data") {
		t.Errorf("the properties are %+v", rows)
	}
	remote := r.one(hyperv.CIMv2, "SELECT * FROM Win32_PnPEntity WHERE DeviceID LIKE 'SWD%'").Path
	res = r.invoke(hyperv.CIMv2, remote, "GetDeviceProperties", map[string]any{"devicePropertyKeys": []string{"DEVPKEY_Device_LocationPaths"}})
	if rows := (hyperv.Row{Values: res.Out}).Rows("deviceProperties"); len(rows) != 1 || rows[0].Has("Data") {
		t.Errorf("a device on no bus is at %+v", rows)
	}
}

func TestRegistry(t *testing.T) {
	r := newRig(t)
	read := func(method string, hive any, key, value string) hyperv.Result {
		return r.invoke(hyperv.Registry, "StdRegProv", method, map[string]any{"hDefKey": hive, "sSubKeyName": key, "sValueName": value})
	}
	const policies, current = `SOFTWARE\Policies\Microsoft\Windows\HyperV`, `software\microsoft\Windows NT\CurrentVersion`
	localMachine := int32(-0x7ffffffe)
	if res := read("GetDWORDValue", localMachine, policies, "RequireSecureDeviceAssignment"); res.ReturnValue != 0 ||
		res.Out["uValue"] != int32(0) {
		t.Errorf("a policy that is off is %+v", res)
	}
	if res := read("GetDWORDValue", localMachine, policies, "RequireSupportedDeviceAssignment"); res.ReturnValue != 2 ||
		res.Out["uValue"] != nil {
		t.Errorf("a policy that is not set is %+v", res)
	}
	if res := read("GetStringValue", nil, current, "displayversion"); res.Out["sValue"] != "24H2" {
		t.Errorf("the version is %+v", res)
	}
	if res := read("GetStringValue", int32(-0x7fffffff), current, "DisplayVersion"); res.ReturnValue != 2 {
		t.Errorf("the user's hive has %+v", res)
	}
	if res := read("GetDWORDValue", localMachine, current, "DisplayVersion"); res.ReturnValue != 0x80041005 {
		t.Errorf("a string as a number is %+v", res)
	}
}

func TestPower(t *testing.T) {
	r := newRig(t)
	path := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='"+alpha+"'").Path
	request := func(want uint32, state int32) string {
		t.Helper()
		return r.returns(want, path, "RequestStateChange", map[string]any{"RequestedState": state})
	}
	shutdown := func(want uint32, force bool) {
		t.Helper()
		component := r.one(hyperv.Virtualization, "SELECT * FROM Msvm_ShutdownComponent WHERE SystemName='"+alpha+"'").Path
		if res := r.invoke(hyperv.Virtualization, component, "InitiateShutdown",
			map[string]any{"Force": force, "Reason": "test"}); res.ReturnValue != want {
			t.Errorf("InitiateShutdown answers %d, want %d", res.ReturnValue, want)
		}
	}
	r.returns(notSupported, r.one(hyperv.Virtualization, "SELECT * FROM Msvm_ComputerSystem WHERE Name='hv01'").Path,
		"RequestStateChange", map[string]any{"RequestedState": int32(3)})
	request(notSupported, 0)
	request(invalidState, 3)
	request(done, 2)
	request(invalidState, 2)
	request(notSupported, 4)
	request(done, 6)
	request(invalidState, 3) // saved
	request(done, 2)
	request(done, 9)
	request(done, 2)
	request(done, 3)
	if rows := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_ShutdownComponent"); len(rows) != 0 {
		t.Error("a guest that is off can be asked")
	}

	// A start that finds no room says so with the code that Windows has for it.
	add := map[string]any{"AffectedConfiguration": r.settings(alpha), "ResourceSettings": slicesOf(r.template(partitionSettings), 8)}
	r.returns(done, r.service("Msvm_VirtualSystemManagementService"), "AddResourceSettings", add)
	if text := request(outOfMemory, 2); !strings.Contains(text, "0x800705AA") {
		t.Errorf("the job says %q", text)
	}
	r.run(r.fleet.InjectFault(t.Context(), "hv01", simulated.Fault{
		Op: simulated.OpStartVM, Times: 1, Code: backend.Insufficient, Detail: "no room",
	}))
	if text := request(outOfMemory, 2); !strings.Contains(text, "0x800705AA") || !strings.Contains(text, "no room") {
		t.Errorf("the job says %q", text)
	}
	r.run(r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error { s.Hosts[0].VMs[0].PartitionAdapters = nil; return nil }))

	r.run(r.fleet.SetGuest(t.Context(), alpha, simulated.Guest{Locked: true, ShutdownMS: 3_600_000}))
	request(done, 2)
	shutdown(locked, false)
	shutdown(done, true)
	if r.vm(alpha).State != gpu.VMStopping {
		t.Errorf("the VM is %s when the call returns", r.vm(alpha).State)
	}
	if rows := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_ShutdownComponent"); len(rows) != 0 {
		t.Error("a guest that shuts down can be asked")
	}
	request(done, 3)

	r.run(r.fleet.SetGuest(t.Context(), alpha, simulated.Guest{NoIntegration: true}))
	request(done, 2)
	if rows := r.query(hyperv.Virtualization, "SELECT * FROM Msvm_ShutdownComponent"); len(rows) != 0 {
		t.Error("a guest without integration services can be asked")
	}
}

func slicesOf(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}
