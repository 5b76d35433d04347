package wmi_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/backendtest"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmitest"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmitest/comserver"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestConformance runs the production backend over the production connection, through
// microsoft/wmi and COM, to a service that behaves as Hyper-V's.
func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T, initial gpu.Host) backendtest.Fixture {
		return wmitest.NewFixture(t, initial, throughCOM)
	})
}

func throughCOM(t *testing.T, m *wmitest.Machine) hyperv.WMI {
	t.Helper()
	unregister, err := comserver.Register(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unregister)
	w, err := wmi.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w
}
