package runs_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A share whose GPU is gone goes to another host when it is replaced: the fix that its warning offers.
func TestAShareOfALostGPUIsReplacedElsewhere(t *testing.T) {
	t.Parallel()
	for _, event := range []string{"lost", "problem"} {
		t.Run(event, rig.WithoutWaiting(func(t *testing.T) {
			r := rig.New(t, rig.Inference(2))
			config := r.Block() + rig.SharedConfig("mps", rig.ByMPS, "gpu01", "gpu02") + rig.MLPool([]string{"gpu01", "gpu02"}) +
				rig.ShareOf("a", rig.FromPool)
			c := rig.NewCLI(t, config)
			c.Apply()
			host := "gpu01"
			if len(r.Claims("gpu02")) > 2 {
				host = "gpu02"
			}
			for _, g := range r.Host(host).GPUs {
				if event == "lost" {
					r.Must(r.Fleet.RemoveGPU(t.Context(), host, g.ID))
					continue
				}
				r.EditHost(host, func(h *gpu.Host) {
					at, _ := h.GPU(g.ID)
					at.Problem = "XID 79: it has fallen off the bus"
				})
			}
			rig.WantSaid(t, c.Ok("plan"), "or replace")
			c.Ok("apply", "-auto-approve", "-replace=gpu_share.a")
			other := map[string]string{"gpu01": "gpu02", "gpu02": "gpu01"}[host]
			if got := r.Share(other, "a").GPUs; len(got) != 1 || len(r.Claims(host)) > 2 {
				t.Errorf("the share is on %v of %s, and %s has the claims %v", got, other, host, r.Claims(host))
			}
			c.WantNoChanges()
			c.Destroy()
		}))
	}
}
