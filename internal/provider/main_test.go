package provider_test

import (
	"os"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// TestMain runs the tests. With foreignAgent set this process is no test but an agent.
func TestMain(m *testing.M) {
	if os.Getenv(foreignAgent) != "" {
		serveForeignAgent()
		return
	}
	rig.Main(m)
}
