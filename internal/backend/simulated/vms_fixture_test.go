package simulated_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestVMsConformance(t *testing.T) {
	for _, platform := range []gpu.Platform{gpu.HyperV, gpu.Linux} {
		t.Run(string(platform), func(t *testing.T) {
			conformance.RunVMs(t, platform, func(t *testing.T, initial gpu.Host) conformance.VMsFixture {
				t.Helper()
				fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{initial}})
				if err != nil {
					t.Fatal(err)
				}
				return vmsFixture{fleet: fleet, host: hostOf(t, fleet, initial.Name)}
			})
		})
	}
}

type vmsFixture struct {
	fleet *others.Fleet
	host  *simulated.Host
}

func (f vmsFixture) VMs() backend.VMs { return f.host }

func (f vmsFixture) Deaf(t *testing.T, vmID string) {
	t.Helper()
	run(t, f.fleet.SetGuest(t.Context(), vmID, simulated.Guest{NoIntegration: true}))
}
