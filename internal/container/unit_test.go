package container_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpu/internal/container"
)

var (
	aWord = rapid.OneOf(
		rapid.SampledFrom([]string{
			"", " ", "$HOME", "$$", "${A}", "%h", "%%", `\n`, `a\`, `"q"`, "it's", "- x", "#", ";", "*", "a b", "~", "yes", "1:2", "!x", "ä",
		}),
		rapid.StringOf(rapid.RuneFrom([]rune("ab $%\\\"'`;&|<>(){}[]#*?!~=:,-/äß日"))))
	aContainer = rapid.Custom(func(t *rapid.T) container.Container {
		return container.Container{
			Name:        rapid.SampledFrom([]string{"chat", "a_b.c-1", "00"}).Draw(t, "name"),
			Image:       rapid.SampledFrom([]string{"debian", "docker.io/library/debian:12", "host:5000/a/b@sha256:0011"}).Draw(t, "image"),
			Device:      rapid.SampledFrom([]string{"gpufleet.com/share=chat", "gpufleet.com/share=a:b"}).Draw(t, "device"),
			Engine:      rapid.SampledFrom([]string{"", "docker", "podman"}).Draw(t, "engine"),
			Command:     rapid.SliceOfN(aWord.Filter(func(w string) bool { return w != "" }), 0, 4).Draw(t, "command"),
			Environment: rapid.MapOfN(rapid.StringMatching(`[A-Z_][A-Z0-9_]{0,5}`), aWord, 0, 3).Draw(t, "environment"),
			Volumes:     rapid.SliceOfN(rapid.SampledFrom([]string{"/srv/models:/models:ro", "data:/data"}), 0, 1).Draw(t, "volumes"),
			Ports:       rapid.SliceOfN(rapid.SampledFrom([]string{"127.0.0.1:8000:8000", "22:22"}), 0, 1).Draw(t, "ports"),
			Restart:     rapid.SampledFrom([]string{"", "no", "on-failure", "always"}).Draw(t, "restart"),
		}
	})
)

const generated = 300

// judged has other programs' own code read texts, as make test-parsers builds it.
func judged[T any](t *testing.T, as string, texts []string) []T {
	t.Helper()
	program := os.Getenv("GPU_TEST_CONTAINERS")
	if program == "" {
		t.Skip("there is no parser of Quadlet and Compose: make test-parsers builds it")
	}
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, as)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	if err := json.Unmarshal(data, &out); err != nil || len(out) != len(texts) {
		t.Fatalf("%d verdicts of %d: %v", len(out), len(texts), err)
	}
	return out
}

func containers(t *testing.T, text func(container.Texts) string) (all []container.Container, texts []string) {
	t.Helper()
	for seed := range generated {
		c := aContainer.Example(seed)
		out, err := container.Render(&c)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		all, texts = append(all, c), append(texts, text(out))
	}
	return all, texts
}

// wanted are the arguments of an engine that a container stands for, but for those that say how it is started.
func wanted(c *container.Container) []string {
	out := []string{"--device", c.Device}
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		out = append(out, "--env", name+"="+c.Environment[name])
	}
	for _, v := range c.Volumes {
		out = append(out, "--volume", v)
	}
	for _, p := range c.Ports {
		out = append(out, "--publish", p)
	}
	return append(append(out, c.Image), c.Command...)
}

// started are the words of a command line of systemd, of which it replaces $$ and %%.
func started(words []string) []string {
	out := []string{}
	for _, w := range words {
		out = append(out, strings.NewReplacer("$$", "$", "%%", "%").Replace(w))
	}
	return out
}

// Podman's generator makes of a .container file a command line that has each value as it was given.
func TestQuadletStartsIt(t *testing.T) {
	t.Parallel()
	all, texts := containers(t, func(out container.Texts) string { return out.Quadlet })
	for i, words := range judged[[]string](t, "units", texts) {
		got, c := started(words), &all[i]
		flags := map[string][]string{}
		for n := 2; n+1 < len(got) && got[n] != c.Image; n++ {
			switch got[n] {
			case "--name", "--device", "--env", "-v", "--publish":
				flags[got[n]] = append(flags[got[n]], got[n+1])
				n++
			}
		}
		var variables []string
		for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
			variables = append(variables, name+"="+c.Environment[name])
		}
		slices.Sort(flags["--env"])
		slices.Sort(variables)
		want := map[string][]string{"--name": {c.Name}, "--device": {c.Device}, "--env": variables, "-v": c.Volumes, "--publish": c.Ports}
		for flag, values := range want {
			if diff := cmp.Diff(values, flags[flag], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%s", flag, diff, texts[i])
			}
		}
		if at := slices.Index(got, c.Image); at < 0 || !slices.Equal(got[at+1:], c.Command) {
			t.Errorf("the command is %q, want %q after %s:\n%s", got, c.Command, c.Image, texts[i])
		}
	}
}

// The same of the service without Quadlet.
func TestSystemdStartsIt(t *testing.T) {
	t.Parallel()
	all, texts := containers(t, func(out container.Texts) string { return out.Systemd })
	for i, words := range judged[[]string](t, "units", texts) {
		got := started(words)
		if at := slices.Index(got, "--device"); at < 0 || !slices.Equal(got[at:], wanted(&all[i])) {
			t.Errorf("it starts %q, want %q:\n%s", got, wanted(&all[i]), texts[i])
		}
	}
}

// Compose's own parser, which holds a file against Compose's schema, has each value as it was given.
func TestComposeStartsIt(t *testing.T) {
	t.Parallel()
	type service struct {
		Name        string `json:"container_name"`
		Image       string
		Devices     []struct{ Source, Target string }
		Command     []string
		Environment map[string]string
		Restart     string
		Volumes     []struct{ Target string }
		Ports       []struct{ Published string }
	}
	all, texts := containers(t, func(out container.Texts) string { return out.Compose })
	for i, services := range judged[map[string]service](t, "compose", texts) {
		got, c := services[all[i].Name], &all[i]
		if got.Name != c.Name || got.Image != c.Image || len(got.Devices) != 1 ||
			got.Devices[0].Source != c.Device || got.Devices[0].Target != c.Device ||
			!slices.Equal(got.Command, c.Command) || !maps.Equal(got.Environment, c.Environment) ||
			len(got.Volumes) != len(c.Volumes) || len(got.Ports) != len(c.Ports) ||
			got.Restart != map[string]string{"": "on-failure"}[c.Restart]+c.Restart {
			t.Errorf("Compose reads %+v of %+v:\n%s", got, c, texts[i])
		}
	}
}

// A shell gives an engine each value as it was given.
func TestShellStartsIt(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh: apt-get install --no-install-recommends dash")
	}
	all, texts := containers(t, func(out container.Texts) string { return out.Command })
	var script strings.Builder
	script.WriteString("docker() { printf '%s\\0' \"$@\"; printf '\\n\\0'; }\npodman() { docker \"$@\"; }\n")
	for _, text := range texts {
		script.WriteString(text + "\n")
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script.String()).Output()
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Split(strings.TrimSuffix(string(out), "\x00\n\x00"), "\x00\n\x00")
	if len(said) != len(all) {
		t.Fatalf("%d of %d were started", len(said), len(all))
	}
	for i, line := range said {
		got := strings.Split(line, "\x00")
		if at := slices.Index(got, "--device"); at < 0 || !slices.Equal(got[at:], wanted(&all[i])) {
			t.Errorf("it starts %q, want %q:\n%s", got, wanted(&all[i]), texts[i])
		}
	}
}

// systemd itself finds nothing to say of the service, nor of what Podman's generator makes of the .container file where it is installed.
func TestSystemdVerifiesIt(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze: apt-get install --no-install-recommends systemd")
	}
	dir := t.TempDir()
	verify := []string{"verify", "--man=no", "--recursive-errors=no"}
	for seed := range 30 {
		c := aContainer.Example(seed)
		c.Engine = "" // verify wants the program to be there
		if _, err := os.Stat("/usr/bin/podman"); err != nil {
			t.Skip("there is no podman: apt-get install --no-install-recommends podman")
		}
		out, err := container.Render(&c)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "unit"+string(rune('a'+seed%26))+string(rune('a'+seed/26))+".service")
		if err := os.WriteFile(file, []byte(out.Systemd), 0o600); err != nil {
			t.Fatal(err)
		}
		verify = append(verify, file)
	}
	said, err := exec.CommandContext(t.Context(), "systemd-analyze", verify...).CombinedOutput()
	for line := range strings.Lines(string(said)) {
		if strings.Contains(line, dir) || strings.HasPrefix(line, "unit") {
			t.Errorf("%v: %s", err, line)
		}
	}
	if err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	broken := map[string]string{"A": "b\nc"}
	for says, change := range map[string]func(*container.Container){
		`name: "a:b" is not the name of a container`:               func(c *container.Container) { c.Name = "a:b" },
		`image is missing`:                                         func(c *container.Container) { c.Image = "" },
		`image: "a b" is not the name of an image`:                 func(c *container.Container) { c.Image = "a b" },
		`image: "--privileged" is not the name`:                    func(c *container.Container) { c.Image = "--privileged" },
		`engine is "lxc", but docker, podman is wanted`:            func(c *container.Container) { c.Engine = "lxc" },
		`restart is "never", but no, on-failure, always is wanted`: func(c *container.Container) { c.Restart = "never" },
		`volumes: "a b:/c" has other characters`:                   func(c *container.Container) { c.Volumes = []string{"a b:/c"} },
		`image: "a.build" ends as the units do`:                    func(c *container.Container) { c.Image = "a.build" },
		`volumes: "./a:/b" is neither a path that begins with /`:   func(c *container.Container) { c.Volumes = []string{"./a:/b"} },
		`volumes: "a.volume:/b" is neither a path`:                 func(c *container.Container) { c.Volumes = []string{"a.volume:/b"} },
		`ports: "-p" has other characters`:                         func(c *container.Container) { c.Ports = []string{"-p"} },
		`environment: "A-B" is not the name of a variable`:         func(c *container.Container) { c.Environment = map[string]string{"A-B": ""} },
		`environment: the value of A has a line break`:             func(c *container.Container) { c.Environment = broken },
		`command: an argument is empty, which Podman's Quadlet`:    func(c *container.Container) { c.Command = []string{"a", ""} },
		`command: "a\nb" has a line break`:                         func(c *container.Container) { c.Command = []string{"a\nb"} },
		`share: "a b" is not the name of a CDI device`:             func(c *container.Container) { c.Device = "a b" },
	} {
		c := container.Container{Name: "chat", Image: "debian", Device: "gpufleet.com/share=chat"}
		change(&c)
		if out, err := container.Render(&c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v\n%+v", says, err, out)
		}
	}
}
