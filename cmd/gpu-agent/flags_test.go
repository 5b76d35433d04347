package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the table of flags in the reference anew")

// The reference's table of flags is made of the commands themselves. To write it again:
//
//	go test ./cmd/gpu-agent -run TestFlagsInTheReference -update && make generate
func TestFlagsInTheReference(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the defaults of other platforms are others: run it on Linux")
	}
	const file, begin, end = "../../templates/guides/reference.md.tmpl", "<!-- flags -->\n", "<!-- end of flags -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	is, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no table of flags", file)
	}
	root, rows := newRoot(), flagRows{of: map[string][]string{}}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { rows.add("every command", f) })
	rows.addBelow(root)
	want := "\n| Command | Flag | Default | Meaning |\n| --- | --- | --- | --- |\n"
	for _, row := range rows.order {
		want += "| " + strings.Join(rows.of[row], ", ") + row
	}
	want += "\n"
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
		return
	}
	if is != want {
		t.Errorf("the table of flags in %s is out of date; it must be\n%s", file, want)
	}
}

// flagRows are the table's rows without the commands, which a flag of several has in common.
type flagRows struct {
	order []string
	of    map[string][]string
}

func (r *flagRows) addBelow(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden {
			continue
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				r.add("`"+strings.TrimPrefix(c.CommandPath(), "gpu-agent ")+"`", f)
			}
		})
		r.addBelow(c)
	}
}

func (r *flagRows) add(command string, f *pflag.Flag) {
	value := ""
	if f.DefValue != "" && f.DefValue != "[]" {
		value = "`" + f.DefValue + "`"
	}
	row := fmt.Sprintf(" | `--%s` | %s | %s |\n", f.Name, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
	if _, there := r.of[row]; !there {
		r.order = append(r.order, row)
	}
	r.of[row] = append(r.of[row], command)
}
