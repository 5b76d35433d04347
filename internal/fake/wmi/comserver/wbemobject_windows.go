package comserver

import (
	"context"
	"slices"
	"strings"

	"github.com/go-ole/go-ole"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
)

const invalidOperation hyperv.Code = 0x80041016 // WBEM_E_INVALID_OPERATION

// wbemObject is SWbemObject: an instance, a class, an embedded object or a method's
// parameters.
type wbemObject struct {
	services *services
	object   *fakewmi.Object
}

func (s *services) wrap(o *fakewmi.Object) *wbemObject { return &wbemObject{s, o} }

// member finds the members of SWbemObject, whose names end in an underscore, and
// the properties of the class.
func (o *wbemObject) member(name string) (member, bool) {
	switch strings.ToLower(name) {
	case "path_":
		return constantObject(func() *object { return dispatch(&objectPath{o.object}) })
	case "properties_":
		return constantObject(func() *object { return dispatch(&propertySet{o}) })
	case "systemproperties_":
		return constantObject(func() *object { return dispatch(&systemPropertySet{o.object}) })
	case "methods_":
		return constantObject(func() *object { return dispatch(&methodSet{o}) })
	case "put_":
		return method(0, 2, o.put)
	case "refresh_":
		return method(0, 2, o.refresh)
	case "spawninstance_":
		return method(0, 1, o.spawn)
	case "clone_":
		return method(0, 0, func(args) (any, error) { return dispatch(o.services.wrap(o.object.Clone())), nil })
	case "gettext_":
		return method(1, 3, o.getText)
	case "execmethod_":
		return method(1, 4, o.execMethod)
	}
	if p, ok := o.property(name); ok {
		return p.value(), true
	}
	return member{}, false
}

// property finds a property that the class has on this build and that was selected.
func (o *wbemObject) property(name string) (*wbemProperty, bool) {
	for _, p := range o.object.Properties() {
		if strings.EqualFold(p.Name, name) {
			return &wbemProperty{o, p}, true
		}
	}
	return nil, false
}

// spawn makes an instance of a class. An instance has none.
func (o *wbemObject) spawn(args) (any, error) {
	if !o.object.IsClass() && o.object.Class.Name != parameterClass {
		return nil, &hyperv.Fault{Code: invalidOperation, Text: "Invalid operation"}
	}
	return dispatch(o.services.wrap(o.object.Class.New())), nil
}

func (o *wbemObject) put(args) (any, error) {
	_, err := ask(o.services, func() (any, error) {
		return nil, o.services.namespace.Put(context.Background(), o.object)
	})
	if err != nil {
		return nil, err
	}
	return dispatch(&objectPath{o.object}), nil
}

func (o *wbemObject) refresh(args) (any, error) {
	fresh, err := o.services.object(o.object.Path)
	if err != nil {
		return nil, err
	}
	o.object = fresh
	return void{}, nil
}

// textFormat is wbemObjectTextFormatCIMDTD20, the one that methods take.
const textFormat = 1

func (o *wbemObject) getText(a args) (any, error) {
	format, err := a.number(0)
	if err != nil {
		return nil, err
	}
	if format != textFormat {
		return nil, &hyperv.Fault{Code: hyperv.InvalidParameter, Text: "Invalid parameter"}
	}
	return apart(func() (any, error) { return o.object.Text(), nil })
}

func (o *wbemObject) execMethod(a args) (any, error) {
	name, err := a.text(0)
	if err != nil {
		return nil, err
	}
	in, err := inParameters(a, 1)
	if err != nil {
		return nil, err
	}
	return o.services.call(o.object.Path, name, in)
}

// objectPath is SWbemObjectPath.
type objectPath struct{ object *fakewmi.Object }

func (p *objectPath) member(name string) (member, bool) {
	full := p.object.Path
	head, relative, _ := strings.Cut(strings.TrimPrefix(full, `\\`), ":")
	server, namespace, _ := strings.Cut(head, `\`)
	if full == "" {
		relative, server, namespace = "", "", ""
	}
	switch strings.ToLower(name) {
	case "path":
		return constant(full)
	case "relpath":
		return constant(relative)
	case "server":
		return constant(server)
	case "namespace":
		return constant(namespace)
	case "class":
		return constant(p.object.Class.Name)
	case "isclass":
		return constant(full != "" && !strings.Contains(relative, "="))
	}
	return member{}, false
}

// systemPropertySet is SWbemPropertySet of what every object has.
type systemPropertySet struct{ object *fakewmi.Object }

func (s *systemPropertySet) member(name string) (member, bool) {
	if !strings.EqualFold(name, "item") {
		return member{}, false
	}
	return method(1, 2, func(a args) (any, error) {
		name, err := a.text(0)
		if err != nil {
			return nil, err
		}
		values := map[string]string{
			"__PATH":    s.object.Path,
			"__RELPATH": s.object.Path[strings.Index(s.object.Path, ":")+1:],
			"__CLASS":   s.object.Class.Name,
		}
		v, ok := values[strings.ToUpper(name)]
		if !ok {
			return nil, &hyperv.Fault{Code: hyperv.NotFound, Text: "Not found"}
		}
		return dispatch(&systemProperty{strings.ToUpper(name), v}), nil
	})
}

// systemProperty is SWbemProperty of one of them. An empty one has no value.
type systemProperty struct{ name, value string }

func (p *systemProperty) member(name string) (member, bool) {
	switch strings.ToLower(name) {
	case "name":
		return constant(p.name)
	case "value":
		if p.value == "" {
			return constant(nil)
		}
		return constant(p.value)
	}
	return member{}, false
}

// propertySet is SWbemPropertySet.
type propertySet struct{ object *wbemObject }

func (s *propertySet) member(name string) (member, bool) {
	switch strings.ToLower(name) {
	case "_newenum":
		return property(func() (any, error) {
			list := s.object.object.Properties()
			return enum(len(list), func(i int) any { return dispatch(&wbemProperty{s.object, list[i]}) }, nil), nil
		})
	case "count":
		return property(func() (any, error) { return int32(len(s.object.object.Properties())), nil })
	case "item":
		return method(1, 2, s.item)
	}
	return member{}, false
}

func (s *propertySet) item(a args) (any, error) {
	name, err := a.text(0)
	if err != nil {
		return nil, err
	}
	p, ok := s.object.property(name)
	if !ok {
		return nil, &hyperv.Fault{Code: hyperv.NotFound, Text: "Not found"}
	}
	return dispatch(p), nil
}

// wbemProperty is SWbemProperty.
type wbemProperty struct {
	owner *wbemObject
	fakewmi.Property
}

func (p *wbemProperty) member(name string) (member, bool) {
	switch strings.ToLower(name) {
	case "name":
		return constant(p.Name)
	case "isarray":
		return constant(p.Array)
	case "cimtype":
		return constant(cimTypes[p.Type])
	case "value":
		return p.value(), true
	}
	return member{}, false
}

// value is the property as a member of whoever has it.
func (p *wbemProperty) value() member {
	return member{
		get: func() (any, error) {
			v, _ := p.owner.object.Get(p.Name)
			return delivered(p.Property, v, func(o *fakewmi.Object) any {
				return dispatch(p.owner.services.wrap(o.Clone()))
			})
		},
		put: func(v *ole.VARIANT) error {
			value, err := received(v)
			if err != nil {
				return err
			}
			return p.owner.object.Set(p.Name, value)
		},
	}
}

// methodSet is SWbemMethodSet.
type methodSet struct{ object *wbemObject }

func (s *methodSet) member(name string) (member, bool) {
	list := s.object.object.Class.Methods
	switch strings.ToLower(name) {
	case "_newenum":
		return property(func() (any, error) {
			return enum(len(list), func(i int) any { return dispatch(&wbemMethod{s.object, list[i]}) }, nil), nil
		})
	case "count":
		return constant(int32(len(list)))
	case "item":
		return method(1, 2, func(a args) (any, error) {
			name, err := a.text(0)
			if err != nil {
				return nil, err
			}
			for _, m := range list {
				if strings.EqualFold(m.Name, name) {
					return dispatch(&wbemMethod{s.object, m}), nil
				}
			}
			return nil, &hyperv.Fault{Code: hyperv.NotFound, Text: "Not found"}
		})
	}
	return member{}, false
}

// wbemMethod is SWbemMethod.
type wbemMethod struct {
	object *wbemObject
	fakewmi.Method
}

func (m *wbemMethod) member(name string) (member, bool) {
	switch strings.ToLower(name) {
	case "name":
		return constant(m.Name)
	case "inparameters":
		return m.signature(m.Parameters())
	case "outparameters":
		return m.signature(m.results())
	}
	return member{}, false
}

// signature is the class of a method's in or out parameters, no object when there
// are none.
func (m *wbemMethod) signature(o *fakewmi.Object) (member, bool) {
	if o == nil {
		return constant(noObject{})
	}
	return constantObject(func() *object { return dispatch(m.object.services.wrap(o)) })
}

// parameterClass is the class of the objects that carry parameters.
const parameterClass = "__PARAMETERS"

func (m *wbemMethod) results() *fakewmi.Object {
	list := slices.Clone(m.Out)
	if !m.Void {
		list = append(list, fakewmi.Property{Name: "ReturnValue", Type: fakewmi.Uint32})
	}
	if len(list) == 0 {
		return nil
	}
	return (&fakewmi.Class{Name: parameterClass, Properties: list}).New()
}
