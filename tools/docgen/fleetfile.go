package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// byProvider are the fields of a host that only the provider and the agent write.
var byProvider = []string{"stale", "unknown", "claims", "unfinished", "held_by", "unreadable_records", "owed_starts"}

// fleetSchema is the JSON Schema of a fleet file, with what the code says of each field. Editors complete by it.
func fleetSchema() ([]byte, error) {
	types := declared(filepath.Join(root(), "internal", "gpu"), "", nil)
	behaviour := declared(filepath.Join(root(), "internal", "backend", "simulated"), "Simulated", &types)
	defs := map[string]any{}
	types.define(defs, reflect.TypeFor[gpu.Snapshot]().Name())
	behaviour.define(defs, reflect.TypeFor[simulated.Simulation]().Name())
	fleet, host := properties(defs[reflect.TypeFor[gpu.Snapshot]().Name()]), properties(defs[reflect.TypeFor[gpu.Host]().Name()])
	fleet["$schema"] = map[string]any{"type": "string"}
	fleet["clusters"] = map[string]any{"type": "object", "description": "Written by the provider: leave it out."}
	host["agent"] = map[string]any{"type": "object", "description": "Written by the provider: leave it out."}
	host["simulation"] = behaviour.ref(reflect.TypeFor[simulated.Simulation]().Name())
	return json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schemaID, "title": "Fleet file of terraform-provider-gpu",
		"$ref": "#/$defs/" + reflect.TypeFor[gpu.Snapshot]().Name(), "$defs": defs,
	}, "", "  ")
}

// schemaID is where a release's schema is.
const schemaID = "https://raw.githubusercontent.com/gpufleet/terraform-provider-gpu/main/schemas/fleet.schema.json"

func properties(def any) map[string]any {
	return def.(map[string]any)["properties"].(map[string]any) //nolint:forcetypeassert // as define made it
}

func (s source) ref(name string) map[string]any {
	return map[string]any{"$ref": "#/$defs/" + s.prefix + name}
}

// define adds a struct and those that it has.
func (s source) define(defs map[string]any, name string) {
	of, ok := s.structs[name]
	if s.imported != nil && !ok {
		s.imported.define(defs, name)
	}
	if _, seen := defs[s.prefix+name]; seen || !ok {
		return
	}
	all := map[string]any{}
	defs[s.prefix+name] = map[string]any{"type": "object", "additionalProperties": false, "properties": all}
	for i := 0; i < len(of); i++ {
		f := of[i]
		if f.json == "" || f.json == "-" {
			if embedded, ok := f.typ.(*ast.Ident); ok && f.json == "" {
				of = slices.Insert(of, i+1, s.structs[embedded.Name]...)
			}
			continue
		}
		if name == reflect.TypeFor[gpu.Host]().Name() && slices.Contains(byProvider, f.json) {
			all[f.json] = map[string]any{"description": "Written by the provider and the agent: leave it out. " + f.text}
			continue
		}
		kind := s.kind(f.typ)
		if f.text != "" {
			kind["description"] = f.text
		}
		all[f.json] = kind
		for _, inner := range f.of {
			s.define(defs, inner)
		}
	}
}

// field is one of a struct that JSON has.
type field struct {
	json, text string
	typ        ast.Expr
	of         []string // the types of ours in it
}

// source is what a package declares: structs, texts with the values that they may have, and
// the types that others are.
type source struct {
	structs map[string][]field
	values  map[string][]string
	is      map[string]string
	// prefix is of the names of its definitions, and imported another package of ours that it uses.
	prefix   string
	imported *source
}

func declared(dir, prefix string, imported *source) source {
	out := source{map[string][]field{}, map[string][]string{}, map[string]string{}, prefix, imported}
	files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			panic(err) // it was compiled
		}
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range group.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					switch t := s.Type.(type) {
					case *ast.StructType:
						out.structs[s.Name.Name] = fields(t)
					case *ast.Ident:
						out.is[s.Name.Name] = t.Name
					}
				case *ast.ValueSpec:
					if of, ok := s.Type.(*ast.Ident); ok && len(s.Values) == 1 {
						if v, ok := s.Values[0].(*ast.BasicLit); ok && v.Kind == token.STRING {
							out.values[of.Name] = append(out.values[of.Name], strings.Trim(v.Value, `"`))
						}
					}
				}
			}
		}
	}
	return out
}

func fields(of *ast.StructType) []field {
	var out []field
	names := map[string]string{}
	for _, f := range of.Fields.List {
		if len(f.Names) == 0 { // embedded: its fields are those of the struct
			out = append(out, field{typ: f.Type})
			continue
		}
		if f.Tag == nil || len(f.Names) > 1 {
			continue
		}
		tag, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		names[f.Names[0].Name] = tag
		text := f.Doc.Text()
		if text == "" {
			text = f.Comment.Text()
		}
		text = strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ".")
		g := field{json: tag, text: text, typ: f.Type}
		ast.Inspect(f.Type, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && ast.IsExported(id.Name) {
				g.of = append(g.of, id.Name)
			}
			return true
		})
		out = append(out, g)
	}
	for i := range out {
		out[i].text = forReaders(out[i].text, names)
	}
	return out
}

var (
	subject = regexp.MustCompile(`(^|\. |; |, )(\w+)( and )?(\w+)? (is|are|says|exists|tells|reports|survives|how)\b`)
	absent  = regexp.MustCompile(`\b[Nn]il\b`)
)

// forReaders makes of a comment in Go what readers of JSON understand.
func forReaders(text string, names map[string]string) string {
	if text == "" {
		return ""
	}
	text = subject.ReplaceAllStringFunc(text, func(found string) string {
		m := subject.FindStringSubmatch(found)
		for _, i := range []int{2, 4} {
			if name := names[m[i]]; name != "" {
				m[i] = "`" + name + "`"
			}
		}
		return strings.Join(m[1:5], "") + " " + m[5]
	})
	return absent.ReplaceAllString(text, "left out") + "."
}

// kind is the schema of a value.
func (s source) kind(of ast.Expr) map[string]any {
	switch t := of.(type) {
	case *ast.StarExpr:
		return s.kind(t.X)
	case *ast.ArrayType:
		return map[string]any{"type": []string{"array", "null"}, "items": s.kind(t.Elt)}
	case *ast.MapType:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": s.kind(t.Value)}
	case *ast.SelectorExpr:
		if t.Sel.Name == "Time" {
			return map[string]any{"type": "string", "format": "date-time"}
		}
		if s.imported != nil {
			return s.imported.kind(t.Sel)
		}
	case *ast.Ident:
		switch {
		case t.Name == "bool":
			return map[string]any{"type": "boolean"}
		case len(s.values[t.Name]) > 0:
			return map[string]any{"enum": append(slices.Clone(s.values[t.Name]), "")} // which stands for none
		case t.Name == "string":
			return map[string]any{"type": "string"}
		case s.is[t.Name] != "":
			return s.kind(ast.NewIdent(s.is[t.Name]))
		case s.structs[t.Name] != nil:
			return s.ref(t.Name)
		}
		return map[string]any{"type": "number"}
	}
	return map[string]any{}
}
