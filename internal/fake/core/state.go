package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// address names an instance of a resource or data source. The key is NilVal where there
// is neither count nor for_each.
type address struct {
	resource string // type.name, data.type.name
	key      cty.Value
}

func (a address) String() string {
	if a.key == cty.NilVal {
		return a.resource
	}
	return a.resource + "[" + keyText(a.key) + "]"
}

func (a address) data() bool { return strings.HasPrefix(a.resource, "data.") }

// parts are the type and the name.
func (a address) parts() (typ, name string) {
	typ, name, _ = strings.Cut(strings.TrimPrefix(a.resource, "data."), ".")
	return typ, name
}

// index is the key as JSON has it.
func (a address) index() any {
	switch {
	case a.key == cty.NilVal:
		return nil
	case a.key.Type() == cty.Number:
		n, _ := a.key.AsBigFloat().Int64()
		return int(n)
	default:
		return a.key.AsString()
	}
}

// parseAddress reads an address as a command line or an import block has it.
func parseAddress(t hcl.Traversal) (address, error) {
	a := address{resource: refers(t)}
	n := 2
	if t.RootName() == "data" {
		n = 3
	}
	switch {
	case len(t) < n, len(t) > n+1:
		return a, fmt.Errorf("the address %v %w", t, errUnsupported)
	case len(t) == n+1:
		step, ok := t[n].(hcl.TraverseIndex)
		if !ok {
			return a, fmt.Errorf("the address of %s %w", a.resource, errUnsupported)
		}
		a.key = step.Key
	}
	return a, nil
}

// state is what Terraform remembers between two runs.
type state struct {
	instances map[string]*instance // by address
	outputs   map[string]cty.Value
	serial    int64 // of the run that wrote it
}

type instance struct {
	address
	provider string // key of its provider block
	current  *object
	deposed  []*object
}

// object is what the state has of one object.
type object struct {
	value    cty.Value
	private  []byte
	identity cty.Value // NilVal for none
	tainted  bool
	version  int64
	// waits are the resources that it depends on, directly or not.
	waits []string
	cbd   bool
}

func newState() *state {
	return &state{instances: map[string]*instance{}, outputs: map[string]cty.Value{}}
}

func (s *state) clone() *state {
	out := &state{instances: map[string]*instance{}, outputs: maps.Clone(s.outputs), serial: s.serial}
	for k, i := range s.instances {
		c := *i
		c.deposed = slices.Clone(i.deposed)
		out.instances[k] = &c
	}
	return out
}

func (s *state) object(a address) *object {
	if i := s.instances[a.String()]; i != nil {
		return i.current
	}
	return nil
}

// set writes an object; none at all removes it.
func (s *state) set(a address, provider string, o *object) {
	i := s.instances[a.String()]
	if i == nil {
		if o == nil {
			return
		}
		i = &instance{address: a}
		s.instances[a.String()] = i
	}
	i.current = o
	if provider != "" {
		i.provider = provider
	}
	s.drop(i)
}

// drop forgets an instance that has nothing left.
func (s *state) drop(i *instance) {
	if i.current == nil && len(i.deposed) == 0 {
		delete(s.instances, i.String())
	}
}

// of are the instances of a resource, in order.
func (s *state) of(resource string) []*instance {
	var out []*instance
	for _, i := range s.sorted() {
		if i.resource == resource {
			out = append(out, i)
		}
	}
	return out
}

func (s *state) sorted() []*instance {
	return slices.SortedFunc(maps.Values(s.instances), func(a, b *instance) int { return compareAddresses(a.address, b.address) })
}

func compareAddresses(a, b address) int {
	if a.resource != b.resource {
		return strings.Compare(a.resource, b.resource)
	}
	number := func(k cty.Value) (int64, bool) {
		if k == cty.NilVal || k.Type() != cty.Number {
			return 0, false
		}
		n, _ := k.AsBigFloat().Int64()
		return n, true
	}
	x, ok := number(a.key)
	if y, both := number(b.key); ok && both {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a.String(), b.String())
}

// deposedKey names an object that was set aside.
func deposedKey(n int) string { return fmt.Sprintf("%08s", strconv.Itoa(n+1)) }
