package fakewmi

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// element is any element of WMI's XML.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []element  `xml:",any"`
}

func (e *element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (e *element) child(name string) *element {
	for i := range e.Children {
		if e.Children[i].XMLName.Local == name {
			return &e.Children[i]
		}
	}
	return nil
}

// parseEmbedded reads an instance that a method was given as text. Its properties must
// be those of its class and have values of their types.
func parseEmbedded(text string, all classes) (*Object, error) {
	decoder := xml.NewDecoder(strings.NewReader(text))
	var root element
	if err := decoder.Decode(&root); err != nil {
		return nil, fmt.Errorf("no XML: %w", err)
	}
	var more element
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one instance")
	}
	if root.XMLName.Local != "INSTANCE" {
		return nil, fmt.Errorf("%s instead of INSTANCE", root.XMLName.Local)
	}
	class, ok := all(root.attr("CLASSNAME"))
	if !ok {
		return nil, fmt.Errorf("there is no class %q", root.attr("CLASSNAME"))
	}
	o := class.New()
	for i := range root.Children {
		child := &root.Children[i]
		if !strings.HasPrefix(child.XMLName.Local, "PROPERTY") {
			continue
		}
		if err := o.read(child); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// read takes a property from its element.
func (o *Object) read(e *element) error {
	name := e.attr("NAME")
	p, ok := o.Class.Property(name)
	if !ok {
		return fmt.Errorf("%s has no property %q", o.Class.Name, name)
	}
	want, _ := elementOf(p)
	if kind := e.attr("TYPE"); e.XMLName.Local != want || (want == "PROPERTY" || want == "PROPERTY.ARRAY") && kind != string(p.Type) {
		return fmt.Errorf("%s is a %s, not a %s of type %q", name, p.describe(), e.XMLName.Local, kind)
	}
	if want != "PROPERTY" && want != "PROPERTY.ARRAY" {
		if len(e.Children) > 0 {
			return fmt.Errorf("%s cannot be given as text", name)
		}
		return nil
	}
	var value any
	if p.Array {
		if array := e.child("VALUE.ARRAY"); array != nil {
			list := []any{}
			for i := range array.Children {
				list = append(list, p.Type.parse(array.Children[i].Text))
			}
			value = list
		}
	} else if v := e.child("VALUE"); v != nil {
		value = p.Type.parse(v.Text)
	}
	converted, ok := p.convert(value)
	if !ok {
		return fmt.Errorf("%s is a %s, not %v", name, p.describe(), value)
	}
	o.values[fold(name)] = converted
	return nil
}

// parse reads a value's text; one that is no boolean stays a string, which then does
// not convert.
func (t Type) parse(s string) any {
	if t == Boolean && isBoolean(s) {
		return strings.EqualFold(s, "TRUE")
	}
	return s
}
