package golden

import (
	"slices"
	"testing"
)

func TestWhatBreaks(t *testing.T) {
	pool := ".resource_schemas.gpu_pool"
	for name, tt := range map[string]struct {
		rule           func(removed, added []string) []string
		removed, added []string
		breaks         []string
	}{
		"a field that may be left out": {rule: inDocuments, added: []string{"change/want.a: bool, optional"}},
		"with what is in it":           {rule: inDocuments, added: []string{"change/want.a: object, optional", "change/want.a.b: string"}},
		"a value":                      {rule: inDocuments, added: []string{"change/want.kind=new: value"}},
		"a field that is always there": {rule: inDocuments, added: []string{"change/want.a: bool"}, breaks: []string{"+ change/want.a: bool"}},
		"in what was there already": {
			rule: inDocuments, added: []string{"change/want.ab: bool, optional", "change/want.abc: bool"},
			breaks: []string{"+ change/want.abc: bool"},
		},
		"a field that goes": {
			rule: inDocuments, removed: []string{"change/a: bool, optional"}, breaks: []string{"- change/a: bool, optional"},
		},
		"a value that goes": {rule: inDocuments, removed: []string{"change/a=b: value"}, breaks: []string{"- change/a=b: value"}},
		"another version of a record": {
			rule: inDocuments, removed: []string{"versions: map[claim:1]"}, added: []string{"versions: map[claim:2]"},
			breaks: []string{"- versions: map[claim:1]", "+ versions: map[claim:2]"},
		},
		"an optional attribute": {
			rule: inSchemas, added: []string{pool + ".block.attributes.x.optional: true", pool + ".block.attributes.x.type: string"},
		},
		"no longer required": {
			rule: inSchemas, removed: []string{pool + ".block.attributes.x.required: true"},
			added: []string{pool + ".block.attributes.x.optional: true"},
		},
		"now required": {
			rule: inSchemas, removed: []string{pool + ".block.attributes.x.optional: true"},
			added: []string{pool + ".block.attributes.x.required: true"}, breaks: []string{
				"- " + pool + ".block.attributes.x.optional: true", "+ " + pool + ".block.attributes.x.required: true",
			},
		},
		"a required attribute": {
			rule: inSchemas, added: []string{pool + ".block.attributes.x.required: true"},
			breaks: []string{"+ " + pool + ".block.attributes.x.required: true"},
		},
		"a new resource": {rule: inSchemas, added: []string{pool + ".version: 0", pool + ".block.attributes.x.required: true"}},
		"in a new nested attribute": {
			rule: inSchemas, added: []string{
				pool + ".block.attributes.y.nested_type.nesting_mode: single", pool + ".block.attributes.y.nested_type.attributes.x.required: true",
			},
		},
		"in a nested one that was": {
			rule: inSchemas, added: []string{pool + ".block.attributes.y.nested_type.attributes.x.required: true"},
			breaks: []string{"+ " + pool + ".block.attributes.y.nested_type.attributes.x.required: true"},
		},
		"another type": {
			rule: inSchemas, removed: []string{pool + ".block.attributes.x.type: string"},
			added: []string{pool + ".block.attributes.x.type: number"}, breaks: []string{"- " + pool + ".block.attributes.x.type: string"},
		},
		"another version of the schema": {
			rule: inSchemas, removed: []string{pool + ".version: 0"}, added: []string{pool + ".version: 1"},
			breaks: []string{"- " + pool + ".version: 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.rule(tt.removed, tt.added); !slices.Equal(got, tt.breaks) {
				t.Errorf("%q, want %q", got, tt.breaks)
			}
		})
	}
}
