package simulated

import (
	"testing"

	documents "github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/golden"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestGoldenFleetFile holds the file of a simulated fleet, and so a recorded inventory, against
// the files that are there already. What an agent remembers in it has a golden of its own.
func TestGoldenFleetFile(t *testing.T) {
	t.Parallel()
	golden.Document(t, "fleet_file.golden", "format: "+gpu.SnapshotFormat+"\n"+documents.Of[struct {
		Format string   `json:"format"`
		Hosts  []record `json:"hosts"`
	}]().Describe())
}
