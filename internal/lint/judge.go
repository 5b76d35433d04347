package lint

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// handsOn are functions whose result has the names of what they are given.
var handsOn = map[string]bool{
	"merge": true, "try": true, "coalesce": true, "tomap": true, "tolist": true, "toset": true, "concat": true, "distinct": true,
	"sensitive": true, "nonsensitive": true,
}

// judge finds names that are dropped from what an expression writes for a shape. An expression that says nothing of names, such as a
// variable, is fine: what it is, this text does not tell.
func (c *checker) judge(m *module, e hcl.Expression, as *shape, of string) {
	judge{c, m, nil}.expression(e, as, of)
}

type judge struct {
	*checker
	module    *module
	following []string // locals whose expressions this is in
}

func (j judge) expression(e hcl.Expression, as *shape, of string) {
	if as == nil {
		return
	}
	switch e := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		j.expression(e.Expression, as, of)
	case *hclsyntax.TemplateWrapExpr:
		j.expression(e.Wrapped, as, of)
	case *hclsyntax.ConditionalExpr:
		j.expression(e.TrueResult, as, of)
		j.expression(e.FalseResult, as, of)
	case *hclsyntax.FunctionCallExpr:
		if handsOn[e.Name] {
			for _, arg := range e.Args {
				j.expression(arg, as, of)
			}
		}
	case *hclsyntax.ForExpr:
		if as.element != nil && !e.Group {
			j.expression(e.ValExpr, as.element, of+"[*]")
		}
	case *hclsyntax.ScopeTraversalExpr:
		j.local(e.Traversal, as, of)
	default:
		j.written(e, as, of)
	}
}

// written judges an object, a map or a list that is written out, in either syntax.
func (j judge) written(e hcl.Expression, as *shape, of string) {
	if items, diags := hcl.ExprList(e); !diags.HasErrors() && as.element != nil {
		for i, item := range items {
			j.expression(item, as.element, of+"["+strconv.Itoa(i)+"]")
		}
		return
	}
	pairs, diags := hcl.ExprMap(e)
	if diags.HasErrors() {
		j.template(e, as, of)
		return
	}
	for _, p := range pairs {
		name, ok := text(p.Key)
		switch {
		case as.element != nil && ok:
			j.expression(p.Value, as.element, of+"["+strconv.Quote(name)+"]")
		case as.element != nil:
			j.expression(p.Value, as.element, of+"[*]")
		case !ok || name == "//": // which is only known later, or a comment in JSON
		default:
			if is, has := as.attributes[name]; has {
				j.expression(p.Value, is, of+"."+name)
				continue
			}
			j.report(Dropped, p.Key.Range(), name, as.writable(), of,
				fmt.Sprintf("%s has no %q, so that Terraform drops it without a word.", of, name))
		}
	}
}

// template judges the expression that a string of JSON holds.
func (j judge) template(e hcl.Expression, as *shape, of string) {
	if _, native := e.(hclsyntax.Expression); native {
		return
	}
	s, ok := text(e)
	if !ok {
		return
	}
	at := e.StartRange().Start
	at.Column, at.Byte = at.Column+1, at.Byte+1 // the quote
	inner, diags := hclsyntax.ParseTemplate([]byte(s), e.Range().Filename, at)
	if !diags.HasErrors() {
		j.expression(inner, as, of)
	}
}

// local judges what a local is.
func (j judge) local(t hcl.Traversal, as *shape, of string) {
	if t.RootName() != "local" || len(t) < 2 {
		return
	}
	name, ok := t[1].(hcl.TraverseAttr)
	if !ok {
		return
	}
	for _, already := range j.following {
		if already == name.Name {
			return // it uses itself, and Terraform says so
		}
	}
	e := j.module.locals[name.Name]
	for _, step := range t[2:] {
		e = within(e, step)
	}
	if e != nil {
		j.following = append(j.following[:len(j.following):len(j.following)], name.Name)
		j.expression(e, as, of)
	}
}

// within is what an object that is written out has by a name.
func within(e hcl.Expression, step hcl.Traverser) hcl.Expression {
	var key string
	switch s := step.(type) {
	case hcl.TraverseAttr:
		key = s.Name
	case hcl.TraverseIndex:
		if s.Key.IsNull() || s.Key.Type() != cty.String {
			return nil
		}
		key = s.Key.AsString()
	}
	if e == nil {
		return nil
	}
	pairs, _ := hcl.ExprMap(e)
	for _, p := range pairs {
		if name, ok := text(p.Key); ok && name == key {
			return p.Value
		}
	}
	return nil
}

// text is what an expression says without knowing anything else.
func text(e hcl.Expression) (string, bool) {
	v, diags := e.Value(nil)
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}

// report adds a finding, with the names that may have been meant.
func (c *checker) report(rule string, at hcl.Range, name string, among []string, of, message string) {
	if among != nil {
		message += " " + words.Instead(name, among, "")
	}
	near := words.Nearest(name, among)
	c.findings = append(c.findings, Finding{
		Rule: rule, Range: at, Of: strings.TrimSpace(of), Name: name, Meant: near[:min(len(near), words.Offered)], Message: message,
	})
}
