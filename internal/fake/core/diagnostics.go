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
	// Address is that of the resource or data source that it is about, if it is about one, and Attribute the argument, if it is
	// about one that the configuration has.
	Address, Attribute string
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

func (d Diagnostic) on(address string) Diagnostic {
	d.Address = address
	return d
}

// fromHCL are the diagnostics of a parser or of an evaluation.
func fromHCL(from hcl.Diagnostics) Diagnostics {
	var out Diagnostics
	for _, d := range from {
		out = append(out, Diagnostic{Warning: d.Severity == hcl.DiagWarning, Summary: d.Summary, Detail: d.Detail})
	}
	return out
}

// fromProvider are the diagnostics of an answer about a block.
func fromProvider(from []*tfprotov6.Diagnostic, address string, in *block) Diagnostics {
	var out Diagnostics
	for _, d := range from {
		x := Diagnostic{Warning: d.Severity == tfprotov6.DiagnosticSeverityWarning, Summary: d.Summary, Detail: d.Detail, Address: address}
		if in != nil {
			x.Attribute = in.argument(pathOf(d.Attribute))
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

// argument is the argument of a block with which a path begins, if the block has it.
func (b *block) argument(path cty.Path) string {
	if len(path) > 0 {
		if step, ok := path[0].(cty.GetAttrStep); ok {
			if body, ok := b.body.(*hclsyntax.Body); ok && body.Attributes[step.Name] != nil {
				return step.Name
			}
		}
	}
	return ""
}

// String is all that is said, errors last. Warnings of one summary are said once, as the CLI folds them: a person does not see more.
func (d Diagnostics) String() string {
	var b strings.Builder
	told := map[string]bool{}
	for _, warnings := range []bool{true, false} {
		for _, x := range d {
			if x.Warning != warnings || warnings && told[x.Summary] {
				continue
			}
			told[x.Summary] = warnings
			b.WriteString("\n" + map[bool]string{true: "Warning: ", false: "Error: "}[x.Warning] + x.Summary + "\n")
			if x.Address != "" {
				fmt.Fprintf(&b, "  at %s\n", strings.TrimSuffix(x.Address+", "+x.Attribute, ", "))
			}
			b.WriteString(x.Detail + "\n")
		}
	}
	return b.String()
}

// failed is an error that has diagnostics.
type failed struct{ said Diagnostics }

func (f failed) Error() string { return f.said.String() }

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
