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
		if near := words.DidYouMean(label, labels); near != "" {
			text += ". " + near
		}
		return nil, errors.New(text)
	}
	return entries, nil
}

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
// GPU instance's, compute slices of the GPU instance, memory, attributes.
var profileName = regexp.MustCompile(`^(?:([1-9])c\.)?([1-9])g\.(\d+)gb((?:[+-][a-z]+(?:\.[a-z]+)?(?:,[a-z]+(?:\.[a-z]+)?)*)*)$`)

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

// check finds what no file may say, whether it was read or is to be written.
func (e *Entry) check() error {
	switch {
	case !e.Enabled && len(e.Profiles) > 0:
		return fmt.Errorf("mig-devices are given, but mig-enabled is false")
	case e.All && len(e.Devices) > 0:
		return fmt.Errorf("devices are all and a list at the same time")
	}
	seen := map[int]bool{}
	for _, d := range e.Devices {
		if d < 0 || seen[d] {
			return fmt.Errorf("devices has the index %d, which is below zero or there twice", d)
		}
		seen[d] = true
	}
	for _, name := range slices.Sorted(maps.Keys(e.Profiles)) {
		if !profileName.MatchString(name) {
			return fmt.Errorf("mig-devices has %q, which is not a MIG profile such as \"1g.10gb\"", name)
		}
		if e.Profiles[name] < 1 {
			return fmt.Errorf("mig-devices has %d of %q, but at least 1 is wanted", e.Profiles[name], name)
		}
	}
	for _, f := range e.Filter {
		if _, err := ParseDeviceID(FormatDeviceID(f)); err != nil || len(f.Device) != 4 || len(f.Vendor) != 4 {
			return fmt.Errorf("device-filter has %q, which is not a PCI device id such as \"0x20B210DE\"", FormatDeviceID(f))
		}
	}
	return nil
}
