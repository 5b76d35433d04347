package fakewmi

import (
	"context"
	"fmt"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// WMI is the machine as package hyperv sees it.
func (m *Machine) WMI() hyperv.WMI { return door{m} }

// door answers as the production implementation does, with the values that automation
// makes of a repository's.
type door struct{ machine *Machine }

func (d door) open(ctx context.Context, op, namespace string) (*Namespace, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("WMI: %s: %w", op, err)
	}
	n, err := d.machine.Open(namespace)
	return n, faultOf(ctx, op, err)
}

// Query implements hyperv.WMI.
func (d door) Query(ctx context.Context, namespace, wql string, properties ...string) ([]hyperv.Row, error) {
	n, err := d.open(ctx, "query "+wql, namespace)
	if err != nil {
		return nil, err
	}
	found, err := n.Query(ctx, wql)
	if err != nil {
		return nil, err
	}
	var rows []hyperv.Row
	for _, o := range found {
		rows = append(rows, row(o, properties))
	}
	return rows, nil
}

// Get implements hyperv.WMI.
func (d door) Get(ctx context.Context, namespace, path string, properties ...string) (hyperv.Row, error) {
	n, err := d.open(ctx, "get "+path, namespace)
	if err != nil {
		return hyperv.Row{}, err
	}
	o, err := n.Get(ctx, path)
	if err != nil {
		return hyperv.Row{}, err
	}
	return row(o, properties), nil
}

// Text implements hyperv.WMI.
func (d door) Text(ctx context.Context, namespace, path string) (string, error) {
	n, err := d.open(ctx, "get "+path, namespace)
	if err != nil {
		return "", err
	}
	o, err := n.Get(ctx, path)
	if err != nil {
		return "", err
	}
	return o.Text(), nil
}

// Put implements hyperv.WMI.
func (d door) Put(ctx context.Context, namespace, path string, set map[string]any) error {
	op := "put " + path
	n, err := d.open(ctx, op, namespace)
	if err != nil {
		return err
	}
	o, err := n.Get(ctx, path)
	if err != nil {
		return faultOf(ctx, op, err)
	}
	o = o.Clone()
	if err := assign(o, set); err != nil {
		return faultOf(ctx, op, err)
	}
	return n.Put(ctx, o)
}

// assign sets properties of an object, and of the objects embedded in it.
func assign(o *Object, set map[string]any) error {
	for name, v := range set {
		if inner, ok := v.(map[string]any); ok {
			embedded, ok := o.values[fold(name)].(*Object)
			if !ok {
				return fault(typeMismatch, "%s is no object", name)
			}
			if err := assign(embedded, inner); err != nil {
				return err
			}
			v = embedded
		} else if err := plain(name, v); err != nil {
			return err
		}
		if err := o.Set(name, v); err != nil {
			return err
		}
	}
	return nil
}

// plain tells whether a value is one that a caller may give.
func plain(name string, v any) error {
	switch v.(type) {
	case nil, string, bool, int32, []string:
		return nil
	}
	return fault(hyperv.InvalidParameter, "%s cannot be a %T", name, v)
}

// Invoke implements hyperv.WMI.
func (d door) Invoke(ctx context.Context, namespace, path, method string, in map[string]any) (hyperv.Result, error) {
	op := "call " + method
	n, err := d.open(ctx, op, namespace)
	if err != nil {
		return hyperv.Result{}, err
	}
	target, err := n.Get(ctx, path)
	if err != nil {
		return hyperv.Result{}, faultOf(ctx, op, err)
	}
	m, ok := target.Class.Method(method)
	if !ok {
		return hyperv.Result{}, faultOf(ctx, op, fault(hyperv.InvalidMethod, "%s has no method %s", target.Class.Name, method))
	}
	given := m.Parameters()
	for name, v := range in {
		if given != nil {
			if _, ok := given.Class.Property(name); ok {
				err = plain(name, v)
				if err == nil {
					err = given.Set(name, v)
				}
				if err != nil {
					return hyperv.Result{}, faultOf(ctx, op, err)
				}
				continue
			}
		}
		return hyperv.Result{}, faultOf(ctx, op, fault(hyperv.InvalidParameter, "%s has no in parameter %s", method, name))
	}
	out, err := n.Call(ctx, path, method, given)
	if err != nil {
		return hyperv.Result{}, err
	}
	return result(out), nil
}

func result(out *Object) hyperv.Result {
	if out == nil {
		return hyperv.Result{}
	}
	r := hyperv.Result{Out: map[string]any{}}
	for _, p := range out.Properties() {
		if p.Name == returnValue {
			n, _ := out.number(returnValue)
			r.ReturnValue = uint32(n)
			continue
		}
		r.Out[p.Name] = automation(&p, out.values[fold(p.Name)])
	}
	return r
}

// Close implements hyperv.WMI. A machine has no connection to end.
func (door) Close() error { return nil }

// row reads the named properties of an object. Those that it does not have are left
// out.
func row(o *Object, names []string) hyperv.Row {
	r := hyperv.Row{Path: o.Path, Values: map[string]any{}}
	for _, name := range names {
		if p, ok := o.property(name); ok {
			r.Values[name] = automation(p, o.values[fold(name)])
		}
	}
	return r
}

// automation is a value as it arrives through automation: unsigned numbers of up to 32
// bits have the bits of an int32, numbers of 64 bits are text.
func automation(p *Property, v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = automation(p, v[i])
		}
		return out
	case *Object:
		inner := hyperv.Row{Values: map[string]any{}}
		for _, q := range v.Properties() {
			inner.Values[q.Name] = automation(&q, v.values[fold(q.Name)])
		}
		return inner
	case uint64:
		if p.Type == Uint64 {
			return strconv.FormatUint(v, 10)
		}
		return int32(v)
	case int64:
		if p.Type == Sint64 {
			return strconv.FormatInt(v, 10)
		}
		return int32(v)
	default:
		return v
	}
}
