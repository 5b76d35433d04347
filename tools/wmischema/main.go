// Command wmischema fills in internal/fake/wmi/schema/published.csv, which names the classes and
// members of WMI that are used, from what is published of them: their types, what they are
// derived from, and the first build of Windows that has them.
//
//	go run ./tools/wmischema -canonical canonical.json
//
// Of root\virtualization\v2 that is data/db/canonical.json of the repository
// Justsenger/HyperV-WMI-Documentation (MIT), which has the MOF of 17 builds. All namespaces are
// held against what Microsoft generated from Windows Server 2019 and 23H2 for the module
// github.com/microsoft/wmi (MIT). To use another member, add a line with its name and run this.
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const file = "internal/fake/wmi/schema/published.csv"

const virtualization = `root\virtualization\v2`

func main() {
	canonical := flag.String("canonical", "", "canonical.json of HyperV-WMI-Documentation; without it lines are only compared")
	flag.Parse()
	if err := run(*canonical); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(canonical string) error {
	lines, err := read(file)
	if err != nil {
		return err
	}
	dir, err := module()
	if err != nil {
		return err
	}
	if canonical != "" {
		of, err := readCanonical(canonical)
		if err != nil {
			return err
		}
		if lines, err = of.fill(lines); err != nil {
			return err
		}
		for i := range lines { // a build that the other source does not have
			if l := lines[i]; l.since == "26100" && len(compare([]line{l}, filepath.Join(dir, generated[25398], "root"), 25398)) > 0 {
				lines[i].since = "25398"
			}
		}
		if err := write(file, lines); err != nil {
			return err
		}
	}
	var wrong []error
	for build, at := range generated {
		wrong = append(wrong, compare(lines, filepath.Join(dir, at, "root"), build)...)
	}
	return errors.Join(wrong...)
}

// line is one of the file: a class, a property, a method or a parameter.
type line struct {
	namespace, class, member, kind, flags, since string
}

func (l line) String() string { return l.namespace + ":" + l.class + "." + l.member }

// parts are the names of a method and of its parameter, if the line is one.
func (l line) parts() (method, parameter string, isMethod bool) {
	return strings.Cut(strings.TrimSuffix(l.member, ")"), "(")
}

func read(path string) ([]line, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // it is only read
	r := csv.NewReader(in)
	r.FieldsPerRecord, r.Comment = 6, '#'
	records, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out []line
	for _, f := range records[1:] {
		out = append(out, line{f[0], f[1], f[2], f[3], f[4], f[5]})
	}
	return out, nil
}

func write(path string, lines []line) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	records := [][]string{{"namespace", "class", "member", "type", "flags", "since"}}
	for _, l := range lines {
		records = append(records, []string{l.namespace, l.class, l.member, l.kind, l.flags, l.since})
	}
	if err := w.WriteAll(records); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// module is where the source of github.com/microsoft/wmi is.
func module() (string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/microsoft/wmi").Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		return "", errors.New("the module github.com/microsoft/wmi is not downloaded")
	}
	return dir, nil
}
