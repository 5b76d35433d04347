package examples_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

const modulesDir = "../modules"

var update = flag.Bool("update", false, "write the tables in the READMEs of modules again")

func modules(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(modulesDir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	if len(out) != 6 {
		t.Fatalf("the modules are %q", out)
	}
	return out
}

// copyModule copies a module, with the fleet of its tests, into a folder.
func copyModule(t *testing.T, name string) example {
	t.Helper()
	c := rig.NewProcesses(t, "")
	if err := os.Remove(filepath.Join(c.Dir, "main.tf")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(c.Dir, os.DirFS(filepath.Join(modulesDir, name))); err != nil {
		t.Fatal(err)
	}
	f, err := others.Open(filepath.Join(c.Dir, "tests", "fleet.json"))
	if err != nil {
		t.Fatal(err)
	}
	return example{CLI: c, fleet: &rig.Rig{T: t, Fleet: f}}
}

// copyModuleExample is the same for the example of a module.
func copyModuleExample(t *testing.T, name string) example {
	t.Helper()
	e := copyModule(t, name)
	e.Dir = filepath.Join(e.Dir, "examples", "basic")
	e.Ok("get")
	return e
}

// `terraform test` of each module passes every run that is written there, on a simulated
// fleet and with mocks, and leaves the fleet as it was.
func TestModules(t *testing.T) {
	t.Parallel()
	for _, name := range modules(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := copyModule(t, name)
			before := e.fleet.Snapshot()
			written := 0
			for _, file := range []string{"simulated", "mocked"} {
				raw, err := os.ReadFile(filepath.Join(e.Dir, "tests", file+".tftest.hcl"))
				e.fleet.Must(err)
				runs := strings.Count("\n"+string(raw), "\nrun \"")
				if runs < 4 {
					t.Errorf("%s.tftest.hcl has %d runs", file, runs)
				}
				written += runs
			}
			rig.WantSaid(t, e.Ok("test"), fmt.Sprintf("Success! %d passed, 0 failed.", written))
			t.Logf("%d runs", written)
			e.fleet.WantUnchanged(before)
		})
	}
}

// The example of each module is applied, planned again without changes, and destroyed.
func TestModuleExamples(t *testing.T) {
	t.Parallel()
	for _, name := range modules(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := copyModuleExample(t, name)
			before := e.fleet.Snapshot()
			e.Apply()
			if len(e.claimed()) == 0 {
				t.Error("nothing is claimed")
			}
			e.WantNoChanges()
			e.Destroy()
			e.fleet.WantUnchanged(before)
		})
	}
}

// What cannot be is refused at plan in the words of the module's variables.
func TestModulesRefuseTheImpossible(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ name, module, from, to, want string }{
		{
			"more desktops than seats", "azure-local-vdi", "vram_mib = 1800", "vram_mib = 7000",
			"The groups have 5 desktops, more than the 2 seats that are left when a node fails (keep_failover_seats)",
		},
		{
			"no desktop fits", "azure-local-vdi", "vram_mib = 1800", "vram_mib = 90000",
			"The groups need 90000 MiB for a desktop, and the GPUs offer partitions of at most 15168 MiB.",
		},
		{"an unknown desktop", "azure-local-vdi", `"avd-08"`, `"avd-80"`, "The groups name VMs that none of the hosts has: avd-80."},
		{
			"mixed desktops", "azure-local-vdi", `["hv01", "hv02"]`, `["hv01", "hv03"]`,
			"The hosts have GPUs of several models, and the desktops need one: NVIDIA A2, NVIDIA A16. Name it in model, or leave out hosts.",
		},
		{
			"more VMs than GPUs", "windows-cluster-pool", "cad-03 = {}", "cad-03 = {}, cad-02 = {}",
			"The vms need 3 GPUs, more than the pool has when a node fails (keep_failover_gpus): the gpu_ids name 4 on 2 nodes.",
		},
		{"an unknown VM", "windows-cluster-pool", "cad-03 = {}", "cad-30 = {}", "The vms name VMs that none of the hosts has: cad-30."},
		{
			"too many instances", "mig-inference-node", `"1g.10gb", count = 2`, `"1g.10gb", count = 8`,
			"The workloads have more instances than a GPU takes: 1g.10gb fits 7 times.",
		},
		{
			"instances that do not fit together", "mig-inference-node", `profile = "3g.40gb"`, `profile = "7g.80gb"`,
			"The workloads do not fit a GPU of the hosts together.",
		},
		{
			"mixed nodes", "mig-inference-node", `["hgx01"]`, `["hgx01", "hgx09"]`,
			"The hosts have GPUs of several models with MIG, whose profiles differ: NVIDIA H100 80GB HBM3, NVIDIA H200.",
		},
		{"more GPUs than there are", "container-shares", "gpus = 2.5", "gpus = 3.5", "The teams may take 5 GPUs together, and the hosts have 4."},
		{
			"more threads than GPUs", "container-shares", "gpus = 1.5", "gpus = 0.5",
			"The shares of a team have more threads than the gpus of the team: vision has 75% of 50%.",
		},
		{
			"more VMs than the site has GPUs", "edge-site", `["vision-01"]`, `["vision-01", "vision-02"]`,
			"The vms and containers need 3 GPUs, and host edge01 has 2 of the model that can be given whole.",
		},
		{
			"an unknown VM of a site", "edge-site", `["vision-01"]`, `["vision-10"]`,
			"The vms and containers name VMs that host edge01 does not have: vision-10.",
		},
		{
			"an instance that does not fit", "right-size", `count = 1, profile`, `count = 9, profile`,
			"The workloads do not fit. Missing: 3 more 1g.10gb and 3 more 3g.40gb, or 2 more NVIDIA H100 80GB HBM3. What binds: memory slices",
		},
		{
			"a mixed site", "edge-site", `"edge01"`, `"edge02"`,
			"The host edge02 has GPUs of several models: NVIDIA T4, NVIDIA A2. Name one in model.",
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			e := copyModuleExample(t, x.module)
			before := e.fleet.Snapshot()
			e.edit("main.tf", x.from, x.to)
			out := strings.Join(strings.Fields(regexp.MustCompile(`[│╷╵]`).ReplaceAllString(e.Fails("plan"), " ")), " ")
			if !strings.Contains(out, x.want) {
				t.Errorf("the plan does not say %q:\n%s", x.want, out)
			}
			if strings.Contains(out, "Rule:") {
				t.Errorf("the plan speaks of the module's inside:\n%s", out)
			}
			e.fleet.WantUnchanged(before)
		})
	}
}

// The tables in the README of each module are those that terraform-docs 0.22 would write, in
// `markdown table`; with GPU_TEST_TERRAFORM_DOCS, a path, it is asked itself.
func TestModuleReadmes(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- BEGIN_TF_DOCS -->\n", "<!-- END_TF_DOCS -->"
	for _, name := range modules(t) {
		file := filepath.Join(modulesDir, name, "README.md")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, _ := strings.Cut(string(raw), begin)
		_, after, found := strings.Cut(rest, end)
		if !found {
			t.Fatalf("%s has no place for the tables", file)
		}
		want := before + begin + moduleTables(t, name) + end + after
		if *update {
			rig.Write(t, file, want)
		} else if diff := cmp.Diff(want, string(raw)); diff != "" {
			t.Errorf("%s is not up to date (-want +got); write it again with\n\tgo test ./examples -run TestModuleReadmes -update\n%s", file, diff)
		}
		if docs := os.Getenv("GPU_TEST_TERRAFORM_DOCS"); docs != "" {
			said, err := exec.CommandContext(t.Context(), docs, "markdown", "table", filepath.Join(modulesDir, name)).Output()
			if diff := cmp.Diff(strings.TrimSpace(string(said)), strings.TrimSpace(moduleTables(t, name))); diff != "" || err != nil {
				t.Errorf("terraform-docs writes other tables for %s, %v (-terraform-docs +ours):\n%s", name, err, diff)
			}
		}
	}
}

// Modules and examples pass the rules that tflint has by default and that only the text decides: which version of Terraform
// is needed is said, and of each provider. With GPU_TEST_TFLINT, a path, tflint is asked itself.
func TestExamplesPassTFLint(t *testing.T) {
	t.Parallel()
	folders := map[string]string{} // their files together
	for _, top := range []string{".", modulesDir} {
		err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".tf" || strings.Contains(filepath.ToSlash(path), "testdata/") {
				return err
			}
			raw, err := os.ReadFile(path)
			folders[filepath.Dir(path)] += string(raw) + "\n"
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	checked := 0
	for dir, text := range folders {
		if !strings.Contains(text, "required_providers") {
			continue // a snippet of the documentation
		}
		checked++
		if !regexp.MustCompile(`(?m)^  required_version\s*=`).MatchString(text) {
			t.Errorf("%s does not say which version of Terraform it needs (terraform_required_version)", dir)
		}
		providers := regexp.MustCompile(`source\s*= "\w[\w-]*/[\w-]+"(?s:.*?)\}`).FindAllString(text, -1)
		for _, p := range providers {
			if !strings.Contains(p, "version") {
				t.Errorf("%s does not say which version of a provider it needs (terraform_required_providers): %s", dir, p)
			}
		}
		if len(providers) == 0 {
			t.Errorf("%s has no provider", dir)
		}
		if tflint := os.Getenv("GPU_TEST_TFLINT"); tflint != "" {
			cmd := exec.CommandContext(t.Context(), tflint, "--chdir="+dir, "--config="+os.DevNull)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("tflint of %s: %v\n%s", dir, err, out)
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d folders were looked at", checked)
	}
}

// moduleTables are requirements, providers, resources, inputs and outputs of a module.
func moduleTables(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(modulesDir, name)
	var variables, outputs, things []*hclsyntax.Block
	parser := hclparse.NewParser()
	for _, file := range []string{"main.tf", "variables.tf", "outputs.tf"} {
		parsed, diags := parser.ParseHCLFile(filepath.Join(dir, file))
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		body, ok := parsed.Body.(*hclsyntax.Body)
		if !ok {
			t.Fatalf("%s is not in HCL's own syntax", file)
		}
		for _, b := range body.Blocks {
			switch b.Type {
			case "variable":
				variables = append(variables, b)
			case "output":
				outputs = append(outputs, b)
			case "resource", "data":
				things = append(things, b)
			}
		}
	}
	source := func(x hclsyntax.Expression) string {
		return string(x.Range().SliceBytes(parser.Files()[x.Range().Filename].Bytes))
	}
	text := func(b *hclsyntax.Block, attribute string) string {
		a := b.Body.Attributes[attribute]
		if a == nil {
			t.Fatalf("%s %s of %s has no %s", b.Type, b.Labels[0], name, attribute)
		}
		v, diags := a.Expr.Value(&hcl.EvalContext{})
		if diags.HasErrors() || v.Type() != cty.String {
			t.Fatalf("%s of %s %s is no text", attribute, b.Type, b.Labels[0])
		}
		return v.AsString()
	}
	code := func(s string) string {
		if strings.Contains(s, "\n") {
			return "<pre>" + strings.ReplaceAll(s, "\n", "<br/>") + "</pre>"
		}
		return "`" + s + "`"
	}
	anchor := func(kind, s string) string {
		return fmt.Sprintf("<a name=\"%s_%s\"></a> [%s](#%s\\_%s)", kind, s, strings.ReplaceAll(s, "_", `\_`),
			kind, strings.ReplaceAll(s, "_", `\_`))
	}
	byName := func(a, b *hclsyntax.Block) int {
		return strings.Compare(strings.Join(a.Labels, "."), strings.Join(b.Labels, "."))
	}
	slices.SortFunc(variables, byName)
	slices.SortFunc(outputs, byName)
	slices.SortFunc(things, func(a, b *hclsyntax.Block) int { // resources come first
		return strings.Compare(b.Type, a.Type)*2 + byName(a, b)
	})

	var out strings.Builder
	fmt.Fprintf(&out, "## Requirements\n\n| Name | Version |\n| ---- | ------- |\n| %s | >= 1.9 |\n| %s | >= 0.1.0 |\n\n",
		anchor("requirement", "terraform"), anchor("requirement", "gpu"))
	fmt.Fprintf(&out, "## Providers\n\n| Name | Version |\n| ---- | ------- |\n| %s | >= 0.1.0 |\n\n## Modules\n\nNo modules.\n\n",
		anchor("provider", "gpu"))
	out.WriteString("## Resources\n\n| Name | Type |\n| ---- | ---- |\n")
	for _, b := range things {
		kind, folder := "resource", "resources"
		if b.Type == "data" {
			kind, folder = "data source", "data-sources"
		}
		fmt.Fprintf(&out, "| [%s.%s](https://registry.terraform.io/providers/gpufleet/gpu/latest/docs/%s/%s) | %s |\n",
			b.Labels[0], b.Labels[1], folder, strings.TrimPrefix(b.Labels[0], "gpu_"), kind)
	}
	out.WriteString("\n## Inputs\n\n| Name | Description | Type | Default | Required |\n| ---- | ----------- | ---- | ------- | :------: |\n")
	for _, b := range variables {
		value, required := "n/a", "yes"
		if d := b.Body.Attributes["default"]; d != nil {
			value, required = code(source(d.Expr)), "no"
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", anchor("input", b.Labels[0]), text(b, "description"),
			code(source(b.Body.Attributes["type"].Expr)), value, required)
	}
	out.WriteString("\n## Outputs\n\n| Name | Description |\n| ---- | ----------- |\n")
	for _, b := range outputs {
		fmt.Fprintf(&out, "| %s | %s |\n", anchor("output", b.Labels[0]), text(b, "description"))
	}
	return out.String()
}

// A release of the modules is a repository for each, with its files, a licence and a tag, and
// follows on the release before.
func TestModulesAreReleased(t *testing.T) {
	t.Parallel()
	git := func(dir string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if _, err := exec.LookPath("git"); err != nil || exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Run() != nil {
		t.Skip("it splits a commit: run it in a clone, with git")
	}
	release := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "../tools/modules", args...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@example.com")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	first, remote := t.TempDir(), t.TempDir()
	release(first, "1.2.3")
	names := modules(t)
	for _, m := range names {
		git(first, "clone", "-q", "--bare", "terraform-gpu-"+m, filepath.Join(remote, "terraform-gpu-"+m))
	}
	release(t.TempDir(), "1.3.0", remote)
	for _, m := range names {
		repository := filepath.Join(remote, "terraform-gpu-"+m)
		if tags := git(repository, "tag"); tags != "v1.2.3\nv1.3.0" {
			t.Errorf("%s has the tags %q", m, tags)
		}
		if got := git(repository, "rev-list", "--count", "main"); got != "2" {
			t.Errorf("%s has %s commits", m, got)
		}
		want := strings.Fields(git("..", "ls-tree", "-r", "--name-only", "HEAD:modules/"+m) + " LICENSE")
		slices.Sort(want)
		got := strings.Fields(git(repository, "ls-tree", "-r", "--name-only", "v1.3.0"))
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", m, diff)
		}
	}
}
