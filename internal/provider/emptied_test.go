package provider_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// nested is an object of a schema that a configuration may write.
type nested struct {
	of     string
	path   []string
	schema *tfprotov6.Schema
	object *tfprotov6.SchemaObject
}

func (n nested) name() string { return n.of + " " + strings.Join(n.path, ".") }

// nestedIn are the objects in these attributes, and those in them.
func nestedIn(of string, s *tfprotov6.Schema, attributes []*tfprotov6.SchemaAttribute, above []string) (out []nested) {
	for _, a := range attributes {
		if a.NestedType == nil || !a.Optional && !a.Required {
			continue
		}
		at := append(slices.Clone(above), a.Name)
		out = append(out, nested{of, at, s, a.NestedType})
		out = append(out, nestedIn(of, s, a.NestedType.Attributes, at)...)
	}
	return out
}

// holding is a value of a type in which nothing is set but what leads to an object in which nothing is set.
func holding(of tftypes.Type, path []string) tftypes.Value {
	switch t := of.(type) {
	case tftypes.Map:
		return tftypes.NewValue(t, map[string]tftypes.Value{"key": holding(t.ElementType, path)})
	case tftypes.Set:
		return tftypes.NewValue(t, []tftypes.Value{holding(t.ElementType, path)})
	case tftypes.List:
		return tftypes.NewValue(t, []tftypes.Value{holding(t.ElementType, path)})
	case tftypes.Object:
		fields := map[string]tftypes.Value{}
		for name, is := range t.AttributeTypes {
			if fields[name] = tftypes.NewValue(is, nil); len(path) > 0 && name == path[0] {
				fields[name] = holding(is, path[1:])
			}
		}
		return tftypes.NewValue(t, fields)
	}
	panic("no object in " + of.String())
}

// Each nested object of each schema is refused where nothing is set in it, with and without the fast path, unless the table says
// what that means; and the table names nothing else.
func TestNoEmptyObjectIsSilent(t *testing.T) {
	for _, fast := range []string{"", "off"} {
		t.Run("fast path "+fast, func(t *testing.T) {
			t.Setenv("GPU_FAST_PATH", fast)
			serve, err := provider.Server("test", nil)
			if err != nil {
				t.Fatal(err)
			}
			server, ctx := serve(), t.Context()
			all, err := server.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
			if err != nil {
				t.Fatal(err)
			}
			type validate func(*tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error)
			meanings := maps.Clone(provider.EmptyObjects)
			tried := 0
			try := func(of string, s *tfprotov6.Schema, ask validate) {
				for _, object := range nestedIn(of, s, s.Block.Attributes, nil) {
					tried++
					config, err := tfprotov6.NewDynamicValue(s.ValueType(), holding(s.ValueType(), object.path))
					if err != nil {
						t.Fatal(err)
					}
					said, err := ask(&config)
					if err != nil {
						t.Fatal(err)
					}
					last := object.path[len(object.path)-1]
					refused := slices.ContainsFunc(said, func(d *tfprotov6.Diagnostic) bool {
						for _, a := range object.object.Attributes {
							if (a.Optional || a.Required) && !strings.Contains(d.Detail, a.Name) && last != "hosts" {
								return false
							}
						}
						return d.Severity == tfprotov6.DiagnosticSeverityError && strings.Contains(d.Detail, "Terraform drops any other name")
					})
					if _, means := meanings[object.name()]; means == refused {
						t.Errorf("%s with nothing in it: refused %v, and the table says that it has a meaning: %v", object.name(), refused, means)
					}
					delete(meanings, object.name())
				}
			}
			try("provider", all.Provider, func(c *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
				r, err := server.ValidateProviderConfig(ctx, &tfprotov6.ValidateProviderConfigRequest{Config: c})
				return r.Diagnostics, err
			})
			for name, s := range all.ResourceSchemas {
				try("resource "+name, s, func(c *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
					r, err := server.ValidateResourceConfig(ctx, &tfprotov6.ValidateResourceConfigRequest{TypeName: name, Config: c})
					return r.Diagnostics, err
				})
			}
			for name, s := range all.DataSourceSchemas {
				try("data "+name, s, func(c *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
					r, err := server.ValidateDataResourceConfig(ctx, &tfprotov6.ValidateDataResourceConfigRequest{TypeName: name, Config: c})
					return r.Diagnostics, err
				})
			}
			for name, s := range all.EphemeralResourceSchemas {
				try("ephemeral "+name, s, func(c *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
					r, err := server.ValidateEphemeralResourceConfig(ctx,
						&tfprotov6.ValidateEphemeralResourceConfigRequest{TypeName: name, Config: c})
					return r.Diagnostics, err
				})
			}
			for name, s := range all.ListResourceSchemas {
				try("list "+name, s, func(c *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
					r, err := server.ValidateListResourceConfig(ctx, &tfprotov6.ValidateListResourceConfigRequest{TypeName: name, Config: c})
					return r.Diagnostics, err
				})
			}
			for name, s := range all.ActionSchemas {
				try("action "+name, s.Schema, func(c *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
					r, err := server.ValidateActionConfig(ctx, &tfprotov6.ValidateActionConfigRequest{ActionType: name, Config: c})
					return r.Diagnostics, err
				})
			}
			if len(meanings) > 0 {
				t.Errorf("the table gives a meaning to what no schema has: %v", meanings)
			}
			if tried < 30 {
				t.Errorf("only %d objects were found", tried)
			}
		})
	}
}

// A misspelt name in an object, alone or in a module's null, is an error with the names that there are, before any host is asked.
func TestAMisspeltNameInAnObjectIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 4))
	before := r.File()
	on := func(of string) string {
		return "resource \"gpu_partition_config\" \"one\" {\n name = \"one\"\n hosts = [\"hgx01\"]\n mig = { profiles = { \"1g.10gb\" = 7 } " +
			"}\n " +
			of + "\n}\n"
	}
	for name, x := range map[string]struct {
		hcl  string
		says []string
	}{
		"selector": {on(`selector = { gpu_id = { hgx01 = ["GPU-1"] } }`), []string{
			"`selector` has nothing set", "`gpu_ids` and `models`", "null",
		}},
		"as a module passes it on": {
			on(`selector = { models = null, gpu_ids = null }`), []string{"`selector` has nothing set", "leave `selector` out or set it to null"},
		},
		"rollout":  {on(`rollout = { max_unavailabel = 2 }`), []string{"`rollout` has nothing set", "`max_unavailable`"}},
		"timeouts": {on(`timeouts = { creat = "5m" }`), []string{"`timeouts` has nothing set", "`create`"}},
		"quota": {
			"resource \"gpu_pool\" \"p\" {\n name = \"p\"\n hosts = [\"hgx01\"]\n quotas = { team-a = { memory = 1000 } }\n}\n",
			[]string{"`quotas[\"team-a\"]` has nothing set", "`gpus`, `memory_mib` and `shares`"},
		},
		"memory": {
			"resource \"gpu_share\" \"s\" {\n name = \"s\"\n host = \"hgx01\"\n memory = { limit = \"20Gi\" }\n}\n",
			[]string{"`memory` has nothing set", "`limit_mib`"},
		},
		"data source": {
			"data \"gpu_change_forecast\" \"f\" {\n hosts = [\"hgx01\"]\n mig = { profiles = {} }\n selector = { model = [\"A16\"] }\n}\n",
			[]string{"`selector` has nothing set"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := rig.NewCLI(t, r.Block()+x.hcl).Fails("plan")
			rig.WantSaid(t, out, x.says...)
			if n := strings.Count(out, "Error:"); n > 1 {
				t.Errorf("%d errors are said of one cause:\n%s", n, out)
			}
		})
	}
	t.Cleanup(func() {
		r.WantUntouched(before)
	})
	t.Run("provider", func(t *testing.T) {
		t.Parallel()
		out := rig.NewCLI(t, fmt.Sprintf("provider \"gpu\" {\n simulated_fleet = %q\n power = { allow_shut_down = true }\n}\n"+
			"data \"gpu_inventory\" \"all\" {}\n", "x")).Fails("plan")
		rig.WantSaid(t, out, "`power` has nothing set", "`allow_shutdown`")
	})
}
