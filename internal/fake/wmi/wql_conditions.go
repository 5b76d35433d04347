package fakewmi

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const like = "LIKE"

// condition is what follows WHERE. It is checked against a class before any instance
// is looked at, and then met by instances or not.
type condition interface {
	check(*Class, classes) error
	met(*Object) bool
}

// classes finds classes by name.
type classes func(name string) (*Class, bool)

type (
	and struct{ a, b condition }
	or  struct{ a, b condition }
	not struct{ a condition }
)

func (c and) check(k *Class, all classes) error { return both(c.a, c.b, k, all) }
func (c or) check(k *Class, all classes) error  { return both(c.a, c.b, k, all) }
func (c not) check(k *Class, all classes) error { return c.a.check(k, all) }

func both(a, b condition, k *Class, all classes) error {
	if err := a.check(k, all); err != nil {
		return err
	}
	return b.check(k, all)
}

func (c and) met(o *Object) bool { return c.a.met(o) && c.b.met(o) }
func (c or) met(o *Object) bool  { return c.a.met(o) || c.b.met(o) }
func (c not) met(o *Object) bool { return !c.a.met(o) }

// comparison is one property against a literal; one without a token is NULL.
type comparison struct {
	property string
	operator string
	literal  wqlToken
}

func (c comparison) check(class *Class, all classes) error {
	outer, inner, nested := strings.Cut(c.property, ".")
	p, ok := class.Property(outer)
	if nested && ok && p.Type == EmbeddedObject {
		if class, ok = all(p.Class); ok {
			p, ok = class.Property(inner)
		}
	} else if nested {
		ok = false
	}
	if !ok {
		return fmt.Errorf("%s has no property %s", class.Name, c.property)
	}
	if c.literal.kind == wqlEnd {
		return nil
	}
	if p.Array || p.Type == EmbeddedObject {
		return fmt.Errorf("%s is a %s, which cannot be compared", c.property, p.describe())
	}
	switch p.Type {
	case String, Reference, Datetime:
		ok = c.literal.kind == wqlText
	case Boolean:
		ok = c.literal.is("TRUE") || c.literal.is("FALSE")
	default:
		_, ok = p.Type.convert(c.literal.text)
		ok = ok && c.literal.kind != wqlWord && c.operator != like
	}
	if !ok {
		return fmt.Errorf("%s is a %s and cannot be compared with %s", c.property, p.describe(), c.literal.text)
	}
	return nil
}

func (c comparison) met(o *Object) bool {
	outer, inner, nested := strings.Cut(c.property, ".")
	v := o.values[fold(outer)]
	if nested {
		embedded, ok := v.(*Object)
		if !ok {
			return false
		}
		v = embedded.values[fold(inner)]
	}
	if c.literal.kind == wqlEnd {
		return (v == nil) == (c.operator == "=")
	}
	switch v := v.(type) {
	case string:
		if c.operator == like {
			return isLike(v, c.literal.text)
		}
		return c.compares(cmp.Compare(strings.ToUpper(v), strings.ToUpper(c.literal.text)))
	case bool:
		return (v == c.literal.is("TRUE")) == (c.operator == "=")
	case uint64:
		n, _ := strconv.ParseUint(c.literal.text, 10, 64) // checked
		return c.compares(cmp.Compare(v, n))
	case int64:
		n, _ := strconv.ParseInt(c.literal.text, 10, 64) // checked
		return c.compares(cmp.Compare(v, n))
	default:
		return false
	}
}

func (c comparison) compares(order int) bool {
	switch c.operator {
	case "=":
		return order == 0
	case "<>":
		return order != 0
	case "<":
		return order < 0
	case ">":
		return order > 0
	case "<=":
		return order <= 0
	default:
		return order >= 0
	}
}

// isLike matches a pattern of LIKE: % for any text, _ for any character, [ab], [a-b]
// and [^a] for one of several.
func isLike(s, pattern string) bool {
	var b strings.Builder
	b.WriteString(`(?is)^`)
	for rest := pattern; rest != ""; {
		if set, after, ok := strings.Cut(rest, "]"); ok && len(set) > 1 && set[0] == '[' {
			set, negated := strings.CutPrefix(set[1:], "^")
			b.WriteByte('[')
			if negated {
				b.WriteByte('^')
			}
			b.WriteString(strings.NewReplacer(`\`, `\\`, `[`, `\[`, `^`, `\^`).Replace(set) + "]")
			rest = after
			continue
		}
		r, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		switch r {
		case '%':
			b.WriteString(`.*`)
		case '_':
			b.WriteByte('.')
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	b.WriteByte('$')
	re, err := regexp.Compile(b.String())
	return err == nil && re.MatchString(s)
}
