package lint_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/lint"
)

// write makes a folder with these files.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// found are the findings as "file:line rule name>meant".
func found(t testing.TB, dir string) []string {
	t.Helper()
	checked, err := lint.Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range checked.Findings {
		file, err := filepath.Rel(dir, f.Range.Filename)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%s:%d %s %s", filepath.ToSlash(file), f.Range.Start.Line, f.Rule, f.Name)
		if len(f.Meant) > 0 {
			text += ">" + f.Meant[0]
			if !strings.Contains(f.Message, fmt.Sprintf("%q", f.Meant[0])) {
				t.Errorf("the message does not offer %q: %s", f.Meant[0], f.Message)
			}
		}
		out = append(out, strings.TrimSpace(text))
	}
	return out
}

func TestCheck(t *testing.T) {
	t.Parallel()
	pool := func(arguments string) map[string]string {
		return map[string]string{"main.tf": "resource \"gpu_pool\" \"p\" {\n  name = \"p\"\n  hosts = [\"a\"]\n" + arguments + "\n}\n"}
	}
	with := func(files map[string]string, more ...string) map[string]string {
		for i := 0; i < len(more); i += 2 {
			files[more[i]] += more[i+1]
		}
		return files
	}
	for name, x := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"all names are right": {pool(`selector = { gpu_ids = { a = ["x"] }, "models" = ["m"] }`), nil},
		"one is not":          {pool(`selector = { gpu_id = { a = ["x"] } }`), []string{"main.tf:4 dropped-name gpu_id>gpu_ids"}},
		"beside a good one":   {pool("selector = {\n models = []\n gpu_id = {} }"), []string{"main.tf:6 dropped-name gpu_id>gpu_ids"}},
		"quoted":              {pool(`selector = { "model" : ["m"] }`), []string{"main.tf:4 dropped-name model>models"}},
		"like nothing":        {pool(`selector = { zzz = 1 }`), []string{"main.tf:4 dropped-name zzz"}},
		"in a map":            {pool(`quotas = { team-a = { memory = 1 } }`), []string{"main.tf:4 dropped-name memory>memory_mib"}},
		"the map's own key":   {pool(`quotas = { anything = { memory_mib = 1 } }`), nil},
		"for each of a map":   {pool(`quotas = { for t in var.t : t => { memory = 1 } }`), []string{"main.tf:4 dropped-name memory>memory_mib"}},
		"for with groups":     {pool(`quotas = { for t in var.t : t => { memory = 1 }... }`), nil},
		"either way": {
			pool(`selector = var.x ? { gpu_id = {} } : { model = [] }`),
			[]string{"main.tf:4 dropped-name gpu_id>gpu_ids", "main.tf:4 dropped-name model>models"},
		},
		"in parentheses": {pool(`selector = ({ gpu_id = {} })`), []string{"main.tf:4 dropped-name gpu_id>gpu_ids"}},
		"in a template":  {pool(`selector = "${{ gpu_id = {} }}"`), []string{"main.tf:4 dropped-name gpu_id>gpu_ids"}},
		"merged":         {pool(`selector = merge(var.x, { models = [] })`), nil},
		"merged wrongly": {pool(`selector = merge(var.x, { model = [] })`), []string{"main.tf:4 dropped-name model>models"}},
		"of another function": {pool(`selector = jsondecode(<<-EOT
    { "gpu_id": {} }
    EOT
  )`), nil},
		"what cannot be told": {pool("selector = var.x\n quotas = { for k, v in var.y : k => v }\n timeouts = { (var.z) = \"5m\" }"), nil},
		"null":                {pool("selector = null"), nil},
		"a local": {
			with(pool("selector = local.s"), "locals.tf", "locals {\n s = { gpu_id = {} }\n}\n"),
			[]string{"locals.tf:2 dropped-name gpu_id>gpu_ids"},
		},
		"a local for two": {
			with(pool("selector = local.s"), "main.tf",
				"resource \"gpu_partition_config\" \"c\" {\n selector = local.s\n}\nlocals {\n s = { gpu_id = {} }\n}\n"),
			[]string{"main.tf:10 dropped-name gpu_id>gpu_ids"},
		},
		"within a local": {
			with(pool(`selector = local.s.a["b"]`), "locals.tf", "locals {\n s = { a = { b = { gpu_id = {} } }, other = 1 }\n}\n"),
			[]string{"locals.tf:2 dropped-name gpu_id>gpu_ids"},
		},
		"a local that is itself": {with(pool("selector = local.s"), "locals.tf", "locals {\n s = local.u\n u = local.s\n}\n"), nil},
		"no such local":          {pool("selector = local.s.a"), nil},
		"an argument":            {pool(`onn_destroy = "keep"`), []string{"main.tf:4 unknown-name onn_destroy>on_destroy"}},
		"Terraform's arguments": {
			pool("count = 1\nfor_each = {}\nprovider = gpu.a\ndepends_on = []\nlifecycle {\n  ignore_changes = [name]\n}\n" +
				"provisioner \"local-exec\" {\n  command = \"x\"\n}\nconnection {\n}"), nil,
		},
		"a block":         {pool("selector {\n gpu_ids = {}\n}"), []string{"main.tf:4 unknown-name selector"}},
		"a dynamic block": {pool("dynamic \"selector\" {\n for_each = []\n content {}\n}"), []string{"main.tf:4 unknown-name selector"}},
		"no such block":   {pool("dynamic \"selectr\" {\n for_each = []\n content {}\n}"), []string{"main.tf:4 unknown-name selectr>selector"}},
		"no such type": {
			map[string]string{"main.tf": "resource \"gpu_poool\" \"p\" {}\n"}, []string{"main.tf:1 unknown-name gpu_poool>gpu_pool"},
		},
		"another's type": {map[string]string{"main.tf": "resource \"aws_instance\" \"p\" {\n selector = { gpu_id = 1 }\n}\n"}, nil},
		"a data source": {
			map[string]string{"main.tf": "data \"gpu_change_forecast\" \"f\" {\n assignments = [\n {\n vm = \"a\"\n allow = true } ]\n}\n"},
			[]string{"main.tf:5 dropped-name allow>allow_shutdown"},
		},
		"a data source of a check": {
			map[string]string{"main.tf": "check \"c\" {\n data \"gpu_change_forecast\" \"f\" {\n selector = { model = [] }\n }\n}\n"},
			[]string{"main.tf:3 dropped-name model>models"},
		},
		"the provider": {
			map[string]string{"main.tf": "provider \"gpu\" {\n hosts = {\n  hv01 = { ssh = { address = \"a\", usr = \"b\" } }\n }\n}\n"},
			[]string{"main.tf:3 dropped-name usr>user"},
		},
		"another provider": {map[string]string{"main.tf": "provider \"aws\" {\n hosts = {}\n}\n"}, nil},
		"the provider of a test": {
			with(pool(""), "tests/a.tftest.hcl", "provider \"gpu\" {\n power = { allow_shut_down = true }\n}\nrun \"r\" {}\n"),
			[]string{"tests/a.tftest.hcl:2 dropped-name allow_shut_down>allow_shutdown"},
		},
		"an action": {
			map[string]string{"main.tf": "action \"gpu_vm_power\" \"a\" {\n config {\n  stat = \"off\"\n }\n}\n"},
			[]string{"main.tf:3 unknown-name stat>state"},
		},
		"a list": {
			map[string]string{"a.tfquery.hcl": "list \"gpu_pool\" \"a\" {\n provider = gpu\n limit = 5\n config {\n  hst = [\"a\"]\n }\n}\n"},
			[]string{"a.tfquery.hcl:5 unknown-name hst>host"},
		},
		"JSON": {
			map[string]string{"main.tf.json": `{"resource": {"gpu_pool": {"p": {"//": "a comment", "name": "p", "hosts": ["a"],
  "selector": {"gpu_id": {}, "//": "a comment"},
  "quotas": {"t": {"memory": 1}},
  "dynamic": {"timeouts": {"content": {}}},
  "on_destro": "keep"}}}}`},
			[]string{
				"main.tf.json:2 dropped-name gpu_id>gpu_ids", "main.tf.json:3 dropped-name memory>memory_mib",
				"main.tf.json:4 unknown-name timeouts", "main.tf.json:5 unknown-name on_destro>on_destroy",
			},
		},
		"JSON with expressions": {
			map[string]string{"main.tf.json": `{"locals": {"s": {"model": []}}, "resource": {"gpu_pool": {"p": [{"name": "${var.x}",
  "selector": "${local.s}",
  "timeouts": "${var.x ? { creat = var.y } : null}"}]}}}`},
			[]string{"main.tf.json:1 dropped-name model>models", "main.tf.json:3 dropped-name creat>create"},
		},
		"a module": {
			with(pool(""), "main.tf", "module \"m\" {\n source = \"./m\"\n}\n", "m/main.tf", pool(`selector = { gpu_id = {} }`)["main.tf"]),
			[]string{"m/main.tf:4 dropped-name gpu_id>gpu_ids"},
		},
		"what a module is given": {
			map[string]string{
				"main.tf": "module \"m\" {\n source = \"./m\"\n teams = {\n  a = { memory = 1, gpus = 2 }\n }\n other = { x = 1 }\n}\n",
				"m/main.tf": "variable \"teams\" {\n type = map(object({ gpus = optional(number), memory_mib = optional(number) }))\n" +
					" default = { b = { gpu = 1 } }\n}\n" + pool("quotas = var.teams")["main.tf"],
			},
			[]string{"m/main.tf:3 dropped-name gpu>gpus", "main.tf:4 dropped-name memory>memory_mib"},
		},
		"a module without GPUs": {
			map[string]string{
				"main.tf":   "module \"m\" {\n source = \"./m\"\n teams = { x = 1 }\n}\n",
				"m/main.tf": "variable \"teams\" {\n type = object({ a = number })\n}\n",
			}, nil,
		},
		"modules that call one another": {
			map[string]string{"main.tf": "module \"m\" {\n source = \"./m\"\n}\n", "m/main.tf": "module \"m\" {\n source = \"../\"\n}\n"}, nil,
		},
		"a module that is not there": {map[string]string{"main.tf": "module \"m\" {\n source = \"./m\"\n}\n"}, nil},
		"values of variables": {
			with(pool("quotas = var.teams"),
				"v.tf", "variable \"teams\" {\n type = map(object({ gpus = number, memory_mib = optional(number) }))\n}\n",
				"terraform.tfvars", "other = 1\nteams = {\n a = { gpus = 1, memory = 2 }\n}\n", "b.auto.tfvars.json", `{"teams": {"a": {"gpu": 1}}}`),
			[]string{"b.auto.tfvars.json:1 dropped-name gpu>gpus", "terraform.tfvars:3 dropped-name memory>memory_mib"},
		},
		"a mistake in the syntax": {
			map[string]string{"a.tf": "resource \"gpu_pool\" {\n", "b.tf": pool(`selector = { gpu_id = {} }`)["main.tf"]},
			[]string{"a.tf:1 syntax", "b.tf:4 dropped-name gpu_id>gpu_ids"},
		},
		"no JSON": {map[string]string{"a.tf.json": "{"}, []string{"a.tf.json:1 syntax", "a.tf.json:1 syntax"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := found(t, write(t, x.files)); !slices.Equal(got, x.want) {
				t.Errorf("found\n  %s\nwanted\n  %s", strings.Join(got, "\n  "), strings.Join(x.want, "\n  "))
			}
		})
	}
}

func TestAFolderWithoutConfiguration(t *testing.T) {
	t.Parallel()
	if _, err := lint.Check(t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no configuration") {
		t.Errorf("it says %v", err)
	}
}

// What this repository ships has no misspelt name: every example and every module, with what tests run of them.
func TestExamplesAndModulesAreClean(t *testing.T) {
	t.Parallel()
	folders, files := map[string]bool{}, 0
	for _, root := range []string{"../../examples", "../../modules"} {
		if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if entry != nil && entry.IsDir() && entry.Name() == ".terraform" {
				return fs.SkipDir
			}
			if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".tf") {
				folders[filepath.Dir(path)] = true
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for folder := range folders {
		checked, err := lint.Check(folder)
		if err != nil {
			t.Error(err)
		}
		files += checked.Files
		for _, f := range checked.Findings {
			t.Errorf("%s:%d: %s", f.Range.Filename, f.Range.Start.Line, f.Message)
		}
	}
	if len(folders) < 20 || files < 40 {
		t.Errorf("only %d folders with %d files were found", len(folders), files)
	}
}

// place is a nested object of the provider's schema.
type place struct {
	block  string // what begins the block it is in
	inner  bool   // the arguments are in a block config
	path   []step
	object map[string]*tfjson.SchemaAttribute
}

type step struct {
	name string
	mode tfjson.SchemaNestingMode
}

func places(t testing.TB) (out []place) {
	t.Helper()
	text, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var all tfjson.ProviderSchemas
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var walk func(p place, of map[string]*tfjson.SchemaAttribute)
	walk = func(p place, of map[string]*tfjson.SchemaAttribute) {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			n := of[name].AttributeNestedType
			if n == nil || !of[name].Optional && !of[name].Required {
				continue
			}
			deeper := p
			deeper.path, deeper.object = append(slices.Clone(p.path), step{name, n.NestingMode}), n.Attributes
			out = append(out, deeper)
			walk(deeper, n.Attributes)
		}
	}
	s := all.Schemas["gpu"]
	walk(place{block: `provider "gpu"`}, s.ConfigSchema.Block.Attributes)
	for kind, of := range map[string]map[string]*tfjson.Schema{
		"resource": s.ResourceSchemas, "data": s.DataSourceSchemas, "ephemeral": s.EphemeralResourceSchemas, "list": s.ListResourceSchemas,
	} {
		for name, schema := range of {
			walk(place{block: fmt.Sprintf("%s %q \"x\"", kind, name), inner: kind == "list"}, schema.Block.Attributes)
		}
	}
	for name, a := range s.ActionSchemas {
		walk(place{block: fmt.Sprintf("action %q \"x\"", name), inner: true}, a.Block.Attributes)
	}
	slices.SortFunc(out, func(a, b place) int { return strings.Compare(fmt.Sprint(a.block, a.path), fmt.Sprint(b.block, b.path)) })
	return out
}

// In whatever object of the provider's a name is misspelt, however it is written, the line and the name are found, and what was
// meant is offered; and nothing is found where all names are right.
func TestEveryMisspeltNameIsFound(t *testing.T) {
	t.Parallel()
	all := places(t)
	if len(all) < 30 {
		t.Fatalf("only %d objects were found", len(all))
	}
	dir := t.TempDir()
	ways := map[tfjson.SchemaNestingMode][]string{
		tfjson.SchemaNestingModeMap:    {"{ key = %s }", "{ for k in var.k : k => %s }", "tomap({ (var.k) = %s })"},
		tfjson.SchemaNestingModeSet:    {"[%s]", "[for v in var.v : %s]", "toset([null, %s])"},
		tfjson.SchemaNestingModeList:   {"[%s]", "concat(var.v, [%s])"},
		tfjson.SchemaNestingModeSingle: {"%s", "(%s)", "var.x ? null : %s", "merge(var.y, %s)", "try(%s, null)"},
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(all).Draw(t, "place")
		names := slices.Sorted(maps.Keys(p.object))
		right := rapid.SampledFrom(names).Draw(t, "name")
		at := rapid.IntRange(1, len(right)-1).Draw(t, "at")
		written := right[:at] + rapid.SampledFrom([]string{"", "x", "_"}).Draw(t, "letter") + right[at+rapid.IntRange(0, 1).Draw(t, "cut"):]
		value := fmt.Sprintf("{\n%s = null\nMISSPELT%s = null\n}", rapid.SampledFrom(names).Draw(t, "beside"), written)
		locals := ""
		for i, s := range slices.Backward(p.path) {
			value = fmt.Sprintf(rapid.SampledFrom(ways[s.mode]).Draw(t, "way"), value)
			if rapid.Bool().Draw(t, "local") {
				locals += fmt.Sprintf("l%d = %s\n", i, value)
				value = fmt.Sprintf("local.l%d", i)
			}
			if value = s.name + " = " + value; i > 0 {
				value = "{ " + value + " }"
			}
		}
		if p.inner {
			value = "config {\n" + value + "\n}"
		}
		text := p.block + " {\n" + value + "\n}\nlocals {\n" + locals + "}\n"
		before, _, _ := strings.Cut(text, "MISSPELT")
		line := 1 + strings.Count(before, "\n")
		file := filepath.Join(dir, "main.tf")
		if err := os.WriteFile(file, []byte(strings.Replace(text, "MISSPELT", "", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		checked, err := lint.Check(dir)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(names, written) {
			if len(checked.Findings) > 0 {
				t.Fatalf("all names are right, and it says %s of\n%s", checked.Findings[0].Message, text)
			}
			return
		}
		if len(checked.Findings) != 1 {
			t.Fatalf("one name is misspelt, and %d are found in\n%s", len(checked.Findings), text)
		}
		f := checked.Findings[0]
		if f.Rule != lint.Dropped || f.Name != written || f.Range.Start.Line != line || f.Range.Filename != file {
			t.Errorf("found %s %q in line %d of %s, wanted %q in line %d of %s",
				f.Rule, f.Name, f.Range.Start.Line, f.Range.Filename, written, line, file)
		}
		settable := p.object[right].Required || p.object[right].Optional
		if settable && len(right) > 3 && !slices.Contains(f.Meant, right) {
			t.Errorf("%q is not offered: %s", right, f.Message)
		}
	})
}

// A configuration that somebody else has written never breaks the command.
func FuzzCheck(f *testing.F) {
	f.Add("resource \"gpu_pool\" \"p\" {\n selector = { gpu_id = {} }\n}\n", false)
	f.Add(`{"resource": {"gpu_pool": {"p": {"selector": "${local.s}"}}}, "locals": {"s": {"model": []}}}`, true)
	f.Add("module \"m\" {\n source = \"./\"\n}\nlocals {\n a = local.a.b\n}\nlist \"gpu_x\" \"y\" {\n config {}\n}\n", false)
	f.Fuzz(func(t *testing.T, text string, inJSON bool) {
		name := "main.tf"
		if inJSON {
			name = "main.tf.json"
		}
		checked, err := lint.Check(write(t, map[string]string{name: text}))
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range checked.Findings {
			if finding.Message == "" || finding.Rule == "" {
				t.Errorf("a finding says nothing: %+v", finding)
			}
		}
	})
}
