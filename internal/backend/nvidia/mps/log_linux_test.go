package mps_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
)

// What a daemon on an H100 with driver 580 had said when it was killed gives no reason: what it says
// of its start and of each client is none.
func TestAKilledDaemonGivesNoReason(t *testing.T) {
	if got := mps.LastWords("../testdata/h100-r580/killed-control.log"); got != "" {
		t.Errorf("it is taken to have ended for %q", got)
	}
}
