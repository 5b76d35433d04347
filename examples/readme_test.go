package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

var (
	shell     = regexp.MustCompile("(?s)```shell\n(.*?)```")
	terraform = regexp.MustCompile("(?s)```terraform\n(.*?)```")
)

// A person who types what a README says, line by line, in the folder where it is, gets through:
// the provider comes from the mirror that examples/local-provider.sh builds.
func TestREADMEsAsTheyAreWritten(t *testing.T) {
	if os.Getenv("TF_ACC") == "" {
		t.Skip("it needs a real CLI: make testacc")
	}
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, readme := range []string{
		"README.md", "examples/first-look/README.md", "examples/azure-local-vdi/README.md", "examples/edge-two-t4/README.md",
		"examples/two-gpu-models/README.md", "examples/kvm-vdi/README.md",
		"examples/linux-hgx/README.md", "examples/linux-shares/README.md", "examples/slurm-mig/README.md",
		"examples/kubernetes-device-plugin/README.md",
		"examples/testing/README.md",
	} {
		t.Run(readme, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(repository, readme))
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir() // a copy of what the README needs; the script builds where the source is
			dir := filepath.Join(root, filepath.Dir(readme))
			if err := os.CopyFS(filepath.Join(root, "examples"), os.DirFS(filepath.Join(repository, "examples"))); err != nil {
				t.Fatal(err)
			}
			script := filepath.Join(root, "examples", "local-provider.sh")
			if err := os.Remove(script); err != nil {
				t.Fatal(err)
			}
			rig.Write(t, script, "#!/bin/sh\nexec '"+repository+"/examples/local-provider.sh'\n")
			path := filepath.Join(root, "path")
			for _, err := range []error{
				os.Chmod(script, 0o700), os.Mkdir(path, 0o700), os.Symlink(rig.CLIPath(t), filepath.Join(path, "terraform")), //nolint:gosec // a script
				os.Symlink(filepath.Join(repository, "bin"), filepath.Join(root, "bin")),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if main := terraform.FindSubmatch(text); readme == "README.md" {
				if err := os.Mkdir(filepath.Join(root, "first"), 0o700); err != nil {
					t.Fatal(err)
				}
				rig.Write(t, filepath.Join(root, "first", "main.tf"), string(main[1]))
			}
			done := 0
			for _, block := range shell.FindAllStringSubmatch(string(text), -1) {
				if strings.Contains(block[1], "make demo") || strings.Contains(block[1], "kubernetes-provider") {
					continue // a target of its own; a provider of others
				}
				var lines []string
				for line := range strings.Lines(block[1]) {
					if !strings.Contains(line, "kubectl") {
						lines = append(lines, line)
					}
				}
				cmd := exec.CommandContext(t.Context(), "sh", "-euc", strings.Join(lines, "")+"terraform plan -detailed-exitcode\n")
				if strings.Contains(block[1], "destroy") || strings.Contains(block[1], "terraform test") {
					cmd.Args[2] = strings.Join(lines, "")
				}
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "GOGC=100", "TF_IN_AUTOMATION=1",
					"TF_INPUT=0", "CHECKPOINT_DISABLE=1",
					"TF_CLI_ARGS=-no-color", "TF_CLI_ARGS_apply=-auto-approve", "TF_CLI_ARGS_destroy=-auto-approve")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				done++
			}
			if done == 0 {
				t.Error("the README has nothing to follow")
			}
		})
	}
}
