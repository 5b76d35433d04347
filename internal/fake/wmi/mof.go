package fakewmi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mofToken is a word, a number or a mark of MOF. Comments run to the end of a line.
var mofToken = regexp.MustCompile(`//[^\n]*|[A-Za-z_0-9]+|\[\]|[\[\]{}():;,]`)

// mofParser reads the subset of MOF that the schema files are written in.
type mofParser struct {
	tokens []string
	at     int
}

// parseMOF reads the classes of one file, each as it is declared.
func parseMOF(text string) ([]*Class, error) {
	p := &mofParser{tokens: slices.DeleteFunc(mofToken.FindAllString(text, -1), func(t string) bool {
		return strings.HasPrefix(t, "//")
	})}
	var out []*Class
	for p.at < len(p.tokens) {
		c, err := p.class()
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func (p *mofParser) peek() string {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return ""
}

func (p *mofParser) next() string {
	t := p.peek()
	p.at++
	return t
}

func (p *mofParser) skip(token string) bool {
	if p.peek() != token {
		return false
	}
	p.at++
	return true
}

func (p *mofParser) expect(token string) error {
	if !p.skip(token) {
		return fmt.Errorf("MOF: %q instead of %q", p.peek(), token)
	}
	return nil
}

// qualifiers reads [a, b, since(1)] if it is there.
func (p *mofParser) qualifiers() (map[string]bool, int, error) {
	flags, since := map[string]bool{}, 0
	if !p.skip("[") {
		return flags, 0, nil
	}
	for {
		name := p.next()
		flags[name] = true
		if p.skip("(") {
			n, err := strconv.Atoi(p.next())
			if err != nil {
				return nil, 0, fmt.Errorf("MOF: qualifier %s: %w", name, err)
			}
			since = n
			if err := p.expect(")"); err != nil {
				return nil, 0, err
			}
		}
		if p.skip("]") {
			return flags, since, nil
		}
		if err := p.expect(","); err != nil {
			return nil, 0, err
		}
	}
}

func (p *mofParser) class() (*Class, error) {
	flags, since, err := p.qualifiers()
	if err != nil {
		return nil, err
	}
	if err := p.expect("class"); err != nil {
		return nil, err
	}
	c := &Class{
		Name: p.next(), since: since,
		abstract: flags["abstract"], singleton: flags["singleton"], association: flags["association"],
	}
	if p.skip(":") {
		c.Super = p.next()
	}
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	for !p.skip("}") {
		if err := p.member(c); err != nil {
			return nil, fmt.Errorf("%w (class %s)", err, c.Name)
		}
	}
	return c, p.expect(";")
}

// member reads a property or a method.
func (p *mofParser) member(c *Class) error {
	flags, since, err := p.qualifiers()
	if err != nil {
		return err
	}
	if p.skip("void") {
		return p.method(c, Method{Name: p.next(), Static: flags["static"], Void: true})
	}
	property := p.declaration()
	if p.peek() == "(" {
		return p.method(c, Method{Name: property.Name, Static: flags["static"]})
	}
	property.Key, property.Write, property.Since = flags["key"], flags["write"], since
	property.origin = c.Name
	c.Properties = append(c.Properties, property)
	return p.expect(";")
}

func (p *mofParser) method(c *Class, m Method) error {
	if err := p.expect("("); err != nil {
		return err
	}
	for !p.skip(")") {
		flags, _, err := p.qualifiers()
		if err != nil {
			return err
		}
		parameter := p.declaration()
		parameter.optional = flags["optional"]
		if flags["in"] {
			m.In = append(m.In, parameter)
		}
		if flags["out"] {
			m.Out = append(m.Out, parameter)
		}
		if p.peek() != ")" {
			if err := p.expect(","); err != nil {
				return err
			}
		}
	}
	c.Methods = append(c.Methods, m)
	return p.expect(";")
}

var simpleTypes = []Type{Boolean, Uint8, Uint16, Uint32, Uint64, Sint32, Sint64, String, Datetime}

// declaration reads "type name", "class ref name" or "class name", and whether it is
// an array.
func (p *mofParser) declaration() Property {
	kind := p.next()
	out := Property{Type: Type(kind)}
	switch {
	case p.skip("ref"):
		out.Type, out.Class = Reference, kind
	case !slices.Contains(simpleTypes, out.Type):
		out.Type, out.Class = EmbeddedObject, kind
	}
	out.Name = p.next()
	out.Array = p.skip("[]")
	return out
}
