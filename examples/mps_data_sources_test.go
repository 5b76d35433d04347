package examples_test

import (
	"path/filepath"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// exampleFleet is that of the examples of MPS and time-slicing.
func exampleFleet(t *testing.T) string {
	t.Helper()
	s := rig.GPUHost(2)
	s.Hosts = append(append(s.Hosts, rig.Inference(2).Hosts[1]), rig.HGX(rig.H100, 2).Hosts...)
	return rig.New(t, rig.WithMPS(s)).Fleet.Path()
}

func TestMPSResourceExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, exampleFleet(t), filepath.Join(examplesDir, "resources", "gpu_partition_config", "resource_mps.tf"))
	e.lifecycle("gpu01: partition_config inference", "gpu02: partition_config serving", "hgx01: partition_config notebooks")
	e.fleet.WantDaemons("gpu01")
	e.fleet.WantDaemons("gpu02")
	e.fleet.WantDaemons("hgx01")
	e.fleet.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	e.fleet.WantLayout("3g.40gb@0 3g.40gb@4", 0, 1) // on_destroy = keep
}

func TestTimeSlicingResourceExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, exampleFleet(t), filepath.Join(examplesDir, "resources", "gpu_partition_config", "resource_time_slicing.tf"))
	e.lifecycle("gpu01: partition_config development", "hgx01: partition_config batch")
	e.fleet.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
}
