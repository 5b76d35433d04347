//go:build linux && cgo

package nvidia_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/backendtest"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestConformance drives go-nvml and a libnvidia-ml that behaves as a driver does.
func TestConformance(t *testing.T) {
	backendtest.RunMIG(t, func(t *testing.T, initial gpu.Host) backendtest.MIGFixture { return newFixture(t, initial) })
}
