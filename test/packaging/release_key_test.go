package packaging_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// releaseKey runs tools/release-key of a repository whose files are these.
func releaseKey(t *testing.T, security, readme string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tools/release-key": read(t, "tools/release-key"), "SECURITY.md": security, "README.md": readme,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(dir, "tools/release-key")}, args...)...).
		CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// TestReleaseKeyIsTheOneThatIsStated: nothing is signed but with the key that SECURITY.md and README.md state, and both have a place
// for it.
func TestReleaseKeyIsTheOneThatIsStated(t *testing.T) {
	t.Parallel()
	const key, other = "0123456789ABCDEF0123456789ABCDEF01234567", "76543210FEDCBA9876543210FEDCBA9876543210"
	line := func(key string) string { return "# A title\n\nRelease key: `" + key[:4] + " " + key[4:] + "`.\n" }
	for name, test := range map[string]struct {
		security, readme string
		args             []string
		says             string // of the refusal
	}{
		"the key":              {line(key), line(key), []string{key}, ""},
		"in small letters":     {line(key), line(key), []string{strings.ToLower(key)}, ""},
		"without an argument":  {line(key), line(key), nil, ""},
		"another key":          {line(key), line(key), []string{other}, "SECURITY.md states " + key},
		"no key at all":        {line(key), line(key), []string{""}, "SECURITY.md states " + key},
		"another in README":    {line(key), line(other), []string{key}, "README.md states another"},
		"none in README":       {line(key), "", []string{key}, "README.md states another"},
		"none in SECURITY":     {"Release key: none yet.\n", line(key), []string{key}, "SECURITY.md states no release key"},
		"a short one":          {line(key[:16]), line(key[:16]), []string{key[:16]}, "SECURITY.md states no release key"},
		"two":                  {line(key) + line(other), line(key) + line(other), []string{key}, "SECURITY.md states no release key"},
		"these files as it is": {read(t, "SECURITY.md"), read(t, "README.md"), nil, "*"},
	} {
		said, err := releaseKey(t, test.security, test.readme, test.args...)
		switch {
		case test.says == "*": // none until there is a key, then one
			if (err == nil) != regexp.MustCompile("^[0-9A-F]{40}$").MatchString(said) || err != nil &&
				!strings.Contains(said, "SECURITY.md states no release key") {
				t.Errorf("%s: %v, %s", name, err, said)
			}
		case test.says == "" && (err != nil || said != key):
			t.Errorf("%s: %v, %s", name, err, said)
		case test.says != "" && (err == nil || !strings.Contains(said, test.says)):
			t.Errorf("%s: %v, %s; want a refusal that says %q", name, err, said, test.says)
		}
	}
	for _, file := range []string{"SECURITY.md", "README.md"} {
		if n := len(regexp.MustCompile(`(?m)^Release key: `).FindAllString(read(t, file), -1)); n != 1 {
			t.Errorf("%s has %d lines for the release key, want one", file, n)
		}
	}
}

// TestTheJobThatSignsFetchesNothing: what runs beside the keys is this repository's, pinned by commit, or built from its module
// before they come; and they sign after the key was compared.
func TestTheJobThatSignsFetchesNothing(t *testing.T) {
	t.Parallel()
	var w struct {
		Jobs map[string]struct {
			Needs yaml.Node
			Steps []struct {
				Uses, Run string
				With, Env map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/workflows/release.yml")), &w); err != nil {
		t.Fatal(err)
	}
	at := map[string]int{"build": -1, "import": -1, "compare": -1, "sign": -1}
	for i, step := range w.Jobs["sign"].Steps {
		action, _, _ := strings.Cut(step.Uses, "@")
		switch {
		case step.With["version"] != "" || strings.Contains(action, "goreleaser") || strings.Contains(action, "download"):
			t.Errorf("%s fetches a program", step.Uses)
		case strings.Contains(step.Run, "make \"$PWD/tools/bin/goreleaser\""):
			at["build"] = i
		case action == "crazy-max/ghaction-import-gpg":
			at["import"] = i
		case strings.Contains(step.Run, `tools/release-key "$IMPORTED"`) &&
			strings.Contains(step.Env["IMPORTED"], "steps.key.outputs.fingerprint"):
			at["compare"] = i
		case strings.HasPrefix(step.Run, "tools/bin/goreleaser release"):
			at["sign"] = i
			if !strings.Contains(step.Run, "--skip=sbom") {
				t.Error("syft runs beside the keys")
			}
		case regexp.MustCompile(`curl|wget|go install|syft|npm|pip`).MatchString(step.Run):
			t.Errorf("beside the keys runs %s", step.Run)
		}
	}
	if at["build"] < 0 || !slices.IsSorted([]int{at["build"], at["import"], at["compare"], at["sign"]}) || at["build"] == at["import"] {
		t.Errorf("the steps of the job that signs are in the order %v", at)
	}
	var bills, early bool
	for id, job := range w.Jobs {
		for _, step := range job.Steps {
			bills = bills || id != "sign" && strings.Contains(step.Run, "tools/sbom")
			early = early || id == "check" && step.Run == "tools/release-key"
			if strings.Contains(step.Run, "tools/sbom") && strings.Contains(fmt.Sprint(step.Env), "secrets.") {
				t.Errorf("%s has a key", id)
			}
		}
	}
	if !bills || !early {
		t.Errorf("a job without keys writes the bills of materials: %v; the check comes before all: %v", bills, early)
	}
}

// TestReleaseIsVerifiedWithoutANetwork runs what the guide and SECURITY.md say on a release of its own, with a key of its own.
func TestReleaseIsVerifiedWithoutANetwork(t *testing.T) {
	t.Parallel()
	gpg, sums := need(t, "gpg", "gnupg"), need(t, "sha256sum", "coreutils")
	shell := regexp.MustCompile("(?s)```shell\n(gpg --show-keys.*?)```")
	guide, security := shell.FindStringSubmatch(read(t, "templates/guides/air-gap.md.tmpl")), shell.FindStringSubmatch(read(t, "SECURITY.md"))
	if guide == nil || security == nil {
		t.Fatal("the guide or SECURITY.md does not say how a release is verified")
	}
	if said := regexp.MustCompile(` #.*`).ReplaceAllString(security[1], ""); said != guide[1] {
		t.Errorf("SECURITY.md says\n%s\nand the guide\n%s", said, guide[1])
	}
	dir, home := t.TempDir(), t.TempDir()
	t.Cleanup(func() { _ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() }) //nolint:noctx // it ends at once
	run := func(home, command string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GNUPGHOME="+home, "LC_ALL=C", "http_proxy=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const name = "terraform-provider-gpu_0.1.0"
	made, err := run(home, gpg+` --batch --quiet --passphrase '' --quick-gen-key release@example.com ed25519 sign
		echo provider >`+name+`_linux_amd64.zip
		`+sums+` *.zip >`+name+`_SHA256SUMS
		echo other-file >unrelated
		`+gpg+` --batch --detach-sign --output `+name+`_SHA256SUMS.sig `+name+`_SHA256SUMS
		`+gpg+` --batch --armor --export >release-key.asc`)
	if err != nil {
		t.Fatalf("%v\n%s", err, made)
	}
	verify := func() (string, error) {
		mine := t.TempDir()
		defer func() { _ = exec.Command("gpgconf", "--homedir", mine, "--kill", "all").Run() }() //nolint:noctx // it ends at once
		return run(mine, guide[1])
	}
	said, err := verify()
	if err != nil || !strings.Contains(said, "Good signature") || !strings.Contains(said, "_linux_amd64.zip: OK") ||
		!regexp.MustCompile(`(?:[0-9A-F]{4}\s+){9}[0-9A-F]{4}`).MatchString(said) {
		t.Errorf("%v\n%s", err, said)
	}
	if err := os.WriteFile(filepath.Join(dir, name+"_linux_amd64.zip"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := verify(); err == nil {
		t.Errorf("a changed file is verified:\n%s", said)
	}
}
