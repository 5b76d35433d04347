package fakewmi

import (
	"regexp"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Codes of the device manager, and how a fleet writes them.
const (
	problemNone     = 0
	problemRestart  = 14
	problemDisabled = 22
	problemNoDriver = 28
	problemFailed   = 43

	disabledProblem = "CM_PROB_DISABLED (22)"
	restartProblem  = "CM_PROB_NEED_RESTART (14)"
)

var problemPattern = regexp.MustCompile(`\((\d+)\)$`)

const displayClass = "Display"

// device is a Plug and Play device.
type device struct {
	instance, name, manufacturer string
	// class and service are empty for a device without a driver.
	class, service, driver string
	problem                int
	// drives tells that the device has a picture to show.
	drives bool
	// locations are nil for a device that is on no bus with slots.
	locations []string
	// pciClass is the class code, "0302".
	pciClass string
	// kind is DEVPKEY_PciDevice_DeviceType.
	kind uint64
	// gpu is nil for what is none of the fleet's GPUs.
	gpu *gpu.GPU
}

// Types of PCI devices (DEVPKEY_PciDevice_DeviceType).
const (
	conventionalDevice = 0
	expressEndpoint    = 2
)

const (
	displayCode = "0302" // 3D controller
	networkCode = "0200"
	audioCode   = "0403"
)

const networkInstance = `PCI\VEN_15B3&DEV_1017&SUBSYS_002015B3&REV_00\4&2A3B4C5D&0&0008`

// devices are the GPUs of the fleet and what else a server has that might be taken for
// one: the display adapter of its management controller, the one of a remote desktop,
// a GPU's audio function, a network adapter. Virtual functions are not listed.
func (v *view) devices() []device {
	var out []device
	nvidia := false
	for i := range v.host.GPUs {
		g := &v.host.GPUs[i]
		out = append(out, gpuDevice(g))
		nvidia = nvidia || strings.EqualFold(g.PCI.Vendor, "10DE")
	}
	out = append(out,
		device{
			instance: `PCI\VEN_1A03&DEV_2000&SUBSYS_20001A03&REV_52\6&1A2B3C4D&0&0000E1`, name: "Microsoft Basic Display Adapter",
			manufacturer: "(Standard display types)", class: displayClass, service: "BasicDisplay", drives: true,
			locations: []string{"PCIROOT(0)#PCI(1C05)#PCI(0000)#PCI(0000)"}, pciClass: "0300", kind: conventionalDevice,
		},
		device{
			instance: `SWD\REMOTEDISPLAYENUM\RDPIDD_INDIRECTDISPLAY&SESSIONID_0002`, name: "Microsoft Remote Display Adapter",
			manufacturer: "Microsoft", class: displayClass, service: "WUDFRd", drives: true,
		},
		device{
			instance: networkInstance, name: "Mellanox ConnectX-5 Adapter", manufacturer: "Mellanox Technologies Ltd.",
			class: "Net", service: "mlx5", locations: []string{"PCIROOT(0)#PCI(0100)#PCI(0000)"}, pciClass: networkCode, kind: expressEndpoint,
		})
	if nvidia {
		out = append(out, device{
			instance: `PCI\VEN_10DE&DEV_228B&SUBSYS_157E10DE&REV_A1\4&0A1B2C3D&0&0100`, name: "High Definition Audio Controller",
			manufacturer: "Microsoft", class: "System", service: "HDAudBus",
			locations: []string{"PCIROOT(16)#PCI(0000)#PCI(0001)"}, pciClass: audioCode, kind: expressEndpoint,
		})
	}
	return out
}

var manufacturers = map[string]string{"10DE": "NVIDIA", "1002": "Advanced Micro Devices, Inc.", "8086": "Intel Corporation"}

func gpuDevice(g *gpu.GPU) device {
	d := device{
		instance: instancePath(g), name: g.Model, manufacturer: manufacturers[strings.ToUpper(g.PCI.Vendor)],
		class: displayClass, service: "nvlddmkm", driver: windowsVersion(g.Driver.Version), problem: problemOf(g), drives: g.HostDisplay,
		locations: []string{g.ID, "ACPI(_SB_)#ACPI(PC16)#ACPI(BR1A)#PCI(0000)"}, pciClass: displayCode, kind: expressEndpoint, gpu: g,
	}
	if g.Status == gpu.NotAssignable {
		d.kind = conventionalDevice
	}
	switch {
	case g.Dismounted:
		// What the host has given up is served by a driver that does nothing with it.
		d.name, d.manufacturer = "PCI Express Graphics Processing Unit - Dismounted", "Microsoft"
		d.class, d.service, d.driver = "System", "pcip", "10.0.0.1"
	case d.problem == problemNoDriver:
		d.name, d.class, d.service, d.driver = "3D Video Controller", "", "", ""
	}
	return d
}

var nvidiaVersion = regexp.MustCompile(`^\d{3}\.\d{2}$`)

// windowsVersion is how Windows writes a driver's version: NVIDIA's 573.39 becomes
// 32.0.15.7339.
func windowsVersion(version string) string {
	if !nvidiaVersion.MatchString(version) {
		return version
	}
	digits := strings.ReplaceAll(version, ".", "")
	return "32.0.1" + digits[:1] + "." + digits[1:]
}

// hardwareIDs and compatibleIDs follow from the instance path. Devices that are on no
// PCI bus have none.

func (d *device) hardwareIDs() []string {
	id, _, ok := strings.Cut(strings.TrimPrefix(d.instance, d.bus()+`\`), `\`)
	if d.bus() == "" || !ok {
		return nil
	}
	plain, _, _ := strings.Cut(id, "&REV_")
	return []string{d.bus() + `\` + id, d.bus() + `\` + plain}
}

func (d *device) compatibleIDs() []string {
	_, rest, ok := strings.Cut(d.instance, `\`)
	if d.bus() == "" || !ok || len(rest) < len("VEN_10DE") {
		return nil
	}
	vendor := rest[:len("VEN_10DE")]
	bus := d.bus() + `\`
	return []string{bus + vendor + "&CC_" + d.pciClass, bus + vendor, bus + "CC_" + d.pciClass, bus + "CC_" + d.pciClass[:2]}
}

// bus is PCI, PCIP for a dismounted device, or "".
func (d *device) bus() string {
	bus, _, _ := strings.Cut(d.instance, `\`)
	if bus = strings.ToUpper(bus); bus == "PCI" || bus == "PCIP" {
		return bus
	}
	return ""
}
