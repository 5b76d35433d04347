package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/golden"
)

// TestGoldenSchema holds the provider's schema, without the descriptions, against the
// configurations and states that are there already. The committed one is that by which
// `gpu-agent check` reads configurations: the agent links no provider.
func TestGoldenSchema(t *testing.T) {
	t.Parallel()
	data, err := schemaJSON(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	undescribed(schema)
	if data, err = json.MarshalIndent(schema, "", " "); err != nil {
		t.Fatal(err)
	}
	golden.Schema(t, "../../../internal/lint/schema.json", append(data, '\n'))
}

// undescribed leaves out the descriptions of a schema: they are texts, not attributes that are
// called so.
func undescribed(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if _, isText := field.(string); isText && (strings.HasPrefix(name, "description") || name == "summary") {
				delete(v, name)
				continue
			}
			undescribed(field)
		}
	case []any:
		for _, element := range v {
			undescribed(element)
		}
	}
}
