package fleet_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// clock is a time of day on a test's day.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) set(hour int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Date(2025, time.November, 18, hour, 0, 0, 0, time.UTC)
}

// nightly are a fleet's options with a window from 22:00 to 04:00, and its clock.
func nightly(hour int) (fleet.Options, *clock) {
	c := &clock{}
	c.set(hour)
	return fleet.Options{Window: &rules.Window{Start: 22 * 60, End: 4 * 60, Zone: time.UTC}, Now: c.now}, c
}

// stopping is what a host has prepared that shuts VMs down.
func stopping(vms ...string) *agent.Prepared {
	return &agent.Prepared{Steps: []change.Step{{Op: change.OpStopVM}}, Disruption: gpu.DisruptVMRestart, StopsVMs: vms}
}

// violationsOf are the findings of the rules that stopped a change.
func violationsOf(t *testing.T, err error) []rules.Finding {
	t.Helper()
	ae, ok := errors.AsType[*agent.Error](err)
	if !ok || ae.Code != agent.RuleViolation {
		t.Fatalf("got %v, want a rule that stops the change", err)
	}
	return ae.Findings
}

func TestChangeOutsideOfTheWindowTouchesNothing(t *testing.T) {
	for name, req := range map[string]fleet.Request{
		"change":  {Change: change.Change{Subject: "c", Token: "t", Want: configFor("a", "b")}},
		"destroy": {Change: change.Change{Subject: "c", Token: "t", Prior: configFor("a", "b")}},
	} {
		t.Run(name, func(t *testing.T) {
			opt, now := nightly(14)
			f, conns := hosts(t, opt, "a", "b")
			conns["a"].left, conns["b"].left = toDo(), stopping("vm1", "vm2")
			_, err := f.Apply(t.Context(), req)
			failure := failureOf(t, err)
			if failure.Host != "b" || !failure.Clean() || failure.Begun() {
				t.Errorf("host %s: %v", failure.Host, failure.Ends)
			}
			found := violationsOf(t, err)
			if len(found) != 1 || found[0].Rule != "maintenance-window" || found[0].Host != "b" {
				t.Errorf("got %+v", found)
			}
			for n, c := range conns {
				if c.times("prepare") != 1 || c.times("apply") != 0 || c.times("lease") != 1 || c.times("release") != 1 {
					t.Errorf("host %s was asked %v", n, c.asked)
				}
			}

			now.set(22)
			if _, err := f.Apply(t.Context(), req); err != nil {
				t.Errorf("it is refused when the window is open: %v", err)
			}
			if conns["b"].times("apply") != 1 {
				t.Errorf("host b was asked %v", conns["b"].asked)
			}
		})
	}
}

func TestWhatDisturbsNobodyIsDoneAtAnyTime(t *testing.T) {
	opt, _ := nightly(14)
	f, conns := hosts(t, opt, "a")
	conns["a"].left = toDo()
	if _, err := f.Apply(t.Context(), request("a")); err != nil || conns["a"].times("apply") != 1 {
		t.Errorf("got %v, asked %v", err, conns["a"].asked)
	}
}

func TestLevelsLiftTheWindow(t *testing.T) {
	for level, warnings := range map[rules.Level]int{rules.Warning: 1, rules.Off: 0} {
		opt, _ := nightly(14)
		opt.Levels = rules.Levels{"maintenance-window": level}
		f, conns := hosts(t, opt, "a")
		conns["a"].left = stopping("vm1")
		res, err := f.Apply(t.Context(), request("a"))
		if err != nil || conns["a"].times("apply") != 1 {
			t.Errorf("%s: got %v, asked %v", level, err, conns["a"].asked)
			continue
		}
		said := slices.DeleteFunc(res.Warnings, func(x rules.Finding) bool { return x.Rule != "maintenance-window" })
		if len(said) != warnings {
			t.Errorf("%s: got the warnings %+v, want %d", level, said, warnings)
		}
	}
}

// TestWindowThatClosesDuringARollout closes the window while the first host has its turn.
func TestWindowThatClosesDuringARollout(t *testing.T) {
	for name, test := range map[string]struct {
		stop bool
		ends map[string]fleet.HostEnd
	}{
		"rollback": {ends: map[string]fleet.HostEnd{"a": fleet.EndRolledBack, "b": fleet.EndUntouched, "c": fleet.EndUntouched}},
		"stop":     {stop: true, ends: map[string]fleet.HostEnd{"a": fleet.EndApplied, "b": fleet.EndUntouched, "c": fleet.EndUntouched}},
	} {
		t.Run(name, func(t *testing.T) {
			opt, now := nightly(3)
			f, conns := hosts(t, opt, "a", "b", "c")
			conns["a"].left, conns["b"].left, conns["c"].left = stopping("vm1"), stopping("vm2"), toDo()
			conns["a"].apply = func(agent.Change) (agent.Outcome, error) {
				now.set(4)
				return agent.Outcome{Host: conns["a"].read()}, nil
			}
			req := request("a", "b", "c")
			req.StopOnFailure = test.stop
			_, err := f.Apply(t.Context(), req)
			failure := failureOf(t, err)
			if failure.Host != "b" || !failure.Begun() || failure.Clean() == test.stop {
				t.Errorf("host %s, begun %t, clean %t", failure.Host, failure.Begun(), failure.Clean())
			}
			for n, want := range test.ends {
				if failure.Ends[n] != want {
					t.Errorf("host %s: %s, want %s", n, failure.Ends[n], want)
				}
			}
			if found := violationsOf(t, err); len(found) != 1 || found[0].Rule != "maintenance-window" || found[0].VM != "vm2" {
				t.Errorf("got %+v", found)
			}
			if undone := conns["a"].times("settle undo=true") == 1; undone == test.stop {
				t.Errorf("host a was asked %v", conns["a"].asked)
			}
			for n, c := range conns {
				if c.times("release") != 1 {
					t.Errorf("host %s: the lease was given back %d times", n, c.times("release"))
				}
			}
		})
	}
}

// Hosts that have nothing to disturb do not wait for the window.
func TestRolloutGoesOnWhereNobodyIsDisturbed(t *testing.T) {
	opt, now := nightly(3)
	f, conns := hosts(t, opt, "a", "b")
	conns["a"].left, conns["b"].left = stopping("vm1"), toDo()
	conns["a"].apply = func(agent.Change) (agent.Outcome, error) {
		now.set(4)
		return agent.Outcome{Host: conns["a"].read()}, nil
	}
	if _, err := f.Apply(t.Context(), request("a", "b")); err != nil || conns["b"].times("apply") != 1 {
		t.Errorf("got %v, host b was asked %v", err, conns["b"].asked)
	}
}

// A change that waits until it may stop VMs may wait until the window is closed.
func TestWindowThatClosesWhileAChangeWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt, now := nightly(3)
		opt.MaxConcurrentVMStops = 1
		f, conns := hosts(t, opt, "a", "b")
		for _, c := range conns {
			c.host.Cluster = &gpu.Cluster{Name: "clu"}
			c.left = stopping("vm on " + c.host.Name)
		}
		f.Snapshot(t.Context(), f.HostNames())
		goOn := make(chan struct{})
		conns["a"].apply = func(agent.Change) (agent.Outcome, error) {
			<-goOn
			return agent.Outcome{Host: conns["a"].read()}, nil
		}
		errs := map[string]chan error{"a": make(chan error, 1), "b": make(chan error, 1)}
		for _, n := range []string{"a", "b"} {
			go func() {
				_, err := f.Apply(t.Context(), request(n))
				errs[n] <- err
			}()
			synctest.Wait() // a is in the middle of its change, and b waits for a
		}
		now.set(4)
		close(goOn)
		if err := <-errs["a"]; err != nil {
			t.Errorf("what was begun inside of the window: %v", err)
		}
		err := <-errs["b"]
		if found := violationsOf(t, err); failureOf(t, err).Begun() || len(found) != 1 || found[0].Rule != "maintenance-window" {
			t.Errorf("got %+v", found)
		}
		if conns["b"].times("prepare") != 1 || conns["b"].times("apply") != 0 || conns["b"].times("release") != 1 {
			t.Errorf("host b was asked %v", conns["b"].asked)
		}
	})
}

func TestPlanOutsideOfTheWindowWarns(t *testing.T) {
	opt, now := nightly(14)
	opt.Owner = "o"
	f, conns := hosts(t, opt, "a")
	c := conns["a"]
	c.host.OS.Build = 26100
	c.host.VMs = []gpu.VM{{ID: "1", Name: "vm1", State: gpu.VMRunning, Generation: 2}}
	want := gpu.Want{
		Assignment: &gpu.Assignment{
			Kind: gpu.AssignPartition, VM: "vm1", Host: "a", Partition: &gpu.PartitionWant{}, Power: gpu.Power{AllowShutdown: true},
		},
	}
	p := change.Change{Subject: "x", Token: "t", Want: want}
	view := f.Snapshot(t.Context(), []string{"a"})
	of := func(found []rules.Finding) []rules.Finding {
		return slices.DeleteFunc(found, func(x rules.Finding) bool { return x.Rule != "maintenance-window" })
	}
	if found := of(f.Check(view, p)); len(found) != 1 || found[0].Level != rules.Warning {
		t.Errorf("got %+v, want a warning", found)
	}
	if found := of(f.CheckAlone(view, p)); len(found) != 0 {
		t.Errorf("a forecast depends on the time: %+v", found)
	}
	now.set(23)
	if found := of(f.Check(view, p)); len(found) != 0 {
		t.Errorf("inside of the window: %+v", found)
	}
}
