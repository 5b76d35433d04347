package provider_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
)

func TestPartitionConfigLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, twoNodes())
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: r.factories(),
		Steps: []resource.TestStep{
			{
				Config: r.block() + config4,
				ConfigPlanChecks: resource.ConfigPlanChecks{
					PreApply: []plancheck.PlanCheck{
						plancheck.ExpectKnownValue("gpu_partition_config.vdi", tfjsonpath.New("id"), knownvalue.StringExact("vdi")),
						plancheck.ExpectUnknownValue("gpu_partition_config.vdi", tfjsonpath.New("gpus")),
					},
					PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
				},
				ConfigStateChecks: []statecheck.StateCheck{
					statecheck.ExpectKnownValue("gpu_partition_config.vdi", tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(3792)),
					statecheck.ExpectKnownValue("gpu_partition_config.vdi", tfjsonpath.New("isolation"), knownvalue.StringExact("hardware")),
					statecheck.ExpectKnownValue("gpu_partition_config.vdi", tfjsonpath.New("drift"), knownvalue.ListSizeExact(0)),
				},
				Check: func(*terraform.State) error {
					r.wantCounts(4, "hv01", "hv02")
					if got := r.claims("hv02"); len(got) != 1 || got[0] != "partition_config vdi" {
						t.Errorf("claims on hv02: %v", got)
					}
					return nil
				},
			},
		},
	})
	r.wantCounts(4, "hv01", "hv02") // on_destroy = keep
	for _, h := range []string{"hv01", "hv02"} {
		if got := r.claims(h); len(got) != 0 {
			t.Errorf("claims on %s after destroy: %v", h, got)
		}
	}
}
