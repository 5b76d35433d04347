package provider_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestEachCauseOfDriftIsSeen changes a host in each way that drift has a cause for, and reads
// what a person sees in `drift` of it: the cause, and since when where the host tells.
func TestEachCauseOfDriftIsSeen(t *testing.T) {
	t.Parallel()
	instances := func(r *rig.Rig, from, to gpu.MIGPlacement) {
		r.Must(r.Fleet.DestroyInstanceOutside(t.Context(), "hgx01", rig.MIGGPU(0), from))
		r.Must(r.Fleet.CreateInstanceOutside(t.Context(), "hgx01", rig.MIGGPU(0), to))
	}
	small := func(start int) gpu.MIGPlacement { return gpu.MIGPlacement{Profile: "1g.10gb", Start: start} }
	atSix := rig.MIGOf("ml", `placements = [{ profile = "1g.10gb", start = 6 }]`)
	boot := func(r *rig.Rig, host string) {
		r.EditHost(host, func(h *gpu.Host) {
			h.Boot = &gpu.Boot{ID: "first", At: time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)}
		})
	}
	for name, test := range map[string]struct {
		fleet        gpu.Snapshot
		config, of   string
		meddle       func(*rig.Rig)
		object       string
		cause        change.Cause
		since        bool
		found, wants string
	}{
		"reboot": {
			rig.HGX(rig.H100, 1), rig.MIGOf("ml", rig.Halves), rig.ML, func(r *rig.Rig) { r.Must(r.Fleet.Reboot(t.Context(), "hgx01")) },
			"GPU " + rig.MIGGPU(0), change.CauseReboot, true, "has MIG mode off", "2 × 3g.40gb",
		},
		"as a reboot leaves it, without a reboot": {
			rig.HGX(rig.H100, 1), rig.MIGOf("ml", rig.Halves), rig.ML, func(r *rig.Rig) {
				for _, start := range []int{0, 4} {
					r.Must(r.Fleet.DestroyInstanceOutside(t.Context(), "hgx01", rig.MIGGPU(0), gpu.MIGPlacement{Profile: "3g.40gb", Start: start}))
				}
			},
			"GPU " + rig.MIGGPU(0), change.CauseOtherTool, false, "has MIG mode without instances", "2 × 3g.40gb",
		},
		"other tool": {
			rig.TwoNodes(), rig.Config4, rig.VDI, func(r *rig.Rig) { r.Must(r.Fleet.SetCountOutside(t.Context(), "hv01", rig.GPU0, 8)) },
			"GPU " + rig.GPU0, change.CauseOtherTool, false, "has 8 partitions", "4 partitions",
		},
		"other state": {
			rig.TwoNodes(), rig.Config4, rig.VDI, func(r *rig.Rig) {
				r.EditHost("hv01", func(h *gpu.Host) { h.Claims[0].Owner = "somebody-else" })
			},
			"host hv01", change.CauseOtherState, false, `records the owner "somebody-else"`, "the owner",
		},
		"GPU replaced": {
			rig.HGX(rig.H100, 2), rig.MIGOf("ml", rig.Halves), rig.ML, func(r *rig.Rig) {
				r.Must(r.Fleet.RemoveGPU(t.Context(), "hgx01", rig.MIGGPU(1)))
				repaired := rig.MIGCard(5, rig.H100)
				repaired.Address = "0000:1b:00.0"
				r.Must(r.Fleet.AddGPU(t.Context(), "hgx01", repaired))
			},
			"GPU " + rig.MIGGPU(5), change.CauseGPUReplaced, false, "is in PCI slot 0000:1b:00.0, where GPU " + rig.MIGGPU(1) + " was", "",
		},
		"GPU missing": {
			rig.TwoNodes(), rig.RenderPool(rig.SecondGPUs), "gpu_pool.render", func(r *rig.Rig) {
				r.EditHost("hv02", func(h *gpu.Host) {
					h.Pools[0].GPUs = nil
					h.GPUs = slices.DeleteFunc(h.GPUs, func(g gpu.GPU) bool { return g.ID == rig.GPU1 })
				})
			},
			"GPU " + rig.GPU1, change.CauseGPUMissing, false, `is not in pool "render"`, "a member",
		},
		"GPU missing from a config": {
			rig.TwoNodes(), rig.Config4, rig.VDI, func(r *rig.Rig) {
				r.EditHost("hv02", func(h *gpu.Host) {
					h.GPUs = slices.DeleteFunc(h.GPUs, func(g gpu.GPU) bool { return g.ID == rig.GPU1 })
				})
			},
			"host hv02, GPU " + rig.GPU1, change.CauseGPUMissing, false, "has no layout", "4 partitions",
		},
		"moved": {
			rig.HGX(rig.H100, 1), atSix, rig.ML, func(r *rig.Rig) { instances(r, small(6), small(2)) },
			"GPU " + rig.MIGGPU(0), change.CauseMoved, false, "has 1g.10gb@2 (1g.10gb@2 is not of this config)", "1g.10gb@6",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, test.fleet)
			c := rig.NewCLI(t, r.Block()+test.config+"\noutput \"drift\" {\n  value = "+test.of+".drift\n}\n")
			for _, h := range r.Snapshot().Hosts {
				boot(r, h.Name)
			}
			c.Apply()
			test.meddle(r)
			plan, _ := c.Run("plan") // an error where the GPU is named that is missing
			c.Ok("apply", "-refresh-only", "-auto-approve")
			c.Ok("apply", "-refresh-only", "-auto-approve") // from a state that lists what was found
			var outputs struct {
				Drift struct {
					Value []struct {
						Object, Found          string
						Cause, Declared, Since *string
					}
				}
			}
			if err := json.Unmarshal([]byte(c.Ok("output", "-json")), &outputs); err != nil || len(outputs.Drift.Value) == 0 {
				t.Fatalf("drift is %+v (%v)\n%s", outputs, err, plan)
			}
			d := outputs.Drift.Value[0]
			if !strings.Contains(d.Object, test.object) || d.Cause == nil || *d.Cause != string(test.cause) ||
				!strings.Contains(d.Found, test.found) ||
				(d.Declared == nil) != (test.wants == "") || d.Declared != nil && !strings.Contains(*d.Declared, test.wants) {
				t.Errorf("drift says %s %v %v %v", d.Object, d.Cause, d.Found, d.Declared)
			}
			if (d.Since != nil) != test.since {
				t.Errorf("since is %v", d.Since)
			} else if test.since {
				at, err := time.Parse(time.RFC3339, *d.Since)
				for _, h := range r.Snapshot().Hosts {
					if err != nil || !at.Equal(h.Boot.At) {
						t.Errorf("since %s (%v), and the host started at %s", *d.Since, err, h.Boot.At)
					}
				}
				rig.WantSaid(t, plan, "(since "+*d.Since+")")
			}
		})
	}
}
