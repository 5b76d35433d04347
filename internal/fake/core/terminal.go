package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// Terminal runs commands on a workspace as a shell does with a CLI.
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
	args          []string
	out           string
	detailed, raw bool
	parallel      int
}

func parseFlags(args []string) (flags, error) {
	var f flags
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "-auto-approve", "-no-color", "-input", "-json": // of outputs, which are in JSON unless they are raw
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

// Run runs a command and returns what has come of it, and its exit code.
func (t *Terminal) Run(ctx context.Context, args ...string) (Outcome, int) {
	f, err := parseFlags(args[1:])
	if err != nil {
		return Outcome{Answer: err.Error()}, 1
	}
	if f.parallel > 0 {
		usual := t.Parallelism
		t.Parallelism = f.parallel
		defer func() { t.Parallelism = usual }()
	}
	var out Outcome
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
		out, err = t.validate(ctx)
	case "import":
		err = t.Import(ctx, f.args[0], f.args[1])
	case "taint", "untaint":
		err = t.taint(f.args[0], args[0] == "taint")
	case "output":
		out.Answer, err = t.output(f)
	case "state":
		out.Answer, err = t.manage(f.args)
	default:
		err = fmt.Errorf("the command %q is what %w", args[0], errUnsupported)
	}
	if err == nil {
		return out, code
	}
	if said := (failed{}); errors.As(err, &said) {
		out.Diagnostics = append(out.Diagnostics, said.said...)
	} else {
		out.Answer = err.Error()
	}
	return out, 1
}

func (t *Terminal) plan(ctx context.Context, f flags) (Outcome, int, error) {
	p, err := t.Plan(ctx, f.Options)
	if err != nil {
		return Outcome{}, 1, err
	}
	if f.out != "" {
		t.plans[f.out] = p
	}
	code := 0
	if f.detailed && !p.Empty() {
		code = 2
	}
	return p.Outcome(), code, nil
}

func (t *Terminal) apply(ctx context.Context, f flags) (Outcome, error) {
	var p *Plan
	var out Outcome
	if len(f.args) > 0 {
		if p = t.plans[f.args[0]]; p == nil {
			return out, fmt.Errorf("no plan %s", f.args[0])
		}
		if p.serial != t.state.serial {
			return out, failed{Diagnostics{failure("Saved plan is stale", "The state was changed after the plan was created.")}}
		}
	} else {
		var err error
		if p, err = t.Plan(ctx, f.Options); err != nil {
			return out, err
		}
		out = p.Outcome()
	}
	w := p.apply(ctx)
	out.Progress = w.progress
	if err := w.check(); err != nil {
		return out, err
	}
	out.Diagnostics = append(out.Diagnostics, w.all...)
	out.Done = &Counts{Import: p.counts().Import, Add: w.done[create], Change: w.done[update], Destroy: w.done[remove]}
	return out, nil
}

func (t *Terminal) validate(ctx context.Context) (Outcome, error) {
	_, diags := t.Workspace.validate(ctx)
	if diags.Failed() {
		return Outcome{}, failed{diags}
	}
	return Outcome{Diagnostics: diags}, nil
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

func (t *Terminal) output(f flags) (string, error) {
	if len(f.args) == 0 {
		all := map[string]any{}
		for name, v := range t.state.outputs {
			all[name] = map[string]any{"value": plain(v)}
		}
		return oneLine(all), nil
	}
	v, ok := t.state.outputs[f.args[0]]
	if !ok {
		return "", fmt.Errorf("output %q not found", f.args[0])
	}
	if f.raw {
		return fmt.Sprint(plain(v)), nil
	}
	return oneLine(plain(v)), nil
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
	default:
		return "", fmt.Errorf("state %v is what %w", args, errUnsupported)
	}
}
