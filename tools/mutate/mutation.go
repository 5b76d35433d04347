package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutation is one break of the code. It is found by its function and not by its file, so
// that code may move.
type mutation struct {
	// in is the folder of a package, "internal/rules".
	in string
	// function is "name", or "Type.name" of a method.
	function string
	// from is what is replaced by to, and stands once in the function. Without it the
	// function does nothing and returns zeros.
	from, to string
}

func (m mutation) name() string {
	if m.from == "" {
		return fmt.Sprintf("%s.%s does nothing", m.in, m.function)
	}
	return fmt.Sprintf("%s.%s: %s → %s", m.in, m.function, strings.Join(strings.Fields(m.from), " "), m.to)
}

// apply returns the file of the mutation below root, and what is in it then. It is an error
// when the place is not there any more.
func (m mutation) apply(root string) (file string, text []byte, err error) {
	set := token.NewFileSet()
	files, err := filepath.Glob(filepath.Join(root, m.in, "*.go"))
	if err != nil {
		return "", nil, err
	}
	if len(files) == 0 {
		return "", nil, fmt.Errorf("there is no package %s: %w", m.in, fs.ErrNotExist)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", nil, err
		}
		parsed, err := parser.ParseFile(set, file, text, 0)
		if err != nil {
			return "", nil, err
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || nameOf(f) != m.function {
				continue
			}
			text, err := m.change(set, f, text)
			return file, text, err
		}
	}
	return "", nil, fmt.Errorf("%s has no function %s any more: update tools/mutate/list.go", m.in, m.function)
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if named, ok := of.(*ast.Ident); ok {
		return named.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

func (m mutation) change(set *token.FileSet, f *ast.FuncDecl, text []byte) ([]byte, error) {
	begin, end := set.Position(f.Body.Lbrace).Offset+1, set.Position(f.Body.Rbrace).Offset
	body := string(text[begin:end])
	if m.from == "" {
		zero, err := zeros(set, f.Type.Results)
		if err != nil {
			return nil, err
		}
		// What follows stays, so that nothing is unused.
		body = " if !false { " + zero + " }; " + body
	} else {
		if n := strings.Count(body, m.from); n != 1 {
			return nil, fmt.Errorf("%s has %q %d times and not once: update tools/mutate/list.go", m.function, m.from, n)
		}
		body = strings.Replace(body, m.from, m.to, 1)
	}
	return slices.Concat(text[:begin], []byte(body), text[end:]), nil
}

// zeros returns the zero values of results.
func zeros(set *token.FileSet, results *ast.FieldList) (string, error) {
	if results == nil {
		return "return", nil
	}
	var names, out strings.Builder
	n := 0
	for _, field := range results.List {
		var of bytes.Buffer
		if err := printer.Fprint(&of, set, field.Type); err != nil {
			return "", err
		}
		for range max(1, len(field.Names)) {
			fmt.Fprintf(&out, "var zero%d %s; ", n, of.String())
			fmt.Fprintf(&names, ", zero%d", n)
			n++
		}
	}
	return out.String() + "return " + strings.TrimPrefix(names.String(), ", "), nil
}
