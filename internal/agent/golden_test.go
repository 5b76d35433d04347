package agent

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/golden"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestGoldenDocuments holds the documents of the protocol, and what the journal keeps, against
// what other versions send and read.
func TestGoldenDocuments(t *testing.T) {
	t.Parallel()
	known := document.Of[struct {
		Change      Change      `json:"change"`
		Prepared    Prepared    `json:"prepared"`
		Outcome     Outcome     `json:"outcome"`
		Error       Error       `json:"error"`
		Inventory   gpu.Host    `json:"inventory"`
		Claims      []gpu.Claim `json:"claims"`
		Measurement Measurement `json:"measurement"`
		Journal     Journal     `json:"journal"`
		Record      entry       `json:"record of a change"`
	}]()
	golden.Document(t, "documents.golden", known.Describe()+fmt.Sprintf("protocol: %d\noldest protocol: %d\n", Protocol, OldestProtocol))
}
