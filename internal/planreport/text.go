package planreport

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// plain is the voice of a terminal.
var plain = voice{name: plainName, text: oneLine, arrow: "->"}

// plainName is a name as a word. The label of a resource is its type and a quoted name.
func plainName(name string) string {
	if of, rest, ok := strings.Cut(name, " "); ok && strings.HasPrefix(of, "gpu_") && of == words.Name(of) && rest != "" {
		return gpu.Printable(name)
	}
	if model, number, ok := strings.Cut(name, " #"); ok && words.Name(number) == number {
		return gpu.Printable(model) + " #" + number
	}
	return words.Name(name)
}

// style is how a line is shown, as the parameter of a terminal's escape sequence.
type style string

const (
	usual  style = ""
	strong style = "1"
	warns  style = "33"
	fails  style = "31"
)

// TextOptions are how a terminal shows an explanation.
type TextOptions struct {
	// Width is where lines are broken.
	Width int
	// Color is true where the terminal has colours, and they are wanted.
	Color bool
}

// Text writes an explanation for a terminal.
func (e Explanation) Text(out io.Writer, o TextOptions) error {
	p := &printer{out: out, options: o}
	p.head(e)
	for _, h := range e.Hosts {
		p.say(strong, 0, "")
		p.say(strong, 0, plain.name(h.Host))
		p.groups(h.Changes)
		for _, line := range plain.unchanged(h) {
			p.say(usual, 2, line)
		}
	}
	if len(e.Elsewhere) > 0 {
		p.say(usual, 0, "")
		p.say(strong, 0, "On hosts that are known only after apply")
		p.groups(e.Elsewhere)
	}
	if len(e.Unchanged) > 0 {
		p.say(usual, 0, "")
		p.say(usual, 0, "Unchanged hosts: "+plain.names(e.Unchanged)+".")
	}
	p.section("If something fails", plain.failure(e), func(string) style { return usual })
	p.section("Findings", plain.findings(e.Findings), func(line string) style {
		if strings.HasPrefix(line, "error") {
			return fails
		}
		return warns
	})
	return p.err
}

// printer writes lines until one cannot be written.
type printer struct {
	out     io.Writer
	options TextOptions
	err     error
}

func (p *printer) head(e Explanation) {
	of := "Plan"
	if e.Owner != "" {
		of += " of " + plain.name(e.Owner)
	}
	if !e.PlannedAt.IsZero() {
		of += e.PlannedAt.UTC().Format(", 2 January 2006 15:04 UTC")
	}
	p.say(strong, 0, of)
	p.say(usual, 0, plain.summary(e))
	if !e.Complete {
		p.say(fails, 0, "This is not all that an apply does:")
		for _, why := range e.Incomplete {
			p.say(fails, 2, "- "+plain.text(why))
		}
	}
}

func (p *printer) groups(all []Group) {
	for _, g := range all {
		p.say(usual, 2, fmt.Sprintf("%s: %s", turns(g), plain.title(g)))
		for _, line := range plain.group(g) {
			of := usual
			switch {
			case g.Refused != "":
				of = fails
			case slices.ContainsFunc([]string{"Off", "Shut down", "Ends", "Reset"}, func(p string) bool { return strings.HasPrefix(line, p) }):
				of = warns
			}
			p.say(of, 4, line)
		}
	}
}

func (p *printer) section(title string, lines []string, of func(string) style) {
	if len(lines) == 0 {
		return
	}
	p.say(usual, 0, "")
	p.say(strong, 0, title)
	for _, line := range lines {
		p.say(of(line), 2, "- "+line)
	}
}

// say writes a line, broken where it is too wide; what is in it is printable.
func (p *printer) say(of style, indent int, text string) {
	hang := indent
	if strings.HasPrefix(text, "- ") {
		hang += 2
	}
	line := strings.Repeat(" ", indent)
	empty := true
	flush := func() {
		if p.err != nil {
			return
		}
		line = strings.TrimRight(line, " ")
		if p.options.Color && of != usual && line != "" {
			line = "\x1b[" + string(of) + "m" + line + "\x1b[0m"
		}
		_, p.err = io.WriteString(p.out, line+"\n")
	}
	for _, word := range strings.Fields(gpu.Printable(text)) {
		if !empty && p.options.Width > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > p.options.Width {
			flush()
			line, empty = strings.Repeat(" ", hang), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	flush()
}
