package simulated

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What this process has written it knows, whoever looks at the file meanwhile: it is never
// compared with what was written, which reads all of it.
func TestOwnWritesAreNotReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.json")
	fleet, err := Create(path, gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{{Name: "hv01", Platform: gpu.HyperV}}})
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.file
	write := func(n int) error {
		return f.update(context.Background(), func(d *document) error {
			rec, _ := d.edit("hv01", time.Now())
			rec.OS.Build = n + 1
			return nil
		})
	}
	if err := write(0); err != nil || !f.stamped {
		t.Skipf("this file system keeps no time stamp to tell a write by (%v)", err)
	}
	f.piece = nil // what the file was compared with data in
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := f.read(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 200 {
		if err := write(n + 1); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	readers.Wait()
	if f.piece != nil {
		t.Error("the file was read again, though nobody else has written it")
	}
}
