package hyperv

import (
	"regexp"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Prefixes of instance ids in namespace root\virtualization\v2.
const (
	instancePrefix   = "Microsoft:"
	definitionPrefix = `Microsoft:Definition\`
	defaultSuffix    = `\Default`
)

var guid = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// settingID takes an InstanceID, Microsoft:<VM>\<setting>, apart. The rest is false for
// templates, for settings of pools and for a VM's settings as a whole.
func settingID(instanceID string) (vm, setting string, ok bool) {
	rest, ok := strings.CutPrefix(instanceID, instancePrefix)
	if !ok {
		return "", "", false
	}
	vm, setting, ok = strings.Cut(rest, `\`)
	return vm, setting, ok && guid.MatchString(vm)
}

// ownerOf is the VM that the setting at a path belongs to.
func ownerOf(path string) string {
	vm, _, _ := settingID(keyOf(path, "InstanceID"))
	return vm
}

// The suffix of a partitionable GPU that is only paravirtual.
const paravirtualSuffix = `\GPUPARAV`

// instanceOf turns a device interface path, \\?\PCI#VEN_..#4&..#{class}, into the
// device instance path, PCI\VEN_..\4&...
func instanceOf(name string) (instance string, paravirtual bool) {
	name = strings.TrimPrefix(name, `\\?\`)
	if at := strings.Index(name, "#{"); at >= 0 {
		paravirtual = strings.HasSuffix(strings.ToUpper(name), paravirtualSuffix)
		name = name[:at]
	}
	return strings.ReplaceAll(name, "#", `\`), paravirtual
}

// slot is what a device's instance path keeps when it is dismounted and its bus
// changes from PCI to PCIP.
func slot(instance string) string {
	if _, rest, ok := strings.Cut(instance, `\`); ok {
		instance = rest
	}
	return gpu.FoldID(instance)
}

// bus is what the instance paths of the functions of one bus share: PCI's part is
// <depth>&<parent>&0&<address>, and a GPU's virtual functions have its parent.
func bus(instance string) string {
	last := instance[strings.LastIndexByte(instance, '\\')+1:]
	if at := strings.LastIndexByte(last, '&'); at >= 0 {
		last = last[:at]
	}
	return gpu.FoldID(last)
}

func isDismounted(instance string) bool {
	return len(instance) >= len(dismountedBus) && strings.EqualFold(instance[:len(dismountedBus)], dismountedBus)
}

// The buses of a device of the host and of one that is dismounted from it.
const (
	hostBus       = `PCI\`
	dismountedBus = `PCIP\`
)

var pciPattern = regexp.MustCompile(`(?i)^PCIP?\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})(?:&SUBSYS_([0-9A-F]{8}))?`)

// pciID reads the identity of a PCI function out of its instance path.
func pciID(instance string) (gpu.PCIID, bool) {
	m := pciPattern.FindStringSubmatch(instance)
	if m == nil {
		return gpu.PCIID{}, false
	}
	return gpu.PCIID{Vendor: strings.ToUpper(m[1]), Device: strings.ToUpper(m[2]), Subsystem: strings.ToUpper(m[3])}, true
}

// vendors make GPUs that can be shared. The display adapter of a server's management
// controller (ASPEED, Matrox) is none of ours.
var vendors = map[string]string{"10DE": "NVIDIA", "1002": "AMD", "8086": "Intel"}

// driverVersion is a version as the vendor prints it. NVIDIA's is the last five digits
// of the one that Windows has: 32.0.15.7339 is 573.39.
func driverVersion(vendor, version string) string {
	digits := strings.ReplaceAll(version, ".", "")
	if vendor != "NVIDIA" || len(digits) < 5 || strings.Count(version, ".") != 3 {
		return version
	}
	last := digits[len(digits)-5:]
	return last[:3] + "." + last[3:]
}
