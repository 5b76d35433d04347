package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// byProvider are the fields of a host that only the provider and the agent write.
var byProvider = []string{"stale", "unknown", "claims", "unfinished", "held_by", "unreadable_records", "owed_starts"}

// fleetFileTables lists every field of a fleet file, with what the code says of it.
func fleetFileTables() string {
	types := declared(filepath.Join(root(), "internal", "gpu"))
	var out strings.Builder
	queue, seen := []string{reflect.TypeFor[gpu.Snapshot]().Name()}, map[string]bool{}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		of, ok := types.structs[name]
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		fmt.Fprintf(&out, "## %s\n\n", name)
		var t table
		t.row("Field", "Type", "Meaning")
		t.row("---", "---", "---")
		for i := 0; i < len(of); i++ {
			f := of[i]
			if f.json == "" {
				of = slices.Insert(of, i+1, types.structs[f.typ.(*ast.Ident).Name]...) //nolint:forcetypeassert // of this package
				continue
			}
			text, kind := f.text, types.kind(f.typ)
			if name == reflect.TypeFor[gpu.Host]().Name() && slices.Contains(byProvider, f.json) {
				text, kind = "Written by the provider and the agent: leave it out. "+text, "list"
				if _, one := f.typ.(*ast.StarExpr); one {
					kind = "object"
				}
			} else {
				queue = append(queue, f.of...)
			}
			t.row("`"+f.json+"`", kind, text)
		}
		out.WriteString(t.String() + "\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
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
}

func declared(dir string) source {
	out := source{map[string][]field{}, map[string][]string{}, map[string]string{}}
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
							out.values[of.Name] = append(out.values[of.Name], "`"+strings.Trim(v.Value, `"`)+"`")
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

// kind says what a value is in JSON.
func (s source) kind(of ast.Expr) string {
	switch t := of.(type) {
	case *ast.StarExpr:
		return s.kind(t.X)
	case *ast.ArrayType:
		return "list of " + s.kind(t.Elt)
	case *ast.MapType:
		return "map of " + s.kind(t.Value)
	case *ast.SelectorExpr:
		return "time (RFC 3339)"
	case *ast.Ident:
		switch {
		case t.Name == "bool":
			return "boolean"
		case t.Name == "string" && len(s.values[t.Name]) == 0:
			return "text"
		case t.Name == "Bytes":
			return "bytes"
		case len(s.values[t.Name]) > 0:
			return "one of " + strings.Join(s.values[t.Name], ", ")
		case s.is[t.Name] != "":
			return s.kind(ast.NewIdent(s.is[t.Name]))
		case s.structs[t.Name] != nil:
			return "[" + t.Name + "](#" + strings.ToLower(t.Name) + ")"
		}
		return "number"
	}
	return ""
}
