package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/examples"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// starterFiles are where files of the examples go in a repository, for every system and for one of them.
var (
	starterFiles = map[string]string{
		"gitops/gpus": "gpus/gpus", "gitops/forecast.jq": "gpus/forecast.jq", "gitops/stack/main.tf": "gpus/stack/main.tf",
		"policy/gpu.rego": "policy/gpu.rego", "policy/gpu_test.rego": "policy/gpu_test.rego",
	}
	starterSystems = map[string]map[string]string{
		"github": {"gitops/github-actions/gpus.yml": ".github/workflows/gpus.yml"},
		"gitlab": {"gitops/gitlab/.gitlab-ci.yml": ".gitlab-ci.yml"},
		"atlantis": {
			"gitops/atlantis/atlantis.yaml": "atlantis.yaml", "gitops/atlantis/repos.yaml": "servers/repos.yaml",
			"gitops/atlantis/operator.yaml": "servers/operator.yaml",
		},
	}
	// starterOwn is what the starter of a system asks of people beside hosts and a recording.
	starterOwn = map[string]string{
		"github":   "Make the environments that .github/workflows/gpus.yml names, with reviewers, and put the keys into them.",
		"gitlab":   "Put gpus, forecast.jq and policy into /opt of the jobs' image, and the keys into its protected variables.",
		"atlantis": "Start two servers with the files of servers, and put gpus, forecast.jq and policy into their /etc/atlantis.",
	}
)

const starterGuide = "https://github.com/gpufleet/terraform-provider-gpu/blob/main/examples/gitops/README.md"

func newInit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write what a repository begins with",
		Args:  usage(cobra.NoArgs),
	}
	system, systems := "", slices.Sorted(maps.Keys(starterSystems))
	gitops := &cobra.Command{
		Use:   "gitops [DIR]",
		Short: "Write the files of a pipeline that plans, judges, approves and applies changes of GPUs",
		Long: `gitops writes the starter that the examples document into a repository: the pipeline of the system,
the script that it runs, a configuration and the policies. Nothing that is there is overwritten: if
one of the files is there and differs, none is written.

  gpu-agent init gitops --system github .`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			own, ok := starterSystems[system]
			if !ok {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("--system is %q. %s", system, words.Instead(system, systems, ""))}
			}
			files := maps.Clone(starterFiles)
			maps.Copy(files, own)
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			written, err := writeStarter(dir, files)
			if err != nil {
				return err
			}
			return sayStarter(cmd.OutOrStdout(), dir, system, written)
		},
	}
	gitops.Flags().StringVar(&system, "system", "", "the system whose pipeline it is: "+strings.Join(systems, ", "))
	cmd.AddCommand(gitops)
	return cmd
}

// writeStarter writes embedded files below a folder, and returns those that were not there. It is all or nothing as far as
// files of others are concerned.
func writeStarter(dir string, files map[string]string) ([]string, error) {
	content, taken := map[string][]byte{}, []string(nil)
	for from, to := range files {
		want, err := examples.GitOps.ReadFile(from)
		if err != nil {
			return nil, err
		}
		is, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(to)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			content[to] = want
		case err != nil:
			return nil, err
		case string(is) != string(want):
			taken = append(taken, to)
		}
	}
	if len(taken) > 0 {
		slices.Sort(taken)
		return nil, fmt.Errorf("%s is there already, and differs: nothing was written; give a folder without it, or move it away",
			words.Join(taken))
	}
	for _, to := range slices.Sorted(maps.Keys(content)) {
		file, mode := filepath.Join(dir, filepath.FromSlash(to)), fs.FileMode(0o644)
		if path.Ext(to) == "" {
			mode = 0o755 // the script
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // a repository's
			return nil, err
		}
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return nil, err
		}
		_, err = f.Write(content[to])
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(content)), nil
}

// sayStarter says what was written, and what is left to do.
func sayStarter(out io.Writer, dir, system string, written []string) error {
	for _, file := range written {
		if _, err := fmt.Fprintln(out, filepath.Join(dir, filepath.FromSlash(file))); err != nil {
			return err
		}
	}
	if len(written) == 0 {
		_, err := fmt.Fprintln(out, "All files are there already, as this version writes them.")
		return err
	}
	stack := filepath.Join(dir, "gpus", "stack")
	_, err := fmt.Fprintf(out, `
Next:
- Write the hosts into %[1]s/hosts.auto.tfvars, and your layout and VMs into %[1]s/main.tf.
- Record the hosts, as the nightly job will: gpu-agent record --out %[1]s/recorded.json --config %[1]s --user USER --key KEY
- %[2]s
- Read who can read which key: %[3]s
`, filepath.ToSlash(stack), starterOwn[system], starterGuide)
	return err
}
