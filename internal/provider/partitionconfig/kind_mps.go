package partitionconfig

import (
	"cmp"
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
)

var mpsKind = layoutKind{
	kind: gpu.KindMPS,
	attribute: layout.MPS("NVIDIA's Multi-Process Service (MPS) on Linux hosts: processes and containers compute on a GPU at the same time, " +
		"each with a part of its multiprocessors and memory. One control daemon per host, or per GPU, serves its GPUs in order of their ids. " +
		"MPS is not a security boundary: a fault of one client can terminate the others."),
	decode: func(_ context.Context, block types.Object, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
		c.MPS = layout.DecodeMPS(block, diags)
	},
	encode: func(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) types.Object {
		if c.Kind != gpu.KindMPS {
			c.MPS = nil // MIG has it inside
		}
		return layout.EncodeMPS(ctx, c.MPS, diags)
	},
	describe: describeSharing,
	foresee: func(g gpuModel, c gpu.PartitionConfig) gpuModel {
		mode := cmp.Or(c.MPS.ComputeMode, gpu.ComputeExclusiveProcess)
		g.Layout = types.StringValue(gpu.Layout{ComputeMode: mode}.Text(c.Kind))
		return g
	},
}

func describeSharing(_ context.Context, out *gpuModel, c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU, _ *diag.Diagnostics) {
	out.Layout = types.StringValue(sharingText(c, h, g))
}

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
