package provider_test

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// argument is one that a configuration may set, and how to set it: build makes the block that
// has a value there and nothing else.
type argument struct {
	of    string // "provider", "resource gpu_pool", "data gpu_pool"
	path  string // as the text of an error writes it
	typ   tftypes.Type
	leaf  *tfprotov6.SchemaAttribute
	build func(tftypes.Value) tftypes.Value
}

// arguments lists what the blocks of a schema may set, at every level.
func arguments(of string, block *tfprotov6.SchemaBlock, typ tftypes.Type) []argument {
	return argumentsBelow(of, "", block.Attributes, typ, func(v tftypes.Value) tftypes.Value { return v })
}

func argumentsBelow(of, at string, attributes []*tfprotov6.SchemaAttribute, typ tftypes.Type,
	outer func(tftypes.Value) tftypes.Value,
) []argument {
	var out []argument
	object, _ := typ.(tftypes.Object)
	for _, a := range attributes {
		if !a.Optional && !a.Required {
			continue
		}
		set := func(v tftypes.Value) tftypes.Value {
			values := map[string]tftypes.Value{}
			for name, t := range object.AttributeTypes {
				values[name] = tftypes.NewValue(t, nil)
			}
			values[a.Name] = v
			return outer(tftypes.NewValue(object, values))
		}
		path, t := strings.TrimPrefix(at+"."+a.Name, "."), object.AttributeTypes[a.Name]
		out = append(out, argument{of, path, t, a, set})
		if a.NestedType == nil {
			continue
		}
		wrap, inner, key := set, t, ""
		switch a.NestedType.Nesting {
		case tfprotov6.SchemaObjectNestingModeMap:
			inner, key = elementOf(t), `["k"]`
			wrap = func(v tftypes.Value) tftypes.Value {
				return set(tftypes.NewValue(t, map[string]tftypes.Value{"k": v}))
			}
		case tfprotov6.SchemaObjectNestingModeSet:
			inner, key = elementOf(t), "[*]"
			wrap = func(v tftypes.Value) tftypes.Value { return set(tftypes.NewValue(t, []tftypes.Value{v})) }
		case tfprotov6.SchemaObjectNestingModeList:
			inner, key = elementOf(t), "[0]"
			wrap = func(v tftypes.Value) tftypes.Value { return set(tftypes.NewValue(t, []tftypes.Value{v})) }
		}
		out = append(out, argumentsBelow(of, path+key, a.NestedType.Attributes, inner, wrap)...)
	}
	return out
}

// elementOf is the type of the elements of a collection.
func elementOf(t tftypes.Type) tftypes.Type {
	switch t := t.(type) {
	case tftypes.List:
		return t.ElementType
	case tftypes.Set:
		return t.ElementType
	case tftypes.Map:
		return t.ElementType
	}
	return nil
}

// badValues are values that no argument of a type may have, with a name.
func badValues(t tftypes.Type) map[string]tftypes.Value {
	number := func(s string) tftypes.Value {
		f, _, _ := big.ParseFloat(s, 10, 256, big.ToNearestEven)
		return tftypes.NewValue(t, f)
	}
	switch {
	case t.Is(tftypes.Number):
		return map[string]tftypes.Value{"a fraction": number("4.000001"), "beyond 64 bits": number("1e20"), "negative": number("-7")}
	case t.Is(tftypes.String):
		return map[string]tftypes.Value{"empty": tftypes.NewValue(t, "")}
	case t.Is(tftypes.List{}), t.Is(tftypes.Set{}):
		out := map[string]tftypes.Value{"empty": tftypes.NewValue(t, []tftypes.Value{})}
		element := elementOf(t)
		if element.Is(tftypes.String) {
			out["an empty element"] = tftypes.NewValue(t, []tftypes.Value{tftypes.NewValue(element, "")})
		}
		return out
	case t.Is(tftypes.Map{}):
		out := map[string]tftypes.Value{"empty": tftypes.NewValue(t, map[string]tftypes.Value{})}
		switch element := elementOf(t); {
		case element.Is(tftypes.Number):
			for name, v := range badValues(element) {
				out[name+" as an element"] = tftypes.NewValue(t, map[string]tftypes.Value{"k": v})
			}
		case element.Is(tftypes.String):
			out["an empty element"] = tftypes.NewValue(t, map[string]tftypes.Value{"k": tftypes.NewValue(element, "")})
		}
		return out
	}
	return nil
}

// mayBe are the arguments that a value of badValues is good for.
var mayBe = map[string]string{
	"data gpu_change_forecast assignments: empty":          "a for expression may find none",
	"data gpu_change_forecast mig.profiles: empty":         "it is MIG mode without instances",
	"resource gpu_partition_config mig.profiles: empty":    "it is MIG mode without instances",
	"data gpu_change_forecast vgpu.types: empty":           "it is no vGPU",
	"resource gpu_partition_config vgpu.types: empty":      "it is no vGPU",
	"data gpu_utilization prometheus.headers: empty":       "a for expression may find none",
	"resource gpu_partition_config quiesce_units: empty":   "a module passes on what it was given",
	"resource gpu_pool quotas: empty":                      "a module passes on what it was given",
	"resource gpu_vm_assignment hosts: empty":              "a module passes on what it was given",
	"provider rules: empty":                                "a for expression may find none",
	"resource gpu_pool quotas[\"k\"].gpus: a fraction":     "a share may have a part of a GPU",
	"resource gpu_pool quotas[\"k\"].gpus: beyond 64 bits": "it is no integer",
}

// Every argument of the schema, set to what it cannot be, is an error at that argument when the
// configuration is validated: nothing is asked of a host, and nothing panics.
func TestEveryArgumentRefusesWhatItCannotBe(t *testing.T) {
	t.Parallel()
	serve, err := provider.Server("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	server := serve()
	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all := arguments("provider", schemas.Provider.Block, schemas.Provider.ValueType())
	for name, s := range schemas.ResourceSchemas {
		all = append(all, arguments("resource "+name, s.Block, s.ValueType())...)
	}
	for name, s := range schemas.DataSourceSchemas {
		all = append(all, arguments("data "+name, s.Block, s.ValueType())...)
	}
	validate := func(of string, v tftypes.Value) []*tfprotov6.Diagnostic {
		config, err := tfprotov6.NewDynamicValue(v.Type(), v)
		if err != nil {
			t.Fatal(err)
		}
		kind, name, _ := strings.Cut(of, " ")
		switch kind {
		case "resource":
			resp, err := server.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{TypeName: name, Config: &config})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Diagnostics
		case "data":
			resp, err := server.ValidateDataResourceConfig(t.Context(), &tfprotov6.ValidateDataResourceConfigRequest{
				TypeName: name, Config: &config,
			})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Diagnostics
		}
		resp, err := server.ValidateProviderConfig(t.Context(), &tfprotov6.ValidateProviderConfigRequest{Config: &config})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Diagnostics
	}
	cases := 0
	for _, a := range all {
		for name, v := range badValues(a.typ) {
			id := a.of + " " + a.path + ": " + name
			found := validate(a.of, a.build(v))
			named := slices.ContainsFunc(found, func(d *tfprotov6.Diagnostic) bool {
				return d.Severity == tfprotov6.DiagnosticSeverityError &&
					strings.HasPrefix(pathText(d.Attribute), strings.ReplaceAll(a.path, "[*]", "")) || strings.Contains(d.Detail, a.path+" ")
			})
			why, ok := mayBe[id]
			if strings.HasSuffix(a.path, ".oversubscription") && name != "negative" {
				why, ok = "it is a ratio", true
			}
			if ok {
				if named {
					t.Errorf("%s is refused, although %s", id, why)
				}
				continue
			}
			cases++
			if !named {
				t.Errorf("%s is not refused at its path, but: %s", id, texts(found))
			}
			if s := texts(found); strings.Contains(s, "error in the provider") || strings.Contains(s, "%!") {
				t.Errorf("%s is called a bug of the provider: %s", id, s)
			}
		}
		if found := texts(validate(a.of, a.build(tftypes.NewValue(a.typ, tftypes.UnknownValue)))); strings.Contains(found, a.path+" ") ||
			strings.Contains(found, "error in the provider") {
			t.Errorf("%s %s: refused while it is not known: %s", a.of, a.path, found)
		}
	}
	t.Logf("%d arguments, %d bad values", len(all), cases)
	if cases+len(badArguments) < 250 {
		t.Errorf("there are %d bad values and %d bad arguments", cases, len(badArguments))
	}
}

func texts(list []*tfprotov6.Diagnostic) string {
	var out []string
	for _, d := range list {
		out = append(out, fmt.Sprintf("%s at %s: %s", d.Summary, pathText(d.Attribute), d.Detail))
	}
	return strings.Join(out, "; ")
}

func pathText(at *tftypes.AttributePath) string {
	var b strings.Builder
	for _, step := range at.Steps() {
		switch s := step.(type) {
		case tftypes.AttributeName:
			b.WriteString("." + string(s))
		case tftypes.ElementKeyString:
			fmt.Fprintf(&b, "[%q]", string(s))
		case tftypes.ElementKeyInt:
			fmt.Fprintf(&b, "[%d]", int64(s))
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}
