package hyperv_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/backendtest"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmitest"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestConformance runs on every platform. The same scenarios run through COM in
// package wmi, on Windows.
func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T, initial gpu.Host) backendtest.Fixture {
		return wmitest.NewFixture(t, initial, wmitest.Directly)
	})
}
