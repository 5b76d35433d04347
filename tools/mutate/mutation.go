package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
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

// place is a function in a file with the mutations of it.
type place struct {
	file       string
	begin, end int // of the function's body, between its braces
	mutations  []mutation
	bodies     []string // broken, one for each
}

// locate finds the mutations below root. It is an error when a place is not there any more.
func locate(root string, all []mutation) ([]*place, error) {
	places := map[string]*place{}
	var out []*place
	for _, m := range all {
		set, file, text, f, err := m.find(root)
		if err != nil {
			return nil, err
		}
		begin, end := set.Position(f.Body.Lbrace).Offset+1, set.Position(f.Body.Rbrace).Offset
		body, err := m.change(set, f, string(text[begin:end]))
		if err != nil {
			return nil, err
		}
		p := places[m.in+"."+m.function]
		if p == nil {
			p = &place{file: file, begin: begin, end: end}
			places[m.in+"."+m.function] = p
			out = append(out, p)
		}
		p.mutations, p.bodies = append(p.mutations, m), append(p.bodies, body)
	}
	return out, nil
}

// find returns the function of a mutation.
func (m mutation) find(root string) (*token.FileSet, string, []byte, *ast.FuncDecl, error) {
	set := token.NewFileSet()
	files, err := filepath.Glob(filepath.Join(root, m.in, "*.go"))
	if err != nil {
		return nil, "", nil, nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, "", nil, nil, err
		}
		parsed, err := parser.ParseFile(set, file, text, 0)
		if err != nil {
			return nil, "", nil, nil, err
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && nameOf(f) == m.function {
				return set, file, text, f, nil
			}
		}
	}
	return nil, "", nil, nil, fmt.Errorf("%s has no function %s any more: update tools/mutate/list.go", m.in, m.function)
}

// broken are the files of places, each with all its mutations: which of them counts is said
// by the environment when the tests run, so that they are built once.
func broken(places []*place) (map[string][]byte, error) {
	byFile := map[string][]*place{}
	for _, p := range places {
		byFile[p.file] = append(byFile[p.file], p)
	}
	out := map[string][]byte{}
	for file, in := range byFile {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(in, func(a, b *place) int { return b.begin - a.begin })
		for _, p := range in {
			var head strings.Builder
			for i, m := range p.mutations {
				// A closure would keep named results; a block keeps them too, and what the
				// body declares to itself.
				fmt.Fprintf(&head, "\nif mutationOfThisRun(%q) {%s\n}\n", m.name(), p.bodies[i])
			}
			text = slices.Concat(text[:p.begin], []byte(head.String()), text[p.begin:])
		}
		out[file] = text
		dir := filepath.Dir(file)
		name, _, _ := strings.Cut(string(text[strings.Index(string(text), "\npackage ")+1:]), "\n")
		out[filepath.Join(dir, "mutation_of_this_run.go")] = []byte(name + switching)
	}
	return out, nil
}

const (
	// variable names the mutation that counts in a run of tests.
	variable = "GPU_MUTATION"
	// reachedVariable names the file to which a run adds the mutations that it comes by.
	reachedVariable = "GPU_MUTATIONS_REACHED"
)

// switching is what a package with mutations has besides.
const switching = `

import (
	"os"
	"sync"
)

var (
	countingMutation = os.Getenv("` + variable + `")
	reachedMutations = os.Getenv("` + reachedVariable + `")
	toldMutations    sync.Map
)

func mutationOfThisRun(name string) bool {
	if reachedMutations != "" {
		if _, told := toldMutations.LoadOrStore(name, true); !told {
			f, err := os.OpenFile(reachedMutations, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			if _, err := f.WriteString(name + "\n"); err != nil {
				panic(err)
			}
			f.Close()
		}
	}
	return name == countingMutation
}
`

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

// change returns a function's body with the mutation.
func (m mutation) change(set *token.FileSet, f *ast.FuncDecl, body string) (string, error) {
	if m.from == "" {
		zero, err := zeros(set, f.Type.Results)
		return " " + zero, err
	}
	if n := strings.Count(body, m.from); n != 1 {
		return "", fmt.Errorf("%s.%s has %q %d times and not once: update tools/mutate/list.go", m.in, m.function, m.from, n)
	}
	body = strings.Replace(body, m.from, m.to, 1)
	if f.Type.Results == nil {
		body += "\nreturn"
	}
	return body, nil
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
