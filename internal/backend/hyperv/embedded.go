package hyperv

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// embedded is an instance in WMI's XML (CIM DTD 2.0), the form in which methods of
// Hyper-V take settings. A template or a setting is read as text and patched, so that
// whatever else it holds goes back untouched.
type embedded struct{ root node }

// node is any element. Attributes, text and children that we know nothing about are
// kept as they are.
type node struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []node     `xml:",any"`
}

// newEmbedded begins an instance of a class that has no template.
func newEmbedded(class string) *embedded {
	return &embedded{node{XMLName: xml.Name{Local: "INSTANCE"}, Attrs: []xml.Attr{{Name: xml.Name{Local: "CLASSNAME"}, Value: class}}}}
}

func parseEmbedded(text string) (*embedded, error) {
	var e embedded
	if err := xml.Unmarshal([]byte(text), &e.root); err != nil {
		return nil, fmt.Errorf("the instance is not the XML that WMI documents: %w", err)
	}
	if e.root.XMLName.Local != "INSTANCE" {
		return nil, fmt.Errorf("the instance is not the XML that WMI documents: it begins with <%s>", e.root.XMLName.Local)
	}
	return &e, nil
}

func (e *embedded) String() string {
	out, err := xml.Marshal(e.root)
	if err != nil { // a tree of strings always marshals
		return ""
	}
	return string(out)
}

// set replaces a property's value: a string, a bool, a uint16, a uint64, a []string, or nil.
func (e *embedded) set(name string, value any) {
	values, kind, array := lexical(value)
	i := slices.IndexFunc(e.root.Children, func(n node) bool { return strings.EqualFold(n.attr("NAME"), name) })
	if i < 0 {
		element := "PROPERTY"
		if array {
			element = "PROPERTY.ARRAY"
		}
		e.root.Children = append(e.root.Children, node{XMLName: xml.Name{Local: element}, Attrs: []xml.Attr{
			{Name: xml.Name{Local: "NAME"}, Value: name}, {Name: xml.Name{Local: "TYPE"}, Value: kind},
		}})
		i = len(e.root.Children) - 1
	}
	p := &e.root.Children[i]
	// Qualifiers come before the value and stay.
	p.Children = slices.DeleteFunc(p.Children, func(n node) bool { return strings.HasPrefix(n.XMLName.Local, "VALUE") })
	if value == nil {
		return
	}
	var list []node
	for _, v := range values {
		list = append(list, node{XMLName: xml.Name{Local: "VALUE"}, Text: v})
	}
	if p.XMLName.Local == "PROPERTY.ARRAY" {
		list = []node{{XMLName: xml.Name{Local: "VALUE.ARRAY"}, Children: list}}
	}
	p.Children = append(p.Children, list...)
}

func (n node) attr(name string) string {
	for _, a := range n.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// lexical is a value as XML text, with its CIM type.
func lexical(value any) (values []string, kind string, array bool) {
	switch v := value.(type) {
	case string:
		return []string{v}, "string", false
	case []string:
		return v, "string", true
	case bool:
		return []string{strings.ToUpper(strconv.FormatBool(v))}, "boolean", false
	case uint16:
		return []string{strconv.FormatUint(uint64(v), 10)}, "uint16", false
	case uint64:
		return []string{strconv.FormatUint(v, 10)}, "uint64", false
	default:
		return nil, "string", false
	}
}
