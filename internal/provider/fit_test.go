package provider_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/fit"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What fit writes as a configuration is applied as it is, makes the layouts that it said, and then keeps them.
func TestAccFit_itsConfigurationIsApplied(t *testing.T) {
	t.Parallel()
	withMPS := rig.HGX(rig.H100, 3)
	withMPS.Hosts[0].MPS = &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"}
	for name, x := range map[string]struct {
		fleet   gpu.Snapshot
		demands []fit.Demand
	}{
		"partitions": {rig.TwoNodes(), []fit.Demand{{Name: "vdi", Count: 12, Kind: fit.Partitions, VRAMMiB: 3000}}},
		"instances and shares": {withMPS, []fit.Demand{
			{Name: "llm", Count: 3, Kind: fit.Instances, Profile: "3g.40gb"},
			{Name: "small", Count: 2, Kind: fit.Instances, Profile: "1g.10gb"},
			{Name: "jupyter", Count: 3, Kind: fit.Shares, MemoryMiB: 9000, Threads: 30, Label: "research"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rig.New(t, x.fleet)
			hosts := r.Snapshot().Hosts
			got, err := fit.Solve(hosts, x.demands, fit.Options{})
			if err != nil || got.Fits == nil || !*got.Fits || got.Changes == 0 {
				t.Fatalf("%v: fits is %v with %d changes: %s", err, got.Fits, got.Changes, got.Reason)
			}
			config := r.Block() + string(got.HCL(x.demands))
			r.Steps(
				resource.TestStep{Config: config},
				resource.TestStep{
					Config:           config,
					ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
				},
				resource.TestStep{
					Config: config,
					PreConfig: func() {
						again, err := fit.Solve(r.Snapshot().Hosts, x.demands, fit.Options{})
						if err != nil || again.Changes != 0 || again.GPUs != got.GPUs {
							t.Errorf("%v: then it wants %d changes for %v in place of %v", err, again.Changes, again.Layouts, got.Layouts)
						}
					},
				},
			)
		})
	}
}
