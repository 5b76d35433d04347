package provider_test

import (
	"os"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// TestMain runs the tests. With foreignAgent set this process is no test but an agent,
// and with kubernetesProvider a provider.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(foreignAgent) != "":
		serveForeignAgent()
	case os.Getenv(kubernetesProvider) != "":
		serveKubernetes()
	default:
		rig.Main(m)
	}
}
