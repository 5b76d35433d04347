package hyperv_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestConformance runs on every platform. The same scenarios run through COM in
// package wmi, on Windows.
func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, func(t *testing.T, initial gpu.Host) conformance.Fixture {
		return fakewmi.NewFixture(t, initial, fakewmi.Directly)
	})
}

func TestClusterConformance(t *testing.T) {
	t.Parallel()
	conformance.RunCluster(t, func(t *testing.T, hosts gpu.Snapshot) (conformance.Fixture, func(*testing.T, string) gpu.Host) {
		fleet, err := others.InMemory(hosts)
		if err != nil {
			t.Fatal(err)
		}
		nodes := map[string]*fakewmi.Fixture{}
		for _, h := range hosts.Hosts {
			nodes[h.Name] = fakewmi.FixtureOn(t, fleet, h.Name, fakewmi.Directly)
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
