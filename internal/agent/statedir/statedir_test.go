package statedir_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestConformance(t *testing.T) {
	conformance.RunStore(t, func(t *testing.T, initial gpu.Host) conformance.Fixture {
		fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{initial}})
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
func wantError(t *testing.T, err error, code statedir.Code, saying ...string) {
	t.Helper()
	var e *statedir.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is %v, want one of the state directory", err)
	}
	if e.Code != code {
		t.Errorf("the error is %s, want %s: %v", e.Code, code, err)
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
	whole := written(t, someState())
	head, records, _ := strings.Cut(whole, "\n")
	for _, c := range []struct {
		name, content string
		newer         bool
		saying        []string
	}{
		{"empty", "", false, []string{"0 bytes"}},
		{"blank", " \n\n", false, []string{"3 bytes"}},
		{"torn", whole[:30], false, []string{"30 bytes", "damaged"}},
		{"zeros", strings.Repeat("\x00", 64), false, []string{"damaged"}},
		{"not an object", `[1]`, false, []string{"damaged"}},
		{"no format", `{"fence": 3}`, false, []string{`its format is ""`}},
		{"another program's", `{"format": "checkpoint/v7"}`, false, []string{"checkpoint/v7", backend.StateFormat}},
		{"a field of another type", strings.Replace(whole, `"fence":7`, `"fence":"seven"`, 1), false, []string{"fence", "first line"}},
		{"twice", whole + whole, false, []string{"damaged"}},
		{"deep", strings.Repeat("[", 1<<20), false, []string{"damaged", "depth"}},
		{
			"newer", `{"format": "gpu-agent-state/v99", "agent": "9.9.9", "fence": {"n": 3}}`, true,
			[]string{"gpu-agent-state/v99", backend.StateFormat, "install agent 9.9.9"},
		},
		{"newer field", strings.Replace(whole, `"fence":`, `"debts":[],"fence":`, 1), true, []string{`"debts"`, "install agent 1.2.3"}},
		{"newer kind", edited(t, whole, `"kind":"claim"`, `"kind":"debt"`), true, []string{"debt", "record 2", "install"}},
		{"newer version", edited(t, whole, `"version":1`, `"version":2`), true, []string{"record 1 (lease)", "version is 2", "install"}},
		{
			"newer field of a claim", edited(t, whole, `"token":"token"`, `"token":"token","tenant":"a"`),
			true,
			[]string{`"tenant"`, "record 2 (claim)"},
		},
		{"a claim for nothing", edited(t, whole, `"id":"vdi"`, `"id":""`), false, []string{"id is empty", "record 2 (claim)"}},
		{"wrong checksum", strings.Replace(whole, `"id":"vdi"`, `"id":"vdj"`, 1), false, []string{"checksum", "record 2"}},
		{"another fence", strings.Replace(whole, `"fence":7`, `"fence":6`, 1), false, []string{"first line"}},
		{"a record is missing", head + "\n" + records[strings.Index(records, "\n")+1:], false, []string{"missing", "4 records"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := newDir(t)
			d := open(t, dir)
			path := filepath.Join(dir, "state.json")
			write(t, path, c.content)
			check := func(err error) {
				t.Helper()
				var ue *backend.UnreadableError
				if !errors.As(err, &ue) || len(ue.Records) == 0 {
					t.Fatalf("error %v", err)
				}
				if newer := slices.ContainsFunc(ue.Records, func(r backend.Unreadable) bool { return r.Newer }); newer != c.newer {
					t.Errorf("newer is %t: %v", newer, err)
				}
				for _, s := range append(c.saying, path, "gpu-agent records", "nothing was overwritten") {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("error %q does not say %q", err, s)
					}
				}
				if len(err.Error()) > 2000 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
			}
			_, err := d.Load(t.Context())
			check(err)
			check(d.Update(t.Context(), func(*backend.State) error {
				t.Error("a state that cannot be read was given to be changed")
				return nil
			}))
			check(d.Repair(t.Context(), func(*backend.State) error { return nil }))
			if after := read(t, path); after != c.content {
				t.Errorf("the file is now %q", after)
			}
		})
	}
}

// TestDamagedRecordDoesNotHideTheRest reads what can be read, also where the document as
// a whole is no JSON any more.
func TestDamagedRecordDoesNotHideTheRest(t *testing.T) {
	whole, want := written(t, someState()), someState()
	for _, damage := range []struct{ name, old, new string }{
		{"a letter", `"token":"token"`, `"token":"tokem"`},
		{"a bracket", `"token":"token"`, `"token":{token"`},
	} {
		t.Run(damage.name, func(t *testing.T) {
			dir := newDir(t)
			d := open(t, dir)
			write(t, filepath.Join(dir, "state.json"), strings.Replace(whole, damage.old, damage.new, 1))
			st, err := d.Load(t.Context())
			if ue := (*backend.UnreadableError)(nil); !errors.As(err, &ue) {
				t.Fatal(err)
			}
			if len(st.Claims) != 1 || st.Claims[0].ID != "gold" || len(st.Journal) != 1 || st.Lease == nil || st.Lease.Run != want.Lease.Run {
				t.Errorf("read %+v", st)
			}
		})
	}
}

// TestRecordIsGivenUp drops one of two damaged records. The other one keeps its bytes, and
// the file as it was is kept beside the new one.
func TestRecordIsGivenUp(t *testing.T) {
	dir := newDir(t)
	path := filepath.Join(dir, "state.json")
	d := open(t, dir)
	damaged := strings.Replace(strings.Replace(written(t, someState()), `"token":"token"`, `"token":{token"`, 1),
		`"id":"gold"`, `"id":"cold"`, 1)
	write(t, path, damaged)
	st, _ := d.Load(t.Context())
	var kept backend.Unreadable
	for {
		before := len(st.Unreadable)
		if before == 0 {
			break
		}
		kept = st.Unreadable[len(st.Unreadable)-1]
		if err := d.Repair(t.Context(), func(s *backend.State) error {
			s.Unreadable = s.Unreadable[1:]
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if before > 1 && !strings.Contains(read(t, path), string(kept.Raw)) {
			t.Errorf("record %s did not keep its bytes:\n%s", kept.Raw, read(t, path))
		}
		st, _ = d.Load(t.Context())
		if len(st.Unreadable) != before-1 {
			t.Fatalf("%d records cannot be read, there were %d", len(st.Unreadable), before)
		}
	}
	if err := d.Update(t.Context(), raiseFence); err != nil {
		t.Error(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "dropped-*.json"))
	if err != nil || !slices.ContainsFunc(files, func(f string) bool { return read(t, f) == damaged }) {
		t.Errorf("the file as it was is not in %v, %v", files, err)
	}
}

// TestFileThatIsTooLarge finds a file that no agent wrote: nothing of it is read, nothing is
// written over it, and it is not given up either, since no copy of it would be kept.
func TestFileThatIsTooLarge(t *testing.T) {
	dir := newDir(t)
	d := open(t, dir)
	file := filepath.Join(dir, "state.json")
	if d.Place() != file {
		t.Errorf("the state is in %s, want %s", d.Place(), file)
	}
	write(t, file, "{}")
	if err := os.Truncate(file, backend.MaxState+1); err != nil {
		t.Fatal(err)
	}
	_, err := d.Load(t.Context())
	for doing, err := range map[string]error{"load": err, "update": d.Update(t.Context(), raiseFence)} {
		if unreadable, ok := errors.AsType[*backend.UnreadableError](err); !ok ||
			!strings.Contains(err.Error(), strconv.Itoa(backend.MaxState+1)+" bytes") {
			t.Errorf("%s: %v, %v", doing, err, unreadable)
		}
	}
	wantError(t, d.Repair(t.Context(), func(s *backend.State) error {
		s.Unreadable = nil
		return nil
	}), statedir.Unsafe, file, "too large", "move it away")
	if err := d.Repair(t.Context(), func(*backend.State) error { return nil }); err == nil {
		t.Error("a repair that gives nothing up succeeded")
	}
	if info, err := os.Stat(file); err != nil || info.Size() != backend.MaxState+1 {
		t.Errorf("the file is %v now, %v", info, err)
	}
}

// TestDirectoryThatCannotBeMade has a file where a directory above it should be.
func TestDirectoryThatCannotBeMade(t *testing.T) {
	above := newDir(t)
	write(t, above, "a file")
	_, err := statedir.Open(filepath.Join(above, "state"))
	wantError(t, err, statedir.Unusable, above, "local disk")
	gone := newDir(t)
	d := open(t, gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	wantError(t, d.Update(t.Context(), raiseFence), statedir.Unusable, gone)
	if fresh := statedir.DefaultDir(); !filepath.IsAbs(fresh) {
		t.Errorf("an installed agent keeps its state in %q", fresh)
	}
}

func someState() backend.State {
	return backend.State{
		Fence: 7, Agent: "1.2.3",
		Lease:   &backend.Lease{Run: "run-1", Fence: 7, Since: time.Unix(100, 5).UTC(), Expires: time.Unix(160, 0).UTC()},
		Claims:  []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "vdi", Token: "token"}, {Kind: gpu.ClaimConfig, ID: "gold"}},
		Journal: []json.RawMessage{json.RawMessage(`{"id":"a"}`)},
		PendingStarts: []gpu.PendingStart{
			{VM: "AAAAAAAA-0000-0000-0000-000000000001", Name: "avd-01", Since: time.Unix(90, 0).UTC(), Subject: "a", Run: "run-0"},
		},
	}
}

// written is a state as it is in the file.
func written(t *testing.T, st backend.State) string {
	t.Helper()
	doc, err := st.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// edited replaces a text once in the first record that has it, with checksums that fit.
func edited(t *testing.T, doc, before, after string) string {
	t.Helper()
	sum := func(parts ...string) string {
		h := sha256.New()
		for _, p := range parts {
			fmt.Fprintf(h, "%d:%s\n", len(p), p)
		}
		return fmt.Sprintf("%x", h.Sum(nil)[:16])
	}
	lines := strings.Split(doc, "\n")
	for i, line := range lines {
		if i == 0 || !strings.Contains(line, before) {
			continue
		}
		comma := strings.HasSuffix(line, ",")
		line = strings.TrimSuffix(strings.Replace(line, before, after, 1), ",")
		var r struct {
			Kind    string
			Version int
			Sum     string
			Data    json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		line = strings.Replace(line, r.Sum, sum(r.Kind, strconv.Itoa(r.Version), string(r.Data)), 1)
		if comma {
			line += ","
		}
		lines[i] = line
		break
	}
	var head struct {
		Format, Agent, Sum string
		Fence              int64
	}
	if err := json.Unmarshal([]byte(lines[0]+"]}"), &head); err != nil {
		t.Fatal(err)
	}
	parts := []string{head.Format, head.Agent, strconv.FormatInt(head.Fence, 10)}
	for _, line := range lines[1 : len(lines)-2] {
		parts = append(parts, strings.TrimSuffix(line, ","))
	}
	lines[0] = strings.Replace(lines[0], head.Sum, sum(parts...), 1)
	return strings.Join(lines, "\n")
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
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
