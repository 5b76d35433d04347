package statedir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestConformance(t *testing.T) {
	conformance.RunStore(t, func(t *testing.T, initial gpu.Host) conformance.Fixture {
		fleet, err := simulated.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{initial}})
		if err != nil {
			t.Fatal(err)
		}
		host, err := fleet.Host(initial.Name)
		if err != nil {
			t.Fatal(err)
		}
		return fixture{host: host, store: open(t, newDir(t))}
	})
}

// fixture is a simulated host whose agent keeps its records in a directory.
type fixture struct {
	host  *simulated.Host
	store *statedir.Dir
}

func (f fixture) HyperV() backend.HyperV { return f.host }

func (f fixture) Store() backend.Store { return f.store }

func newDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "gpu-agent")
}

func open(t *testing.T, dir string) *statedir.Dir {
	t.Helper()
	d, err := statedir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func load(t *testing.T, d *statedir.Dir) backend.State {
	t.Helper()
	state, err := d.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func wantState(t *testing.T, d *statedir.Dir, want backend.State) {
	t.Helper()
	if diff := cmp.Diff(want, load(t, d), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the state differs (-want +got):\n%s", diff)
	}
}

// wantError checks an error and that its message says what a person needs.
func wantError(t *testing.T, err error, kind statedir.Kind, saying ...string) {
	t.Helper()
	var e *statedir.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is %v, want one of the state directory", err)
	}
	if e.Kind != kind {
		t.Errorf("the error is %s, want %s: %v", e.Kind, kind, err)
	}
	for _, word := range saying {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
}

func raiseFence(s *backend.State) error {
	s.Fence++
	return nil
}

func TestEmptyDirectoryIsAHostThatWasNeverManaged(t *testing.T) {
	dir := newDir(t)
	wantState(t, open(t, dir), backend.State{})
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 && files[0].Name() == "state.json" {
		t.Errorf("reading made %v, error %v", files, err)
	}
}

func TestAnotherProcessSeesWhatWasStored(t *testing.T) {
	dir := newDir(t)
	want := backend.State{
		Fence:   7,
		Claims:  []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "vdi", Token: "token"}},
		Lease:   &backend.Lease{Run: "run-1", Fence: 7, Since: time.Unix(100, 5).UTC(), Expires: time.Unix(160, 0).UTC()},
		Journal: []json.RawMessage{},
	}
	err := open(t, dir).Update(t.Context(), func(s *backend.State) error {
		*s = want
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantState(t, open(t, dir), want)
}

func TestUpdateThatChangesNothingDoesNotWrite(t *testing.T) {
	dir := newDir(t)
	d := open(t, dir)
	if err := d.Update(t.Context(), raiseFence); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.json")
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if err := d.Update(t.Context(), func(*backend.State) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("the file was written again: %v, error %v", info.ModTime(), err)
	}
}

// TestFileThatCannotBeRead wants a clear error, and the file left as it is: it may be
// all that is left of a host's claims.
func TestFileThatCannotBeRead(t *testing.T) {
	const v1 = `{"format": "gpu-agent-state/v1", "fence": 3}`
	for _, c := range []struct {
		name, content string
		kind          statedir.Kind
		saying        []string
	}{
		{"empty", "", statedir.Corrupt, []string{"0 bytes", "backup", "nothing was overwritten"}},
		{"torn", v1[:30], statedir.Corrupt, []string{"30 bytes", "unexpected end"}},
		{"zeros", strings.Repeat("\x00", 64), statedir.Corrupt, []string{"damaged"}},
		{"not an object", `[1]`, statedir.Corrupt, []string{"damaged"}},
		{"no format", `{"fence": 3}`, statedir.Corrupt, []string{`its format is ""`}},
		{"another program's", `{"format": "checkpoint/v7"}`, statedir.Corrupt, []string{"checkpoint/v7", statedir.Format}},
		{"a field of another type", `{"format": "gpu-agent-state/v1", "fence": "three"}`, statedir.Corrupt, []string{"fence"}},
		{"twice", v1 + v1, statedir.Corrupt, []string{"damaged"}},
		{"newer", `{"format": "gpu-agent-state/v2", "fence": {"n": 3}}`, statedir.Newer, []string{"gpu-agent-state/v2", statedir.Format, "install"}},
		{"newer field", `{"format": "gpu-agent-state/v1", "shares": []}`, statedir.Newer, []string{`"shares"`, "install"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := newDir(t)
			d := open(t, dir)
			path := filepath.Join(dir, "state.json")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := d.Load(t.Context())
			wantError(t, err, c.kind, append(c.saying, path)...)
			err = d.Update(t.Context(), func(*backend.State) error {
				t.Error("a state that cannot be read was given to be changed")
				return nil
			})
			wantError(t, err, c.kind, append(c.saying, path)...)
			if after, err := os.ReadFile(path); err != nil || string(after) != c.content {
				t.Errorf("the file is now %q, error %v", after, err)
			}
		})
	}
}

func TestDirectoryThatIsGoneIsNotAnEmptyState(t *testing.T) {
	dir := newDir(t)
	d := open(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, err := d.Load(t.Context())
	wantError(t, err, statedir.Unusable, dir)
	wantError(t, d.Update(t.Context(), raiseFence), statedir.Unusable, dir)
}

func TestFileInPlaceOfTheDirectory(t *testing.T) {
	path := newDir(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := statedir.Open(path)
	wantError(t, err, statedir.Unsafe, path, "not a directory")
}

func TestWaitingEndsWithTheCall(t *testing.T) {
	dir := newDir(t)
	for _, c := range []struct {
		name  string
		other *statedir.Dir
	}{{"goroutine", nil}, {"process", open(t, dir)}} {
		t.Run("held by another "+c.name, func(t *testing.T) {
			d := open(t, dir)
			holder := c.other
			if holder == nil {
				holder = d
			}
			before := load(t, d).Fence
			entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				left <- holder.Update(context.Background(), func(s *backend.State) error {
					close(entered)
					<-leave
					return raiseFence(s)
				})
			}()
			<-entered
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			err := d.Update(ctx, raiseFence)
			wantError(t, err, statedir.Busy, dir)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the error hides that time ran out: %v", err)
			}
			close(leave)
			if err := <-left; err != nil {
				t.Fatal(err)
			}
			if err := d.Update(t.Context(), raiseFence); err != nil {
				t.Fatal(err)
			}
			wantState(t, d, backend.State{Fence: before + 2})
		})
	}
}

func claimOf(n int64) gpu.Claim {
	return gpu.Claim{Kind: gpu.ClaimAssignment, ID: fmt.Sprint(n), Token: "token", GPUs: []string{"PCIROOT(10)#PCI(0000)#PCI(0000)"}}
}
