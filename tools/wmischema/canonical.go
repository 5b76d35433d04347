package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// canonical is what is used of canonical.json.
type canonical struct{ Classes []class }

type class struct {
	Name, Superclass string
	Qualifiers       map[string]any
	FirstSeen        string `json:"first_seen"`
	Properties       []declared
	Methods          []method
}

type method struct {
	Name       string
	ReturnType string `json:"return_type"`
	Parameters []declared
}

// declared is a property or a parameter.
type declared struct {
	Name, Type, Direction string
	Array, Ref            bool
	Qualifiers            map[string]any
	FirstSeen             string `json:"first_seen"`
}

func readCanonical(path string) (*canonical, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c canonical
	return &c, json.Unmarshal(text, &c)
}

// fill is the lines with what is published of root\virtualization\v2.
func (c *canonical) fill(lines []line) ([]line, error) {
	out := slices.Clone(lines)
	for i := range out {
		if l := &out[i]; l.namespace == virtualization && !c.fillIn(l) {
			return nil, fmt.Errorf("%s is not published", l)
		}
	}
	return out, nil
}

// fillIn fills in a line. Which parameters may be left out is not published: those flags stay.
func (c *canonical) fillIn(l *line) bool {
	is, ok := named(c.Classes, l.class, func(c class) string { return c.Name })
	if !ok {
		return false
	}
	method, parameter, isMethod := l.parts()
	switch {
	case l.member == "":
		l.kind, l.since = is.Superclass, since(is.FirstSeen)
		l.flags = flags(is.Qualifiers, "Abstract", "Singleton", "Association")
	case !isMethod:
		p, ok := named(is.Properties, l.member, func(d declared) string { return d.Name })
		if !ok {
			return false
		}
		l.kind, l.flags, l.since = p.kind(), flags(p.Qualifiers, "Key", "Write"), ""
		if p.FirstSeen != is.FirstSeen {
			l.since = since(p.FirstSeen)
		}
	default:
		m, ok := methodNamed(is.Methods, method)
		if !ok {
			return false
		}
		if parameter == "" {
			l.kind = strings.ToLower(m.ReturnType)
			return true
		}
		p, ok := named(m.Parameters, parameter, func(d declared) string { return d.Name })
		if !ok || !strings.Contains(l.flags, strings.ToLower(p.Direction)) {
			return false
		}
		l.kind = p.kind()
	}
	return true
}

func methodNamed(list []method, name string) (method, bool) {
	return named(list, name, func(m method) string { return m.Name })
}

func named[T any](list []T, name string, of func(T) string) (found T, ok bool) {
	i := slices.IndexFunc(list, func(one T) bool { return strings.EqualFold(of(one), name) })
	if i < 0 {
		return found, false
	}
	return list[i], true
}

// oldest is the first build of all: what it has, every build has.
const oldest = "9200"

func since(build string) string {
	if build == oldest {
		return ""
	}
	return build
}

func (d declared) kind() string {
	out := d.Type
	if !strings.Contains(out, "_") { // no class: types are written in several ways
		out = strings.ToLower(out)
	}
	if d.Ref {
		out += " ref"
	}
	if d.Array {
		out += "[]"
	}
	return out
}

// flags are those of some qualifiers that there are, in lower case.
func flags(qualifiers map[string]any, names ...string) string {
	var out []string
	for _, name := range names {
		for q, value := range qualifiers {
			if is, flag := value.(bool); strings.EqualFold(q, name) && flag && is {
				out = append(out, strings.ToLower(name))
			}
		}
	}
	return strings.Join(out, " ")
}
