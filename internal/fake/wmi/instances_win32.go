package fakewmi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// windowsSources make the instances of root\cimv2.
func windowsSources() sources {
	return sources{
		"Win32_OperatingSystem":      (*view).operatingSystems,
		"Win32_ComputerSystem":       (*view).windowsComputers,
		"Win32_PnPEntity":            (*view).entities,
		"Win32_VideoController":      (*view).videoControllers,
		"Win32_DeviceMemoryAddress":  (*view).memoryAddresses,
		"Win32_PNPAllocatedResource": (*view).allocatedResources,
		"Win32_Service":              (*view).services,
	}
}

func (v *view) operatingSystems() []*Object {
	build := strconv.Itoa(v.host.OS.Build)
	boot := fields{}
	if b := v.host.Boot; b != nil {
		boot["LastBootUpTime"] = b.At.UTC().Format("20060102150405.000000") + "+000"
	}
	return []*Object{v.make("Win32_OperatingSystem", boot, fields{
		"Caption": "Microsoft " + v.host.OS.Name, "Name": "Microsoft " + v.host.OS.Name + `|C:\Windows|\Device\Harddisk0\Partition3`,
		"BuildNumber": build, "Version": "10.0." + build, "CSName": v.host.Name, "OSArchitecture": "64-bit", "ProductType": 3, "Status": "OK",
	})}
}

// services are those of Windows that a host of virtual machines has, if it has Hyper-V.
func (v *view) services() []*Object {
	faults := &v.machine.faults
	service := func(name, display string, runs bool) *Object {
		f := fields{
			"CreationClassName": "Win32_Service", "SystemCreationClassName": "Win32_ComputerSystem", "SystemName": v.host.Name,
			"Name": name, "DisplayName": display, "StartMode": "Auto", "Started": runs, "State": "Stopped", "Status": "OK", "ProcessId": 0,
		}
		if runs {
			f["State"], f["ProcessId"] = "Running", 1200
		}
		return v.make("Win32_Service", f)
	}
	out := []*Object{service("Winmgmt", "Windows Management Instrumentation", true)}
	if !faults.isHidden(foldSlashes(hyperv.Virtualization)) {
		out = append(out, service("vmms", "Hyper-V Virtual Machine Management", !faults.hypervStopped()))
	}
	for _, c := range v.host.Controllers {
		name, _, _ := strings.Cut(c.Name, " (") // whose it is, is what the backend says
		out = append(out, service(name, name, true))
	}
	return out
}

// workgroup is what a host that is in no cluster is taken to be in.
const workgroup = "WORKGROUP"

func (v *view) windowsComputers() []*Object {
	f := fields{
		"CreationClassName": "Win32_ComputerSystem", "Name": v.host.Name, "DNSHostName": v.host.Name, "Domain": workgroup,
		"PartOfDomain": false, "HypervisorPresent": true, "Manufacturer": "Contoso", "Model": "GPU Server", "Status": "OK",
	}
	if v.host.Cluster != nil {
		f["Domain"], f["PartOfDomain"] = domain, true
	}
	return []*Object{v.make("Win32_ComputerSystem", f)}
}

func (v *view) entities() []*Object {
	const class = "Win32_PnPEntity"
	var out []*Object
	for _, d := range v.devices() {
		f := fields{
			"CreationClassName": class, "SystemCreationClassName": "Win32_ComputerSystem", "SystemName": v.host.Name,
			"DeviceID": d.instance, "PNPDeviceID": d.instance, "Name": d.name, "Caption": d.name, "Description": d.name,
			"Manufacturer": d.manufacturer, "Present": true, "Status": "OK", "ConfigManagerErrorCode": d.problem,
			"ConfigManagerUserConfig": false, "HardwareID": d.hardwareIDs(), "CompatibleID": d.compatibleIDs(),
		}
		if d.class != "" {
			f["PNPClass"], f["Service"] = d.class, d.service
		}
		if d.problem != problemNone {
			f["Status"] = "Error"
		}
		out = append(out, v.make(class, f))
	}
	return out
}

// videoControllers are the display adapters that Windows has a driver for.
func (v *view) videoControllers() []*Object {
	const class = "Win32_VideoController"
	var out []*Object
	for _, d := range v.devices() {
		if d.class != displayClass {
			continue
		}
		f := fields{
			"CreationClassName": class, "DeviceID": "VideoController" + strconv.Itoa(len(out)+1), "PNPDeviceID": d.instance,
			"Name": d.name, "Caption": d.name, "AdapterCompatibility": d.manufacturer, "Status": "OK", "ConfigManagerErrorCode": d.problem,
		}
		if d.driver != "" {
			f["DriverVersion"] = d.driver
		}
		if d.drives && d.problem == problemNone {
			f["CurrentHorizontalResolution"], f["CurrentVerticalResolution"], f["CurrentBitsPerPixel"] = 1024, 768, 32
		}
		out = append(out, v.make(class, f))
	}
	return out
}

// memoryRange is a range of physical addresses that a device has.
type memoryRange struct {
	start, end uint64
	instance   string
}

// Where the ranges of devices begin. Those below 4 GiB lie under the firmware's.
const (
	lowMemory  uint64 = 0x2000_0000
	highMemory uint64 = 0x0A_0000_0000
)

// ranges are the memory-mapped IO space of the host's GPUs, one range below and one
// above 4 GiB each, and one of a device that is no GPU.
func (v *view) ranges() []memoryRange {
	low, high := lowMemory, highMemory
	out := []memoryRange{{start: 0xFE00_0000, end: 0xFE0F_FFFF, instance: networkInstance}}
	for i := range v.host.GPUs {
		g := &v.host.GPUs[i]
		if n := uint64(g.MMIO.Low); n > 0 {
			out = append(out, memoryRange{low, low + n - 1, instancePath(g)})
			low += n
		}
		if n := uint64(g.MMIO.High); n > 0 {
			out = append(out, memoryRange{high, high + n - 1, instancePath(g)})
			high += n
		}
	}
	return out
}

func (v *view) memoryAddress(r memoryRange) *Object {
	const class = "Win32_DeviceMemoryAddress"
	name := fmt.Sprintf("0x%X-0x%X", r.start, r.end)
	return v.make(class, fields{
		"CreationClassName": class, "CSCreationClassName": "Win32_ComputerSystem", "CSName": v.host.Name,
		"StartingAddress": r.start, "EndingAddress": r.end, "Name": name, "Caption": name, "Status": "OK",
	})
}

func (v *view) memoryAddresses() []*Object {
	var out []*Object
	for _, r := range v.ranges() {
		out = append(out, v.memoryAddress(r))
	}
	return out
}

// rootPort is above all GPUs, and has all of their memory.
const rootPort = `PCI\VEN_8086&DEV_352A&SUBSYS_00000000&REV_04\3&11583659&0&08`

func (v *view) allocatedResources() []*Object {
	var out []*Object
	for _, r := range v.ranges() {
		for _, instance := range []string{r.instance, rootPort} {
			// References begin with the host's name in the form of a path.
			entity := `\\` + strings.ToUpper(v.host.Name) + `\root\cimv2:Win32_PnPEntity.DeviceID="` + strings.ReplaceAll(instance, `\`, `\\`) + `"`
			out = append(out, v.make("Win32_PNPAllocatedResource", fields{"Antecedent": v.memoryAddress(r).Path, "Dependent": entity}))
		}
	}
	return out
}

// problemOf is the device manager's code for a GPU. A fleet keeps it in parentheses
// behind its name.
func problemOf(g *gpu.GPU) int {
	if g.Problem == "" {
		return problemNone
	}
	if m := problemPattern.FindStringSubmatch(g.Problem); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	return problemFailed
}
