package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// The hook after a plan reads it with the CLI that made it, which terragrunt names: where there are two it takes OpenTofu, and each refuses
// plans of the other.
func TestTerragruntReadsAPlanWithTheCLIThatMadeIt(t *testing.T) {
	t.Parallel()
	file, diags := hclparse.NewParser().ParseHCLFile(gitopsDir + "/terragrunt/root.hcl")
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		t.Fatalf("the file is %T", file.Body)
	}
	scope := &hcl.EvalContext{Functions: map[string]function.Function{
		"join": stdlib.JoinFunc,
		"get_terragrunt_dir": function.New(&function.Spec{
			Type: function.StaticReturnType(cty.String),
			Impl: func([]cty.Value, cty.Type) (cty.Value, error) { return cty.StringVal("."), nil },
		}),
	}}
	script := ""
	for _, block := range body.Blocks[0].Body.Blocks {
		if block.Type != "after_hook" {
			continue
		}
		v, diags := block.Body.Attributes["execute"].Expr.Value(scope)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		words := v.AsValueSlice()
		script, _, _ = strings.Cut(words[len(words)-1].AsString(), " && ")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"terraform": "wrong", "chosen tofu": "right"} {
		path := filepath.Join(dir, name)
		rig.Write(t, path, "#!/bin/sh\necho "+text+" \"$@\"\n")
		if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{filepath.Join(dir, "chosen tofu"): "right", "": "wrong"} { // terragrunt of before says nothing
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TG_CTX_TF_PATH="+path)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		plan, err := os.ReadFile(filepath.Join(dir, "plan.json"))
		if err != nil || string(plan) != want+" show -json gpus.tfplan\n" {
			t.Errorf("with %q the plan is read by %q, %v", path, plan, err)
		}
	}
}
