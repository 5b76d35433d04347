//go:build linux && cgo

package nvidia_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestConformance drives go-nvml and a libnvidia-ml that behaves as a driver does.
func TestConformance(t *testing.T) {
	conformance.RunMIG(t, func(t *testing.T, initial gpu.Host) conformance.MIGFixture { return newFixture(t, initial) })
}
