package partitionconfig_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// An apply leaves what its plan knew of the GPUs, and the hosts have it: the output of all that a config tells is the same when it
// is read again, whatever layout follows whichever, with hosts that join and leave and with counts that others change.
func TestAccPartitionConfig_WhatAPlanKnowsComesAbout(t *testing.T) {
	t.Parallel()
	reset := `max_disruption = "gpu_reset"`
	mig := func(layouts ...string) (out []string) {
		for _, layout := range layouts {
			out = append(out, rig.MIGOf("it", layout, reset), rig.MIGOf("it", layout, reset, `quiesce_units = ["dcgm.service"]`))
		}
		return out
	}
	for kind, test := range map[string]struct {
		fleet   gpu.Snapshot
		configs []string
		address string
		meddle  func(*rig.Rig, *rand.Rand)
	}{
		"gpu_p": {
			rig.TwoNodes(),
			[]string{
				rig.ConfigOf(2, rig.Both), rig.ConfigOf(4, rig.Both), rig.ConfigOf(8, rig.Both), rig.ConfigOf(4, []string{"hv01"}),
				rig.ConfigOf(8, []string{"hv02"}), rig.ConfigOf(8, rig.Both, `max_disruption = "vm_restart"`),
			},
			rig.VDI,
			func(r *rig.Rig, by *rand.Rand) {
				r.Must(r.Fleet.SetCountOutside(context.Background(), "hv01", rig.GPU0, []int{2, 4, 8}[by.IntN(3)]))
			},
		},
		"mig": {
			rig.HGX(rig.H100, 2), mig(rig.Halves, rig.Balanced, rig.Written, rig.SevenSmall, "enabled = false",
				`placements = [{ profile = "1G.10gb", start = 6 }, { profile = "3g.40gb", start = 0 }]`), "gpu_partition_config.it", nil,
		},
		"vgpu": {
			rig.KVM(rig.L40s(0)),
			[]string{rig.VGPUOf("desks", `type = "L40S-12Q", count = 3`), rig.VGPUOf("desks", rig.TwoDesks), rig.VGPUOf("desks", rig.MixedDesk)},
			rig.Desks, nil,
		},
		"mps": {
			rig.GPUHost(2), []string{
				rig.MPSOf(rig.HalfEach, reset), rig.MPSOf(rig.QuarterEach, reset), rig.MPSOf(rig.HalfEach+`, compute_mode = "default"`, reset),
				rig.MPSOf(rig.HalfEach+`, daemons = "per_gpu"`, reset),
			}, rig.SharedGPUs, nil,
		},
		"time_slicing": {
			rig.GPUHost(2),
			[]string{rig.TurnsOf(rig.FourTurns), rig.TurnsOf("replicas = 2"), rig.TurnsOf(`interval = "short", replicas = 2`)},
			rig.SharedGPUs, nil,
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			by := rand.New(rand.NewPCG(40, uint64(len(kind)))) //nolint:gosec // a test that can be repeated
			r := rig.New(t, test.fleet)
			c := rig.NewCLI(t, "")
			for range 12 {
				config := test.configs[by.IntN(len(test.configs))]
				if test.meddle != nil && by.IntN(3) == 0 {
					test.meddle(r, by)
				}
				c.Write(r.Block() + config + "output \"all\" {\n  value = " + test.address + "\n}\n")
				c.Apply()
				if c.WantNoChanges(); t.Failed() {
					t.Fatal(config)
				}
			}
		})
	}
}
