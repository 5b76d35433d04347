//go:build linux && cgo

package nvidia_test

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/assumptions"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestSelfTest(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
	var asked, wanted []string
	for _, a := range f.backend.SelfTest(t.Context()) {
		if a.Err != nil || (a.Holds != nil && !*a.Holds) {
			t.Errorf("%s: holds %v, %v: %s", a.Assumption, a.Holds, a.Err, a.Found)
		}
		asked = append(asked, a.Assumption)
	}
	for _, a := range assumptions.Of(gpu.Linux) {
		if a.Asked {
			wanted = append(wanted, a.ID)
		}
	}
	if !slices.Equal(asked, wanted) {
		t.Errorf("asked %q, want those of the list, %q", asked, wanted)
	}
}
