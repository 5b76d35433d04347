package core

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/zclconf/go-cty/cty"
)

// What Terraform core itself works out and checks about the values of a provider. The
// facts are those of its packages plans/objchange and terraform, versions 1.11 to 1.15.

// proposed is what core proposes to a provider: the configuration, and for what is
// computed and not configured the prior value.
func proposed(s attributes, prior, config cty.Value) cty.Value {
	if prior.IsNull() {
		if config.IsNull() {
			return prior
		}
		prior = s.null()
	}
	if config.IsNull() || !config.IsKnown() {
		return prior
	}
	return proposedObject(s, prior, config)
}

func proposedObject(s attributes, prior, config cty.Value) cty.Value {
	values := map[string]cty.Value{}
	for name, a := range s {
		before, wanted := attr(prior, name, a.ty), config.GetAttr(name)
		switch {
		case a.computed && wanted.IsNull():
			values[name] = before
			if a.optional && a.nested != nil && holdsArguments(a.nested, before) {
				values[name] = wanted // it was configured, and now it is not
			}
		case a.nested != nil:
			values[name] = proposedNested(a, before, wanted)
		default:
			values[name] = wanted
		}
	}
	return cty.ObjectVal(values)
}

func attr(object cty.Value, name string, ty cty.Type) cty.Value {
	if object.IsNull() {
		return cty.NullVal(ty)
	}
	return object.GetAttr(name)
}

func proposedNested(a *attribute, prior, config cty.Value) cty.Value {
	if !config.IsKnown() || config.IsNull() {
		return config
	}
	if a.nesting == tfprotov6.SchemaObjectNestingModeSingle {
		return proposedObject(a.nested, prior, config)
	}
	if config.LengthInt() == 0 {
		return config
	}
	element := func(before, wanted cty.Value) cty.Value {
		if wanted.IsNull() || !wanted.IsKnown() {
			return wanted
		}
		return proposedObject(a.nested, before, wanted)
	}
	none := cty.NullVal(config.Type().ElementType())
	switch a.nesting {
	case tfprotov6.SchemaObjectNestingModeList:
		var out []cty.Value
		for it := config.ElementIterator(); it.Next(); {
			key, wanted := it.Element()
			if before, ok := elementAt(prior, key); ok {
				wanted = element(before, wanted)
			}
			out = append(out, wanted)
		}
		return cty.ListVal(out)
	case tfprotov6.SchemaObjectNestingModeMap:
		out := map[string]cty.Value{}
		for it := config.ElementIterator(); it.Next(); {
			key, wanted := it.Element()
			if before, ok := elementAt(prior, key); ok {
				wanted = element(before, wanted)
			}
			out[key.AsString()] = wanted
		}
		return cty.MapVal(out)
	default: // a set: an element goes on as the first that it may have been
		var was, out []cty.Value
		if prior.IsKnown() && !prior.IsNull() {
			was = prior.AsValueSlice()
		}
		for _, wanted := range config.AsValueSlice() {
			before := none
			for i, candidate := range was {
				if mayComeFrom(a.nested, candidate, wanted) {
					before = candidate
					was = append(was[:i:i], was[i+1:]...)
					break
				}
			}
			out = append(out, element(before, wanted))
		}
		return cty.SetVal(out)
	}
}

func elementAt(collection, key cty.Value) (cty.Value, bool) {
	if !collection.IsKnown() || collection.IsNull() || !collection.HasIndex(key).True() {
		return cty.NilVal, false
	}
	return collection.Index(key), true
}

// holdsArguments tells whether a nested value has something in it that only a
// configuration can have put there.
func holdsArguments(s attributes, v cty.Value) bool {
	found := false
	_ = cty.Walk(v, func(path cty.Path, v cty.Value) (bool, error) {
		if a := s.at(path); a != nil && !v.IsNull() && !a.computed {
			found = true
		}
		return !found && !v.IsNull(), nil
	})
	return found
}

// mayComeFrom tells whether an element of a set in the prior state can be what became
// of this element of the configuration.
func mayComeFrom(s attributes, prior, config cty.Value) bool {
	if same(config, prior) {
		return true
	}
	valid := true
	_ = cty.Walk(prior, func(path cty.Path, before cty.Value) (bool, error) {
		if !valid {
			return false, nil
		}
		wanted, err := path.Apply(config)
		if err != nil {
			valid = false
			return false, nil //nolint:nilerr // it is the answer
		}
		if same(wanted, before) {
			return false, nil
		}
		if wanted.Type().IsSetType() {
			valid = false
			return false, nil
		}
		a := s.at(path)
		if a == nil || a.nested != nil {
			return true, nil
		}
		valid = a.computed && wanted.IsNull()
		return false, nil
	})
	return valid
}

// same compares values; what is unknown is the same as what is unknown, whatever is
// known of its range.
func same(a, b cty.Value) bool { return unrefined(a).RawEquals(unrefined(b)) }

func unrefined(v cty.Value) cty.Value {
	out, err := cty.Transform(v, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if !v.IsKnown() {
			return cty.UnknownVal(v.Type()), nil
		}
		return v, nil
	})
	if err != nil {
		return v
	}
	return out
}

// planProblems are the reasons for which core refuses what a provider has planned:
// what is configured must be planned as it is, or as it was; what is not configured may
// be planned only if it is computed.
func planProblems(s attributes, prior, config, planned cty.Value) []error {
	switch {
	case planned.IsNull() && !config.IsNull():
		return []error{cty.Path{}.NewErrorf("planned for absence but config wants existence")}
	case config.IsNull() && !planned.IsNull():
		return []error{cty.Path{}.NewErrorf("planned for existence but config wants absence")}
	case planned.IsNull():
		return nil
	}
	return attributeProblems(s, prior, config, planned, nil)
}

func attributeProblems(s attributes, prior, config, planned cty.Value, at cty.Path) []error {
	var out []error
	for _, name := range s.names() {
		a := s[name]
		path := append(at.Copy(), cty.GetAttrStep{Name: name})
		out = append(out, valueProblems(a, attr(prior, name, a.ty), attr(config, name, a.ty), attr(planned, name, a.ty), path)...)
	}
	return out
}

func valueProblems(a *attribute, prior, config, planned cty.Value, at cty.Path) []error {
	problem := func(open, secret string, values ...any) []error {
		if a.sensitive {
			return []error{at.NewErrorf("%s", secret)}
		}
		return []error{at.NewErrorf(open, values...)}
	}
	switch {
	case same(planned, config),
		same(planned, prior) && !prior.IsNull() && !config.IsNull(), // another way to write the same
		a.computed && (!a.optional || config.IsNull()),
		a.writeOnly && planned.IsNull() && !config.IsNull():
		return nil
	case config.IsNull() && !planned.IsNull():
		return problem("planned value %#v for a non-computed attribute", "sensitive planned value for a non-computed attribute", planned)
	case a.nested != nil:
		return nestedProblems(a, prior, config, planned, at)
	case prior.IsNull():
		return problem("planned value %#v does not match config value %#v", "sensitive planned value does not match config value",
			planned, config)
	default:
		return problem("planned value %#v does not match config value %#v nor prior value %#v",
			"sensitive planned value does not match config value nor prior value", planned, config, prior)
	}
}

func nestedProblems(a *attribute, prior, config, planned cty.Value, at cty.Path) []error {
	switch {
	case planned.IsNull() && !config.IsNull():
		return []error{at.NewErrorf("planned for absence but config wants existence")}
	case !config.IsNull() && !planned.IsKnown():
		return []error{at.NewErrorf("planned unknown for configured value")}
	case planned.IsNull():
		return nil
	}
	if a.nesting == tfprotov6.SchemaObjectNestingModeSingle {
		return attributeProblems(a.nested, prior, config, planned, at)
	}
	if !config.IsKnown() { // and the plan is: its elements cannot be known to agree
		return []error{at.NewErrorf("count in plan (%#v) disagrees with count in config (%#v)", planned.Length(), config.Length())}
	}
	if a.nesting == tfprotov6.SchemaObjectNestingModeSet {
		if ok := planned.Length().Range().Includes(config.Length()); ok.IsKnown() && ok.False() {
			return []error{at.NewErrorf("count in plan (%#v) disagrees with count in config (%#v)", planned.Length(), config.Length())}
		}
		return nil
	}
	if planned.LengthInt() != config.LengthInt() {
		return []error{at.NewErrorf("count in plan (%#v) disagrees with count in config (%#v)", planned.Length(), config.Length())}
	}
	var out []error
	for it := planned.ElementIterator(); it.Next(); {
		key, p := it.Element()
		c, ok := elementAt(config, key)
		if !ok {
			out = append(out, at.NewErrorf("map key %q from plan is not present in config", key.AsString()))
			continue
		}
		before, ok := elementAt(prior, key)
		if !ok {
			before = cty.NullVal(a.nested.object())
		}
		out = append(out, attributeProblems(a.nested, before, c, p, append(at.Copy(), cty.IndexStep{Key: key}))...)
	}
	return out
}

// resultProblems are the reasons for which core says that a result, or a later plan, is
// not what was planned: only what was unknown may have changed.
func resultProblems(s attributes, planned, actual cty.Value) []error {
	switch {
	case planned.IsNull() && !actual.IsNull():
		return []error{cty.Path{}.NewErrorf("root object was absent, but now present")}
	case actual.IsNull() && !planned.IsNull():
		return []error{cty.Path{}.NewErrorf("root object was present, but now absent")}
	case planned.IsNull():
		return nil
	}
	var out []error
	for _, name := range s.names() {
		at := cty.GetAttrPath(name)
		wrong := mismatches(planned.GetAttr(name), actual.GetAttr(name), at)
		if s[name].sensitive && len(wrong) > 0 {
			wrong = []error{at.NewErrorf("inconsistent values for sensitive attribute")}
		}
		out = append(out, wrong...)
	}
	return out
}

func mismatches(planned, actual cty.Value, at cty.Path) []error {
	switch {
	case planned.Type() == cty.DynamicPseudoType:
		return nil
	case len(actual.Type().TestConformance(planned.Type())) > 0:
		return []error{at.NewErrorf("wrong final value type: %s", actual.Type().FriendlyName())}
	case !planned.IsKnown():
		if ok := planned.Range().Includes(actual); ok.IsKnown() && ok.False() {
			return []error{at.NewErrorf("final value %#v does not conform to planning placeholder %#v", actual, planned)}
		}
		return nil
	case actual.IsNull() && planned.IsNull():
		return nil
	case actual.IsNull():
		return []error{at.NewErrorf("was %#v, but now null", planned)}
	case planned.IsNull():
		return []error{at.NewErrorf("was null, but now %#v", actual)}
	case !actual.IsKnown():
		return []error{at.NewErrorf("was known, but now unknown")}
	}
	ty := planned.Type()
	var out []error
	switch {
	case ty.IsPrimitiveType():
		if !actual.Equals(planned).True() {
			return []error{at.NewErrorf("was %#v, but now %#v", planned, actual)}
		}
	case ty.IsObjectType():
		for name := range ty.AttributeTypes() {
			out = append(out, mismatches(planned.GetAttr(name), actual.GetAttr(name), append(at.Copy(), cty.GetAttrStep{Name: name}))...)
		}
	case ty.IsSetType():
		return setMismatches(planned, actual, at)
	case ty.IsListType(), ty.IsMapType(), ty.IsTupleType():
		for it := planned.ElementIterator(); it.Next(); {
			key, p := it.Element()
			a, ok := elementAt(actual, key)
			if !ok {
				out = append(out, at.NewErrorf("element %s has vanished", keyText(key)))
				continue
			}
			out = append(out, mismatches(p, a, append(at.Copy(), cty.IndexStep{Key: key}))...)
		}
		for it := actual.ElementIterator(); it.Next(); {
			key, _ := it.Element()
			if _, ok := elementAt(planned, key); !ok {
				out = append(out, at.NewErrorf("new element %s has appeared", keyText(key)))
			}
		}
	}
	return out
}

func setMismatches(planned, actual cty.Value, at cty.Path) []error {
	p, a := planned.AsValueSlice(), actual.AsValueSlice()
	met := make([]bool, len(a))
	var out []error
	for _, x := range p {
		found := false
		for i, y := range a {
			if len(mismatches(x, y, at)) == 0 {
				found, met[i] = true, true
			}
		}
		if !found {
			out = append(out, at.NewErrorf("planned set element %#v does not correlate with any element in actual", x))
		}
	}
	if len(out) > 0 {
		return out
	}
	for i, ok := range met {
		if !ok {
			out = append(out, at.NewErrorf("actual set element %#v does not correlate with any element in plan", a[i]))
		}
	}
	if len(p) < len(a) {
		out = append(out, at.NewErrorf("length changed from %d to %d", len(p), len(a)))
	}
	return out
}

func keyText(key cty.Value) string {
	switch key.Type() {
	case cty.Number:
		return key.AsBigFloat().Text('f', -1)
	case cty.String:
		return strconv.Quote(key.AsString())
	default:
		return fmt.Sprintf("%#v", key)
	}
}

// pathText writes a path as core does: .a["b"][0].c.
func pathText(path cty.Path) string {
	var b strings.Builder
	for _, step := range path {
		switch s := step.(type) {
		case cty.GetAttrStep:
			b.WriteString("." + s.Name)
		case cty.IndexStep:
			b.WriteString("[" + keyText(s.Key) + "]")
		}
	}
	return b.String()
}

// problemText writes a problem with the path at which it is, after a prefix.
func problemText(prefix string, err error) string {
	if p, ok := err.(cty.PathError); ok { //nolint:errorlint // it is made here
		return prefix + pathText(p.Path) + ": " + p.Error()
	}
	return prefix + ": " + err.Error()
}
