//go:build linux && cgo

package nvidia_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestInventoryTellsWhenTheHostStarted(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
	inventory := func() *gpu.Boot {
		h, err := f.backend.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return h.Boot
	}
	if b := inventory(); b != nil {
		t.Errorf("it started at %+v, which the kernel does not tell", b)
	}
	if err := os.MkdirAll(filepath.Join(f.tree.Root(), "proc/sys/kernel/random"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.write(filepath.Join(f.tree.Root(), "proc/sys/kernel/random/boot_id"), "8d1b5c1e-0a5b-4f6e-9c7d-0f0f0f0f0f0f\n", 0o600)
	f.write(filepath.Join(f.tree.Root(), "proc/stat"), "cpu  1 2 3\nctxt 4\nbtime 1793518200\nprocesses 5\n", 0o600)
	if b := inventory(); b == nil || b.ID != "8d1b5c1e-0a5b-4f6e-9c7d-0f0f0f0f0f0f" || !b.At.Equal(time.Unix(1793518200, 0)) {
		t.Errorf("it started at %+v", b)
	}
}
