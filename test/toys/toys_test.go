package toys_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// edit replaces a text of a file, which has it once.
type edit struct{ old, new string }

// toy is what somebody would write who adds something.
type toy struct {
	edits map[string][]edit // by file
	files map[string]string // new ones
	tests map[string]string // new files that only prove it
	run   []string          // of go test
	more  int               // files that it may touch beside most
}

// most is how many files a kind, an operation or an attribute may touch. Tests that prove it are not counted,
// nor what is generated.
const most = 8

// TestToyAttributes adds an attribute that hosts keep to each resource, in the three places that CONTRIBUTING.md names and in no list:
// a change of it alone reaches the host, and the next plan has nothing to do.
func TestToyAttributes(t *testing.T) {
	t.Parallel()
	field := "	Note string `json:\"note,omitempty\"`\n"
	attribute := "			\"note\": optional.Text(\"A note.\"),\n"
	model := "	Note types.String `tfsdk:\"note\"`\n"
	y := toy{
		edits: map[string][]edit{
			"internal/gpu/wanted.go": {
				{"type PartitionConfig struct {\n", "type PartitionConfig struct {\n" + field},
				{"type PoolConfig struct {\n", "type PoolConfig struct {\n" + field},
				{"type Assignment struct {\n", "type Assignment struct {\n" + field},
			},
			"internal/gpu/share.go": {{"type Share struct {\n", "type Share struct {\n" + field}},
		},
		tests: map[string]string{},
		run:   []string{"-run", "TestNote|TestEveryResourceIsOnTheFastPath|TestAnswersToAnything", "./internal/provider"},
		more:  2, // there are four resources, with two files each
	}
	for _, of := range []struct{ pkg, schema, list, decodes, proved string }{
		{
			"partitionconfig", "schema.go", "			\"hosts\": ", "	c := gpu.PartitionConfig{",
			noteProved("partitionconfig", `rig.Standalone(rig.Node("hv01"))`, "hv01", "ClaimConfig", "Config", `resource "gpu_partition_config" "a" {
  name  = "a"
  hosts = ["hv01"]
  gpu_p = { partition_count = 4 }
`),
		},
		{
			"pool", "resource.go", "			\"members\": ", "	c := gpu.PoolConfig{",
			noteProved("pool", `rig.Inference(1)`, "gpu01", "ClaimPool", "Pool", `resource "gpu_pool" "a" {
  name  = "a"
  hosts = ["gpu01"]
`),
		},
		{
			"vmassignment", "schema.go", "			\"hosts\": ", "	a := gpu.Assignment{",
			noteProved("vmassignment", `rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1)))`, "hv01",
				"ClaimAssignment", "Assignment", `resource "gpu_vm_assignment" "a" {
  vm        = "avd-01"
  partition = {}
  power     = { allow_shutdown = true }
`),
		},
		{
			"share", "schema.go", "		\"pool\": ", "	s := gpu.Share{",
			noteProved("share", `rig.Inference(1)`, "gpu01", "ClaimShare", "Share", `resource "gpu_share" "a" {
  name = "a"
  host = "gpu01"
`),
		},
	} {
		dir := "internal/provider/" + of.pkg + "/"
		y.edits[dir+of.schema] = append(y.edits[dir+of.schema], edit{of.list, attribute + of.list})
		y.edits[dir+"model.go"] = []edit{
			{"type model struct {\n", "type model struct {\n" + model}, {of.decodes, of.decodes + "Note: m.Note.ValueString(), "},
		}
		y.tests[dir+"note_test.go"] = of.proved
		y.run = append(y.run, "./"+strings.TrimSuffix(dir, "/"))
	}
	y.prove(t)
}

// TestAToyKind adds a kind of layout: GPUs in halves. It can be planned, applied, seen to drift
// and mended.
func TestAToyKind(t *testing.T) {
	t.Parallel()
	toy{
		edits: map[string][]edit{
			"internal/gpu/wanted.go": {
				{"	KindTimeSlicing Kind = \"time_slicing\"\n", "	KindTimeSlicing Kind = \"time_slicing\"\n	KindHalves Kind = \"halves\"\n"},
				{"KindMPS, KindTimeSlicing} }", "KindMPS, KindTimeSlicing, KindHalves} }"},
				{"	case KindGPUP:\n", "	case KindGPUP, KindHalves:\n"},
			},
			"internal/gpu/layout.go":  {{"	case KindGPUP:\n", "	case KindGPUP, KindHalves:\n"}},
			"internal/change/kind.go": {{"	gpu.KindGPUP: kindGPUP,", "	gpu.KindHalves: kindHalves, gpu.KindGPUP: kindGPUP,"}},
			"internal/provider/partitionconfig/kinds.go": {
				{"mpsKind, timeSlicingKind}", "mpsKind, timeSlicingKind, halvesKind}"},
			},
			"internal/provider/partitionconfig/model.go": {
				{"	QuiesceUnits     types.Set ", "	Halves types.Object `tfsdk:\"halves\"`\n	QuiesceUnits     types.Set "},
				{"&m.MPS, &m.TimeSlicing}", "&m.MPS, &m.TimeSlicing, &m.Halves}"},
			},
		},
		files: map[string]string{
			"internal/change/kind_halves.go": kindInChange, "internal/provider/partitionconfig/kind_halves.go": kindInProvider,
		},
		tests: map[string]string{"internal/provider/partitionconfig/halves_test.go": kindProved},
		run:   []string{"-run", "TestHalves|NothingOfAKindIsMissing", "./internal/change", "./internal/provider/partitionconfig"},
	}.prove(t)
}

// TestAToyOperation adds an operation: a GPU is opened to all processes.
func TestAToyOperation(t *testing.T) {
	t.Parallel()
	toy{
		edits: map[string][]edit{
			"internal/change/step.go": {
				{"	OpSetTimeSlice      Op = \"set_time_slice\"\n", "	OpSetTimeSlice      Op = \"set_time_slice\"\n	OpOpenGPU Op = \"open_gpu\"\n"},
			},
			"internal/change/op_share.go": {{"var sharingRows = map[Op]row{\n", "var sharingRows = map[Op]row{\n" + operationsRow}},
			"internal/agent/run_share.go": {
				{
					"	change.OpSetComputeMode:",
					"	change.OpOpenGPU: func(ctx context.Context, host backend.Sharing, s change.Step) error { return host.SetComputeMode(ctx, s.GPU, " +
						"\"default\") },\n	change.OpSetComputeMode:",
				},
			},
		},
		tests: map[string]string{"internal/change/toy_test.go": operationProved},
		run:   []string{"-run", "TestNoCellIsEmpty|TestOpenGPU|TestEveryOpRuns", "./internal/change", "./internal/agent"},
	}.prove(t)
}

// prove builds the tree with the toy and runs its tests.
func (y toy) prove(t *testing.T) {
	t.Helper()
	touched := slices.Sorted(maps.Keys(y.edits))
	touched = append(touched, slices.Sorted(maps.Keys(y.files))...)
	t.Logf("touches %d files: %s", len(touched), strings.Join(touched, ", "))
	if len(touched) > most+y.more {
		t.Errorf("that is more than %d", most+y.more)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, replace := t.TempDir(), map[string]string{}
	write := func(file, text string) {
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = at
	}
	for file, edits := range y.edits {
		raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		for _, e := range edits {
			if n := strings.Count(text, e.old); n != 1 {
				t.Fatalf("%s has %q %d times: say here how the toy is added now", file, e.old, n)
			}
			text = strings.Replace(text, e.old, e.new, 1)
		}
		write(file, text)
	}
	for _, files := range []map[string]string{y.files, y.tests} {
		for file, text := range files {
			write(file, text)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go",
		append([]string{"test", "-short", "-count=1", "-timeout=10m", "-vet=off", "-overlay", list}, y.run...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "no tests to run") {
		t.Errorf("%v\n%s", err, out)
	}
}
