package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/assumptions"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

func TestFill(t *testing.T) {
	got, err := fill("before\n<!-- table: models -->\nafter\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "before\n" + modelsTable() + "after\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := fill("<!-- table: unknown -->\n"); err == nil {
		t.Error("an unknown table was accepted")
	}
}

// TestTables finds every rule, class of disruption and assumption in what people read, and
// each source under the name of who wrote it.
func TestTables(t *testing.T) {
	rows := func(mark string) map[string]string {
		text, err := fill("<!-- table: " + mark + " -->\n")
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for line := range strings.Lines(text) {
			if first, rest, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
				out[first] = rest
			}
		}
		return out
	}
	shown := rows("rules")
	for _, r := range rules.All() {
		row, ok := shown["`"+r.ID+"`"]
		if !ok || !strings.Contains(strings.ReplaceAll(row, `\|`, "|"), r.Sentence) || !strings.Contains(row, r.Source) {
			t.Errorf("rule %s is shown as %q", r.ID, row)
		}
		if fixed := strings.Contains(row, "; no level lifts"); fixed != (r.Fixed || slices.Contains(change.RefusedAnyway(), r.ID)) {
			t.Errorf("that rule %s can be lifted is shown otherwise: %q", r.ID, row)
		}
		for host, name := range map[string]string{
			"microsoft.com": "[Microsoft]", "nvidia.com": "[NVIDIA]", "container-device-interface": "[CDI]",
		} {
			if strings.Contains(r.Source, host) != strings.Contains(row, name) {
				t.Errorf("the source of rule %s is shown in %q", r.ID, row)
			}
		}
	}
	if n := len(rows("disruption")); n != len(rules.DisruptionTable())+2 {
		t.Errorf("%d rows for %d changes", n, len(rules.DisruptionTable()))
	}
	for mark, all := range map[string][]assumptions.Assumption{
		"assumptions hyperv": assumptions.Of("hyperv"), "assumptions linux": assumptions.Of("linux"),
	} {
		shown := rows(mark)
		for _, a := range all {
			if row, ok := shown["`"+a.ID+"`"]; !ok || !strings.Contains(strings.ReplaceAll(row, `\|`, "|"), a.Says) ||
				strings.Contains(row, "`selftest`") != a.Asked {
				t.Errorf("assumption %s is shown as %q", a.ID, row)
			}
		}
	}
}

// TestStage writes the pages and the schema, with every table filled in.
func TestStage(t *testing.T) {
	out := t.TempDir()
	if err := run(t.Context(), filepath.Join("..", "..", "templates"), out); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, "templates", "guides", "rules.md.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(page), opening) || !strings.Contains(string(page), "`capacity`") {
		t.Errorf("the page of rules has no table:\n%s", page)
	}
	if schema, err := os.ReadFile(filepath.Join(out, "schema.json")); err != nil || !json.Valid(schema) {
		t.Errorf("the schema is no JSON: %v", err)
	}
	if err := run(t.Context(), filepath.Join(out, "nowhere"), out); err == nil {
		t.Error("templates that are not there were accepted")
	}
}

// parsed is what the tests look at in the schema file.
type parsed struct {
	Providers map[string]struct {
		Provider    parsedSchema            `json:"provider"`
		Resources   map[string]parsedSchema `json:"resource_schemas"`
		DataSources map[string]parsedSchema `json:"data_source_schemas"`
		Identities  map[string]any          `json:"resource_identity_schemas"`
		Actions     map[string]parsedSchema `json:"action_schemas"`
		Functions   map[string]struct {
			Summary     string `json:"summary"`
			Description string `json:"description"`
			Parameters  []struct {
				Name        string `json:"name"`
				Description string `json:"description"`
			} `json:"parameters"`
		} `json:"functions"`
	} `json:"provider_schemas"`
}

type parsedSchema struct {
	Block struct {
		Description string                     `json:"description"`
		Attributes  map[string]parsedAttribute `json:"attributes"`
	} `json:"block"`
}

type parsedAttribute struct {
	Description string          `json:"description"`
	Type        json.RawMessage `json:"type"`
	Required    bool            `json:"required"`
	Optional    bool            `json:"optional"`
	Nested      struct {
		Mode       string                     `json:"nesting_mode"`
		Attributes map[string]parsedAttribute `json:"attributes"`
	} `json:"nested_type"`
}

func readSchema(t *testing.T) parsed {
	t.Helper()
	data, err := schemaJSON(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var p parsed
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEverythingIsDescribed(t *testing.T) {
	ours := readSchema(t).Providers["gpu"]
	check := func(name string, s parsedSchema) {
		if s.Block.Description == "" {
			t.Errorf("%s has no description", name)
		}
		described(t, name, s.Block.Attributes)
	}
	check("provider", ours.Provider)
	for name, s := range ours.Resources {
		check("resource "+name, s)
	}
	for name, s := range ours.DataSources {
		check("data source "+name, s)
	}
	for name, s := range ours.Actions {
		check("action "+name, s)
	}
	if len(ours.Functions) == 0 {
		t.Error("there are no functions")
	}
	for name, f := range ours.Functions {
		if f.Summary == "" || f.Description == "" || len(f.Parameters) == 0 {
			t.Errorf("function %s has no summary, description or parameters", name)
		}
		for _, p := range f.Parameters {
			if p.Description == "" {
				t.Errorf("function %s: %s has no description", name, p.Name)
			}
		}
	}
}

// What an empty list, set or map says is written of each that a configuration may set.
func TestEmptyListsAreDescribed(t *testing.T) {
	ours := readSchema(t).Providers["gpu"]
	var look func(at string, attributes map[string]parsedAttribute)
	look = func(at string, attributes map[string]parsedAttribute) {
		for name, a := range attributes {
			of, _, _ := strings.Cut(strings.TrimPrefix(string(a.Type), `["`), `"`)
			several := []string{"list", "set", "map"}
			if (a.Required || a.Optional) && (slices.Contains(several, of) || slices.Contains(several, a.Nested.Mode)) &&
				!anEmpty.MatchString(a.Description) {
				t.Errorf("%s.%s does not say what an empty one is: %s", at, name, a.Description)
			}
			look(at+"."+name, a.Nested.Attributes)
		}
	}
	look("provider", ours.Provider.Block.Attributes)
	for _, of := range []map[string]parsedSchema{ours.Resources, ours.DataSources, ours.Actions} {
		for name, s := range of {
			look(name, s.Block.Attributes)
		}
	}
}

func TestModelsTableIsAboutHyperV(t *testing.T) {
	models, mig := modelsTable(), migTable()
	for name, want := range map[string][2]bool{
		"NVIDIA A2": {true, false}, "NVIDIA B200": {false, true}, "NVIDIA H100 NVL": {true, true},
	} {
		row := "| " + name + " |"
		if got := [2]bool{strings.Contains(models, row), strings.Contains(mig, row)}; got != want {
			t.Errorf("%s is in the tables of Hyper-V and MIG: %v, want %v", name, got, want)
		}
	}
}

func described(t *testing.T, at string, attributes map[string]parsedAttribute) {
	t.Helper()
	for name, a := range attributes {
		// The library that makes the timeouts attribute describes only what is in it.
		if a.Description == "" && name != "timeouts" {
			t.Errorf("%s: %s has no description", at, name)
		}
		described(t, at+"."+name, a.Nested.Attributes)
	}
}

func TestEverythingHasExamples(t *testing.T) {
	ours := readSchema(t).Providers["gpu"]
	var wanted []string
	for _, name := range slices.Sorted(maps.Keys(ours.Resources)) {
		for _, file := range []string{"resource.tf", "import.sh", "import-by-string-id.tf", "import-by-identity.tf"} {
			wanted = append(wanted, filepath.Join("resources", name, file))
		}
		if ours.Identities[name] == nil {
			t.Errorf("resource %s has no identity", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ours.DataSources)) {
		wanted = append(wanted, filepath.Join("data-sources", name, "data-source.tf"))
	}
	for _, name := range slices.Sorted(maps.Keys(ours.Actions)) {
		wanted = append(wanted, filepath.Join("actions", name, "action.tf"))
	}
	for _, name := range slices.Sorted(maps.Keys(ours.Functions)) {
		wanted = append(wanted, filepath.Join("functions", name, "function.tf"))
	}
	for _, file := range wanted {
		if _, err := os.Stat(filepath.Join("..", "..", "examples", file)); err != nil {
			t.Errorf("there is no example: %v", err)
		}
	}
}

// TestDescriptionsAreShort: a line of a page is read at a glance, or not at all.
func TestDescriptionsAreShort(t *testing.T) {
	const most = 60
	seen := 0
	err := eachAttribute(func(page, path, description string) {
		for line := range strings.Lines(description) {
			seen++
			if n := len(strings.Fields(line)); n > most {
				t.Errorf("%s: %s: %d words: %s", page, path, n, line)
			}
		}
	})
	if err != nil || seen < 400 {
		t.Fatalf("%d lines: %v", seen, err)
	}
}

// TestFleetFileIsListed finds every field that the strict reader of fleet files takes in the
// page, but for those of records that nobody writes by hand.
func TestFleetFileIsListed(t *testing.T) {
	text, seen := fleetFileTables(), 0
	visited := map[reflect.Type]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[gpu.Host]().PkgPath() || visited[of] {
			return
		}
		visited[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" {
				seen++
				if !strings.Contains(text, "| `"+name+"` | ") {
					t.Errorf("field %s of a %s is not listed", name, of.Name())
				}
			}
			if of != reflect.TypeFor[gpu.Host]() || !slices.Contains(byProvider, name) {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[gpu.Snapshot]())
	if seen < 150 {
		t.Errorf("only %d fields were looked for", seen)
	}
	if strings.Contains(text, " nil") {
		t.Error("the page speaks of nil")
	}
}

func TestReferenceTables(t *testing.T) {
	for name, want := range map[string][]string{
		"defaults": {
			"| `provider` | `max_parallel_hosts` | `32` |", "| `gpu_partition_config` | `max_disruption` | `none` |",
			"| `gpu_pool` | `on_destroy` | `keep` |", "| `provider` | `hosts.ssh.port` | that of `~/.ssh/config`",
		},
		"empty": {
			"| `gpu_partition_config` | `hosts` | `[]` beside `cluster` is none |",
			"| `gpu_partition_config` | `selector.models` | `[]` is refused |",
			"| `gpu_partition_config` | `quiesce_units` | `[]` is none |", "| `provider` | `maintenance_window.days` | `[]` is refused |",
		},
		"environment": {
			provider.EnvSimulatedFleet, provider.EnvInventorySnapshot, provider.EnvReadOnly, provider.EnvPlanReport, provider.EnvSSHUser,
			provider.EnvSSHPrivateKey, provider.EnvSSHPassword,
		},
		"imports": {
			"| `gpu_partition_config` | `hv01,hv02` |", "| `gpu_pool` | `hv01/render` |", "| `gpu_share` |",
			"| `gpu_vm_assignment` | `hv01/avd-01` |",
		},
	} {
		text := tables[name]()
		for _, row := range want {
			if !strings.Contains(text, row) {
				t.Errorf("table %s lacks %s:\n%s", name, row, text)
			}
		}
	}
}
