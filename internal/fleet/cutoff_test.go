package fleet_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// cut is a connection that ends in the middle of every change.
func cut(host string) *conn {
	c := connection(host)
	c.apply = func(agent.Change) (agent.Outcome, error) { return agent.Outcome{}, hungUp() }
	return c
}

// toDo is what Prepare answers while the change is not made.
func toDo() *agent.Prepared {
	return &agent.Prepared{Steps: []change.Step{{Op: change.OpSetPartitionCount}}}
}

func failureOf(t *testing.T, err error) *fleet.Failure {
	t.Helper()
	failure, ok := errors.AsType[*fleet.Failure](err)
	if !ok {
		t.Fatalf("got %v, want a failed change", err)
	}
	return failure
}

// TestChangeThatWasCutOff connects once more and finds out how the agent ended it.
func TestChangeThatWasCutOff(t *testing.T) {
	unreadable := &agent.Error{Code: agent.Internal, Message: "the inventory cannot be read"}
	for name, test := range map[string]struct {
		next   func(*conn) // what the second connection finds; nil: there is none
		end    fleet.HostEnd
		clean  bool
		stands string // what the failure says that is not known or stands
		says   string
	}{
		"only the answer was lost": {next: func(c *conn) { c.left = &agent.Prepared{} }, end: fleet.EndApplied},
		"it was undone":            {next: func(c *conn) { c.left = toDo() }, end: fleet.EndRolledBack, clean: true, says: "put the change back"},
		"it was undone, and now a rule forbids it": {
			next: func(c *conn) {
				c.left = &agent.Prepared{Findings: []rules.Finding{{Rule: "capacity", Level: rules.Error}}}
			},
			end: fleet.EndRolledBack, clean: true, says: "put the change back",
		},
		"something stands": {
			next: func(c *conn) {
				c.left = toDo()
				c.host.Claims = []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "c", Token: "t", Incomplete: true}}
			},
			end: fleet.EndPartial, stands: "could not put back",
		},
		"somebody else's object is incomplete": {
			next: func(c *conn) {
				c.left = toDo()
				c.host.Claims = []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "d", Token: "u", Incomplete: true}}
			},
			end: fleet.EndRolledBack, clean: true,
		},
		"the host cannot be read": {
			next: func(c *conn) { c.inventory = func() error { return unreadable } },
			end:  fleet.EndPartial, stands: "it could not be found out how the change ended (the inventory cannot be read)",
		},
		"another run has the host by then": {
			next: func(c *conn) { c.lease = func() error { return &agent.Error{Code: agent.LeaseHeld} } },
			end:  fleet.EndPartial, stands: "it could not be found out how the change ended (lease_held)",
		},
		"the host does not come back": {
			end: fleet.EndPartial, stands: "it could not be found out how the change ended (host a: nothing answers)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := cut("a")
				conns := []*conn{first}
				if test.next != nil {
					second := connection("a")
					test.next(second)
					conns = append(conns, second)
				}
				f := alone(successive(conns...), fleet.Options{})
				res, err := f.Apply(t.Context(), request("a"))
				synctest.Wait()
				if first.times("close") != 1 || first.times("release") != 0 {
					t.Errorf("the broken connection was closed %d times, and %d times the lease of the agent behind it was given back",
						first.times("close"), first.times("release"))
				}
				if test.end == fleet.EndApplied {
					if err != nil || res.Hosts["a"] == nil {
						t.Errorf("got %+v, %v", res, err)
					}
					return
				}
				failure := failureOf(t, err)
				if failure.Host != "a" || failure.Ends["a"] != test.end || failure.Clean() != test.clean {
					t.Errorf("host %s: %s, clean %t", failure.Host, failure.Ends["a"], failure.Clean())
				}
				if said := failure.Summary(); !strings.Contains(said, test.stands) || test.stands == "" && strings.Contains(said, "still stands") {
					t.Errorf("it says %q, want %q", said, test.stands)
				}
				if !strings.Contains(err.Error(), "hung up") || !strings.Contains(err.Error(), test.says) {
					t.Errorf("it says %q, want %q", err, test.says)
				}
				if ended := test.next != nil && test.end == fleet.EndRolledBack; ended && conns[1].times("release") != 1 {
					t.Errorf("the lease of the second connection was not given back: %v", conns[1].asked)
				}
			})
		})
	}
}

// A host that is gone must not keep a run for ever, even when nothing refuses the
// connection.
func TestHostThatIsGoneInTheMiddleIsWaitedForWithinLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{dial: func(ctx context.Context, nth int, _ bool) (fleet.Conn, error) {
			if nth == 1 {
				return cut("a"), nil
			}
			<-ctx.Done()
			return nil, &connect.Error{Host: "a", Code: connect.Unreachable, Err: ctx.Err()}
		}}
		f := alone(l, fleet.Options{})
		start := time.Now()
		_, err := f.Apply(t.Context(), request("a"))
		if failure := failureOf(t, err); failure.Ends["a"] != fleet.EndPartial || len(failure.Stands["a"]) != 1 {
			t.Errorf("it ended %s, and there stands %q", failure.Ends["a"], failure.Stands["a"])
		}
		if took := time.Since(start); took > 15*time.Minute {
			t.Errorf("it took %s", took)
		}
		time.Sleep(10 * time.Minute) // the last dial ends
	})
}

func TestChangeThatWasCutOffOnOneHostIsPutBackOnTheOthers(t *testing.T) {
	a, b := connection("a"), connection("b")
	b.left = toDo()
	f := fleet.New(fleet.Options{Hosts: map[string]fleet.Endpoint{"a": successive(a).endpoint(), "b": successive(cut("b"), b).endpoint()}})
	_, err := f.Apply(t.Context(), request("a", "b"))
	failure := failureOf(t, err)
	if failure.Host != "b" || !failure.Clean() || failure.Ends["a"] != fleet.EndRolledBack {
		t.Errorf("host %s: %v", failure.Host, failure.Ends)
	}
	if a.times("settle undo=true") != 1 {
		t.Errorf("host a was asked %v", a.asked)
	}
}

// TestUndoThatWasCutOff breaks a connection while a host that had succeeded is put back.
func TestUndoThatWasCutOff(t *testing.T) {
	for name, test := range map[string]struct {
		left *agent.Prepared
		end  fleet.HostEnd
	}{
		"the agent undid it":  {toDo(), fleet.EndRolledBack},
		"the change is there": {&agent.Prepared{}, fleet.EndPartial},
	} {
		t.Run(name, func(t *testing.T) {
			a, again, b := connection("a"), connection("a"), connection("b")
			a.settle = func(bool) (agent.Outcome, error) { return agent.Outcome{}, hungUp() }
			again.left = test.left
			b.apply = func(agent.Change) (agent.Outcome, error) {
				return agent.Outcome{}, &agent.Error{Code: agent.StepFailed, Outcome: &agent.Outcome{Host: b.read(), RolledBack: true}}
			}
			f := fleet.New(fleet.Options{Hosts: map[string]fleet.Endpoint{"a": successive(a, again).endpoint(), "b": successive(b).endpoint()}})
			_, err := f.Apply(t.Context(), request("a", "b"))
			failure := failureOf(t, err)
			if failure.Host != "b" || failure.Ends["a"] != test.end || failure.Clean() != (test.end == fleet.EndRolledBack) {
				t.Errorf("host %s: %v", failure.Host, failure.Ends)
			}
			if stands := strings.Join(failure.Stands["a"], "; "); (test.end == fleet.EndPartial) != strings.Contains(stands, "could not be undone") {
				t.Errorf("there stands %q", stands)
			}
		})
	}
}

// What stands is said even of a host that could not be read afterwards.
func TestWhatStandsIsSaidOfAHostThatCannotBeRead(t *testing.T) {
	stands := []string{"VM avd-01 is off"}
	t.Run("it failed", func(t *testing.T) {
		f, conns := hosts(t, fleet.Options{}, "a")
		conns["a"].apply = func(agent.Change) (agent.Outcome, error) {
			return agent.Outcome{}, &agent.Error{Code: agent.StepFailed, Outcome: &agent.Outcome{Stands: stands}}
		}
		_, err := f.Apply(t.Context(), request("a"))
		if said := failureOf(t, err).Summary(); !strings.Contains(said, "Still in place on a: VM avd-01 is off") {
			t.Errorf("it says %q", said)
		}
	})
	t.Run("it could not be put back", func(t *testing.T) {
		f, conns := hosts(t, fleet.Options{}, "a", "b")
		conns["a"].settle = func(bool) (agent.Outcome, error) { return agent.Outcome{Stands: stands}, nil }
		conns["b"].apply = func(agent.Change) (agent.Outcome, error) {
			return agent.Outcome{}, &agent.Error{Code: agent.Refused, Message: "no"}
		}
		_, err := f.Apply(t.Context(), request("a", "b"))
		if said := failureOf(t, err).Summary(); !strings.Contains(said, "Still in place on a: VM avd-01 is off") {
			t.Errorf("it says %q", said)
		}
	})
}
