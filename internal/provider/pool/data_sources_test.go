package pool_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccPoolDataSource_PoolDataSourceShowsWhatIsFree(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	r.SetPool("hv01", "render", rig.GPU0, rig.GPU1)
	r.SetPool("hv02", "render", rig.GPU1)
	high := 65 * 1024 * gpu.MiB
	r.EditHost("hv02", func(h *gpu.Host) { h.VMs[2].Settings.HighMemoryMappedIOSpace = &high })
	r.Draw("avd-06", "render")
	r.Must(r.Fleet.SetVMState(t.Context(), "avd-06", gpu.VMRunning))
	const render = "data.gpu_pool.render"
	r.Steps(
		resource.TestStep{
			Config: r.Block() + "data \"gpu_pool\" \"render\" {\n  name = \"Render\"\n  cluster = \"azl\"\n}\n",
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(render, rig.Jsonpath("id"), knownvalue.StringExact("azl/Render")),
				statecheck.ExpectKnownValue(render, rig.Jsonpath("available"), knownvalue.MapExact(map[string]knownvalue.Check{
					"hv01": knownvalue.Int64Exact(2), "hv02": knownvalue.Int64Exact(0),
				})),
				statecheck.ExpectKnownValue(render, rig.Jsonpath("gpus", "hv02", "gpus", rig.GPU1, "vm"), knownvalue.StringExact("avd-06")),
				statecheck.ExpectKnownValue(render, rig.Jsonpath("gpus", "hv02", "gpus", rig.GPU1, "status"), knownvalue.StringExact("assigned")),
				statecheck.ExpectKnownValue(render, rig.Jsonpath("gpus", "hv01", "gpus", rig.GPU1, "vm"), knownvalue.Null()),
			},
		},
		resource.TestStep{
			Config:      r.Block() + "data \"gpu_pool\" \"render\" {\n  name = \"cad\"\n  host = \"hv01\"\n}\n",
			ExpectError: rig.Says("Pool does not exist", "cad"),
		},
		resource.TestStep{
			Config:      r.Block() + "data \"gpu_pool\" \"render\" {\n  name = \"render\"\n  host = \"hv09\"\n}\n",
			ExpectError: rig.Says("Unknown host", "hv09"),
		},
	)
}
