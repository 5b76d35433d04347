package fakewmi

// virtualizationSources make the instances of root\virtualization\v2.
func virtualizationSources() sources {
	return sources{
		"Msvm_ComputerSystem":                    (*view).computers,
		"Msvm_VirtualSystemSettingData":          (*view).systemSettings,
		"Msvm_MemorySettingData":                 (*view).memorySettings,
		"Msvm_ShutdownComponent":                 (*view).shutdownComponents,
		"Msvm_KvpExchangeComponent":              (*view).exchangeComponents,
		"Msvm_PartitionableGpu":                  (*view).partitionables,
		"Msvm_GpuPartition":                      (*view).partitions,
		"Msvm_GpuPartitionSettingData":           (*view).partitionSettings,
		"Msvm_PciExpress":                        (*view).pciExpress,
		"Msvm_PciExpressSettingData":             (*view).pciExpressSettings,
		"Msvm_ResourcePool":                      (*view).pools,
		"Msvm_ResourcePoolSettingData":           (*view).poolSettings,
		"Msvm_AllocationCapabilities":            (*view).capabilities,
		"Msvm_ConcreteJob":                       (*view).jobs,
		"Msvm_SettingsDefineState":               (*view).settingsDefineState,
		"Msvm_ElementCapabilities":               (*view).elementCapabilities,
		"Msvm_SettingsDefineCapabilities":        (*view).settingsDefineCapabilities,
		"Msvm_ElementAllocatedFromPool":          (*view).elementAllocatedFromPool,
		"Msvm_ResourceAllocationFromPool":        (*view).resourceAllocationFromPool,
		"Msvm_ConcreteComponent":                 (*view).concreteComponents,
		"Msvm_SystemDevice":                      (*view).systemDevices,
		"Msvm_VirtualSystemSettingDataComponent": (*view).settingComponents,

		"Msvm_VirtualSystemManagementService":   service("Msvm_VirtualSystemManagementService", "vmms"),
		"Msvm_ResourcePoolConfigurationService": service("Msvm_ResourcePoolConfigurationService", "rpcs"),
		"Msvm_AssignableDeviceService":          service("Msvm_AssignableDeviceService", "ads"),
	}
}

// service makes the one instance of a service.
func service(class, name string) func(*view) []*Object {
	return func(v *view) []*Object {
		return []*Object{v.make(class, fields{
			"SystemCreationClassName": "Msvm_ComputerSystem", "SystemName": v.host.Name,
			"CreationClassName": class, "Name": name, "ElementName": class, "Started": true, "EnabledState": 2,
		})}
	}
}

// Resource types and subtypes of pools and settings.
const (
	memoryType     = 4
	pciExpressType = 32769
	partitionType  = 32770

	memorySubType     = "Microsoft:Hyper-V:Memory"
	pciExpressSubType = "Microsoft:Hyper-V:Virtual Pci Express Port"
	partitionSubType  = "Microsoft:Hyper-V:GPU Partition"
)

// resource is one kind of resource that a host has a primordial pool of.
type resource struct {
	class   string
	kind    int
	subType string
	name    string
	unit    string
	amount  int
}

var (
	memoryResource     = resource{"Msvm_MemorySettingData", memoryType, memorySubType, "Memory", "byte * 2^20", 1024}
	pciExpressResource = resource{"Msvm_PciExpressSettingData", pciExpressType, pciExpressSubType, "PCI Express Port", "count", 1}
	partitionResource  = resource{"Msvm_GpuPartitionSettingData", partitionType, partitionSubType, "GPU Partition", "count", 1}
)

// resources are those that the host has.
func (v *view) resources() []resource {
	out := []resource{memoryResource}
	for _, r := range []resource{pciExpressResource, partitionResource} {
		if _, ok := v.class(r.class); ok {
			out = append(out, r)
		}
	}
	return out
}

// setting makes an instance of a resource's setting class.
func (v *view) setting(r resource, id string, more ...fields) *Object {
	return v.make(r.class, append([]fields{{
		"InstanceID": id, "ElementName": r.name, "Caption": r.name, "Description": "Settings for a " + r.name,
		"ResourceType": r.kind, "ResourceSubType": r.subType, "PoolID": "", "AllocationUnits": r.unit,
		"AutomaticAllocation": true, "AutomaticDeallocation": true, "ConsumerVisibility": 3, "MappingBehavior": 3,
		"VirtualQuantity": r.amount, "Reservation": r.amount, "Limit": r.amount, "Weight": 0,
	}}, more...)...)
}

// roles are the templates of a resource, with what Msvm_SettingsDefineCapabilities says
// of each.
var roles = []struct {
	name                  string
	valueRole, valueRange int
}{{"Minimum", 3, 1}, {"Maximum", 3, 2}, {"Increment", 3, 3}, {"Default", 0, 0}}

func templateID(r resource, role string) string {
	return `Microsoft:Definition\` + derivedGUID("definition", r.subType) + `\` + role
}

// templates are the rows that describe what a setting may be. They are in the class of
// the settings themselves.
func (v *view) templates(r resource) []*Object {
	var out []*Object
	for _, role := range roles {
		out = append(out, v.setting(r, templateID(r, role.name)))
	}
	return out
}

func (v *view) jobs() []*Object {
	var out []*Object
	for _, j := range v.machine.jobs.snapshot() {
		f := fields{
			"InstanceID": j.id, "Name": "Msvm_ConcreteJob", "ElementName": j.name, "JobType": j.kind, "JobState": j.state,
			"Cancellable": false, "PercentComplete": 100, "ErrorCode": 0, "TimeBeforeRemoval": "00000000000500.000000:000",
			"StartTime": datetime(j.started), "JobStatus": "OK", "DeleteOnCompletion": false, "Owner": "SYSTEM",
		}
		if j.state == jobRunning {
			f["PercentComplete"], f["JobStatus"] = 50, "Job is running"
		}
		if j.refusal != nil {
			f["ErrorCode"], f["ErrorDescription"] = j.refusal.code, j.refusal.text
			f["ErrorSummaryDescription"], f["JobStatus"] = j.refusal.text, "Job has failed"
		}
		out = append(out, v.make("Msvm_ConcreteJob", f))
	}
	return out
}
