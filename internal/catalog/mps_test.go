package catalog_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
)

func TestMPSClients(t *testing.T) {
	for branch, want := range map[string]int{"": 48, "535": 48, "580": 48, "590": 60, "615": 60} {
		if got := catalog.MPSClients("9.0", branch); got != want {
			t.Errorf("driver branch %q: got %d clients, want %d", branch, got, want)
		}
	}
	for capability, want := range map[string]int{"3.5": 16, "6.1": 16, "7.0": 48, "9.0": 48, "12.0": 48, "": 48} {
		if got := catalog.MPSClients(capability, "580"); got != want {
			t.Errorf("compute capability %q: got %d clients, want %d", capability, got, want)
		}
		if got := catalog.IsolatesMPSClients(capability); got != (want == 48) {
			t.Errorf("compute capability %q: own address spaces %t", capability, got)
		}
	}
}
