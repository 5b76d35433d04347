// Package document reads the JSON documents that providers and hosts exchange and keep, and
// says what a build knows of them.
//
// encoding/json drops a field that it does not know, lets the last of two fields win and does
// not mind the case of a name. A wish that is lost in one of these ways is lost silently. (The
// options of encoding/json/v2 refuse all three, once Go has it.)
package document

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Enum is a text that has one of a few values. The empty text is none of them and always known.
type Enum interface{ Values() []string }

// UnknownError is a document that has what this build does not know, and is well formed
// otherwise: a later build may know it.
type UnknownError struct {
	// Fields are the paths of what is unknown: "want.vm_assignment.power.next_off", or
	// "want.partition_config.max_disruption=vm_pause" for a value.
	Fields []string
}

func (e *UnknownError) Error() string {
	return "unknown field " + e.Names()
}

// Names lists what is unknown, for people.
func (e *UnknownError) Names() string {
	quoted := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		quoted[i] = strconv.Quote(f)
	}
	return strings.Join(quoted, ", ")
}

// Read decodes one document strictly: each field is known, by its exact name, and there
// once, each Enum has a known value, and nothing follows. What is unknown is an *UnknownError,
// and then nothing is decoded.
func Read(data []byte, into any) error {
	unknown, err := check(data, into)
	if err != nil {
		return err
	}
	if len(unknown) > 0 {
		return &UnknownError{Fields: unknown}
	}
	return json.Unmarshal(data, into)
}

// ReadKnown decodes what is known of a document, and returns the paths of the fields that are
// not. A text is kept as it is, whether or not its value is known.
func ReadKnown(data []byte, into any) (unknown []string, err error) {
	// Most documents have nothing that is unknown, and this is the fast way to see it.
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if in.Decode(into) == nil && !in.More() {
		return nil, nil
	}
	reflect.ValueOf(into).Elem().SetZero() // of what was decoded before it failed
	if unknown, err = check(data, into); err != nil {
		return nil, err
	}
	unknown = slices.DeleteFunc(unknown, func(path string) bool { return strings.Contains(path, "=") })
	return unknown, json.Unmarshal(data, into)
}

// check walks through a document and lists what is unknown of it.
func check(data []byte, into any) ([]string, error) {
	if !json.Valid(data) { // or something follows it
		return nil, json.Unmarshal(data, new(json.RawMessage))
	}
	var unknown []string
	w := walk{in: json.NewDecoder(bytes.NewReader(data)), unknown: func(path string) { unknown = append(unknown, path) }}
	err := w.value(reflect.TypeOf(into), "")
	return unknown, err
}

// walk goes through a well-formed document beside the type that it is read into.
type walk struct {
	in      *json.Decoder
	unknown func(path string)
	// known hears of each field, and of each value of an Enum; nil for nobody.
	known func(of reflect.Type, name string, isValue bool)
}

// value walks through the next value. A nil type takes anything.
func (w *walk) value(t reflect.Type, path string) error {
	token, err := w.in.Token()
	if err != nil {
		return err
	}
	t = plain(t)
	switch token {
	case json.Delim('{'):
		fields := fieldsOf(t)
		seen := map[string]bool{}
		for w.in.More() {
			key, err := w.in.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			at := join(path, name)
			if seen[name] {
				return fmt.Errorf("field %s is there twice", at)
			}
			seen[name] = true
			child := element(t)
			if fields != nil {
				i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
				if i < 0 {
					w.unknown(at)
				} else {
					child = fields[i].of
					w.note(t, name, false)
				}
			}
			if err := w.value(child, at); err != nil {
				return err
			}
		}
		_, err = w.in.Token()
		return err
	case json.Delim('['):
		for i := 0; w.in.More(); i++ {
			if err := w.value(element(t), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		_, err = w.in.Token()
		return err
	}
	if text, isText := token.(string); isText && text != "" {
		if values := valuesOf(t); values != nil {
			if !slices.Contains(values, text) {
				w.unknown(path + "=" + text)
			} else {
				w.note(t, text, true)
			}
		}
	}
	return nil
}

func (w *walk) note(of reflect.Type, name string, isValue bool) {
	if w.known != nil {
		w.known(of, name, isValue)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// plain is a type without its pointers; nil for one that reads itself.
func plain(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() == reflect.Interface {
		return nil
	}
	for _, own := range []reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()} {
		if reflect.PointerTo(t).Implements(own) {
			return nil
		}
	}
	return t
}

func element(t reflect.Type) reflect.Type {
	if t != nil && slices.Contains([]reflect.Kind{reflect.Map, reflect.Slice, reflect.Array}, t.Kind()) {
		return t.Elem()
	}
	return nil
}

func valuesOf(t reflect.Type) []string {
	if t == nil {
		return nil
	}
	if e, ok := reflect.Zero(t).Interface().(Enum); ok {
		return e.Values()
	}
	return nil
}

type field struct {
	name     string
	of       reflect.Type
	optional bool
}

var fieldsOfTypes sync.Map // of []field, by reflect.Type

// fieldsOf are the fields of a struct, those of embedded structs included; nil for what is none.
func fieldsOf(t reflect.Type) []field {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	if known, ok := fieldsOfTypes.Load(t); ok {
		fields, _ := known.([]field)
		return fields
	}
	out := []field{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-" || f.Anonymous && name == "":
			continue
		case name == "":
			name = f.Name
		}
		out = append(out, field{name: name, of: f.Type, optional: strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")})
	}
	fieldsOfTypes.Store(t, out)
	return out
}
