package hyperv_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/backendtest"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmitest"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestConformance runs on every platform. The same scenarios run through COM in
// package wmi, on Windows.
func TestConformance(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(t *testing.T, initial gpu.Host) backendtest.Fixture {
		return wmitest.NewFixture(t, initial, wmitest.Directly)
	})
}

func TestClusterConformance(t *testing.T) {
	t.Parallel()
	backendtest.RunCluster(t, func(t *testing.T, hosts gpu.Snapshot) (backendtest.Fixture, func(*testing.T, string) gpu.Host) {
		fleet, err := simulated.InMemory(hosts)
		if err != nil {
			t.Fatal(err)
		}
		nodes := map[string]*wmitest.Fixture{}
		for _, h := range hosts.Hosts {
			nodes[h.Name] = wmitest.FixtureOn(t, fleet, h.Name, wmitest.Directly)
		}
		return nodes["hv01"], func(t *testing.T, name string) gpu.Host {
			t.Helper()
			host, err := nodes[name].Backend.Inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return host
		}
	})
}
