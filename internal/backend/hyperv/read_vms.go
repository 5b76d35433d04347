package hyperv

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// pciExpressType is the resource type of pools of PCI Express devices.
const pciExpressType = "32769"

// poolMembers reads the PciExpress pools. A pool's members are the devices that its
// allocation settings name; pools of other resources may have the same name.
func (r *reader) poolMembers(ctx context.Context) error {
	rows, err := r.poolRows(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Bool("Primordial") {
			continue
		}
		p := gpu.Pool{Name: row.String("PoolID"), GPUs: []string{}}
		allocations, err := r.allocations(ctx, row.Path)
		if err != nil {
			r.lacks(ctx, gpu.Unknown{Part: gpu.PartPools}, fmt.Errorf("pool %s: %w", p.Name, err))
		}
		for _, a := range allocations {
			for _, path := range a.Strings("HostResource") {
				// A member that has left the host is still named; it is none of the GPUs.
				id := ""
				if g := r.byAssignable(path); g != nil {
					id = g.ID
				}
				if id != "" && !p.Has(id) {
					p.GPUs = append(p.GPUs, id)
				}
				if !r.sees(id) {
					r.lacks(ctx, gpu.Unknown{Part: gpu.PartPools}, fmt.Errorf("pool %s: %w", p.Name, errUnseen))
				}
			}
		}
		r.host.Pools = append(r.host.Pools, p)
		r.pools[gpu.FoldID(p.Name)] = row.Path
	}
	return nil
}

// allocations are a pool's allocation settings.
func (b *Backend) allocations(ctx context.Context, poolPath string) ([]Row, error) {
	return b.wmi.Query(ctx, Virtualization, "ASSOCIATORS OF {"+poolPath+"} WHERE AssocClass=Msvm_SettingsDefineState"+
		" ResultClass=CIM_ResourceAllocationSettingData ResultRole=SettingData", "InstanceID", "HostResource", "PoolID")
}

// byAssignable finds the GPU that a path of an Msvm_PciExpress names. Paths are
// compared by their keys: hosts prefix them in several ways.
func (r *reader) byAssignable(path string) *gpu.GPU {
	for i := range r.host.GPUs {
		g := &r.host.GPUs[i]
		if own := r.device(g).assignable; own != "" && strings.EqualFold(keyOf(own, "DeviceID"), keyOf(path, "DeviceID")) {
			return g
		}
	}
	return nil
}

// adapters reads the GPU partition adapters of VMs, running or not.
func (r *reader) adapters(ctx context.Context) error {
	rows, err := r.rowsOf(ctx, "SELECT * FROM Msvm_GpuPartitionSettingData"+r.ofVMs(settingsOfVM),
		append(quotaProperties(), "InstanceID", "HostResource")...)
	if err != nil {
		return err
	}
	for _, row := range rows {
		vm, id, ok := r.owner(row)
		if !ok {
			continue
		}
		a := gpu.PartitionAdapter{ID: id, Quotas: quotas(row)}
		if pins := row.Strings("HostResource"); len(pins) > 0 && pins[0] != "" {
			r.pins[gpu.FoldID(id)] = pins
			a.PinnedGPU = r.pinned(pins[0])
			if !r.sees(a.PinnedGPU) {
				r.lacks(ctx, gpu.Unknown{Part: gpu.PartVMs, VM: vm.ID}, fmt.Errorf("adapter %s: %w", id, errUnseen))
			}
		}
		vm.PartitionAdapters = append(vm.PartitionAdapters, a)
		r.machine(vm).adapters[gpu.FoldID(id)] = row.Path
	}
	return nil
}

// owner is the VM whose realized settings a row belongs to. Templates, and the settings
// of checkpoints and pools, belong to none.
func (r *reader) owner(row Row) (vm *gpu.VM, setting string, ok bool) {
	id, setting, ok := settingID(row.String("InstanceID"))
	if !ok {
		return nil, "", false
	}
	vm, ok = r.host.VM(id)
	return vm, setting, ok
}

// pinned is the GPU that an adapter is pinned to. One that has left the host is known
// by what its path says.
func (r *reader) pinned(path string) string {
	instance, _ := instanceOf(keyOf(path, "Name"))
	if g := r.gpuAt(instance); g != nil {
		return g.ID
	}
	return instance
}

// quotaProperties are those of an adapter's setting that are quotas.
func quotaProperties() []string {
	return figuresOf("MinPartition", "MaxPartition", "OptimalPartition")
}

// figuresOf are properties that each resource of a GPU has, such as TotalVRAM and TotalEncode.
func figuresOf(figures ...string) []string {
	var out []string
	for _, resource := range []string{"VRAM", "Encode", "Decode", "Compute"} {
		for _, figure := range figures {
			out = append(out, figure+resource)
		}
	}
	return out
}

func quotas(row Row) gpu.Quotas {
	return gpu.Quotas{VRAM: quota(row, "VRAM"), Encode: quota(row, "Encode"), Decode: quota(row, "Decode"), Compute: quota(row, "Compute")}
}

func quota(row Row, resource string) gpu.Quota {
	return gpu.Quota{
		Min:     row.UintPtr("MinPartition" + resource),
		Max:     row.UintPtr("MaxPartition" + resource),
		Optimal: row.UintPtr("OptimalPartition" + resource),
	}
}

// assignments reads the whole devices of VMs, which stand beside the settings of pools
// (assumption hyperv-pool-settings). Which one of a pool a VM has is known only while it runs.
func (r *reader) assignments(ctx context.Context) error {
	rows, err := r.rowsOf(ctx, "SELECT * FROM Msvm_PciExpressSettingData"+r.ofVMs(settingsOfVM), "InstanceID", "HostResource", "PoolID")
	if err != nil {
		return err
	}
	for _, row := range rows {
		vm, id, ok := r.owner(row)
		if !ok {
			continue
		}
		// A setting can be removed whatever it names.
		r.machine(vm).devices[gpu.FoldID(id)] = row.Path
		d := gpu.DeviceAssignment{ID: id, Pool: row.String("PoolID")}
		if d.Pool != "" {
			if p, ok := r.host.Pool(d.Pool); ok {
				d.Pool = p.Name
			}
			d.GPU = r.drawn[gpu.FoldID(id)]
			if holdsHardware(vm) && !r.sees(d.GPU) {
				r.lacks(ctx, gpu.Unknown{Part: gpu.PartDevices, VM: vm.ID}, fmt.Errorf("device %s: %w", id, errUnseen))
			}
		} else if paths := row.Strings("HostResource"); len(paths) > 0 {
			d.GPU = r.assigned(paths[0])
			if !r.sees(d.GPU) {
				r.lacks(ctx, gpu.Unknown{Part: gpu.PartDevices, VM: vm.ID}, fmt.Errorf("device %s: %w", id, errUnseen))
			}
			if d.GPU == "" {
				continue // not a GPU
			}
		}
		if d.Pool == "" && d.GPU == "" {
			r.lacks(ctx, gpu.Unknown{Part: gpu.PartDevices, VM: vm.ID}, isNull("Msvm_PciExpressSettingData", "HostResource"))
		}
		vm.Devices = append(vm.Devices, d)
	}
	return nil
}

// assigned is the GPU that a device setting names, "" for what is no GPU. One that has
// left the host, or was mounted again, keeps its VM from starting: it is shown by what
// is left of its path.
func (r *reader) assigned(path string) string {
	if g := r.byAssignable(path); g != nil {
		return g.ID
	}
	// The key is known with the vendor's mark, and with a port's before the path.
	key := keyOf(path, "DeviceID")
	at := deviceInKey.FindStringIndex(key)
	if at == nil {
		return strings.TrimPrefix(key, instancePrefix)
	}
	instance := key[at[0]:]
	if g := r.gpuAt(instance); g != nil {
		return g.ID
	}
	id, _ := pciID(instance)
	if _, known := catalog.ByPCI(id); !r.noGPU[slot(instance)] && (known || makesGPUs(id)) {
		return instance
	}
	return ""
}

var deviceInKey = regexp.MustCompile(`(?i)PCIP?\\VEN_`)
