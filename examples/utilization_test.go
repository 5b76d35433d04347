package examples_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestUtilizationExample(t *testing.T) {
	t.Parallel()
	dir := examplesDir + "/data-sources/gpu_utilization"
	e := copyExample(t, examplesDir+"/linux-hgx/fleet.json", dir+"/data-source.tf", dir+"/data-source_check.tf")
	before := e.fleet.Snapshot()
	e.Apply()
	rig.WantSaid(t, e.Output("summary"), "Of 16 GPUs on 2 hosts")
	if diff := cmp.Diff(before, e.fleet.Snapshot()); diff != "" {
		t.Errorf("measuring has changed the fleet (-before +after):\n%s", diff)
	}
	// In a check, a host that does not answer is a warning.
	e = copyExample(t, e.fleet.Fleet.Path(), dir+"/data-source_check.tf")
	e.fleet.Must(e.fleet.Fleet.SetUnreachable(t.Context(), "hgx02", true))
	rig.WantSaid(t, e.Ok("plan"), "Warning: ", "hgx02")
}
