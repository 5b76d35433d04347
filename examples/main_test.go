package examples_test

import (
	"os"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// TestMain runs the tests. With kubernetesProvider set this process is no test but a
// provider.
func TestMain(m *testing.M) {
	if os.Getenv(kubernetesProvider) != "" {
		serveKubernetes()
		return
	}
	rig.Main(m)
}
