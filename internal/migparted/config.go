// Package migparted reads and writes the configuration files of NVIDIA's mig-parted and
// of the MIG manager built on it, and compares GPUs with them. The format is that of
// version v1:
//
//	version: v1
//	mig-configs:
//	  all-balanced:
//	  - device-filter: ["0x20B210DE"]
//	    devices: all
//	    mig-enabled: true
//	    mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
//
// A file says how many instances of each profile a GPU has, never where they lie.
package migparted

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Version is the version of the format.
const Version = "v1"

// Config is a file: lists of entries by label.
type Config map[string][]Entry

// Entry says how some GPUs of a host are divided.
type Entry struct {
	// Filter limits the entry to GPUs with one of these PCI ids; empty is no limit. An id
	// without a subsystem stands for every subsystem.
	Filter []gpu.PCIID
	// All is true for all GPUs of the host that pass the filter; else Devices are their
	// indices in the driver's order.
	All     bool
	Devices []int
	Enabled bool // MIG mode
	// Profiles are numbers of MIG devices by the profile's name, each at least 1.
	Profiles map[string]int
}

// Entries are those of a label.
func (c Config) Entries(label string) ([]Entry, error) {
	entries, ok := c[label]
	if !ok {
		labels := c.Labels()
		if len(labels) > words.Listed {
			return nil, fmt.Errorf("there is no label %q. %s", label, words.Instead(label, labels, "in the file"))
		}
		text := fmt.Sprintf("there is no label %q; there are %s", label, strings.Join(labels, ", "))
		if taken, some := truths[strings.ToLower(label)]; some && c[taken] != nil {
			text += fmt.Sprintf("; mig-parted takes %s for %q where it is not quoted", label, taken)
		} else if near := words.DidYouMean(label, labels); near != "" {
			text += ". " + near
		}
		return nil, errors.New(text)
	}
	return entries, nil
}

// truths are words that YAML 1.1, by which mig-parted reads, takes for truth values.
var truths = map[string]string{"on": "true", "yes": "true", "y": "true", "off": "false", "no": "false", "n": "false"}

// Labels are the labels, sorted.
func (c Config) Labels() []string { return slices.Sorted(maps.Keys(c)) }

// covers tells whether the entry is for the GPU with an index.
func (e *Entry) covers(index int, id gpu.PCIID) bool {
	return (e.All || slices.Contains(e.Devices, index)) &&
		(len(e.Filter) == 0 || slices.ContainsFunc(e.Filter, func(f gpu.PCIID) bool { return matches(f, id) }))
}

func matches(filter, id gpu.PCIID) bool {
	return strings.EqualFold(filter.Vendor, id.Vendor) && strings.EqualFold(filter.Device, id.Device) &&
		(filter.Subsystem == "" || strings.EqualFold(filter.Subsystem, id.Subsystem))
}

// Models are the catalog's names of the GPUs that pass the filter, sorted. A GPU that
// the catalog does not know is missing. Nil without a filter.
func (e *Entry) Models() []string {
	if len(e.Filter) == 0 {
		return nil
	}
	out := []string{}
	for _, id := range e.Filter {
		if m, ok := catalog.ByPCI(id); ok {
			out = append(out, m.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// FilterOf are the PCI ids of models, by the catalog's names.
func FilterOf(models []string) ([]gpu.PCIID, error) {
	var out []gpu.PCIID
	for _, name := range models {
		m, ok := catalog.ByName(name)
		if !ok {
			return nil, fmt.Errorf("the catalog knows no GPU model %q", name)
		}
		if len(m.Devices) == 0 {
			return nil, fmt.Errorf("GPU model %q has no PCI id of its own, by which mig-parted could tell it from others", name)
		}
		subsystems := m.Subsystems
		if len(subsystems) == 0 {
			subsystems = []string{""}
		}
		for _, device := range m.Devices {
			for _, subsystem := range subsystems {
				out = append(out, gpu.PCIID{Vendor: nvidia, Device: device, Subsystem: subsystem})
			}
		}
	}
	return out, nil
}

const nvidia = "10DE"

// ParseDeviceID reads an id as mig-parted writes it: "0x20B210DE", device and vendor,
// and with a subsystem "0x20B210DE:0x146310DE".
func ParseDeviceID(s string) (gpu.PCIID, error) {
	primary, subsystem, qualified := strings.Cut(s, ":")
	id, err := packed(primary)
	if err != nil {
		return gpu.PCIID{}, fmt.Errorf("%q is not a PCI device id such as \"0x20B210DE\"", s)
	}
	out := gpu.PCIID{Device: id[:4], Vendor: id[4:]}
	if qualified {
		if out.Subsystem, err = packed(subsystem); err != nil {
			return gpu.PCIID{}, fmt.Errorf("%q is not a PCI device id with a subsystem such as \"0x20B210DE:0x146310DE\"", s)
		}
	}
	return out, nil
}

func packed(s string) (string, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	return fmt.Sprintf("%08X", n), err
}

// FormatDeviceID is the inverse of ParseDeviceID.
func FormatDeviceID(id gpu.PCIID) string {
	out := "0x" + id.Device + id.Vendor
	if id.Subsystem != "" {
		out += ":0x" + id.Subsystem
	}
	return out
}

// profileName is a MIG device's profile: compute slices where they are fewer than the
// GPU instance's, compute slices of the GPU instance, memory, attributes that it has or lacks.
var profileName = regexp.MustCompile(`^(?:([1-9])c\.)?([1-9])g\.(\d+)gb(?:[+-]([a-z]+(?:\.[a-z]+)?(?:,[a-z]+(?:\.[a-z]+)?)*))?$`)

// isProfile reports whether mig-parted takes a name for a profile's: one with the same attribute twice it does not.
func isProfile(name string) bool {
	parts := profileName.FindStringSubmatch(name)
	if parts == nil {
		return false
	}
	attributes := strings.Split(parts[4], ",")
	slices.Sort(attributes)
	return len(slices.Compact(attributes)) == len(attributes)
}

// ComputeSlices are the compute slices of a profile that shares its GPU instance with
// others ("1c.3g.40gb"), or 0.
func ComputeSlices(profile string) int {
	parts := profileName.FindStringSubmatch(profile)
	if parts == nil || parts[1] == "" {
		return 0
	}
	n, _ := strconv.Atoi(parts[1]) // one digit
	return n
}

// GPUInstance is the name of the GPU instance that a profile is in, without attributes: "3g.40gb" of "1c.3g.40gb" and
// of "3g.40gb+me". "" where it names no profile.
func GPUInstance(profile string) string {
	parts := profileName.FindStringSubmatch(profile)
	if parts == nil {
		return ""
	}
	return parts[2] + "g." + parts[3] + "gb"
}

// Field is a field of an entry, by its name in the file.
type Field string

// The fields of an entry.
const (
	DeviceFilter Field = "device-filter"
	Devices      Field = "devices"
	MIGEnabled   Field = "mig-enabled"
	MIGDevices   Field = "mig-devices"
)

// FieldError is what is wrong with an entry.
type FieldError struct {
	format string
	args   []any
}

func wrong(format string, args ...any) error { return &FieldError{format: format, args: args} }

// Error names the fields as the file does.
func (e *FieldError) Error() string { return fmt.Sprintf(e.format, e.args...) }

// Named is the error for somebody who has other names for the fields.
func (e *FieldError) Named(names map[Field]string) *FieldError {
	args := slices.Clone(e.args)
	for i, arg := range args {
		if field, ok := arg.(Field); ok {
			args[i] = names[field]
		}
	}
	return &FieldError{format: e.format, args: args}
}

// DropZeros leaves out profiles with a count of 0, as mig-parted does. If all counts are 0 it leaves them to Check, which refuses
// them, as mig-parted does too.
func (e *Entry) DropZeros() {
	for _, n := range e.Profiles {
		if n != 0 {
			maps.DeleteFunc(e.Profiles, func(_ string, n int) bool { return n == 0 })
			return
		}
	}
}

// Check finds what no file may say, whether it was read or is to be written: as a *FieldError.
func (e *Entry) Check() error {
	switch {
	case !e.Enabled && len(e.Profiles) > 0:
		return wrong("%s are given, but %s is false", MIGDevices, MIGEnabled)
	case e.All && len(e.Devices) > 0:
		return wrong("%s are all and a list at the same time", Devices)
	}
	seen := map[int]bool{}
	for _, d := range e.Devices {
		if d < 0 || seen[d] {
			return wrong("%s has the index %d, which is below zero or there twice", Devices, d)
		}
		seen[d] = true
	}
	for _, name := range slices.Sorted(maps.Keys(e.Profiles)) {
		if !isProfile(name) {
			return wrong("%s has %q, which is not a MIG profile such as \"1g.10gb\"", MIGDevices, name)
		}
		if e.Profiles[name] < 1 {
			return wrong("%s has %d of %q, but at least 1 is wanted", MIGDevices, e.Profiles[name], name)
		}
	}
	for _, f := range e.Filter {
		if _, err := ParseDeviceID(FormatDeviceID(f)); err != nil || len(f.Device) != 4 || len(f.Vendor) != 4 {
			return wrong("%s has %q, which is not a PCI device id such as \"0x20B210DE\"", DeviceFilter, FormatDeviceID(f))
		}
	}
	return nil
}
