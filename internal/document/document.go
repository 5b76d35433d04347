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
	"unicode/utf8"
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

// mostUnknown is how many unknown fields an error has, and mostOfName how many bytes of a name: a
// document of somebody else may have any number of them, of any length.
const (
	mostUnknown = 100
	mostOfName  = 100
)

// Names lists what is unknown, for people.
func (e *UnknownError) Names() string {
	quoted := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		quoted[i] = strconv.Quote(f)
	}
	return strings.Join(quoted, ", ")
}

// Encode is a value of ours as JSON, which each has.
func Encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// Read decodes one document strictly: each field is known, by its exact name, and there
// once, each Enum has a known value, and nothing follows. What is unknown is an *UnknownError,
// and then nothing is decoded.
func Read(data []byte, into any) error {
	var unknown []string
	err := check(data, into, func(path string) {
		if len(unknown) < mostUnknown {
			unknown = append(unknown, path)
		}
	})
	if err != nil {
		return err
	}
	if len(unknown) > 0 {
		return &UnknownError{Fields: unknown}
	}
	return json.Unmarshal(data, into)
}

// ReadKnown decodes what is known of a document. unknown, unless it is nil, hears of the paths of the
// fields that are not. A text is kept as it is, whether or not its value is known.
func ReadKnown(data []byte, into any, unknown func(path string)) error {
	// Most documents have nothing that is unknown, and this is the fast way to see it.
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if in.Decode(into) == nil && !in.More() {
		return nil
	}
	reflect.ValueOf(into).Elem().SetZero() // of what was decoded before it failed
	if err := check(data, into, func(path string) {
		if unknown != nil && !strings.Contains(path, "=") {
			unknown(path)
		}
	}); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// check walks through a document and tells what is unknown of it.
func check(data []byte, into any, unknown func(path string)) error {
	if !json.Valid(data) { // or something follows it
		return json.Unmarshal(data, new(json.RawMessage))
	}
	w := walk{rest: data, unknown: unknown}
	return w.value(reflect.TypeOf(into), nil)
}

// walk goes through a well-formed document beside the type that it is read into.
type walk struct {
	rest    []byte
	unknown func(path string)
	// known hears of each field, and of each value of an Enum; nil for nobody.
	known func(of reflect.Type, name string, isValue bool)
}

// place is where in a document something is; nil for all of it.
type place struct {
	in   *place
	name string // of a field
	i    int    // in a list, when there is no name
	list bool
}

func (p *place) String() string {
	switch {
	case p == nil:
		return ""
	case p.list:
		return fmt.Sprintf("%s[%d]", p.in, p.i)
	}
	return join(p.in.String(), p.name[:min(len(p.name), mostOfName)])
}

// next is the first byte of what comes next.
func (w *walk) next() byte {
	for w.rest[0] == ' ' || w.rest[0] == '\t' || w.rest[0] == '\n' || w.rest[0] == '\r' || w.rest[0] == ',' || w.rest[0] == ':' {
		w.rest = w.rest[1:]
	}
	return w.rest[0]
}

// text reads the string that comes next.
func (w *walk) text() string {
	end, asWritten := 1, true
	for ; w.rest[end] != '"'; end++ {
		if w.rest[end] == '\\' {
			asWritten, end = false, end+1
		}
		asWritten = asWritten && w.rest[end] < utf8.RuneSelf
	}
	quoted := w.rest[:end+1]
	w.rest = w.rest[end+1:]
	if asWritten {
		return string(quoted[1:end])
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // which is well formed
	return text
}

// value walks through the next value. A nil type takes anything.
func (w *walk) value(of reflect.Type, at *place) error {
	t := shapeOf(of)
	switch w.next() {
	case '{':
		return w.object(t, at)
	case '[':
		w.rest = w.rest[1:]
		for i := 0; w.next() != ']'; i++ {
			if err := w.value(t.element, &place{in: at, i: i, list: true}); err != nil {
				return err
			}
		}
		w.rest = w.rest[1:]
	case '"':
		if text := w.text(); text != "" && t.values != nil {
			if !slices.Contains(t.values, text) {
				w.unknown(at.String() + "=" + text)
			} else {
				w.note(t.plain, text, true)
			}
		}
	default: // a number, true, false or null
		end := bytes.IndexAny(w.rest, ",]} \t\r\n")
		if end < 0 {
			end = len(w.rest)
		}
		w.rest = w.rest[end:]
	}
	return nil
}

func (w *walk) object(t *shape, at *place) error {
	w.rest = w.rest[1:]
	seen := map[string]bool{}
	for w.next() != '}' {
		name := w.text()
		here := &place{in: at, name: name}
		if seen[name] {
			return fmt.Errorf("field %s is there twice", here)
		}
		seen[name] = true
		child := t.element
		if t.fields != nil {
			i := slices.IndexFunc(t.fields, func(f field) bool { return f.name == name })
			if i < 0 {
				w.unknown(here.String())
			} else {
				child = t.fields[i].of
				w.note(t.plain, name, false)
			}
		}
		if err := w.value(child, here); err != nil {
			return err
		}
	}
	w.rest = w.rest[1:]
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

// shape is what a walk asks of a type.
type shape struct {
	plain   reflect.Type // nil for what takes anything
	fields  []field      // of a struct
	element reflect.Type
	values  []string // of an Enum
}

var shapes sync.Map // of *shape, by reflect.Type

func shapeOf(t reflect.Type) *shape {
	if t == nil {
		return &shape{}
	}
	if known, ok := shapes.Load(t); ok {
		s, _ := known.(*shape)
		return s
	}
	p := plain(t)
	s := &shape{plain: p, fields: fieldsOf(p), element: element(p), values: valuesOf(p)}
	shapes.Store(t, s)
	return s
}

// fieldsOf are the fields of a struct, those of embedded structs included; nil for what is none.
func fieldsOf(t reflect.Type) []field {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
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
		out = append(out, field{
			name: name, of: f.Type, optional: strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero"),
		})
	}
	return out
}
