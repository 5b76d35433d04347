package change

import (
	"cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// kindTimeSlicing is processes that have the GPU one after another. A reboot takes the time slice.
var kindTimeSlicing = kind{
	op:       shareGPU,
	platform: gpu.Linux,
	layout:   "the time slices",
	noun:     func(*gpu.PartitionConfig) string { return "time-slicing" },
	use:      "processes and containers of the host share its GPUs",
	passes:   passesSharing,
	beside:   true,
	offers:   offersSharing,
	plan:     planSharing,
	has:      hasModes,
	found: func(_ *gpu.PartitionConfig, _ gpu.Layout, g *gpu.GPU) string {
		return modesFound(g, string(g.ComputeMode), string(g.TimeSlice))
	},
	declared: func(c *gpu.PartitionConfig) string {
		mode, slice := placement.WantedModes(c)
		return "time-slicing in compute mode " + string(mode) + " and time slice " + string(slice)
	},
	cause: func(_, now gpu.Layout) Cause {
		return causeOfModes(now, cmp.Or(now.TimeSlice, gpu.TimeSliceDefault))
	},
	unrestorable: func(*gpu.Host, gpu.Layout, *gpu.GPU) string { return "" },
	lost:         lostModes,
}
