package mpsconf

import (
	"fmt"
	"math"
	"strconv"

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
	if text == "" {
		return 0, nil
	}
	last := len(text) - 1
	unit, known := map[byte]gpu.Bytes{'M': gpu.MiB, 'G': gib}[text[last]]
	n, err := strconv.ParseUint(text[:last], 10, 64)
	if !known || err != nil || n > math.MaxUint64/uint64(unit) {
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
