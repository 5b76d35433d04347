package core

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// config is a parsed configuration: one module, the root.
type config struct {
	locals    map[string]hcl.Expression
	outputs   map[string]*block
	providers map[string]*block // by name, or name.alias
	resources map[string]*block // by type.name, data sources by data.type.name
	imports   []*block
	moved     []*block
}

// block is a block of a configuration with its meta-arguments apart.
type block struct {
	kind       string // as it is written: resource, data, ...
	typ, name  string
	key        string    // by which it is referred to
	head       hcl.Range // its first line
	body, rest hcl.Body  // all of it, and what its schema decodes
	meta       hcl.Attributes
	lifecycle  hcl.Attributes
}

func (b *block) data() bool { return b.kind == "data" }

// metaArguments of each kind of block that are not the provider's.
var metaArguments = map[string][]string{
	"resource": {"count", "for_each", "depends_on", "provider"},
	"data":     {"count", "for_each", "depends_on", "provider"},
	"provider": {"alias", "version"},
	"output":   {"value", "description", "depends_on"},
	"import":   {"to", "id", "identity"},
	"moved":    {"from", "to"},
}

var rootBlocks = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "terraform"},
	{Type: "locals"},
	{Type: "import"},
	{Type: "moved"},
	{Type: "provider", LabelNames: []string{"name"}},
	{Type: "output", LabelNames: []string{"name"}},
	{Type: "resource", LabelNames: []string{"type", "name"}},
	{Type: "data", LabelNames: []string{"type", "name"}},
	// These are known, so that it can say so.
	{Type: "removed"},
	{Type: "variable", LabelNames: []string{"name"}},
	{Type: "module", LabelNames: []string{"name"}},
	{Type: "check", LabelNames: []string{"name"}},
	{Type: "ephemeral", LabelNames: []string{"type", "name"}},
}}

func parse(files map[string]string) (*config, Diagnostics) {
	c := &config{
		locals: map[string]hcl.Expression{}, outputs: map[string]*block{}, providers: map[string]*block{}, resources: map[string]*block{},
	}
	var diags Diagnostics
	p := hclparse.NewParser()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, wrong := p.ParseHCL([]byte(files[name]), name)
		diags = append(diags, fromHCL(wrong)...)
		if f == nil || wrong.HasErrors() {
			continue
		}
		content, wrong := f.Body.Content(rootBlocks)
		diags = append(diags, fromHCL(wrong)...)
		for _, b := range content.Blocks {
			diags = append(diags, c.add(b)...)
		}
	}
	return c, diags
}

func (c *config) add(from *hcl.Block) Diagnostics {
	b := &block{kind: from.Type, body: from.Body, head: from.DefRange}
	if len(from.Labels) > 0 {
		b.name = from.Labels[len(from.Labels)-1]
	}
	schema := &hcl.BodySchema{}
	for _, name := range metaArguments[from.Type] {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
	}
	for _, name := range []string{"lifecycle", "precondition", "provisioner", "connection"} {
		bs := hcl.BlockHeaderSchema{Type: name}
		if name == "provisioner" {
			bs.LabelNames = []string{"type"}
		}
		schema.Blocks = append(schema.Blocks, bs)
	}
	switch from.Type {
	case "terraform":
		return nil
	case "module", "ephemeral", "variable", "check", "removed":
		return Diagnostics{unsupported("A block of the type " + from.Type)}
	case "locals":
		attrs, wrong := from.Body.JustAttributes()
		for name, a := range attrs {
			c.locals[name] = a.Expr
		}
		return fromHCL(wrong)
	}
	content, rest, wrong := from.Body.PartialContent(schema)
	diags := fromHCL(wrong)
	b.meta, b.rest = content.Attributes, rest
	diags = append(diags, b.nest(content.Blocks)...)
	duplicate := func(m map[string]*block, key string) {
		b.key = key
		if first := m[key]; first != nil {
			diags = append(diags, failure("Duplicate "+from.Type+" definition", "%s was already declared at %s.", key, first.head))
		}
		m[key] = b
	}
	switch from.Type {
	case "resource":
		b.typ = from.Labels[0]
		duplicate(c.resources, b.typ+"."+b.name)
	case "data":
		b.typ = from.Labels[0]
		duplicate(c.resources, "data."+b.typ+"."+b.name)
	case "provider":
		key := b.name
		if a := b.meta["alias"]; a != nil {
			v, wrong := a.Expr.Value(nil)
			diags = append(diags, fromHCL(wrong)...)
			key += "." + v.AsString()
		}
		duplicate(c.providers, key)
	case "output":
		duplicate(c.outputs, b.name)
	case "import":
		c.imports = append(c.imports, b)
	case "moved":
		c.moved = append(c.moved, b)
	}
	return diags
}

// nest takes the blocks within a block apart.
func (b *block) nest(blocks hcl.Blocks) Diagnostics {
	var diags Diagnostics
	for _, n := range blocks {
		if n.Type != "lifecycle" {
			diags = append(diags, unsupported("A block of the type "+n.Type))
			continue
		}
		content, _, wrong := n.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "create_before_destroy"}}})
		diags = append(diags, fromHCL(wrong)...)
		if body, ok := n.Body.(*hclsyntax.Body); !ok || len(body.Blocks) > 0 || len(body.Attributes) > len(content.Attributes) {
			diags = append(diags, unsupported("What lifecycle has besides create_before_destroy"))
		}
		b.lifecycle = content.Attributes
	}
	return diags
}

func unsupported(what string) Diagnostic {
	return failure("Not supported by the in-process core", "%s is what %v.", what, errUnsupported)
}

// provider is the key of the provider block that a resource's block uses.
func (b *block) provider() string {
	if a := b.meta["provider"]; a != nil {
		t, wrong := hcl.AbsTraversalForExpr(a.Expr)
		if !wrong.HasErrors() {
			name := t.RootName()
			if len(t) > 1 {
				if step, ok := t[1].(hcl.TraverseAttr); ok {
					name += "." + step.Name
				}
			}
			return name
		}
	}
	name, _, _ := strings.Cut(b.typ, "_")
	return name
}

func (b *block) traversals(meta string) []hcl.Traversal {
	a := b.meta[meta]
	if a == nil {
		return nil
	}
	return traversalsOf(a.Expr)
}

func traversalsOf(list hcl.Expression) []hcl.Traversal {
	exprs, _ := hcl.ExprList(list)
	var out []hcl.Traversal
	for _, e := range exprs {
		if t, wrong := hcl.AbsTraversalForExpr(e); !wrong.HasErrors() {
			out = append(out, t)
		}
	}
	return out
}

// flag is a constant of lifecycle.
func (b *block) flag(name string) bool {
	a := b.lifecycle[name]
	if a == nil {
		return false
	}
	v, wrong := a.Expr.Value(nil)
	return !wrong.HasErrors() && v.True()
}

// refers is the node that a traversal refers to: local.x, T.N or data.T.N, or ""
// for what is no node (each, count, path).
func refers(t hcl.Traversal) string {
	name := func(i int) string {
		if i < len(t) {
			if step, ok := t[i].(hcl.TraverseAttr); ok {
				return step.Name
			}
		}
		return ""
	}
	switch root := t.RootName(); root {
	case "each", "count", "self", "path", "terraform":
		return ""
	case "data":
		return "data." + name(1) + "." + name(2)
	default:
		return root + "." + name(1)
	}
}
