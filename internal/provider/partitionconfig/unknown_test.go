package partitionconfig_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestAccPartitionConfig_GPUThatCannotBeReadStaysAsItIs: it is no drift and no loss, the default selection keeps
// it, and only a change that concerns it is refused.
func TestAccPartitionConfig_GPUThatCannotBeReadStaysAsItIs(t *testing.T) {
	t.Parallel()
	const call = "nvmlDeviceGetMigMode: unknown error (999)"
	for name, hide := range map[string]func(*gpu.Host){
		"it is listed": func(h *gpu.Host) {
			g := &h.GPUs[1]
			g.MIG, g.Problem = nil, call
			h.Unknown = []gpu.Unknown{{Part: gpu.PartGPUs, GPU: g.ID, Why: call}}
		},
		"it does not tell its id": func(h *gpu.Host) {
			h.GPUs[1] = gpu.GPU{ID: "unknown-1", Vendor: "NVIDIA", Problem: call}
			h.Unknown = []gpu.Unknown{{Part: gpu.PartGPUs, GPU: "unknown-1", Why: call}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.HGX(rig.H100, 2))
			c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Balanced))
			c.Apply()
			r.WantLayout("2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4", 0, 1)
			before := r.MIG(1)

			r.EditHost("hgx01", hide)
			rig.WantSaid(t, c.Ok("plan"), "Parts of a host cannot be read", call, "No changes.")
			c.Write(r.Block() + rig.MIGOf("ml", rig.Written))
			rig.WantSaid(t, c.Fails("plan"), "A part of the host cannot be read", call, "Rule: readable")
			rig.WantSaid(t, c.Fails("apply", "-auto-approve"), call)
			r.WantLayout("2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4", 0)

			// The GPU beside it is put right meanwhile.
			c.Write(r.Block() + rig.MIGOf("ml", rig.Balanced))
			r.DestroyOutside(0, rig.At("3g.40gb", 4))
			c.Apply()
			r.WantLayout("2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4", 0)

			r.EditHost("hgx01", func(h *gpu.Host) {
				h.Unknown = nil
				h.GPUs[1] = gpu.GPU{ID: rig.MIGGPU(1), Vendor: "NVIDIA", Model: h.GPUs[0].Model, PCI: h.GPUs[0].PCI, VRAM: h.GPUs[0].VRAM, MIG: before}
			})
			c.WantNoChanges()
		})
	}
}
