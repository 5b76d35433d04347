package packaging_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is what matters here of a workflow.
type workflow struct {
	Permissions yaml.Node
	Jobs        map[string]struct {
		Environment string
		Permissions map[string]string
		Steps       []yaml.Node
	}
}

var (
	pinned = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	secret = regexp.MustCompile(`secrets\.(\w+)`)
)

// TestWorkflowsCarryNoMoreThanTheyNeed: every action is a commit, rights are given job by
// job, and the keys of a release are only in the job that signs, which tests nothing.
func TestWorkflowsCarryNoMoreThanTheyNeed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	signs := 0
	for _, file := range files {
		name := filepath.Base(file)
		text := read(t, ".github/workflows/"+name)
		for line := range strings.Lines(text) {
			if _, action, ok := strings.Cut(line, "uses: "); ok && !pinned.MatchString(strings.TrimSpace(action)) {
				t.Errorf("%s: the action is not pinned by commit and version: %s", name, action)
			}
		}
		var w workflow
		if err := yaml.Unmarshal([]byte(text), &w); err != nil {
			t.Fatal(err)
		}
		if w.Permissions.IsZero() {
			t.Errorf("%s: without permissions every job has those of the repository", name)
		}
		var ofAll map[string]string
		if err := w.Permissions.Decode(&ofAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for scope, right := range ofAll {
			if right != "read" {
				t.Errorf("%s: every job may write %s", name, scope)
			}
		}
		for id, job := range w.Jobs {
			var keys []string
			for i := range job.Steps {
				raw, err := yaml.Marshal(&job.Steps[i])
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range secret.FindAllStringSubmatch(string(raw), -1) {
					if m[1] != "GITHUB_TOKEN" {
						keys = append(keys, m[1])
					}
				}
			}
			if len(keys) == 0 {
				continue
			}
			signs++
			if name != "release.yml" || job.Environment != "release" || job.Permissions["id-token"] != "" {
				t.Errorf("%s: the job %s has the keys %q", name, id, keys)
			}
		}
	}
	if signs != 1 {
		t.Errorf("%d jobs have keys, want one", signs)
	}
}
