package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/hcl/v2"
)

// Terminal runs commands on a workspace as a shell does with a CLI, and prints what
// matters of what the CLI prints: diagnostics, the plan in short, its counts.
type Terminal struct {
	*Workspace
	plans map[string]*Plan
}

// NewTerminal opens a terminal in an empty workspace.
func NewTerminal(ctx context.Context, factories map[string]Factory) (*Terminal, error) {
	w, err := New(ctx, factories)
	return &Terminal{Workspace: w, plans: map[string]*Plan{}}, err
}

// serials number states, so that a plan knows whether it is of the present one.
var serials atomic.Int64

// flags of a command line.
type flags struct {
	Options
	args             []string
	out              string
	detailed, inJSON bool
	raw              bool
	parallel         int
}

func parseFlags(args []string) (flags, error) {
	var f flags
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "-auto-approve", "-no-color", "-input":
		case "-destroy":
			f.Destroy = true
		case "-refresh-only":
			f.RefreshOnly = true
		case "-refresh":
			f.NoRefresh = value == "false"
		case "-target":
			f.Targets = append(f.Targets, value)
		case "-replace":
			f.Replace = append(f.Replace, value)
		case "-out":
			f.out = value
		case "-detailed-exitcode":
			f.detailed = true
		case "-json":
			f.inJSON = true
		case "-raw":
			f.raw = true
		case "-parallelism":
			n, err := strconv.Atoi(value)
			if err != nil {
				return f, err
			}
			f.parallel = n
		default:
			if strings.HasPrefix(a, "-") {
				return f, fmt.Errorf("the flag %s is what %w", a, errUnsupported)
			}
			f.args = append(f.args, a)
		}
	}
	return f, nil
}

// Run runs a command and returns what it prints and its exit code.
func (t *Terminal) Run(ctx context.Context, args ...string) (string, int) {
	f, err := parseFlags(args[1:])
	if err != nil {
		return err.Error(), 1
	}
	if f.parallel > 0 {
		usual := t.Parallelism
		t.Parallelism = f.parallel
		defer func() { t.Parallelism = usual }()
	}
	var out string
	code := 0
	switch args[0] {
	case "plan":
		out, code, err = t.plan(ctx, f)
	case "apply":
		out, err = t.apply(ctx, f)
	case "destroy":
		f.Destroy = true
		out, err = t.apply(ctx, f)
	case "validate":
		return t.validate(ctx, f)
	case "import":
		err = t.Import(ctx, f.args[0], f.args[1])
	case "taint", "untaint":
		err = t.taint(f.args[0], args[0] == "taint")
	case "output":
		out, err = t.output(f)
	case "state":
		out, err = t.manage(f.args)
	default:
		err = fmt.Errorf("the command %q is what %w", args[0], errUnsupported)
	}
	if err != nil {
		return out + err.Error(), 1
	}
	return out, code
}

func (t *Terminal) plan(ctx context.Context, f flags) (string, int, error) {
	p, err := t.Plan(ctx, f.Options)
	if err != nil {
		return "", 1, err
	}
	if f.out != "" {
		t.plans[f.out] = p
	}
	text, code := p.Text()+p.warnings.text(p.config.sources), 0
	if f.detailed && !p.Empty() {
		code = 2
	}
	return text, code, nil
}

func (t *Terminal) apply(ctx context.Context, f flags) (string, error) {
	var p *Plan
	var out strings.Builder
	if len(f.args) > 0 {
		if p = t.plans[f.args[0]]; p == nil {
			return "", fmt.Errorf("no plan %s", f.args[0])
		}
		if p.serial != t.state.serial {
			return "", failed{
				"\nError: Saved plan is stale\n\nThe given plan file can no longer be applied because the state was changed by another operation " +
					"after the plan was created.\n",
			}
		}
	} else {
		var err error
		if p, err = t.Plan(ctx, f.Options); err != nil {
			return "", err
		}
		out.WriteString(p.Text() + p.warnings.text(p.config.sources))
	}
	w := p.apply(ctx)
	out.WriteString(w.progress.String())
	if err := w.check(); err != nil {
		return out.String(), err
	}
	out.WriteString(w.text())
	out.WriteString("\nApply complete! Resources: ")
	if n := p.imported(); n > 0 {
		fmt.Fprintf(&out, "%d imported, ", n)
	}
	fmt.Fprintf(&out, "%d added, %d changed, %d destroyed.\n%s", w.done[create], w.done[update], w.done[remove], t.outputs())
	return out.String(), nil
}

func (t *Terminal) validate(ctx context.Context, f flags) (string, int) {
	c, diags := t.Workspace.validate(ctx)
	code := 0
	if diags.Failed() {
		code = 1
	}
	if !f.inJSON {
		return diags.text(c.sources), code
	}
	type snippet struct {
		Context string `json:"context"`
		Code    string `json:"code"`
	}
	type diagnostic struct {
		Severity string   `json:"severity"`
		Summary  string   `json:"summary"`
		Detail   string   `json:"detail"`
		Snippet  *snippet `json:"snippet,omitempty"`
	}
	all := []diagnostic{}
	for _, d := range diags {
		x := diagnostic{Severity: map[bool]string{true: "warning", false: "error"}[d.Warning], Summary: d.Summary, Detail: d.Detail}
		if d.Subject != nil {
			x.Snippet = &snippet{Context: d.context, Code: lines(c.sources, *d.Subject)}
		}
		all = append(all, x)
	}
	raw, err := json.Marshal(map[string]any{"valid": code == 0, "diagnostics": all})
	if err != nil {
		return err.Error(), 1
	}
	return string(raw), code
}

// lines are those of a source in which a range lies.
func lines(sources map[string]*hcl.File, at hcl.Range) string {
	f := sources[at.Filename]
	if f == nil {
		return ""
	}
	all := strings.Split(string(f.Bytes), "\n")
	return strings.Join(all[at.Start.Line-1:min(at.End.Line, len(all))], "\n")
}

func (t *Terminal) taint(at string, yes bool) error {
	i := t.state.instances[at]
	if i == nil || i.current == nil {
		return fmt.Errorf("no such resource instance: %s", at)
	}
	if !yes && !i.current.tainted {
		return fmt.Errorf("%s is not tainted", at)
	}
	o := *i.current
	o.tainted = yes
	i.current = &o
	t.state.serial = serials.Add(1)
	return nil
}

func (t *Terminal) outputs() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.state.outputs)) {
		fmt.Fprintf(&b, "%s = %s\n", name, pretty(plain(t.state.outputs[name])))
	}
	return b.String()
}

func (t *Terminal) output(f flags) (string, error) {
	switch {
	case len(f.args) == 0 && f.inJSON:
		all := map[string]any{}
		for name, v := range t.state.outputs {
			all[name] = map[string]any{"value": plain(v)}
		}
		raw, err := json.Marshal(all)
		return string(raw), err
	case len(f.args) == 0:
		return t.outputs(), nil
	}
	v, ok := t.state.outputs[f.args[0]]
	if !ok {
		return "", fmt.Errorf("output %q not found", f.args[0])
	}
	if f.raw {
		return fmt.Sprint(plain(v)), nil
	}
	return pretty(plain(v)), nil
}

// manage is `terraform state`.
func (t *Terminal) manage(args []string) (string, error) {
	switch {
	case len(args) == 1 && args[0] == "list":
		var b strings.Builder
		for _, i := range t.state.sorted() {
			b.WriteString(i.String() + "\n")
		}
		return b.String(), nil
	case len(args) == 2 && args[0] == "rm":
		if t.state.instances[args[1]] == nil {
			return "", errors.New("no such resource instance: " + args[1])
		}
		delete(t.state.instances, args[1])
		t.state.serial = serials.Add(1)
		return "", nil
	case len(args) == 2 && args[0] == "show":
		i := t.state.instances[args[1]]
		if i == nil || i.current == nil {
			return "", errors.New("no instance found for the given address: " + args[1])
		}
		return "# " + args[1] + ":\n" + pretty(plain(i.current.value)), nil
	default:
		return "", fmt.Errorf("state %v is what %w", args, errUnsupported)
	}
}

// pretty writes a value about as the CLI does.
func pretty(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(v)
	case []any:
		parts := []string{}
		for _, e := range v {
			parts = append(parts, pretty(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var b strings.Builder
		b.WriteString("{\n")
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if v[k] != nil {
				fmt.Fprintf(&b, "%s = %s\n", k, pretty(v[k]))
			}
		}
		return b.String() + "}"
	default:
		return fmt.Sprint(v)
	}
}
