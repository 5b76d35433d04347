package fakewmi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// query is a WQL query: SELECT, or ASSOCIATORS OF or REFERENCES OF a path.
type query struct {
	// properties are what a SELECT asks for, nil for all.
	properties []string
	class      string
	where      condition // nil for none

	// of is the path of ASSOCIATORS and REFERENCES.
	of         string
	references bool
	// filters are AssocClass, ResultClass, ResultRole and Role, by folded name.
	filters map[string]string
}

// wqlParser reads a query from its tokens.
type wqlParser struct {
	tokens []wqlToken
	at     int
}

func parseWQL(s string) (*query, error) {
	tokens, err := scanWQL(s)
	if err != nil {
		return nil, err
	}
	p := &wqlParser{tokens: tokens}
	var q *query
	switch {
	case p.keyword("SELECT"):
		q, err = p.selection()
	case p.keyword("ASSOCIATORS"):
		q, err = p.relations(false)
	case p.keyword("REFERENCES"):
		q, err = p.relations(true)
	default:
		err = errors.New("a query begins with SELECT, ASSOCIATORS OF or REFERENCES OF")
	}
	if err != nil {
		return nil, err
	}
	if p.at < len(p.tokens) {
		return nil, fmt.Errorf("%q is left over", p.tokens[p.at].text)
	}
	return q, nil
}

func (p *wqlParser) peek() wqlToken {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return wqlToken{}
}

func (p *wqlParser) next() wqlToken {
	t := p.peek()
	p.at++
	return t
}

func (p *wqlParser) keyword(word string) bool {
	if !p.peek().is(word) {
		return false
	}
	p.at++
	return true
}

func (p *wqlParser) mark(s string) bool {
	if !p.peek().mark(s) {
		return false
	}
	p.at++
	return true
}

func (p *wqlParser) word() (string, error) {
	t := p.next()
	if t.kind != wqlWord {
		return "", fmt.Errorf("%q instead of a name", t.text)
	}
	return t.text, nil
}

func (p *wqlParser) selection() (*query, error) {
	q := &query{}
	if !p.mark("*") {
		for {
			name, err := p.property()
			if err != nil {
				return nil, err
			}
			q.properties = append(q.properties, name)
			if !p.mark(",") {
				break
			}
		}
	}
	if !p.keyword("FROM") {
		return nil, errors.New("FROM is missing")
	}
	var err error
	if q.class, err = p.word(); err != nil {
		return nil, err
	}
	if p.keyword("WHERE") {
		q.where, err = p.disjunction()
	}
	return q, err
}

// property is a property's name, or Embedded.Name.
func (p *wqlParser) property() (string, error) {
	name, err := p.word()
	for err == nil && p.mark(".") {
		var inner string
		inner, err = p.word()
		name += "." + inner
	}
	return name, err
}

var relationFilters = []string{"assocclass", "resultclass", "resultrole", "role"}

func (p *wqlParser) relations(references bool) (*query, error) {
	q := &query{references: references, filters: map[string]string{}}
	if !p.keyword("OF") {
		return nil, errors.New("OF is missing")
	}
	path := p.next()
	if path.kind != wqlPath || path.text == "" {
		return nil, errors.New("a path in braces is missing")
	}
	q.of = path.text
	if !p.keyword("WHERE") {
		return q, nil
	}
	for p.peek().kind == wqlWord {
		name := fold(p.next().text)
		if !slices.Contains(relationFilters, name) || (references && (name == "assocclass" || name == "resultrole")) {
			return nil, fmt.Errorf("%q is no filter here", name)
		}
		if !p.mark("=") {
			return nil, fmt.Errorf("%s has no value", name)
		}
		value, err := p.word()
		if err != nil {
			return nil, err
		}
		if _, twice := q.filters[name]; twice {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		q.filters[name] = value
	}
	if len(q.filters) == 0 {
		return nil, errors.New("WHERE has no filter")
	}
	return q, nil
}

func (p *wqlParser) disjunction() (condition, error) {
	return p.chain("OR", p.conjunction, func(a, b condition) condition { return or{a, b} })
}

func (p *wqlParser) conjunction() (condition, error) {
	return p.chain("AND", p.term, func(a, b condition) condition { return and{a, b} })
}

func (p *wqlParser) chain(word string, part func() (condition, error), join func(a, b condition) condition) (condition, error) {
	out, err := part()
	for err == nil && p.keyword(word) {
		var right condition
		right, err = part()
		out = join(out, right)
	}
	return out, err
}

func (p *wqlParser) term() (condition, error) {
	if p.keyword("NOT") {
		inner, err := p.term()
		return not{inner}, err
	}
	if p.mark("(") {
		inner, err := p.disjunction()
		if err == nil && !p.mark(")") {
			err = errors.New("a parenthesis is not closed")
		}
		return inner, err
	}
	return p.comparison()
}

var operators = []string{"=", "<>", "!=", "<", ">", "<=", ">="}

func (p *wqlParser) comparison() (condition, error) {
	name, err := p.property()
	if err != nil {
		return nil, err
	}
	c := comparison{property: name}
	switch op := p.next(); {
	case op.is("IS"):
		c.operator = "="
		if p.keyword("NOT") {
			c.operator = "<>"
		}
		if !p.keyword("NULL") {
			return nil, errors.New("IS is followed by NULL or NOT NULL")
		}
		return c, nil
	case op.is("LIKE"):
		c.operator = like
	case op.kind == wqlMark && slices.Contains(operators, op.text):
		c.operator = strings.Replace(op.text, "!=", "<>", 1)
	default:
		return nil, fmt.Errorf("%q is no operator", op.text)
	}
	value := p.next()
	switch {
	case value.kind == wqlText, value.kind == wqlNumber && c.operator != like:
		c.literal = value
	case value.is("TRUE"), value.is("FALSE"):
		c.literal = value
	case value.is("NULL") && (c.operator == "=" || c.operator == "<>"):
	default:
		return nil, fmt.Errorf("%q is no value", value.text)
	}
	return c, nil
}
