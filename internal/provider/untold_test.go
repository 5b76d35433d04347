package provider_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// With keep, whatever leaves a host that does not answer says which, and that all stays there as
// it is: each resource at its destroy, and those of several hosts when one of them leaves.
func TestHostsLeftUntoldAreNamed(t *testing.T) {
	t.Parallel()
	mps, vdi := rig.Inference(2), rig.TwoNodes
	pool := func(hosts ...string) string { return rig.MLPool(hosts) }
	share := rig.MPSOn01 + rig.ShareOf("a", rig.OnGPU01, rig.OfMPS, rig.Half)
	for name, tt := range map[string]struct {
		fleet           gpu.Snapshot
		config, shrunk  string // where there is nothing to shrink, target is destroyed
		target, subject string
		silent          string
		claims          []string
	}{
		"a config's destroy": {
			vdi(), rig.ConfigOf(4, rig.Both), "", "gpu_partition_config.vdi", `gpu_partition_config "vdi"`, "hv02", []string{"partition_config vdi"},
		},
		"a config without it": {
			vdi(), rig.ConfigOf(4, rig.Both), rig.ConfigOf(4, []string{"hv01"}), "", `gpu_partition_config "vdi"`,
			"hv02",
			[]string{"partition_config vdi"},
		},
		"a pool's destroy":  {mps, pool("gpu01", "gpu02"), "", "gpu_pool.ml", `gpu_pool "gpu01/ml"`, "gpu02", []string{"pool ml"}},
		"a pool without it": {mps, pool("gpu01", "gpu02"), pool("gpu01"), "", `gpu_pool "gpu01/ml"`, "gpu02", []string{"pool ml"}},
		"an assignment's destroy": {
			oneHost(), desktops("avd-01"), "", "gpu_vm_assignment.avd-01", `"avd-01"`, "hv01",
			[]string{"partition_config vdi", "vm_assignment " + rig.VMID(1)},
		},
		"a share's destroy": {mps, share, "", "gpu_share.a", `gpu_share "a"`, "gpu01", []string{"partition_config mps", "share a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, tt.fleet)
			keep := r.Block(`on_unreachable = "keep"`)
			c := rig.NewCLI(t, keep+tt.config)
			c.Apply()
			before := r.Host(tt.silent)
			r.Silent(true, tt.silent)
			var out string
			if tt.shrunk != "" {
				c.Write(keep + tt.shrunk)
				out = c.Apply()
			} else {
				out = c.Destroy("-target=" + tt.target)
			}
			says := []string{"Warning: The host was left unchanged", "Host: " + tt.silent, "Its configuration and its claim stay in place"}
			if tt.target == "gpu_vm_assignment.avd-01" { // its VM may be on any host that does not answer
				says = []string{"Warning: The VM was left unchanged", "these hosts do not answer: " + tt.silent, "it still has its GPU"}
			}
			rig.WantSaid(t, out, append(says, tt.subject)...)
			if diff := cmp.Diff(before, r.Host(tt.silent)); diff != "" {
				t.Errorf("%s has changed (-before +after):\n%s", tt.silent, diff)
			}
			r.WantClaims([]string{tt.silent}, tt.claims...)
		})
	}
}
