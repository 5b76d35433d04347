package vgpu

import (
	"fmt"
	"regexp"
	"strconv"
)

var addressPattern = regexp.MustCompile(`^([[:xdigit:]]{4,8}):([[:xdigit:]]{2}):([[:xdigit:]]{2})\.([0-7])$`)

// Address is a PCI address as sysfs writes it, "0000:41:00.0". NVML writes eight digits
// for the domain, in capitals.
func Address(s string) (string, error) {
	m := addressPattern.FindStringSubmatch(s)
	if m == nil {
		return "", fmt.Errorf("%q is not a PCI address like 0000:41:00.0", s)
	}
	var part [4]uint64
	for i := range part {
		var err error
		if part[i], err = strconv.ParseUint(m[i+1], 16, 32); err != nil {
			return "", fmt.Errorf("%q is not a PCI address: %w", s, err)
		}
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", part[0], part[1], part[2], part[3]), nil
}
