package backend

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/golden"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestGoldenRecords holds the records that agents keep against what other versions have written
// and will read. Those of a change are the agent's.
func TestGoldenRecords(t *testing.T) {
	t.Parallel()
	known := document.Of[struct {
		File   stateDocument    `json:"file"`
		Record sealed           `json:"record"`
		Lease  Lease            `json:"lease"`
		Claim  gpu.Claim        `json:"claim"`
		Owed   gpu.PendingStart `json:"owed_start"`
	}]()
	golden.Document(t, "records.golden", known.Describe()+fmt.Sprintf("format: %s\nversions: %v\n", StateFormat, recordVersions))
}
