package core

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// builtins are the functions that configurations of tests call.
var builtins = map[string]function.Function{
	"can": tryfunc.CanFunc, "try": tryfunc.TryFunc,
	"ceil": stdlib.CeilFunc, "chunklist": stdlib.ChunklistFunc, "coalesce": stdlib.CoalesceFunc, "compact": stdlib.CompactFunc,
	"concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc, "distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc,
	"flatten": stdlib.FlattenFunc, "floor": stdlib.FloorFunc, "format": stdlib.FormatFunc, "formatlist": stdlib.FormatListFunc,
	"indent": stdlib.IndentFunc, "join": stdlib.JoinFunc, "jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc,
	"keys": stdlib.KeysFunc, "length": stdlib.LengthFunc, "lower": stdlib.LowerFunc, "max": stdlib.MaxFunc, "merge": stdlib.MergeFunc,
	"min": stdlib.MinFunc, "range": stdlib.RangeFunc, "regex": stdlib.RegexFunc, "replace": stdlib.ReplaceFunc,
	"reverse":  stdlib.ReverseListFunc,
	"setunion": stdlib.SetUnionFunc, "slice": stdlib.SliceFunc, "sort": stdlib.SortFunc, "split": stdlib.SplitFunc,
	"substr": stdlib.SubstrFunc,
	"title":  stdlib.TitleFunc, "trimspace": stdlib.TrimSpaceFunc, "upper": stdlib.UpperFunc, "values": stdlib.ValuesFunc,
	"zipmap": stdlib.ZipmapFunc,
	"tobool": stdlib.MakeToFunc(cty.Bool), "tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
	"tomap":    stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),
	"tonumber": stdlib.MakeToFunc(cty.Number), "toset": stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),
	"tostring": stdlib.MakeToFunc(cty.String),
}

// fileFunction reads a file of the module.
func fileFunction(dir string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}}, Type: function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			name := args[0].AsString()
			if !filepath.IsAbs(name) {
				name = filepath.Join(dir, name)
			}
			raw, err := os.ReadFile(name)
			if err != nil {
				return cty.NilVal, function.NewArgErrorf(0, "no file exists at %q", name)
			}
			return cty.StringVal(string(raw)), nil
		},
	})
}

// repetition is what an instance knows of count or for_each.
type repetition struct {
	key, value cty.Value // NilVal: there is neither
}

func (r repetition) variables(b *block) map[string]cty.Value {
	switch {
	case r.key == cty.NilVal:
		return nil
	case b.meta["count"] != nil:
		return map[string]cty.Value{"count": cty.ObjectVal(map[string]cty.Value{"index": r.key})}
	default:
		return map[string]cty.Value{"each": cty.ObjectVal(map[string]cty.Value{"key": r.key, "value": r.value})}
	}
}

// references are the nodes that a block refers to.
func (w *walk) references(b *block) []string {
	out := map[string]bool{}
	if s := w.schemaOf(b); s != nil {
		for _, t := range hcldec.Variables(b.rest, s.spec()) {
			out[refers(t)] = true
		}
	}
	for name, a := range b.meta {
		switch name {
		case "depends_on":
			for _, t := range b.traversals(name) {
				out[refers(t)] = true
			}
		case "provider", "alias", "version", "description", "to", "from":
		default:
			for _, t := range a.Expr.Variables() {
				out[refers(t)] = true
			}
		}
	}
	delete(out, "")
	return slices.Sorted(maps.Keys(out))
}

func expressionReferences(e hcl.Expression) []string {
	var out []string
	for _, t := range e.Variables() {
		if r := refers(t); r != "" {
			out = append(out, r)
		}
	}
	return out
}

// scope is what an evaluation of something with these references sees.
func (w *walk) scope(references []hcl.Traversal, extra map[string]cty.Value) (*hcl.EvalContext, Diagnostics) {
	vars := map[string]cty.Value{
		"path": cty.ObjectVal(map[string]cty.Value{
			"module": cty.StringVal(w.core.dir()), "root": cty.StringVal(w.core.dir()), "cwd": cty.StringVal(w.core.dir()),
		}),
		"terraform": cty.ObjectVal(map[string]cty.Value{"workspace": cty.StringVal("default")}),
	}
	maps.Copy(vars, extra)
	locals, managed, data := map[string]cty.Value{}, map[string]map[string]cty.Value{}, map[string]map[string]cty.Value{}
	var diags Diagnostics
	for _, t := range references {
		key := refers(t)
		switch root := t.RootName(); {
		case key == "":
		case root == "var", root == "module":
			diags = append(diags, unsupported("A reference to "+root))
		case root == "local":
			name := strings.TrimPrefix(key, "local.")
			if w.c.locals[name] == nil {
				diags = append(diags, failure("Reference to undeclared local value", "A local value with the name %q has not been declared.",
					name))
				continue
			}
			w.mu.Lock()
			locals[name] = w.locals[name]
			w.mu.Unlock()
			if locals[name] == cty.NilVal {
				locals[name] = cty.DynamicVal
			}
		default:
			b := w.c.resources[key]
			if b == nil {
				kind, typ, name := "managed resource", root, strings.TrimPrefix(key, root+".")
				if root == "data" {
					kind = "data resource"
					typ, name, _ = strings.Cut(strings.TrimPrefix(key, "data."), ".")
				}
				diags = append(diags, failure("Reference to undeclared resource", "A %s %q %q has not been declared in the root module.",
					kind, typ, name))
				continue
			}
			into := managed
			if b.data() {
				into = data
			}
			if into[b.typ] == nil {
				into[b.typ] = map[string]cty.Value{}
			}
			into[b.typ][b.name] = w.valueOf(b)
		}
	}
	if len(locals) > 0 {
		vars["local"] = cty.ObjectVal(locals)
	}
	for typ, names := range managed {
		vars[typ] = cty.ObjectVal(names)
	}
	if len(data) > 0 {
		types := map[string]cty.Value{}
		for typ, names := range data {
			types[typ] = cty.ObjectVal(names)
		}
		vars["data"] = cty.ObjectVal(types)
	}
	return &hcl.EvalContext{Variables: vars, Functions: w.functions}, diags
}

func (w *walk) evaluate(e hcl.Expression, want cty.Type) (cty.Value, Diagnostics) {
	ctx, diags := w.scope(e.Variables(), nil)
	if diags.Failed() {
		return cty.DynamicVal, diags
	}
	v, wrong := e.Value(ctx)
	if wrong.HasErrors() {
		return cty.DynamicVal, append(diags, fromHCL(wrong)...)
	}
	v, err := convert.Convert(v, want)
	if err != nil {
		return cty.DynamicVal, append(diags, failure("Incorrect value type", "Invalid expression value: %s.", err))
	}
	return v, diags
}

// decode evaluates the arguments of a block.
func (w *walk) decode(b *block, s *schema, extra map[string]cty.Value) (cty.Value, Diagnostics) {
	spec := s.spec()
	ctx, diags := w.scope(hcldec.Variables(b.rest, spec), extra)
	if diags.Failed() {
		return cty.NilVal, diags
	}
	v, wrong := hcldec.Decode(b.rest, spec, ctx)
	diags = append(diags, fromHCL(wrong)...)
	for i := range diags {
		diags[i].Address = b.key
	}
	return v, diags
}

// valueOf is the value of a resource as an expression sees it.
func (w *walk) valueOf(b *block) cty.Value {
	repeated := b.meta["count"] != nil || b.meta["for_each"] != nil
	if w.op == validating {
		if s := w.schemaOf(b); s != nil && !repeated {
			return cty.UnknownVal(s.ty)
		}
		return cty.DynamicVal
	}
	w.mu.Lock()
	instances, expanded := w.expansions[b.key]
	w.mu.Unlock()
	if !expanded {
		return w.valueInState(b, repeated)
	}
	if !repeated {
		return w.instanceValue(b, address{resource: b.key})
	}
	if b.meta["count"] != nil {
		var all []cty.Value
		for _, r := range instances {
			all = append(all, w.instanceValue(b, address{b.key, r.key}))
		}
		return cty.TupleVal(all)
	}
	all := map[string]cty.Value{}
	for _, r := range instances {
		all[r.key.AsString()] = w.instanceValue(b, address{b.key, r.key})
	}
	return cty.ObjectVal(all)
}

// valueInState is the value of a resource that this walk does not visit.
func (w *walk) valueInState(b *block, repeated bool) cty.Value {
	w.mu.Lock()
	defer w.mu.Unlock()
	instances := w.state.of(b.key)
	switch {
	case !repeated && len(instances) == 1 && instances[0].current != nil:
		return instances[0].current.value
	case !repeated || len(instances) == 0:
		return cty.DynamicVal
	case b.meta["count"] != nil:
		var all []cty.Value
		for _, i := range instances {
			all = append(all, i.current.value)
		}
		return cty.TupleVal(all)
	default:
		all := map[string]cty.Value{}
		for _, i := range instances {
			all[i.key.AsString()] = i.current.value
		}
		return cty.ObjectVal(all)
	}
}

func (w *walk) instanceValue(b *block, a address) cty.Value {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.op == planning {
		if c := w.changes[a.String()]; c != nil {
			return c.after
		}
	}
	if o := w.state.object(a); o != nil {
		return o.value
	}
	if c := w.changes[a.String()]; c != nil {
		return c.after
	}
	return cty.UnknownVal(w.schemaOf(b).ty)
}

// expand works out which instances a block has.
func (w *walk) expand(b *block) ([]repetition, bool) {
	count, each := b.meta["count"], b.meta["for_each"]
	switch {
	case w.op == validating && count != nil:
		_, diags := w.evaluate(count.Expr, cty.Number)
		return []repetition{{key: cty.UnknownVal(cty.Number)}}, w.add(diags...)
	case w.op == validating && each != nil:
		_, diags := w.evaluate(each.Expr, cty.DynamicPseudoType)
		return []repetition{{key: cty.UnknownVal(cty.String), value: cty.DynamicVal}}, w.add(diags...)
	case count != nil:
		v, diags := w.evaluate(count.Expr, cty.Number)
		switch {
		case diags.Failed():
			return nil, w.add(diags...)
		case !v.IsKnown():
			return nil, w.add(failure("Invalid count argument",
				"The \"count\" value depends on resource attributes that cannot be determined until apply, so Terraform cannot predict how many "+
					"instances will be created. "+
					"To work around this, use the -target argument to first apply only the resources that the count depends on.").on(b.key))
		case v.IsNull() || v.LessThan(cty.Zero).True():
			return nil, w.add(failure("Invalid count argument",
				"The given \"count\" argument value is unsuitable: it must be a whole number that is at least zero.").on(b.key))
		}
		n, _ := v.AsBigFloat().Int64()
		var out []repetition
		for i := range n {
			out = append(out, repetition{key: cty.NumberIntVal(i)})
		}
		return out, w.add(diags...)
	case each != nil:
		v, diags := w.evaluate(each.Expr, cty.DynamicPseudoType)
		ty := v.Type()
		switch {
		case diags.Failed():
			return nil, w.add(diags...)
		case !v.IsKnown() || ty.IsSetType() && !v.IsWhollyKnown():
			return nil, w.add(failure("Invalid for_each argument",
				"The \"for_each\" map includes keys derived from resource attributes that cannot be determined until apply, "+
					"and so Terraform cannot determine the full set of keys that will identify the instances of this resource.").on(b.key))
		case v.IsNull() || !ty.IsMapType() && !ty.IsObjectType() && !(ty.IsSetType() && ty.ElementType() == cty.String):
			return nil, w.add(failure("Invalid for_each argument",
				"The given \"for_each\" argument value is unsuitable: the \"for_each\" argument must be a map, or set of strings, and you have "+
					"provided a value of type %s.", ty.FriendlyName()).on(b.key))
		}
		var out []repetition
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			out = append(out, repetition{key: k, value: e})
		}
		return out, w.add(diags...)
	default:
		return []repetition{{}}, true
	}
}

func (w *walk) schemaOf(b *block) *schema {
	if b.kind == "provider" {
		if s := w.core.schemas[b.name]; s != nil {
			return s.provider
		}
		return nil
	}
	if b.typ == "" {
		return nil
	}
	name, _, _ := strings.Cut(b.provider(), ".")
	s := w.core.schemas[name]
	switch {
	case s == nil:
		return nil
	case b.data():
		return s.data[b.typ]
	default:
		return s.resources[b.typ]
	}
}
