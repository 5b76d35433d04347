package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// release is what matters here of .goreleaser.yml.
type release struct {
	Before struct {
		Hooks []string
	}
	Builds []struct {
		ID, Binary   string
		Goos, Goarch []string
		Hooks        struct{ Post []string }
	}
	Archives []struct {
		ID    string
		IDs   []string `yaml:"ids"`
		Files []file
	}
	Nfpms []struct {
		Contents []struct{ Src, Dst string }
		Scripts  map[string]string
	}
}

// file is a file of an archive. Some are only a name, which is then Src.
type file struct {
	Src         string
	StripParent bool `yaml:"strip_parent"`
}

func (f *file) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return node.Decode(&f.Src)
	}
	type plain file
	return node.Decode((*plain)(f))
}

func readRelease(t *testing.T) release {
	t.Helper()
	var r release
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yml")), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestProviderFindsItsAgents holds the files beside the provider against those that it
// uploads and starts.
func TestProviderFindsItsAgents(t *testing.T) {
	t.Parallel()
	r := readRelease(t)
	wanted := []string{connect.ChecksumsFile}
	for _, b := range r.Builds {
		if b.ID != "agent" {
			continue
		}
		for _, goos := range b.Goos {
			for _, goarch := range b.Goarch {
				wanted = append(wanted, connect.AgentFile(goos, goarch))
			}
		}
	}
	slices.Sort(wanted)
	if len(wanted) < 5 {
		t.Errorf("the release has only %q", wanted)
	}

	// Before the builds, tools/agents fills a directory.
	hook := regexp.MustCompile(`^go run ./tools/agents -out (\S+) -version \{\{ \.Version \}\} -sign (\{\{ if \.IsSnapshot ` +
		`\}\}if-possible\{\{ else \}\}always\{\{ end \}\}) -nvml \{\{ if \.IsSnapshot \}\}if-possible\{\{ else \}\}always\{\{ end \}\}$`)
	var dir string
	for _, h := range r.Before.Hooks {
		if m := hook.FindStringSubmatch(h); m != nil {
			dir = m[1]
		}
	}
	if dir == "" {
		t.Fatalf("no hook builds the agents: %q", r.Before.Hooks)
	}
	work := t.TempDir()
	if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(built(t), "other") {
		if err := os.WriteFile(filepath.Join(work, dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// The provider's archives take them out of it.
	var shipped []string
	for _, a := range r.Archives {
		if !slices.Equal(a.IDs, []string{"provider"}) {
			continue
		}
		for _, f := range a.Files {
			if !f.StripParent {
				continue
			}
			found, err := filepath.Glob(filepath.Join(work, f.Src))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range found {
				shipped = append(shipped, filepath.Base(path))
			}
		}
	}
	slices.Sort(shipped)
	if !slices.Equal(shipped, wanted) {
		t.Errorf("beside the provider lie\n%q\nand not\n%q", shipped, wanted)
	}
	for _, name := range shipped {
		if strings.HasPrefix(name, "terraform-provider-gpu") {
			t.Errorf("Terraform may take %s for the provider", name)
		}
	}
}

// TestInstalledAgentIsTheUploadedOne: both are signed, and two signatures differ.
func TestInstalledAgentIsTheUploadedOne(t *testing.T) {
	t.Parallel()
	const named = "gpu-agent_{{ .Os }}_{{ .Arch }}{{ .Ext }}"
	for _, b := range readRelease(t).Builds {
		if b.ID == "agent" && !slices.Equal(b.Hooks.Post, []string{
			"cp bin/agents/" + named + " {{ .Path }}", "touch -d {{ .CommitDate }} {{ .Path }}",
		}) {
			t.Errorf("after the build of the agent runs %q", b.Hooks.Post)
		}
	}
	if name := strings.NewReplacer("{{ .Os }}", "windows", "{{ .Arch }}", "arm64", "{{ .Ext }}", ".exe").
		Replace(named); name != connect.AgentFile("windows", "arm64") {
		t.Errorf("tools/agents builds %s, and the release takes %s", connect.AgentFile("windows", "arm64"), name)
	}
}

// built are the names of what tools/agents builds if it is not told for what.
func built(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./tools/agents", "-help")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := regexp.MustCompile(`what to build for \(default "([^"]+)"\)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("it does not say for what it builds:\n%s", out)
	}
	names := []string{connect.ChecksumsFile}
	for platform := range strings.SplitSeq(string(m[1]), ",") {
		goos, goarch, _ := strings.Cut(platform, "/")
		names = append(names, connect.AgentFile(goos, goarch))
	}
	return names
}

func TestPackagesFindTheirFiles(t *testing.T) {
	t.Parallel()
	var files []string
	for _, p := range readRelease(t).Nfpms {
		for _, c := range p.Contents {
			if c.Src != "" {
				files = append(files, c.Src)
			}
		}
		for _, script := range p.Scripts {
			files = append(files, script)
		}
	}
	if len(files) == 0 {
		t.Error("the packages have no files")
	}
	for _, f := range files {
		if info, err := os.Stat(filepath.Join(root, f)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the packages have no %s: %v", f, err)
		}
	}
}

// The packages have the manual page and the completions where the programs look that read them: bash itself
// completes a command and a flag.
func TestPackagesCompleteCommandLines(t *testing.T) {
	t.Parallel()
	places := map[string]bool{}
	for _, p := range readRelease(t).Nfpms {
		for _, c := range p.Contents {
			places[c.Dst] = true
		}
	}
	for _, place := range []string{
		"/usr/share/man/man1/gpu-agent.1", "/usr/share/bash-completion/completions/gpu-agent",
		"/usr/share/fish/vendor_completions.d/gpu-agent.fish", "/usr/share/zsh/vendor-completions/_gpu-agent",
		"/usr/share/zsh/site-functions/_gpu-agent",
	} {
		if !places[place] {
			t.Errorf("the packages have no %s", place)
		}
	}
	bash := need(t, "bash", "bash")
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "gpu-agent")); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.Join(root, "packaging/linux/completion.bash"))
	if err != nil {
		t.Fatal(err)
	}
	for typed, want := range map[string]string{"gpu-agent stat": "status", "gpu-agent inventory --no-h": "--no-headers"} {
		// Without the library of completions, which a person's shell has, words are those of bash.
		line := `_init_completion() { words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]}; }
_get_comp_words_by_ref() { _init_completion; }
source "$1"; COMP_LINE=$2; COMP_POINT=${#2}; COMP_TYPE=9; read -ra COMP_WORDS <<< "$2"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
prev=""; __start_gpu-agent; printf '%s\n' "${COMPREPLY[@]}"`
		cmd := exec.CommandContext(t.Context(), bash, "-c", line, "bash", script, typed)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(strings.TrimSpace(string(out)), want) {
			t.Errorf("%q is completed with %q, %v; want %q", typed, out, err, want)
		}
	}
	groff := need(t, "groff", "groff-base")
	out, err := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-ww", filepath.Join(root, "packaging/linux/gpu-agent.1")).Output()
	if err != nil || !strings.Contains(string(out), "selftest") {
		t.Errorf("groff does not take the manual page: %v", err)
	}
}
