package cdi

import (
	"fmt"

	"tags.cncf.io/container-device-interface/pkg/parser"
)

// Vendor and Class are the kind of our devices: "gpufleet.com/share", as [gpu.CDIDevice] names them.
const (
	Vendor = "gpufleet.com"
	Class  = "share"
)

// maxName keeps the name of a specification's file within 255 bytes, that of its
// temporary file too.
const maxName = 128

// ValidateName finds names of shares that CDI does not take for a device.
func ValidateName(share string) error {
	if err := parser.ValidateDeviceName(share); err != nil {
		return fmt.Errorf("share %q cannot be a CDI device: %w; letters, digits, \"_\", \"-\", \".\" and \":\" are allowed, and the first and "+
			"the last must be a letter or a digit", share, err)
	}
	if len(share) > maxName {
		return fmt.Errorf("share %q cannot be a CDI device: its name has %d characters, but at most %d are allowed", share, len(share), maxName)
	}
	return nil
}
