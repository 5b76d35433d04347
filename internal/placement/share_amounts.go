package placement

import (
	"fmt"
	"regexp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// cdiName is what CDI takes for the name of a device.
var cdiName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$`)

// cdiNameMax keeps the name of a specification's file within what file systems take.
const cdiNameMax = 128

// checkShareName finds names that CDI does not take for a device.
func checkShareName(name string) error {
	switch {
	case len(name) > cdiNameMax:
		return wrongShare(ShareName, "", "share %q cannot be a CDI device: its name has %d characters, and at most %d are allowed",
			name, len(name), cdiNameMax)
	case !cdiName.MatchString(name):
		return wrongShare(ShareName, "",
			`share %q cannot be a CDI device: letters, digits, "_", "-", "." and ":" are allowed, and the first and the last must be a letter or `+
				`a digit`, name)
	}
	return nil
}

// CheckShare finds what no host could cure.
func CheckShare(s *gpu.Share) error {
	if err := checkShareName(s.Name); err != nil {
		return err
	}
	return checkShareAmounts(s)
}

func checkShareAmounts(s *gpu.Share) error {
	bad := func(attribute, found, wanted string) error {
		e := wrongShare(ShareAmount, "", "share %q: %s is %s, and must be %s", s.Name, attribute, found, wanted)
		e.Attribute = attribute
		return e
	}
	switch p := s.ActiveThreadPercentage; {
	case !IsPercentage(p):
		return bad("active_thread_percentage", Decimal(p), "more than 0 and at most 100")
	case !isFraction(s.RequestFraction) || !isFraction(s.LimitFraction):
		return bad("memory", "a fraction of "+Decimal(s.RequestFraction)+" with a limit of "+Decimal(s.LimitFraction),
			"fractions above 0 and at most 1")
	case s.LimitFraction > 0 && s.RequestFraction > s.LimitFraction:
		return bad("memory", "a fraction of "+Decimal(s.RequestFraction)+" with a limit of "+Decimal(s.LimitFraction),
			"a request within the limit")
	case s.RequestFraction+s.LimitFraction > 0 && s.MemoryRequest+s.MemoryLimit > 0:
		return bad("memory", "fractions beside amounts", "the one or the other")
	case s.MemoryLimit > 0 && s.MemoryRequest > s.MemoryLimit:
		return bad("memory", "a request for "+s.MemoryRequest.String()+" with a limit of "+s.MemoryLimit.String(), "a request within the limit")
	case s.ClientPriority != nil && *s.ClientPriority != 0 && *s.ClientPriority != 1:
		return bad("client_priority", fmt.Sprint(*s.ClientPriority), "normal or below_normal")
	}
	return nil
}

// isFraction tells whether a part of a device's memory is one; 0 is none.
func isFraction(f float64) bool { return f >= 0 && f <= 1 }

// IsPercentage tells whether an active thread percentage is one that MPS takes; 0 is none.
// It is written so that NaN is found.
func IsPercentage(p float64) bool { return p >= 0 && p <= 100 }
