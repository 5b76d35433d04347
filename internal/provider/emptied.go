package provider

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// EmptyObjects are the nested objects that mean something with nothing set in them, and what that is. Any other is refused.
var EmptyObjects = map[string]string{
	"provider hosts.local":                 "the machine that Terraform runs on, with the agent that is found there",
	"resource gpu_vm_assignment partition": "any partition",
}

// emptied refuses a nested object in which nothing is set. Terraform drops names that it does not know inside { } without a
// word (hashicorp/terraform#33570), and a misspelt name leaves an object that means something else: all GPUs in place of one.
// What is dropped beside good names no provider sees; `gpu-agent check` reads it in the configuration's text.
type emptied struct {
	Served
	schemas func() map[string]nestedObjects
}

// nestedObjects are the nested objects of a schema that must not be empty.
type nestedObjects struct {
	*tfprotov6.Schema
	empties [][]byte // what the encoding of a configuration has in it if one of them is empty
}

func newEmptied(inner Served) *emptied {
	return &emptied{Served: inner, schemas: sync.OnceValue(func() map[string]nestedObjects {
		all, err := inner.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
		if err != nil {
			return nil // Terraform asks for it too, and says so
		}
		out := map[string]nestedObjects{}
		add := func(of string, s *tfprotov6.Schema) {
			if s != nil {
				out[of] = nestedObjects{s, emptyEncodings(s.Block.Attributes, of+" ")}
			}
		}
		add("provider", all.Provider)
		for name, s := range all.ResourceSchemas {
			add("resource "+name, s)
		}
		for name, s := range all.DataSourceSchemas {
			add("data "+name, s)
		}
		for name, s := range all.EphemeralResourceSchemas {
			add("ephemeral "+name, s)
		}
		for name, s := range all.ListResourceSchemas {
			add("list "+name, s)
		}
		for name, s := range all.ActionSchemas {
			add("action "+name, s.Schema)
		}
		return out
	})}
}

// emptyEncodings are the ways in which objects in these attributes are written if nothing is set in them.
func emptyEncodings(attributes []*tfprotov6.SchemaAttribute, above string) (out [][]byte) {
	for _, a := range attributes {
		if a.NestedType == nil || !a.Optional && !a.Required {
			continue
		}
		if EmptyObjects[above+a.Name] == "" {
			names := words.Each(a.NestedType.Attributes, func(a *tfprotov6.SchemaAttribute) string { return a.Name })
			slices.Sort(names)
			var text bytes.Buffer
			for _, name := range names { // an encoder fails where its writer does, and this one does not
				_ = msgpack.NewEncoder(&text).EncodeString(name)
				_ = msgpack.NewEncoder(&text).EncodeNil()
			}
			out = append(out, text.Bytes())
		}
		out = append(out, emptyEncodings(a.NestedType.Attributes, above+a.Name+".")...)
	}
	return out
}

func (e *emptied) ValidateProviderConfig(
	ctx context.Context, r *tfprotov6.ValidateProviderConfigRequest,
) (*tfprotov6.ValidateProviderConfigResponse, error) {
	resp, err := e.Served.ValidateProviderConfig(ctx, r)
	if err == nil {
		resp.Diagnostics = e.check("provider", r.Config, resp.Diagnostics)
	}
	return resp, err
}

func (e *emptied) ValidateResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	resp, err := e.Served.ValidateResourceConfig(ctx, r)
	if err == nil {
		resp.Diagnostics = e.check("resource "+r.TypeName, r.Config, resp.Diagnostics)
	}
	return resp, err
}

func (e *emptied) ValidateDataResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateDataResourceConfigRequest,
) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	resp, err := e.Served.ValidateDataResourceConfig(ctx, r)
	if err == nil {
		resp.Diagnostics = e.check("data "+r.TypeName, r.Config, resp.Diagnostics)
	}
	return resp, err
}

func (e *emptied) ValidateEphemeralResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateEphemeralResourceConfigRequest,
) (*tfprotov6.ValidateEphemeralResourceConfigResponse, error) {
	resp, err := e.Served.ValidateEphemeralResourceConfig(ctx, r)
	if err == nil {
		resp.Diagnostics = e.check("ephemeral "+r.TypeName, r.Config, resp.Diagnostics)
	}
	return resp, err
}

func (e *emptied) ValidateListResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateListResourceConfigRequest,
) (*tfprotov6.ValidateListResourceConfigResponse, error) {
	resp, err := e.Served.ValidateListResourceConfig(ctx, r)
	if err == nil {
		resp.Diagnostics = e.check("list "+r.TypeName, r.Config, resp.Diagnostics)
	}
	return resp, err
}

func (e *emptied) ValidateActionConfig(
	ctx context.Context, r *tfprotov6.ValidateActionConfigRequest,
) (*tfprotov6.ValidateActionConfigResponse, error) {
	resp, err := e.Served.ValidateActionConfig(ctx, r)
	if err == nil {
		resp.Diagnostics = e.check("action "+r.ActionType, r.Config, resp.Diagnostics)
	}
	return resp, err
}

// droppedNames says why an object has less in it than was written.
const droppedNames = "Terraform drops any other name inside { } without a word: one may be misspelt."

// check adds to what is said of a configuration which of its objects are empty, in place of what is said to be missing in them.
func (e *emptied) check(of string, config *tfprotov6.DynamicValue, said []*tfprotov6.Diagnostic) []*tfprotov6.Diagnostic {
	s, ok := e.schemas()[of]
	if !ok || config == nil || config.JSON == nil &&
		!slices.ContainsFunc(s.empties, func(text []byte) bool { return bytes.Contains(config.MsgPack, text) }) {
		return said // of nearly all configurations, which need not be read for that
	}
	value, err := config.Unmarshal(s.ValueType())
	if err != nil {
		return said // the framework says so
	}
	found := emptyIn(s.Block.Attributes, value, of+" ", tftypes.NewAttributePath())
	for _, d := range found {
		at := func(o *tfprotov6.Diagnostic) bool { return o.Attribute.Equal(d.Attribute) }
		if slices.ContainsFunc(said, at) {
			continue // a validator of this object says what it needs
		}
		below := d.Attribute.String() + "."
		said = slices.DeleteFunc(said, func(o *tfprotov6.Diagnostic) bool {
			return o.Attribute != nil && strings.HasPrefix(o.Attribute.String(), below)
		})
		said = append(said, d)
	}
	return said
}

// emptyIn finds the empty objects in an object of these attributes.
func emptyIn(
	attributes []*tfprotov6.SchemaAttribute, of tftypes.Value, name string, at *tftypes.AttributePath,
) (found []*tfprotov6.Diagnostic) {
	var fields map[string]tftypes.Value
	if !of.IsKnown() || of.IsNull() || of.As(&fields) != nil {
		return nil
	}
	for _, a := range attributes {
		v := fields[a.Name]
		if a.NestedType == nil || v.IsNull() || !v.IsKnown() {
			continue
		}
		name := name + a.Name
		for at, v := range objectsOf(a.NestedType.Nesting, v, at.WithAttributeName(a.Name)) {
			if isEmpty(v) && EmptyObjects[name] == "" {
				found = append(found, emptyObject(a, at))
			}
			found = append(found, emptyIn(a.NestedType.Attributes, v, name+".", at)...)
		}
	}
	return found
}

// objectsOf goes through the objects of a value, which is one, or a map, a list or a set of them.
func objectsOf(
	nesting tfprotov6.SchemaObjectNestingMode, of tftypes.Value, at *tftypes.AttributePath,
) iter.Seq2[*tftypes.AttributePath, tftypes.Value] {
	return func(yield func(*tftypes.AttributePath, tftypes.Value) bool) {
		var list []tftypes.Value
		var byKey map[string]tftypes.Value
		switch nesting {
		case tfprotov6.SchemaObjectNestingModeMap:
			_ = of.As(&byKey) // of another type it has no objects
			for _, key := range slices.Sorted(maps.Keys(byKey)) {
				if !yield(at.WithElementKeyString(key), byKey[key]) {
					return
				}
			}
		case tfprotov6.SchemaObjectNestingModeList, tfprotov6.SchemaObjectNestingModeSet:
			_ = of.As(&list)
			for i, v := range list {
				key := at.WithElementKeyInt(i)
				if nesting == tfprotov6.SchemaObjectNestingModeSet {
					key = at.WithElementKeyValue(v)
				}
				if !yield(key, v) {
					return
				}
			}
		default:
			yield(at, of)
		}
	}
}

// isEmpty reports whether nothing is set in an object that is.
func isEmpty(v tftypes.Value) bool {
	var fields map[string]tftypes.Value
	if !v.IsKnown() || v.IsNull() || v.As(&fields) != nil {
		return false
	}
	for _, field := range fields {
		if !field.IsNull() {
			return false
		}
	}
	return true
}

func emptyObject(a *tfprotov6.SchemaAttribute, at *tftypes.AttributePath) *tfprotov6.Diagnostic {
	var names []string
	for _, a := range a.NestedType.Attributes {
		if a.Optional || a.Required {
			names = append(names, "`"+a.Name+"`")
		}
	}
	slices.Sort(names)
	object := "`" + written(at) + "`"
	return &tfprotov6.Diagnostic{
		Severity: tfprotov6.DiagnosticSeverityError, Attribute: at, Summary: "Nothing is set in an object",
		Detail: fmt.Sprintf("Found: %s has nothing set in it.\nWanted: It may have %s. %s\n"+
			"Fix: Correct the name, which `gpu-agent check` finds. If nothing is meant, leave %s out or set it to null.",
			object, words.JoinAll(names), droppedNames, object),
	}
}
