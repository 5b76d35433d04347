package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestMPSLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	text, null := knownvalue.StringExact, knownvalue.Null()
	var before []byte
	r.steps(
		resource.TestStep{
			Config: r.block() + mpsOf(quarterEach),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(sharedGPUs, jsonpath("id"), text("inference")), plancheck.ExpectUnknownValue(sharedGPUs, jsonpath("gpus")),
				plancheck.ExpectUnknownValue(sharedGPUs, jsonpath("mps_daemons")), plancheck.ExpectUnknownValue(sharedGPUs, jsonpath("isolation")),
				plancheck.ExpectKnownValue(sharedGPUs, jsonpath("partition_vram_mib"), null),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(sharedGPUs, jsonpath("gpus", "gpu01", sharedCard(1), "layout"), text("mps:exclusive_process")),
				statecheck.ExpectKnownValue(sharedGPUs, jsonpath("gpus", "gpu01", sharedCard(1), "instances"), null),
				statecheck.ExpectKnownValue(sharedGPUs, jsonpath("mps_daemons", "gpu01"), knownvalue.ListSizeExact(1)),
				statecheck.ExpectKnownValue(sharedGPUs, jsonpath("mps_daemons", "gpu01", 0), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"name": text("inference"), "pipe_directory": knownvalue.NotNull(), "mig_instance": null,
					"gpu_ids": knownvalue.ListExact([]knownvalue.Check{text(sharedCard(0)), text(sharedCard(1))}),
				})),
				statecheck.ExpectKnownValue(sharedGPUs, jsonpath("isolation"), text("memory")),
				statecheck.ExpectKnownValue(sharedGPUs, jsonpath("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: then(func() {
				r.wantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
				r.wantDaemons("gpu01", "user 1000, 25 %, 10.0 GiB"+bothCards())
				r.wantClaims([]string{"gpu01"}, "partition_config inference")
				r.wantSettled()
			}),
		},
		resource.TestStep{ // one daemon still, with other settings
			Config:           r.block() + mpsOf(halfEach),
			ConfigPlanChecks: planned(sharedGPUs, plancheck.ResourceActionUpdate),
			Check: then(func() {
				r.wantDaemons("gpu01", "user 1000, 50 %"+bothCards())
				r.wantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
			}),
		},
		resource.TestStep{
			Config: r.block() + mpsOf(`multi_user = true, compute_mode = "default"`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(sharedGPUs, jsonpath("gpus", "gpu01", sharedCard(0), "layout"), text("mps:default")),
			},
			Check: then(func() {
				r.wantDaemons("gpu01", "all users"+bothCards())
				r.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
				before = r.file()
			}),
		},
		resource.TestStep{ // policy asks no host
			Config: r.block() + mpsOf(`multi_user = true, compute_mode = "default"`, `max_disruption = "process_restart"`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(sharedGPUs, jsonpath("isolation"), text("memory")), plancheck.ExpectKnownValue(sharedGPUs, jsonpath("mps_daemons"), knownvalue.MapSizeExact(1)),
				onPlan(func() { r.calls.take() }),
			}},
			Check: then(func() {
				if calls := r.calls.take(); len(calls) != 0 {
					t.Errorf("the apply made the calls %v, want none", calls)
				}
				r.wantUntouched(before)
			}),
		},
	)
	r.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	r.wantDaemons("gpu01")
	r.wantClaims([]string{"gpu01"})
	r.wantSettled()
}

// Before Volta, clients of MPS share one address space.
func TestMPSIsolationIsThatOfTheGPUs(t *testing.T) {
	t.Parallel()
	s := gpuHost(2)
	s.Hosts[0].GPUs[1].ComputeCapability = "6.1"
	r := newRig(t, s)
	r.steps(resource.TestStep{
		Config: r.block() + mpsOf(quarterEach),
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(sharedGPUs, jsonpath("isolation"), knownvalue.StringExact("none")),
		},
	})
}

func TestMPSIsRestoredOnDestroyUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		more    string
		modes   [2]gpu.ComputeMode
		daemons []string
	}{
		"default": {"", [2]gpu.ComputeMode{gpu.ComputeDefault, gpu.ComputeExclusiveProcess}, nil},
		"restore": {`on_destroy = "restore"`, [2]gpu.ComputeMode{gpu.ComputeDefault, gpu.ComputeExclusiveProcess}, nil},
		"keep": {
			`on_destroy = "keep"`, [2]gpu.ComputeMode{gpu.ComputeExclusiveProcess, gpu.ComputeExclusiveProcess}, []string{"user 1000, 50 %" + bothCards()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := gpuHost(2)
			s.Hosts[0].GPUs[1].ComputeMode = gpu.ComputeExclusiveProcess
			r := newRig(t, s)
			c := newCLI(t, r.block()+mpsOf(halfEach, test.more))
			c.apply()
			r.wantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
			c.destroy()
			for i, want := range test.modes {
				r.wantModes(want, gpu.TimeSliceDefault, i)
			}
			r.wantDaemons("gpu01", test.daemons...)
			r.wantClaims([]string{"gpu01"})
			r.wantSettled()
		})
	}
}

// What somebody has changed since is not put back.
func TestComputeModeThatOthersChangedIsNotRestored(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	c := newCLI(t, r.block()+mpsOf(halfEach))
	c.apply()
	r.editCard(1, func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeProhibited })
	c.destroy()
	r.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0)
	r.wantModes(gpu.ComputeProhibited, gpu.TimeSliceDefault, 1)
	r.wantDaemons("gpu01")
}

func TestGPULeavesAndJoinsMPS(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	c := newCLI(t, r.block()+mpsOf(halfEach, onCard(1)))
	wantSaid(t, c.ok("plan"), "gpu01, GPU "+sharedCard(1)+" (NVIDIA L40S): compute mode default → exclusive_process; MPS daemon inference is started.")
	c.apply()
	r.wantDaemons("gpu01", "user 1000, 50 % on "+sharedCard(1))
	r.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0)
	c.write(r.block() + mpsOf(halfEach)) // the daemon is that of both now, in the order of their ids
	c.apply()
	r.wantDaemons("gpu01", "user 1000, 50 %"+bothCards())
	r.wantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
	c.wantNoChanges()
	c.write(r.block() + mpsOf(halfEach, onCard(0)))
	c.apply()
	r.wantDaemons("gpu01", "user 1000, 50 % on "+sharedCard(0))
	r.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 1)
	c.wantNoChanges()
}

func TestClientsOfMPSEndOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	c := newCLI(t, r.block()+mpsOf(halfEach))
	c.apply()
	pid := r.connects("gpu01", "inference", "python")
	c.wantNoChanges() // who the clients are is no difference
	before := r.file()
	c.write(r.block() + mpsOf("uid = 2000"))
	wantSaid(t, c.fails("plan"), fmt.Sprintf("process %d (python, container 3f2a)", pid), `max_disruption = "process_restart"`, "Rule: mps-in-use")
	r.wantUntouched(before)
	wantSaid(t, c.fails("destroy", "-auto-approve"), fmt.Sprintf("process %d (python, container 3f2a)", pid))
	r.wantDaemons("gpu01", "user 1000, 50 %"+bothCards())
	r.wantSettled()

	c.write(r.block() + mpsOf("uid = 2000", `max_disruption = "process_restart"`))
	wantSaid(t, c.ok("plan"), "gpu01, GPU "+sharedCard(0)+" (NVIDIA L40S): MPS daemon inference is started again, which ends its clients: "+
		fmt.Sprintf("process %d (python, container 3f2a)", pid), "0 to add, 1 to change, 0 to destroy")
	c.apply()
	r.wantDaemons("gpu01", "user 2000"+bothCards())
	if d, _ := r.host("gpu01").Daemon("inference"); len(d.Clients) != 0 {
		t.Errorf("clients outlived the daemon: %+v", d.Clients)
	}
	c.wantNoChanges()
}

// Other processes are never ended.
func TestProcessesBesideMPSAreInTheWayAtPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	pid, err := r.fleet.StartProcess(t.Context(), "gpu01", sharedCard(1), nil, gpu.Process{Name: "python", Holder: "container 3f2a"})
	r.must(err)
	before := r.file()
	c := newCLI(t, r.block()+mpsOf(halfEach, `max_disruption = "gpu_reset"`))
	wantSaid(t, c.fails("plan"), sharedCard(1), fmt.Sprintf("process %d (python, container 3f2a)", pid), "Rule: mps-in-use")
	r.wantUntouched(before)
	c.write(r.block(`rules = { mps-in-use = "off" }`) + mpsOf(halfEach, `max_disruption = "gpu_reset"`))
	wantSaid(t, c.fails("apply", "-auto-approve"), fmt.Sprintf("process %d (python, container 3f2a)", pid))
	r.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	r.wantDaemons("gpu01")
	r.wantSettled()
	c.write(r.block() + mpsOf(halfEach+`, compute_mode = "default"`)) // the two go side by side
	c.apply()
	r.wantDaemons("gpu01", "user 1000, 50 %"+bothCards())
	c.wantNoChanges()
}

func TestMPSInsideOfMIG(t *testing.T) {
	t.Parallel()
	r := newRig(t, withMPS(hgx(h100, 1)))
	text := knownvalue.StringExact
	r.steps(
		resource.TestStep{
			Config: r.block() + migOf("ml", halves+", mps = { "+halfEach+" }"),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(ml, jsonpath("mps_daemons", "hgx01"), knownvalue.ListSizeExact(2)),
				statecheck.ExpectKnownValue(ml, jsonpath("mps_daemons", "hgx01", 1, "mig_instance"), text("3g.40gb@4")),
				statecheck.ExpectKnownValue(ml, jsonpath("mps_daemons", "hgx01", 1, "gpu_ids"), knownvalue.ListExact([]knownvalue.Check{text(migGPU(0))})),
				statecheck.ExpectKnownValue(ml, jsonpath("isolation"), text("memory")),
			},
			Check: then(func() {
				r.wantLayout("3g.40gb@0 3g.40gb@4", 0)
				r.wantDaemons("hgx01", instancesOf("user 1000, 50 %", "3g.40gb@0", "3g.40gb@4")...)
			}),
		},
		resource.TestStep{ // a daemon for each instance that there is
			Config: r.block() + migOf("ml", written+`, mps = { multi_user = true }`),
			Check: then(func() {
				r.wantLayout("1g.10gb@0 3g.40gb@4", 0)
				r.wantDaemons("hgx01", instancesOf("all users", "1g.10gb@0", "3g.40gb@4")...)
			}),
		},
		resource.TestStep{
			Config:           r.block() + migOf("ml", written+`, time_slicing = { replicas = 3 }`),
			ConfigPlanChecks: planned(ml, plancheck.ResourceActionUpdate),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(ml, jsonpath("mps_daemons"), knownvalue.Null()), statecheck.ExpectKnownValue(ml, jsonpath("isolation"), text("none")),
			},
			Check: then(func() {
				r.wantLayout("1g.10gb@0 3g.40gb@4", 0)
				r.wantDaemons("hgx01")
			}),
		},
		resource.TestStep{
			Config: r.block() + migOf("ml", written),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(ml, jsonpath("isolation"), text("hardware")), plancheck.ExpectKnownValue(ml, jsonpath("mps_daemons"), knownvalue.Null()),
			}},
		},
		resource.TestStep{Config: r.block() + migOf("ml", written+", mps = { "+halfEach+" }")},
	)
	r.wantLayout("1g.10gb@0 3g.40gb@4", 0) // on_destroy = keep is of the layout; the daemons end
	r.wantDaemons("hgx01")
	r.wantSettled()
}

func TestTimeSlicingLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	text := knownvalue.StringExact
	r.steps(
		resource.TestStep{
			Config: r.block() + turnsOf(fourTurns),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(sharedGPUs, jsonpath("isolation"), text("none")), plancheck.ExpectKnownValue(sharedGPUs, jsonpath("mps_daemons"), knownvalue.Null()),
				plancheck.ExpectUnknownValue(sharedGPUs, jsonpath("gpus")),
			}},
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(sharedGPUs, jsonpath("gpus", "gpu01", sharedCard(0), "layout"), text("time_slicing:long")),
				statecheck.ExpectKnownValue(sharedGPUs, jsonpath("drift"), knownvalue.ListSizeExact(0)),
			},
			Check: then(func() {
				r.wantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 0, 1)
				r.wantClaims([]string{"gpu01"}, "partition_config inference")
			}),
		},
		resource.TestStep{
			Config:           r.block() + turnsOf(`interval = "short", replicas = 8`),
			ConfigPlanChecks: planned(sharedGPUs, plancheck.ResourceActionUpdate),
			Check:            then(func() { r.wantModes(gpu.ComputeDefault, gpu.TimeSliceShort, 0, 1) }),
		},
		resource.TestStep{ // a GPU that leaves gets back what it had
			Config: r.block() + turnsOf(fourTurns, onCard(1)),
			Check: then(func() {
				r.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0)
				r.wantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 1)
			}),
		},
	)
	r.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	r.wantClaims([]string{"gpu01"})
	r.wantSettled()
}

func TestTimeSlicingWarnsThatItSeparatesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(1))
	c := newCLI(t, r.block()+turnsOf(fourTurns))
	wantSaid(t, c.ok("plan"), "Rule: time-slicing-no-isolation", "(NVIDIA L40S): time slice default → long.", "1 to add")
	c.apply()
	c.wantNoChanges()
}

func TestTimeSliceKeepOnDestroy(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(1))
	c := newCLI(t, r.block()+turnsOf(fourTurns, `on_destroy = "keep"`))
	c.apply()
	c.destroy()
	r.wantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 0)
	r.wantClaims([]string{"gpu01"})
}

func TestChangeFromMPSToTimeSlicingReplacesTheConfig(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	r.steps(
		resource.TestStep{Config: r.block() + mpsOf(halfEach)},
		resource.TestStep{
			Config:           r.block() + turnsOf(fourTurns),
			ConfigPlanChecks: planned(sharedGPUs, plancheck.ResourceActionReplace),
			Check: then(func() {
				r.wantDaemons("gpu01")
				r.wantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 0, 1)
				r.wantClaims([]string{"gpu01"}, "partition_config inference")
			}),
		},
		resource.TestStep{
			Config:           r.block() + mpsOf(halfEach),
			ConfigPlanChecks: planned(sharedGPUs, plancheck.ResourceActionReplace),
			Check: then(func() {
				r.wantDaemons("gpu01", "user 1000, 50 %"+bothCards())
				r.wantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
			}),
		},
	)
}

// Without a selector a GPU that is in MIG mode or in another config is left alone.
func TestMPSSelectsTheGPUsThatAreFree(t *testing.T) {
	t.Parallel()
	s := gpuHost(2)
	card := migCard(5, h100)
	card.MIG.Enabled, card.MIG.Pending, card.ComputeCapability = true, true, "9.0"
	amd := s.Hosts[0].GPUs[0]
	amd.ID, amd.Vendor, amd.Model, amd.Address = "amd-0", "AMD", "Instinct MI300X", "0000:71:00.0"
	s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, card, amd)
	r := newRig(t, s)
	other := strings.ReplaceAll(turnsOf(fourTurns, onCard(0)), `"inference"`, `"other"`)
	c := newCLI(t, r.block()+other)
	c.apply()
	c.write(r.block() + other + mpsOf(halfEach))
	c.apply()
	r.wantDaemons("gpu01", "user 1000, 50 % on "+sharedCard(1))
	r.wantModes(gpu.ComputeDefault, gpu.TimeSliceLong, 0)
	c.wantNoChanges()
}

func TestFailedMPSChangeIsPutBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	c := newCLI(t, r.block()+mpsOf(halfEach))
	c.apply()
	r.fail("gpu01", simulated.OpEnsureDaemon, "inference", 0, 1)
	c.write(r.block() + mpsOf(quarterEach+`, compute_mode = "default"`))
	wantSaid(t, c.fails("apply", "-auto-approve"), "injected by the test", "Rolled back: gpu01")
	r.wantDaemons("gpu01", "user 1000, 50 %"+bothCards())
	r.wantModes(gpu.ComputeExclusiveProcess, gpu.TimeSliceDefault, 0, 1)
	r.wantSettled()
	c.apply()
	r.wantDaemons("gpu01", "user 1000, 25 %, 10.0 GiB"+bothCards())
	c.wantNoChanges()
}

func TestMPSRollsOutOverHosts(t *testing.T) {
	t.Parallel()
	s := gpuHost(1)
	second := gpuHost(1).Hosts[0]
	second.Name = "gpu02"
	s.Hosts = append(s.Hosts, second)
	r := newRig(t, s)
	hosts := func(config string) string { return strings.Replace(config, `["gpu01"]`, `["gpu01", "gpu02"]`, 1) }
	c := newCLI(t, r.block()+hosts(mpsOf(halfEach)))
	c.apply()
	r.fail("gpu02", simulated.OpEnsureDaemon, "inference", 0, 1)
	c.write(r.block() + hosts(mpsOf(quarterEach)))
	wantSaid(t, c.fails("apply", "-auto-approve"), "injected by the test", "Rolled back: gpu01")
	for _, h := range []string{"gpu01", "gpu02"} {
		r.wantDaemons(h, "user 1000, 50 % on "+sharedCard(0))
	}
	c.write(r.block() + mpsOf(halfEach)) // a host that leaves is as if the config were destroyed there
	c.apply()
	r.wantDaemons("gpu01", "user 1000, 50 % on "+sharedCard(0))
	r.wantDaemons("gpu02")
	r.wantClaims([]string{"gpu02"})
	c.wantNoChanges()
}

func TestBadSharingConfigIsAnErrorAtPlan(t *testing.T) {
	t.Parallel()
	inMIG := func(more string) string { return migOf("ml", halves+", "+more) }
	for name, test := range map[string]struct{ config, want string }{
		"nobody":                {mpsOf("active_thread_percentage = 25"), "No attribute specified when one (and only one) of [mps.uid,mps.multi_user] is required"},
		"one and all":           {mpsOf("uid = 1000, multi_user = true"), "2 attributes specified when one (and only one)"},
		"not all":               {mpsOf("multi_user = false"), `Attribute mps.multi_user Value must be "true", got: false`},
		"no user":               {mpsOf("uid = -1"), "Attribute mps.uid value must be between 0 and 4294967294, got: -1"},
		"no threads":            {mpsOf("uid = 0, active_thread_percentage = 0"), "must be more than 0, at most 100"},
		"too many threads":      {mpsOf("uid = 0, active_thread_percentage = 101"), "at most 100, and have one digit after the point at most, got: 101"},
		"too exact":             {mpsOf("uid = 0, active_thread_percentage = 33.33"), "got: 33.33"},
		"no memory":             {mpsOf("uid = 0, pinned_memory_limit_mib = 0"), "value must be between 1 and"},
		"prohibited":            {mpsOf(`uid = 0, compute_mode = "prohibited"`), `value must be one of: ["exclusive_process" "default"]`},
		"less than there is":    {mpsOf("uid = 0, oversubscription = 0.5"), "must be at least 1"},
		"one replica":           {turnsOf("replicas = 1"), "value must be between 2 and 1024, got: 1"},
		"no replicas":           {turnsOf(`interval = "long"`), `attribute "replicas" is required`},
		"no interval":           {turnsOf(`replicas = 2, interval = "2ms"`), `value must be one of: ["default" "short" "medium" "long"]`},
		"two kinds":             {mpsOf(halfEach, "time_slicing = { "+fourTurns+" }"), "Exactly one of these attributes must be configured: [gpu_p,mig,vgpu,mps,time_slicing]"},
		"units":                 {mpsOf(halfEach, `quiesce_units = ["nvidia-dcgm"]`), `"mps" cannot be specified when "quiesce_units" is specified`},
		"both in MIG":           {inMIG("mps = { uid = 0 }, time_slicing = { replicas = 2 }"), `"mig.time_slicing" cannot be specified when "mig.mps" is specified`},
		"nobody in MIG":         {inMIG("mps = { }"), "No attribute specified when one (and only one)"},
		"MPS in MIG mode":       {strings.Replace(mpsOf(halfEach, onGPUs(0)), `["gpu01"]`, `["hgx01"]`, 1), "Rule: mps-not-on-mig-gpu"},
		"no MPS":                {strings.Replace(mpsOf(halfEach), `["gpu01"]`, `["bare"]`, 1), "Rule: mps-supported"},
		"Hyper-V":               {strings.Replace(mpsOf(halfEach), `["gpu01"]`, `["hv01"]`, 1), `Host "hv01" is a Hyper-V host`},
		"prohibited by others":  {mpsOf(halfEach, onCard(2)), "prohibited"},
		"more than it has":      {mpsOf("uid = 0, pinned_memory_limit_mib = 65536", onCard(0)), "GiB"},
		"two configs of one":    {mpsOf(halfEach, onCard(0)) + strings.ReplaceAll(turnsOf(fourTurns, onCard(0)), `"inference"`, `"other"`), "one-config-per-gpu"},
		"a kind of other hosts": {sharingOf("gpu_p", "partition_count = 2"), `Host "gpu01" is a Linux host`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := gpuHost(3)
			s.Hosts[0].GPUs[2].ComputeMode = gpu.ComputeProhibited
			inMIGMode := withMPS(hgx(h100, 1)).Hosts[0]
			inMIGMode.GPUs[0].MIG.Enabled, inMIGMode.GPUs[0].MIG.Pending = true, true
			bare := gpuHost(1).Hosts[0]
			bare.Name, bare.MPS = "bare", &gpu.MPSHost{}
			s.Hosts = append(s.Hosts, inMIGMode, bare, node("hv01"))
			r := newRig(t, s)
			before := r.file()
			r.steps(resource.TestStep{Config: r.block() + test.config, PlanOnly: true, ExpectError: says(test.want)})
			r.wantUntouched(before)
		})
	}
}

// What is unknown at plan is checked and made at apply.
func TestMPSOfAUserThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	config := func(arguments string) string {
		return "resource \"terraform_data\" \"user\" { input = 1000 }\n" + r.block() + mpsOf(arguments)
	}
	r.steps(
		resource.TestStep{
			Config: config("uid = terraform_data.user.output"),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectUnknownValue(sharedGPUs, jsonpath("mps_daemons")), plancheck.ExpectUnknownValue(sharedGPUs, jsonpath("gpus")),
			}},
			Check: then(func() { r.wantDaemons("gpu01", "user 1000"+bothCards()) }),
		},
		resource.TestStep{Config: config("multi_user = true"), Check: then(func() { r.wantDaemons("gpu01", "all users"+bothCards()) })},
	)
}
