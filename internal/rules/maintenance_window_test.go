package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// afternoon is a Tuesday on which nightly is closed until 22:00.
var afternoon = time.Date(2025, time.November, 18, 14, 3, 20, 0, time.UTC)

func nightly() *rules.Window { return &rules.Window{Start: 22 * 60, End: 4 * 60, Zone: time.UTC} }

// byDay closes the window of a world.
func byDay(w rules.World) rules.World {
	w.Window, w.Now = nightly(), afternoon
	return w
}

func maintenanceWindowScenarios() []scenario {
	atNight := func(w *rules.World, _ *change.Change) { w.Now = w.Now.Add(8 * time.Hour) }
	runs := func() (rules.World, change.Change) {
		return byDay(world(host("hv01", vm("a", gpu.VMRunning)))), create("t", partition("a", "hv01"))
	}
	destroyed := func() (rules.World, change.Change) {
		h, p := host("hv01", vm("a", gpu.VMRunning)), partition("a", "hv01")
		holds(h, "a", 0)
		claimVM(h, "vdi", "a", *p.Assignment)
		return byDay(world(h)), change.Change{Subject: label(p), Token: "claim-a", Prior: p}
	}
	held := func() (rules.World, change.Change) {
		a, b := host("hv01", vm("a", gpu.VMRunning), vm("b", gpu.VMRunning)), host("hv02", vm("c", gpu.VMRunning))
		for h, names := range map[*gpu.Host][]string{a: {"a", "b"}, b: {"c"}} {
			for _, name := range names {
				holds(h, name, 0)
				claimVM(h, "vdi", name, gpu.Assignment{Power: gpu.Power{AllowShutdown: true}})
			}
		}
		want := config("vdi", 8, "hv01", "hv02")
		want.Config.MaxDisruption = gpu.DisruptVMRestart
		return byDay(world(a, b)), create("t", want)
	}
	return []scenario{
		{
			rule: "maintenance-window", name: "VM", level: rules.Warning, path: "power", change: true,
			says: []string{
				`VM "a" on host "hv01"`, `gpu_vm_assignment for VM "a" disturbs VM "a" on host "hv01", which is shut down.`,
				"It is Tue 2025-11-18 14:03 UTC", "every day from 22:00 to 04:00 of the next day (UTC)",
				"on Tue 2025-11-18 22:00 UTC (in 7 h 57 min)", `rules = { maintenance-window = "warning" }`,
			},
			build: runs, satisfy: atNight,
		},
		{
			rule: "maintenance-window", name: "VM that waits for its next power-off", level: rules.Warning, path: "power", change: true,
			build:   runs,
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Power.NextOff = true },
		},
		{
			rule: "maintenance-window", name: "VM that may not be stopped", level: rules.Warning, path: "power", change: true,
			build:   runs,
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Assignment.Power.AllowShutdown = false },
		},
		{
			rule: "maintenance-window", name: "VM that is off", level: rules.Warning, path: "power", change: true,
			build:   runs,
			satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].VMs[0].State = gpu.VMOff },
		},
		{
			rule: "maintenance-window", name: "destroy of an assignment", level: rules.Warning, path: "power", change: true,
			build:   destroyed,
			satisfy: func(w *rules.World, _ *change.Change) { w.Window = nil },
		},
		{
			rule: "maintenance-window", name: "config", level: rules.Warning, path: "max_disruption", change: true,
			says: []string{
				`gpu_partition_config "vdi" disturbs VMs "a" and "b" on host "hv01", which are shut down; VM "c" on host "hv02", which is shut down.`,
			},
			build: held, satisfy: atNight,
		},
		{
			rule: "maintenance-window", name: "config that may disturb nobody", level: rules.Warning, path: "max_disruption", change: true,
			build:   held,
			satisfy: func(_ *rules.World, p *change.Change) { p.Want.Config.MaxDisruption = gpu.DisruptNone },
		},
		{
			rule: "maintenance-window", name: "config with VMs that may not be stopped", level: rules.Warning, path: "max_disruption", change: true,
			build: held,
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["hv01"].Claims, w.Hosts["hv02"].Claims = nil, nil
			},
		},
		{
			rule: "maintenance-window", name: "config on idle GPUs", level: rules.Warning, path: "max_disruption", change: true,
			build: held,
			satisfy: func(w *rules.World, _ *change.Change) {
				w.Hosts["hv01"].GPUs[0].Partitionable.Partitions = nil
				w.Hosts["hv02"].GPUs[0].Partitionable.Partitions = nil
			},
		},
	}
}

func TestCheckWindow(t *testing.T) {
	plan := create("t", config("vdi", 8, "hv01", "hv02"))
	stops := []rules.Disturbed{
		{Host: "hv01", Class: gpu.DisruptVMRestart, VMs: []string{"a", "b"}}, {Host: "hv02", Class: gpu.DisruptVMRestart, VMs: []string{"c"}},
	}
	closed := byDay(rules.World{})
	open := closed
	open.Now = open.Now.Add(8 * time.Hour)
	for name, test := range map[string]struct {
		world     rules.World
		plan      change.Change
		disturbed []rules.Disturbed
		levels    rules.Levels
		level     rules.Level // "" for no finding
		path      string
		says      []string
	}{
		"closed": {
			world: closed, plan: plan, disturbed: stops, level: rules.Error, path: "max_disruption",
			says: []string{
				`Found: It is Tue 2025-11-18 14:03 UTC, and the provider's ` + "`maintenance_window`" +
					` is open every day from 22:00 to 04:00 of the next day (UTC).`,
				`gpu_partition_config "vdi" disturbs VMs "a" and "b" on host "hv01", which are shut down; VM "c" on host "hv02", which is shut down.`,
				"Fix: Apply when it opens, on Tue 2025-11-18 22:00 UTC (in 7 h 57 min).",
				"Rule: maintenance-window",
			},
		},
		"one host": {
			world: closed, plan: create("t", partition("a", "hv01")), level: rules.Error, path: "power",
			disturbed: []rules.Disturbed{{Host: "hv01", Class: gpu.DisruptVMRestart, VMs: []string{"a"}}},
			says:      []string{`VM "a" on host "hv01"`},
		},
		"no VM": {
			world: closed, plan: change.Change{Subject: "the config", Prior: plan.Want}, level: rules.Error, path: "max_disruption",
			disturbed: []rules.Disturbed{{Host: "gpu01", Class: gpu.DisruptGPUReset}},
			says:      []string{`the config disturbs what runs on host "gpu01" (gpu_reset).`},
		},
		"a warning": {
			world: closed, plan: plan, disturbed: stops, levels: rules.Levels{"maintenance-window": rules.Warning},
			level: rules.Warning, path: "max_disruption",
		},
		"as an error": {
			world: closed, plan: plan, disturbed: stops, levels: rules.Levels{"maintenance-window": rules.Error},
			level: rules.Error, path: "max_disruption",
		},
		"off":              {world: closed, plan: plan, disturbed: stops, levels: rules.Levels{"maintenance-window": rules.Off}},
		"open":             {world: open, plan: plan, disturbed: stops},
		"no window":        {world: rules.World{Now: afternoon}, plan: plan, disturbed: stops},
		"nobody disturbed": {world: closed, plan: plan},
	} {
		t.Run(name, func(t *testing.T) {
			found := rules.CheckWindow(test.world, test.plan, test.disturbed, test.levels)
			if test.level == "" {
				if len(found) != 0 {
					t.Errorf("got %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Rule != "maintenance-window" || found[0].Level != test.level || found[0].Path != test.path {
				t.Fatalf("got %+v", found)
			}
			for _, text := range test.says {
				if detail := found[0].Detail(); !strings.Contains(detail, text) {
					t.Errorf("the body lacks %q:\n%s", text, detail)
				}
			}
		})
	}
}

func TestWhenTheWindowOpensIsToldInFull(t *testing.T) {
	w := nightly()
	w.Days = []time.Weekday{time.Thursday}
	for wait, now := range map[string]time.Time{
		"(in 1 min)":          time.Date(2025, time.November, 20, 21, 59, 59, 0, time.UTC),
		"(in 2 d 7 h 57 min)": afternoon,
		"(in 6 d 18 h)":       time.Date(2025, time.November, 14, 4, 0, 0, 0, time.UTC),
	} {
		found := rules.CheckWindow(rules.World{Window: w, Now: now}, create("t", partition("a", "hv01")),
			[]rules.Disturbed{{Host: "hv01", Class: gpu.DisruptVMRestart}}, nil)
		if len(found) != 1 || !strings.Contains(found[0].Fix, wait) {
			t.Errorf("at %s: got %+v, want it to say %q", now, found, wait)
		}
	}
}
