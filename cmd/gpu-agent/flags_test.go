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
	var b strings.Builder
	b.WriteString("\n| Command | Flag | Default | Meaning |\n| --- | --- | --- | --- |\n")
	root := newRoot()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { row(&b, "every command", f) })
	flagsOf(&b, root)
	want := b.String() + "\n"
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

func flagsOf(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden {
			continue
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				row(b, "`"+strings.TrimPrefix(c.CommandPath(), "gpu-agent ")+"`", f)
			}
		})
		flagsOf(b, c)
	}
}

func row(b *strings.Builder, command string, f *pflag.Flag) {
	value := ""
	if f.DefValue != "" && f.DefValue != "[]" {
		value = "`" + f.DefValue + "`"
	}
	fmt.Fprintf(b, "| %s | `--%s` | %s | %s |\n", command, f.Name, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
}
