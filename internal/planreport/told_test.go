package planreport_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/planreport"
)

// What only the apply can tell is not said to touch nothing, and what is not known is not said to be all.
func TestWhatIsNotKnownIsNotNothing(t *testing.T) {
	t.Parallel()
	r := planreport.Report{Format: planreport.Format}
	open := planreport.Change{
		Type: "gpu_partition_config", Label: `gpu_partition_config ""`, Action: planreport.Create, AfterApply: true, Turn: 1,
	}
	wants := func(want string) {
		t.Helper()
		if got := text(t, r, planreport.TextOptions{Width: 200}); !strings.Contains(got, want) || strings.Contains(got, "no host is touched") {
			t.Errorf("%q is not said:\n%s", want, got)
		}
	}
	wants("As far as is known, no GPU, VM or host changes.")
	r.Changes = []planreport.Change{open, open}
	wants("What 2 resources do to hosts is known only after apply.")
	r.Complete, r.Changes = true, nil
	wants("No GPU, VM or host changes.")
}

// Several changes told as one say what they do, by the names of their objects, and errors of other hosts are told.
func TestGroupsSayWhatTheyDo(t *testing.T) {
	t.Parallel()
	r := planreport.Report{Format: planreport.Format, Complete: true}
	change := func(label string, steps ...string) planreport.Change {
		return planreport.Change{Type: "gpu_share", Label: label, Action: planreport.Create, Host: "infer01", Turn: 1, Steps: steps}
	}
	r.Changes = []planreport.Change{
		change(`gpu_share "canary" from pool "infer01/inference"`, "hand share canary to containers"),
		change(`gpu_share "embed" from pool "infer01/inference"`, "hand share embed to containers"),
		change(`gpu_share "quiet"`), change(`gpu_share "still"`),
	}
	r.Findings = []planreport.Finding{
		{Rule: "partition-in-use", Level: "error", Host: "hv01", Subject: "gpu_partition_config \"vdi\"", Found: "avd-01 holds one."},
		{Rule: "partition-in-use", Level: "error", Host: "hv02", Subject: "gpu_partition_config \"vdi\"", Found: "avd-02 holds one."},
	}
	got := text(t, r, planreport.TextOptions{Width: 200})
	for _, want := range []string{
		"These are canary and embed.", "Hand share canary to containers, then hand share embed to containers.",
		"These are quiet and still.", "The host stays as it is; only its records change.", "avd-01 holds one.", "avd-02 holds one.",
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not said once:\n%s", want, got)
		}
	}
}
