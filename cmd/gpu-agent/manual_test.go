package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The manual page and the completions of the packages are made of the commands themselves. To write them again:
//
//	go test ./cmd/gpu-agent -run TestManual -update
func TestManualAndCompletions(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the defaults of other platforms are others: run it on Linux")
	}
	root := newRoot()
	for file, write := range map[string]func(*bytes.Buffer) error{
		"gpu-agent.1": func(b *bytes.Buffer) error {
			_, err := b.Write(md2man.Render([]byte(manual(root))))
			return err
		},
		"completion.bash": func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"completion.fish": func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
		"completion.zsh":  func(b *bytes.Buffer) error { return root.GenZshCompletion(b) },
	} {
		var want bytes.Buffer
		if err := write(&want); err != nil {
			t.Fatal(err)
		}
		file = "../../packaging/linux/" + file
		if *update {
			if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil { //nolint:gosec // for everybody to read
				t.Fatal(err)
			}
			continue
		}
		is, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(is, want.Bytes()) {
			t.Errorf("%s is out of date; go test ./cmd/gpu-agent -run TestManual -update writes it", file)
		}
	}
}

// manual is one page for all commands, in Markdown.
func manual(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%% \"GPU-AGENT\" \"1\" \"\" \"gpu-agent\" \"User Commands\"\n\n# NAME\n\ngpu-agent - %s\n\n"+
		"# SYNOPSIS\n\n**gpu-agent** *command* [*flags*]\n\n# DESCRIPTION\n\n%s\n\n# FLAGS OF EVERY COMMAND\n\n",
		plainMarkdown(root.Short), indented(root.Long))
	flagList(&b, root.PersistentFlags())
	b.WriteString("# COMMANDS\n\n")
	commandList(&b, root)
	return b.String()
}

func commandList(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" || parent.Name() == "completion" {
			continue
		}
		text := c.Long
		if text == "" || c.Name() == "completion" {
			text = c.Short + "."
		}
		fmt.Fprintf(b, "## %s\n\n%s\n\n", plainMarkdown(c.UseLine()), indented(text))
		flagList(b, c.LocalFlags())
		commandList(b, c)
	}
}

func flagList(b *strings.Builder, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		name, value := "--"+f.Name, ""
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
			value = " (" + f.DefValue + " without it)"
		}
		fmt.Fprintf(b, "**%s**\n: %s%s\n\n", name, plainMarkdown(f.Usage), plainMarkdown(value))
	})
}

// indented is the text of --help, in which what is to be typed is indented by two.
func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") {
			b.WriteString("    " + line)
			continue
		}
		b.WriteString(plainMarkdown(line))
	}
	return b.String()
}

// plainMarkdown is a text in which nothing is marked up.
func plainMarkdown(text string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "`", "\\`").Replace(text)
}
