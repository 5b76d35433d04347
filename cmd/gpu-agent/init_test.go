package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The starter of each system is the files of the examples, where its pipeline looks for them, and overwrites nothing.
func TestInitGitOps(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const source = "../../examples/"
	for system, files := range map[string]map[string]string{
		"github": {".github/workflows/gpus.yml": "gitops/github-actions/gpus.yml"},
		"gitlab": {".gitlab-ci.yml": "gitops/gitlab/.gitlab-ci.yml"},
		"atlantis": {
			"atlantis.yaml": "gitops/atlantis/atlantis.yaml", "servers/repos.yaml": "gitops/atlantis/repos.yaml",
			"servers/operator.yaml": "gitops/atlantis/operator.yaml",
		},
	} {
		dir := filepath.Join(t.TempDir(), "repository")
		said, _ := r.run(0, "init", "gitops", "--system", system, dir)
		files["gpus/gpus"], files["gpus/forecast.jq"], files["gpus/stack/main.tf"] = "gitops/gpus", "gitops/forecast.jq", "gitops/stack/main.tf"
		files["policy/gpu.rego"], files["policy/gpu_test.rego"] = "policy/gpu.rego", "policy/gpu_test.rego"
		var got []string
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rel, _ := filepath.Rel(dir, path) // it is below
				got = append(got, filepath.ToSlash(rel))
			}
			return err
		})
		if err != nil || len(got) != len(files) {
			t.Errorf("%s: the files are %q, %v; want %d", system, got, err, len(files))
		}
		for to, from := range files {
			is, err := os.ReadFile(filepath.Join(dir, to))
			want, _ := os.ReadFile(source + from) // compared below
			if err != nil || len(want) == 0 || string(is) != string(want) {
				t.Errorf("%s: %s is not %s: %v", system, to, from, err)
			}
			if !slices.Contains(strings.Fields(filepath.ToSlash(said)), filepath.ToSlash(filepath.Join(dir, to))) {
				t.Errorf("%s: it does not say that it wrote %s:\n%s", system, to, said)
			}
		}
		wantSaid(t, said, "gpu-agent record --out", "hosts.auto.tfvars", "who can read which key")
		if info, err := os.Stat(filepath.Join(dir, "gpus/gpus")); err != nil || os.PathSeparator == '/' && info.Mode()&0o111 == 0 {
			t.Errorf("%s: the script cannot be run: %v, %v", system, info, err)
		}
		said, _ = r.run(0, "init", "gitops", "--system", system, dir)
		wantSaid(t, said, "there already")

		// One file of somebody's own, and nothing is written beside it.
		if err := os.Remove(filepath.Join(dir, "gpus/forecast.jq")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "gpus/stack/main.tf"), []byte("# mine\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, said = r.run(1, "init", "gitops", "--system", system, dir)
		wantSaid(t, said, "gpus/stack/main.tf is there already", "nothing was written")
		if _, err := os.Stat(filepath.Join(dir, "gpus/forecast.jq")); err == nil {
			t.Errorf("%s: something was written", system)
		}
	}
	_, said := r.run(64, "init", "gitops", "--system", "githubb")
	wantSaid(t, said, `Did you mean "github"?`)
	_, said = r.run(64, "init", "gitops")
	wantSaid(t, said, `"atlantis", "github" and "gitlab"`)
	_, said = r.run(64, "init", "gitopps")
	wantSaid(t, said, "did you mean gitops?")
}
