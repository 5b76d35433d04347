package examples_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// The image of the jobs has what the pipelines run, where they look for it, in the versions that the repository is tested with, and
// what its commands build is installed by the CLI without a configuration of its own.
func TestGitOpsImage(t *testing.T) {
	t.Parallel()
	read := func(file string) string {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	image := strings.ReplaceAll(read(gitopsDir+"/image/Dockerfile"), "\\\n", " ")
	var builds []string
	places := map[string]string{} // by what is copied there
	for line := range strings.Lines(image) {
		words := strings.Fields(line)
		switch {
		case len(words) > 2 && words[0] == "RUN" && words[1] == "go" && words[2] == "build":
			builds = append(builds, strings.TrimSpace(strings.TrimPrefix(line, "RUN ")))
		case len(words) > 2 && words[0] == "COPY" && words[1] != ".":
			to := words[len(words)-1]
			for _, from := range words[1 : len(words)-1] {
				places[from] = to
				if _, err := os.Stat(filepath.Join("..", from)); err != nil && !strings.HasPrefix(words[1], "--from") {
					t.Errorf("the checkout has no %s", from)
				}
			}
		}
	}
	for from, to := range map[string]string{
		"examples/gitops/gpus": "/opt/gpus/", "examples/gitops/forecast.jq": "/opt/gpus/", "examples/policy/": "/opt/policy/",
		"/out/mirror/": "/usr/local/share/terraform/plugins/", "/out/bin/": "/usr/local/bin/", "/bin/terraform": "/usr/local/bin/",
	} {
		if places[from] != to {
			t.Errorf("%s goes to %q, want %s", from, places[from], to)
		}
	}
	for _, program := range []string{"bash", "curl", "git", "jq", "openssh-client"} {
		if !slices.Contains(strings.Fields(image), program) {
			t.Errorf("the image has no %s", program)
		}
	}
	versions := read("../tools/versions.mk")
	conftest := regexp.MustCompile(`go install -trimpath (\S+)`).FindStringSubmatch(image)
	if conftest == nil || !strings.Contains(versions, ":= "+conftest[1]+"\n") {
		t.Errorf("the tests run another conftest than %q", conftest)
	}
	cli := regexp.MustCompile(`FROM hashicorp/terraform:(\S+) AS cli`).FindStringSubmatch(image)
	if cli == nil || !strings.Contains(versions, ":= v"+cli[1]+"\n") {
		t.Errorf("the tests run another Terraform than %q", cli)
	}
	if golang := regexp.MustCompile(`FROM (golang:\S+)`); golang.FindString(image) != golang.FindString(read("../.devcontainer/Dockerfile")) {
		t.Error("it is built with another Go than the development container has")
	}
	if len(builds) != 2 {
		t.Fatalf("it builds %q", builds)
	}
	if os.Getenv("TF_ACC") == "" {
		t.Skip("it needs a real CLI: make testacc")
	}

	out := t.TempDir()
	for _, build := range builds {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", strings.ReplaceAll(build, "/out/", out+"/"))
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", build, err, said)
		}
	}
	share := filepath.Join(t.TempDir(), "terraform")
	if err := os.Mkdir(share, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(out, "mirror"), filepath.Join(share, "plugins")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rig.Write(t, filepath.Join(dir, "main.tf"), read(gitopsDir+"/stack/main.tf"))
	env := append(os.Environ(), "XDG_DATA_DIRS="+filepath.Dir(share), "HOME="+t.TempDir(), "TF_CLI_CONFIG_FILE="+os.DevNull,
		"CHECKPOINT_DISABLE=1")
	for _, args := range [][]string{{"init", "-no-color"}, {"providers", "schema", "-json"}} {
		cmd := exec.CommandContext(t.Context(), rig.CLIPath(t), args...)
		cmd.Dir, cmd.Env = dir, env
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, said)
		}
		if args[0] == "providers" {
			var schema struct {
				Of map[string]any `json:"provider_schemas"`
			}
			if err := json.Unmarshal(said, &schema); err != nil || len(schema.Of) != 1 {
				t.Errorf("%v: %d providers", err, len(schema.Of))
			}
		}
	}
}
