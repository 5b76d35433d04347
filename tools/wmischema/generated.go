package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// generated are the folders of the module github.com/microsoft/wmi, by the build of Windows
// that they were generated from.
var generated = map[int]string{17763: "server2019", 25398: "server23h2"}

var folders = map[string]string{
	virtualization: "virtualization/v2", `root\cimv2`: "cimv2", `root\MSCluster`: "mscluster", `root\default`: "cimv2",
}

// goTypes are the types of MOF that a type of Go was generated from.
var goTypes = map[string][]string{
	"bool": {"boolean"}, "string": {"string", "datetime", "ref"}, "int8": {"sint8"}, "int32": {"sint32"}, "int64": {"sint64"},
	"uint8": {"uint8"}, "uint16": {"uint16"}, "uint32": {"uint32"}, "uint64": {"uint64"},
}

// private are the private properties of a cluster's resource, which its type decides: Microsoft's
// page of the class says that they are made up as a resource is read.
const private = "MSCluster_Property"

// compare holds lines against the classes that were generated from a build. Classes that its
// folder does not have are not compared.
func compare(lines []line, root string, build int) []error {
	var wrong []error
	classes := map[string]*goClass{}
	read := func(folder, class string) *goClass {
		path := filepath.Join(root, filepath.FromSlash(folder), class+".go")
		c, known := classes[path]
		if !known {
			var err error
			if c, err = readClass(path); err != nil {
				wrong = append(wrong, err)
			}
			classes[path] = c
		}
		return c
	}
	for _, l := range lines {
		folder := folders[l.namespace]
		if folder == "" || l.class == private && l.member != "" {
			continue
		}
		c := read(folder, l.class)
		if c == nil {
			continue
		}
		why := c.contradicts(l)
		for base := c; why == missing && base != nil; { // what is declared again lower down
			if base = read(folder, base.super); base != nil {
				why = base.contradicts(l)
			}
		}
		if after(l.since, build) {
			if why == "" && l.member != "" && !strings.Contains(l.member, "(") {
				wrong = append(wrong, fmt.Errorf("%s is there already in build %d", l, build))
			}
			continue
		}
		if why != "" {
			wrong = append(wrong, fmt.Errorf("%s is %q, and %s of build %d", l, l.kind, why, build))
		}
	}
	return wrong
}

// after tells whether a member came after a build.
func after(since string, build int) bool {
	n, err := strconv.Atoi(since)
	return err == nil && n > build
}

// goClass is a class as it was generated.
type goClass struct {
	super   string
	fields  map[string]string
	methods map[string]map[string]string // parameters
}

func readClass(path string) (*goClass, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	c := &goClass{fields: map[string]string{}, methods: map[string]map[string]string{}}
	name := strings.TrimSuffix(filepath.Base(path), ".go")
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			body, ok := n.Type.(*ast.StructType)
			if !ok || n.Name.Name != name {
				return true
			}
			for _, f := range body.Fields.List {
				if len(f.Names) == 0 {
					c.super = strings.TrimPrefix(kind(f.Type), "*")
					continue
				}
				c.fields[strings.ToLower(f.Names[0].Name)] = kind(f.Type)
			}
		case *ast.FuncDecl:
			parameters := map[string]string{}
			for _, f := range n.Type.Params.List {
				for _, one := range f.Names {
					parameters[strings.ToLower(one.Name)] = kind(f.Type)
				}
			}
			c.methods[n.Name.Name] = parameters
		}
		return true
	})
	return c, nil
}

func kind(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return "*" + kind(e.X)
	case *ast.ArrayType:
		return kind(e.Elt) + "[]"
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

const missing = "there is none"

// contradicts says what the class has instead of a line, "" where they agree.
func (c *goClass) contradicts(l line) string {
	method, parameter, isMethod := l.parts()
	var has string
	var ok bool
	switch {
	case l.member == "":
		if c.super != l.kind && c.super != "WmiInstance" {
			return "it is derived from " + c.super
		}
		return ""
	case !isMethod:
		has, ok = c.fields[strings.ToLower(l.member)]
	case parameter == "":
		_, ok = c.methods[method]
		if ok {
			return ""
		}
	default:
		has, ok = c.methods[method][strings.ToLower(parameter)]
	}
	if !ok {
		return missing
	}
	element, array := strings.CutSuffix(has, "[]")
	wanted, wantsArray := strings.CutSuffix(l.kind, "[]")
	of, isRef := strings.CutSuffix(wanted, " ref")
	if isRef {
		wanted = "ref"
	}
	known, isEnum := goTypes[element], strings.Contains(element, "_") && !strings.HasPrefix(element, strings.SplitAfter(l.class, "_")[0])
	if array != wantsArray || !isEnum && !slices.Contains(known, wanted) && element != of {
		return "it is " + has
	}
	return ""
}
