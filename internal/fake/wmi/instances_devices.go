package fakewmi

import (
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// instancePath is a GPU's device instance path. A fleet that does not tell gets one.
func instancePath(g *gpu.GPU) string {
	if strings.Contains(g.InstancePath, `\`) {
		return g.InstancePath
	}
	bus := "PCI"
	if g.Dismounted {
		bus = "PCIP"
	}
	return fmt.Sprintf(`%s\VEN_%s&DEV_%s&SUBSYS_%s&REV_A1\4&%s&0&0000`, bus, g.PCI.Vendor, g.PCI.Device,
		g.PCI.Subsystem, derivedGUID(g.ID)[:8])
}

// onBus is a GPU's instance path on another bus: a device changes it when it is given
// up or comes back.
func onBus(bus string, g *gpu.GPU) string {
	_, rest, _ := strings.Cut(instancePath(g), `\`)
	return bus + `\` + rest
}

// pciExpress are the devices that the host has given up, and once more those that VMs
// hold.
func (v *view) pciExpress() []*Object {
	var out []*Object
	for i := range v.host.GPUs {
		if g := &v.host.GPUs[i]; g.Dismounted {
			out = append(out, v.device(g, v.host.Name, "Microsoft:"+instancePath(g)))
		}
	}
	for i := range v.host.VMs {
		vm := &v.host.VMs[i]
		if !holdsMemory(vm) {
			continue
		}
		for _, d := range vm.Devices {
			if g, ok := v.host.GPU(d.GPU); ok {
				out = append(out, v.device(g, vmGUID(vm), settingID(vmGUID(vm), d.ID)))
			}
		}
	}
	return out
}

func (v *view) device(g *gpu.GPU, system, id string) *Object {
	const class = "Msvm_PciExpress"
	return v.make(class, fields{
		"SystemCreationClassName": "Msvm_ComputerSystem", "SystemName": system, "CreationClassName": class, "DeviceID": id,
		"ElementName": "PCI Express Port", "DeviceInstancePath": instancePath(g), "LocationPath": g.ID, "FunctionNumber": 0, "EnabledState": 2,
	})
}

// assignablePaths are the paths of devices that the host has given up, or had. A build
// without such devices has none.
func (v *view) assignablePaths(gpuIDs ...string) []string {
	out := []string{}
	if _, ok := v.class("Msvm_PciExpress"); !ok {
		return out
	}
	for _, id := range gpuIDs {
		g, ok := v.host.GPU(id)
		if !ok {
			g = &gpu.GPU{ID: id, InstancePath: `PCIP\` + derivedGUID("gone", id)}
		}
		out = append(out, v.device(g, v.host.Name, "Microsoft:"+instancePath(g)).Path)
	}
	return out
}

// assignableAt is the GPU that a path of a device of the host names.
func (v *view) assignableAt(path string) (*gpu.GPU, bool) {
	o, ok := v.find(path, "Msvm_PciExpress")
	if !ok || !gpu.SameID(o.text("SystemName"), v.host.Name) {
		return nil, false
	}
	return v.host.GPU(o.text("LocationPath"))
}

// pciExpressSettings are the devices of VMs, those in checkpoints, the pools' own
// allocation settings, and the templates.
func (v *view) pciExpressSettings() []*Object {
	var out []*Object
	for i := range v.host.VMs {
		vm := &v.host.VMs[i]
		owners := []string{vmGUID(vm)}
		if id, ok := snapshotOf(vm); ok {
			owners = append(owners, id)
		}
		for _, owner := range owners {
			for _, d := range vm.Devices {
				f := fields{"PoolID": d.Pool, "VirtualFunctions": []any{0}}
				if d.Pool == "" {
					f["HostResource"] = v.assignablePaths(d.GPU)
				}
				out = append(out, v.setting(pciExpressResource, settingID(owner, d.ID), f))
			}
		}
	}
	for i := range v.host.Pools {
		out = append(out, v.poolAllocation(&v.host.Pools[i]))
	}
	return append(out, v.templates(pciExpressResource)...)
}

// poolAllocation is a pool's allocation setting, whose host resources are its members.
func (v *view) poolAllocation(p *gpu.Pool) *Object {
	return v.setting(pciExpressResource, allocationID(p.Name), fields{"HostResource": v.assignablePaths(p.GPUs...)})
}
