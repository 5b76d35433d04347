package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Of the commits of a pull request each says its area, and the check names those that do not.
func TestSubjectsBeginWithAnArea(t *testing.T) {
	t.Parallel()
	need(t, "git", "git")
	script, err := filepath.Abs(filepath.Join(root, "tools/subjects"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	commit := func(subject string) {
		if out, err := run("git", "commit", "-q", "--allow-empty", "-m", subject); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if out, err := run("git", "init", "-q"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	commit("What was before is not asked about")
	for _, test := range []struct {
		subject string
		right   bool
	}{
		{"rules: A share is counted once", true},
		{"test/windows: why its directory is not the test's own", true},
		{"gpu, words: what is made printable", true},
		{"A share is counted once: in every plan", false},
		{"rules:a share is counted once", false},
		{"rules a share is counted once", false},
	} {
		commit(test.subject)
		out, err := run("bash", script, "HEAD~1..HEAD")
		if (err == nil) != test.right || !test.right && !strings.Contains(out, test.subject) {
			t.Errorf("%q: %v: %s", test.subject, err, out)
		}
	}
	if out, err := run("bash", script, "HEAD..HEAD"); err != nil {
		t.Errorf("no commits: %v: %s", err, out)
	}
	if _, err := run("bash", script, "nothing..HEAD"); err == nil {
		t.Error("a range that is not there passes")
	}
}
