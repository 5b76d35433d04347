package fakewmi

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// Object is a copy of an instance, a class, or the parameters of a method. It may be
// changed; Put of its namespace writes the change.
type Object struct {
	Class *Class
	// Path is the full path, "" for what is embedded, was not stored yet or was
	// selected without its keys.
	Path string

	// values are by folded name: bool, uint64, int64, string, []any, *Object, nil.
	values map[string]any
	// selected are the folded names that a query asked for, nil for all.
	selected map[string]bool
	// changed are the folded names that were set since the object was read.
	changed map[string]bool
	class   bool
}

// IsClass tells whether the object is a class and not an instance.
func (o *Object) IsClass() bool { return o.class }

// Properties are the properties that the object has: those of its class, or those of
// them that a query asked for.
func (o *Object) Properties() []Property {
	if o.selected == nil {
		return o.Class.Properties
	}
	var out []Property
	for _, p := range o.Class.Properties {
		if o.selected[fold(p.Name)] {
			out = append(out, p)
		}
	}
	return out
}

// property finds a property that the object has.
func (o *Object) property(name string) (*Property, bool) {
	p, ok := o.Class.Property(name)
	if !ok || (o.selected != nil && !o.selected[fold(name)]) {
		return nil, false
	}
	return p, true
}

// Get reads a property: nil for no value, bool, uint64 for unsigned and int64 for
// signed numbers, string, []any, *Object. It is not ok when the class has no such
// property on this build or the query did not ask for it.
func (o *Object) Get(name string) (value any, ok bool) {
	p, ok := o.property(name)
	if !ok {
		return nil, false
	}
	return o.values[fold(p.Name)], true
}

// Set changes a property. It takes what automation can convert to the property's
// type: numbers that fit, decimal digits for numbers, lists for arrays, nil for no
// value.
func (o *Object) Set(name string, v any) error {
	p, ok := o.property(name)
	if !ok {
		return &hyperv.Fault{Code: hyperv.UnknownName, Op: "set " + name, Text: o.Class.Name + " has no such property"}
	}
	converted, ok := p.convert(v)
	if !ok {
		return &hyperv.Fault{Code: typeMismatch, Op: "set " + name, Text: fmt.Sprintf("%T for %s %s", v, p.describe(), p.Name)}
	}
	o.values[fold(p.Name)] = converted
	if o.changed == nil {
		o.changed = map[string]bool{}
	}
	o.changed[fold(p.Name)] = true
	return nil
}

// Clone is a copy that can be changed by itself.
func (o *Object) Clone() *Object {
	c := *o
	c.values = make(map[string]any, len(o.values))
	for name, v := range o.values {
		c.values[name] = cloneValue(v)
	}
	c.changed = maps.Clone(o.changed)
	return &c
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case *Object:
		return v.Clone()
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = cloneValue(out[i])
		}
		return out
	default:
		return v
	}
}

func (p *Property) describe() string {
	if p.Array {
		return string(p.Type) + "[]"
	}
	return string(p.Type)
}

// convert makes of v what an object holds for the property.
func (p *Property) convert(v any) (any, bool) {
	if v == nil {
		return nil, true
	}
	if !p.Array {
		return p.Type.convert(v)
	}
	var list []any
	switch v := v.(type) {
	case []any:
		list = v
	case []string:
		for _, s := range v {
			list = append(list, s)
		}
	case []*Object:
		for _, o := range v {
			list = append(list, o)
		}
	default:
		return nil, false
	}
	out := make([]any, 0, len(list))
	for _, v := range list {
		converted, ok := p.Type.convert(v)
		if !ok {
			return nil, false
		}
		out = append(out, converted)
	}
	return out, true
}

func (t Type) convert(v any) (any, bool) {
	switch t {
	case Boolean:
		b, ok := v.(bool)
		return b, ok
	case String, Reference, Datetime:
		s, ok := v.(string)
		return s, ok
	case EmbeddedObject:
		o, ok := v.(*Object)
		return o, ok && o != nil
	case Sint32, Sint64:
		n, ok := signed(v)
		return n, ok && (t == Sint64 || (n >= math.MinInt32 && n <= math.MaxInt32))
	default:
		n, ok := t.unsigned(v)
		return n, ok
	}
}

// bits is the width of an unsigned type.
func (t Type) bits() int {
	switch t {
	case Uint8:
		return 8
	case Uint16:
		return 16
	case Uint32:
		return 32
	default:
		return 64
	}
}

// unsigned reads a number. Automation has no unsigned one of 32 bits and takes a
// negative one for its bits.
func (t Type) unsigned(v any) (uint64, bool) {
	switch v := v.(type) {
	case uint64:
		return v, t == Uint64 || v < 1<<t.bits()
	case string:
		n, err := strconv.ParseUint(v, 10, t.bits())
		return n, err == nil
	}
	n, ok := signed(v)
	if ok && n < 0 && n >= math.MinInt32 && t == Uint32 {
		return uint64(uint32(n)), true
	}
	if !ok || n < 0 {
		return 0, false
	}
	return t.unsigned(uint64(n))
}

func signed(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	default:
		return 0, false
	}
}

// fold is a name as WMI compares it.
func fold(name string) string { return strings.ToLower(name) }

// text, number, flag and list read values that have their type for sure.

func (o *Object) text(name string) string {
	s, _ := o.values[fold(name)].(string)
	return s
}

func (o *Object) number(name string) (uint64, bool) {
	n, ok := o.values[fold(name)].(uint64)
	return n, ok
}

func (o *Object) flag(name string) (value, ok bool) {
	value, ok = o.values[fold(name)].(bool)
	return value, ok
}

func (o *Object) texts(name string) []string {
	list, _ := o.values[fold(name)].([]any)
	var out []string
	for _, v := range list {
		s, _ := v.(string)
		out = append(out, s)
	}
	return out
}
