package fakewmi

import (
	"context"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// Namespace is one namespace of a machine. Its errors are of type *hyperv.Fault, but
// for the end of a context.
type Namespace struct {
	machine *Machine
	name    string
	schema  *schema
}

// Name is the namespace's name as Windows writes it.
func (n *Namespace) Name() string { return n.name }

// Server is the name of the host.
func (n *Namespace) Server() string { return n.machine.host.Name() }

// Query runs a WQL query: SELECT, ASSOCIATORS OF or REFERENCES OF.
func (n *Namespace) Query(ctx context.Context, wql string) ([]*Object, error) {
	rows, err := n.query(ctx, wql)
	if err != nil {
		return nil, faultOf(ctx, "query "+wql, err)
	}
	return rows, nil
}

func (n *Namespace) query(ctx context.Context, wql string) ([]*Object, error) {
	if err := n.machine.faults.strike(n.name, false); err != nil {
		return nil, err
	}
	q, err := parseWQL(wql)
	if err != nil {
		return nil, fault(hyperv.InvalidQuery, "Invalid query: %v", err)
	}
	v, err := n.look(ctx)
	if err != nil {
		return nil, err
	}
	var rows []*Object
	if q.of != "" {
		rows, err = v.relations(q)
	} else {
		rows, err = v.selection(q)
	}
	if err == nil {
		err = v.err
	}
	return rows, err
}

// selection answers a SELECT.
func (v *view) selection(q *query) ([]*Object, error) {
	class, ok := v.class(q.class)
	if !ok {
		return nil, noClass(q.class)
	}
	if err := v.machine.faults.deny(class.Name); err != nil {
		return nil, err
	}
	var selected map[string]bool
	if q.properties != nil {
		selected = map[string]bool{}
		for _, name := range q.properties {
			if _, ok := class.Property(name); !ok && !strings.HasPrefix(name, "__") {
				return nil, fault(hyperv.InvalidQuery, "%s has no property %s", class.Name, name)
			}
			selected[fold(name)] = true
		}
	}
	if q.where != nil {
		if err := q.where.check(class, v.class); err != nil {
			return nil, fault(hyperv.InvalidQuery, "Invalid query: %v", err)
		}
	}
	rows := []*Object{}
	for _, o := range v.instances(q.class) {
		if q.where == nil || q.where.met(o) {
			rows = append(rows, o.narrow(selected))
		}
	}
	return rows, nil
}

// narrow is the object with the selected properties only. Without all of its keys it
// has no path.
func (o *Object) narrow(selected map[string]bool) *Object {
	if selected == nil {
		return o
	}
	out := o.Clone()
	out.selected = selected
	for _, p := range o.Class.Properties {
		if selected[fold(p.Name)] {
			continue
		}
		delete(out.values, fold(p.Name))
		if p.Key {
			out.Path = ""
		}
	}
	return out
}

func noClass(name string) error {
	return fault(hyperv.InvalidClass, "the host has no class %s", name)
}

// Get reads an instance by its path, or a class by its name.
func (n *Namespace) Get(ctx context.Context, path string) (*Object, error) {
	o, err := n.get(ctx, path)
	if err != nil {
		return nil, faultOf(ctx, "get "+path, err)
	}
	return o, nil
}

func (n *Namespace) get(ctx context.Context, path string) (*Object, error) {
	if err := n.machine.faults.strike(n.name, false); err != nil {
		return nil, err
	}
	v, err := n.look(ctx)
	if err != nil {
		return nil, err
	}
	o, err := v.at(path)
	if err == nil {
		err = v.err
	}
	return o, err
}

// at is the instance or the class at a path.
func (v *view) at(path string) (*Object, error) {
	p, ok := v.local(path)
	if !ok {
		return nil, fault(invalidObjectPath, "%s is no path of this namespace", path)
	}
	class, ok := v.class(p.class)
	switch {
	case !ok && p.isClass():
		return nil, fault(hyperv.NotFound, "the host has no class %s", p.class)
	case !ok:
		return nil, noClass(p.class)
	}
	if err := v.machine.faults.deny(class.Name); err != nil {
		return nil, err
	}
	if p.isClass() {
		o := class.New()
		o.class = true
		o.Path = pathTo(v.host.Name, v.name, o)
		return o, nil
	}
	for name := range p.keys {
		if key, ok := class.Property(name); name != "" && (!ok || !key.Key) && !class.abstract {
			return nil, fault(invalidObjectPath, "%s has no key %s", class.Name, name)
		}
	}
	o, ok := v.find(path, "")
	if !ok {
		return nil, fault(hyperv.NotFound, "there is no %s", path)
	}
	return o, nil
}

// Put writes the properties of an instance that were set since it was read.
func (n *Namespace) Put(ctx context.Context, o *Object) error {
	return faultOf(ctx, "put "+o.Path, n.put(ctx, o))
}

func (n *Namespace) put(ctx context.Context, o *Object) error {
	if err := n.machine.faults.strike(n.name, false); err != nil {
		return err
	}
	v, err := n.look(ctx)
	if err != nil {
		return err
	}
	if o.class || o.Path == "" {
		return fault(providerNotCapable, "only instances that exist can be written")
	}
	current, err := v.at(o.Path)
	if err != nil {
		return err
	}
	if err := n.machine.faults.deny(current.Class.Name + ".Put"); err != nil {
		return err
	}
	change, err := changeOf(current, o)
	if err != nil || len(change) == 0 {
		return err
	}
	write, ok := writers[current.Class.Name]
	if !ok {
		return fault(providerNotCapable, "instances of %s cannot be written", current.Class.Name)
	}
	return write(ctx, v, current, change)
}

// changeOf is what an object changes of an instance. Only what can be written may
// change.
func changeOf(current, o *Object) (fields, error) {
	change := fields{}
	for name := range o.changed {
		p, ok := current.Class.Property(name)
		if !ok {
			return nil, fault(hyperv.UnknownName, "%s has no property %s", current.Class.Name, name)
		}
		value := o.values[name]
		if equal(current.values[name], value) {
			continue
		}
		if !p.Write || p.Key {
			return nil, fault(readOnly, "%s.%s cannot be written", current.Class.Name, p.Name)
		}
		if inner, ok := value.(*Object); ok {
			before, ok := current.values[name].(*Object)
			if !ok || inner.Class.Name != before.Class.Name {
				return nil, fault(typeMismatch, "%s is no %s", p.Name, p.Class)
			}
			nested, err := changeOf(before, inner)
			if err != nil {
				return nil, err
			}
			change[p.Name] = nested
			continue
		}
		change[p.Name] = value
	}
	return change, nil
}

// equal compares two values of a property.
func equal(a, b any) bool {
	switch a := a.(type) {
	case *Object:
		other, ok := b.(*Object)
		if !ok || a.Class.Name != other.Class.Name {
			return false
		}
		for _, p := range a.Class.Properties {
			if !equal(a.values[fold(p.Name)], other.values[fold(p.Name)]) {
				return false
			}
		}
		return true
	case []any:
		other, ok := b.([]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for i := range a {
			if !equal(a[i], other[i]) {
				return false
			}
		}
		return true
	default:
		if _, isList := b.([]any); isList {
			return false
		}
		return a == b
	}
}
