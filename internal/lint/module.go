package lint

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// module is a folder with configuration.
type module struct {
	folder    string
	bodies    []hcl.Body
	locals    map[string]hcl.Expression
	variables map[string]*shape
	ours      bool // it has something of the provider, or calls what has
}

// Files of configurations, and of the values of their variables.
var (
	sources = []string{
		"*.tf", "*.tofu", "*.tf.json", "*.tofu.json", "*.tfquery.hcl", "*.tftest.hcl", "*.tofutest.hcl",
		"tests/*.tftest.hcl", "tests/*.tofutest.hcl",
	}
	values = []string{"terraform.tfvars", "terraform.tfvars.json", "*.auto.tfvars", "*.auto.tfvars.json"}
)

func filesOf(folder string, patterns []string) (found []string) {
	for _, p := range patterns {
		more, _ := filepath.Glob(filepath.Join(escape.Replace(folder), p)) // fails for a pattern that is none
		found = append(found, more...)
	}
	return found
}

// escape keeps a folder's name from being a pattern.
var escape = strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]")

// blocks are those of a file that have something of the provider in them, or lead to it.
var blocks = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "provider", LabelNames: []string{"name"}},
	{Type: "resource", LabelNames: []string{"type", "name"}},
	{Type: "data", LabelNames: []string{"type", "name"}},
	{Type: "ephemeral", LabelNames: []string{"type", "name"}},
	{Type: "action", LabelNames: []string{"type", "name"}},
	{Type: "list", LabelNames: []string{"type", "name"}},
	{Type: "check", LabelNames: []string{"name"}},
	{Type: "variable", LabelNames: []string{"name"}},
	{Type: "module", LabelNames: []string{"name"}},
	{Type: "locals"},
}}

// load reads a folder and the modules that it calls, each once.
func (c *checker) load(folder string) (*module, error) {
	if m, ok := c.modules[folder]; ok {
		return m, nil
	}
	m := &module{folder: folder, locals: map[string]hcl.Expression{}, variables: map[string]*shape{}}
	c.modules[folder] = m
	var found []*hcl.Block
	for _, file := range filesOf(folder, sources) {
		body, err := c.parse(file)
		if err != nil {
			return nil, err
		}
		if body == nil {
			m.bodies = append(m.bodies, hcl.EmptyBody())
			continue
		}
		m.bodies = append(m.bodies, body)
		content, _, _ := body.PartialContent(blocks) // what else is wrong with blocks, Terraform says
		found = append(found, content.Blocks...)
	}
	var defaults []func()
	for _, block := range found {
		switch block.Type {
		case "locals":
			attributes, _ := block.Body.JustAttributes()
			for name, a := range attributes {
				m.locals[name] = a.Expr
			}
		case "variable":
			content, _, _ := block.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "type"}, {Name: "default"}}})
			a := content.Attributes["type"]
			if a == nil {
				continue
			}
			is, _, diags := typeexpr.TypeConstraintWithDefaults(a.Expr)
			if diags.HasErrors() {
				continue
			}
			as := shapeOf(is)
			m.variables[block.Labels[0]] = as
			if value := content.Attributes["default"]; value != nil {
				defaults = append(defaults, func() { c.judge(m, value.Expr, as, "variable "+block.Labels[0]+": default") })
			}
		}
	}
	for _, block := range found {
		if err := c.block(m, block); err != nil {
			return nil, err
		}
	}
	if m.ours {
		for _, judge := range defaults {
			judge()
		}
	}
	return m, nil
}

// values judges the files that give a folder's variables their values.
func (c *checker) values(m *module) error {
	if !m.ours {
		return nil
	}
	for _, file := range filesOf(m.folder, values) {
		body, err := c.parse(file)
		if err != nil {
			return err
		}
		if body == nil {
			continue
		}
		given, _ := body.JustAttributes()
		for name, a := range given {
			c.judge(m, a.Expr, m.variables[name], "variable "+name)
		}
	}
	return nil
}

// Arguments of Terraform's own, which every block of a type may have.
var (
	ofResources = []string{"count", "for_each", "provider", "depends_on", "lifecycle", "provisioner", "connection"}
	ofModules   = []string{"source", "version", "providers", "count", "for_each", "depends_on"}
	ofProviders = []string{"alias", "version", "for_each"}
)

func (c *checker) block(m *module, block *hcl.Block) error {
	switch block.Type {
	case "provider":
		if block.Labels[0] == "gpu" {
			m.ours = true
			c.body(m, block.Body, blockShape(c.schema.ConfigSchema), "provider gpu", ofProviders)
		}
	case "module":
		return c.call(m, block)
	case "check":
		content, _, _ := block.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
			{Type: "data", LabelNames: []string{"type", "name"}},
		}})
		for _, inner := range content.Blocks {
			if err := c.block(m, inner); err != nil {
				return err
			}
		}
	case "resource", "data", "ephemeral", "action", "list":
		if strings.HasPrefix(block.Labels[0], "gpu_") {
			m.ours = true
			c.object(m, block)
		}
	}
	return nil
}

// object judges a block that is of one of the provider's types.
func (c *checker) object(m *module, block *hcl.Block) {
	types := map[string]*shape{}
	switch s := c.schema; block.Type {
	case "resource":
		types = shapesOf(s.ResourceSchemas)
	case "data":
		types = shapesOf(s.DataSourceSchemas)
	case "ephemeral":
		types = shapesOf(s.EphemeralResourceSchemas)
	case "list":
		types = shapesOf(s.ListResourceSchemas)
	case "action":
		for name, a := range s.ActionSchemas {
			types[name] = nestedShape(a.Block)
		}
	}
	kind := block.Labels[0]
	of := kind + "." + block.Labels[1]
	if block.Type != "resource" {
		of = block.Type + " " + of
	}
	as, ok := types[kind]
	if !ok {
		c.report(Refused, block.LabelRanges[0], kind, sortedNames(types), of,
			fmt.Sprintf("The provider has no %s %q, and Terraform refuses it.", block.Type, kind))
		return
	}
	if block.Type != "action" && block.Type != "list" {
		c.body(m, block.Body, as, of, ofResources)
		return
	}
	content, _, _ := block.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "config"}}})
	for _, config := range content.Blocks {
		c.body(m, config.Body, as, of, nil)
	}
}

// call judges what a module is given, and reads it if it is a folder beside this one.
func (c *checker) call(m *module, block *hcl.Block) error {
	attributes := arguments(block.Body)
	source, ok := attributes["source"]
	if !ok {
		return nil
	}
	v, diags := source.Expr.Value(nil)
	if diags.HasErrors() || v.IsNull() || v.Type() != cty.String {
		return nil
	}
	from := v.AsString()
	if !strings.HasPrefix(from, "./") && !strings.HasPrefix(from, "../") {
		return nil
	}
	child, err := c.load(filepath.Join(m.folder, filepath.FromSlash(from)))
	if err != nil {
		return err
	}
	if !child.ours {
		return nil
	}
	m.ours = true
	for name, a := range attributes {
		if !slices.Contains(ofModules, name) {
			c.judge(m, a.Expr, child.variables[name], "module."+block.Labels[0]+": "+name)
		}
	}
	return nil
}

// arguments are those of a block, whatever blocks it has.
func arguments(body hcl.Body) hcl.Attributes {
	if native, ok := body.(*hclsyntax.Body); ok {
		out := hcl.Attributes{}
		for name, a := range native.Attributes {
			out[name] = a.AsHCLAttribute()
		}
		return out
	}
	out, _ := body.JustAttributes()
	return out
}

// body judges a block's arguments, and blocks that are to be arguments: the provider has no blocks.
func (c *checker) body(m *module, body hcl.Body, as *shape, of string, also []string) {
	refuse := func(at hcl.Range, name string) {
		c.report(Refused, at, name, as.writable(), of, fmt.Sprintf("%s has no argument %q, and Terraform refuses it.", of, name))
	}
	block := func(at hcl.Range, name string) {
		if _, ok := as.attributes[name]; !ok {
			refuse(at, name)
			return
		}
		c.report(Refused, at, name, nil, of,
			fmt.Sprintf("%s: %s is an argument and no block, which Terraform refuses. Write `%s = { ... }`.", of, name, name))
	}
	for name, a := range arguments(body) {
		is, ok := as.attributes[name]
		switch {
		case slices.Contains(also, name):
		case ok:
			c.judge(m, a.Expr, is, of+": "+name)
		case name == "dynamic": // a block, in Terraform's JSON
			pairs, _ := hcl.ExprMap(a.Expr)
			for _, p := range pairs {
				if name, ok := text(p.Key); ok {
					block(p.Key.Range(), name)
				}
			}
		default:
			refuse(a.NameRange, name)
		}
	}
	native, ok := body.(*hclsyntax.Body)
	if !ok {
		return
	}
	for _, b := range native.Blocks {
		switch {
		case slices.Contains(also, b.Type):
		case b.Type == "dynamic" && len(b.Labels) == 1:
			block(b.LabelRanges[0], b.Labels[0])
		default:
			block(b.TypeRange, b.Type)
		}
	}
}
