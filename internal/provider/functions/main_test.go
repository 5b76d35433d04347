package functions_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
