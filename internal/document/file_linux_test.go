package document_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/document"
)

// Whoever may write in a directory can put anything in the place of a file. It is not
// followed, not read and not waited for.
func TestOpenTakesOnlyFiles(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a FIFO": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a FIFO with a writer": func(path string) error {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				return err
			}
			writer, err := os.OpenFile(path, os.O_RDWR, 0)
			if err == nil {
				t.Cleanup(func() { _ = writer.Close() })
			}
			return err
		},
		"a link": func(path string) error {
			return errors.Join(os.WriteFile(path+"2", nil, 0o600), os.Symlink(path+"2", path))
		},
		"a dangling link": func(path string) error { return os.Symlink("/nowhere", path) },
		"a directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"a device":        func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := document.ReadFile(path)
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, document.ErrNotRegular) {
					t.Errorf("got %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it waits")
			}
		})
	}
	path := filepath.Join(t.TempDir(), "x")
	if _, err := document.ReadFile(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := document.ReadFile(path); err != nil || string(data) != "{}" {
		t.Errorf("of a file: %q, %v", data, err)
	}
}
