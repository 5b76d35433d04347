package hyperv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const managementService = "Msvm_VirtualSystemManagementService"

// SetPartitionCount sets the one property of Msvm_PartitionableGpu that can be written.
// The driver divides the GPU anew, which may take a moment longer than the call.
func (b *Backend) SetPartitionCount(ctx context.Context, gpuID string, count int) error {
	return b.change(ctx, "set the partition count", "GPU "+gpuID, need{of: ofGPUs}, func(v *view) error {
		if !b.free(ctx, v, gpuID) {
			var err error
			if v, err = b.readOnly(ctx, need{of: ofVMs | ofGPUs | ofAdapters | ofPartitions}); err != nil {
				return err
			}
		}
		if err := v.knows("", []string{gpuID}, gpu.PartPartitions, gpu.PartVMs); err != nil {
			return err
		}
		g, ok := v.host.GPU(gpuID)
		switch {
		case !ok:
			return refuse(backend.NotFound, "the host has no such GPU")
		case g.Dismounted:
			return refuse(backend.NotSupported, "the device is dismounted from the host")
		case g.Partitionable == nil:
			return refuse(backend.NotSupported, "its driver offers no GPU partitioning")
		}
		p := g.Partitionable
		if !slices.Contains(p.ValidCounts, count) {
			return refuse(backend.InvalidParameter, "the driver offers no %d partitions, only %s", count, listCounts(p.ValidCounts))
		}
		if p.Count == count {
			return nil
		}
		if p.Paravirtual {
			return refuse(backend.NotSupported, "the GPU is paravirtual: SR-IOV is not in use and its partition count is fixed at %d", p.Count)
		}
		if len(p.Partitions) > 0 {
			return refuse(backend.InUse, "partitions are assigned to %s", v.holders(p))
		}
		face := v.device(g).face
		if err := b.wmi.Put(ctx, Virtualization, face, map[string]any{"PartitionCount": int32(count)}); err != nil {
			return b.takenSince(ctx, g.ID, err)
		}
		// Assumption hyperv-count-waits.
		return b.until(ctx, fmt.Sprintf("it does not show %d partitions", count), func() (bool, error) {
			row, err := b.wmi.Get(ctx, Virtualization, face, "PartitionCount")
			if errors.Is(err, NotFound) {
				return false, nil // the driver starts anew
			}
			return err == nil && row.Uint("PartitionCount") == uint64(count), err
		})
	})
}

// free tells by the rows of partitions alone that no VM holds one of a GPU: all of them are
// of others. Where that cannot be seen, the VMs have to be read.
func (b *Backend) free(ctx context.Context, v *view, gpuID string) bool {
	rows, err := b.rowsOf(ctx, "SELECT * FROM Msvm_GpuPartition", "DeviceInstancePath")
	if err != nil {
		return false
	}
	for _, row := range rows {
		instance, _ := instanceOf(row.String("DeviceInstancePath"))
		if !slices.ContainsFunc(v.host.GPUs, func(g gpu.GPU) bool {
			return g.Partitionable != nil && !gpu.SameID(g.ID, gpuID) && slot(g.InstancePath) == slot(instance)
		}) {
			return false
		}
	}
	return true
}

// takenSince says of a count that was refused which VMs have started since the host was
// read. The refusal itself is in the host's language and without a number.
func (b *Backend) takenSince(ctx context.Context, gpuID string, cause error) error {
	if _, isFault := errors.AsType[*Fault](cause); !isFault {
		return cause
	}
	v, err := b.read(ctx)
	if err != nil {
		return cause
	}
	if g, ok := v.host.GPU(gpuID); ok && g.Partitionable != nil && len(g.Partitionable.Partitions) > 0 {
		return refuse(backend.InUse, "partitions are assigned to %s (%v)", v.holders(g.Partitionable), cause)
	}
	return cause
}

// holders names the VMs that hold partitions.
func (v *view) holders(p *gpu.Partitionable) string {
	var names []string
	for _, part := range p.Partitions {
		name := part.VMID
		if vm, ok := v.host.VM(part.VMID); ok {
			name = vm.Name
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return "VM " + strings.Join(slices.Compact(names), ", ")
}

func listCounts(counts []int) string {
	return strings.Join(words.Each(slices.Sorted(slices.Values(counts)), strconv.Itoa), ", ")
}

// AddPartitionAdapter adds the default adapter, pinned if it is asked for. Quotas are
// set afterwards (assumption hyperv-quotas-at-add).
func (b *Backend) AddPartitionAdapter(ctx context.Context, vmID string, a gpu.PartitionAdapter) (string, error) {
	var id string
	n := need{of: ofAdapters, vms: []string{vmID}}
	if a.PinnedGPU != "" {
		n.of |= ofGPUs
	}
	err := b.changeVM(ctx, "add a GPU partition adapter", vmID, n, func(v *view, vm *gpu.VM) error {
		if err := mustBeOff(vm); err != nil {
			return err
		}
		if vm.Generation == 1 {
			return refuse(backend.InvalidParameter, "the VM is of generation 1, which takes no GPU partitions")
		}
		if err := rise(a.Quotas); err != nil {
			return err
		}
		var pin []string
		if a.PinnedGPU != "" {
			if err := v.knows("", []string{a.PinnedGPU}); err != nil {
				return err
			}
			g, ok := v.host.GPU(a.PinnedGPU)
			if !ok || v.device(g).face == "" {
				return refuse(backend.InvalidParameter, "GPU %s cannot be partitioned on this host", a.PinnedGPU)
			}
			pin = []string{v.device(g).face}
		}
		path, err := b.addAdapter(ctx, v.machine(vm), pin, a.Quotas)
		_, id, _ = settingID(keyOf(path, "InstanceID"))
		return err
	})
	return id, err
}

// addAdapter adds the default adapter to a VM, pinned to a path if there is one, and then
// sets its quotas.
func (b *Backend) addAdapter(ctx context.Context, m *machine, pin []string, q gpu.Quotas) (string, error) {
	settings, err := b.template(ctx, "Msvm_GpuPartitionSettingData") // assumption hyperv-partition-template
	if err != nil {
		return "", err
	}
	if len(pin) > 0 {
		settings.set("HostResource", pin)
	}
	path, err := b.add(ctx, m, "Msvm_GpuPartitionSettingData", settings, m.adapters)
	if err != nil || q.Empty() {
		return path, err
	}
	if err := b.writeQuotas(ctx, path, q); err != nil {
		return "", b.takeBack(ctx, path, err)
	}
	return path, nil
}

// takeBack removes a setting that was added and could not be finished.
func (b *Backend) takeBack(ctx context.Context, path string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := b.remove(ctx, path); err != nil {
		return aftermath(ctx, cause, "the adapter that was added could not be removed", err)
	}
	return cause
}

// add gives a VM a device and returns the path of its setting. What a job made is not
// among the results of the call, so the VM's settings are read again: the one that was
// not there before is it.
func (b *Backend) add(ctx context.Context, m *machine, class string, settings *embedded, before map[string]string) (string, error) {
	owner := keyOf(m.path, "Name")
	if err := looked(b.manage(ctx, "AddResourceSettings", map[string]any{
		"AffectedConfiguration": m.settings, "ResourceSettings": []string{settings.String()},
	}, b.unlessOff(owner))); err != nil {
		return "", err
	}
	var added string
	err := b.until(ctx, "its settings do not show the device", func() (bool, error) {
		rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM "+class+" WHERE InstanceID LIKE "+literal(instancePrefix+owner+`\%`),
			"InstanceID")
		if err != nil {
			return false, err
		}
		for _, row := range rows {
			vm, id, ok := settingID(row.String("InstanceID"))
			if _, old := before[gpu.FoldID(id)]; ok && !old && gpu.SameID(vm, owner) {
				added = row.Path
			}
		}
		return added != "", nil
	})
	return added, err
}

// remove takes a device's setting from its VM. That somebody else was faster is fine.
func (b *Backend) remove(ctx context.Context, path string) error {
	if err := looked(b.manage(ctx, "RemoveResourceSettings", map[string]any{"ResourceSettings": []string{path}},
		func(ctx context.Context) error {
			if gone, err := b.gone(ctx, path); err == nil && gone {
				return refuse(backend.NotFound, "the setting is not there any more")
			}
			return b.unlessOff(ownerOf(path))(ctx)
		})); err != nil {
		if gone, lookErr := b.gone(ctx, path); lookErr == nil && gone {
			return nil
		}
		return err
	}
	return b.until(ctx, "its settings still show the device", func() (bool, error) { return b.gone(ctx, path) })
}

// SetPartitionQuotas replaces an adapter's quotas.
func (b *Backend) SetPartitionQuotas(ctx context.Context, vmID, adapterID string, q gpu.Quotas) error {
	return b.changeVM(ctx, "set the quotas of a GPU partition adapter", vmID, need{of: ofAdapters, vms: []string{vmID}},
		func(v *view, vm *gpu.VM) error {
			i := slices.IndexFunc(vm.PartitionAdapters, func(a gpu.PartitionAdapter) bool { return gpu.SameID(a.ID, adapterID) })
			if i < 0 {
				return refuse(backend.NotFound, "the VM has no GPU partition adapter %s", adapterID)
			}
			if vm.PartitionAdapters[i].Quotas.Equal(q) {
				return nil
			}
			if err := rise(q); err != nil {
				return err
			}
			if err := mustBeOff(vm); err != nil {
				return err
			}
			m := v.machine(vm)
			old := m.adapters[gpu.FoldID(adapterID)]
			if !q.Lacks(vm.PartitionAdapters[i].Quotas) {
				return b.writeQuotas(ctx, old, q)
			}
			// A figure without a value is left as it is: only a new adapter has none.
			added, err := b.addAdapter(ctx, m, v.pins[gpu.FoldID(adapterID)], q)
			if err != nil {
				return err
			}
			if err := b.remove(ctx, old); err != nil {
				return b.takeBack(ctx, added, err)
			}
			return nil
		})
}

// rise refuses quotas that no host takes. The host's own refusal cannot be told from one
// that passes.
func rise(q gpu.Quotas) error {
	for name, one := range map[string]gpu.Quota{"VRAM": q.VRAM, "encode": q.Encode, "decode": q.Decode, "compute": q.Compute} {
		var last uint64
		for _, figure := range []*uint64{one.Min, one.Optimal, one.Max} {
			switch {
			case figure == nil:
				continue
			case *figure < last:
				return refuse(backend.InvalidParameter, "the %s quotas must rise from minimum over optimal to maximum", name)
			case *figure == math.MaxUint64 && name == "VRAM":
				return refuse(backend.InvalidParameter, "a VRAM quota must be an amount of memory")
			}
			last = *figure
		}
	}
	return nil
}

// writeQuotas writes those of the twelve figures that are asked for, and looks whether the
// adapter has them then.
func (b *Backend) writeQuotas(ctx context.Context, path string, q gpu.Quotas) error {
	settings := newEmbedded("Msvm_GpuPartitionSettingData")
	settings.set("InstanceID", keyOf(path, "InstanceID"))
	for resource, quota := range map[string]gpu.Quota{"VRAM": q.VRAM, "Encode": q.Encode, "Decode": q.Decode, "Compute": q.Compute} {
		for figure, n := range map[string]*uint64{"Min": quota.Min, "Max": quota.Max, "Optimal": quota.Optimal} {
			if n != nil {
				settings.set(figure+"Partition"+resource, *n)
			}
		}
	}
	err := b.manage(ctx, "ModifyResourceSettings", map[string]any{"ResourceSettings": []string{settings.String()}}, b.unlessOff(ownerOf(path)))
	if looked(err) != nil {
		return err
	}
	row, lookErr := b.wmi.Get(ctx, Virtualization, path, quotaProperties()...)
	switch {
	case lookErr != nil:
		return lookErr
	case quotas(row).Equal(q):
		return nil
	case err != nil:
		return refuse(backend.Failed, "%v; the adapter does not have the quotas", err)
	default:
		return refuse(backend.Failed, "the host took the quotas, and the adapter does not have them")
	}
}

// RemovePartitionAdapter takes an adapter from a VM.
func (b *Backend) RemovePartitionAdapter(ctx context.Context, vmID, adapterID string) error {
	return b.changeVM(ctx, "remove a GPU partition adapter", vmID, need{of: ofAdapters, vms: []string{vmID}}, func(v *view, vm *gpu.VM) error {
		path, ok := v.machine(vm).adapters[gpu.FoldID(adapterID)]
		if !ok {
			return nil
		}
		if err := mustBeOff(vm); err != nil {
			return err
		}
		return b.remove(ctx, path)
	})
}
