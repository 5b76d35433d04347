package simulated_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestOpenSaysWhatIsWrong(t *testing.T) {
	const host = `{"name":"hv01","platform":"hyperv","os":{"name":"x"},"policies":{},"gpus":[],"vms":[],"pools":[]`
	tests := []struct {
		name, content string
		want          []string
	}{
		{"empty", "", []string{"unexpected end of JSON input"}},
		{"cut off", "{\n  \"format\": \"gpu-fleet/v1\",\n  \"hosts\": [", []string{"line 3", "unexpected end"}},
		{"a comma too many", "{\n \"format\": \"gpu-fleet/v1\",\n \"hosts\": [],\n}", []string{"line 4, column 1", "invalid character"}},
		{"not an object", "[]", []string{"cannot unmarshal array"}},
		{"a number as a name", "{\n \"format\": \"gpu-fleet/v1\",\n \"hosts\": [\n  {\"name\": 7}]}", []string{"line 4", "name"}},
		{"hosts that are no list", "{\"format\": \"gpu-fleet/v1\",\n\"hosts\": {}}", []string{"line 2", "hosts"}},
		{"another format", `{"format":"gpu-fleet/v9","hosts":[]}`, []string{`"gpu-fleet/v9"`, `"gpu-fleet/v1"`}},
		{"no format", `{"hosts":[]}`, []string{"format"}},
		{"no hosts", `{"format":"gpu-fleet/v1"}`, []string{"no hosts"}},
		{"two hosts of a name", `{"format":"gpu-fleet/v1","hosts":[` + host + `},` + host + `}]}`, []string{`"hv01"`}},
		{
			"an operation that does not exist", `{"format":"gpu-fleet/v1","hosts":[` + host + `,"simulation":{"faults":[{"op":"fly"}]}}]}`,
			[]string{`"hv01"`, `"fly"`},
		},
		{
			"a moment that does not exist",
			`{"format":"gpu-fleet/v1","hosts":[` + host + `,"simulation":{"faults":[{"op":"start_vm","moment":"never"}]}}]}`,
			[]string{"before_effect", "never"},
		},
		{
			"a start failure that does not exist",
			`{"format":"gpu-fleet/v1","hosts":[` + host + `,"simulation":{"guests":{"x":{"start_fails":"often"}}}}]}`,
			[]string{"with_gpu", "often"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "fleet.json")
			write(t, path, test.content)
			_, err := others.Open(path)
			bad, ok := errors.AsType[*simulated.FileError](err)
			if !ok {
				t.Fatalf("got %v, want a FileError", err)
			}
			if bad.Path != path {
				t.Errorf("the error is about %q", bad.Path)
			}
			for _, word := range append(test.want, path) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the error does not say %q: %v", word, err)
				}
			}
		})
	}
}

func TestOpenMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nowhere.json")
	_, err := others.Open(path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening made a file: %v", err)
	}
}

func TestHostIsFoundWithoutCase(t *testing.T) {
	fleet := newFleet(t, 1)
	if got := hostOf(t, fleet, "HV01").Name(); got != "hv01" {
		t.Errorf("the host is called %q", got)
	}
	if _, err := fleet.Host("hv99"); err == nil || !strings.Contains(err.Error(), "hv99") {
		t.Errorf("a host that is not there: %v", err)
	}
	if got := strings.Join(fleet.Hosts(), " "); got != "hv01 hv02" {
		t.Errorf("the hosts are %s", got)
	}
}

// A change of a host must cost neither an editor's own fields nor the shape of the
// hosts that it does not concern.
func TestAChangeLeavesOtherHostsAsTheyAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.json")
	const other = `{"name": "hv02",   "platform":"hyperv", "os": {"name":"x"}, "policies":{}, "gpus":[], "vms":[], "pools":[]}`
	write(t, path, `{
  "format": "gpu-fleet/v1",
  "hosts": [
    {"name": "hv01", "platform": "hyperv", "os": {"name": "x"}, "policies": {}, "gpus": [],
     "vms": [{"id": "`+vmID(1)+`", "name": "vm-1", "state": "off", "generation": 2, "settings": {}}], "pools": []},
    `+other+`
  ]
}`)
	fleet, err := others.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	run(t, hostOf(t, fleet, "hv01").StartVM(t.Context(), vmID(1)))
	got := read(t, path)
	for _, want := range []string{other, `"state": "running"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the file has no %s:\n%s", want, got)
		}
	}
	again, err := others.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := state(t, again, "hv01", vmID(1)); got != gpu.VMRunning {
		t.Errorf("the VM is %s", got)
	}
}

func TestNoChangeWritesNothing(t *testing.T) {
	fleet := newFleet(t, 1)
	host := hostOf(t, fleet, "hv01")
	run(t, host.SetPartitionCount(t.Context(), gpu1, 8)) // from here on the file is in our own form
	before, err := os.Stat(fleet.Path())
	run(t, err, host.SetPartitionCount(t.Context(), gpu1, 8), host.TurnOffVM(t.Context(), vmID(1)),
		host.Update(t.Context(), func(*backend.State) error { return nil }))
	wantCode(t, host.SetPartitionCount(t.Context(), gpu1, 3), backend.InvalidParameter)
	after, err := os.Stat(fleet.Path())
	run(t, err)
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Error("the file was written though nothing changed")
	}
}

// A fleet is a file of somebody's repository: nothing that is not in it stays beside it.
func TestNothingStaysBesideTheFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that others wait for cannot be removed there")
	}
	fleet := newFleet(t, 1)
	inventory(t, fleet, "hv01")
	run(t, hostOf(t, fleet, "hv01").SetPartitionCount(t.Context(), gpu1, 8))
	wantCode(t, hostOf(t, fleet, "hv01").SetPartitionCount(t.Context(), gpu1, 3), backend.InvalidParameter)
	files, err := os.ReadDir(filepath.Dir(fleet.Path()))
	if err != nil || len(files) != 1 {
		t.Errorf("beside the fleet are %v (%v)", files, err)
	}
}

func TestFileThatCannotBeLockedIsReadOnly(t *testing.T) {
	fleet := newFleet(t, 1)
	// A directory in place of the lock file is what even root cannot open as one.
	lock := fleet.Path() + ".lock"
	if err := os.Remove(lock); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	run(t, os.Mkdir(lock, 0o700))
	fleet, err := others.Open(fleet.Path())
	if err != nil {
		t.Fatal(err)
	}
	if got := len(inventory(t, fleet, "hv01").GPUs); got != 2 {
		t.Errorf("there are %d GPUs", got)
	}
	err = hostOf(t, fleet, "hv01").SetPartitionCount(t.Context(), gpu1, 8)
	wantCode(t, err, backend.Unavailable)
	if err != nil && !strings.Contains(err.Error(), "cannot be locked") {
		t.Errorf("the error does not say why: %v", err)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere; run this test as another user")
	}
	fleet := newFleet(t, 1)
	dir := filepath.Dir(fleet.Path())
	run(t, os.RemoveAll(fleet.Path()+".lock"), os.Chmod(dir, 0o500))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if got := len(inventory(t, fleet, "hv01").GPUs); got != 2 {
		t.Errorf("there are %d GPUs", got)
	}
	wantCode(t, hostOf(t, fleet, "hv01").SetPartitionCount(t.Context(), gpu1, 8), backend.Unavailable)
}

func TestLinkedFile(t *testing.T) {
	fleet := newFleet(t, 1)
	link := filepath.Join(t.TempDir(), "link.json")
	if err := os.Symlink(fleet.Path(), link); err != nil {
		t.Skipf("no link can be made here (%v); run the tests on Linux or macOS to include this one", err)
	}
	linked, err := others.Open(link)
	if err != nil {
		t.Fatal(err)
	}
	run(t, hostOf(t, linked, "hv01").SetPartitionCount(t.Context(), gpu1, 8))
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info.Mode(), err)
	}
	if got := inventory(t, fleet, "hv01").GPUs[0].Partitionable.Count; got != 8 {
		t.Errorf("the file behind the link has count %d", got)
	}
}

// TestLeftoversAreRemoved has the next writer remove the temporary files of processes that
// were killed while they wrote, and nothing else.
func TestLeftoversAreRemoved(t *testing.T) {
	fleet := newFleet(t, 1)
	path := fleet.Path()
	dir := filepath.Dir(path)
	for _, name := range []string{
		"." + filepath.Base(path) + "123456", ".fleet.json7", ".fleet.json.swp", ".fleet.json7x", "fleet.json8", ".other.json9",
	} {
		write(t, filepath.Join(dir, name), "{")
	}
	inventory(t, fleet, "hv01")
	if _, err := os.Stat(filepath.Join(dir, ".fleet.json7")); err != nil {
		t.Errorf("a reader removed it: %v", err)
	}
	run(t, hostOf(t, fleet, "hv01").StartVM(t.Context(), vmID(1)))
	files, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, f := range files {
		left = append(left, filepath.Base(f))
	}
	if want := []string{".fleet.json.swp", ".fleet.json7x", ".other.json9"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "fleet.json8")); err != nil {
		t.Error(err)
	}
}

// Every call sees what others wrote a moment ago, even when the file has the same
// size and its time stamp is too coarse to tell.
func TestReadIsNeverStale(t *testing.T) {
	fleet := newFleet(t, 1)
	info, err := os.Stat(fleet.Path())
	run(t, err)
	for range 20 {
		for _, name := range []string{"vm-1", "vm-2", "vm-3"} {
			content := read(t, fleet.Path())
			for _, old := range []string{"vm-1", "vm-2", "vm-3"} {
				content = strings.ReplaceAll(content, `"`+old+`"`, `"`+name+`"`)
			}
			write(t, fleet.Path(), content) // in place: the same file, the same size
			run(t, os.Chtimes(fleet.Path(), info.ModTime(), info.ModTime()))
			if got := inventory(t, fleet, "hv01").VMs[0].Name; got != name {
				t.Fatalf("the VM is called %s, want %s", got, name)
			}
		}
	}
}

// The file that this process wrote last is known without being read. What others write right
// after it is seen all the same: in place with the same size, or as a new file.
func TestWhatOthersWriteAfterUsIsSeen(t *testing.T) {
	fleet := newFleet(t, 1)
	host := hostOf(t, fleet, "hv01")
	for round := range 50 {
		count := []int{4, 8}[round%2]
		run(t, host.SetPartitionCount(t.Context(), gpu1, count))
		if got := inventory(t, fleet, "hv01").GPUs[0].Partitionable.Count; got != count {
			t.Fatalf("the count is %d, want the %d that was just set", got, count)
		}
		content := read(t, fleet.Path())
		name := []string{"vm-a", "vm-b"}[round%2]
		for _, old := range []string{"vm-1", "vm-a", "vm-b"} {
			content = strings.ReplaceAll(content, `"`+old+`"`, `"`+name+`"`)
		}
		write(t, fleet.Path(), content)
		if got := inventory(t, fleet, "hv01").VMs[0].Name; got != name {
			t.Fatalf("the VM is called %s, want %s, which was written in place", got, name)
		}
		run(t, host.SetPartitionCount(t.Context(), gpu2, count))
		other, err := simulated.Open(fleet.Path())
		run(t, err)
		its, err := other.Host("hv01")
		run(t, err, its.SetPartitionCount(t.Context(), gpu1, 2))
		if got := inventory(t, fleet, "hv01").GPUs[0].Partitionable.Count; got != 2 {
			t.Fatalf("the count is %d, want the 2 of another process", got)
		}
	}
}

func TestBrokenFileIsAnUnavailableHost(t *testing.T) {
	fleet := newFleet(t, 1)
	host := hostOf(t, fleet, "hv01")
	good := read(t, fleet.Path())
	write(t, fleet.Path(), "{")
	_, err := host.Inventory(t.Context())
	wantCode(t, err, backend.Unavailable)
	wantCode(t, host.StartVM(t.Context(), vmID(1)), backend.Unavailable)
	if got := read(t, fleet.Path()); got != "{" {
		t.Errorf("the broken file was touched: %q", got)
	}
	write(t, fleet.Path(), good)
	run(t, host.StartVM(t.Context(), vmID(1)))
}

func TestHostThatLeftTheFile(t *testing.T) {
	fleet := newFleet(t, 1)
	host := hostOf(t, fleet, "hv02")
	run(t, fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts = s.Hosts[:1]
		return nil
	}))
	_, err := host.Inventory(t.Context())
	wantCode(t, err, backend.Unavailable)
	wantCode(t, host.SetPartitionCount(t.Context(), gpu1, 8), backend.Unavailable)
}

func TestEditThatMakesTheFileInvalidIsRefused(t *testing.T) {
	fleet := newFleet(t, 1)
	before := read(t, fleet.Path())
	err := fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts[1].Name = "HV01"
		return nil
	})
	if _, ok := errors.AsType[*simulated.FileError](err); !ok {
		t.Errorf("got %v, want a FileError", err)
	}
	if read(t, fleet.Path()) != before {
		t.Error("the file was changed")
	}
}

// What is misspelt at any level would be lost at the next write, so that nothing is read.
func TestUnknownFieldsAreRefusedAtEveryLevel(t *testing.T) {
	for path, text := range map[string]string{
		`"comment"`: `{"format":"gpu-fleet/v1","comment":1,"hosts":[{"name":"a","platform":"hyperv"}]}`,
		`"rack"`:    `{"format":"gpu-fleet/v1","hosts":[{"name":"a","platform":"hyperv","rack":7}]}`,
		`"gpus[0].partitonable"`: `{"format":"gpu-fleet/v1","hosts":[{"name":"a","platform":"hyperv","gpus":[{"id":"x",` +
			`"partitonable":{}}]}]}`,
		`"vms[1].dynamic_memori"`: `{"format":"gpu-fleet/v1","hosts":[{"name":"a","platform":"hyperv","vms":[{"id":"1","name":"v"},` +
			`{"id":"2","name":"w","dynamic_memori":true}]}]}`,
		`"simulation.faults[0].tims"`: `{"format":"gpu-fleet/v1","hosts":[{"name":"a","platform":"hyperv",` +
			`"simulation":{"faults":[{"op":"start_vm","tims":1}]}}]}`,
	} {
		file := filepath.Join(t.TempDir(), "fleet.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := others.Open(file)
		if err == nil {
			_, err = f.Snapshot(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), "unknown field "+path) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", path, err)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("the file is now %s, %v", now, err)
		}
	}
}

// An editor's schema is not the provider's business, and stays in the file.
func TestASchemaStaysInAFleetFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "fleet.json")
	const line = `"$schema": "https://example.com/fleet.schema.json"`
	text := "{" + line + `,"format":"gpu-fleet/v1","hosts":[{"name":"hv01","platform":"hyperv"}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := others.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.AddGPU(t.Context(), "hv01", a2(gpu1)); err != nil {
		t.Fatal(err)
	}
	if now := read(t, file); !strings.Contains(now, line) || !strings.Contains(now, gpu1) {
		t.Errorf("the file is now %s", now)
	}
}

// A role that nobody knows would guard nothing, in silence.
func TestControllersOfAFleetFileHaveARole(t *testing.T) {
	t.Parallel()
	for name, controller := range map[string]string{
		"another case": `{"name":"nvidia-mig-manager","role":"Layout"}`, "another word": `{"name":"acme","role":"boss"}`,
		"no name": `{"name":"","role":"layout"}`,
	} {
		file := filepath.Join(t.TempDir(), "fleet.json")
		text := `{"format":"gpu-fleet/v1","hosts":[{"name":"gpu01","platform":"linux","gpus":[],"vms":[],"pools":[],"controllers":[` +
			controller + `]}]}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := simulated.Open(file); err == nil || !strings.Contains(err.Error(), `one of the roles ["layout" "consumer" "broker"]`) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
