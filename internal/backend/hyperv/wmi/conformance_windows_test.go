//go:build wmifixture

package wmi_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi/comserver"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestConformance runs the production backend over the production connection, through
// microsoft/wmi and COM, to a service that behaves as Hyper-V's.
func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T, initial gpu.Host) conformance.Fixture {
		return fakewmi.NewFixture(t, initial, throughCOM)
	})
}

// TestClusterConformance changes a cluster through one of its nodes. The others are only
// looked at: a process has one host behind COM.
func TestClusterConformance(t *testing.T) {
	const through = "hv01"
	conformance.RunCluster(t, func(t *testing.T, hosts gpu.Snapshot) (conformance.Fixture, func(*testing.T, string) gpu.Host) {
		fleet, err := others.InMemory(hosts)
		if err != nil {
			t.Fatal(err)
		}
		nodes := map[string]*fakewmi.Fixture{}
		for _, h := range hosts.Hosts {
			connect := fakewmi.Directly
			if h.Name == through {
				connect = throughCOM
			}
			nodes[h.Name] = fakewmi.FixtureOn(t, fleet, h.Name, connect)
		}
		return nodes[through], func(t *testing.T, name string) gpu.Host {
			t.Helper()
			host, err := nodes[name].Backend.Inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return host
		}
	})
}

func throughCOM(t *testing.T, m *fakewmi.Machine) hyperv.WMI {
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
