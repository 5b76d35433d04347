package partitionconfig

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

func inMIGMode(g *gpu.GPU) bool { return g.MIG != nil && g.MIG.Enabled }

// sharingText is the layout of a GPU that has none of its own: "mps:exclusive_process" when
// a daemon of the config serves it, "time_slicing:long", or "mps:none".
func sharingText(c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU) string {
	kind, mode := string(c.Kind)+":", "none"
	switch {
	case inMIGMode(g):
	case c.MPS != nil && served(c, h, g):
		mode = string(cmp.Or(g.ComputeMode, gpu.ComputeDefault))
	case c.TimeSlicing != nil && (g.ComputeMode == "" || g.ComputeMode == gpu.ComputeDefault):
		mode = string(cmp.Or(g.TimeSlice, gpu.TimeSliceDefault))
	}
	return kind + mode
}

// served tells whether a daemon of the config that runs has a GPU among its devices.
func served(c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU) bool {
	return slices.ContainsFunc(placement.Daemons(h, &c, []string{g.ID}), func(want gpu.MPSDaemonSpec) bool {
		d, ok := h.Daemon(want.Name)
		return ok && d.PID != 0 && slices.ContainsFunc(d.Devices, func(at gpu.SharedDevice) bool { return gpu.SameID(at.GPU, g.ID) })
	})
}
