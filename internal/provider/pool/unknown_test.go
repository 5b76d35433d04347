package pool_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestAccPool_PoolsThatCannotBeReadAreNotGone: the state keeps the pool, and changing it is refused.
func TestAccPool_PoolsThatCannotBeReadAreNotGone(t *testing.T) {
	t.Parallel()
	const why = "Query of Msvm_ResourcePool: generic failure (0x80041001)"
	r := rig.New(t, rig.TwoNodes())
	pool := func(gpus string) string {
		return r.Block() + `
resource "gpu_pool" "p" {
  name    = "cad"
  members = { hv01 = [` + gpus + `] }
}
`
	}
	c := rig.NewCLI(t, pool(`"`+rig.GPU0+`"`))
	c.Apply()
	r.WantPool("cad", []string{rig.GPU0}, "hv01")
	var before []gpu.Pool
	r.EditHost("hv01", func(h *gpu.Host) {
		before, h.Pools, h.Unknown = h.Pools, nil, []gpu.Unknown{{Part: gpu.PartPools, Why: why}}
	})
	rig.WantSaid(t, c.Ok("plan"), "Parts of a host cannot be read", why, "No changes.")
	c.Write(pool(`"` + rig.GPU0 + `", "` + rig.GPU1 + `"`))
	rig.WantSaid(t, c.Fails("plan"), why, "Rule: readable")
	r.WantDismounted("hv01", rig.GPU0)
	rig.WantSaid(t, c.Fails("destroy", "-refresh=false", "-auto-approve"), why)
	r.EditHost("hv01", func(h *gpu.Host) { h.Pools, h.Unknown = before, nil })
	r.WantPool("cad", []string{rig.GPU0}, "hv01")
	c.Apply()
	r.WantPool("cad", []string{rig.GPU0, rig.GPU1}, "hv01")
}
