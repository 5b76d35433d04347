package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A plan that begins to name a config which no host has waits for the plan of it, which Terraform may
// make later, and not for one that a host has, or that it named before.
func TestAPlanAwaitsTheConfigThatItBeginsToName(t *testing.T) {
	named := gpu.Want{
		Assignment: &gpu.Assignment{Kind: gpu.AssignPartition, VM: "vm", VMID: "vm", Host: "a", Partition: &gpu.PartitionWant{Config: "c"}},
	}
	for name, test := range map[string]struct {
		prior  gpu.Want
		claims []gpu.Claim
		waits  bool
	}{
		"it is new":     {waits: true},
		"a host has it": {claims: []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "c", Token: "t", Want: configFor("a")}}},
		"as it was":     {prior: named},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, conns := hosts(t, fleet.Options{Owner: "vdi", Patience: time.Minute}, "a")
				conns["a"].host.Claims = test.claims
				view := f.Snapshot(t.Context(), f.HostNames())
				defer f.Ledger.Begin(true)()
				later := f.Ledger.Begin(true) // the config's plan is under way
				go func() {
					defer later()
					time.Sleep(time.Second)
					f.Record(f.Ledger.Instance(""), view, change.Change{Subject: "c", Token: "t", Want: configFor("a")})
				}()
				f.AwaitNamed(t.Context(), view, change.Change{Subject: "vm", Token: "v", Prior: test.prior, Want: named})
				if _, known := f.Ledger.Config("c"); known != test.waits {
					t.Errorf("the plan of the config is known: %t, want %t", known, test.waits)
				}
				time.Sleep(2 * time.Second) // its goroutine ends
			})
		})
	}
}
