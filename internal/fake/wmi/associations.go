package fakewmi

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// relations answers ASSOCIATORS OF and REFERENCES OF.
func (v *view) relations(q *query) ([]*Object, error) {
	origin, err := v.at(q.of)
	if err != nil {
		return nil, err
	}
	if origin.class {
		return nil, fault(hyperv.InvalidQuery, "%s is the path of a class", q.of)
	}
	for _, filter := range []string{"assocclass", "resultclass"} {
		if name := q.filters[filter]; name != "" {
			if _, ok := v.class(name); !ok {
				return nil, noClass(name)
			}
		}
	}
	of, _ := parsePath(origin.Path) // a path that was made here
	rows := []*Object{}
	for _, class := range v.schema.classes {
		if !class.association || class.abstract || !v.wanted(class.Name, q.filters["assocclass"]) {
			continue
		}
		if q.references && !v.wanted(class.Name, q.filters["resultclass"]) {
			continue
		}
		for _, link := range v.instances(class.Name) {
			rows = append(rows, v.follow(link, of, q)...)
		}
	}
	return distinct(rows), nil
}

// wanted tells whether a class passes a filter.
func (v *view) wanted(class, filter string) bool {
	c, ok := v.class(class)
	return ok && (filter == "" || c.Is(filter))
}

// follow is what an association leads to from an object, or the association itself.
func (v *view) follow(link *Object, of objectPath, q *query) []*Object {
	var out []*Object
	for _, here := range link.Class.Properties {
		path, ok := parsePath(link.text(here.Name))
		if here.Type != Reference || !ok || !path.same(of) || !matches(here.Name, q.filters["role"]) {
			continue
		}
		if q.references {
			return []*Object{link}
		}
		for _, there := range link.Class.Properties {
			if there.Type != Reference || there.Name == here.Name || !matches(there.Name, q.filters["resultrole"]) {
				continue
			}
			if o, ok := v.find(link.text(there.Name), q.filters["resultclass"]); ok {
				out = append(out, o)
			}
		}
	}
	return out
}

func matches(name, filter string) bool { return filter == "" || strings.EqualFold(name, filter) }

// distinct drops what is there twice.
func distinct(rows []*Object) []*Object {
	seen := map[string]bool{}
	out := rows[:0]
	for _, o := range rows {
		if key := fold(o.Path); !seen[key] {
			seen[key] = true
			out = append(out, o)
		}
	}
	return out
}

// link makes an association of two objects.
func (v *view) link(class, role string, a *Object, otherRole string, b *Object) *Object {
	return v.make(class, fields{role: a.Path, otherRole: b.Path})
}

// settingsDefineState connects what there is with its settings: VMs, pools and
// devices.
func (v *view) settingsDefineState() []*Object {
	var out []*Object
	define := func(element, setting *Object) {
		out = append(out, v.link("Msvm_SettingsDefineState", "ManagedElement", element, "SettingData", setting))
	}
	for _, vm := range v.instances("Msvm_ComputerSystem") {
		for _, s := range v.instances("Msvm_VirtualSystemSettingData") {
			if s.text("VirtualSystemType") == realizedSystem && s.text("VirtualSystemIdentifier") == vm.text("Name") {
				define(vm, s)
			}
		}
	}
	for _, pool := range v.instances("Msvm_ResourcePool") {
		for _, s := range v.instances("Msvm_ResourcePoolSettingData") {
			if s.text("InstanceID") == poolSettingsID(pool) {
				define(pool, s)
			}
		}
	}
	for _, p := range v.devicePools() {
		define(v.pool(pciExpressResource, p.Name, 0), v.poolAllocation(&p))
	}
	for _, pair := range [][2]string{{"Msvm_GpuPartition", partitionResource.class}, {"Msvm_PciExpress", pciExpressResource.class}} {
		for _, d := range v.instances(pair[0]) {
			for _, s := range v.instances(pair[1]) {
				if s.text("InstanceID") == d.text("DeviceID") {
					define(d, s)
				}
			}
		}
	}
	return out
}

func (v *view) elementCapabilities() []*Object {
	var out []*Object
	for _, r := range v.resources() {
		for _, c := range v.instances("Msvm_AllocationCapabilities") {
			if c.text("InstanceID") == capabilitiesID(r) {
				out = append(out, v.link("Msvm_ElementCapabilities", "ManagedElement", v.pool(r, "", 0), "Capabilities", c))
			}
		}
	}
	return out
}

func (v *view) settingsDefineCapabilities() []*Object {
	var out []*Object
	for _, r := range v.resources() {
		for _, c := range v.instances("Msvm_AllocationCapabilities") {
			if c.text("InstanceID") != capabilitiesID(r) {
				continue
			}
			for i, t := range v.templates(r) {
				l := v.link("Msvm_SettingsDefineCapabilities", "GroupComponent", c, "PartComponent", t)
				l.values["valuerole"], l.values["valuerange"] = uint64(roles[i].valueRole), uint64(roles[i].valueRange)
				out = append(out, l)
			}
		}
	}
	return out
}

// elementAllocatedFromPool connects pools with their parent, and partitions in use
// with the pool of all partitions.
func (v *view) elementAllocatedFromPool() []*Object {
	var out []*Object
	allocate := func(r resource, dependent *Object) {
		out = append(out, v.link("Msvm_ElementAllocatedFromPool", "Antecedent", v.pool(r, "", 0), "Dependent", dependent))
	}
	for _, p := range v.devicePools() {
		allocate(pciExpressResource, v.pool(pciExpressResource, p.Name, 0))
	}
	if name, ok := v.memoryPool(); ok {
		allocate(memoryResource, v.pool(memoryResource, name, 0))
	}
	for _, p := range v.instances("Msvm_GpuPartition") {
		allocate(partitionResource, p)
	}
	return out
}

// resourceAllocationFromPool connects settings with the pool that they draw from: a
// pool's own allocation setting draws from its parent.
func (v *view) resourceAllocationFromPool() []*Object {
	var out []*Object
	for _, r := range v.resources() {
		for _, s := range v.instances(r.class) {
			if strings.HasPrefix(s.text("InstanceID"), `Microsoft:Definition\`) {
				continue
			}
			if name := s.text("PoolID"); r.kind == pciExpressType || name == "" {
				out = append(out, v.link("Msvm_ResourceAllocationFromPool", "Antecedent", v.pool(r, name, 0), "Dependent", s))
			}
		}
	}
	return out
}

// concreteComponents connects the primordial pools with the host's devices.
func (v *view) concreteComponents() []*Object {
	var out []*Object
	compose := func(r resource, part *Object) {
		out = append(out, v.link("Msvm_ConcreteComponent", "GroupComponent", v.pool(r, "", 0), "PartComponent", part))
	}
	for _, d := range v.instances("Msvm_PciExpress") {
		if d.text("SystemName") == v.host.Name {
			compose(pciExpressResource, d)
		}
	}
	for _, g := range v.instances("Msvm_PartitionableGpu") {
		compose(partitionResource, g)
	}
	return out
}

// systemDevices connects systems with the devices that they have in hand.
func (v *view) systemDevices() []*Object {
	var out []*Object
	for _, system := range v.instances("Msvm_ComputerSystem") {
		for _, d := range v.instances("CIM_LogicalDevice") {
			if d.text("SystemName") == system.text("Name") {
				out = append(out, v.link("Msvm_SystemDevice", "GroupComponent", system, "PartComponent", d))
			}
		}
	}
	return out
}

// settingComponents connects the settings of a VM or a checkpoint with those of its
// devices.
func (v *view) settingComponents() []*Object {
	var out []*Object
	for _, whole := range v.instances("Msvm_VirtualSystemSettingData") {
		prefix := whole.text("InstanceID") + `\`
		for _, part := range v.instances("CIM_ResourceAllocationSettingData") {
			if strings.HasPrefix(part.text("InstanceID"), prefix) {
				out = append(out, v.link("Msvm_VirtualSystemSettingDataComponent", "GroupComponent", whole, "PartComponent", part))
			}
		}
	}
	return out
}
