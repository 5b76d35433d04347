package examples_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestUtilizationExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, examplesDir+"/linux-hgx/fleet.json", examplesDir+"/data-sources/gpu_utilization/data-source.tf")
	before := e.fleet.Snapshot()
	e.Apply()
	rig.WantSaid(t, e.Ok("output", "summary"), "Of 16 GPUs on 2 hosts")
	if diff := cmp.Diff(before, e.fleet.Snapshot()); diff != "" {
		t.Errorf("measuring has changed the fleet (-before +after):\n%s", diff)
	}
}
