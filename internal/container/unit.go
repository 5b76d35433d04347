// Package container writes how a container is started that is given a share of a GPU: as a unit of Podman's Quadlet, a systemd
// service, a service of Compose, and a line for a shell.
package container

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Container is a container, and how it is started.
type Container struct {
	Name, Image string
	// Device is the share's name for the Container Device Interface: "gpufleet.com/share=chat".
	Device string
	// Engine is the program that runs it: "docker" or "podman"; "" is podman for units, and docker for the line.
	Engine string
	// Command are the arguments after the image, and Environment its variables.
	Command     []string
	Environment map[string]string
	// Volumes and Ports are as the engines take them: "/srv/models:/models:ro", "127.0.0.1:8000:8000".
	Volumes, Ports []string
	// Restart is "no", "on-failure" or "always"; "" is on-failure.
	Restart string
}

// Texts are the ways to start a container.
type Texts struct {
	Quadlet string // a file NAME.container
	Systemd string // a file NAME.service
	Compose string // a compose.yaml
	Command string // a line for a shell
}

var (
	containerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)
	variableName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// plain are words that mean the same in a unit, in a shell and in a Compose file.
	plain    = regexp.MustCompile(`^[A-Za-z0-9_./:=@,+-]+$`)
	engines  = []string{"docker", "podman"}
	restarts = []string{"no", "on-failure", "always"}
)

// Render writes the container in all ways.
func Render(c *Container) (Texts, error) {
	if err := c.check(); err != nil {
		return Texts{}, err
	}
	restart := cmp.Or(c.Restart, "on-failure")
	compose, err := c.compose(restart)
	return Texts{Quadlet: c.quadlet(restart), Systemd: c.systemd(restart), Compose: compose, Command: c.line(restart)}, err
}

// check finds what a program would refuse or read as something else. It says so by the names of container_unit's attributes.
func (c *Container) check() error {
	switch {
	case !containerName.MatchString(c.Name):
		return fmt.Errorf("name: %q is not the name of a container: letters, digits, \"_\", \"-\" and \".\" are allowed, two at least, and the "+
			"first is a letter or a digit; write name where the share's is not one", c.Name)
	case c.Image == "":
		return errors.New("image is missing")
	case !plain.MatchString(c.Image) || strings.HasPrefix(c.Image, "-"):
		return fmt.Errorf("image: %q is not the name of an image such as \"docker.io/library/debian:12\"", c.Image)
	case strings.HasSuffix(c.Image, ".image") || strings.HasSuffix(c.Image, ".build"):
		return fmt.Errorf("image: %q ends as the units do that Quadlet takes images from; write its tag too", c.Image)
	case c.Engine != "" && !slices.Contains(engines, c.Engine):
		return fmt.Errorf("engine is %q, but %s is wanted", c.Engine, strings.Join(engines, ", "))
	case c.Restart != "" && !slices.Contains(restarts, c.Restart):
		return fmt.Errorf("restart is %q, but %s is wanted", c.Restart, strings.Join(restarts, ", "))
	case !plain.MatchString(c.Device):
		return fmt.Errorf("share: %q is not the name of a CDI device such as \"gpufleet.com/share=chat\"", c.Device)
	}
	for name, list := range map[string][]string{"volumes": c.Volumes, "ports": c.Ports} {
		for _, entry := range list {
			if !plain.MatchString(entry) || strings.HasPrefix(entry, "-") {
				return fmt.Errorf("%s: %q has other characters than letters, digits and \"_./:=@,+-\", which units, shells and Compose files read in "+
					"ways of their own", name, entry)
			}
		}
	}
	for _, v := range c.Volumes {
		source, _, _ := strings.Cut(v, ":")
		if !strings.HasPrefix(source, "/") && (!containerName.MatchString(source) || strings.HasSuffix(source, ".volume")) {
			return fmt.Errorf("volumes: %q is neither a path that begins with / nor the name of a volume, which for Quadlet does not end in "+
				".volume", v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		if !variableName.MatchString(name) {
			return fmt.Errorf("environment: %q is not the name of a variable", name)
		}
		if strings.ContainsFunc(c.Environment[name], unicode.IsControl) {
			return fmt.Errorf("environment: the value of %s has a line break or another control character, which a unit has no place for", name)
		}
	}
	for _, word := range c.Command {
		if word == "" {
			return errors.New("command: an argument is empty, which Podman's Quadlet (5.4.2) takes for the end of the command; leave it out, or " +
				"have the image start a script")
		}
		if strings.ContainsFunc(word, unicode.IsControl) {
			return fmt.Errorf("command: %q has a line break or another control character, which a unit has no place for", word)
		}
	}
	return nil
}

// variables are those of the environment, "NAME=value", by name.
func (c *Container) variables() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		out = append(out, name+"="+c.Environment[name])
	}
	return out
}

// reconciled is the service that brings shares back after a reboot.
const reconciled = "gpu-agent-reconcile.service"

// opening is how both sorts of units begin.
func (c *Container) opening() string {
	return "[Unit]\nDescription=Container " + c.Name + " on the GPU share " + c.Device + "\nWants=network-online.target\n" +
		"After=network-online.target " + reconciled + "\n\n"
}

const closing = "\n[Install]\nWantedBy=multi-user.target\n"

func (c *Container) quadlet(restart string) string {
	var b strings.Builder
	b.WriteString(c.opening())
	fmt.Fprintf(&b, "[Container]\nContainerName=%s\nImage=%s\nAddDevice=%s\n", c.Name, c.Image, c.Device)
	for _, v := range c.variables() {
		b.WriteString("Environment=" + unitWord(v) + "\n")
	}
	for _, v := range c.Volumes {
		b.WriteString("Volume=" + v + "\n")
	}
	for _, p := range c.Ports {
		b.WriteString("PublishPort=" + p + "\n")
	}
	if len(c.Command) > 0 {
		b.WriteString("Exec=" + joined(c.Command, unitWord) + "\n")
	}
	b.WriteString("\n[Service]\nRestart=" + restart + "\n" + closing)
	return b.String()
}

func (c *Container) systemd(restart string) string {
	engine := "/usr/bin/" + cmp.Or(c.Engine, "podman")
	words := append([]string{engine, "run", "--rm", "--name", c.Name}, c.arguments()...)
	return c.opening() + "[Service]\nExecStartPre=-" + engine + " rm --force " + c.Name + "\nExecStart=" + joined(words, unitWord) +
		"\nExecStop=" + engine + " stop " + c.Name + "\nRestart=" + restart + "\n" + closing
}

func (c *Container) line(restart string) string {
	words := append([]string{cmp.Or(c.Engine, "docker"), "run", "--detach", "--name", c.Name, "--restart", restart}, c.arguments()...)
	return joined(words, shellWord)
}

// arguments are those of an engine's run, but for the name.
func (c *Container) arguments() []string {
	out := []string{"--device", c.Device}
	for _, of := range []struct {
		flag   string
		values []string
	}{{"--env", c.variables()}, {"--volume", c.Volumes}, {"--publish", c.Ports}} {
		for _, v := range of.values {
			out = append(out, of.flag, v)
		}
	}
	return append(append(out, c.Image), c.Command...)
}

func joined(words []string, quote func(string) string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quote(w)
	}
	return strings.Join(out, " ")
}

// unitWord writes a word of a unit's command line, where % and $ begin what systemd replaces.
func unitWord(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(word) + `"`
}

func shellWord(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

type composeFile struct {
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]composeVolume  `yaml:"volumes,omitempty"`
}

// composeVolume is a volume that the service names. By its name it is the one that other engines would take, and not the project's own.
type composeVolume struct {
	Name string `yaml:"name"`
}

type composeService struct {
	ContainerName string            `yaml:"container_name"`
	Image         string            `yaml:"image"`
	Devices       []composeDevice   `yaml:"devices"`
	Command       []string          `yaml:"command,omitempty"`
	Environment   map[string]string `yaml:"environment,omitempty"`
	Volumes       []string          `yaml:"volumes,omitempty"`
	Ports         []quotedText      `yaml:"ports,omitempty"`
	Restart       quotedText        `yaml:"restart"`
}

// composeDevice is a CDI device. Compose takes what is after a colon for another name of it, unless both are written.
type composeDevice string

// MarshalYAML implements yaml.Marshaler.
func (d composeDevice) MarshalYAML() (any, error) {
	if strings.Contains(string(d), ":") {
		return map[string]string{"source": string(d), "target": string(d)}, nil
	}
	return string(d), nil
}

// quotedText is a text that programs which read YAML 1.1 would take for a number or a truth.
type quotedText string

// MarshalYAML implements yaml.Marshaler.
func (t quotedText) MarshalYAML() (any, error) {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: string(t)}, nil
}

func (c *Container) compose(restart string) (string, error) {
	replaced := func(s string) string { return strings.ReplaceAll(s, "$", "$$") } // Compose puts variables in place of what follows one
	s := composeService{
		ContainerName: c.Name, Image: c.Image, Devices: []composeDevice{composeDevice(c.Device)}, Volumes: c.Volumes,
		Environment: map[string]string{}, Restart: quotedText(restart),
	}
	volumes := map[string]composeVolume{}
	for _, v := range c.Volumes {
		if source, _, _ := strings.Cut(v, ":"); !strings.HasPrefix(source, "/") {
			volumes[source] = composeVolume{source}
		}
	}
	for _, p := range c.Ports {
		s.Ports = append(s.Ports, quotedText(p))
	}
	for _, w := range c.Command {
		s.Command = append(s.Command, replaced(w))
	}
	for name, value := range c.Environment {
		s.Environment[name] = replaced(value)
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(composeFile{map[string]composeService{c.Name: s}, volumes}); err != nil {
		return "", fmt.Errorf("write the Compose file: %w", err)
	}
	return text.String(), nil
}
