package hyperv

import (
	"context"
	"errors"
	"strings"
)

// placed is a WMI whose faults say in which namespace and at which class they were
// met: the text of an error alone does not tell whose right is missing.
type placed struct{ WMI }

// Query implements WMI. The class is in the query, which the fault has.
func (p placed) Query(ctx context.Context, namespace, wql string, properties ...string) ([]Row, error) {
	rows, err := p.WMI.Query(ctx, namespace, wql, properties...)
	return rows, place(err, namespace, "")
}

// Get implements WMI.
func (p placed) Get(ctx context.Context, namespace, path string, properties ...string) (Row, error) {
	row, err := p.WMI.Get(ctx, namespace, path, properties...)
	return row, place(err, namespace, "")
}

// Text implements WMI.
func (p placed) Text(ctx context.Context, namespace, path string) (string, error) {
	text, err := p.WMI.Text(ctx, namespace, path)
	return text, place(err, namespace, "")
}

// Put implements WMI.
func (p placed) Put(ctx context.Context, namespace, path string, set map[string]any) error {
	return place(p.WMI.Put(ctx, namespace, path, set), namespace, "")
}

// Invoke implements WMI. A method's name does not tell its class.
func (p placed) Invoke(ctx context.Context, namespace, path, method string, in map[string]any) (Result, error) {
	res, err := p.WMI.Invoke(ctx, namespace, path, method, in)
	return res, place(err, namespace, classOf(path))
}

func place(err error, namespace, class string) error {
	f, ok := errors.AsType[*Fault](err)
	if !ok || f.Namespace != "" {
		return err
	}
	out := *f
	out.Namespace, out.Class = namespace, class
	return &out
}

// classOf is the class of an object path, \\HOST\namespace:Class.Key="...".
func classOf(path string) string {
	path, _, _ = strings.Cut(path, "=")
	if strings.HasPrefix(path, `\\`) {
		_, path, _ = strings.Cut(path, ":")
	}
	path, _, _ = strings.Cut(path, ".")
	return path
}
