package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/zclconf/go-cty/cty"
)

// errUnsupported is in every error about what this core does not do as Terraform does.
var errUnsupported = errors.New("the in-process core does not support: run this test with a real CLI")

// Diagnostic is an error or a warning of one of the provider's answers, or of core.
type Diagnostic struct {
	Warning         bool
	Summary, Detail string
	// Address is that of the resource or data source that it is about, if it is about one.
	Address string
	Subject *hcl.Range
	context string // the block that the subject lies in
}

// Diagnostics are errors and warnings in the order in which they came.
type Diagnostics []Diagnostic

// Failed tells whether there is an error.
func (d Diagnostics) Failed() bool {
	return slices.ContainsFunc(d, func(x Diagnostic) bool { return !x.Warning })
}

func failure(summary, format string, a ...any) Diagnostic {
	return Diagnostic{Summary: summary, Detail: fmt.Sprintf(format, a...)}
}

func (d Diagnostic) on(address string, subject *hcl.Range) Diagnostic {
	d.Address, d.Subject = address, subject
	return d
}

// fromHCL are the diagnostics of a parser or of an evaluation.
func fromHCL(from hcl.Diagnostics) Diagnostics {
	var out Diagnostics
	for _, d := range from {
		out = append(out, Diagnostic{Warning: d.Severity == hcl.DiagWarning, Summary: d.Summary, Detail: d.Detail, Subject: d.Subject})
	}
	return out
}

// fromProvider are the diagnostics of an answer about a block. Each lies at the
// attribute that it names, or else at the block's head.
func fromProvider(from []*tfprotov6.Diagnostic, address string, in *block) Diagnostics {
	var out Diagnostics
	for _, d := range from {
		x := Diagnostic{Warning: d.Severity == tfprotov6.DiagnosticSeverityWarning, Summary: d.Summary, Detail: d.Detail, Address: address}
		if in != nil {
			x.Subject, x.context = in.subject(pathOf(d.Attribute)), in.context
		}
		out = append(out, x)
		x.record()
	}
	return out
}

// Record names the variable with the file to which the diagnostics of providers are added, a
// line of JSON for each: what people read is collected from what tests come by.
const Record = "GPU_TEST_DIAGNOSTICS"

func (d Diagnostic) record() {
	file := os.Getenv(Record)
	if file == "" {
		return
	}
	line, err := json.Marshal(Recorded{Warning: d.Warning, Summary: d.Summary, Detail: d.Detail})
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, err = f.Write(append(line, '\n'))
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		panic(fmt.Sprintf("%s: %v", Record, err))
	}
}

// Recorded is a line of the file that Record names.
type Recorded struct {
	Warning bool   `json:"warning,omitempty"`
	Summary string `json:"summary"`
	Detail  string `json:"detail"`
}

// subject is where in a block the first attribute of a path is written.
func (b *block) subject(path cty.Path) *hcl.Range {
	if len(path) > 0 {
		if step, ok := path[0].(cty.GetAttrStep); ok {
			if body, ok := b.body.(*hclsyntax.Body); ok && body.Attributes[step.Name] != nil {
				return body.Attributes[step.Name].SrcRange.Ptr()
			}
		}
	}
	return &b.head
}

// text writes diagnostics as the CLI does without colours, warnings first. Warnings of
// one summary are shown once, as the CLI does with two or more of them.
func (d Diagnostics) text(sources map[string]*hcl.File) string {
	var b strings.Builder
	more := map[string]int{}
	for _, x := range d {
		if x.Warning {
			more[x.Summary]++
		}
	}
	for _, warnings := range []bool{true, false} {
		for _, x := range d {
			if x.Warning != warnings {
				continue
			}
			others := more[x.Summary] - 1
			if x.Warning {
				if others < 0 {
					continue
				}
				more[x.Summary] = 0
			}
			b.WriteString("\n" + map[bool]string{true: "Warning: ", false: "Error: "}[x.Warning] + x.Summary + "\n\n")
			if x.Address != "" {
				fmt.Fprintf(&b, "  with %s,\n", x.Address)
			}
			if x.Subject != nil {
				fmt.Fprintf(&b, "  on %s line %d", x.Subject.Filename, x.Subject.Start.Line)
				if x.context != "" {
					fmt.Fprintf(&b, ", in %s", x.context)
				}
				b.WriteString(":\n")
				for n, line := range strings.Split(lines(sources, *x.Subject), "\n") {
					fmt.Fprintf(&b, "%4d: %s\n", x.Subject.Start.Line+n, line)
				}
			}
			if x.Address != "" || x.Subject != nil {
				b.WriteString("\n")
			}
			b.WriteString(x.Detail + "\n")
			if x.Warning && others > 0 {
				fmt.Fprintf(&b, "\n(and %d more similar warnings elsewhere)\n", others)
			}
		}
	}
	return b.String()
}

// failed is an error that has diagnostics; its text is that of the CLI.
type failed struct{ text string }

func (f failed) Error() string { return f.text }

// log collects the diagnostics of a walk.
type log struct {
	mu  sync.Mutex
	all Diagnostics
}

// add keeps diagnostics and tells whether none of them is an error.
func (l *log) add(d ...Diagnostic) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d...)
	return !Diagnostics(d).Failed()
}
