package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Every fault of a solver has a finding of a rule that there is, with an argument, a title and a fix, and
// that of a layout is of the rules of its kind.
func TestEveryFaultHasAFinding(t *testing.T) {
	for fault := placement.MIGUnknownProfile; fault <= placement.ShareMemory; fault++ {
		f := rules.FindingOf(&gpu.Refusal{Fault: fault, Reasons: []string{"it is so", "and so"}})
		if f.Path == "" || f.Title == "" || f.Fix == "" || f.Found != "It is so. And so." {
			t.Errorf("fault %d: %+v", fault, f)
		}
		if !slices.ContainsFunc(rules.All(), func(r rules.Rule) bool { return r.ID == f.Rule }) {
			t.Errorf("fault %d is of rule %q, which there is not", fault, f.Rule)
		}
		mig, vgpu := fault < placement.VGPUUnsupported, fault >= placement.VGPUUnsupported && fault < placement.LackMissing
		if strings.HasPrefix(f.Rule, "mig-") != mig || strings.HasPrefix(f.Rule, "vgpu-") != vgpu {
			t.Errorf("fault %d is of rule %q, which is of another kind", fault, f.Rule)
		}
	}
}

// A refusal's own fix stands where the fault has none, and the argument that it names comes first.
func TestFindingOfARefusalThatKnowsMore(t *testing.T) {
	f := rules.FindingOf(&gpu.Refusal{
		Fault: placement.LackMode, Attribute: "client_priority", Host: "gpu01", GPU: "GPU-1", Reasons: []string{"share \"a\" does not fit: no"},
		Brief: "on host \"gpu01\": no", Wanted: "share \"a\" wants 1 device", Fix: "leave it out",
	})
	want := rules.Finding{
		Rule: "fraction-not-in-mode", Path: "client_priority", Title: f.Title, Host: "gpu01", GPU: "GPU-1", Found: "On host \"gpu01\": no.",
		Wanted: "Share \"a\" wants 1 device.", Fix: "Leave it out.",
	}
	if d := cmp.Diff(want, f); d != "" {
		t.Errorf("finding (-want +got):\n%s", d)
	}
}
