package lint

import (
	"maps"
	"slices"

	tfjson "github.com/hashicorp/terraform-json"
	"github.com/zclconf/go-cty/cty"
)

// shape is what a value is converted to. A nil one takes whatever is written.
type shape struct {
	attributes map[string]*shape // of an object
	computed   map[string]bool   // those that a configuration may not set
	element    *shape            // of a map, a list or a set
}

// writable are the names that may be written.
func (s *shape) writable() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.attributes)) {
		if !s.computed[name] {
			out = append(out, name)
		}
	}
	return out
}

func sortedNames[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

func shapesOf(schemas map[string]*tfjson.Schema) map[string]*shape {
	out := map[string]*shape{}
	for name, s := range schemas {
		out[name] = blockShape(s)
	}
	return out
}

func blockShape(s *tfjson.Schema) *shape { return nestedShape(s.Block) }

func nestedShape(b *tfjson.SchemaBlock) *shape { return objectShape(b.Attributes) }

func objectShape(attributes map[string]*tfjson.SchemaAttribute) *shape {
	out := &shape{attributes: map[string]*shape{}, computed: map[string]bool{}}
	for name, a := range attributes {
		out.computed[name] = !a.Required && !a.Optional
		switch nested := a.AttributeNestedType; {
		case nested == nil:
			out.attributes[name] = shapeOf(a.AttributeType)
		case nested.NestingMode == tfjson.SchemaNestingModeSingle:
			out.attributes[name] = objectShape(nested.Attributes)
		default:
			out.attributes[name] = &shape{element: objectShape(nested.Attributes)}
		}
	}
	return out
}

// shapeOf is the shape of a type, nil if there is no object in it.
func shapeOf(t cty.Type) *shape {
	switch {
	case t == cty.NilType:
	case t.IsObjectType():
		out := &shape{attributes: map[string]*shape{}}
		for name, is := range t.AttributeTypes() {
			out.attributes[name] = shapeOf(is)
		}
		return out
	case t.IsCollectionType():
		if element := shapeOf(t.ElementType()); element != nil {
			return &shape{element: element}
		}
	}
	return nil
}
