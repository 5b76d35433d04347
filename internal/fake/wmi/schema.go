package fakewmi

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

const rootNamespace = "root"

// namespaces are those that a machine has.
var namespaces = []string{rootNamespace, hyperv.Virtualization, hyperv.CIMv2, hyperv.Registry, hyperv.MSCluster}

// schema is the classes of one namespace, as they are declared.
type schema struct {
	classes []*Class
	index   map[string]*Class
	// whole are the classes of builds of which nothing is hidden, which nobody changes.
	whole sync.Map
}

// wholeKey is a class of a build.
type wholeKey struct {
	name  string
	build int
}

// wholeClass is class with nothing hidden.
func (s *schema) wholeClass(name string, build int) *Class {
	key := wholeKey{fold(name), build}
	if c, ok := s.whole.Load(key); ok {
		c, _ := c.(*Class)
		return c
	}
	c := s.class(name, build, func(string) bool { return false })
	s.whole.Store(key, c)
	return c
}

// schemas reads all classes, once.
var schemas = sync.OnceValues(func() (map[string]*schema, error) {
	out := map[string]*schema{}
	file, err := published.Open("schema/published.csv")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it is only read
	of, err := parsePublished(file)
	if err != nil {
		return nil, fmt.Errorf("schema/published.csv: %w", err)
	}
	for _, namespace := range namespaces {
		classes := of[namespace]
		s := &schema{classes: classes, index: map[string]*Class{}}
		for _, c := range classes {
			s.index[fold(c.Name)] = c
		}
		for _, c := range classes {
			if _, ok := s.index[fold(c.Super)]; c.Super != "" && !ok {
				return nil, fmt.Errorf("schema/published.csv: %s is derived from %s, which is not there", c.Name, c.Super)
			}
		}
		out[namespace] = s
	}
	return out, nil
})

// class is a class as a build of Windows has it, with all that it inherits, or nil.
// Hidden is asked for folded names of classes and "class.property".
func (s *schema) class(name string, build int, hidden func(string) bool) *Class {
	declared, ok := s.index[fold(name)]
	if !ok || hidden(fold(name)) || declared.since > build {
		return nil
	}
	out := *declared
	out.Properties, out.Methods = nil, nil
	lineage := []*Class{declared}
	for c := declared; c.Super != ""; {
		c = s.index[fold(c.Super)]
		out.bases = append(out.bases, c.Name)
		lineage = append(lineage, c)
	}
	slices.Reverse(lineage)
	for _, c := range lineage {
		out.Methods = append(out.Methods, c.Methods...)
		for _, p := range c.Properties {
			if inherited, ok := out.Property(p.Name); ok {
				inherited.Key = inherited.Key || p.Key
				inherited.Write = inherited.Write || p.Write
				continue
			}
			out.Properties = append(out.Properties, p)
		}
	}
	out.Properties = slices.DeleteFunc(out.Properties, func(p Property) bool {
		return p.Since > build || hidden(fold(out.Name+"."+p.Name))
	})
	return &out
}

// derived are the names of a class and of those derived from it.
func (s *schema) derived(name string) []string {
	var out []string
	for _, c := range s.classes {
		for d := c; d != nil; d = s.index[fold(d.Super)] {
			if strings.EqualFold(d.Name, name) {
				out = append(out, c.Name)
				break
			}
		}
	}
	return out
}

// Declared are the classes of a namespace as a build of Windows is taken to have them.
func Declared(namespace string, build int) ([]*Class, error) {
	_, s, err := findNamespace(namespace)
	if err != nil {
		return nil, err
	}
	var out []*Class
	for _, c := range s.classes {
		if whole := s.wholeClass(c.Name, build); whole != nil {
			out = append(out, whole)
		}
	}
	return out, nil
}
