package hyperv_test

import (
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestInventoryTellsWhenTheHostStarted(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 1, 6, 30, 0, 0, time.UTC)
	for name, boot := range map[string]*gpu.Boot{"known": {ID: "one", At: at}, "not known": nil} {
		r := newRig(t, func(s *gpu.Snapshot) { s.Hosts[0].Boot = boot })
		got, err := r.backend.Inventory(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case boot == nil && got.Boot != nil, boot != nil && (got.Boot == nil || !got.Boot.At.Equal(at) || got.Boot.ID == ""):
			t.Errorf("%s: it started at %+v", name, got.Boot)
		}
	}
}
