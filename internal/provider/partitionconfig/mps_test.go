package partitionconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccPartitionConfig_MPSLifecycle(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	text, null := knownvalue.StringExact, knownvalue.Null()
	var before []byte
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.MPSOf(rig.QuarterEach),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("id"), text("inference")),
				plancheck.ExpectUnknownValue(rig.SharedGPUs, rig.Jsonpath("gpus")),
				plancheck.ExpectUnknownValue(rig.SharedGPUs, rig.Jsonpath("mps_daemons")),
				plancheck.ExpectUnknownValue(rig.SharedGPUs, rig.Jsonpath("isolation")),
				plancheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("partition_vram_mib"), null),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("gpus", "gpu01", "gpus", rig.SharedCard(1), "layout"),
					text("mps:exclusive_process")),
				statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("gpus", "gpu01", "gpus", rig.SharedCard(1), "instances"), null),
				statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("mps_daemons", "gpu01"), knownvalue.ListSizeExact(1)),
				statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("mps_daemons", "gpu01", 0), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"name": text("inference"), "pipe_directory": knownvalue.NotNull(), "mig_instance": null,
					"gpu_ids": knownvalue.ListExact([]knownvalue.Check{text(rig.SharedCard(0)), text(rig.SharedCard(1))}),
				})),
				statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("isolation"), text("memory")),
				statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: rig.Then(func() {
				r.WantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
				r.WantDaemons("gpu01", "user 1000, 25 %, 10.0 GiB"+rig.BothCards())
				r.WantClaims([]string{"gpu01"}, "partition_config inference")
				r.WantSettled()
			}),
		},
		resource.TestStep{ // one daemon still, with other settings
			Config:           r.Block() + rig.MPSOf(rig.HalfEach),
			ConfigPlanChecks: rig.Planned(rig.SharedGPUs, plancheck.ResourceActionUpdate),
			Check: rig.Then(func() {
				r.WantDaemons("gpu01", "user 1000, 50 %"+rig.BothCards())
				r.WantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
			}),
		},
		resource.TestStep{
			Config: r.Block() + rig.MPSOf(`multi_user = true, compute_mode = "default"`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("gpus", "gpu01", "gpus", rig.SharedCard(0), "layout"),
					text("mps:default")),
			},
			Check: rig.Then(func() {
				r.WantDaemons("gpu01", "all users"+rig.BothCards())
				r.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
				before = r.File()
			}),
		},
		resource.TestStep{ // policy asks no host
			Config: r.Block() + rig.MPSOf(`multi_user = true, compute_mode = "default"`, `rollout = { max_unavailable = 2 }`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("isolation"), text("memory")),
				plancheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("mps_daemons"), knownvalue.MapSizeExact(1)),
				rig.OnPlan(func() { r.Calls.Take() }),
			}},
			Check: rig.Then(func() {
				if calls := r.Calls.Take(); len(calls) != 0 {
					t.Errorf("the apply made the calls %v, want none", calls)
				}
				r.WantUntouched(before)
			}),
		},
	)
	r.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	r.WantDaemons("gpu01")
	r.WantClaims([]string{"gpu01"})
	r.WantSettled()
}

// Before Volta, clients of MPS share one address space.
func TestAccPartitionConfig_MPSIsolationIsThatOfTheGPUs(t *testing.T) {
	t.Parallel()
	s := rig.GPUHost(2)
	s.Hosts[0].GPUs[1].ComputeCapability = "6.1"
	r := rig.New(t, s)
	r.Steps(resource.TestStep{
		Config: r.Block() + rig.MPSOf(rig.QuarterEach),
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("isolation"), knownvalue.StringExact("none")),
		},
	})
}

func TestAccPartitionConfig_MPSIsRestoredOnDestroyUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		more    string
		modes   [2]gpu.ComputeMode
		daemons []string
	}{
		"default": {"", [2]gpu.ComputeMode{gpu.ComputeDefault, gpu.ComputeExclusiveProcess}, nil},
		"restore": {`on_destroy = "restore"`, [2]gpu.ComputeMode{gpu.ComputeDefault, gpu.ComputeExclusiveProcess}, nil},
		"keep": {
			`on_destroy = "keep"`,
			[2]gpu.ComputeMode{gpu.ComputeExclusiveProcess, gpu.ComputeExclusiveProcess},
			[]string{"user 1000, 50 %" + rig.BothCards()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rig.GPUHost(2)
			s.Hosts[0].GPUs[1].ComputeMode = gpu.ComputeExclusiveProcess
			r := rig.New(t, s)
			c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach, test.more))
			c.Apply()
			r.WantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
			c.Destroy()
			for i, want := range test.modes {
				r.WantModes(want, gpu.TimeSliceDefault, i)
			}
			r.WantDaemons("gpu01", test.daemons...)
			r.WantClaims([]string{"gpu01"})
			r.WantSettled()
		})
	}
}

// What somebody has changed since is not put back.
func TestAccPartitionConfig_ComputeModeThatOthersChangedIsNotRestored(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach))
	c.Apply()
	r.EditCard(1, func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeProhibited })
	c.Destroy()
	r.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0)
	r.WantModes(gpu.ComputeProhibited, gpu.TimeSliceDefault, 1)
	r.WantDaemons("gpu01")
}

func TestAccPartitionConfig_GPULeavesAndJoinsMPS(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach, rig.OnCard(1)))
	c.Apply()
	r.WantDaemons("gpu01", "user 1000, 50 % on "+rig.SharedCard(1))
	r.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0)
	c.Write(r.Block() + rig.MPSOf(rig.HalfEach)) // the daemon is that of both now, in the order of their ids
	c.Apply()
	r.WantDaemons("gpu01", "user 1000, 50 %"+rig.BothCards())
	r.WantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
	c.WantNoChanges()
	c.Write(r.Block() + rig.MPSOf(rig.HalfEach, rig.OnCard(0)))
	c.Apply()
	r.WantDaemons("gpu01", "user 1000, 50 % on "+rig.SharedCard(0))
	r.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 1)
	c.WantNoChanges()
}

// A daemon that a config left with on_destroy = "keep" is in nobody's config: one on its GPUs
// ends it, since no GPU has two, and only as clients may end.
func TestAccPartitionConfig_DaemonLeftBehindEndsForAnother(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	old := strings.ReplaceAll(rig.MPSOf(rig.HalfEach, `on_destroy = "keep"`), "inference", "old")
	c := rig.NewCLI(t, r.Block()+old)
	c.Apply()
	c.Destroy()
	pid := r.Connects("gpu01", "old", "python")
	before := r.File()
	c.Write(r.Block() + rig.MPSOf(rig.HalfEach, rig.OnCard(1)))
	rig.WantSaid(t, c.Fails("plan"), fmt.Sprintf("process %d (python, container 3f2a)", pid), `"old"`, "Rule: mps-in-use")
	r.WantUntouched(before)
	c.Write(r.Block() + rig.MPSOf(rig.HalfEach, rig.OnCard(1), `max_disruption = "process_restart"`))
	rig.WantSaid(t, c.Ok("plan"), "MPS daemon old is stopped, which terminates its clients",
		fmt.Sprintf("process %d (python, container 3f2a)", pid))
	c.Apply()
	r.WantDaemons("gpu01", "user 1000, 50 % on "+rig.SharedCard(1))
	c.WantNoChanges()

	// That of another config goes on.
	c.Write(r.Block() + rig.MPSOf(rig.HalfEach, rig.OnCard(1)) + strings.ReplaceAll(rig.MPSOf(rig.HalfEach, rig.OnCard(0)),
		"inference", "other"))
	c.Apply()
	r.WantDaemons("gpu01", "user 1000, 50 % on "+rig.SharedCard(1), "user 1000, 50 % on "+rig.SharedCard(0))
	c.WantNoChanges()
}

func TestAccPartitionConfig_ClientsOfMPSEndOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach))
	c.Apply()
	pid := r.Connects("gpu01", "inference", "python")
	c.WantNoChanges() // who the clients are is no difference
	before := r.File()
	c.Write(r.Block() + rig.MPSOf("uid = 2000"))
	rig.WantSaid(t, c.Fails("plan"), fmt.Sprintf("process %d (python, container 3f2a)", pid), `max_disruption = "process_restart"`,
		"Rule: mps-in-use")
	r.WantUntouched(before)
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), fmt.Sprintf("process %d (python, container 3f2a)", pid))
	r.WantDaemons("gpu01", "user 1000, 50 %"+rig.BothCards())
	r.WantSettled()

	c.Write(r.Block() + rig.MPSOf("uid = 2000", `max_disruption = "process_restart"`))
	rig.WantSaid(t, c.Ok("plan"), "2 GPUs (NVIDIA L40S): MPS daemon inference is restarted, which terminates its clients: "+
		fmt.Sprintf("process %d (python, container 3f2a)", pid), "0 to add, 1 to change, 0 to destroy")
	c.Apply()
	r.WantDaemons("gpu01", "user 2000"+rig.BothCards())
	if d, _ := r.Host("gpu01").Daemon("inference"); len(d.Clients) != 0 {
		t.Errorf("clients outlived the daemon: %+v", d.Clients)
	}
	c.WantNoChanges()
}

// Limits are for processes that come: a daemon takes them as it runs, with every driver.
func TestAccPartitionConfig_LimitsOfMPSEndNoClients(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"580.95.05", "615.10.01"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := rig.GPUHost(2)
			for i := range s.Hosts[0].GPUs {
				s.Hosts[0].GPUs[i].Driver.Version = driver
			}
			r := rig.New(t, s)
			c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach))
			c.Apply()
			r.Connects("gpu01", "inference", "python")
			before, _ := r.Host("gpu01").Daemon("inference")
			for _, step := range []struct{ limits, has string }{
				{"uid = 1000, active_thread_percentage = 20", "user 1000, 20 %"},
				{rig.QuarterEach, "user 1000, 25 %, 10.0 GiB"},
				{"uid = 1000, active_thread_percentage = 25, pinned_memory_limit_mib = 4096", "user 1000, 25 %, 4.0 GiB"},
			} {
				c.Write(r.Block() + rig.MPSOf(step.limits))
				said := c.Ok("plan")
				rig.WantSaid(t, said, "0 to add, 1 to change, 0 to destroy")
				if strings.Contains(said, "terminates") || strings.Contains(said, "Rule: mps-in-use") {
					t.Errorf("the plan announces the end of clients:\n%s", said)
				}
				c.Apply()
				if after, _ := r.Host("gpu01").Daemon("inference"); after.PID != before.PID || len(after.Clients) != 1 {
					t.Errorf("the daemon is process %d, before %d, and has the clients %+v", after.PID, before.PID, after.Clients)
				}
				r.WantDaemons("gpu01", step.has+rig.BothCards())
				c.WantNoChanges()
			}
		})
	}
}

// Other processes are never ended.
func TestAccPartitionConfig_ProcessesBesideMPSAreInTheWayAtPlan(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	pid, err := r.Fleet.StartProcess(t.Context(), "gpu01", rig.SharedCard(1), nil, gpu.Process{Name: "python", Holder: "container 3f2a"})
	r.Must(err)
	before := r.File()
	c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach, `max_disruption = "gpu_reset"`))
	rig.WantSaid(t, c.Fails("plan"), rig.SharedCard(1), fmt.Sprintf("process %d (python, container 3f2a)", pid), "Rule: mps-in-use")
	r.WantUntouched(before)
	c.Write(r.Block(`rules = { mps-in-use = "off" }`) + rig.MPSOf(rig.HalfEach, `max_disruption = "gpu_reset"`))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), fmt.Sprintf("process %d (python, container 3f2a)", pid))
	r.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	r.WantDaemons("gpu01")
	r.WantSettled()
	c.Write(r.Block() + rig.MPSOf(rig.HalfEach+`, compute_mode = "default"`)) // the two go side by side
	c.Apply()
	r.WantDaemons("gpu01", "user 1000, 50 %"+rig.BothCards())
	c.WantNoChanges()
}

func TestAccPartitionConfig_MPSInsideOfMIG(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithMPS(rig.HGX(rig.H100, 1)))
	text := knownvalue.StringExact
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.MIGOf("ml", rig.Halves+", mps = { "+rig.HalfEach+" }"),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("mps_daemons", "hgx01"), knownvalue.ListSizeExact(2)),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("mps_daemons", "hgx01", 1, "mig_instance"), text("3g.40gb@4")),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("mps_daemons", "hgx01", 1, "gpu_ids"),
					knownvalue.ListExact([]knownvalue.Check{text(rig.MIGGPU(0))})),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("isolation"), text("memory")),
			},
			Check: rig.Then(func() {
				r.WantLayout("3g.40gb@0 3g.40gb@4", 0)
				r.WantDaemons("hgx01", rig.InstancesOf("user 1000, 50 %", "3g.40gb@0", "3g.40gb@4")...)
			}),
		},
		resource.TestStep{ // a daemon for each instance that there is
			Config: r.Block() + rig.MIGOf("ml", rig.Written+`, mps = { multi_user = true }`),
			Check: rig.Then(func() {
				r.WantLayout("1g.10gb@0 3g.40gb@4", 0)
				r.WantDaemons("hgx01", rig.InstancesOf("all users", "1g.10gb@0", "3g.40gb@4")...)
			}),
		},
		resource.TestStep{
			Config:           r.Block() + rig.MIGOf("ml", rig.Written+`, time_slicing = { replicas = 3 }`),
			ConfigPlanChecks: rig.Planned(rig.ML, plancheck.ResourceActionUpdate),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("mps_daemons"), knownvalue.Null()),
				statecheck.ExpectKnownValue(rig.ML, rig.Jsonpath("isolation"), text("none")),
			},
			Check: rig.Then(func() {
				r.WantLayout("1g.10gb@0 3g.40gb@4", 0)
				r.WantDaemons("hgx01")
			}),
		},
		resource.TestStep{
			Config: r.Block() + rig.MIGOf("ml", rig.Written),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(rig.ML, rig.Jsonpath("isolation"), text("hardware")),
				plancheck.ExpectKnownValue(rig.ML, rig.Jsonpath("mps_daemons"), knownvalue.Null()),
			}},
		},
		resource.TestStep{Config: r.Block() + rig.MIGOf("ml", rig.Written+", mps = { "+rig.HalfEach+" }")},
	)
	r.WantLayout("1g.10gb@0 3g.40gb@4", 0) // on_destroy = keep is of the layout; the daemons end
	r.WantDaemons("hgx01")
	r.WantSettled()
}

func TestAccPartitionConfig_TimeSlicingLifecycle(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	text := knownvalue.StringExact
	r.Steps(
		resource.TestStep{
			Config: r.Block() + rig.TurnsOf(rig.FourTurns),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("isolation"), text("none")),
				plancheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("mps_daemons"), knownvalue.Null()),
				plancheck.ExpectUnknownValue(rig.SharedGPUs, rig.Jsonpath("gpus")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("gpus", "gpu01", "gpus", rig.SharedCard(0), "layout"),
					text("time_slicing:long")),
				statecheck.ExpectKnownValue(rig.SharedGPUs, rig.Jsonpath("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: rig.Then(func() {
				r.WantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 0, 1)
				r.WantClaims([]string{"gpu01"}, "partition_config inference")
			}),
		},
		resource.TestStep{
			Config:           r.Block() + rig.TurnsOf(`interval = "short", replicas = 8`),
			ConfigPlanChecks: rig.Planned(rig.SharedGPUs, plancheck.ResourceActionUpdate),
			Check:            rig.Then(func() { r.WantModes(gpu.ComputeDefault, gpu.TimeSliceShort, 0, 1) }),
		},
		resource.TestStep{ // a GPU that leaves gets back what it had
			Config: r.Block() + rig.TurnsOf(rig.FourTurns, rig.OnCard(1)),
			Check: rig.Then(func() {
				r.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0)
				r.WantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 1)
			}),
		},
	)
	r.WantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	r.WantClaims([]string{"gpu01"})
	r.WantSettled()
}

// TestAccPartitionConfig_MPSOnAGPUThatForgetsItsMode has a GPU without persistence mode: the plan that sets the
// compute mode says that it will not last, and so does the one that finds it gone.
func TestAccPartitionConfig_MPSOnAGPUThatForgetsItsMode(t *testing.T) {
	t.Parallel()
	s := rig.GPUHost(1)
	s.Hosts[0].GPUs[0].Persistence = new(false)
	r := rig.New(t, s)
	c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach))
	rig.WantSaid(t, c.Ok("plan"), "Warning: The driver will forget the GPU's settings", rig.SharedCard(0)+" (NVIDIA L40S)",
		"not in persistence mode",
		"compute mode exclusive_process", "nvidia-persistenced --persistence-mode", "Rule: gpu-kept-initialized", "1 to add")
	c.Apply()
	c.WantNoChanges()
	r.EditCard(0, func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeDefault })
	rig.WantSaid(t, c.Ok("plan"), "has compute mode default, declared is MPS in compute mode exclusive_process",
		"Rule: gpu-kept-initialized", "1 to change")
	r.EditCard(0, func(g *gpu.GPU) { g.Persistence = new(true) })
	if out := c.Ok("plan"); strings.Contains(out, "gpu-kept-initialized") {
		t.Errorf("a GPU in persistence mode is said to forget:\n%s", out)
	}
	c.Apply()
	c.WantNoChanges()
}

func TestAccPartitionConfig_TimeSlicingWarnsThatItSeparatesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(1))
	c := rig.NewCLI(t, r.Block()+rig.TurnsOf(rig.FourTurns))
	rig.WantSaid(t, c.Ok("plan"), "Rule: time-slicing-no-isolation", "1 to add")
	c.Apply()
	c.WantNoChanges()
}

func TestAccPartitionConfig_TimeSliceKeepOnDestroy(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(1))
	c := rig.NewCLI(t, r.Block()+rig.TurnsOf(rig.FourTurns, `on_destroy = "keep"`))
	c.Apply()
	c.Destroy()
	r.WantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 0)
	r.WantClaims([]string{"gpu01"})
}

func TestAccPartitionConfig_ChangeFromMPSToTimeSlicingReplacesTheConfig(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.MPSOf(rig.HalfEach)},
		resource.TestStep{
			Config:           r.Block() + rig.TurnsOf(rig.FourTurns),
			ConfigPlanChecks: rig.Planned(rig.SharedGPUs, plancheck.ResourceActionReplace),
			Check: rig.Then(func() {
				r.WantDaemons("gpu01")
				r.WantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 0, 1)
				r.WantClaims([]string{"gpu01"}, "partition_config inference")
			}),
		},
		resource.TestStep{
			Config:           r.Block() + rig.MPSOf(rig.HalfEach),
			ConfigPlanChecks: rig.Planned(rig.SharedGPUs, plancheck.ResourceActionReplace),
			Check: rig.Then(func() {
				r.WantDaemons("gpu01", "user 1000, 50 %"+rig.BothCards())
				r.WantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
			}),
		},
	)
}

// Without a selector a GPU that is in MIG mode or in another config is left alone.
func TestAccPartitionConfig_MPSSelectsTheGPUsThatAreFree(t *testing.T) {
	t.Parallel()
	s := rig.GPUHost(2)
	card := rig.MIGCard(5, rig.H100)
	card.MIG.Enabled, card.MIG.Pending, card.ComputeCapability = true, true, "9.0"
	amd := s.Hosts[0].GPUs[0]
	amd.ID, amd.Vendor, amd.Model, amd.Address = "amd-0", "AMD", "Instinct MI300X", "0000:71:00.0"
	s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, card, amd)
	r := rig.New(t, s)
	other := strings.ReplaceAll(rig.TurnsOf(rig.FourTurns, rig.OnCard(0)), `"inference"`, `"other"`)
	c := rig.NewCLI(t, r.Block()+other)
	c.Apply()
	c.Write(r.Block() + other + rig.MPSOf(rig.HalfEach))
	c.Apply()
	r.WantDaemons("gpu01", "user 1000, 50 % on "+rig.SharedCard(1))
	r.WantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 0)
	c.WantNoChanges()
}

func TestAccPartitionConfig_FailedMPSChangeIsPutBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	c := rig.NewCLI(t, r.Block()+rig.MPSOf(rig.HalfEach))
	c.Apply()
	r.Fail("gpu01", simulated.OpEnsureDaemon, "inference", 0, 1)
	c.Write(r.Block() + rig.MPSOf(rig.QuarterEach+`, compute_mode = "default"`))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Injected by the test", "Rolled back: gpu01")
	r.WantDaemons("gpu01", "user 1000, 50 %"+rig.BothCards())
	r.WantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
	r.WantSettled()
	c.Apply()
	r.WantDaemons("gpu01", "user 1000, 25 %, 10.0 GiB"+rig.BothCards())
	c.WantNoChanges()
}

func TestAccPartitionConfig_MPSRollsOutOverHosts(t *testing.T) {
	t.Parallel()
	s := rig.GPUHost(1)
	second := rig.GPUHost(1).Hosts[0]
	second.Name = "gpu02"
	s.Hosts = append(s.Hosts, second)
	r := rig.New(t, s)
	hosts := func(config string) string { return strings.Replace(config, `["gpu01"]`, `["gpu01", "gpu02"]`, 1) }
	c := rig.NewCLI(t, r.Block()+hosts(rig.MPSOf(rig.HalfEach)))
	c.Apply()
	r.Fail("gpu02", simulated.OpEnsureDaemon, "inference", 0, 1)
	c.Write(r.Block() + hosts(rig.MPSOf(rig.QuarterEach)))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Injected by the test", "Rolled back: gpu01")
	for _, h := range []string{"gpu01", "gpu02"} {
		r.WantDaemons(h, "user 1000, 50 % on "+rig.SharedCard(0))
	}
	c.Write(r.Block() + rig.MPSOf(rig.HalfEach)) // a host that leaves is as if the config were destroyed there
	c.Apply()
	r.WantDaemons("gpu01", "user 1000, 50 % on "+rig.SharedCard(0))
	r.WantDaemons("gpu02")
	r.WantClaims([]string{"gpu02"})
	c.WantNoChanges()
}

func TestAccPartitionConfig_BadSharingConfigIsAnErrorAtPlan(t *testing.T) {
	t.Parallel()
	inMIG := func(more string) string { return rig.MIGOf("ml", rig.Halves+", "+more) }
	for name, test := range map[string]struct{ config, want string }{
		"nobody": {
			rig.MPSOf("active_thread_percentage = 25"), "No attribute specified when one (and only one) of [mps.uid,mps.multi_user] is required",
		},
		"one and all": {rig.MPSOf("uid = 1000, multi_user = true"), "2 attributes specified when one (and only one)"},
		"not all":     {rig.MPSOf("multi_user = false"), `Attribute mps.multi_user Value must be "true", got: false`},
		"no user":     {rig.MPSOf("uid = -1"), "Attribute mps.uid value must be between 0 and 4294967294, got: -1"},
		"no threads":  {rig.MPSOf("uid = 0, active_thread_percentage = 0"), "must be more than 0, at most 100"},
		"too many threads": {
			rig.MPSOf("uid = 0, active_thread_percentage = 101"), "at most 100, and have one digit after the point at most, got: 101",
		},
		"too exact":          {rig.MPSOf("uid = 0, active_thread_percentage = 33.33"), "got: 33.33"},
		"no memory":          {rig.MPSOf("uid = 0, pinned_memory_limit_mib = 0"), "value must be between 1 and"},
		"prohibited":         {rig.MPSOf(`uid = 0, compute_mode = "prohibited"`), `value must be one of: ["exclusive_process" "default"]`},
		"less than there is": {rig.MPSOf("uid = 0, oversubscription = 0.5"), "must be at least 1"},
		"one replica":        {rig.TurnsOf("replicas = 1"), "value must be between 2 and 1024, got: 1"},
		"no replicas":        {rig.TurnsOf(`interval = "long"`), `attribute "replicas" is required`},
		"no interval":        {rig.TurnsOf(`replicas = 2, interval = "2ms"`), `value must be one of: ["default" "short" "medium" "long"]`},
		"two kinds": {
			rig.MPSOf(rig.HalfEach, "time_slicing = { "+rig.FourTurns+" }"),
			"Exactly one of these attributes must be configured: [gpu_p,mig,vgpu,mps,time_slicing]",
		},
		"units": {
			rig.MPSOf(rig.HalfEach, `quiesce_units = ["nvidia-dcgm"]`), `"mps" cannot be specified when "quiesce_units" is specified`,
		},
		"both in MIG": {
			inMIG("mps = { uid = 0 }, time_slicing = { replicas = 2 }"), `"mig.time_slicing" cannot be specified when "mig.mps" is specified`,
		},
		"nobody in MIG": {inMIG("mps = { }"), "`mig.mps` has nothing set in it"},
		"MPS in MIG mode": {
			strings.Replace(rig.MPSOf(rig.HalfEach, rig.OnGPUs(0)), `["gpu01"]`, `["hgx01"]`, 1), "Rule: mps-not-on-mig-gpu",
		},
		"no MPS":               {strings.Replace(rig.MPSOf(rig.HalfEach), `["gpu01"]`, `["bare"]`, 1), "Rule: mps-supported"},
		"Hyper-V":              {strings.Replace(rig.MPSOf(rig.HalfEach), `["gpu01"]`, `["hv01"]`, 1), `Host "hv01" is a Hyper-V host`},
		"prohibited by others": {rig.MPSOf(rig.HalfEach, rig.OnCard(2)), "prohibited"},
		"more than it has":     {rig.MPSOf("uid = 0, pinned_memory_limit_mib = 65536", rig.OnCard(0)), "GiB"},
		"two configs of one": {
			rig.MPSOf(rig.HalfEach, rig.OnCard(0)) + strings.ReplaceAll(rig.TurnsOf(rig.FourTurns, rig.OnCard(0)), `"inference"`, `"other"`),
			"one-config-per-gpu",
		},
		"a kind of other hosts": {rig.SharingOf("gpu_p", "partition_count = 2"), `Host "gpu01" is a Linux host`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rig.GPUHost(3)
			s.Hosts[0].GPUs[2].ComputeMode = gpu.ComputeProhibited
			inMIGMode := rig.WithMPS(rig.HGX(rig.H100, 1)).Hosts[0]
			inMIGMode.GPUs[0].MIG.Enabled, inMIGMode.GPUs[0].MIG.Pending = true, true
			bare := rig.GPUHost(1).Hosts[0]
			bare.Name, bare.MPS = "bare", &gpu.MPSHost{}
			s.Hosts = append(s.Hosts, inMIGMode, bare, rig.Node("hv01"))
			r := rig.New(t, s)
			before := r.File()
			r.Steps(resource.TestStep{Config: r.Block() + test.config, PlanOnly: true, ExpectError: rig.Says(test.want)})
			r.WantUntouched(before)
		})
	}
}

// What is unknown at plan is checked and made at apply.
func TestAccPartitionConfig_MPSOfAUserThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	config := func(arguments string) string {
		return "resource \"terraform_data\" \"user\" { input = 1000 }\n" + r.Block() + rig.MPSOf(arguments)
	}
	r.Steps(
		resource.TestStep{
			Config: config("uid = terraform_data.user.output"),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue(rig.SharedGPUs, rig.Jsonpath("mps_daemons")),
				plancheck.ExpectUnknownValue(rig.SharedGPUs, rig.Jsonpath("gpus")),
			}},
			Check: rig.Then(func() { r.WantDaemons("gpu01", "user 1000"+rig.BothCards()) }),
		},
		resource.TestStep{Config: config("multi_user = true"), Check: rig.Then(func() { r.WantDaemons("gpu01", "all users"+rig.BothCards()) })},
	)
}
