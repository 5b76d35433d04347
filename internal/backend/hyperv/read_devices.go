package hyperv

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// displayClass is the base class of display controllers among PCI's class codes; it
// also covers the 3D controllers that Windows has no driver for.
const displayClass = "03"

// classCode finds PCI's class code in a device's hardware and compatible ids, whatever bus
// it is on: PCI\VEN_10DE&DEV_1DB4&CC_030200, PCIP\CC_0302.
var classCode = regexp.MustCompile(`(?i)^PCIP?\\(?:.*&)?CC_([0-9A-F]{2})`)

// Device properties, by the names that Windows gives their keys.
const (
	locationPathsKey = "DEVPKEY_Device_LocationPaths"
	driverVersionKey = "DEVPKEY_Device_DriverVersion"
	deviceTypeKey    = "DEVPKEY_PciDevice_DeviceType"
	reservedMemKey   = "DEVPKEY_PciDevice_RequiresReservedMemoryRegion"
)

// assignableTypes are the PCI device types that can be given to a VM: a PCI Express
// endpoint, a legacy endpoint (for display controllers), one that is part of the root
// complex. The others are conventional PCI devices, bridges and switch ports.
var assignableTypes = []uint64{2, 3, 4}

// Codes of the device manager.
const (
	problemNone     = 0
	problemDisabled = 22
)

var problemNames = map[uint64]string{
	10: "CM_PROB_FAILED_START", 12: "CM_PROB_NORMAL_CONFLICT", 14: "CM_PROB_NEED_RESTART", 18: "CM_PROB_REINSTALL",
	28: "CM_PROB_FAILED_INSTALL", 31: "CM_PROB_FAILED_ADD", 43: "CM_PROB_FAILED_POST_START", 52: "CM_PROB_UNSIGNED_DRIVER",
}

// entities lists the GPUs among the host's devices.
func (r *reader) entities(ctx context.Context) error {
	rows, err := r.wmi.Query(ctx, CIMv2,
		`SELECT * FROM Win32_PnPEntity WHERE PNPClass='Display' OR DeviceID LIKE 'PCI\\%' OR DeviceID LIKE 'PCIP\\%'`,
		"DeviceID", "Name", "PNPClass", "CompatibleID", "HardwareID", "ConfigManagerErrorCode", "Present")
	if err != nil {
		return err
	}
	for _, row := range rows {
		instance := row.String("DeviceID")
		id, ok := pciID(instance)
		if !ok || vendors[id.Vendor] == "" {
			continue
		}
		if !isDisplay(row, id) {
			r.noGPU[slot(instance)] = true
			continue
		}
		// What a dismount leaves behind on the host's bus is a device that is not there.
		if present := row.BoolPtr("Present"); present != nil && !*present {
			continue
		}
		r.entity(ctx, row, id)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// isDisplay tells a GPU from what else sits on its card: an audio function, a USB
// port. A dismounted device is in no class any more (assumption hyperv-dismounted-class).
func isDisplay(row Row, id gpu.PCIID) bool {
	if strings.EqualFold(row.String("PNPClass"), "Display") {
		return true
	}
	for _, s := range slices.Concat(row.Strings("CompatibleID"), row.Strings("HardwareID")) {
		if m := classCode.FindStringSubmatch(s); m != nil {
			return m[1] == displayClass
		}
	}
	return isDismounted(row.String("DeviceID")) && makesGPUs(id)
}

// makesGPUs tells whether the PCI vendor of a device whose class nobody tells makes nothing
// else that is given to VMs. Intel makes network adapters.
func makesGPUs(id gpu.PCIID) bool {
	vendor := vendors[id.Vendor]
	return vendor != "" && vendor != "Intel"
}

func (r *reader) entity(ctx context.Context, row Row, id gpu.PCIID) {
	instance := row.String("DeviceID")
	var properties map[string]Row
	var err error
	was := r.divided(instance)
	if was == nil {
		properties, err = r.deviceProperties(ctx, row.Path, locationPathsKey, driverVersionKey, deviceTypeKey, reservedMemKey)
	}
	g := gpu.GPU{
		InstancePath: instance,
		Model:        row.String("Name"),
		Vendor:       vendors[id.Vendor],
		PCI:          id,
		Dismounted:   isDismounted(instance),
	}
	if m, ok := catalog.ByPCI(id); ok {
		g.Model, g.VRAM = m.Name, m.VRAM
	}
	paths := properties[locationPathsKey].Strings("Data")
	switch {
	case err != nil:
		g.ID = gpu.Unidentified + slot(instance)
	case was != nil:
		g.ID, g.Driver = was.ID, was.Driver
	case len(paths) > 0:
		g.ID = locationPath(paths)
	default:
		// What is left of the path is as lasting as the slot that the device is in.
		g.ID = strings.ToUpper(slot(instance))
	}
	if !g.Dismounted && was == nil {
		g.Driver.Version = driverVersion(g.Vendor, properties[driverVersionKey].String("Data"))
	}
	if !assignable(properties) {
		g.Status = gpu.NotAssignable
	}
	code := row.Uint("ConfigManagerErrorCode")
	if code != problemNone && code != problemDisabled {
		g.Problem = fmt.Sprintf("device manager code %d", code)
		if name, ok := problemNames[code]; ok {
			g.Problem = fmt.Sprintf("%s (%d)", name, code)
		}
	}
	if other, twice := r.host.GPU(g.ID); twice {
		err = fmt.Errorf("two devices have the location path %s: %s and %s", g.ID, other.InstancePath, instance)
		r.dark[r.bySlot[slot(other.InstancePath)]] = err
		g.ID = gpu.Unidentified + slot(instance)
	}
	if err != nil {
		r.dark[len(r.host.GPUs)] = err
	}
	r.host.GPUs = append(r.host.GPUs, g)
	r.bySlot[slot(instance)] = len(r.host.GPUs) - 1
	r.devices[gpu.FoldID(g.ID)] = &device{entity: row.Path, disabled: code == problemDisabled}
}

// divided is a GPU as it was read before, if it offered partitions: what else it is lasts as long as it does so, and is a call for
// each GPU. Nil where all has to be read.
func (r *reader) divided(instance string) *gpu.GPU {
	if r.before == nil {
		return nil
	}
	for i := range r.before.GPUs {
		if g := &r.before.GPUs[i]; g.Partitionable != nil && gpu.SameID(g.InstancePath, instance) {
			return g
		}
	}
	return nil
}

// locationPath is the one of a device's paths that begins at the root (assumption
// hyperv-location-path).
func locationPath(paths []string) string {
	for _, path := range paths {
		if hasPrefixFold(path, "PCIROOT") {
			return path
		}
	}
	return paths[0]
}

// assignable asks what Microsoft's survey script asks of a device that is to be given
// away, but for what a dismount by force overrides (access control services). A
// property that the host does not tell is no obstacle (assumption hyperv-property-types).
func assignable(properties map[string]Row) bool {
	if t := properties[deviceTypeKey].UintPtr("Data"); t != nil && !slices.Contains(assignableTypes, *t) {
		return false
	}
	return !properties[reservedMemKey].Bool("Data")
}

// deviceProperties are rows with the property Data, by key. A property without a value
// has a row without Data; one that Windows does not know has none.
func (b *Backend) deviceProperties(ctx context.Context, entity string, keys ...string) (map[string]Row, error) {
	res, err := b.wmi.Invoke(ctx, CIMv2, entity, "GetDeviceProperties", map[string]any{"devicePropertyKeys": keys})
	if err != nil {
		if errors.Is(err, NotFound) {
			return nil, nil // the device has just gone
		}
		return nil, err
	}
	if res.ReturnValue != completed {
		return nil, refusedByWindows("GetDeviceProperties", res.ReturnValue, deviceRight)
	}
	out := map[string]Row{}
	for _, row := range (Row{Values: res.Out}).Rows("deviceProperties") {
		out[row.String("KeyName")] = row
	}
	return out, nil
}

// displays finds the GPU that drives the host's own console (assumption hyperv-console).
func (r *reader) displays(ctx context.Context) error {
	rows, err := r.wmi.Query(ctx, CIMv2, "SELECT * FROM Win32_VideoController", "PNPDeviceID", "CurrentHorizontalResolution")
	if err != nil {
		return err
	}
	for _, row := range rows {
		if g := r.gpuAt(row.String("PNPDeviceID")); g != nil && row.Uint("CurrentHorizontalResolution") > 0 {
			g.HostDisplay = true
		}
	}
	return nil
}

// addresses adds up the memory-mapped IO space of each GPU. A range of memory belongs
// to every device between the root and the one that uses it, so a GPU is asked for by
// its own path.
// A dismounted one keeps them (assumption hyperv-dismounted-memory).
func (r *reader) addresses(ctx context.Context) error {
	if len(r.host.GPUs) == 0 {
		return nil
	}
	ranges, err := r.wmi.Query(ctx, CIMv2, "SELECT * FROM Win32_DeviceMemoryAddress", "StartingAddress", "EndingAddress")
	if err != nil {
		return err
	}
	// A range of memory is known by its start alone, where that of a port above the
	// device begins too: the device's is the smallest.
	size := map[string]Row{}
	for _, row := range ranges {
		start := row.String("StartingAddress")
		if other, twice := size[start]; !twice || row.Uint("EndingAddress") < other.Uint("EndingAddress") {
			size[start] = row
		}
	}
	owners, err := r.wmi.Query(ctx, CIMv2, "SELECT * FROM Win32_PNPAllocatedResource", "Antecedent", "Dependent")
	if err != nil {
		return err
	}
	const fourGiB = 1 << 32
	for _, row := range owners {
		g := r.gpuAt(keyOf(row.String("Dependent"), "DeviceID"))
		memory, ok := size[keyOf(row.String("Antecedent"), "StartingAddress")]
		if g == nil || !ok || !strings.Contains(row.String("Antecedent"), "Win32_DeviceMemoryAddress") {
			continue
		}
		start, end := memory.Uint("StartingAddress"), memory.Uint("EndingAddress")
		if start < fourGiB {
			g.MMIO.Low += gpu.Bytes(end - start + 1)
		} else {
			g.MMIO.High += gpu.Bytes(end - start + 1)
		}
	}
	return nil
}

// assignables reads the devices that the host has given up. A running VM has a row of
// its own for each device that it holds.
func (r *reader) assignables(ctx context.Context) error {
	r.drawn = map[string]string{}
	rows, err := r.rowsOf(ctx, "SELECT * FROM Msvm_PciExpress", "SystemName", "DeviceID", "DeviceInstancePath", "LocationPath")
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.value("DeviceInstancePath") == nil {
			r.lacks(ctx, gpu.Unknown{Part: gpu.PartDevices}, isNull("Msvm_PciExpress", "DeviceInstancePath"))
		}
		g := r.gpuAt(row.String("DeviceInstancePath"))
		if g == nil {
			continue // another kind of device
		}
		if _, setting, ok := settingID(row.String("DeviceID")); ok && guid.MatchString(row.String("SystemName")) {
			r.drawn[gpu.FoldID(setting)] = g.ID
			r.holders = append(r.holders, row.String("SystemName"))
			continue
		}
		d := r.device(g)
		d.assignable = row.Path
		if path := row.String("LocationPath"); path != "" && !gpu.SameID(path, g.ID) {
			delete(r.devices, gpu.FoldID(g.ID))
			g.ID = path
			r.devices[gpu.FoldID(g.ID)] = d
		}
	}
	return nil
}

// partitionables reads the GPU-P face of each GPU. A GPU may have two, one of which is
// only paravirtual; the real one counts.
func (r *reader) partitionables(ctx context.Context) error {
	properties := append([]string{"Name", "ValidPartitionCounts", "PartitionCount", "SupportsIncomingLiveMigration"},
		figuresOf("Total", "Available", "MinPartition", "MaxPartition", "OptimalPartition")...)
	rows, err := r.rowsOf(ctx, "SELECT * FROM Msvm_PartitionableGpu", properties...)
	for i := range r.host.GPUs {
		if err != nil && !r.host.GPUs[i].Dismounted && r.dark[i] == nil {
			r.dark[i] = err
		}
	}
	for _, row := range rows {
		instance, paravirtual := instanceOf(row.String("Name"))
		g := r.gpuAt(instance)
		if g == nil {
			r.others[slot(instance)] = true
			continue
		}
		if g.Dismounted || (g.Partitionable != nil && paravirtual) {
			continue
		}
		if row.value("PartitionCount") == nil { // 0 is what a GPU has that was never partitioned
			for i := range r.host.GPUs {
				if &r.host.GPUs[i] == g {
					r.dark[i] = isNull("Msvm_PartitionableGpu", "PartitionCount")
				}
			}
		}
		p := &gpu.Partitionable{
			Name:        row.String("Name"),
			Count:       int(row.Uint("PartitionCount")),
			VRAM:        capacity(row, "VRAM"),
			Encode:      capacity(row, "Encode"),
			Decode:      capacity(row, "Decode"),
			Compute:     capacity(row, "Compute"),
			Paravirtual: paravirtual,

			SupportsIncomingLiveMigration: row.BoolPtr("SupportsIncomingLiveMigration"),
		}
		for _, n := range row.Uints("ValidPartitionCounts") {
			p.ValidCounts = append(p.ValidCounts, int(n))
		}
		if g.VRAM == 0 && !paravirtual {
			g.VRAM = gpu.Bytes(p.VRAM.Total)
		}
		g.Partitionable = p
		r.device(g).face = row.Path
	}
	return nil
}

func capacity(row Row, resource string) gpu.Capacity {
	return gpu.Capacity{
		Total:     row.Uint("Total" + resource),
		Available: row.Uint("Available" + resource),
		Min:       row.Uint("MinPartition" + resource),
		Max:       row.Uint("MaxPartition" + resource),
		Optimal:   row.Uint("OptimalPartition" + resource),
	}
}

// partitions reads which running VM holds a partition of which GPU.
// VMs that are off have none (assumption hyperv-partition-rows).
func (r *reader) partitions(ctx context.Context) error {
	rows, err := r.rowsOf(ctx, "SELECT * FROM Msvm_GpuPartition",
		"SystemName", "DeviceID", "DeviceInstancePath", "PartitionId", "PartitionVfLuid", "CurrentVRAM", "SupportsOutgoingLiveMigration")
	if err != nil {
		return err
	}
	for _, row := range rows {
		r.holders = append(r.holders, row.String("SystemName"))
		vm, ok := r.host.VM(row.String("SystemName"))
		if !ok {
			continue
		}
		path := row.String("DeviceInstancePath")
		if instance, _ := instanceOf(path); r.others[slot(instance)] {
			continue // of an adapter that is none of our GPUs
		}
		if !holdsHardware(vm) {
			continue // what it will have is told when it starts
		}
		g, candidates := r.partitionOf(row, vm)
		if g == nil {
			err := fmt.Errorf("VM %s holds a partition of device %q, and which of the host's GPUs that is cannot be told; "+
				"stop the VM, or pin its adapter to a GPU, and please report the output of gpu-agent selftest", vm.Name, path)
			for _, c := range candidates {
				r.lacks(ctx, gpu.Unknown{Part: gpu.PartPartitions, GPU: c.ID, VM: vm.ID}, err)
			}
			if len(candidates) == 0 {
				r.lacks(ctx, gpu.Unknown{Part: gpu.PartPartitions, VM: vm.ID}, err)
			}
			continue
		}
		g.Partitionable.Partitions = append(g.Partitionable.Partitions, gpu.Partition{
			ID:     int(row.Uint("PartitionId")),
			VMID:   vm.ID,
			VFLUID: row.String("PartitionVfLuid"),
			VRAM:   gpu.Bytes(row.Uint("CurrentVRAM")),

			SupportsOutgoingLiveMigration: row.BoolPtr("SupportsOutgoingLiveMigration"),
		})
	}
	for i := range r.host.GPUs {
		if p := r.host.GPUs[i].Partitionable; p != nil {
			slices.SortFunc(p.Partitions, func(a, b gpu.Partition) int { return a.ID - b.ID })
		}
	}
	return nil
}

// partitionOf finds the GPU of a partition: by its path, by the adapter's pin, or as the
// only one that can be meant (assumption hyperv-partition-path). Where there are several,
// it tells which.
func (r *reader) partitionOf(row Row, vm *gpu.VM) (found *gpu.GPU, candidates []*gpu.GPU) {
	instance, _ := instanceOf(row.String("DeviceInstancePath"))
	if g := r.gpuAt(instance); g != nil && g.Partitionable != nil {
		return g, nil
	}
	_, adapter, _ := settingID(row.String("DeviceID"))
	for _, a := range vm.PartitionAdapters {
		if g, ok := r.host.GPU(a.PinnedGPU); ok && gpu.SameID(a.ID, adapter) && g.Partitionable != nil {
			return g, nil
		}
	}
	var all, ofVendor, ofBus []*gpu.GPU
	function, isPCI := pciID(instance)
	for i := range r.host.GPUs {
		g := &r.host.GPUs[i]
		if g.Partitionable != nil {
			all = append(all, g)
		}
		if g.Partitionable == nil || (isPCI && !strings.EqualFold(function.Vendor, g.PCI.Vendor)) {
			continue
		}
		ofVendor = append(ofVendor, g)
		if isPCI && bus(instance) == bus(g.InstancePath) {
			ofBus = append(ofBus, g)
		}
	}
	for _, candidates := range [][]*gpu.GPU{ofBus, ofVendor} {
		if len(candidates) == 1 {
			return candidates[0], nil
		}
	}
	if len(ofVendor) == 0 { // of none that is known
		ofVendor = all
	}
	return nil, ofVendor
}
