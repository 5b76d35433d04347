package mpsconf

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const gib = 1024 * gpu.MiB

// FormatLimit writes a limit as commands take it.
func FormatLimit(b gpu.Bytes) string {
	if b%gib == 0 {
		return strconv.FormatInt(int64(b/gib), 10) + "G"
	}
	return strconv.FormatInt(b.MiB(), 10) + "M"
}

// ParseLimit reads what a daemon shows as a limit. Nothing is no limit.
func ParseLimit(text string) (gpu.Bytes, error) {
	unit := gpu.MiB
	digits, isMiB := strings.CutSuffix(text, "M")
	if !isMiB {
		var isGiB bool
		if digits, isGiB = strings.CutSuffix(text, "G"); isGiB {
			unit = gib
		} else if text != "" {
			return 0, fmt.Errorf("%q is not a memory limit", text)
		}
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a memory limit", text)
	}
	return gpu.Bytes(n) * unit, nil
}

// FormatPercentage writes a percentage as commands take it.
func FormatPercentage(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }

// IsPercentage tells whether a daemon takes a percentage and shows it again: it keeps one
// digit after the point, and 0 is none.
func IsPercentage(p float64) bool {
	return p > 0 && p <= 100 && math.Round(p*10)/10 == p
}
