package fakewmi

import (
	"embed"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// published has what is published of the classes that are used here: a line for each class,
// property, method and parameter, filled in by tools/wmischema. Members are written Name,
// Name() and Name(parameter), types as in MOF, and since is the first build of Windows that
// has it.
//
//go:embed schema/published.csv
var published embed.FS

// parsePublished reads the classes of each namespace, each as it is declared.
func parsePublished(in io.Reader) (map[string][]*Class, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord, r.Comment = 6, '#'
	lines, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	out := map[string][]*Class{}
	for _, l := range lines[1:] { // after the heading
		namespace, class, member, kind, flags, build := l[0], l[1], l[2], l[3], strings.Fields(l[4]), l[5]
		has := func(flag string) bool { return slices.Contains(flags, flag) }
		since := 0
		if build != "" {
			if since, err = strconv.Atoi(build); err != nil {
				return nil, fmt.Errorf("%s.%s: %w", class, member, err)
			}
		}
		if member == "" {
			out[namespace] = append(out[namespace], &Class{
				Name: class, Super: kind, since: since,
				abstract: has("abstract"), singleton: has("singleton"), association: has("association"),
			})
			continue
		}
		classes := out[namespace]
		if len(classes) == 0 || classes[len(classes)-1].Name != class {
			return nil, fmt.Errorf("%s.%s comes before its class", class, member)
		}
		c := classes[len(classes)-1]
		p := typed(kind)
		method, parameter, isMethod := strings.Cut(strings.TrimSuffix(member, ")"), "(")
		switch {
		case !isMethod:
			p.Name, p.Key, p.Write, p.Since, p.origin = member, has("key"), has("write"), since, class
			c.Properties = append(c.Properties, p)
		case parameter == "":
			c.Methods = append(c.Methods, Method{Name: method, Static: has("static"), Void: kind == "void"})
		case len(c.Methods) == 0 || c.Methods[len(c.Methods)-1].Name != method:
			return nil, fmt.Errorf("%s.%s comes before its method", class, member)
		default:
			m := &c.Methods[len(c.Methods)-1]
			p.Name, p.optional = parameter, has("optional")
			if has("in") {
				m.In = append(m.In, p)
			}
			if has("out") {
				m.Out = append(m.Out, p)
			}
		}
	}
	return out, nil
}

var simpleTypes = []Type{Boolean, Uint8, Uint16, Uint32, Uint64, Sint8, Sint32, Sint64, String, Datetime}

// typed reads a type: "uint16[]", "CIM_Job ref", or the class of an embedded object.
func typed(kind string) Property {
	kind, array := strings.CutSuffix(kind, "[]")
	class, ref := strings.CutSuffix(kind, " ref")
	switch {
	case ref:
		return Property{Type: Reference, Class: class, Array: array}
	case slices.Contains(simpleTypes, Type(kind)):
		return Property{Type: Type(kind), Array: array}
	}
	return Property{Type: EmbeddedObject, Class: kind, Array: array}
}
