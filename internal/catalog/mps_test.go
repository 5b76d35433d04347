package catalog_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
)

func TestMPSClients(t *testing.T) {
	for capability, want := range map[string]int{"3.5": 16, "6.1": 16, "7.0": 48, "9.0": 48, "12.0": 48, "": 48} {
		if got := catalog.MPSClients(capability); got != want {
			t.Errorf("compute capability %q: got %d clients, want %d", capability, got, want)
		}
		if got := catalog.IsolatesMPSClients(capability); got != (want == 48) {
			t.Errorf("compute capability %q: own address spaces %t", capability, got)
		}
	}
}
