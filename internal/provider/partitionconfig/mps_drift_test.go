package partitionconfig_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccPartitionConfig_RebootLosesMPSAndAnApplyPutsItBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.QuarterEach))
	c.Apply()
	r.Must(r.Fleet.Reboot(t.Context(), "gpu01"))
	r.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	r.WantDaemons("gpu01")
	rig.WantSaid(t, c.Ok("plan"), "Warning: Partitions differ from the declaration",
		"Host gpu01, GPU "+rig.SharedCard(0)+" (NVIDIA L40S) has compute mode default, declared is MPS in compute mode exclusive_process; lost "+
			"by reboot, or removed by others",
		"0 to add, 1 to change, 0 to destroy")
	rig.WantSaid(t, c.PlannedValue(rig.SharedGPUs, "drift"), `"reboot"`, `"MPS in compute mode exclusive_process"`,
		`"has compute mode default"`,
		`"host gpu01, GPU `+rig.SharedCard(0)+` (NVIDIA L40S)"`, `"host gpu01, MPS daemon inference"`)
	c.Apply()
	r.WantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
	r.WantDaemons("gpu01", "user 1000, 25 %, 10.0 GiB"+rig.BothCards())
	c.WantNoChanges()
}

func TestAccPartitionConfig_MPSDaemonThatDiedIsDrift(t *testing.T) {
	t.Parallel()
	edit := func(r *rig.Rig, change func(*gpu.MPSHost)) { r.EditHost("gpu01", func(h *gpu.Host) { change(h.MPS) }) }
	for name, test := range map[string]struct {
		change func(*rig.Rig)
		want   string
	}{
		"killed": {
			func(r *rig.Rig) { r.Must(r.Fleet.KillDaemon(r.T.Context(), "gpu01", "inference")) },
			"MPS daemon inference does not run: it has ended, and its log gives no reason",
		},
		"removed": {
			func(r *rig.Rig) { edit(r, func(m *gpu.MPSHost) { m.Daemons = nil }) },
			"MPS daemon inference is gone, declared is GPU " + rig.SharedCard(0) + ", GPU " + rig.SharedCard(1) +
				", user 1000, 50 % of the threads; lost by reboot, or removed by others",
		},
		"changed": {
			func(r *rig.Rig) { edit(r, func(m *gpu.MPSHost) { m.Daemons[0].ActiveThreadPercentage = 90 }) },
			"user 1000, 90 % of the threads, declared is GPU " + rig.SharedCard(0) + ", GPU " + rig.SharedCard(1) +
				", user 1000, 50 % of the threads",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.GPUHost(2))
			c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach))
			c.Apply()
			test.change(r)
			rig.WantSaid(t, c.Ok("plan"), "Warning: Partitions differ from the declaration", "Host gpu01, MPS daemon inference",
				test.want, "0 to add, 1 to change, 0 to destroy")
			c.Apply()
			r.WantDaemons("gpu01", "user 1000, 50 %"+rig.BothCards())
			r.WantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
			c.WantNoChanges()
		})
	}
}

func TestAccPartitionConfig_ModesOfAnotherOwnerAreDrift(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config string
		change func(*gpu.GPU)
		want   string
	}{
		"compute mode with MPS": {
			rig.MPSOf(rig.HalfEach), func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeDefault },
			"has compute mode default, declared is MPS in compute mode exclusive_process; lost by reboot, or removed by others",
		},
		"compute mode with turns": {
			rig.TurnsOf(rig.FourTurns), func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeExclusiveProcess },
			"has compute mode exclusive_process and time slice long, declared is time-slicing in compute mode default and time slice long; " +
				"changed by others",
		},
		"time slice": {
			rig.TurnsOf(rig.FourTurns), func(g *gpu.GPU) { g.TimeSlice = gpu.TimeSliceShort },
			"has compute mode default and time slice short, declared is time-slicing in compute mode default and time slice long; changed by others",
		},
		"time slice, reboot": {
			rig.TurnsOf(rig.FourTurns), func(g *gpu.GPU) { g.TimeSlice = gpu.TimeSliceDefault },
			"has compute mode default and time slice default",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.GPUHost(2))
			c := rig.NewCLI(t, r.Block()+test.config)
			c.Apply()
			before := r.Host("gpu01")
			r.EditCard(1, test.change)
			rig.WantSaid(t, c.Ok("plan"), "Host gpu01, GPU "+rig.SharedCard(1)+" (NVIDIA L40S) "+test.want, "0 to add, 1 to change, 0 to destroy")
			c.Apply()
			if diff := cmp.Diff(before.GPUs, r.Host("gpu01").GPUs); diff != "" {
				t.Errorf("the GPUs differ from what they were (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(before.MPS, r.Host("gpu01").MPS); diff != "" {
				t.Errorf("the daemon was restarted (-before +after):\n%s", diff)
			}
			c.WantNoChanges()
		})
	}
}

// A mode that the driver does not tell is no difference.
func TestAccPartitionConfig_UnknownModesAreNoDrift(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(1))
	c := rig.NewCLI(t, r.Block()+rig.TurnsOf(rig.FourTurns))
	c.Apply()
	r.EditCard(0, func(g *gpu.GPU) { g.ComputeMode, g.TimeSlice = "", "" })
	c.WantNoChanges()
}

func TestAccPartitionConfig_RebootLosesMPSInsideOfMIG(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithMPS(rig.HGX(rig.H100, 1)))
	c := rig.NewCLI(t, r.Block()+rig.MIGOf("ml", rig.Halves+", mps = { "+rig.HalfEach+" }"))
	c.Apply()
	want := rig.InstancesOf("user 1000, 50 %", "3g.40gb@0", "3g.40gb@4")
	r.Must(r.Fleet.Reboot(t.Context(), "hgx01"))
	r.WantDaemons("hgx01")
	c.Apply()
	r.WantLayout("3g.40gb@0 3g.40gb@4", 0)
	r.WantDaemons("hgx01", want...)
	c.WantNoChanges()
	r.EditHost("hgx01", func(h *gpu.Host) { h.MPS.Daemons = slices.Delete(h.MPS.Daemons, 0, 1) })
	rig.WantSaid(t, c.Apply(), "Host hgx01, MPS daemon ", "is gone, declared is 3g.40gb at ")
	r.WantDaemons("hgx01", want...)
	c.WantNoChanges()
}

// sharingImports are layouts of which each comes back from an import as it was declared.
func sharingImports() map[string]struct{ kind, config string } {
	return map[string]struct{ kind, config string }{
		"MPS":                {"mps", rig.MPSOf(rig.QuarterEach)},
		"MPS for all users":  {"mps", rig.MPSOf(`multi_user = true, compute_mode = "default", oversubscription = 1.5`)},
		"MPS of one GPU":     {"mps", rig.MPSOf(rig.HalfEach, rig.OnCard(1))},
		"time-slicing":       {"time_slicing", rig.TurnsOf(rig.FourTurns)},
		"time-slicing alone": {"time_slicing", rig.TurnsOf("replicas = 2")},
	}
}

func TestAccPartitionConfig_ImportOfASharingConfigOfThisState(t *testing.T) {
	t.Parallel()
	for name, test := range sharingImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.GPUHost(2))
			steps := []resource.TestStep{{Config: r.Block() + test.config}}
			for _, id := range []string{"gpu01", "gpu01:" + test.kind, "inference@gpu01:" + test.kind} {
				steps = append(steps, resource.TestStep{
					ResourceName: rig.SharedGPUs, ImportState: true, ImportStateId: id, ImportStateVerify: true,
					ImportStateKind: resource.ImportCommandWithID,
				})
			}
			r.Steps(append(steps, resource.TestStep{
				Config: r.Block() + test.config, ResourceName: rig.SharedGPUs, ImportState: true, ImportStateId: "gpu01:" + test.kind,
				ImportStateKind: resource.ImportBlockWithID,
				ImportPlanChecks: resource.ImportPlanChecks{
					PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(rig.SharedGPUs, plancheck.ResourceActionNoop)},
				},
			})...)
		})
	}
	for name, layout := range map[string]string{"MPS": "mps = { " + rig.HalfEach + " }", "time-slicing": "time_slicing = { replicas = 2 }"} {
		t.Run(name+" inside of MIG", func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.WithMPS(rig.HGX(rig.H100, 1)))
			r.Steps(
				resource.TestStep{Config: r.Block() + rig.MIGOf("ml", rig.Halves+", "+layout)},
				resource.TestStep{
					ResourceName: rig.ML, ImportState: true, ImportStateId: "hgx01:mig", ImportStateVerify: true,
					ImportStateKind: resource.ImportCommandWithID,
				},
			)
		})
	}
}

// Only a claim tells all of such a config; one that is created again finds its daemon.
func TestAccPartitionConfig_SharingWithoutAClaimIsNotImportedButCreated(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	first := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach))
	first.Apply()
	r.EditHost("gpu01", func(h *gpu.Host) { h.Claims = nil })
	before := r.Host("gpu01").MPS
	c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach))
	for _, kind := range []string{"mps", "time_slicing"} {
		rig.WantSaid(t, c.Fails("import", rig.SharedGPUs, "gpu01:"+kind), "Nothing to import",
			"have no claim of a partition config of kind `"+kind+"`")
	}
	c.Apply()
	if diff := cmp.Diff(before, r.Host("gpu01").MPS); diff != "" {
		t.Errorf("the daemon was restarted (-before +after):\n%s", diff)
	}
	c.WantNoChanges()
}

func TestAccPartitionConfig_MPSOfASilentHostIsKept(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(1))
	output := "output \"daemons\" {\n  value = [for d in gpu_partition_config.inference.mps_daemons[\"gpu01\"] : d.name]\n}\n"
	c := rig.NewCLI(t, r.Block(`on_unreachable = "keep"`)+rig.MPSOf(rig.HalfEach)+output)
	c.Apply()
	r.Silent(true, "gpu01")
	rig.WantSaid(t, c.Ok("plan", "-detailed-exitcode"), "No changes")
	rig.WantSaid(t, c.Output("daemons"), `"inference"`)
	c.Write(r.Block(`on_unreachable = "keep"`) + rig.MPSOf(rig.QuarterEach) + output)
	rig.WantSaid(t, c.Fails("plan"), "Layout cannot change while a host does not answer")
}
