package simulated

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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
	f.readAt = time.Time{}
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
	if !f.readAt.IsZero() {
		t.Error("the file was read again, though nobody else has written it")
	}
}

// Changes that wait for one another are written together. Each sees those before it, and one that
// fails leaves nothing.
func TestChangesThatWaitAreWrittenTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.json")
	fleet, err := Create(path, gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{{Name: "hv01", Platform: gpu.HyperV}}})
	if err != nil {
		t.Fatal(err)
	}
	f, begun, goOn := fleet.file, make(chan struct{}), make(chan struct{})
	refused := errors.New("refused")
	var all sync.WaitGroup
	change := func(then func(*record) error) {
		err := f.update(t.Context(), func(d *document) error {
			rec, _ := d.edit("hv01", time.Now())
			rec.OS.Build++
			return then(rec)
		})
		if err != nil && !errors.Is(err, refused) && !strings.Contains(err.Error(), "invalid") {
			t.Error(err)
		}
	}
	all.Go(func() {
		change(func(*record) error { close(begun); <-goOn; return nil })
	})
	<-begun
	const many = 9
	seen := make(chan os.FileInfo, many)
	for n := range many {
		all.Go(func() {
			change(func(rec *record) error {
				if info, err := os.Stat(path); err == nil {
					seen <- info
				}
				switch n {
				case 3:
					return refused
				case 4:
					rec.Name = ""
				}
				return nil
			})
		})
	}
	for queued := 0; queued < many; runtime.Gosched() {
		f.mu.Lock()
		queued = len(f.queue)
		f.mu.Unlock()
	}
	close(goOn)
	all.Wait()
	first := <-seen
	for range many - 1 {
		if info := <-seen; !os.SameFile(first, info) || !first.ModTime().Equal(info.ModTime()) {
			t.Error("the file was written between changes that waited for it together")
		}
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if rec, ok := again.file.doc.host("hv01"); !ok || rec.OS.Build != many-1 {
		t.Errorf("of %d changes, two of which fail, the file has %d", many+1, rec.OS.Build)
	}
}

// Where changes of several come in, one that could be made at once waits for others to join it. One that is alone does not.
func TestChangesWaitForCompany(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fleet.json")
	fleet, err := Create(path, gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{{Name: "hv01", Platform: gpu.HyperV}}})
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.file
	replaced := func(in *sync.WaitGroup) {
		in.Go(func() {
			if err := f.update(t.Context(), func(d *document) error {
				rec, _ := d.edit("hv01", time.Now())
				rec.OS.Build++
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	var all sync.WaitGroup
	f.shared, f.took = true, time.Second
	replaced(&all)
	time.Sleep(time.Second / 4)
	if d, err := f.load(); err != nil || d.hosts[0].rec.OS.Build != 0 {
		t.Errorf("a change did not wait for company (%v)", err)
	}
	replaced(&all)
	all.Wait()
	if !f.shared {
		t.Error("two changes were not made together")
	}
	f.took = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
	defer cancel()
	if err := f.update(ctx, func(*document) error { t.Error("it was made"); return nil }); !errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "lock") {
		t.Errorf("who gives up waiting is told %v", err)
	}
	f.took = 0
	replaced(&all)
	all.Wait()
	f.took = time.Hour
	replaced(&all) // after one that nobody joined
	all.Wait()
	if again, err := Open(path); err != nil || again.file.doc.hosts[0].rec.OS.Build != 4 {
		t.Errorf("not all of 4 changes are in the file (%v)", err)
	}
}

// Who gives up before its turn has changed nothing, and one whose change panics keeps nobody waiting.
func TestAChangeThatIsGivenUp(t *testing.T) {
	fleet, err := InMemory(gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{{Name: "hv01", Platform: gpu.HyperV}}})
	if err != nil {
		t.Fatal(err)
	}
	f, begun, goOn := fleet.file, make(chan struct{}), make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		defer func() { _ = recover() }()
		_ = f.update(t.Context(), func(*document) error { close(begun); <-goOn; panic("in a change") })
	})
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.update(ctx, func(*document) error { t.Error("it was made"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	close(goOn)
	others.Wait()
	if err := f.update(t.Context(), func(*document) error { return nil }); err != nil {
		t.Error(err)
	}
}
