// Package runs_test tests whole runs of several resources: in every order, at every
// parallelism, over random configurations and fleets.
package runs_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
