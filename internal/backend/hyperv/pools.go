package hyperv

import (
	"context"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	poolService    = "Msvm_ResourcePoolConfigurationService"
	primordialName = "Primordial"
)

// CreatePool makes an empty pool below the primordial one: its settings are the
// primordial pool's own under another name, its one allocation setting the default.
func (b *Backend) CreatePool(ctx context.Context, name string) error {
	return b.change(ctx, "create the pool", "pool "+name, need{of: ofVMs | ofPools}, func(v *view) error {
		if name == "" || strings.EqualFold(name, primordialName) {
			return refuse(backend.InvalidParameter, "the name %q is that of the pool of all devices", name)
		}
		if err := v.knows("", nil, gpu.PartPools); err != nil {
			return err
		}
		if _, ok := v.host.Pool(name); ok {
			return nil
		}
		parent, settings, err := b.primordial(ctx)
		if err != nil {
			return err
		}
		settings.set("PoolID", name)
		allocation, err := b.template(ctx, "Msvm_PciExpressSettingData")
		if err != nil {
			return err
		}
		create := func() error {
			return looked(b.call(ctx, poolService, "CreatePool", map[string]any{
				"PoolSettings": settings.String(), "ParentPools": []string{parent}, "AllocationSettings": []string{allocation.String()},
			}))
		}
		err = create()
		if backend.Is(err, backend.InvalidParameter) {
			// Assumption hyperv-pool-allocation; and nothing reserved.
			allocation.set("PoolID", name)
			for _, figure := range []string{"Reservation", "Limit", "VirtualQuantity", "Weight"} {
				allocation.set(figure, uint64(0))
			}
			err = create()
		}
		if err != nil {
			if path, lookErr := b.poolPath(ctx, name); lookErr == nil && path != "" {
				return nil // somebody else was faster
			}
			return err
		}
		return b.until(ctx, "the pool is not there", func() (bool, error) {
			path, err := b.poolPath(ctx, name)
			return path != "", err
		})
	})
}

// primordial is the path and the settings of the pool of all assignable devices
// (assumption hyperv-primordial-settings).
func (b *Backend) primordial(ctx context.Context) (string, *embedded, error) {
	path, err := b.pool(ctx, func(row Row) bool { return row.Bool("Primordial") })
	switch {
	case err != nil:
		return "", nil, err
	case path == "":
		return "", nil,
			refuse(backend.NotSupported, "the host has no pool of assignable devices: Discrete Device Assignment is not available on it")
	}
	settings, err := b.wmi.Query(ctx, Virtualization,
		"ASSOCIATORS OF {"+path+"} WHERE AssocClass=Msvm_SettingsDefineState ResultClass=Msvm_ResourcePoolSettingData", "InstanceID")
	switch {
	case err != nil:
		return "", nil, err
	case len(settings) == 0:
		return "", nil, refuse(backend.Failed, "the pool of all devices has no settings to begin a pool with")
	}
	e, err := b.embedded(ctx, settings[0].Path)
	return path, e, err
}

// poolPath is the path of a PciExpress pool, "" if there is none.
func (b *Backend) poolPath(ctx context.Context, name string) (string, error) {
	return b.pool(ctx, func(row Row) bool { return !row.Bool("Primordial") && gpu.SameID(row.String("PoolID"), name) })
}

// pool is the path of the first of the PciExpress pools that is meant, "" for none.
func (b *Backend) pool(ctx context.Context, is func(Row) bool) (string, error) {
	rows, err := b.poolRows(ctx)
	if i := slices.IndexFunc(rows, is); i >= 0 {
		return rows[i].Path, nil
	}
	return "", err
}

func (b *Backend) poolRows(ctx context.Context) ([]Row, error) {
	return b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_ResourcePool WHERE ResourceType="+pciExpressType, "PoolID", "Primordial")
}

// SetPoolMembers replaces the members of a pool. The call takes all of a pool's
// allocation settings and parents, in one order.
func (b *Backend) SetPoolMembers(ctx context.Context, name string, gpuIDs []string) error {
	return b.change(ctx, "set the members of the pool", "pool "+name,
		need{of: ofVMs | ofGPUs | ofAssignables | ofDisplays | ofPools | ofDevices}, func(v *view) error {
			if err := v.knows("", gpuIDs, gpu.PartPools, gpu.PartDevices); err != nil {
				return err
			}
			p, ok := v.host.Pool(name)
			if !ok {
				return refuse(backend.NotFound, "the host has no such pool")
			}
			members, err := v.members(p, gpuIDs)
			if err != nil {
				return err
			}
			if v.same(p, members) {
				return nil
			}
			return b.replaceMembers(ctx, v.pools[gpu.FoldID(p.Name)], members)
		})
}

// members are the paths of the wanted members, each once.
func (v *view) members(p *gpu.Pool, gpuIDs []string) ([]string, error) {
	var paths []string
	stays := map[string]bool{}
	for _, id := range gpuIDs {
		g, ok := v.host.GPU(id)
		if !ok {
			return nil, refuse(backend.NotFound, "the host has no GPU %s", id)
		}
		path := v.device(g).assignable
		if path == "" {
			return nil, refuse(backend.InvalidState, "GPU %s is not dismounted from the host", g.ID)
		}
		for i := range v.host.Pools {
			if other := &v.host.Pools[i]; !gpu.SameID(other.Name, p.Name) && other.Has(g.ID) {
				return nil, refuse(backend.InUse, "GPU %s is a member of pool %s", g.ID, other.Name)
			}
		}
		if !stays[gpu.FoldID(g.ID)] {
			stays[gpu.FoldID(g.ID)] = true
			paths = append(paths, path)
		}
	}
	for _, id := range p.GPUs {
		if holder := v.assignee(id, holdsHardware); holder != nil && !stays[gpu.FoldID(id)] {
			return nil, refuse(backend.InUse, "GPU %s is held by VM %s", id, holder.Name)
		}
	}
	return paths, nil
}

func (v *view) same(p *gpu.Pool, paths []string) bool {
	var have []string
	for _, id := range p.GPUs {
		if g, ok := v.host.GPU(id); ok {
			have = append(have, v.device(g).assignable)
		}
	}
	slices.Sort(have)
	return slices.Equal(have, slices.Sorted(slices.Values(paths)))
}

func (b *Backend) replaceMembers(ctx context.Context, poolPath string, members []string) error {
	rows, err := b.allocations(ctx, poolPath)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return refuse(backend.Failed, "the pool has no allocation setting that could name its members")
	}
	var parents, allocations []string
	for i, row := range rows {
		parent, err := b.parent(ctx, row.Path)
		if err != nil {
			return err
		}
		e, err := b.embedded(ctx, row.Path)
		if err != nil {
			return err
		}
		// A pool has one setting for each parent, and ours have one parent.
		if i == 0 {
			e.set("HostResource", members)
		} else {
			e.set("HostResource", []string{})
		}
		parents, allocations = append(parents, parent), append(allocations, e.String())
	}
	if err := looked(b.call(ctx, poolService, "ModifyPoolResources", map[string]any{
		"ChildPool": poolPath, "ParentPools": parents, "AllocationSettings": allocations,
	})); err != nil {
		return err
	}
	wanted := deviceIDs(members)
	return b.until(ctx, "the pool does not show its new members", func() (bool, error) {
		shown, err := b.membersOf(ctx, poolPath)
		return slices.Equal(deviceIDs(shown), wanted), err
	})
}

// deviceIDs are the keys of paths of devices, in order: hosts prefix paths in several
// ways.
func deviceIDs(paths []string) []string {
	var out []string
	for _, path := range paths {
		out = append(out, gpu.FoldID(keyOf(path, "DeviceID")))
	}
	slices.Sort(out)
	return out
}

// parent is the pool that an allocation setting of another pool draws from.
func (b *Backend) parent(ctx context.Context, allocationPath string) (string, error) {
	rows, err := b.wmi.Query(ctx, Virtualization,
		"ASSOCIATORS OF {"+allocationPath+"} WHERE AssocClass=Msvm_ResourceAllocationFromPool ResultClass=CIM_ResourcePool", "PoolID")
	if err != nil {
		return "", err
	}
	if len(rows) == 0 {
		return "", refuse(backend.Failed, "the pool that %s draws from is not there", keyOf(allocationPath, "InstanceID"))
	}
	return rows[0].Path, nil
}

// DeletePool removes a pool; its members stay dismounted. A VM that is off and draws
// from it would not start any more, so it counts as a user.
func (b *Backend) DeletePool(ctx context.Context, name string) error {
	return b.change(ctx, "delete the pool", "pool "+name, need{of: ofVMs | ofGPUs | ofAssignables | ofPools | ofDevices}, func(v *view) error {
		if err := v.knows("", nil, gpu.PartPools, gpu.PartDevices); err != nil {
			return err
		}
		p, ok := v.host.Pool(name)
		if !ok {
			return nil
		}
		for i := range v.host.VMs {
			for _, d := range v.host.VMs[i].Devices {
				if d.Pool != "" && gpu.SameID(d.Pool, name) {
					return refuse(backend.InUse, "VM %s draws from it", v.host.VMs[i].Name)
				}
			}
		}
		return b.deletePool(ctx, v.pools[gpu.FoldID(p.Name)])
	})
}

// deletePool empties a pool and deletes it. The members go back when that is refused.
func (b *Backend) deletePool(ctx context.Context, path string) error {
	members, err := b.membersOf(ctx, path)
	if err != nil {
		return err
	}
	if len(members) > 0 {
		err = b.replaceMembers(ctx, path, nil)
	}
	if err == nil {
		err = b.dropPool(ctx, path)
	}
	if err == nil {
		return nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if gone, lookErr := b.gone(undo, path); lookErr == nil && gone {
		return nil
	}
	now, lookErr := b.membersOf(undo, path)
	if lookErr == nil && slices.Equal(deviceIDs(now), deviceIDs(members)) {
		return err
	}
	if undoErr := b.replaceMembers(undo, path, members); undoErr != nil {
		return aftermath(ctx, err, "its members could not be put back", undoErr)
	}
	return err
}

// membersOf are the paths of a pool's members.
func (b *Backend) membersOf(ctx context.Context, poolPath string) ([]string, error) {
	rows, err := b.allocations(ctx, poolPath)
	var out []string
	for _, row := range rows {
		out = append(out, row.Strings("HostResource")...)
	}
	return out, err
}

func (b *Backend) dropPool(ctx context.Context, path string) error {
	if err := looked(b.outlast(ctx, b.call(ctx, poolService, "DeletePool", map[string]any{"Pool": path}))); err != nil {
		return err
	}
	return b.until(ctx, "the pool is still there", func() (bool, error) { return b.gone(ctx, path) })
}
