package provider_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// nightly is a maintenance window that is closed by day.
const nightly = `maintenance_window = {
    start    = "22:00"
    end      = "04:00"
    timezone = "Europe/Berlin"
  }`

// byDay is two minutes to eight hours before nightly opens, and atNight is inside of it.
var (
	byDay   = time.Date(2025, time.November, 18, 13, 2, 0, 0, time.UTC)
	atNight = time.Date(2025, time.November, 18, 23, 0, 0, 0, time.UTC)
)

// clock is what time a test says it is.
type clock struct{ now atomic.Pointer[time.Time] }

func (c *clock) set(to time.Time) { c.now.Store(&to) }

// clocked gives the rig's provider a clock.
func clocked(r *rig.Rig) *clock {
	c := &clock{}
	c.set(byDay)
	r.Options = []provider.Option{provider.WithClock(func() time.Time { return *c.now.Load() })}
	return c
}

func TestAssignmentIsMadeAndDestroyedInsideOfTheWindow(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	now := clocked(r)
	layout := r.Block(nightly) + rig.Config4
	assigned := layout + rig.Assign("avd-01", "allow_shutdown = true")
	refused := rig.Says("The maintenance window is closed", `gpu_vm_assignment for VM "avd-01"`,
		"It is Tue 2025-11-18 14:02 CET", "every day from 22:00 to 04:00 of the next day (Europe/Berlin)",
		`disturbs VM "avd-01" on host "hv01", which is shut down`, "on Tue 2025-11-18 22:00 CET (in 7 h 58 min)", "Rule: maintenance-window")
	var before gpu.Snapshot
	r.Steps(
		resource.TestStep{ // the GPUs are idle
			Config: layout,
			Check:  rig.Then(func() { r.WantCounts(4, rig.Both...) }),
		},
		resource.TestStep{
			PreConfig:   func() { r.NeverStops("avd-01", "hv01") },
			Config:      assigned,
			ExpectError: refused,
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantFree(gpu.VMRunning, "avd-01")
				r.WantSettled()
				r.ClearFaults("hv01")
				now.set(atNight)
			},
			Config:           assigned,
			ConfigPlanChecks: rig.Planned("gpu_vm_assignment.avd-01", plancheck.ResourceActionCreate), // nothing is tainted
			Check:            rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01") }),
		},
		resource.TestStep{
			PreConfig: func() {
				now.set(byDay)
				before = r.Snapshot()
			},
			Config:      layout, // without the assignment
			ExpectError: refused,
		},
		resource.TestStep{
			PreConfig: func() {
				r.WantUnchanged(before)
				r.WantSettled()
				now.set(atNight)
			},
			Config: layout,
			Check:  rig.Then(func() { r.WantFree(gpu.VMRunning, "avd-01") }),
		},
	)
}

func TestWhatStopsNoVMIsDoneOutsideOfTheWindow(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	clocked(r)
	r.NeverStops("", rig.Both...)
	const a = "gpu_vm_assignment.avd-01"
	r.Steps(
		resource.TestStep{
			Config: r.Block(nightly) + rig.Config4 + rig.Assign("avd-03", "allow_shutdown = true") +
				rig.Assign("avd-01", `allow_shutdown = true, when = "next_off"`),
			Check: resource.ComposeAggregateTestCheckFunc(
				resource.TestCheckResourceAttr(a, "pending", "true"),
				rig.Then(func() {
					r.WantHeld(gpu.VMOff, "avd-03") // it is off anyway
					r.WantVM("avd-01", gpu.VMRunning, 0)
					r.Must(r.Fleet.SetVMState(context.Background(), "avd-01", gpu.VMOff))
				}),
			),
			ExpectNonEmptyPlan: true, // it is off now
		},
		resource.TestStep{
			Config: r.Block(nightly) + rig.Config4 + rig.Assign("avd-03", "allow_shutdown = true") +
				rig.Assign("avd-01", `allow_shutdown = true, when = "next_off"`),
			Check: rig.Then(func() { r.WantHeld(gpu.VMOff, "avd-01", "avd-03") }),
		},
	)
}

func TestLevelLiftsTheWindow(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"warning", "off"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			clocked(r)
			r.Steps(resource.TestStep{
				Config: r.Block(nightly, fmt.Sprintf("rules = { maintenance-window = %q }", level)) + rig.Config4 +
					rig.Assign("avd-01", "allow_shutdown = true"),
				Check: rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01") }),
			})
		})
	}
}

// TestWindowThatClosesBeforeTheSecondHost lets the window close while hv01 is changed.
func TestWindowThatClosesBeforeTheSecondHost(t *testing.T) {
	t.Parallel()
	held := func(count int, more ...string) string {
		return rig.ConfigOf(count, rig.Both, append(more, `max_disruption = "vm_restart"`)...) + rig.Assign("avd-01", "allow_shutdown = true") +
			rig.Assign("avd-04", "allow_shutdown = true")
	}
	for name, test := range map[string]struct {
		onFailure, ended string
		first            int // the count on hv01 then
	}{
		"rollback": {rig.Undo, "Rolled back: hv01 Untouched: hv02 Remove the cause and apply again.", 4},
		"stop":     {rig.GoNoOn, "Applied: hv01 Untouched: hv02 The state holds what the hosts have now.", 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.TwoNodes())
			var closes atomic.Bool
			r.Options = []provider.Option{provider.WithClock(func() time.Time {
				if closes.Load() && r.Calls.Heard("hv01", "Apply") {
					return byDay
				}
				return atNight
			})}
			r.Steps(
				resource.TestStep{Config: r.Block(nightly) + held(4)},
				resource.TestStep{
					PreConfig: func() {
						r.Calls.Take()
						closes.Store(true)
					},
					Config:      r.Block(nightly) + held(8, test.onFailure),
					ExpectError: rig.Says("The maintenance window is closed", `disturbs VM "avd-04" on host "hv02"`, test.ended),
				},
				resource.TestStep{
					PreConfig: func() {
						r.WantCounts(test.first, "hv01")
						r.WantCounts(4, "hv02")
						r.WantVM("avd-01", gpu.VMRunning, 1)
						r.WantVM("avd-04", gpu.VMRunning, 1)
						r.WantSettled()
						closes.Store(false)
					},
					Config: r.Block(nightly) + held(8, test.onFailure),
					Check:  rig.Then(func() { r.WantCounts(8, rig.Both...) }),
				},
			)
		})
	}
}

// closedNow is a maintenance window that is closed while a test runs, whenever that is.
func closedNow() string {
	opens := time.Now().UTC().Add(2 * time.Hour)
	return fmt.Sprintf("maintenance_window = { start = %q, end = %q }", opens.Format("15:04"), opens.Add(time.Hour).Format("15:04"))
}

func TestPlanOutsideOfTheWindowSaysWhenItOpens(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	warned := []string{
		"Warning: The maintenance window is closed", "disturbs VM \"avd-01\" on host \"hv01\", which is shut down",
		"Apply when it opens, on ", "UTC (in ", "Rule: maintenance-window",
	}
	hcl := rig.Config4 + rig.Assign("avd-01", "allow_shutdown = true")
	c := rig.NewCLI(t, r.Block(closedNow())+hcl)
	before := r.File()
	out := c.Ok("plan")
	rig.WantSaid(t, out, append(warned, "2 to add")...)
	if n := strings.Count(out, "The maintenance window is closed"); n != 1 {
		t.Errorf("it warns %d times:\n%s", n, out)
	}
	r.WantUntouched(before)

	c.Write(r.Block() + hcl)
	c.Apply()
	c.Write(r.Block(closedNow()) + hcl)
	if out := c.Ok("plan"); strings.Contains(out, "maintenance window") {
		t.Errorf("it warns of a plan that changes nothing:\n%s", out)
	}
	rig.WantSaid(t, c.Ok("plan", "-destroy"), warned...)
	rig.WantSaid(t, c.Fails("destroy", "-auto-approve"), "Error: The maintenance window is closed")
	r.WantHeld(gpu.VMRunning, "avd-01")
	c.Write(r.Block(`maintenance_window = { start = "00:00", end = "24:00" }`) + hcl)
	if out := c.Destroy(); strings.Contains(out, "maintenance window") {
		t.Errorf("it warns inside of the window:\n%s", out)
	}
}

func TestBadMaintenanceWindowIsRefused(t *testing.T) {
	t.Parallel()
	days := func(names ...string) any {
		var out []tftypes.Value
		for _, n := range names {
			out = append(out, tftypes.NewValue(tftypes.String, n))
		}
		return out
	}
	for name, x := range map[string]struct {
		window fields
		says   []string // one error each
	}{
		"good":        {window: fields{"start": "22:00", "end": "04:00", "timezone": "America/New_York", "days": days("monday", "sunday")}},
		"whole day":   {window: fields{"start": "00:00", "end": "24:00"}},
		"until 24:00": {window: fields{"start": "22:00", "end": "24:00"}},
		"bad start": {
			fields{"start": "10pm", "end": "04:00"}, []string{
				`maintenance_window.start: Invalid time of day: Found: maintenance_window.start is "10pm".`,
			},
		},
		"bad end": {
			fields{"start": "22:00", "end": "4:00"}, []string{
				`maintenance_window.end: Invalid time of day: Found: maintenance_window.end is "4:00".`,
			},
		},
		"both are bad": {fields{"start": "22", "end": "25:00"}, []string{"maintenance_window.start: Invalid", "maintenance_window.end: Invalid"}},
		"starts at the end of the day": {
			fields{"start": "24:00", "end": "04:00"}, []string{
				`maintenance_window.start: Invalid maintenance window: Found: maintenance_window.start is "24:00".`,
			},
		},
		"no time at all": {
			fields{"start": "22:00", "end": "22:00"}, []string{
				`maintenance_window.end: Invalid maintenance window: Found: maintenance_window.start and maintenance_window.end are both "22:00".`,
			},
		},
		"unknown day": {
			fields{"start": "22:00", "end": "04:00", "days": days("monday", "Tue")},
			[]string{
				`maintenance_window.days: Invalid day: Found: maintenance_window.days has "Tue".` +
					"\nWanted: monday, tuesday, wednesday, thursday, friday, saturday, sunday.",
			},
		},
		"no days": {
			fields{"start": "22:00", "end": "04:00", "days": days()}, []string{
				"maintenance_window.days: Invalid maintenance window: Found: maintenance_window.days is empty",
			},
		},
		"unknown zone": {
			fields{"start": "22:00", "end": "04:00", "timezone": "Europe/Atlantis"},
			[]string{`maintenance_window.timezone: Unknown time zone: Found: maintenance_window.timezone is "Europe/Atlantis".`},
		},
		"zone of whoever": {
			fields{"start": "22:00", "end": "04:00", "timezone": "Local"}, []string{
				`maintenance_window.timezone: Unknown time zone: Found: maintenance_window.timezone is "Local".`,
			},
		},
		"empty zone": {fields{"start": "22:00", "end": "04:00", "timezone": ""}, []string{"maintenance_window.timezone: Unknown time zone"}},
		// What is known is checked, and only that.
		"start is not known": {window: fields{"start": tftypes.UnknownValue, "end": "00:00"}},
		"zone is not known": {
			fields{"start": "22:00", "end": "4", "timezone": tftypes.UnknownValue}, []string{"maintenance_window.end: Invalid time of day"},
		},
		"days are not known": {window: fields{"start": "22:00", "end": "04:00", "days": tftypes.UnknownValue}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, schema := newProtocol(t)
			config, err := tfprotov6.NewDynamicValue(schema.ValueType(),
				valueOf(schema.ValueType(), fields{"maintenance_window": x.window, "owner": "test"}))
			if err != nil {
				t.Fatal(err)
			}
			valid, err := p.server.ValidateProviderConfig(t.Context(), &tfprotov6.ValidateProviderConfigRequest{Config: &config})
			if err != nil {
				t.Fatal(err)
			}
			wrong := errorsIn(valid.Diagnostics)
			if len(wrong) != len(x.says) {
				t.Fatalf("got %q, want %d errors", wrong, len(x.says))
			}
			for i, want := range x.says {
				if !strings.HasPrefix(wrong[i], want) {
					t.Errorf("got %q, want %q", wrong[i], want)
				}
			}
		})
	}
}

// A window that is known only after apply lifts nothing: nothing is done without it.
func TestWindowThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	now := clocked(r)
	block := `resource "terraform_data" "night" { input = "22:00" }
` + r.Block(`maintenance_window = { start = terraform_data.night.output, end = "04:00", timezone = "Europe/Berlin" }`)
	hcl := block + rig.Config4 + rig.Assign("avd-01", "allow_shutdown = true")
	r.Steps(
		resource.TestStep{Config: hcl, ExpectError: rig.Says("The maintenance window is closed")},
		resource.TestStep{
			PreConfig: func() {
				r.WantFree(gpu.VMRunning, "avd-01")
				now.set(atNight)
			},
			Config: hcl,
			Check:  rig.Then(func() { r.WantHeld(gpu.VMRunning, "avd-01") }),
		},
	)
}
