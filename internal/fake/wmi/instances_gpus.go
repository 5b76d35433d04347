package fakewmi

import (
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// partitionableClass is the interface class at the end of a partitionable GPU's name.
const partitionableClass = "{064092b3-625e-43bf-9eb5-dc845897dd59}"

// face is a GPU's GPU-P face. A device that is disabled has no driver that could offer
// one.
func face(g *gpu.GPU) (*gpu.Partitionable, bool) {
	return g.Partitionable, g.Partitionable != nil && problemOf(g) != problemDisabled
}

func (v *view) partitionables() []*Object {
	const class = "Msvm_PartitionableGpu"
	var out []*Object
	for i := range v.host.GPUs {
		p, ok := face(&v.host.GPUs[i])
		if !ok {
			continue
		}
		f := fields{
			"CreationClassName": class, "Name": p.Name, "ElementName": "Partitionable GPU", "Caption": "Partitionable GPU",
			"EnabledState": 2, "HealthState": 5, "OperationalStatus": []any{2}, "PartitionCount": p.Count,
		}
		counts := []any{}
		for _, n := range p.ValidCounts {
			counts = append(counts, n)
		}
		f["ValidPartitionCounts"] = counts
		if p.SupportsIncomingLiveMigration != nil {
			f["SupportsIncomingLiveMigration"] = *p.SupportsIncomingLiveMigration
		}
		for name, c := range map[string]gpu.Capacity{"VRAM": p.VRAM, "Encode": p.Encode, "Decode": p.Decode, "Compute": p.Compute} {
			f["Total"+name], f["Available"+name] = c.Total, c.Available
			f["MinPartition"+name], f["MaxPartition"+name], f["OptimalPartition"+name] = c.Min, c.Max, c.Optimal
		}
		out = append(out, v.make(class, f))
	}
	return out
}

// partitions are those that VMs hold. A free one has no object.
func (v *view) partitions() []*Object {
	const class = "Msvm_GpuPartition"
	var out []*Object
	held := map[string]int{}
	for i := range v.host.GPUs {
		p, ok := face(&v.host.GPUs[i])
		if !ok {
			continue
		}
		for _, part := range p.Partitions {
			// Which adapter a partition is for does not matter to a fleet: it is the next.
			adapter := derivedGUID("partition", part.VMID, part.VFLUID)
			n := held[gpu.FoldID(part.VMID)]
			if vm, ok := v.host.VM(part.VMID); ok && n < len(vm.PartitionAdapters) {
				adapter = vm.PartitionAdapters[n].ID
			}
			held[gpu.FoldID(part.VMID)]++
			f := fields{
				"SystemCreationClassName": "Msvm_ComputerSystem", "SystemName": strings.ToUpper(part.VMID), "CreationClassName": class,
				"DeviceID": settingID(part.VMID, adapter), "ElementName": "GPU Partition",
				"DeviceInstancePath": v.partitionDevice(&v.host.GPUs[i], part), "PartitionId": part.ID, "PartitionVfLuid": part.VFLUID,
				"CurrentVRAM": uint64(part.VRAM), "CurrentEncode": p.Encode.Min, "CurrentDecode": p.Decode.Min, "CurrentCompute": p.Compute.Min,
			}
			if part.SupportsOutgoingLiveMigration != nil {
				f["SupportsOutgoingLiveMigration"] = *part.SupportsOutgoingLiveMigration
			}
			out = append(out, v.make(class, f))
		}
	}
	return out
}

// partitionDevice is the path that a partition shows: its GPU's, or that of its virtual
// function, which is another address on the GPU's bus.
func (v *view) partitionDevice(g *gpu.GPU, part gpu.Partition) string {
	if !v.machine.faults.showsFunctions() {
		return g.Partitionable.Name
	}
	instance := instancePath(g)
	return fmt.Sprintf("%s&%04X", instance[:strings.LastIndexByte(instance, '&')], 8*(part.ID+1))
}

// partitionSettings are the adapters of VMs, those in checkpoints, and the templates:
// a caller that takes the first row gets some VM's.
func (v *view) partitionSettings() []*Object {
	var out []*Object
	for i := range v.host.VMs {
		vm := &v.host.VMs[i]
		owners := []string{vmGUID(vm)}
		if id, ok := snapshotOf(vm); ok {
			owners = append(owners, id)
		}
		for _, owner := range owners {
			for _, a := range vm.PartitionAdapters {
				out = append(out, v.partitionSetting(owner, a))
			}
		}
	}
	return append(out, v.templates(partitionResource)...)
}

func (v *view) partitionSetting(owner string, a gpu.PartitionAdapter) *Object {
	f := fields{}
	if a.PinnedGPU != "" {
		f["HostResource"] = []string{v.partitionablePath(a.PinnedGPU)}
	}
	for name, q := range quotasByName(&a.Quotas) {
		for figure, n := range map[string]*uint64{"Min": q.Min, "Max": q.Max, "Optimal": q.Optimal} {
			if n != nil {
				f[figure+"Partition"+name] = *n
			}
		}
	}
	return v.setting(partitionResource, settingID(owner, a.ID), f)
}

func quotasByName(q *gpu.Quotas) map[string]*gpu.Quota {
	return map[string]*gpu.Quota{"VRAM": &q.VRAM, "Encode": &q.Encode, "Decode": &q.Decode, "Compute": &q.Compute}
}

// partitionablePath is the path of a GPU's face, whether the GPU has one now or not: a
// setting goes on naming what has gone.
func (v *view) partitionablePath(gpuID string) string {
	const class = "Msvm_PartitionableGpu"
	name := `\\?\PCI#` + derivedGUID("gone", gpuID) + "#" + partitionableClass
	if g, ok := v.host.GPU(gpuID); ok {
		name = `\\?\` + strings.ReplaceAll(onBus("PCI", g), `\`, "#") + "#" + partitionableClass
		if g.Partitionable != nil {
			name = g.Partitionable.Name
		}
	}
	o := (&Class{Name: class, Properties: []Property{{Name: "CreationClassName", Key: true}, {Name: "Name", Key: true}}}).New()
	o.values["creationclassname"], o.values["name"] = class, name
	return pathTo(v.host.Name, v.name, o)
}

// partitionableAt is the GPU whose face a path names.
func (v *view) partitionableAt(path string) (*gpu.GPU, bool) {
	o, ok := v.find(path, "Msvm_PartitionableGpu")
	if !ok {
		return nil, false
	}
	for i := range v.host.GPUs {
		if p, ok := face(&v.host.GPUs[i]); ok && gpu.SameID(p.Name, o.text("Name")) {
			return &v.host.GPUs[i], true
		}
	}
	return nil, false
}
