package fakewmi

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
)

// Text is the object in WMI's XML (GetText_ with wbemObjectTextFormatCIMDTD20). What
// has no value has an element without one.
func (o *Object) Text() string {
	var b strings.Builder
	o.write(&b)
	return b.String()
}

func (o *Object) write(b *strings.Builder) {
	fmt.Fprintf(b, `<INSTANCE CLASSNAME="%s">`, o.Class.Name)
	b.WriteString(`<QUALIFIER NAME="dynamic" PROPAGATED="true" TYPE="boolean" TOSUBCLASS="false" ` +
		`TOINSTANCE="true"><VALUE>TRUE</VALUE></QUALIFIER>`)
	for _, p := range o.Properties() {
		element, kind := elementOf(&p)
		fmt.Fprintf(b, `<%s NAME="%s" CLASSORIGIN="%s"%s>`, element, p.Name, p.origin, kind)
		if p.Key {
			b.WriteString(`<QUALIFIER NAME="key" PROPAGATED="true" TYPE="boolean" OVERRIDABLE="false" ` +
				`TOINSTANCE="true"><VALUE>TRUE</VALUE></QUALIFIER>`)
		}
		writeValue(b, p.Type, o.values[fold(p.Name)])
		fmt.Fprintf(b, `</%s>`, element)
	}
	b.WriteString(`</INSTANCE>`)
}

// elementOf is the element that a property is written as, and its type attribute.
func elementOf(p *Property) (element, attributes string) {
	element = "PROPERTY"
	switch p.Type {
	case Reference:
		return element + ".REFERENCE", fmt.Sprintf(` REFERENCECLASS="%s"`, p.Class)
	case EmbeddedObject:
		element += ".OBJECT"
		attributes = fmt.Sprintf(` REFERENCECLASS="%s"`, p.Class)
	default:
		attributes = fmt.Sprintf(` TYPE="%s"`, p.Type)
	}
	if p.Array {
		if p.Type == EmbeddedObject {
			return "PROPERTY.OBJECTARRAY", attributes
		}
		element += ".ARRAY"
	}
	return element, attributes
}

// valueElements are what values are written as that are not simple.
var valueElements = map[Type]string{Reference: "VALUE.REFERENCE", EmbeddedObject: "VALUE.OBJECT"}

func writeValue(b *strings.Builder, t Type, v any) {
	element, ok := valueElements[t]
	if !ok {
		element = "VALUE"
	}
	list, isArray := v.([]any)
	switch {
	case v == nil:
	case isArray:
		array := "VALUE.ARRAY"
		if t == EmbeddedObject {
			array = "VALUE.OBJECTARRAY"
		}
		fmt.Fprintf(b, "<%s>", array)
		for _, item := range list {
			writeValue(b, t, item)
		}
		fmt.Fprintf(b, "</%s>", array)
	default:
		fmt.Fprintf(b, "<%s>", element)
		if inner, ok := v.(*Object); ok {
			inner.write(b)
		} else {
			_ = xml.EscapeText(b, []byte(lexical(v))) // a strings.Builder never fails
		}
		fmt.Fprintf(b, "</%s>", element)
	}
}

// lexical is a simple value as text.
func lexical(v any) string {
	switch v := v.(type) {
	case bool:
		return strings.ToUpper(strconv.FormatBool(v))
	case uint64:
		return strconv.FormatUint(v, 10)
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		s, _ := v.(string)
		return s
	}
}
