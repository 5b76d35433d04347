package fakewmi

import (
	"slices"
	"strings"
)

// Type is a CIM type.
type Type string

// Types that the classes here use.
const (
	Boolean        Type = "boolean"
	Uint8          Type = "uint8"
	Uint16         Type = "uint16"
	Uint32         Type = "uint32"
	Uint64         Type = "uint64"
	Sint8          Type = "sint8"
	Sint32         Type = "sint32"
	Sint64         Type = "sint64"
	String         Type = "string"
	Reference      Type = "reference"
	Datetime       Type = "datetime"
	EmbeddedObject Type = "object"
)

// Class is a class as one machine has it: what it inherits is among its own, and what
// the machine's build of Windows does not have is left out.
type Class struct {
	Name, Super string
	Properties  []Property
	Methods     []Method

	// since is the first build of Windows that has it.
	since int
	// bases are the classes that it is derived from, nearest first.
	bases []string
	// abstract classes have no instances of their own.
	abstract bool
	// singleton is a class with one instance, whose path has no keys.
	singleton bool
	// association is a class whose instances connect others.
	association bool
}

// Property is a property of a class or a parameter of a method.
type Property struct {
	Name  string
	Type  Type
	Array bool
	Key   bool
	// Write tells that Put takes a new value.
	Write bool
	// Since is the first build of Windows that has it, 0 for all.
	Since int
	// Class is what a reference points to and what an embedded object is.
	Class string

	// origin is the class that declares it.
	origin string
	// optional parameters may be left out.
	optional bool
}

// Method is a method of a class.
type Method struct {
	Name    string
	In, Out []Property
	// Static methods are called on the class.
	Static bool
	// Void methods have no return value.
	Void bool
}

// Property finds a property by its name, without case.
func (c *Class) Property(name string) (*Property, bool) {
	for i := range c.Properties {
		if strings.EqualFold(c.Properties[i].Name, name) {
			return &c.Properties[i], true
		}
	}
	return nil, false
}

// Method finds a method by its name, without case.
func (c *Class) Method(name string) (*Method, bool) {
	i := slices.IndexFunc(c.Methods, func(m Method) bool { return strings.EqualFold(m.Name, name) })
	if i < 0 {
		return nil, false
	}
	return &c.Methods[i], true
}

// Is tells whether a class is another one or derived from it.
func (c *Class) Is(name string) bool {
	return strings.EqualFold(c.Name, name) ||
		slices.ContainsFunc(c.bases, func(base string) bool { return strings.EqualFold(base, name) })
}

// New is an instance that does not exist yet: none of its properties has a value.
func (c *Class) New() *Object {
	return &Object{Class: c, values: map[string]any{}}
}

// parameters is the class of the objects that carry the parameters of methods.
const parameters = "__PARAMETERS"

// Parameters is an object to put the in parameters into, nil for a method that has
// none.
func (m *Method) Parameters() *Object {
	if len(m.In) == 0 {
		return nil
	}
	return (&Class{Name: parameters, Properties: m.In}).New()
}

// Results is an object for the out parameters and the return value, nil for a method
// that has neither.
func (m *Method) Results() *Object {
	properties := slices.Clone(m.Out)
	if !m.Void {
		properties = append(properties, Property{Name: returnValue, Type: Uint32})
	}
	if len(properties) == 0 {
		return nil
	}
	return (&Class{Name: parameters, Properties: properties}).New()
}

const returnValue = "ReturnValue"
