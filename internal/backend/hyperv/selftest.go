package hyperv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// SelfTest reads which assumptions about Hyper-V hold on this host. This backend was
// written against the documentation and a fixture; the answers of a host with GPUs show
// where it was read wrongly.
func (b *Backend) SelfTest(ctx context.Context) []backend.Answer {
	var out []backend.Answer
	for _, q := range []struct {
		id  string
		ask func(context.Context) (found string, holds *bool, err error)
	}{
		{"hyperv-location-path", b.askGPUs},
		{"hyperv-partition-path", b.askPartitionPaths},
		{"hyperv-partition-rows", b.askPartitionRows},
		{"hyperv-pool-settings", b.askPoolSettings},
		{"hyperv-partition-template", b.asking("Msvm_GpuPartitionSettingData")},
		{"hyperv-device-template", b.asking("Msvm_PciExpressSettingData")},
		{"hyperv-primordial-settings", b.askPrimordial},
		{"hyperv-dismounted-memory", b.askDismounted},
		{"hyperv-dismounted-class", b.askDismountedClass},
		{"hyperv-property-types", b.askPropertyTypes},
		{"hyperv-shutdown-component", b.askShutdown},
		{"hyperv-offline-action", b.askOfflineActions},
	} {
		found, holds, err := q.ask(ctx)
		out = append(out, backend.Answer{Assumption: q.id, Found: found, Holds: holds, Err: complete(ctx, err, "ask the host", "WMI")})
	}
	host, err := b.Inventory(ctx)
	counts := backend.CountsAsInCatalog(host)
	counts.Err = err
	return append(out, counts)
}

// all tells whether something is true of all of a list, nil when the list is empty.
func all[T any](list []T, is func(T) bool) *bool {
	if len(list) == 0 {
		return nil
	}
	return new(!slices.ContainsFunc(list, func(one T) bool { return !is(one) }))
}

func (b *Backend) askGPUs(ctx context.Context) (string, *bool, error) {
	v, err := b.read(ctx)
	if err != nil {
		return "", nil, err
	}
	var lines []string
	seen := map[string]int{}
	for i := range v.host.GPUs {
		g := &v.host.GPUs[i]
		seen[gpu.FoldID(g.ID)]++
		counts := "no GPU-P"
		if p := g.Partitionable; p != nil {
			counts = fmt.Sprintf("%d of %v partitions, paravirtual %t, VRAM %+v", p.Count, p.ValidCounts, p.Paravirtual, p.VRAM)
		}
		lines = append(lines, fmt.Sprintf("%s: %s, %s, driver %q, status %s, %s, MMIO %s below and %s above 4 GiB, problem %q",
			g.ID, g.Model, g.InstancePath, g.Driver.Version, g.Status, counts, g.MMIO.Low, g.MMIO.High, g.Problem))
	}
	holds := all(v.host.GPUs, func(g gpu.GPU) bool { return strings.HasPrefix(g.ID, "PCIROOT") && seen[gpu.FoldID(g.ID)] == 1 })
	return strings.Join(lines, "\n"), holds, nil
}

func (b *Backend) partitionRows(ctx context.Context) (rows []Row, found string, err error) {
	properties := []string{"DeviceID", "SystemName", "DeviceInstancePath", "PartitionId", "PartitionVfLuid"}
	rows, err = b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_GpuPartition", properties...)
	if errors.Is(err, InvalidClass) {
		return nil, "the class is not there", nil
	}
	return rows, list(rows, properties...), err
}

// askPartitionPaths reads no inventory, which fails where the assumption does not hold.
func (b *Backend) askPartitionPaths(ctx context.Context) (string, *bool, error) {
	rows, found, err := b.partitionRows(ctx)
	if err != nil || len(rows) == 0 {
		return found, nil, err
	}
	faces, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_PartitionableGpu", "Name")
	if err != nil {
		return found, nil, err
	}
	gpus := map[string]bool{}
	for _, face := range faces {
		instance, _ := instanceOf(face.String("Name"))
		gpus[slot(instance)] = true
	}
	return found, all(rows, func(row Row) bool {
		instance, _ := instanceOf(row.String("DeviceInstancePath"))
		return gpus[slot(instance)]
	}), nil
}

func (b *Backend) askPartitionRows(ctx context.Context) (string, *bool, error) {
	rows, found, err := b.partitionRows(ctx)
	if err != nil || len(rows) == 0 {
		return found, nil, err
	}
	computers, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_ComputerSystem", "Name", "EnabledState")
	if err != nil {
		return found, nil, err
	}
	off := map[string]bool{}
	for _, c := range computers {
		off[gpu.FoldID(c.String("Name"))] = vmState(c.Uint("EnabledState")) == gpu.VMOff
	}
	return found, all(rows, func(row Row) bool { return !off[gpu.FoldID(row.String("SystemName"))] }), nil
}

// beside reads the rows of a class, prints them, and reads the host beside them.
func (b *Backend) beside(ctx context.Context, class string, properties ...string) (rows []Row, found string, v *view, err error) {
	rows, err = b.wmi.Query(ctx, Virtualization, "SELECT * FROM "+class, properties...)
	if err == nil {
		found = list(rows, properties...)
		v, err = b.read(ctx)
	}
	return rows, found, v, err
}

func (b *Backend) askPoolSettings(ctx context.Context) (string, *bool, error) {
	rows, found, v, err := b.beside(ctx, "Msvm_PciExpressSettingData", "InstanceID", "PoolID", "HostResource")
	if err != nil {
		return found, nil, err
	}
	return found, all(v.host.Pools, func(gpu.Pool) bool {
		for _, row := range rows {
			of, _, ok := settingID(row.String("InstanceID"))
			if _, ofVM := v.host.VM(of); ok && !ofVM {
				return true
			}
		}
		return false
	}), nil
}

// asking reads a template and checks that taking its XML apart loses nothing.
func (b *Backend) asking(class string) func(context.Context) (string, *bool, error) {
	return func(ctx context.Context) (string, *bool, error) {
		rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM "+class+" WHERE InstanceID LIKE "+literal("%"+defaultSuffix), "InstanceID")
		if err != nil {
			return "", nil, err
		}
		found := list(rows, "InstanceID")
		e, err := b.template(ctx, class)
		if err != nil {
			return found + "\n" + err.Error(), new(false), nil //nolint:nilerr // that is the answer
		}
		return found + "\n" + e.String(), new(true), nil
	}
}

func (b *Backend) askPrimordial(ctx context.Context) (string, *bool, error) {
	path, e, err := b.primordial(ctx)
	if err != nil {
		return "", nil, err
	}
	return path + "\n" + e.String(), new(true), nil
}

func (b *Backend) askDismounted(ctx context.Context) (string, *bool, error) {
	_, found, v, err := b.beside(ctx, "Msvm_PciExpress", "DeviceID", "SystemName", "DeviceInstancePath", "LocationPath")
	if err != nil {
		return found, nil, err
	}
	dismounted := slices.DeleteFunc(v.host.GPUs, func(g gpu.GPU) bool { return !g.Dismounted })
	return found, all(dismounted, func(g gpu.GPU) bool { return g.MMIO.Low+g.MMIO.High > 0 }), nil
}

func (b *Backend) askDismountedClass(ctx context.Context) (string, *bool, error) {
	properties := []string{"DeviceID", "CompatibleID", "HardwareID"}
	rows, err := b.wmi.Query(ctx, CIMv2, `SELECT * FROM Win32_PnPEntity WHERE DeviceID LIKE 'PCIP\\%'`, properties...)
	if err != nil {
		return "", nil, err
	}
	return list(rows, properties...), all(rows, func(row Row) bool {
		return slices.ContainsFunc(slices.Concat(row.Strings("CompatibleID"), row.Strings("HardwareID")), classCode.MatchString)
	}), nil
}

// propertyTypes are how the values of device properties arrive.
var propertyTypes = map[string]func(any) bool{
	locationPathsKey: func(v any) bool { _, ok := v.([]any); return ok },
	driverVersionKey: func(v any) bool { _, ok := v.(string); return ok },
	deviceTypeKey:    func(v any) bool { _, ok := number(v); return ok },
	reservedMemKey:   func(v any) bool { _, ok := v.(bool); return ok },
}

func (b *Backend) askPropertyTypes(ctx context.Context) (string, *bool, error) {
	v, err := b.read(ctx)
	if err != nil {
		return "", nil, err
	}
	var lines []string
	var values []bool
	for i := range v.host.GPUs {
		g := &v.host.GPUs[i]
		of, err := b.deviceProperties(ctx, v.device(g).entity, slices.Sorted(maps.Keys(propertyTypes))...)
		if err != nil {
			return strings.Join(lines, "\n"), nil, err
		}
		for key, row := range of {
			data := row.value("Data")
			lines = append(lines, fmt.Sprintf("%s %s: %T %v", g.ID, key, data, data))
			if is, known := propertyTypes[key]; known && data != nil {
				values = append(values, is(data))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), all(values, func(is bool) bool { return is }), nil
}

func (b *Backend) askShutdown(ctx context.Context) (string, *bool, error) {
	rows, found, v, err := b.beside(ctx, "Msvm_ShutdownComponent", "SystemName", "EnabledState")
	if err != nil {
		return found, nil, err
	}
	// One VM suffices: the guests of others may have no integration services.
	for _, row := range rows {
		if vm, ok := v.host.VM(row.String("SystemName")); ok && vm.State == gpu.VMRunning {
			return found, new(true), nil
		}
	}
	if slices.ContainsFunc(v.host.VMs, func(vm gpu.VM) bool { return vm.State == gpu.VMRunning }) {
		return found, new(false), nil
	}
	return found, nil, nil
}

func (b *Backend) askOfflineActions(ctx context.Context) (string, *bool, error) {
	rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type="+literal(virtualMachineType),
		"Name", "PrivateProperties")
	if errors.Is(err, InvalidNamespace) {
		return "the host is in no cluster", nil, nil
	}
	lines := words.Each(rows, func(row Row) string {
		private := row.Row("PrivateProperties")
		return fmt.Sprintf("%s: VmID %q, OfflineAction %v", row.String("Name"), private.String("VmID"), private.Values["OfflineAction"])
	})
	return strings.Join(lines, "\n"), all(rows, func(row Row) bool { return row.Row("PrivateProperties").Has("OfflineAction") }), err
}

// list prints rows, one per line.
func list(rows []Row, properties ...string) string {
	return strings.Join(words.Each(rows, func(row Row) string {
		return strings.Join(words.Each(properties, func(p string) string { return fmt.Sprintf("%s=%v", p, row.Values[p]) }), " ")
	}), "\n")
}
