package fleet_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// A cause is told in full once, whatever the objects are called that it is about, and again where it is another one.
func TestACauseIsToldOnce(t *testing.T) {
	t.Parallel()
	f := fleet.New(fleet.Options{})
	off := func(vm, state string) (label string, x rules.Finding) {
		label = fmt.Sprintf("gpu_vm_assignment for VM %q", vm)
		return label, rules.Finding{
			Rule: "vm-must-be-off", Level: rules.Error, Title: "The VM must be off", Host: "hv01", VM: vm,
			Found: fmt.Sprintf("VM %q on host %q is %s.", vm, "hv01", state), Fix: "Shut it down.",
		}
	}
	for _, c := range []struct {
		vm, state string
		again     bool
	}{{"avd-01", "running", false}, {"avd-02", "running", true}, {"avd-03", "saved", false}, {"avd-01", "running", false}} {
		label, x := off(c.vm, c.state)
		got := f.ToldOnce(label, []rules.Finding{x})
		if len(got) != 1 || got[0].Again != c.again || got[0].Level != rules.Error || (got[0].Detail() == "") != c.again {
			t.Errorf("of %s, which is %s, it tells %+v", c.vm, c.state, got)
		}
	}
}

// What several contend for is told by one of them. The others are held back by that in a plan, and by themselves in an apply.
func TestWhatIsContendedForIsToldOnce(t *testing.T) {
	t.Parallel()
	f := fleet.New(fleet.Options{})
	full := rules.Finding{Rule: "pool-quota", Level: rules.Error, Title: "The quota of the pool is used up", Contended: "ml\x00team-a"}
	if got := f.ToldOnce("one", []rules.Finding{full}); len(got) != 1 || got[0].Again {
		t.Errorf("the first tells %+v", got)
	}
	if got := f.ToldOnce("two", []rules.Finding{full}); len(got) != 0 {
		t.Errorf("the second tells %+v", got)
	}
	_, err := f.Apply(t.Context(), fleet.Request{Change: change.Change{Subject: "two"}})
	ae, ok := errors.AsType[*agent.Error](err)
	if !ok || ae.Code != agent.RuleViolation || len(ae.Findings) != 1 || ae.Findings[0].Title != full.Title {
		t.Errorf("the apply of the second ends with %v", err)
	}
	if f.ToldOnce("two", nil); len(f.ToldOnce("two", nil)) != 0 {
		t.Error("a plan that is right tells something")
	}
	_, err = f.Apply(t.Context(), fleet.Request{Change: change.Change{Subject: "two"}})
	if errors.As(err, &ae) && ae.Code == agent.RuleViolation {
		t.Errorf("once it is planned right, its apply ends with %v", err)
	}
}
