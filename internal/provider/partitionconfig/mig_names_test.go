package partitionconfig_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// Names of profiles are taken without case, like those of vGPU types: how they are written is no
// difference, and what is told has the driver's.
func TestAccPartitionConfig_ProfilesAreNamedWithoutCase(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	const share = "resource \"gpu_share\" \"s\" {\n  name = \"s\"\n  host = \"hgx01\"\n  config = gpu_partition_config.ml.id\n  mig_profile " +
		"= \"1G.10gb\"\n}\n"
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", `profiles = { "3G.40GB" = 1, "1g.10GB" = 2 }`)+share)
	c.Apply()
	c.WantNoChanges()
	r.WantLayout("1g.10gb@0 1g.10gb@1 3g.40gb@4", 0)
	c.Write(r.Block() +
		rig.MIGOf("ml",
			`placements = [{ profile = "3G.40GB", start = 4 }, { profile = "1g.10gb", start = 0 }, { profile = "1G.10GB", start = 1 }]`) + share)
	c.Apply()
	c.WantNoChanges()
	r.WantLayout("1g.10gb@0 1g.10gb@1 3g.40gb@4", 0)
	respelled := strings.Replace(share, "1G.10gb", "1g.10gb", 1)
	c.Write(r.Block() + rig.MIGOf("ml", `profiles = { "3g.40gb" = 1, "1g.10gb" = 2 }`) + respelled)
	rig.WantSaid(t, c.Ok("plan"), "0 to add, 2 to change, 0 to destroy") // how names are written is kept in the state
	c.Apply()
	c.WantNoChanges()
	r.WantShares("hgx01", "s")
	c.Write(r.Block() + rig.MIGOf("ml", `profiles = { "3G.40GB" = 1, "3g.40gb" = 1 }`)) // counts of one profile add up
	c.Apply()
	c.WantNoChanges()
	r.WantLayout("3g.40gb@0 3g.40gb@4", 0)
}
