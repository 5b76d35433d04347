package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

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

// TestTables finds every rule and class of disruption in what people read, and
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

var anEmpty = regexp.MustCompile("(?:`\\[\\]`|`\\{\\}`)[^.;]+")

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

// The strict reader of fleet files and the schema have the same fields, but for those of records that nobody writes by hand.
func TestFleetSchema(t *testing.T) {
	raw, err := fleetSchema()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), " nil") {
		t.Error("the schema speaks of nil")
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaID, doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(schemaID)
	if err != nil {
		t.Fatal(err)
	}
	files, seen := []string{}, 0
	for _, pattern := range []string{"examples/*/fleet.json", "examples/testdata/*/fleet.json", "modules/*/tests/fleet.json"} {
		found, _ := filepath.Glob(filepath.Join(root(), pattern))
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fleet, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(fleet); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		// A field that the reader of fleet files does not know, at whatever level, is none of the schema's.
		misspelt(fleet, func() {
			seen++
			if schema.Validate(fleet) == nil {
				t.Errorf("%s: a field that nobody knows is valid", file)
			}
		})
	}
	if len(files) < 10 || seen < 100 {
		t.Errorf("only %d files and %d objects were looked at", len(files), seen)
	}
	visited, defs := map[reflect.Type]bool{}, doc.(map[string]any)["$defs"].(map[string]any) //nolint:forcetypeassert // compiled
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
			if def := defs[of.Name()]; name != "" && name != "-" && def != nil && properties(def)[name] == nil {
				t.Errorf("field %s of a %s is not in the schema", name, of.Name())
			}
			if of != reflect.TypeFor[gpu.Host]() || !slices.Contains(byProvider, name) {
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[gpu.Snapshot]())
}

// misspelt adds a field to each object that has fields of ours in turn, and takes it away again. In maps any name is one.
func misspelt(v any, try func()) {
	switch of := v.(type) {
	case map[string]any:
		if of["id"] != nil || of["name"] != nil || of["format"] != nil {
			of["nobody_knows"] = "this"
			try()
			delete(of, "nobody_knows")
		}
		for _, inner := range of {
			misspelt(inner, try)
		}
	case []any:
		for _, inner := range of {
			misspelt(inner, try)
		}
	}
}

// What a page links to is there.
func TestLinks(t *testing.T) {
	link, seen := regexp.MustCompile(`\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)`), 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md", "test/*/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range link.FindAllSubmatch(text, -1) {
				seen++
				if _, err := os.Stat(filepath.Join(filepath.Dir(page), filepath.FromSlash(string(to[1])))); err != nil {
					t.Errorf("%s links to %s, which is not there", page, to[1])
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d links were looked at", seen)
	}
}

// Each page of the table is there, and each page has a shelf.
func TestShelves(t *testing.T) {
	seen := map[string]int{}
	for page, shelf := range shelves {
		if _, err := os.Stat(filepath.Join(root(), "docs", filepath.FromSlash(page)+".md")); err != nil {
			t.Error(err)
		}
		text, _ := os.ReadFile(filepath.Join(root(), "docs", filepath.FromSlash(page)+".md"))
		if !strings.Contains(string(text), "subcategory: \""+shelf+"\"\n") {
			t.Errorf("%s is not in %q", page, shelf)
		}
		seen[shelf]++
	}
	if len(seen) < 6 {
		t.Errorf("the shelves are %v", seen)
	}
}

func TestReferenceTables(t *testing.T) {
	for name, want := range map[string][]string{
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
