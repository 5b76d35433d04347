package fakewmi

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// poolGUID tells pools apart: pools of different resources may share a name.
func poolGUID(r resource, name string) string { return derivedGUID("pool", r.subType, name) }

func poolInstanceID(r resource, name string) string { return "Microsoft:" + poolGUID(r, name) }

func allocationID(name string) string {
	return settingID(poolGUID(pciExpressResource, name), derivedGUID("allocation", name))
}

// pools are the primordial pool of each resource, the host's pools of devices, and a
// pool of memory that has the name of one of them.
func (v *view) pools() []*Object {
	var out []*Object
	for _, r := range v.resources() {
		capacity := 0
		switch r.kind {
		case pciExpressType:
			for i := range v.host.GPUs {
				if v.host.GPUs[i].Dismounted {
					capacity++
				}
			}
		case partitionType:
			for i := range v.host.GPUs {
				if p, ok := face(&v.host.GPUs[i]); ok {
					capacity += p.Count
				}
			}
		}
		out = append(out, v.pool(r, "", capacity))
	}
	for _, p := range v.devicePools() {
		out = append(out, v.pool(pciExpressResource, p.Name, len(p.GPUs)))
	}
	if name, ok := v.memoryPool(); ok {
		out = append(out, v.pool(memoryResource, name, 0))
	}
	return out
}

// devicePools are the host's pools, on a build that has them.
func (v *view) devicePools() []gpu.Pool {
	if _, ok := v.class(pciExpressResource.class); !ok {
		return nil
	}
	return v.host.Pools
}

// memoryPool is the name of the pool of memory, if the host has one.
func (v *view) memoryPool() (string, bool) {
	if len(v.host.Pools) == 0 {
		return "", false
	}
	return v.host.Pools[0].Name, true
}

func (v *view) pool(r resource, name string, capacity int) *Object {
	element := name
	if name == "" {
		element = "Primordial"
	}
	return v.make("Msvm_ResourcePool", fields{
		"InstanceID": poolInstanceID(r, name), "ElementName": element, "Name": element, "PoolID": name, "Primordial": name == "",
		"ResourceType": r.kind, "ResourceSubType": r.subType, "AllocationUnits": r.unit,
		"Capacity": capacity, "Reserved": 0, "CurrentlyConsumedResource": 0, "MaxConsumableResource": capacity, "OperationalStatus": []any{2},
	})
}

func poolSettingsID(pool *Object) string { return pool.text("InstanceID") + `\Settings` }

// poolSettings are each pool's own settings.
func (v *view) poolSettings() []*Object {
	var out []*Object
	for _, p := range v.instances("Msvm_ResourcePool") {
		kind, _ := p.number("ResourceType")
		out = append(out, v.make("Msvm_ResourcePoolSettingData", fields{
			"InstanceID": poolSettingsID(p), "ElementName": p.text("ElementName"), "PoolID": p.text("PoolID"),
			"ResourceType": kind, "ResourceSubType": p.text("ResourceSubType"), "LoadBalancingBehavior": 2, "MappingBehavior": 3, "Notes": "",
		}))
	}
	return out
}

// capabilities are what can be allocated of each resource.
func (v *view) capabilities() []*Object {
	var out []*Object
	for _, r := range v.resources() {
		out = append(out, v.make("Msvm_AllocationCapabilities", fields{
			"InstanceID": capabilitiesID(r), "ElementName": r.name, "ResourceType": r.kind, "ResourceSubType": r.subType, "SharingMode": 3,
		}))
	}
	return out
}

func capabilitiesID(r resource) string { return "Microsoft:" + derivedGUID("capabilities", r.subType) }

// poolAt is the pool of devices at a path: the primordial one has no name.
func (v *view) poolAt(path string) (name string, primordial, ok bool) {
	o, found := v.find(path, "CIM_ResourcePool")
	if !found {
		return "", false, false
	}
	if kind, _ := o.number("ResourceType"); kind != pciExpressType {
		return "", false, false
	}
	primordial, _ = o.flag("Primordial")
	return o.text("PoolID"), primordial, true
}

// poolPath is the path of a pool of devices.
func (v *view) poolPath(name string) string { return v.pool(pciExpressResource, name, 0).Path }
