package fakewmi

import (
	"cmp"
	"context"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func managementOperations() map[string]operation {
	return map[string]operation{
		"AddResourceSettings":    (*invocation).addResourceSettings,
		"ModifyResourceSettings": (*invocation).modifyResourceSettings,
		"RemoveResourceSettings": (*invocation).removeResourceSettings,
		"ModifySystemSettings":   (*invocation).modifySystemSettings,
	}
}

const resourceSettings = "CIM_ResourceAllocationSettingData"

// settingsOf reads the in parameter ResourceSettings as instances.
func (c *invocation) settingsOf() ([]*Object, error) {
	var out []*Object
	for _, text := range c.in.texts("ResourceSettings") {
		o, err := c.embedded(text, resourceSettings)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	if len(out) == 0 {
		return nil, refuse(rvInvalidParameter, "no settings")
	}
	return out, nil
}

// addition is a device to add to a VM, and how to take it away again.
type addition struct {
	class string
	add   func(context.Context) (string, error)
	undo  func(ctx context.Context, id string) error
}

// addResourceSettings adds devices to a VM that is off: all or none.
func (c *invocation) addResourceSettings() error {
	system, ok := c.find(c.in.text("AffectedConfiguration"), "CIM_VirtualSystemSettingData")
	if !ok || system.text("VirtualSystemType") != realizedSystem {
		return refuse(rvInvalidParameter, "AffectedConfiguration is no path of a virtual machine's settings")
	}
	vm, ok := c.host.VM(system.text("VirtualSystemIdentifier"))
	if !ok {
		return refuse(rvInvalidParameter, "the VM is gone")
	}
	settings, err := c.settingsOf()
	if err != nil {
		return err
	}
	return c.job(jobAddResources, func(ctx context.Context, out *Object) error {
		var done []addition
		var ids, paths []string
		for _, s := range settings {
			a, err := c.addition(vm, s)
			var id string
			if err == nil {
				id, err = a.add(ctx)
			}
			if err != nil {
				for i := range done {
					_ = done[i].undo(ctx, ids[i]) // the first failure is what the caller gets
				}
				return err
			}
			done, ids = append(done, a), append(ids, id)
			paths = append(paths, c.settingPath(a.class, vm, id))
		}
		return out.Set("ResultingResourceSettings", paths)
	})
}

func (v *view) settingPath(class string, vm *gpu.VM, id string) string {
	o := (&Class{Name: class, Properties: []Property{{Name: "InstanceID", Key: true}}}).New()
	o.values["instanceid"] = settingID(vmGUID(vm), id)
	return pathTo(v.host.Name, v.name, o)
}

// addition checks a setting to add. It must be what its class is for, as the default
// template is.
func (c *invocation) addition(vm *gpu.VM, s *Object) (addition, error) {
	engine, id := c.machine.host, vm.ID
	kind, _ := s.number("ResourceType")
	switch {
	case s.Class.Is(partitionResource.class) && kind == partitionType && s.text("ResourceSubType") == partitionSubType:
		adapter, err := c.adapterOf(s)
		return addition{
			class: partitionResource.class,
			add:   func(ctx context.Context) (string, error) { return engine.AddPartitionAdapter(ctx, id, adapter) },
			undo: func(ctx context.Context, adapter string) error {
				return engine.RemovePartitionAdapter(ctx, id, adapter)
			},
		}, err
	case s.Class.Is(pciExpressResource.class) && kind == pciExpressType && s.text("ResourceSubType") == pciExpressSubType:
		assignment, err := c.assignmentOf(s)
		return addition{
			class: pciExpressResource.class,
			add:   func(ctx context.Context) (string, error) { return engine.AddDevice(ctx, id, assignment) },
			undo:  func(ctx context.Context, device string) error { return engine.RemoveDevice(ctx, id, device) },
		}, err
	default:
		return addition{}, refuse(rvInvalidParameter, "%s: resource type %d, subtype %q", s.Class.Name, kind, s.text("ResourceSubType"))
	}
}

// adapterOf is an adapter to add. Hosts refuse quotas with the addition, so they are
// refused here; a host resource must be the path of a partitionable GPU.
func (c *invocation) adapterOf(s *Object) (gpu.PartitionAdapter, error) {
	if s.text("PoolID") != "" {
		return gpu.PartitionAdapter{}, refuse(rvInvalidParameter, "there are no pools of GPU partitions")
	}
	if !quotasOf(s).Empty() {
		return gpu.PartitionAdapter{}, refuse(rvInvalidParameter, "failed to add device 'GPU Partition': quotas are set once it is there")
	}
	paths := s.texts("HostResource")
	if len(paths) == 0 {
		return gpu.PartitionAdapter{}, nil
	}
	g, ok := c.partitionableAt(paths[0])
	if !ok || len(paths) > 1 {
		return gpu.PartitionAdapter{}, refuse(rvInvalidParameter, "failed to add device 'GPU Partition': %s is no partitionable GPU", paths[0])
	}
	return gpu.PartitionAdapter{PinnedGPU: g.ID}, nil
}

func quotasOf(s *Object) gpu.Quotas {
	var out gpu.Quotas
	for name, q := range quotasByName(&out) {
		for figure, n := range map[string]**uint64{"Min": &q.Min, "Max": &q.Max, "Optimal": &q.Optimal} {
			if value, ok := s.number(figure + "Partition" + name); ok {
				*n = &value
			}
		}
	}
	return out
}

// assignmentOf is a device to add: of a pool, or the one at a path.
func (c *invocation) assignmentOf(s *Object) (gpu.DeviceAssignment, error) {
	pool, paths := s.text("PoolID"), s.texts("HostResource")
	switch {
	case pool != "" && len(paths) == 0:
		return gpu.DeviceAssignment{Pool: pool}, nil
	case pool != "" || len(paths) != 1:
		return gpu.DeviceAssignment{}, refuse(rvInvalidParameter, "failed to add device 'Virtual Pci Express Port': a pool or one device")
	}
	g, ok := c.assignableAt(paths[0])
	if !ok {
		return gpu.DeviceAssignment{}, refuse(rvInvalidParameter, "failed to add device 'Virtual Pci Express Port': %s is no assignable device",
			paths[0])
	}
	return gpu.DeviceAssignment{GPU: g.ID}, nil
}

// owned is the VM whose setting an instance id names. Templates, and settings of
// checkpoints and pools, are of none.
func (c *invocation) owned(instanceID string) (vm *gpu.VM, id string, err error) {
	owner, id, ok := parseSettingID(instanceID)
	if ok {
		vm, ok = c.host.VM(owner)
	}
	if !ok {
		return nil, "", refuse(rvInvalidParameter, "%s is no setting of a virtual machine", instanceID)
	}
	return vm, id, nil
}

// modifyResourceSettings sets quotas. An instance holds the modified aspects of a setting: a
// quota without a value is left alone. All else must be as it is.
func (c *invocation) modifyResourceSettings() error {
	settings, err := c.settingsOf()
	if err != nil {
		return err
	}
	type change struct {
		vm, id string
		quotas gpu.Quotas
	}
	var changes []change
	var paths []string
	for _, s := range settings {
		vm, id, err := c.owned(s.text("InstanceID"))
		if err != nil {
			return err
		}
		path := c.settingPath(s.Class.Name, vm, id)
		current, ok := c.find(path, partitionResource.class)
		if !ok {
			return refuse(rvNotSupported, "%s cannot be modified here", s.text("InstanceID"))
		}
		for _, p := range s.Class.Properties {
			name := fold(p.Name)
			if v := s.values[name]; v != nil && !equal(v, current.values[name]) && !strings.Contains(p.Name, "Partition") {
				return refuse(rvInvalidParameter, "%s cannot be modified", p.Name)
			}
		}
		changes, paths = append(changes, change{vm.ID, id, overlay(quotasOf(current), quotasOf(s))}), append(paths, path)
	}
	engine := c.machine.host
	return c.job(jobModifyResources, func(ctx context.Context, out *Object) error {
		for _, ch := range changes {
			if vm, ok := c.host.VM(ch.vm); ok && vm.State != gpu.VMOff {
				return refuse(rvInvalidState, "the VM is %s", vm.State)
			}
			if err := engine.SetPartitionQuotas(ctx, ch.vm, ch.id, ch.quotas); err != nil {
				return err
			}
		}
		return out.Set("ResultingResourceSettings", paths)
	})
}

// overlay is quotas with those of others in their place.
func overlay(under, over gpu.Quotas) gpu.Quotas {
	given := quotasByName(&over)
	for name, q := range quotasByName(&under) {
		o := given[name]
		q.Min, q.Max, q.Optimal = cmp.Or(o.Min, q.Min), cmp.Or(o.Max, q.Max), cmp.Or(o.Optimal, q.Optimal)
	}
	return under
}

// removeResourceSettings takes devices from VMs.
func (c *invocation) removeResourceSettings() error {
	var removals []func(context.Context) error
	engine := c.machine.host
	for _, path := range c.in.texts("ResourceSettings") {
		s, ok := c.find(path, resourceSettings)
		if !ok {
			return refuse(rvInvalidParameter, "%s does not exist", path)
		}
		vm, id, err := c.owned(s.text("InstanceID"))
		if err != nil {
			return err
		}
		switch s.Class.Name {
		case partitionResource.class:
			removals = append(removals, func(ctx context.Context) error { return engine.RemovePartitionAdapter(ctx, vm.ID, id) })
		case pciExpressResource.class:
			removals = append(removals, func(ctx context.Context) error { return engine.RemoveDevice(ctx, vm.ID, id) })
		default:
			return refuse(rvNotSupported, "%s cannot be removed", s.Class.Name)
		}
	}
	if len(removals) == 0 {
		return refuse(rvInvalidParameter, "no settings")
	}
	return c.job(jobRemoveResources, func(ctx context.Context, _ *Object) error {
		for _, remove := range removals {
			if err := remove(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// modifySystemSettings writes settings of a VM. The instance is the whole; what has no
// value is left alone, and what is nothing of a fleet's must be as it is.
func (c *invocation) modifySystemSettings() error {
	s, err := c.embedded(c.in.text("SystemSettings"), "Msvm_VirtualSystemSettingData")
	if err != nil {
		return err
	}
	guid, ok := strings.CutPrefix(s.text("InstanceID"), "Microsoft:")
	vm, known := c.host.VM(guid)
	if !ok || !known {
		return refuse(rvInvalidParameter, "%q is no virtual machine's settings", s.text("InstanceID"))
	}
	current := c.systemSetting(vm, vmGUID(vm), realizedSystem)
	var change gpu.VMSettings
	for _, p := range s.Class.Properties {
		name := fold(p.Name)
		if v := s.values[name]; v == nil || equal(v, current.values[name]) {
			continue
		}
		if !takeSetting(&change, s, p.Name) {
			return refuse(rvInvalidParameter, "%s cannot be changed to %v", p.Name, s.values[name])
		}
	}
	engine, id := c.machine.host, vm.ID
	return c.job(jobModifySystem, func(ctx context.Context, _ *Object) error {
		return engine.ApplyVMSettings(ctx, id, change)
	})
}

// takeSetting takes one setting over. It is not ok for one that a fleet does not know.
func takeSetting(into *gpu.VMSettings, s *Object, name string) bool {
	n, _ := s.number(name)
	flag, _ := s.flag(name)
	space := gpu.Bytes(n) * gpu.MiB
	switch name {
	case "LowMmioGapSize":
		into.LowMemoryMappedIOSpace = &space
	case "HighMmioGapSize":
		into.HighMemoryMappedIOSpace = &space
	case "GuestControlledCacheTypes":
		into.GuestControlledCache = &flag
	case "AutomaticShutdownAction":
		for action, number := range stopActions {
			if uint64(number) == n {
				into.AutomaticStopAction = &action
				return true
			}
		}
		return false
	default:
		return false
	}
	return true
}
