package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Knowledge is what a build knows of a document: its fields, and the values of its Enums.
// Each type counts once, where it comes first.
type Knowledge struct {
	paths map[reflect.Type]string // where each type comes first
	lines []line
}

type line struct{ path, shape string }

// Of is what this build knows of the documents that are read into a T.
func Of[T any]() *Knowledge {
	k := &Knowledge{paths: map[reflect.Type]string{}}
	k.add(reflect.TypeFor[T](), "")
	return k
}

func (k *Knowledge) add(t reflect.Type, path string) {
	for t = plain(t); element(t) != nil; {
		t = plain(element(t))
	}
	if _, known := k.paths[t]; known || t == nil {
		return
	}
	for _, v := range valuesOf(t) {
		k.paths[t] = path
		k.lines = append(k.lines, line{path: path + "=" + v, shape: "value"})
	}
	fields := fieldsOf(t)
	if fields == nil {
		return
	}
	k.paths[t] = path
	for _, f := range fields {
		at := join(path, f.name)
		s := k.shape(f.of)
		if f.optional {
			s += ", optional"
		}
		k.lines = append(k.lines, line{path: at, shape: s})
		k.add(f.of, at)
	}
}

// shape says what a field holds.
func (k *Knowledge) shape(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if plain(t) == nil {
		return "any"
	}
	switch t.Kind() {
	case reflect.Map:
		return "map of " + k.shape(t.Elem())
	case reflect.Slice, reflect.Array:
		return "list of " + k.shape(t.Elem())
	case reflect.Struct:
		if path, known := k.paths[t]; known {
			return fmt.Sprintf("object, as %q", path)
		}
		return "object"
	}
	return t.Kind().String()
}

// All lists what is known: fields by their paths ("want.partition_config.drain"), and values
// ("want.partition_config.max_disruption=vm_restart").
func (k *Knowledge) All() []string {
	out := make([]string, 0, len(k.lines))
	for _, l := range k.lines {
		out = append(out, l.path)
	}
	return out
}

// Describe lists what is known, and what each field holds, a line each.
func (k *Knowledge) Describe() string {
	var out bytes.Buffer
	for _, l := range k.lines {
		fmt.Fprintf(&out, "%s: %s\n", l.path, l.shape)
	}
	return out.String()
}

// Used lists what of it a document uses, sorted.
func (k *Knowledge) Used(document any) ([]string, error) {
	data, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	w := walk{rest: data, unknown: func(string) {}, known: func(of reflect.Type, name string, isValue bool) {
		if isValue {
			used[k.paths[of]+"="+name] = true
		} else {
			used[join(k.paths[of], name)] = true
		}
	}}
	err = w.value(reflect.TypeOf(document), nil)
	return slices.Sorted(maps.Keys(used)), err
}

// Inside tells whether a path is one within a field.
func Inside(path, field string) bool {
	rest, inside := strings.CutPrefix(path, field)
	return inside && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "="))
}
