package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	tfjson "github.com/hashicorp/terraform-json"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// plain is a value as JSON has it: numbers are json.Number. What is unknown is left out
// of objects and maps, and null in lists.
func plain(v cty.Value) any {
	switch ty := v.Type(); {
	case !v.IsKnown(), v.IsNull():
		return nil
	case ty.IsObjectType(), ty.IsMapType():
		out := map[string]any{}
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			if e.IsKnown() {
				out[k.AsString()] = plain(e)
			}
		}
		return out
	case ty.IsListType(), ty.IsSetType(), ty.IsTupleType():
		out := []any{}
		for it := v.ElementIterator(); it.Next(); {
			_, e := it.Element()
			out = append(out, plain(e))
		}
		return out
	default:
		raw, err := ctyjson.Marshal(v, ty)
		if err != nil {
			panic(err) // a known primitive value
		}
		var out any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&out); err != nil {
			panic(err)
		}
		return out
	}
}

// unknowns is a value's shape with true for what is unknown.
func unknowns(v cty.Value) any {
	switch ty := v.Type(); {
	case !v.IsKnown():
		return true
	case v.IsNull(), ty.IsPrimitiveType():
		return false
	case ty.IsObjectType(), ty.IsMapType():
		out := map[string]any{}
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			if u := unknowns(e); u != false {
				out[k.AsString()] = u
			}
		}
		return out
	default:
		out := []any{}
		for it := v.ElementIterator(); it.Next(); {
			_, e := it.Element()
			out = append(out, unknowns(e))
		}
		return out
	}
}

func (a action) json() tfjson.Actions {
	switch a {
	case replace:
		return tfjson.Actions{tfjson.ActionDelete, tfjson.ActionCreate}
	case swap:
		return tfjson.Actions{tfjson.ActionCreate, tfjson.ActionDelete}
	default:
		return tfjson.Actions{tfjson.Action(a)}
	}
}

func mode(a address) tfjson.ResourceMode {
	if a.data() {
		return tfjson.DataResourceMode
	}
	return tfjson.ManagedResourceMode
}

func providerName(key string) string {
	name, _, _ := strings.Cut(key, ".")
	if name == builtin {
		return "terraform.io/builtin/terraform"
	}
	return "registry.terraform.io/hashicorp/" + name
}

// JSON is the plan as `terraform show -json` has it.
func (p *Plan) JSON() *tfjson.Plan {
	out := &tfjson.Plan{
		FormatVersion: "1.2", TerraformVersion: version, OutputChanges: map[string]*tfjson.Change{}, PlannedValues: p.planned(),
	}
	for _, c := range p.changes {
		typ, name := c.parts()
		x := &tfjson.ResourceChange{
			Address: c.String(), Mode: mode(c.address), Type: typ, Name: name, Index: c.index(), ProviderName: providerName(c.provider),
			Change: &tfjson.Change{Actions: c.action.json(), Before: plain(c.before), After: plain(c.after), AfterUnknown: unknowns(c.after)},
		}
		if c.deposed != nil {
			x.DeposedKey = deposedKey(0)
		}
		if c.importing != nil {
			x.Change.Importing = &tfjson.Importing{ID: c.importing.id}
		}
		for _, path := range c.replacePaths {
			var steps []any
			for _, s := range path {
				switch s := s.(type) {
				case cty.GetAttrStep:
					steps = append(steps, s.Name)
				case cty.IndexStep:
					steps = append(steps, plain(s.Key))
				}
			}
			x.Change.ReplacePaths = append(x.Change.ReplacePaths, steps)
		}
		out.ResourceChanges = append(out.ResourceChanges, x)
	}
	for name, c := range p.outputChanges() {
		out.OutputChanges[name] = &tfjson.Change{
			Actions: c.action.json(), Before: plain(c.before), After: plain(c.after), AfterUnknown: unknowns(c.after),
		}
	}
	return out
}

// outputChanges are what becomes of each output.
func (p *Plan) outputChanges() map[string]change {
	out := map[string]change{}
	for name, v := range p.outputs {
		c := change{before: cty.NullVal(cty.DynamicPseudoType), after: v, action: create}
		if before, ok := p.before[name]; ok {
			c.before, c.action = before, update
			if v.IsWhollyKnown() && v.RawEquals(before) {
				c.action = noop
			}
		}
		out[name] = c
	}
	for name, v := range p.before {
		if _, ok := p.outputs[name]; !ok {
			out[name] = change{before: v, after: cty.NullVal(cty.DynamicPseudoType), action: remove}
		}
	}
	return out
}

// Empty tells whether nothing changes, outputs neither.
func (p *Plan) Empty() bool {
	for _, c := range p.changes {
		if c.action != noop {
			return false
		}
	}
	for _, c := range p.outputChanges() {
		if c.action != noop {
			return false
		}
	}
	return true
}

func (p *Plan) planned() *tfjson.StateValues {
	s := p.state.clone()
	for _, c := range p.changes {
		switch {
		case c.deposed != nil:
		case c.action == remove:
			s.set(c.address, "", nil)
		default:
			s.set(c.address, c.provider, &object{value: c.after, identity: c.identity})
		}
	}
	s.outputs = p.outputs
	return s.json().Values
}

// JSON is the state as `terraform show -json` has it.
func (w *Workspace) JSON() *tfjson.State { return w.state.json() }

func (s *state) json() *tfjson.State {
	out := &tfjson.State{FormatVersion: "1.0", TerraformVersion: version}
	if len(s.instances) == 0 && len(s.outputs) == 0 {
		return out
	}
	out.Values = &tfjson.StateValues{Outputs: map[string]*tfjson.StateOutput{}, RootModule: &tfjson.StateModule{}}
	for name, v := range s.outputs {
		out.Values.Outputs[name] = &tfjson.StateOutput{Value: plain(v), Type: v.Type()}
	}
	for _, i := range s.sorted() {
		if i.current == nil {
			continue
		}
		typ, name := i.parts()
		values, _ := plain(i.current.value).(map[string]any)
		r := &tfjson.StateResource{
			Address: i.String(), Mode: mode(i.address), Type: typ, Name: name, Index: i.index(), ProviderName: providerName(i.provider),
			AttributeValues: values, DependsOn: i.current.waits, Tainted: i.current.tainted,
		}
		if i.current.version > 0 {
			r.SchemaVersion = uint64(i.current.version)
		}
		if i.current.identity != cty.NilVal && !i.current.identity.IsNull() {
			r.IdentityValues, _ = plain(i.current.identity).(map[string]any)
		}
		out.Values.RootModule.Resources = append(out.Values.RootModule.Resources, r)
	}
	return out
}

// flat is the state as the checks of old see it.
func (w *Workspace) flat() *terraform.State {
	root := &terraform.ModuleState{
		Path: []string{"root"}, Outputs: map[string]*terraform.OutputState{}, Resources: map[string]*terraform.ResourceState{},
	}
	out := &terraform.State{Version: 3, TFVersion: version, Modules: []*terraform.ModuleState{root}}
	s := w.JSON()
	if s.Values == nil {
		return out
	}
	for name, o := range s.Values.Outputs {
		switch v := o.Value.(type) {
		case bool, json.Number:
			root.Outputs[name] = &terraform.OutputState{Type: "string", Value: fmt.Sprint(v)}
		case string:
			root.Outputs[name] = &terraform.OutputState{Type: "string", Value: v}
		case []any:
			root.Outputs[name] = &terraform.OutputState{Type: "list", Value: v}
		default:
			root.Outputs[name] = &terraform.OutputState{Type: "map", Value: v}
		}
	}
	for _, r := range s.Values.RootModule.Resources {
		attributes := map[string]string{}
		flatten(attributes, "", r.AttributeValues)
		id, ok := attributes["id"]
		if !ok {
			id = "id-attribute-not-set"
		}
		key := r.Address
		if n, ok := r.Index.(int); ok {
			key = strings.TrimSuffix(key, "["+strconv.Itoa(n)+"]") + "." + strconv.Itoa(n)
		}
		root.Resources[key] = &terraform.ResourceState{
			Provider: r.ProviderName, Type: r.Type, Dependencies: r.DependsOn,
			Primary: &terraform.InstanceState{
				ID: id, Attributes: attributes, Tainted: r.Tainted, Meta: map[string]any{"schema_version": int(r.SchemaVersion)},
			},
		}
	}
	return out
}

func flatten(into map[string]string, at string, v any) {
	below := func(key string) string {
		if at == "" {
			return key
		}
		return at + "." + key
	}
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for k, e := range v {
			flatten(into, below(k), e)
		}
		into[below("%")] = strconv.Itoa(len(v))
	case []any:
		for i, e := range v {
			flatten(into, below(strconv.Itoa(i)), e)
		}
		into[below("#")] = strconv.Itoa(len(v))
	default:
		into[at] = fmt.Sprint(v)
	}
}

// differences are what changes of each instance, for a test that wants nothing to.
func (p *Plan) differences() string {
	var b strings.Builder
	for _, c := range p.changes {
		if c.action != noop {
			fmt.Fprintf(&b, "%s, %s:\n%s", c.address, c.action, cmp.Diff(plain(c.before), plain(c.after)))
		}
	}
	return b.String()
}

func oneLine(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
