package provider_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestRebootLosesMPSAndAnApplyPutsItBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	c := newCLI(t, r.block()+mpsOf(quarterEach))
	c.apply()
	r.must(r.fleet.Reboot(t.Context(), "gpu01"))
	r.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	r.wantDaemons("gpu01")
	wantSaid(t, c.ok("plan"), "Warning: Partitions differ from the declaration",
		"host gpu01, GPU "+sharedCard(0)+" (NVIDIA L40S): lost by reboot, or changed by others: it has compute mode default, declared is MPS in compute mode exclusive_process",
		"0 to add, 1 to change, 0 to destroy")
	c.apply()
	r.wantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
	r.wantDaemons("gpu01", "user 1000, 25 %, 10.0 GiB"+bothCards())
	c.wantNoChanges()
}

func TestMPSDaemonThatDiedIsDrift(t *testing.T) {
	t.Parallel()
	edit := func(r *rig, change func(*gpu.MPSHost)) { r.editHost("gpu01", func(h *gpu.Host) { change(h.MPS) }) }
	for name, test := range map[string]struct {
		change func(*rig)
		want   string
	}{
		"killed": {
			func(r *rig) { r.must(r.fleet.KillDaemon(r.t.Context(), "gpu01", "inference")) },
			"MPS daemon inference of GPU " + sharedCard(0) + ", GPU " + sharedCard(1) + " does not run: it has ended, and its log gives no reason",
		},
		"removed": {
			func(r *rig) { edit(r, func(m *gpu.MPSHost) { m.Daemons = nil }) }, "is gone: lost by reboot, or removed by others",
		},
		"changed": {
			func(r *rig) { edit(r, func(m *gpu.MPSHost) { m.Daemons[0].ActiveThreadPercentage = 90 }) },
			"user 1000, 90 % of the threads, declared is GPU " + sharedCard(0) + ", GPU " + sharedCard(1) + ", user 1000, 50 % of the threads",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, gpuHost(2))
			c := newCLI(t, r.block()+mpsOf(halfEach))
			c.apply()
			test.change(r)
			wantSaid(t, c.ok("plan"), "Warning: Partitions differ from the declaration", "host gpu01: MPS daemon inference", test.want, "0 to add, 1 to change, 0 to destroy")
			c.apply()
			r.wantDaemons("gpu01", "user 1000, 50 %"+bothCards())
			r.wantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
			c.wantNoChanges()
		})
	}
}

func TestModesOfAnotherOwnerAreDrift(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config string
		change func(*gpu.GPU)
		want   string
	}{
		"compute mode with MPS": {
			mpsOf(halfEach), func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeDefault },
			"lost by reboot, or changed by others: it has compute mode default, declared is MPS in compute mode exclusive_process",
		},
		"compute mode with turns": {
			turnsOf(fourTurns), func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeExclusiveProcess },
			"changed by another owner: it has compute mode exclusive_process and time slice long, declared is time-slicing in compute mode default and time slice long",
		},
		"time slice": {
			turnsOf(fourTurns), func(g *gpu.GPU) { g.TimeSlice = gpu.TimeSliceShort },
			"changed by another owner: it has compute mode default and time slice short, declared is time-slicing in compute mode default and time slice long",
		},
		"time slice, reboot": {
			turnsOf(fourTurns), func(g *gpu.GPU) { g.TimeSlice = gpu.TimeSliceDefault },
			"lost by reboot, or changed by others: it has compute mode default and time slice default",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, gpuHost(2))
			c := newCLI(t, r.block()+test.config)
			c.apply()
			before := r.host("gpu01")
			r.editCard(1, test.change)
			wantSaid(t, c.ok("plan"), "host gpu01, GPU "+sharedCard(1)+" (NVIDIA L40S): "+test.want, "0 to add, 1 to change, 0 to destroy")
			c.apply()
			if diff := cmp.Diff(before.GPUs, r.host("gpu01").GPUs); diff != "" {
				t.Errorf("the GPUs differ from what they were (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(before.MPS, r.host("gpu01").MPS); diff != "" {
				t.Errorf("the daemon was restarted (-before +after):\n%s", diff)
			}
			c.wantNoChanges()
		})
	}
}

// A mode that the driver does not tell is no difference.
func TestUnknownModesAreNoDrift(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(1))
	c := newCLI(t, r.block()+turnsOf(fourTurns))
	c.apply()
	r.editCard(0, func(g *gpu.GPU) { g.ComputeMode, g.TimeSlice = "", "" })
	c.wantNoChanges()
}

func TestRebootLosesMPSInsideOfMIG(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMPS(hgx(h100, 1)))
	c := newCLI(t, r.block()+migOf("ml", halves+", mps = { "+halfEach+" }"))
	c.apply()
	want := instancesOf("user 1000, 50 %", "3g.40gb@0", "3g.40gb@4")
	r.must(r.fleet.Reboot(t.Context(), "hgx01"))
	r.wantDaemons("hgx01")
	c.apply()
	r.wantLayout("3g.40gb@0 3g.40gb@4", 0)
	r.wantDaemons("hgx01", want...)
	c.wantNoChanges()
	r.editHost("hgx01", func(h *gpu.Host) { h.MPS.Daemons = slices.Delete(h.MPS.Daemons, 0, 1) })
	wantSaid(t, c.apply(), "host hgx01: MPS daemon ", " of 3g.40gb@", "is gone")
	r.wantDaemons("hgx01", want...)
	c.wantNoChanges()
}

// sharingImports are layouts of which each comes back from an import as it was declared.
func sharingImports() map[string]struct{ kind, config string } {
	return map[string]struct{ kind, config string }{
		"MPS":                {"mps", mpsOf(quarterEach)},
		"MPS for all users":  {"mps", mpsOf(`multi_user = true, compute_mode = "default", oversubscription = 1.5`)},
		"MPS of one GPU":     {"mps", mpsOf(halfEach, onCard(1))},
		"time-slicing":       {"time_slicing", turnsOf(fourTurns)},
		"time-slicing alone": {"time_slicing", turnsOf("replicas = 2")},
	}
}

func TestImportOfASharingConfigOfThisState(t *testing.T) {
	t.Parallel()
	for name, test := range sharingImports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, gpuHost(2))
			steps := []resource.TestStep{{Config: r.block() + test.config}}
			for _, id := range []string{"gpu01", "gpu01:" + test.kind, "inference@gpu01:" + test.kind} {
				steps = append(steps, resource.TestStep{
					ResourceName: sharedGPUs, ImportState: true, ImportStateId: id, ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
				})
			}
			r.steps(append(steps, resource.TestStep{
				Config: r.block() + test.config, ResourceName: sharedGPUs, ImportState: true, ImportStateId: "gpu01:" + test.kind, ImportStateKind: resource.ImportBlockWithID,
				ImportPlanChecks: resource.ImportPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(sharedGPUs, plancheck.ResourceActionNoop)}},
			})...)
		})
	}
	for name, layout := range map[string]string{"MPS": "mps = { " + halfEach + " }", "time-slicing": "time_slicing = { replicas = 2 }"} {
		t.Run(name+" inside of MIG", func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withMPS(hgx(h100, 1)))
			r.steps(
				resource.TestStep{Config: r.block() + migOf("ml", halves+", "+layout)},
				resource.TestStep{
					ResourceName: ml, ImportState: true, ImportStateId: "hgx01:mig", ImportStateVerify: true, ImportStateKind: resource.ImportCommandWithID,
				},
			)
		})
	}
}

// Only a claim tells all of such a config; one that is created again finds its daemon.
func TestSharingWithoutAClaimIsNotImportedButCreated(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	first := newCLI(t, r.block()+mpsOf(halfEach))
	first.apply()
	r.editHost("gpu01", func(h *gpu.Host) { h.Claims = nil })
	before := r.host("gpu01").MPS
	c := newCLI(t, r.block()+mpsOf(halfEach))
	for _, kind := range []string{"mps", "time_slicing"} {
		wantSaid(t, c.fails("import", sharedGPUs, "gpu01:"+kind), "Nothing to import", "have no claim of a partition config of kind `"+kind+"`")
	}
	c.apply()
	if diff := cmp.Diff(before, r.host("gpu01").MPS); diff != "" {
		t.Errorf("the daemon was restarted (-before +after):\n%s", diff)
	}
	c.wantNoChanges()
}

func TestMPSOfASilentHostIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(1))
	output := "output \"daemons\" {\n  value = [for d in gpu_partition_config.inference.mps_daemons[\"gpu01\"] : d.name]\n}\n"
	c := newCLI(t, r.block(`on_unreachable = "keep"`)+mpsOf(halfEach)+output)
	c.apply()
	r.silent(true, "gpu01")
	wantSaid(t, c.ok("plan", "-detailed-exitcode"), "No changes")
	wantSaid(t, c.ok("output"), `"inference"`)
	c.write(r.block(`on_unreachable = "keep"`) + mpsOf(quarterEach) + output)
	wantSaid(t, c.fails("plan"), "Layout cannot change while a host does not answer")
}
