package fakemps

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// unit is what a unit file and its drop-ins say of a service.
type unit struct {
	env                    []string
	start, startPost, stop [][]string
}

// systemctl starts and stops services of type forking: it runs their programs, with
// systemd's quoting, specifiers and environment.
func systemctl(_ self, b Behaviour) int {
	verb := os.Args[1]
	if verb == "daemon-reload" || verb == "reset-failed" {
		return 0
	}
	u, err := load(b.UnitDir, os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 5
	}
	commands := slices.Concat(u.start, u.startPost)
	if verb == "stop" {
		commands = u.stop
	}
	for _, c := range commands {
		cmd := command(c[0], c[1:]...)
		cmd.Env, cmd.Dir = u.env, "/"
		if out, err := cmd.CombinedOutput(); err != nil && verb != "stop" {
			fmt.Fprintf(os.Stderr, "Job for %s failed: %s: %v: %s\n", os.Args[2], c[0], err, out)
			return 1
		}
	}
	return 0
}

func load(dir, name string) (*unit, error) {
	prefix, rest, _ := strings.Cut(name, "@")
	instance := strings.TrimSuffix(rest, ".service")
	files, err := filepath.Glob(filepath.Join(dir, name+".d", "*.conf"))
	if err != nil {
		return nil, err
	}
	u := &unit{}
	for _, path := range append([]string{filepath.Join(dir, prefix+"@.service")}, files...) {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("Unit %s not found.", name) //nolint:staticcheck // systemctl's words
		}
		for in := bufio.NewScanner(f); in.Scan(); {
			key, value, _ := strings.Cut(in.Text(), "=")
			words := split(value, instance)
			switch key {
			case "Environment":
				u.env = append(u.env, words...)
			case "ExecStart":
				u.start = append(u.start, words)
			case "ExecStartPost":
				u.startPost = append(u.startPost, words)
			case "ExecStop":
				u.stop = append(u.stop, words)
			}
		}
		f.Close()
	}
	return u, nil
}

// split takes a line of a unit file apart: quotes of both kinds, backslashes, % and $.
func split(line, instance string) []string {
	var words []string
	var word strings.Builder
	inside, quote := false, byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inside = c, true
		case quote == 0 && c == ' ':
			if inside {
				words = append(words, word.String())
			}
			word.Reset()
			inside = false
		default:
			inside = true
			word.WriteByte(c)
		}
	}
	if inside {
		words = append(words, word.String())
	}
	meaning := strings.NewReplacer("%%", "%", "%i", instance, "$$", "$")
	for i := range words {
		words[i] = meaning.Replace(words[i])
	}
	return words
}
